//! One pass: read a snapshot, run what is due, then the log; and what each outcome leads to.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use rusqlite::OptionalExtension;

use super::attempt::PROBE_DEPTH;
use super::call::{self, Called};
use super::take::{self, LaneRow};
use super::{Interrupt, Lane, LaneState, orphans};
use crate::outbox::dispatch::{LaneStart, OnDeadLetter};
use crate::outbox::flush::{Change, Verdict};
use crate::outbox::log::{self, BatchLimits, Body, Exception, LogRow, Questions};
use crate::outbox::policy::millis;
use crate::outbox::{Event, sql};

/// Most exceptions run in one pass, and most waiting rows run behind one head.
const EXCEPTIONS_PER_PASS: i64 = 1_024;
/// How far back a lane looks for the last event it has behind it.
const LOOK_BACK: i64 = 10_000;

/// What to do with a log row.
enum Plan {
    /// Not this lane's business.
    PassBy,
    /// An earlier event of its key is open.
    Wait,
    /// The outcome is known without a call.
    Known(Called),
    /// Call the handler with this and the next events at once.
    Batch,
    Call,
}

/// How a batch ended; the rows up to here are meant.
enum Batched {
    Done(usize),
    /// They have to be run one by one.
    Singly(usize),
}

/// What one snapshot shows.
struct Seen {
    lane: Option<LaneRow>,
    due: Vec<Exception>,
    log: Vec<LogRow>,
}

impl Lane {
    /// `true` when there was something to do, so that the next pass should follow at once.
    pub(super) fn pass(&mut self) -> Result<bool, Interrupt> {
        self.land(false)?;
        let paused = self.is_paused();
        let position = self.progress.position();
        self.ahead.retain(|id, _| *id > position);
        if self.progress.has_unwritten_rows() || self.may_precede_a_row() {
            self.settle(None)?;
        }
        if self.progress.rows_ahead() >= self.options.run_ahead {
            // The flush under way makes room; what came after it is written while the lane goes on.
            self.land(true)?;
            if self.progress.rows_ahead() >= self.options.run_ahead {
                self.settle(None)?;
            }
        }
        self.progress.before_read();
        let seen = self.read(!paused)?;
        self.looked_at = Instant::now();
        self.reporter.counts(&self.name, self.looked_at);
        let skipped = self.matcher.take_skipped();
        // With exceptions due, the log is read once more after them, and counted then.
        self.board.passed(if seen.due.is_empty() { skipped } else { HashMap::new() });
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
        let worked = adopted || !seen.due.is_empty() || !seen.log.is_empty();
        self.end_single_step_if_through(&seen);
        if seen.due.is_empty() {
            self.run_log(seen.log)?;
        } else if self.run_exceptions(seen.due, &seen.log)? {
            let log = self.read_log_anew()?;
            self.run_log(log)?;
        }
        if self.named {
            // What has finished must not be blamed for what happens next.
            self.settle(None)?;
        }
        self.flush_if_due(Instant::now())?;
        Ok(worked)
    }

    /// After a rewind the lane comes once more to events before rows that are there already: what fails now goes first,
    /// and is written before those rows are looked at.
    fn may_precede_a_row(&self) -> bool {
        self.progress.durable() < self.rows_until && self.progress.has_changes()
    }

    /// After exceptions: in the first snapshot the keys that have healed are still blocked, and with events coming all
    /// the time such a key would never get back to being delivered without a row per event.
    fn read_log_anew(&mut self) -> Result<Vec<LogRow>, Interrupt> {
        self.settle(None)?;
        self.progress.before_read();
        let limits = self.batch_limits();
        let (name, position, matcher) = (self.name.as_str(), self.progress.position(), &mut self.matcher);
        let log = self
            .database
            .read(|connection| {
                let ask = Questions::worth_asking(connection, name, position)?;
                log::read_log(connection, matcher, position, limits, (name, ask))
            })
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))?;
        self.board.passed(self.matcher.take_skipped());
        Ok(log)
    }

    fn batch_limits(&self) -> BatchLimits {
        let room = self.options.run_ahead.saturating_sub(self.progress.rows_ahead());
        BatchLimits { rows: self.options.batch_events.min(room), bytes: self.options.batch_bytes }
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
        let mut limits = self.batch_limits();
        let (name, position, matcher) = (self.name.as_str(), self.progress.position(), &mut self.matcher);
        let single_step_to = self.single_step_to.unwrap_or(0);
        self.database
            .read(|connection| -> rusqlite::Result<Seen> {
                let lane = take::read_lane(connection, name)?;
                let (mut due, mut log) = (Vec::new(), Vec::new());
                if with_events {
                    let ask = Questions::worth_asking(connection, name, position)?;
                    if ask.open {
                        let reach = reach(connection, position)?;
                        // A suspect goes first, and the dead owner may have been ahead of its cursor.
                        let reaches = (reach, reach.max(single_step_to));
                        due = read_due(connection, name, (now, far), reaches, limits.bytes)?;
                    }
                    if !due.is_empty() {
                        // Only looked at for a probe; the log is read anew after the exceptions.
                        limits.rows = limits.rows.min(PROBE_DEPTH);
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
        match call::hook(|| self.handler.begin(&start)) {
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

    /// Runs what is due; `false` when the lane paused.
    fn run_exceptions(&mut self, due: Vec<Exception>, log: &[LogRow]) -> Result<bool, Interrupt> {
        let mut finished = HashSet::new();
        for (index, exception) in due.iter().enumerate() {
            if !finished.insert(exception.id) {
                continue;
            }
            let rest = &due[index + 1..];
            let Some(verdict) = self.run_exception(exception, rest, log, &mut finished)? else { return Ok(false) };
            let done = matches!(verdict, Verdict::Done);
            self.conclude_exception(exception, verdict);
            self.flush_if_due(Instant::now())?;
            if let (true, Some(key)) = (done, &exception.key)
                && !self.run_waiting(key, exception.id, rest, log, &mut finished)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The key's head went well: go on through what waited behind it, in order. `false` when the lane paused.
    fn run_waiting(
        &mut self,
        key: &str,
        after: i64,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<bool, Interrupt> {
        let (name, bytes, position) = (self.name.as_str(), self.options.batch_bytes, self.progress.position());
        let waiting = self
            .database
            .read(|connection| {
                let parameters = (name, key, after, EXCEPTIONS_PER_PASS, reach(connection, position)?);
                log::read_exceptions(connection, sql::READ_WAITING, parameters, bytes)
            })
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))?;
        for exception in &waiting {
            if exception.began.state != "waiting" || !finished.insert(exception.id) {
                break;
            }
            let Some(verdict) = self.run_exception(exception, due, log, finished)? else { return Ok(false) };
            let done = matches!(verdict, Verdict::Done);
            self.conclude_exception(exception, verdict);
            self.flush_if_due(Instant::now())?;
            if !done {
                break;
            }
        }
        Ok(true)
    }

    /// `None` when the lane paused.
    fn run_exception(
        &mut self,
        exception: &Exception,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<Option<Verdict>, Interrupt> {
        if exception.superseded {
            let reason = "a later event of its key is done; replay it with force if it must run".to_owned();
            let attempts = exception.attempts;
            return Ok(Some(Verdict::Final { attempts, what: "superseded", reason }));
        }
        let called = match &exception.body {
            Body::Event(event) => {
                let alone = exception.crashes > 0;
                match self.attempt(event, alone, due, log, finished)? {
                    Some(called) => called,
                    None => return Ok(None),
                }
            }
            Body::Bad(undecodable) => Called::Undecodable { reason: undecodable.reason.clone() },
            Body::Missing | Body::Skip => {
                return Ok(Some(Verdict::Discarded { reason: "event_missing".to_owned() }));
            }
        };
        Ok(Some(self.verdict(called, exception.attempts)))
    }

    pub(super) fn conclude_exception(&mut self, exception: &Exception, verdict: Verdict) {
        if let Some(key) = &exception.key {
            match verdict {
                Verdict::Done | Verdict::Discarded { .. } => {}
                Verdict::Final { .. } if self.on_dead_letter == OnDeadLetter::Continue => self.progress.mark_dead(key),
                _ => self.progress.block(key),
            }
        }
        let change =
            Change::Ran { id: exception.id, key: exception.key.clone(), began: exception.began.clone(), verdict };
        self.progress.record(change, Instant::now());
    }

    /// Runs the log in order; stops early when the lane pauses.
    fn run_log(&mut self, mut rows: Vec<LogRow>) -> Result<(), Interrupt> {
        self.looked_at = Instant::now();
        let ran = self.run_rows(&mut rows);
        self.matcher.take_back(rows.into_iter().filter_map(LogRow::into_event));
        ran
    }

    fn run_rows(&mut self, rows: &mut [LogRow]) -> Result<(), Interrupt> {
        let mut index = 0;
        // Rows before this place are called one by one: their batch failed.
        let mut singly_before = 0;
        while index < rows.len() {
            // Looked at after each call: what else happens here takes no time to speak of.
            let now = self.looked_at;
            self.flush_if_due(now)?;
            let row = &rows[index];
            match self.plan(row, index < singly_before) {
                Plan::PassBy => self.progress.advance(row.id, now),
                Plan::Wait => self.conclude_blocked(row, now),
                Plan::Known(called) => self.conclude(row, row.key(), called, now),
                Plan::Batch => {
                    match self.run_batch(rows, index)? {
                        Batched::Done(end) => index = end,
                        Batched::Singly(end) => singly_before = end,
                    }
                    continue;
                }
                Plan::Call => {
                    let Body::Event(event) = &row.body else { return Ok(()) };
                    let rest = &rows[index + 1..];
                    let Some(called) = self.attempt(event, false, &[], rest, &mut HashSet::new())? else {
                        return Ok(());
                    };
                    self.conclude(row, row.key(), called, self.looked_at);
                }
            }
            index += 1;
        }
        Ok(())
    }

    fn plan(&mut self, row: &LogRow, singly: bool) -> Plan {
        if row.own_row {
            return Plan::PassBy;
        }
        match &row.body {
            Body::Skip | Body::Missing => Plan::PassBy,
            Body::Bad(undecodable) => Plan::Known(Called::Undecodable { reason: undecodable.reason.clone() }),
            Body::Event(_) if self.is_blocked(row) => Plan::Wait,
            Body::Event(_) => match self.known_ahead(row.id) {
                Some(called) => Plan::Known(called),
                None if singly || self.batch_limit == 1 || self.single_step_to.is_some() => Plan::Call,
                // An outage is probed with single events.
                None if self.outage.is_some() => Plan::Call,
                None => Plan::Batch,
            },
        }
    }

    /// Nearly always there is none, and then no id need be hashed.
    fn known_ahead(&mut self, id: i64) -> Option<Called> {
        if self.ahead.is_empty() { None } else { self.ahead.remove(&id) }
    }

    fn is_blocked(&self, row: &LogRow) -> bool {
        row.blocked || row.key().is_some_and(|key| self.progress.is_blocked(key))
    }

    /// Hands the next runnable events to the handler at once.
    fn run_batch(&mut self, rows: &mut [LogRow], start: usize) -> Result<Batched, Interrupt> {
        if self.past_deadline() {
            return Err(Interrupt::Deadline);
        }
        let mut events = Vec::new();
        let mut end = start;
        while end < rows.len() && events.len() < self.batch_limit {
            let row = &mut rows[end];
            let runnable = !self.is_blocked(row);
            match &row.body {
                _ if row.own_row => {}
                Body::Skip => {}
                Body::Event(_) if runnable && !self.ahead.contains_key(&row.id) => {
                    if let Body::Event(event) = std::mem::replace(&mut row.body, Body::Skip) {
                        events.push((end, event));
                    }
                }
                _ => break,
            }
            end += 1;
        }
        let (places, mut batch): (Vec<usize>, Vec<Event>) = events.into_iter().unzip();
        if batch.len() > 1
            && let Called::Done = self.call_batch(&batch)?
        {
            self.outage_over();
            let mut done = places.into_iter().zip(&batch).peekable();
            let now = self.looked_at;
            for (index, row) in rows[start..end].iter().enumerate() {
                match done.next_if(|(place, _)| *place == start + index) {
                    Some((_, event)) => self.conclude(row, event.key.as_deref(), Called::Done, now),
                    None => self.progress.advance(row.id, now),
                }
            }
            self.matcher.take_back(batch);
            return Ok(Batched::Done(end));
        }
        for (place, event) in places.into_iter().zip(batch.drain(..)) {
            rows[place].body = Body::Event(event);
        }
        Ok(Batched::Singly(end))
    }

    fn conclude_blocked(&mut self, row: &LogRow, now: Instant) {
        let change = Change::New { id: row.id, key: row.key().map(str::to_owned), verdict: Verdict::Blocked };
        self.progress.record(change, now);
        if let Some(key) = row.key() {
            self.progress.block(key);
        }
        self.progress.advance(row.id, now);
    }

    fn conclude(&mut self, row: &LogRow, key: Option<&str>, called: Called, now: Instant) {
        let verdict = self.verdict(called, 0);
        if let Verdict::Done = verdict {
            if let Some(key) = key
                && (row.dead_below || self.progress.has_dead(key))
            {
                self.progress.record(Change::Passed { id: row.id, key: key.to_owned() }, now);
            }
        } else {
            if let Some(key) = key {
                let passed_over =
                    matches!(verdict, Verdict::Final { .. }) && self.on_dead_letter == OnDeadLetter::Continue;
                if passed_over {
                    self.progress.mark_dead(key);
                } else {
                    self.progress.block(key);
                }
            }
            self.progress.record(Change::New { id: row.id, key: key.map(str::to_owned), verdict }, now);
        }
        self.progress.advance(row.id, now);
    }

    /// What a call's end means, by the policy. `attempts` were spent before it.
    pub(super) fn verdict(&self, called: Called, attempts: u32) -> Verdict {
        let policy = &self.options.policy;
        match called {
            Called::Done => Verdict::Done,
            Called::Poison { reason } => {
                Verdict::Final { attempts: attempts.saturating_add(1), what: "poison", reason }
            }
            Called::Undecodable { reason } => Verdict::Final { attempts, what: "poison", reason },
            Called::Failed { reason } | Called::Unavailable { reason, .. } => {
                let attempts = attempts.saturating_add(1);
                if attempts >= policy.max_calls {
                    return Verdict::Final { attempts, what: "attempts_exhausted", reason };
                }
                let due = self.now().saturating_add(millis(policy.retry_delay(attempts)));
                Verdict::Retry { attempts, due, reason }
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
fn reach(connection: &rusqlite::Connection, position: i64) -> rusqlite::Result<i64> {
    let next = connection.prepare_cached(sql::NEXT_ID)?.query_row([position], |row| row.get(0)).optional()?;
    Ok(next.unwrap_or(i64::MAX))
}

fn read_due(
    connection: &rusqlite::Connection,
    handler: &str,
    (now, far): (i64, i64),
    (reach, suspects_to): (i64, i64),
    bytes: usize,
) -> rusqlite::Result<Vec<Exception>> {
    let limit = EXCEPTIONS_PER_PASS;
    let mut due = log::read_exceptions(connection, sql::READ_CRASHED, (handler, limit, suspects_to), bytes)?;
    let suspects: HashSet<i64> = due.iter().map(|exception| exception.id).collect();
    for (statement, time) in [(sql::READ_DUE, now), (sql::READ_STRANDED, far)] {
        let more = log::read_exceptions(connection, statement, (handler, time, limit, reach), bytes)?;
        due.extend(more.into_iter().filter(|exception| !suspects.contains(&exception.id)));
    }
    Ok(due)
}
