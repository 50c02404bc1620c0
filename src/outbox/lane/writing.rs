//! Flushes: what the lane has found out goes to the queue-writer, and its answer comes back.

use std::sync::Arc;
use std::time::Instant;

use super::progress::Flight;
use super::{Interrupt, Lane};
use crate::outbox::OnDeadLetter;
use crate::outbox::flush::{self, Flush, Written};
use crate::storage::TransactError;

impl Lane {
    /// Hands what is unwritten to the queue-writer. `running` names the event about to run alone.
    pub(super) fn depart(&mut self, running: Option<i64>, give_up: bool) -> Result<(), Interrupt> {
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
                self.named |= running.is_some();
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
    pub(super) fn land(&mut self, wait: bool) -> Result<(), Interrupt> {
        let Some(Flight { answer, flush, rows }) = self.progress.take_flight() else { return Ok(()) };
        let answer = if wait {
            answer.wait()
        } else {
            match answer.try_wait() {
                Ok(answer) => answer,
                Err(answer) => {
                    self.progress.put_back_flight(Flight { answer, flush, rows });
                    return Ok(());
                }
            }
        };
        match answer {
            Ok(Written::Yes { held }) => {
                self.hold_asked |= held;
                self.named = flush.running.is_some();
                self.progress.landed(&flush);
                self.board.set_cursor(self.progress.durable());
                self.board.written(&flush);
                self.reporter.written(&self.database, &flush, Instant::now());
                Ok(())
            }
            Ok(Written::NotOurs) | Err(TransactError::OutcomeUnknown(_)) => Err(Interrupt::Lost),
            Err(error) => {
                self.progress.turned_back(&flush, rows, Instant::now());
                Err(Interrupt::Database(format!("flush failed: {error}")))
            }
        }
    }

    /// Writes everything and waits until it is durable.
    ///
    /// # Errors
    /// Also [`Interrupt::Held`], after all is written: each flush looks whether an operator wants the lane.
    pub(super) fn settle(&mut self, running: Option<i64>) -> Result<(), Interrupt> {
        self.land(true)?;
        if running.is_some() || self.named || self.progress.oldest().is_some() {
            self.depart(running, false)?;
            self.land(true)?;
        }
        self.unless_held()
    }

    /// Before a call that is not named: a name that still stands in the database, since it could not be taken back, would
    /// be blamed for what this call does.
    pub(super) fn take_name_back(&mut self) -> Result<(), Interrupt> {
        if self.named { self.settle(None) } else { Ok(()) }
    }

    /// Starts a flush when the oldest outcome is old enough or there are many.
    pub(super) fn flush_if_due(&mut self, now: Instant) -> Result<(), Interrupt> {
        let Some(oldest) = self.progress.oldest() else {
            self.land(false)?;
            return self.unless_held();
        };
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
        self.unless_held()
    }

    /// With nothing else to do, a row that is due again need not wait for the flush's time.
    pub(super) fn flush_due_rows(&mut self) -> Result<(), Interrupt> {
        if !self.progress.is_flying() && self.progress.has_due(self.now()) {
            self.depart(None, false)?;
        }
        Ok(())
    }

    fn unless_held(&self) -> Result<(), Interrupt> {
        if self.hold_asked { Err(Interrupt::Held) } else { Ok(()) }
    }
}
