//! A lane: one handler, one thread, one cursor.
//!
//! The thread takes the lane (`take`), then passes over the database again and again: exceptions that are due first,
//! then the log after its position (`pass`). What it finds out stays in memory (`progress`) until a flush writes it.

mod attempt;
mod call;
mod crew;
mod exceptions;
mod orphans;
mod pass;
mod probe;
mod progress;
mod report;
mod rows;
mod spread;
mod status;
mod take;
mod tenure;
#[cfg(test)]
mod tests;
mod waiting;
mod wide;
mod writing;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, select};

use self::call::Called;
use self::crew::Crew;
#[cfg(test)]
pub(super) use self::pass::read_due;
use self::probe::Sought;
use self::progress::Progress;
use self::report::Reporter;
use self::spread::Spread;
pub(super) use self::status::Board;
pub use self::status::{LaneState, LaneStatus};
use super::flush::Pause;
use super::gate::Entrance;
use super::log::Matcher;
use super::owner::{OwnerLock, OwnerWatch};
use super::policy::millis;
use super::relay::RelayOptions;
use super::{Handler, OnDeadLetter, StartAt};
use crate::lifecycle::panic_text;
use crate::storage::Database;

/// While a flush is under way an idle lane looks again this soon.
const FLIGHT_LOOK: Duration = Duration::from_millis(2);
/// A lane whose thread panics is started again so often.
const MAX_RESTARTS: u32 = 5;
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

/// An outcome that is known before the lane's position has come to its event.
#[derive(Debug)]
struct Ahead {
    key: Option<String>,
    dead_below: bool,
    called: Called,
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
    ahead: HashMap<i64, Ahead>,
    /// Where the last search for an event of another key came to the end of the log.
    sought: Option<Sought>,
    /// What is unwritten must be durable before the next read.
    settle_first: bool,
    /// A flush saw that an operator wants the lane.
    hold_asked: bool,
    outage: Option<Outage>,
    single_step_to: Option<i64>,
    begun: bool,
    /// An event may stand in `lanes.running_id`.
    named: bool,
    /// The lane's row may name us.
    owned: bool,
    /// How many threads call the handler; with one it is the lane's own.
    threads: usize,
    crew: Option<Crew>,
    /// What the crew has under way.
    spread: Spread,
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
        board.begins(options.poll);
        Self {
            threads: board.threads(),
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
            sought: None,
            settle_first: false,
            hold_asked: false,
            outage: None,
            single_step_to: None,
            begun: false,
            named: false,
            owned: false,
            seen: false,
            rows_until: 0,
            orphans_after: None,
            crew: None,
            spread: Spread::default(),
        }
    }

    /// The thread's whole life. A panic in it lets the lane go, so that another relay may take it; one without a manager
    /// starts the lane again itself, [`MAX_RESTARTS`] times at most.
    pub(super) fn run(mut self, managed: bool) {
        let mut restarts = 0;
        while let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.live())) {
            self.let_go_after_panic(&panic_text(panic.as_ref()));
            if managed || restarts >= MAX_RESTARTS || self.stop_asked() {
                resume_unwind(panic);
            }
            restarts += 1;
            let _ = self.stop.asked.recv_timeout(self.options.poll.max(SHORTEST_WAIT));
        }
    }

    fn live(&mut self) {
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

    /// Delivers until the lane is lost, held or stopped.
    fn serve(&mut self) {
        loop {
            match self.pass() {
                Ok(true) if self.past_deadline() => break,
                Ok(true) => {}
                Ok(false) if self.stop_asked() && self.spread.is_empty() => break,
                Ok(false) => {
                    if self.progress.is_clean() && self.outage.is_none() && self.spread.is_empty() {
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
        let nobody = never();
        let answers = self.crew.as_ref().map_or(&nobody, Crew::answers);
        if self.stop_asked() {
            // The stop channel is closed and would not block.
            if let Ok(answer) = answers.recv_timeout(timeout.clamp(SHORTEST_WAIT, Duration::from_millis(20))) {
                self.spread.inbox = Some(answer);
            }
            return;
        }
        select! {
            recv(self.stop.asked) -> _ => {}
            recv(self.commits) -> wake => if wake.is_err() { self.commits = never() },
            recv(self.notices) -> notice => if notice.is_err() { self.notices = never() },
            recv(answers) -> answer => self.spread.inbox = answer.ok(),
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
