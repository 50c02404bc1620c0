//! Attempts: the handler's turn in the process, what is named before it, and what an `Unavailable` comes to.

use std::collections::HashSet;
use std::time::Instant;

use super::call::{self, Called};
use super::{Interrupt, Lane};
use crate::outbox::Event;
use crate::outbox::gate::{self, AlonePass, Pass};
use crate::outbox::log::{Exception, LogRow};

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
        if !self.transport_works(event, due, log, finished)? {
            self.pause(&reason, retry_after);
            return Ok(None);
        }
        self.outage_over();
        Ok(Some(self.call(event, alone)?))
    }

    /// One call. A suspect, and every event while single-stepping, is named in the database before it runs.
    pub(super) fn call(&mut self, event: &Event, alone: bool) -> Result<Called, Interrupt> {
        if self.past_deadline() {
            return Err(Interrupt::Deadline);
        }
        if alone || gate::is_closed() {
            // What is finished must not wait for another lane's call to be written.
            self.settle(None)?;
        } else if self.single_step_to.is_none() {
            self.take_name_back()?;
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
            // Its name goes before others run. If that fails the outcome still counts; it is written later, and before this
            // lane calls for anything else.
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
        self.take_name_back()?;
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
