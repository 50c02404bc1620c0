//! Running what waited behind a row that went well: in order, in batches if the handler takes them, a page at a time
//! and without waiting for anything.

use std::collections::HashSet;
use std::time::Instant;

use super::call::Called;
use super::pass::{EXCEPTIONS_PER_PASS, reach};
use super::{Interrupt, Lane};
use crate::outbox::Event;
use crate::outbox::flush::Verdict;
use crate::outbox::log::{self, BatchLimits, Body, Exception, LogRow};
use crate::outbox::sql;

impl Lane {
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
        let Some(mut waiting) = self.read_waiting(key, head)? else { return Ok(true) };
        let all = waiting.len() < EXCEPTIONS_PER_PASS as usize;
        let (mut index, mut singly_before) = (0, 0);
        while index < waiting.len() {
            if self.progress.has_run(waiting[index].id) {
                if self.progress.is_blocked(key) {
                    return Ok(true);
                }
                index += 1;
                continue;
            }
            if waiting[index].began.state != "waiting" || finished.contains(&waiting[index].id) {
                return Ok(true);
            }
            if index >= singly_before {
                let end = index + self.batch_of_waiting(&waiting[index..], finished);
                if self.run_batch_of_waiting(&mut waiting[index..end])? {
                    finished.extend(waiting[index..end].iter().map(|exception| exception.id));
                    index = end;
                    continue;
                }
                singly_before = end;
            }
            let exception = &waiting[index];
            finished.insert(exception.id);
            let Some(verdict) = self.run_exception(exception, due, log, finished)? else { return Ok(false) };
            let done = matches!(verdict, Verdict::Done);
            self.conclude_exception(exception, verdict);
            self.flush_if_due(Instant::now())?;
            if !done {
                return Ok(true);
            }
            index += 1;
        }
        if !all {
            // The next of them is due once these are written, and that shall not wait for the flush's time.
            self.settle_first = true;
        } else if is_through {
            // After a rewind there may be more of them further on.
            self.progress.heal(key);
        }
        Ok(true)
    }

    /// How many of these the handler may be given at once.
    fn batch_of_waiting(&self, waiting: &[Exception], finished: &HashSet<i64>) -> usize {
        if self.single_step_to.is_some() || self.outage.is_some() || self.crew.is_some() {
            return 0;
        }
        let fits = |exception: &&Exception| {
            exception.may_join_a_batch()
                && exception.began.state == "waiting"
                && !finished.contains(&exception.id)
                && !self.progress.has_run(exception.id)
        };
        waiting.iter().take(self.batch_limit).take_while(fits).count()
    }

    /// `false` if they have to be run one by one: there are not several, or the batch did not go well.
    fn run_batch_of_waiting(&mut self, batch: &mut [Exception]) -> Result<bool, Interrupt> {
        if batch.len() < 2 {
            return Ok(false);
        }
        let take = |exception: &mut Exception| match std::mem::replace(&mut exception.body, Body::Skip) {
            Body::Event(event) => Some(event),
            _ => None,
        };
        let events: Vec<Event> = batch.iter_mut().filter_map(take).collect();
        if !matches!(self.call_batch(&events)?, Called::Done) {
            for (exception, event) in batch.iter_mut().zip(events) {
                exception.body = Body::Event(event);
            }
            return Ok(false);
        }
        for exception in batch.iter() {
            self.conclude_exception(exception, Verdict::Done);
        }
        self.matcher.take_back(events);
        self.flush_if_due(Instant::now())?;
        Ok(true)
    }

    /// What waits behind a row that went well, in order; `None` if an operator has meanwhile asked for that row to be run
    /// once more.
    pub(super) fn read_waiting(&self, key: &str, head: &Exception) -> Result<Option<Vec<Exception>>, Interrupt> {
        let limits = BatchLimits { rows: EXCEPTIONS_PER_PASS as usize, bytes: self.options.batch_bytes };
        let (name, position) = (self.name.as_str(), self.progress.position());
        let (id, began) = (head.id, &head.began);
        self.database
            .read(|connection| -> rusqlite::Result<Option<Vec<Exception>>> {
                let asked = (id, name, began.replays, began.payload());
                if connection.prepare_cached(sql::ASKED_FOR_AGAIN)?.query_row(asked, |row| row.get(0))? {
                    return Ok(None);
                }
                log::read_waiting(connection, (name, key), id, reach(connection, position)?, limits).map(Some)
            })
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))
    }
}
