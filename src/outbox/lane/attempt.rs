//! Attempts: the handler's turn in the process, what is named before it, and what an `Unavailable` comes to.

use std::collections::HashSet;
use std::time::Instant;

use super::call::{self, Called};
use super::{Ahead, Interrupt, Lane};
use crate::outbox::Event;
use crate::outbox::gate::{self, AlonePass, Pass};
use crate::outbox::log::{Body, Exception, LogRow};

/// How far a probe looks for an event of another key.
pub(super) const PROBE_DEPTH: usize = 256;

/// The right to call the handler now.
enum Turn {
    Among(Pass),
    Alone(#[expect(dead_code, reason = "held until the call has ended")] AlonePass),
}

impl Lane {
    /// Calls the handler. When it answers `Unavailable`, an event of another key tells an outage (then the lane pauses:
    /// `None`) from one dead address (then the event is tried once more, and failing again counts as a failure).
    pub(super) fn attempt(
        &mut self,
        event: &Event,
        alone: bool,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<Option<Called>, Interrupt> {
        let (reason, retry_after) = match self.call(event, alone)? {
            Called::Unavailable { reason, retry_after } => (reason, retry_after),
            other => {
                self.outage_over();
                return Ok(Some(other));
            }
        };
        if !self.transport_works(event.key.as_deref(), due, log, finished)? {
            self.pause(&reason, retry_after);
            return Ok(None);
        }
        self.outage_over();
        Ok(Some(self.call(event, alone)?))
    }

    /// Tries one event of another key; its outcome counts, whatever it is, unless it too is `Unavailable`.
    fn transport_works(
        &mut self,
        key: Option<&str>,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<bool, Interrupt> {
        let other_due = due.iter().take(PROBE_DEPTH).find(|exception| {
            let other_key = exception.key.is_none() || exception.key.as_deref() != key;
            other_key && !finished.contains(&exception.id) && !exception.superseded && exception.crashes == 0
        });
        if let Some(exception) = other_due
            && let Body::Event(event) = &exception.body
        {
            let called = self.call(event, false)?;
            if matches!(called, Called::Unavailable { .. }) {
                return Ok(false);
            }
            finished.insert(exception.id);
            let verdict = self.verdict(called, exception.attempts);
            self.conclude_exception(exception, verdict);
            return Ok(true);
        }
        let Some((row, event)) = self.runnable_of_another_key(key, log) else { return Ok(false) };
        let called = self.call(event, false)?;
        if matches!(called, Called::Unavailable { .. }) {
            return Ok(false);
        }
        let dead_below = row.dead_below || event.key.as_deref().is_some_and(|key| self.progress.has_dead(key));
        self.ahead.insert(row.id, Ahead { key: event.key.clone(), dead_below, called });
        Ok(true)
    }

    /// The first event of the log that may run now though those before it have not: none of its key is among them.
    fn runnable_of_another_key<'r>(&self, key: Option<&str>, log: &'r [LogRow]) -> Option<(&'r LogRow, &'r Event)> {
        let mut before: HashSet<&str> = key.into_iter().collect();
        for row in log.iter().take(PROBE_DEPTH) {
            let row_key = row.key();
            let free = match row_key {
                Some(key) => !row.blocked && !self.progress.is_blocked(key) && !before.contains(key),
                None => true,
            };
            match &row.body {
                Body::Event(event) if free && !row.own_row && !self.ahead.contains_key(&row.id) => {
                    return Some((row, event));
                }
                _ => before.extend(row_key),
            }
        }
        None
    }

    /// One call. A suspect, and every event while single-stepping, is named in the database before it runs.
    pub(super) fn call(&mut self, event: &Event, alone: bool) -> Result<Called, Interrupt> {
        if self.past_deadline() {
            return Err(Interrupt::Deadline);
        }
        if alone || gate::is_closed() {
            // What is finished must not wait for another lane's call to be written.
            self.settle(None)?;
        }
        let limit = self.board.time_limit();
        // Named only once it is its turn: an event that waits for a suspect would be blamed for the suspect's deed.
        let turn = if alone { Turn::Alone(gate::enter_alone(limit)) } else { Turn::Among(self.entrance.enter(limit)) };
        if self.past_deadline() {
            return Err(Interrupt::Deadline);
        }
        if alone || self.single_step_to.is_some() {
            self.settle(Some(event.id))?;
        }
        let at_once = matches!(&turn, Turn::Among(pass) if !pass.waited) && self.single_step_to.is_none();
        if !at_once {
            self.looked_at = Instant::now();
        }
        let called = match &self.crew {
            Some(crew) => self.run_on_its_thread(crew, event),
            None => call::call(self.handler.as_ref(), (&self.board, 0), event, self.looked_at),
        };
        self.looked_at = Instant::now();
        if let Turn::Alone(_) = turn {
            // Its name goes before others run. If that fails the outcome still counts; it is written later.
            if let Err(Interrupt::Lost) = self.settle(None) {
                return Err(Interrupt::Lost);
            }
        }
        drop(turn);
        Ok(called)
    }

    pub(super) fn call_batch(&mut self, batch: &[Event]) -> Result<Called, Interrupt> {
        if gate::is_closed() {
            self.settle(None)?;
        }
        let pass = self.entrance.enter(self.board.time_limit());
        if self.past_deadline() {
            return Err(Interrupt::Deadline);
        }
        let called = call::call_batch(self.handler.as_ref(), (&self.board, 0), batch, Instant::now());
        self.looked_at = Instant::now();
        drop(pass);
        Ok(called)
    }
}
