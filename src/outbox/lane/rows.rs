//! Running the log in order, and what each outcome leads to.

use std::collections::HashSet;
use std::time::Instant;

use super::call::Called;
use super::{Ahead, Interrupt, Lane};
use crate::outbox::Event;
use crate::outbox::flush::{Change, Verdict};
use crate::outbox::log::{Body, LogRow};
use crate::outbox::policy::millis;

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
    /// Go on from here with a new snapshot: in this one the key still looks blocked, but it has healed since.
    ReadAnew,
}

/// How a batch ended; the rows up to here are meant.
enum Batched {
    Done(usize),
    /// They have to be run one by one.
    Singly(usize),
}

impl Lane {
    /// Runs the log in order; stops early when the lane pauses.
    pub(super) fn run_log(&mut self, mut rows: Vec<LogRow>) -> Result<(), Interrupt> {
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
                Plan::ReadAnew => {
                    self.settle_first = true;
                    return Ok(());
                }
                Plan::Wait => self.conclude_blocked(row.id, row.key(), now),
                Plan::Known(called) => drop(self.conclude((row.id, row.dead_below), row.key(), called, now)),
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
                    let _ = self.conclude((row.id, row.dead_below), row.key(), called, self.looked_at);
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
            Body::Event(_) if self.looks_blocked_only(row) => Plan::ReadAnew,
            Body::Event(_) if self.is_blocked(row) => Plan::Wait,
            Body::Event(_) => match self.known_ahead(row.id) {
                Some(called) => Plan::Known(called),
                None if singly || self.batch_limit == 1 || self.single_step_to.is_some() => Plan::Call,
                // An outage is probed with single events, and several threads have batches of their own.
                None if self.outage.is_some() || self.crew.is_some() => Plan::Call,
                None => Plan::Batch,
            },
        }
    }

    /// Nearly always there is none, and then no id need be hashed.
    pub(super) fn known_ahead(&mut self, id: i64) -> Option<Called> {
        if self.ahead.is_empty() { None } else { self.ahead.remove(&id).map(|ahead| ahead.called) }
    }

    /// With events coming all the time, such a key would never get back to being delivered without a row per event.
    pub(super) fn looks_blocked_only(&self, row: &LogRow) -> bool {
        let healed = |key| self.progress.has_healed(key) && !self.progress.is_blocked(key);
        row.blocked && row.key().is_some_and(healed)
    }

    pub(super) fn is_blocked(&self, row: &LogRow) -> bool {
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
                    Some((_, event)) => {
                        let _ = self.conclude((row.id, row.dead_below), event.key.as_deref(), Called::Done, now);
                    }
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

    /// Writes down what ran ahead of the position, in rows of its own, since the cursor cannot say it.
    pub(super) fn record_ahead(&mut self) {
        let mut ahead: Vec<(i64, Ahead)> = self.ahead.drain().collect();
        ahead.sort_unstable_by_key(|(id, _)| *id);
        let now = Instant::now();
        for (id, Ahead { key, dead_below, called }) in ahead {
            let verdict = self.verdict(called, 0);
            if let (Verdict::Done, true, Some(key)) = (&verdict, dead_below, &key) {
                self.progress.record(Change::Passed { id, key: key.clone() }, now);
            }
            self.progress.record(Change::New { id, key, verdict }, now);
        }
    }

    pub(super) fn conclude_blocked(&mut self, id: i64, key: Option<&str>, now: Instant) {
        let change = Change::New { id, key: key.map(str::to_owned), verdict: Verdict::Blocked };
        self.progress.record(change, now);
        if let Some(key) = key {
            self.progress.block(key);
        }
        self.progress.advance(id, now);
    }

    /// The log row with this id, above a dead letter of its key or not, has its outcome.
    pub(super) fn conclude(
        &mut self,
        (id, dead_below): (i64, bool),
        key: Option<&str>,
        called: Called,
        now: Instant,
    ) -> Verdict {
        let verdict = self.verdict(called, 0);
        if let Verdict::Done = verdict {
            if let Some(key) = key
                && (dead_below || self.progress.has_dead(key))
            {
                self.progress.record(Change::Passed { id, key: key.to_owned() }, now);
            }
        } else {
            if let Some(key) = key {
                if self.passes_over(&verdict) {
                    self.progress.mark_dead(key);
                } else {
                    self.progress.block(key);
                }
            }
            let change = Change::New { id, key: key.map(str::to_owned), verdict: verdict.clone() };
            self.progress.record(change, now);
        }
        self.progress.advance(id, now);
        verdict
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
}
