//! Running exceptions: what is due, and what waited behind it.

use std::collections::HashSet;
use std::time::Instant;

use super::call::Called;
use super::pass::{EXCEPTIONS_PER_PASS, reach};
use super::{Interrupt, Lane};
use crate::outbox::dispatch::OnDeadLetter;
use crate::outbox::flush::{Change, Verdict};
use crate::outbox::log::{self, Body, Exception, LogRow};
use crate::outbox::sql;

impl Lane {
    /// Runs what is due; `false` when the lane paused.
    pub(super) fn run_exceptions(&mut self, due: Vec<Exception>, log: &[LogRow]) -> Result<bool, Interrupt> {
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
                && !self.run_waiting(key, exception, rest, log, &mut finished)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The key's head went well: go on through what waited behind it, in order, unless an operator has meanwhile asked
    /// for the head to be run once more. `false` when the lane paused.
    pub(super) fn run_waiting(
        &mut self,
        key: &str,
        head: &Exception,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<bool, Interrupt> {
        let is_through = self.progress.position() >= self.rows_until;
        if !head.followed && is_through && !self.progress.is_blocked(key) {
            // Nothing was open behind it, and nothing has come since but by an operator's hand: what such a hand opens, or
            // asks for again, is found by the look that `heal` brings about before an event of the key is called.
            self.progress.heal(key);
            return Ok(true);
        }
        let Some(waiting) = self.read_waiting(key, head)? else { return Ok(true) };
        for exception in &waiting {
            if self.progress.has_run(exception.id) {
                if self.progress.is_blocked(key) {
                    return Ok(true);
                }
                continue;
            }
            if exception.began.state != "waiting" || !finished.insert(exception.id) {
                return Ok(true);
            }
            let Some(verdict) = self.run_exception(exception, due, log, finished)? else { return Ok(false) };
            let done = matches!(verdict, Verdict::Done);
            self.conclude_exception(exception, verdict);
            self.flush_if_due(Instant::now())?;
            if !done {
                return Ok(true);
            }
        }
        // After a rewind there may be more of them further on.
        if waiting.len() < EXCEPTIONS_PER_PASS as usize && is_through {
            self.progress.heal(key);
        }
        Ok(true)
    }

    /// `None` when the lane paused.
    pub(super) fn run_exception(
        &mut self,
        exception: &Exception,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<Option<Verdict>, Interrupt> {
        if let Some(verdict) = self.verdict_without_call(exception) {
            return Ok(Some(verdict));
        }
        let Body::Event(event) = &exception.body else { return Ok(None) };
        let Some(called) = self.attempt(event, exception.crashes > 0, due, log, finished)? else { return Ok(None) };
        Ok(Some(self.verdict(called, exception.attempts)))
    }

    /// What is clear of an exception before anything is called.
    pub(super) fn verdict_without_call(&self, exception: &Exception) -> Option<Verdict> {
        if exception.superseded {
            let reason = "a later event of its key is done; replay it with force if it must run".to_owned();
            return Some(Verdict::Final { attempts: exception.attempts, what: "superseded", reason });
        }
        match &exception.body {
            Body::Event(_) => None,
            Body::Bad(undecodable) => {
                Some(self.verdict(Called::Undecodable { reason: undecodable.reason.clone() }, exception.attempts))
            }
            Body::Missing | Body::Skip => Some(Verdict::Discarded { reason: "event_missing".to_owned() }),
        }
    }

    /// What waits behind a row that went well, in order; `None` if an operator has meanwhile asked for that row to be run
    /// once more.
    pub(super) fn read_waiting(&self, key: &str, head: &Exception) -> Result<Option<Vec<Exception>>, Interrupt> {
        let (name, bytes, position) = (self.name.as_str(), self.options.batch_bytes, self.progress.position());
        let (id, began) = (head.id, &head.began);
        self.database
            .read(|connection| -> rusqlite::Result<Option<Vec<Exception>>> {
                let asked = (id, name, began.replays, began.payload());
                if connection.prepare_cached(sql::ASKED_FOR_AGAIN)?.query_row(asked, |row| row.get(0))? {
                    return Ok(None);
                }
                let waiting = (name, key, id, EXCEPTIONS_PER_PASS, reach(connection, position)?);
                log::read_exceptions(connection, name, (sql::READ_WAITING, waiting), bytes, |_| true).map(Some)
            })
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))
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
}
