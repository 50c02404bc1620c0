//! A lane with several threads: how it gives them what it reads, takes their outcomes in, and comes back to one event
//! at a time where that is needed.
//!
//! Outcomes of the log enter the lane's progress in the order of the log, so that the cursor is the lowest unfinished
//! and everything after it is as with one thread. An outage, a suspect, single-stepping, a hold and a stop end what is
//! under way first (`narrow`); what has run ahead of the position by then is remembered.

use std::panic::resume_unwind;
use std::time::Instant;

use super::call::Called;
use super::crew::{Answer, Crew, CrewParts, Report};
use super::pass::{EXCEPTIONS_PER_PASS, Seen};
use super::spread::{Item, Slot, SlotState, line_of};
use super::{Ahead, Interrupt, Lane};
use crate::outbox::Event;
use crate::outbox::dispatch::OnDeadLetter;
use crate::outbox::flush::Verdict;
use crate::outbox::log::{Body, Exception, LogRow};

/// Most answers taken in before the lane looks at anything else.
const ANSWERS_PER_LOOK: usize = 64;

impl Lane {
    /// Starts the lane's threads, if it is to have more than one.
    pub(super) fn man(&mut self) -> Result<(), String> {
        if self.threads == 1 || self.crew.is_some() {
            return Ok(());
        }
        let parts = CrewParts {
            name: self.name.clone(),
            size: self.threads,
            handler: self.handler.clone(),
            board: self.board.clone(),
            lock: self.lock.clone(),
            flush_after: self.options.flush_after,
        };
        let crew = Crew::start(&parts).map_err(|error| format!("the lane's threads cannot be started: {error}"))?;
        self.crew = Some(crew);
        Ok(())
    }

    /// Whether events may run beside each other now.
    pub(super) fn may_spread(&self) -> bool {
        self.crew.is_some() && self.single_step_to.is_none() && self.outage.is_none() && !self.spread.singly_next
    }

    /// Gives the threads what a snapshot shows; `true` when there was something new.
    pub(super) fn run_wide(&mut self, seen: Seen) -> Result<bool, Interrupt> {
        if seen.due.iter().any(|exception| exception.crashes > 0) {
            // A suspect runs alone.
            self.spread.singly_next = true;
            return Ok(true);
        }
        self.take_name_back()?;
        let mut new = false;
        for exception in seen.due {
            // What was replayed while a later event of its key ran waits for that outcome to be written.
            let replayed = exception.began.replays > 0;
            let is_busy = |key: &str| self.spread.is_queued(key) || (replayed && self.spread.may_supersede(key));
            let busy = exception.key.as_deref().is_some_and(is_busy);
            if !busy && self.has_room_for_row(&exception) {
                new = true;
                self.queue_row(exception)?;
            }
        }
        for row in seen.log {
            if self.looks_blocked_only(&row) {
                self.settle_first = true;
                new = true;
                break;
            }
            new = true;
            self.add_log_row(row);
        }
        self.hand_out();
        Ok(self.collect()? || new)
    }

    fn has_room_for_row(&self, exception: &Exception) -> bool {
        self.spread.rows_len() < EXCEPTIONS_PER_PASS as usize && !self.spread.has_row(exception.id)
    }

    fn queue_row(&mut self, mut exception: Exception) -> Result<(), Interrupt> {
        if let Some(verdict) = self.verdict_without_call(&exception) {
            self.conclude_exception(&exception, verdict);
            return Ok(());
        }
        let in_batch = exception.may_join_a_batch();
        if let Body::Event(event) = std::mem::replace(&mut exception.body, Body::Skip) {
            self.spread.add_item(Item::of_row(exception, event, in_batch), self.threads);
        }
        Ok(())
    }

    fn add_log_row(&mut self, row: LogRow) {
        let key = row.key().map(str::to_owned);
        let held_back = key.as_deref().is_some_and(|key| self.spread.is_blocking(key));
        let blocked = held_back || self.is_blocked(&row);
        let dead_below = row.dead_below
            || key.as_deref().is_some_and(|key| self.progress.has_dead(key) || self.spread.has_dead(key));
        let mut slot = Slot { id: row.id, key, dead_below, state: SlotState::PassBy };
        if row.own_row {
            self.matcher.take_back(row.into_event());
            return self.spread.add_slot(slot);
        }
        let known = match row.body {
            Body::Skip | Body::Missing => return self.spread.add_slot(slot),
            Body::Bad(undecodable) => Called::Undecodable { reason: undecodable.reason },
            Body::Event(event) if blocked => {
                self.matcher.take_back([event]);
                slot.state = SlotState::Blocked;
                return self.spread.add_slot(slot);
            }
            Body::Event(event) => match self.known_ahead(event.id) {
                Some(called) => called,
                None => {
                    slot.state = SlotState::Pending;
                    self.spread.add_slot(slot);
                    self.spread.add_item(Item::of_log(event), self.threads);
                    return;
                }
            },
        };
        slot.state = SlotState::Pending;
        let id = slot.id;
        self.spread.add_slot(slot);
        self.set_known(id, known);
    }

    fn set_known(&mut self, id: i64, called: Called) {
        let (blocks, dies) = match self.verdict(called.clone(), 0) {
            Verdict::Done => (false, false),
            verdict => {
                let dies = self.passes_over(&verdict);
                (!dies, dies)
            }
        };
        self.spread.set_known(id, called, blocks, dies);
    }

    pub(super) fn passes_over(&self, verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Final { .. }) && !verdict.parks(self.on_dead_letter == OnDeadLetter::ParkKey)
    }

    fn hand_out(&mut self) {
        if self.past_deadline() || self.hold_asked {
            return;
        }
        if let Some(crew) = &self.crew {
            self.spread.hand_out(crew, self.batch_limit);
        }
    }

    /// Takes in what the threads have reported; `true` when there was something.
    pub(super) fn collect(&mut self) -> Result<bool, Interrupt> {
        let mut taken = 0;
        // Quick threads could go on answering: in between it is looked whether a flush is due, and whether somebody holds.
        while taken < ANSWERS_PER_LOOK
            && let Some(answer) = self.next_answer()
        {
            taken += 1;
            self.take_in(answer)?;
            self.hand_out();
        }
        self.conclude_window();
        Ok(taken > 0)
    }

    fn next_answer(&mut self) -> Option<Answer> {
        self.spread.inbox.take().or_else(|| self.crew.as_ref()?.take_answer())
    }

    fn take_in(&mut self, answer: Answer) -> Result<(), Interrupt> {
        let Report { worker, events, called } = answer.unwrap_or_else(|panic| resume_unwind(panic));
        let (done, spare) = self.spread.take_back(worker, events, called);
        self.matcher.take_back(spare);
        for (item, called) in done {
            self.spread.ended(&item);
            if matches!(called, Called::Unavailable { .. }) {
                // An outage, or one dead address: that is found out one event at a time, with this one again.
                self.spread.singly_next = true;
                continue;
            }
            match item.row {
                None => self.set_known(item.id, called),
                Some(row) => self.row_ended(&row, called)?,
            }
        }
        Ok(())
    }

    fn row_ended(&mut self, row: &Exception, called: Called) -> Result<(), Interrupt> {
        let verdict = self.verdict(called, row.attempts);
        let done = matches!(verdict, Verdict::Done);
        self.conclude_exception(row, verdict);
        let Some(key) = &row.key else { return Ok(()) };
        if !done {
            self.spread.clear_line(key);
        } else if !self.spread.closed && !self.spread.singly_next && !self.spread.is_queued(key) {
            self.queue_what_waits(key, row)?;
        }
        self.spread.forget_key(key, false, false);
        Ok(())
    }

    /// The key's head went well: what waited behind it is next, in order.
    fn queue_what_waits(&mut self, key: &str, head: &Exception) -> Result<(), Interrupt> {
        let Some(waiting) = self.read_waiting(key, head)? else { return Ok(()) };
        let all = waiting.len() < EXCEPTIONS_PER_PASS as usize;
        let mut queued = false;
        for exception in waiting {
            if self.progress.has_run(exception.id) {
                if self.progress.is_blocked(key) {
                    return Ok(());
                }
                continue;
            }
            if exception.began.state != "waiting" || exception.crashes > 0 || !self.has_room_for_row(&exception) {
                return Ok(());
            }
            if self.verdict_without_call(&exception).is_some() {
                // Left to a pass: it closes the row, and that wakes the next.
                return Ok(());
            }
            queued = true;
            self.queue_row(exception)?;
        }
        // After a rewind there may be more of them further on.
        if all && !queued && self.progress.position() >= self.rows_until {
            self.progress.heal(key);
        }
        Ok(())
    }

    /// Outcomes that all before them have, too, enter the lane's progress.
    fn conclude_window(&mut self) {
        let now = Instant::now();
        while let Some(slot) = self.spread.next_concluded() {
            let Slot { id, key, dead_below, state } = slot;
            let key = key.as_deref();
            let (blocked, died) = match state {
                SlotState::PassBy | SlotState::Pending => {
                    self.progress.advance(id, now);
                    (false, false)
                }
                SlotState::Blocked => {
                    self.conclude_blocked(id, key, now);
                    (true, false)
                }
                SlotState::Known(called) => match self.conclude((id, dead_below), key, called, now) {
                    Verdict::Done => (false, false),
                    verdict => {
                        let died = self.passes_over(&verdict);
                        (!died, died)
                    }
                },
            };
            if let Some(key) = key {
                self.spread.forget_key(key, blocked, died);
            }
        }
    }

    /// Ends what is under way: running calls are waited for, however long they take; the rest is left to later passes.
    ///
    /// # Errors
    /// [`Interrupt::Lost`] when a flush meanwhile found the lane in other hands; the calls have ended all the same.
    pub(super) fn narrow(&mut self) -> Result<(), Interrupt> {
        self.spread.closed = true;
        let mut lost = false;
        while self.spread.is_running() {
            let now = Instant::now();
            let timeout = self.wait_time(now);
            let inbox = self.spread.inbox.take();
            let answer = inbox.or_else(|| self.crew.as_ref()?.wait_answer(timeout));
            if let Some(answer) = answer {
                self.take_in(answer)?;
                self.conclude_window();
            }
            // What is finished is written while a slow call is waited for. A database that does not answer is tried again.
            if !lost && let Err(Interrupt::Lost) = self.flush_if_due(now) {
                lost = true;
            }
        }
        self.conclude_window();
        for slot in self.spread.clear() {
            if let SlotState::Known(called) = slot.state {
                let Slot { id, key, dead_below, .. } = slot;
                self.ahead.insert(id, Ahead { key, dead_below, called });
            }
        }
        if lost { Err(Interrupt::Lost) } else { Ok(()) }
    }

    /// Calls the handler with one event, on the thread of its key.
    pub(super) fn run_on_its_thread(&self, crew: &Crew, event: &Event) -> Called {
        crew.run(line_of(event.key.as_deref(), event.id, crew.size()), event.clone())
    }
}
