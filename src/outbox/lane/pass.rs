//! One pass: read a snapshot, run what is due, then the log; and what each outcome leads to.

use std::collections::HashSet;
use std::time::Instant;

use rusqlite::OptionalExtension;

use super::call::{self, Called};
use super::probe::PROBE_DEPTH;
use super::take::{self, LaneRow};
use super::{Interrupt, Lane, LaneState, orphans};
use crate::outbox::dispatch::LaneStart;
use crate::outbox::log::{self, BatchLimits, Exception, LogRow};
use crate::outbox::policy::millis;
use crate::outbox::sql;
use crate::outbox::standing::Questions;

/// Most exceptions run in one pass, and most waiting rows run behind one head.
pub(super) const EXCEPTIONS_PER_PASS: i64 = 1_024;
/// Most of them where several threads wait for one event after the other.
const SINGLY_DUE: usize = 64;
/// How far back a lane looks for the last event it has behind it.
const LOOK_BACK: i64 = 10_000;

/// What one snapshot shows.
pub(super) struct Seen {
    lane: Option<LaneRow>,
    pub(super) due: Vec<Exception>,
    pub(super) log: Vec<LogRow>,
}

impl Lane {
    /// `true` when there was something to do, so that the next pass should follow at once.
    pub(super) fn pass(&mut self) -> Result<bool, Interrupt> {
        self.land(false)?;
        let collected = self.take_in_crew()?;
        let paused = self.is_paused();
        let position = self.progress.position();
        self.ahead.retain(|id, _| *id > position);
        self.make_room()?;
        self.progress.before_read();
        let mut seen = self.read(!paused)?;
        self.looked_at = Instant::now();
        self.reporter.counts(&self.name, self.looked_at);
        let skipped = self.matcher.take_skipped();
        self.board.passed(skipped);
        match &seen.lane {
            Some(lane) if lane.owner.as_deref() != Some(self.lock.id()) => return Err(Interrupt::Lost),
            Some(lane) if lane.held => return Err(Interrupt::Held),
            Some(_) => {}
            None => return Err(Interrupt::Lost),
        }
        if paused {
            self.flush_if_due(Instant::now())?;
            return Ok(false);
        }
        if self.outage.is_none() {
            self.board.show(LaneState::Running);
        }
        if !self.begun && !self.begin()? {
            return Ok(false);
        }
        let adopted = self.adopt_orphans()?;
        self.put_off_replays(&mut seen.due);
        self.end_single_step_if_through(&seen);
        let worked = self.run_seen(seen)? || collected || adopted;
        self.flush_if_due(Instant::now())?;
        if !worked {
            self.flush_due_rows()?;
        }
        Ok(worked)
    }

    /// `true` when there was something to run.
    fn run_seen(&mut self, seen: Seen) -> Result<bool, Interrupt> {
        if self.may_spread() {
            return self.run_wide(seen);
        }
        let worked = !seen.due.is_empty() || !seen.log.is_empty();
        if self.run_exceptions(seen.due, &seen.log)? {
            self.run_log(seen.log)?;
        }
        // What has finished must not be blamed for what happens next.
        self.take_name_back()?;
        self.spread.singly_next = false;
        Ok(worked)
    }

    /// Takes in what the lane's threads have done meanwhile, and ends what they do if the next events must run singly.
    fn take_in_crew(&mut self) -> Result<bool, Interrupt> {
        if self.crew.is_none() {
            return Ok(false);
        }
        if self.past_deadline() {
            return Err(Interrupt::Deadline);
        }
        let collected = self.may_spread() && self.collect()?;
        if !self.may_spread() {
            self.narrow()?;
        }
        Ok(collected)
    }

    /// Waits for the writer when as much as may run ahead of the durable cursor is unwritten.
    fn make_room(&mut self) -> Result<(), Interrupt> {
        if std::mem::take(&mut self.settle_first) || self.may_precede_a_row() {
            self.settle(None)?;
        }
        if self.progress.rows_ahead() >= self.options.run_ahead {
            // The flush under way makes room; what came after it is written while the lane goes on.
            self.land(true)?;
            if self.progress.rows_ahead() >= self.options.run_ahead {
                self.settle(None)?;
            }
        }
        // The writer need not stand idle while the lane reads.
        self.flush_if_due(Instant::now())
    }

    /// What was replayed while a later event of its key ran waits for that outcome to be written, which supersedes it.
    fn put_off_replays(&mut self, due: &mut Vec<Exception>) {
        let all = due.len();
        due.retain(|exception| {
            let replayed = exception.began.replays > 0;
            !(replayed && exception.key.as_deref().is_some_and(|key| self.progress.has_passed(key)))
        });
        self.settle_first |= due.len() < all;
    }

    /// After a rewind the lane comes once more to events before rows that are there already: what fails now goes first,
    /// and is written before those rows are looked at.
    fn may_precede_a_row(&self) -> bool {
        self.progress.durable() < self.rows_until && self.progress.has_changes()
    }

    fn batch_limits(&self) -> BatchLimits {
        let ahead = self.progress.rows_ahead().saturating_add(self.spread.window_len());
        let mut rows = self.options.batch_events.min(self.options.run_ahead.saturating_sub(ahead));
        if self.spread.singly_next {
            // As much as a probe needs; several threads go on with what is left.
            rows = rows.min(PROBE_DEPTH);
        }
        BatchLimits { rows, bytes: self.options.batch_bytes }
    }

    /// Looks, a page at a time after the lane was taken, for waiting rows that nothing is going to wake: nothing open of
    /// their key is below them. The relay leaves none, but a foreign hand or a restored table may. `true` when it woke
    /// some.
    fn adopt_orphans(&mut self) -> Result<bool, Interrupt> {
        let Some(after) = self.orphans_after else { return Ok(false) };
        let name = self.name.as_str();
        let page = self
            .database
            .read(|connection| orphans::read_page(connection, name, after))
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))?;
        let found = page.orphans.len();
        if found > 0 {
            ::log::warn!("lane handler={name} orphans_woken={found}");
            let (handler, now) = (self.name.clone(), self.now());
            self.database
                .writer()
                .submit_internal(false, move |tx| orphans::wake(tx, &handler, &page.orphans, now))
                .and_then(|pending| pending.wait())
                .map_err(|error| Interrupt::Database(format!("waking orphans failed: {error}")))?;
        }
        self.orphans_after = page.next;
        Ok(found > 0)
    }

    fn read(&mut self, with_events: bool) -> Result<Seen, Interrupt> {
        let now = self.now();
        let far = now.saturating_add(millis(self.options.policy.longest_wait()));
        let limits = self.batch_limits();
        let (name, progress, matcher) = (self.name.as_str(), &self.progress, &mut self.matcher);
        let rows_until = self.rows_until;
        let position = self.spread.end().unwrap_or(progress.position());
        let most_due = if self.spread.singly_next { SINGLY_DUE } else { usize::MAX };
        self.database
            .read(|connection| -> rusqlite::Result<Seen> {
                let lane = take::read_lane(connection, name)?;
                let (mut due, mut log) = (Vec::new(), Vec::new());
                if with_events {
                    let ask = Questions::worth_asking(connection, name, position)?;
                    if ask.open {
                        let reach = reach(connection, progress.position())?;
                        // Those whose outcome is on its way to the disk look due still.
                        let wanted = |id| !progress.has_run(id);
                        due = read_due(connection, name, (now, far), (reach, rows_until), limits.bytes, wanted)?;
                        due.truncate(most_due);
                    }
                    log = log::read_log(connection, matcher, position, limits, (name, ask))?;
                }
                Ok(Seen { lane, due, log })
            })
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))
    }

    /// Tells the handler where the lane stands; `false` pauses the lane.
    fn begin(&mut self) -> Result<bool, Interrupt> {
        let cursor = self.progress.durable();
        let filter = self.matcher.filter().clone();
        let last_event = self
            .database
            .read(|connection| -> rusqlite::Result<Option<(i64, String)>> {
                let mut statement = connection.prepare_cached(sql::READ_BACK)?;
                let mut rows = statement.query((cursor, LOOK_BACK))?;
                while let Some(row) = rows.next()? {
                    if row.get_ref(2)?.as_str().is_ok_and(|event_type| filter.matches(event_type)) {
                        return Ok(Some((row.get(0)?, row.get(1)?)));
                    }
                }
                Ok(None)
            })
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))?;
        let start = LaneStart { cursor, last_event };
        match call::begin(self.handler.as_ref(), (&self.board, 0), &start) {
            Called::Done => {
                self.begun = true;
                self.outage_over();
                Ok(true)
            }
            Called::Failed { reason } | Called::Poison { reason } | Called::Undecodable { reason } => {
                self.pause(&format!("the handler cannot begin: {reason}"), None);
                Ok(false)
            }
            Called::Unavailable { reason, retry_after } => {
                self.pause(&format!("the handler cannot begin: {reason}"), retry_after);
                Ok(false)
            }
        }
    }

    fn end_single_step_if_through(&mut self, seen: &Seen) {
        let through = self.single_step_to.is_some_and(|end| self.progress.position() >= end);
        if through && seen.due.is_empty() {
            self.single_step_to = None;
            self.progress.end_single_step(Instant::now());
        }
    }
}

/// The last exception whose turn it may be: no log row that the lane has still before it lies below.
pub(super) fn reach(connection: &rusqlite::Connection, position: i64) -> rusqlite::Result<i64> {
    let next = connection.prepare_cached(sql::NEXT_ID)?.query_row([position], |row| row.get(0)).optional()?;
    Ok(next.unwrap_or(i64::MAX))
}

/// What is due up to `reach`, suspects first. `rows_until`: where the handler's rows end, as far as the lane knows.
pub(in crate::outbox) fn read_due(
    connection: &rusqlite::Connection,
    handler: &str,
    (now, far): (i64, i64),
    (reach, rows_until): (i64, i64),
    bytes: usize,
    wanted: impl Fn(i64) -> bool,
) -> rusqlite::Result<Vec<Exception>> {
    let limit = EXCEPTIONS_PER_PASS;
    let crashed = (sql::READ_CRASHED, (handler, limit, reach));
    let mut due = log::read_exceptions(connection, handler, crashed, bytes, &wanted)?;
    let suspects: HashSet<i64> = due.iter().map(|exception| exception.id).collect();
    let wanted = |id| !suspects.contains(&id) && wanted(id);
    // After a rewind any number of due rows may lie beyond, and be walked over at each pass, for the few within reach.
    if reach < rows_until && has_few_within(connection, handler, reach)? {
        let within = (sql::READ_DUE_WITHIN, (handler, now, far, reach));
        due.extend(log::read_exceptions(connection, handler, within, bytes, wanted)?);
        return Ok(due);
    }
    for (statement, time) in [(sql::READ_DUE, now), (sql::READ_STRANDED, far)] {
        let timed = (statement, (handler, time, limit, reach));
        due.extend(log::read_exceptions(connection, handler, timed, bytes, wanted)?);
    }
    Ok(due)
}

/// Whether no more rows are to be run again up to `reach` than one pass takes.
fn has_few_within(connection: &rusqlite::Connection, handler: &str, reach: i64) -> rusqlite::Result<bool> {
    let more = EXCEPTIONS_PER_PASS + 1;
    let within: i64 =
        connection.prepare_cached(sql::COUNT_WITHIN)?.query_row((handler, reach, more), |row| row.get(0))?;
    Ok(within < more)
}
