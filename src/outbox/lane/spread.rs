//! What a lane with several threads has under way: a window of log rows after its position, concluded in their order, and
//! one line of events for each thread.
//!
//! All events of a key stand in one line, so they run in order, each after the one before has ended. One that does not
//! go well takes those of its key behind it out of the line.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::call::Called;
use super::crew::{Answer, Crew, Job};
use crate::outbox::Event;
use crate::outbox::log::Exception;

/// Most events that are called one by one in one job.
const JOB_EVENTS: usize = 16;

/// A log row whose outcome is not in the lane's progress yet.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) id: i64,
    pub(super) key: Option<String>,
    pub(super) dead_below: bool,
    pub(super) state: SlotState,
}

#[derive(Debug)]
pub(super) enum SlotState {
    /// Not this lane's business.
    PassBy,
    /// An earlier event of its key is open.
    Blocked,
    /// In a line, or running.
    Pending,
    Known(Called),
}

/// An event in a line.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: i64,
    pub(super) key: Option<String>,
    /// Away while it runs.
    event: Option<Event>,
    /// For an exception, its row.
    pub(super) row: Option<Box<Exception>>,
    /// May be called together with others.
    in_batch: bool,
}

impl Item {
    pub(super) fn of_log(event: Event) -> Self {
        Self { id: event.id, key: event.key.clone(), event: Some(event), row: None, in_batch: true }
    }

    pub(super) fn of_row(row: Exception, event: Event, in_batch: bool) -> Self {
        Self { id: row.id, key: row.key.clone(), event: Some(event), row: Some(Box::new(row)), in_batch }
    }
}

/// What is under way of one key.
#[derive(Debug, Default, Clone, Copy)]
struct KeyUse {
    /// In a line, or running.
    queued: usize,
    /// Slots that hold back later events of the key.
    blocking: usize,
    /// Slots that will be dead letters.
    dead: usize,
}

/// A line, and what its thread runs.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Item>,
    running: Vec<Item>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Spread {
    window: VecDeque<Slot>,
    lines: Vec<Line>,
    keys: HashMap<String, KeyUse>,
    /// Exceptions in a line or running.
    rows: HashSet<i64>,
    /// Taken in while the lane waited.
    pub(super) inbox: Option<Answer>,
    /// Something must be done one event at a time: an outage to be told from a dead address, a suspect.
    pub(super) singly_next: bool,
    /// Nothing further is called.
    pub(super) closed: bool,
}

impl Spread {
    pub(super) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.window.is_empty() && self.rows.is_empty()
    }

    /// Where the log is read from, if anything is under way.
    pub(super) fn end(&self) -> Option<i64> {
        self.window.back().map(|slot| slot.id)
    }

    pub(super) fn rows_len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn has_row(&self, id: i64) -> bool {
        self.rows.contains(&id)
    }

    pub(super) fn is_queued(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|of| of.queued > 0)
    }

    /// The log's window holds an event of this key that went well, or may yet, and has not entered the lane's progress.
    pub(super) fn may_supersede(&self, key: &str) -> bool {
        let may_be_done = |state: &SlotState| matches!(state, SlotState::Pending | SlotState::Known(Called::Done));
        self.window.iter().any(|slot| slot.key.as_deref() == Some(key) && may_be_done(&slot.state))
    }

    pub(super) fn is_blocking(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|of| of.blocking > 0)
    }

    pub(super) fn has_dead(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|of| of.dead > 0)
    }

    pub(super) fn is_running(&self) -> bool {
        self.lines.iter().any(|line| !line.running.is_empty())
    }

    pub(super) fn add_slot(&mut self, slot: Slot) {
        if let (SlotState::Blocked, Some(key)) = (&slot.state, &slot.key) {
            self.keys.entry(key.clone()).or_default().blocking += 1;
        }
        self.window.push_back(slot);
    }

    /// Puts an event at the end of its key's line.
    pub(super) fn add_item(&mut self, item: Item, threads: usize) {
        self.lines.resize_with(threads, Line::default);
        if let Some(key) = &item.key {
            self.keys.entry(key.clone()).or_default().queued += 1;
        }
        if item.row.is_some() {
            self.rows.insert(item.id);
        }
        let line = line_of(item.key.as_deref(), item.id, threads);
        self.lines[line].waiting.push_back(item);
    }

    /// Gives each thread without a job the next events of its line.
    pub(super) fn hand_out(&mut self, crew: &Crew, batch_limit: usize) {
        if self.closed || self.singly_next {
            return;
        }
        for (worker, line) in self.lines.iter_mut().enumerate() {
            if !line.running.is_empty() || line.waiting.is_empty() {
                continue;
            }
            let count = job_size(&line.waiting, batch_limit);
            line.running.extend(line.waiting.drain(..count));
            let events: Vec<Event> = line.running.iter_mut().filter_map(|item| item.event.take()).collect();
            crew.give(worker, Job { events, batch: batch_limit > 1, gated: true });
        }
    }

    /// Takes a job's items back: those that were called, in order, and the events done with. The others stand first in
    /// their line again.
    pub(super) fn take_back(
        &mut self,
        worker: usize,
        events: Vec<Event>,
        called: Vec<Called>,
    ) -> (Vec<(Item, Called)>, Vec<Event>) {
        let line = &mut self.lines[worker];
        let mut running: Vec<Item> = line.running.drain(..).collect();
        let mut spare = events;
        let not_called = running.split_off(called.len().min(running.len()));
        let unused = spare.split_off(running.len().min(spare.len()));
        for (mut item, event) in not_called.into_iter().zip(unused).rev() {
            item.event = Some(event);
            line.waiting.push_front(item);
        }
        (running.into_iter().zip(called).collect(), spare)
    }

    /// An item that was called is about to be concluded.
    pub(super) fn ended(&mut self, item: &Item) {
        if let Some(of) = item.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
            of.queued = of.queued.saturating_sub(1);
        }
        if item.row.is_some() {
            self.rows.remove(&item.id);
        }
    }

    /// An event of the log has its outcome. `blocks`, `dies`: what that is to later events of its key.
    pub(super) fn set_known(&mut self, id: i64, called: Called, blocks: bool, dies: bool) {
        let Ok(index) = self.window.binary_search_by_key(&id, |slot| slot.id) else { return };
        self.window[index].state = SlotState::Known(called);
        let Some(key) = self.window[index].key.clone() else { return };
        if dies {
            self.keys.entry(key.clone()).or_default().dead += 1;
            let later = self.window.range_mut(index + 1..).filter(|slot| slot.key.as_deref() == Some(key.as_str()));
            later.for_each(|slot| slot.dead_below = true);
        }
        if blocks {
            self.keys.entry(key.clone()).or_default().blocking += 1;
            self.clear_line(&key);
        }
    }

    /// Takes what stands in line of a key out of it: an earlier event of the key has to be tried again.
    pub(super) fn clear_line(&mut self, key: &str) {
        let Some(of) = self.keys.get_mut(key) else { return };
        for line in &mut self.lines {
            line.waiting.retain(|item| {
                if item.key.as_deref() != Some(key) {
                    return true;
                }
                of.queued = of.queued.saturating_sub(1);
                if item.row.is_some() {
                    self.rows.remove(&item.id);
                } else if let Ok(index) = self.window.binary_search_by_key(&item.id, |slot| slot.id) {
                    of.blocking += 1;
                    self.window[index].state = SlotState::Blocked;
                }
                false
            });
        }
    }

    /// The lowest slot, if it has its outcome.
    pub(super) fn next_concluded(&mut self) -> Option<Slot> {
        if matches!(self.window.front()?.state, SlotState::Pending) {
            return None;
        }
        self.window.pop_front()
    }

    /// A slot's outcome is in the lane's progress now.
    pub(super) fn forget_key(&mut self, key: &str, blocked: bool, died: bool) {
        let Some(of) = self.keys.get_mut(key) else { return };
        of.blocking = of.blocking.saturating_sub(usize::from(blocked));
        of.dead = of.dead.saturating_sub(usize::from(died));
        if of.queued + of.blocking + of.dead == 0 {
            self.keys.remove(key);
        }
    }

    /// Forgets all that is not running; what has an outcome ahead of the position is given back.
    pub(super) fn clear(&mut self) -> Vec<Slot> {
        let known = self.window.drain(..).filter(|slot| matches!(slot.state, SlotState::Known(_))).collect();
        *self = Self { singly_next: self.singly_next, ..Self::default() };
        known
    }
}

/// What has failed before is called alone.
fn job_size(waiting: &VecDeque<Item>, batch_limit: usize) -> usize {
    if batch_limit == 1 {
        return waiting.len().min(JOB_EVENTS);
    }
    let together = waiting.iter().take(batch_limit).take_while(|item| item.in_batch).count();
    together.max(1)
}

/// One key always has the same line.
pub(super) fn line_of(key: Option<&str>, id: i64, threads: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    match key {
        Some(key) => key.hash(&mut hasher),
        None => id.hash(&mut hasher),
    }
    (hasher.finish() % threads.max(1) as u64) as usize
}
