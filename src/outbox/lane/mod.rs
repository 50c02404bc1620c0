//! A lane: one handler, one thread, one cursor.
//!
//! The thread takes the lane (`take`), then passes over the database again and again: exceptions that are due first,
//! then the log after its position (`pass`). What it finds out stays in memory (`progress`) until a flush writes it.

mod attempt;
mod call;
mod orphans;
mod pass;
mod progress;
mod report;
mod status;
mod take;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, select};

use self::call::Called;
use self::progress::Progress;
use self::report::Reporter;
pub(super) use self::status::Board;
pub use self::status::{LaneState, LaneStatus};
use self::take::{Claim, Taken};
use super::flush::{self, Flush, Pause};
use super::gate::Entrance;
use super::log::Matcher;
use super::owner::{Liveness, OwnerLock, OwnerWatch};
use super::policy::millis;
use super::relay::RelayOptions;
use super::{Handler, OnDeadLetter, StartAt, sql};
use crate::storage::{Database, TransactError};

/// While a flush is under way an idle lane looks again this soon.
const FLIGHT_LOOK: Duration = Duration::from_millis(2);
/// No wait is shorter, whatever the options say.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Tells every lane of a relay to stop. The channel's sender is dropped to wake all of them.
#[derive(Debug)]
pub(super) struct StopSignal {
    pub(super) asked: Receiver<()>,
    pub(super) deadline: Arc<OnceLock<Instant>>,
}

/// What a lane thread is made of.
pub(super) struct LaneParts {
    pub(super) database: Database,
    pub(super) name: String,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) options: RelayOptions,
    pub(super) lock: Arc<OwnerLock>,
    pub(super) path: PathBuf,
    pub(super) board: Arc<Board>,
    pub(super) stop: StopSignal,
    /// Commits of this process.
    pub(super) commits: Receiver<()>,
    /// `Relay::notify`.
    pub(super) notices: Receiver<()>,
}

/// Why a lane stops what it is doing.
#[derive(Debug)]
enum Interrupt {
    /// The lane is not ours any more, or an outcome is unknown: forget and load anew.
    Lost,
    /// An operator holds it.
    Held,
    /// The database does not answer.
    Database(String),
    /// The stop deadline has passed.
    Deadline,
}

/// An outage as the lane remembers it.
#[derive(Debug, Clone)]
struct Outage {
    failed: u32,
    until: i64,
    since: i64,
}

pub(super) struct Lane {
    database: Database,
    name: String,
    handler: Arc<dyn Handler>,
    on_dead_letter: OnDeadLetter,
    start_at: StartAt,
    batch_limit: usize,
    options: RelayOptions,
    lock: Arc<OwnerLock>,
    path: PathBuf,
    board: Arc<Board>,
    stop: StopSignal,
    commits: Receiver<()>,
    notices: Receiver<()>,
    watch: OwnerWatch,
    matcher: Matcher,
    entrance: Entrance,
    /// The last look at the time: after a read, and after each call.
    looked_at: Instant,
    progress: Progress,
    reporter: Reporter,
    /// Outcomes of log events that ran ahead of the position, to tell an outage from one dead address.
    ahead: HashMap<i64, Called>,
    outage: Option<Outage>,
    single_step_to: Option<i64>,
    begun: bool,
    /// An event may stand in `lanes.running_id`.
    named: bool,
    /// The lane's row may name us.
    owned: bool,
    /// The lane's row has been there.
    seen: bool,
    /// The last row that was there when the lane was taken; beyond the cursor after a rewind.
    rows_until: i64,
    /// Where the search for waiting rows that nothing would wake goes on; `None` once it is through.
    orphans_after: Option<i64>,
}

impl Lane {
    pub(super) fn new(parts: LaneParts) -> Self {
        let LaneParts { database, name, handler, options, lock, path, board, stop, commits, notices } = parts;
        Self {
            on_dead_letter: handler.on_dead_letter(),
            start_at: handler.start_at(),
            batch_limit: handler.batch_limit().clamp(1, options.batch_events),
            matcher: Matcher::new(handler.filter()),
            entrance: Entrance::new(),
            looked_at: Instant::now(),
            database,
            name,
            handler,
            options,
            lock,
            path,
            board,
            stop,
            commits,
            notices,
            watch: OwnerWatch::default(),
            progress: Progress::default(),
            reporter: Reporter::default(),
            ahead: HashMap::new(),
            outage: None,
            single_step_to: None,
            begun: false,
            named: false,
            owned: false,
            seen: false,
            rows_until: 0,
            orphans_after: None,
        }
    }

    /// The thread's whole life.
    pub(super) fn run(mut self) {
        while !self.stop_asked() {
            match self.acquire() {
                Ok(true) => self.serve(),
                Ok(false) => self.wait(),
                Err(reason) => {
                    self.board.show(LaneState::Waiting { reason });
                    self.wait();
                }
            }
        }
        if self.owned {
            // Lost hold of it in its last moments; it may still name us.
            let _ = self.release();
        }
        self.reporter.end(&self.name);
        self.board.show(LaneState::Stopped);
    }

    /// Takes our name off the lane if it stands there, for a lane of which nothing is in memory.
    fn release(&mut self) -> Result<(), String> {
        let (handler, owner) = (self.name.clone(), self.lock.id().to_owned());
        self.database
            .writer()
            .submit_internal(false, move |tx| {
                tx.prepare_cached(sql::GIVE_UP_LANE)?.execute((handler.as_str(), owner.as_str()))
            })
            .and_then(|pending| pending.wait())
            .map_err(|error: TransactError<rusqlite::Error>| format!("letting the lane go failed: {error}"))?;
        self.owned = false;
        Ok(())
    }

    /// Takes the lane if it is free or its owner is dead.
    fn acquire(&mut self) -> Result<bool, String> {
        let name = self.name.clone();
        let row = self
            .database
            .read(|connection| take::read_lane(connection, &name))
            .map_err(|error| format!("reading the lane failed: {error}"))?;
        let mut dead = None;
        if row.is_none() && self.seen {
            // Made anew it would deliver all over again what the log still holds.
            return Err("the lane was renamed or retired: restart the program, with that handler only if it is wanted"
                .to_owned());
        }
        if let Some(row) = &row {
            self.seen = true;
            if row.held {
                if row.owner.as_deref() == Some(self.lock.id()) {
                    // Only what nobody owns can be worked on.
                    self.release()?;
                }
                self.board.show(LaneState::Held);
                return Ok(false);
            }
            if row.owner.as_deref() == Some(self.lock.id()) {
                // A flush of ours was refused, or nobody knows how it ended: load the lane as it stands now.
                return self.claim(None);
            }
            if let Some(owner) = &row.owner {
                if self.watch.check(&self.path, owner, Instant::now()) == Liveness::Alive {
                    self.board.show(LaneState::Standby { owner: owner.clone() });
                    return Ok(false);
                }
                dead = Some(owner.clone());
            }
        }
        self.claim(dead)
    }

    fn claim(&mut self, dead: Option<String>) -> Result<bool, String> {
        let claim = Claim {
            handler: self.name.clone(),
            owner: self.lock.id().to_owned(),
            event_types: self.matcher.filter().stored(),
            on_dead_letter: self.on_dead_letter,
            start_at: self.start_at,
            dead: dead.clone(),
            run_ahead: self.options.run_ahead,
            max_crashes: self.options.policy.max_crashes,
            now: self.now(),
        };
        self.owned = true;
        let taken = self
            .database
            .writer()
            .submit_internal(false, move |tx| take::take(tx, &claim))
            .and_then(|pending| pending.wait())
            .map_err(|error| format!("taking the lane failed: {error}"))?;
        let Taken::Ours { cursor, single_step_to, dead_owner_is_done, condemned, rows_until } = taken else {
            self.owned = false;
            return Ok(false);
        };
        self.seen = true;
        self.rows_until = rows_until;
        if let Some(dead) = dead {
            let end = single_step_to.unwrap_or(cursor);
            log::warn!("lane handler={} takeover_from={dead} cursor={cursor} single_step_to={end}", self.name);
            if dead_owner_is_done {
                take::clean_up_after(&self.path, &dead);
            }
        }
        if let Some(id) = condemned {
            let park_keys = self.on_dead_letter == OnDeadLetter::ParkKey;
            self.reporter.condemned(&self.database, (&self.name, park_keys), id, Instant::now());
        }
        self.progress = Progress::at(cursor);
        self.ahead.clear();
        self.outage = None;
        self.single_step_to = single_step_to;
        self.begun = false;
        self.named = false;
        self.orphans_after = Some(i64::MIN);
        self.board.set_cursor(cursor);
        self.board.show(LaneState::Running);
        Ok(true)
    }

    /// Delivers until the lane is lost, held or stopped.
    fn serve(&mut self) {
        loop {
            match self.pass() {
                Ok(true) if self.past_deadline() => break,
                Ok(true) => {}
                Ok(false) if self.stop_asked() => break,
                Ok(false) => {
                    if self.progress.is_clean() && self.outage.is_none() {
                        self.board.idle(self.progress.durable());
                    }
                    self.wait();
                }
                Err(Interrupt::Lost) => return self.forget(),
                Err(Interrupt::Held | Interrupt::Deadline) => break,
                Err(Interrupt::Database(reason)) => {
                    self.board.show(LaneState::Waiting { reason });
                    if self.past_deadline() {
                        break;
                    }
                    self.wait_for(self.options.poll);
                }
            }
        }
        self.give_up();
    }

    fn forget(&mut self) {
        log::warn!("lane handler={} ownership=lost loading=anew", self.name);
        self.progress = Progress::default();
        self.ahead.clear();
    }

    /// Writes what is known and lets the lane go, so that a successor starts at once.
    fn give_up(&mut self) {
        self.ahead.clear();
        loop {
            let written = self.land(true).and_then(|()| self.depart(None, true)).and_then(|()| self.land(true));
            match written {
                Ok(()) => {
                    self.owned = false;
                    return;
                }
                Err(Interrupt::Database(reason)) => {
                    self.board.show(LaneState::Waiting { reason: reason.clone() });
                    if self.past_deadline() {
                        log::error!("lane handler={} release=failed reason={reason:?}", self.name);
                        return;
                    }
                    self.wait_for(self.options.poll);
                }
                Err(_) => return self.forget(),
            }
        }
    }

    /// Hands what is unwritten to the queue-writer. `running` names the event about to run alone.
    fn depart(&mut self, running: Option<i64>, give_up: bool) -> Result<(), Interrupt> {
        let mut flush = Flush {
            handler: self.name.clone(),
            owner: self.lock.id().to_owned(),
            from: 0,
            to: 0,
            running,
            changes: Vec::new(),
            pause: None,
            end_single_step: false,
            park_keys: self.on_dead_letter == OnDeadLetter::ParkKey,
            give_up,
            now: self.now(),
        };
        self.progress.fill(&mut flush);
        let flush = Arc::new(flush);
        let task = Arc::clone(&flush);
        match self.database.writer().submit_internal(false, move |tx| flush::apply(tx, &task)) {
            Ok(answer) => {
                self.named = running.is_some();
                self.progress.depart(flush, answer);
                Ok(())
            }
            Err(error) => {
                self.progress.restore(&flush, Instant::now());
                Err(Interrupt::Database(format!("flush not accepted: {error}")))
            }
        }
    }

    /// Takes in the answer of the flush under way, if there is one; `wait` says whether to wait for it.
    fn land(&mut self, wait: bool) -> Result<(), Interrupt> {
        let Some(progress::Flight { answer, flush, rows }) = self.progress.take_flight() else { return Ok(()) };
        let answer = if wait {
            answer.wait()
        } else {
            match answer.try_wait() {
                Ok(answer) => answer,
                Err(answer) => {
                    self.progress.put_back_flight(progress::Flight { answer, flush, rows });
                    return Ok(());
                }
            }
        };
        match answer {
            Ok(true) => {
                self.progress.landed(&flush);
                self.board.set_cursor(self.progress.durable());
                self.reporter.written(&self.database, &flush, Instant::now());
                Ok(())
            }
            Ok(false) | Err(TransactError::OutcomeUnknown(_)) => Err(Interrupt::Lost),
            Err(error) => {
                self.progress.turned_back(&flush, rows, Instant::now());
                Err(Interrupt::Database(format!("flush failed: {error}")))
            }
        }
    }

    /// Writes everything and waits until it is durable.
    fn settle(&mut self, running: Option<i64>) -> Result<(), Interrupt> {
        self.land(true)?;
        if running.is_some() || self.named || self.progress.oldest().is_some() {
            self.depart(running, false)?;
            self.land(true)?;
        }
        Ok(())
    }

    /// Starts a flush when the oldest outcome is old enough or there are many.
    fn flush_if_due(&mut self, now: Instant) -> Result<(), Interrupt> {
        let Some(oldest) = self.progress.oldest() else { return self.land(false) };
        if self.progress.unwritten() >= self.options.run_ahead {
            // The writer does not keep up: what a kill would repeat, and what waits in memory, stays bounded.
            return self.settle(None);
        }
        let due = now.saturating_duration_since(oldest) >= self.options.flush_after
            || self.progress.unwritten() >= self.options.flush_events;
        if due {
            self.land(false)?;
            if !self.progress.is_flying() {
                self.depart(None, false)?;
            }
        }
        Ok(())
    }

    /// Waits for something to do: a commit, a notice, a stop, the next flush or the poll interval.
    fn wait(&mut self) {
        self.wait_for(self.wait_time(Instant::now()));
    }

    /// Never zero, or a writer that is stuck would make this a busy loop.
    fn wait_time(&self, now: Instant) -> Duration {
        let poll = self.options.poll.max(SHORTEST_WAIT);
        if self.progress.is_flying() {
            // The next flush cannot leave before this one has landed.
            return poll.min(FLIGHT_LOOK);
        }
        match self.progress.oldest() {
            Some(oldest) => {
                let left = self.options.flush_after.saturating_sub(now.saturating_duration_since(oldest));
                poll.min(left.max(SHORTEST_WAIT))
            }
            None => poll,
        }
    }

    fn wait_for(&mut self, timeout: Duration) {
        if let Err(error) = self.lock.keep() {
            log::warn!("lane handler={} owner_file=missing error={error}", self.name);
        }
        if self.stop_asked() {
            // The stop channel is closed and would not block.
            std::thread::sleep(timeout.clamp(SHORTEST_WAIT, Duration::from_millis(20)));
            return;
        }
        select! {
            recv(self.stop.asked) -> _ => {}
            recv(self.commits) -> wake => if wake.is_err() { self.commits = never() },
            recv(self.notices) -> notice => if notice.is_err() { self.notices = never() },
            default(timeout) => {}
        }
    }

    /// Pauses the lane: its transport is down.
    fn pause(&mut self, reason: &str, retry_after: Option<Duration>) {
        let now = self.now();
        let (failed, since) = self.outage.as_ref().map_or((0, now), |outage| (outage.failed, outage.since));
        let failed = failed.saturating_add(1);
        let delay = self.options.policy.pause_delay(failed, retry_after, fastrand::f64());
        let until = now.saturating_add(millis(delay));
        self.outage = Some(Outage { failed, until, since });
        let reason = super::history::shorten(reason);
        let pause = Pause { until: Some(until), reason: Some(reason.clone()), since: Some(since) };
        self.progress.set_pause(pause, Instant::now());
        let more = format_args!(" seconds={}", delay.as_secs());
        self.board.show_with(LaneState::Paused { until, reason }, more);
    }

    fn outage_over(&mut self) {
        if let Some(outage) = self.outage.take() {
            self.progress.set_pause(Pause::default(), Instant::now());
            let seconds = self.now().saturating_sub(outage.since).max(0) / 1_000;
            self.board.show_with(LaneState::Running, format_args!(" outage_seconds={seconds}"));
        }
    }

    /// A pause that ends further ahead than any pause can is left from before the clock was set back.
    fn is_paused(&self) -> bool {
        let now = self.now();
        let longest = millis(self.options.policy.longest_wait());
        self.outage.as_ref().is_some_and(|outage| outage.until > now && outage.until <= now.saturating_add(longest))
    }

    fn now(&self) -> i64 {
        self.database.clock().now_ms()
    }

    fn stop_asked(&self) -> bool {
        self.stop.deadline.get().is_some()
    }

    fn past_deadline(&self) -> bool {
        self.stop.deadline.get().is_some_and(|deadline| Instant::now() >= *deadline)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.owned {
            self.lock.leave_behind();
        }
    }
}
