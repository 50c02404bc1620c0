//! What a lane knows that the database does not know yet: its position, its unwritten outcomes and the keys they block.

use std::collections::HashSet;
use std::time::Instant;

use crate::outbox::flush::{Change, Flush, Pause, Verdict, Written};
use crate::storage::Pending;

/// Keys whose standing changed by outcomes that a database snapshot may not show yet.
#[derive(Debug, Default)]
struct Overlay {
    /// A row of the key is, or is about to be, open.
    open: HashSet<String>,
    /// A dead letter of the key is about to appear.
    dead: HashSet<String>,
    /// The key's open rows are all about to be closed.
    healed: HashSet<String>,
    /// Rows that were run.
    ran: HashSet<i64>,
    /// An event of the key went well, and what is dead below it is about to be superseded.
    passed: HashSet<String>,
}

impl Overlay {
    fn absorb(&mut self, other: Self) {
        self.open.extend(other.open);
        self.dead.extend(other.dead);
        self.healed.extend(other.healed);
        self.ran.extend(other.ran);
        self.passed.extend(other.passed);
    }
}

/// A flush on its way to the disk.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) answer: Pending<Written, rusqlite::Error>,
    pub(super) flush: std::sync::Arc<Flush>,
    /// Log rows it moves the cursor over.
    pub(super) rows: usize,
}

/// See the module's text. Keys stay in an overlay until the first read that begins after their flush has committed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The cursor in the database.
    durable: i64,
    /// Every log row up to here has an outcome.
    position: i64,
    /// Log rows between the position and the last flush handed over.
    rows: usize,
    changes: Vec<Change>,
    pause: Option<Pause>,
    end_single_step: bool,
    oldest: Option<Instant>,
    flight: Option<Flight>,
    current: Overlay,
    flying: Overlay,
    settled: Overlay,
}

impl Progress {
    pub(super) fn at(cursor: i64) -> Self {
        Self { durable: cursor, position: cursor, ..Self::default() }
    }

    pub(super) fn durable(&self) -> i64 {
        self.durable
    }

    pub(super) fn position(&self) -> i64 {
        self.position
    }

    /// The log row `id` has its outcome.
    pub(super) fn advance(&mut self, id: i64, now: Instant) {
        self.position = id;
        self.rows += 1;
        self.oldest.get_or_insert(now);
    }

    /// Something to write besides the cursor.
    pub(super) fn record(&mut self, change: Change, now: Instant) {
        match &change {
            Change::Ran { id, .. } => _ = self.current.ran.insert(*id),
            Change::Passed { key, .. } => _ = self.current.passed.insert(key.clone()),
            Change::New { .. } => {}
        }
        self.changes.push(change);
        self.oldest.get_or_insert(now);
    }

    pub(super) fn set_pause(&mut self, pause: Pause, now: Instant) {
        self.pause = Some(pause);
        self.oldest.get_or_insert(now);
    }

    pub(super) fn end_single_step(&mut self, now: Instant) {
        self.end_single_step = true;
        self.oldest.get_or_insert(now);
    }

    /// Later events of this key must wait.
    pub(super) fn block(&mut self, key: &str) {
        self.current.open.insert(key.to_owned());
    }

    /// Nothing of this key is open any more, though a snapshot may still show it.
    pub(super) fn heal(&mut self, key: &str) {
        self.current.healed.insert(key.to_owned());
    }

    /// An event that goes well later supersedes a dead letter of this key.
    pub(super) fn mark_dead(&mut self, key: &str) {
        self.current.dead.insert(key.to_owned());
    }

    pub(super) fn is_blocked(&self, key: &str) -> bool {
        self.overlays().iter().any(|overlay| overlay.open.contains(key))
    }

    pub(super) fn has_dead(&self, key: &str) -> bool {
        self.overlays().iter().any(|overlay| overlay.dead.contains(key))
    }

    pub(super) fn has_healed(&self, key: &str) -> bool {
        self.overlays().iter().any(|overlay| overlay.healed.contains(key))
    }

    /// The row was run after the last snapshot that shows all there was at its time: what it shows of it is over.
    pub(super) fn has_run(&self, id: i64) -> bool {
        self.overlays().iter().any(|overlay| overlay.ran.contains(&id))
    }

    /// A later event of the key went well, which a snapshot may not show yet: a row that was replayed meanwhile is
    /// about to be superseded.
    pub(super) fn has_passed(&self, key: &str) -> bool {
        self.overlays().iter().any(|overlay| overlay.passed.contains(key))
    }

    fn overlays(&self) -> [&Overlay; 3] {
        [&self.current, &self.flying, &self.settled]
    }

    /// Log rows that a kill at this moment would repeat.
    pub(super) fn rows_ahead(&self) -> usize {
        self.rows + self.flight.as_ref().map_or(0, |flight| flight.rows)
    }

    /// Outcomes not handed over yet.
    pub(super) fn unwritten(&self) -> usize {
        self.rows + self.changes.len()
    }

    /// Whether there is anything to write besides the cursor, or on its way.
    pub(super) fn has_changes(&self) -> bool {
        !self.changes.is_empty() || self.flight.as_ref().is_some_and(|flight| !flight.flush.changes.is_empty())
    }

    /// Whether an unwritten row is to be run again by then: it is found once it is written.
    pub(super) fn has_due(&self, now: i64) -> bool {
        self.changes.iter().any(|change| match change {
            Change::New { verdict, .. } | Change::Ran { verdict, .. } => {
                matches!(verdict, Verdict::Retry { due, .. } if *due <= now)
            }
            Change::Passed { .. } => false,
        })
    }

    pub(super) fn oldest(&self) -> Option<Instant> {
        self.oldest
    }

    pub(super) fn is_clean(&self) -> bool {
        self.oldest.is_none() && self.flight.is_none()
    }

    /// A new snapshot is about to be taken: it shows all that has been settled.
    pub(super) fn before_read(&mut self) {
        self.settled = Overlay::default();
    }

    /// Fills in what the next flush shall write and empties the memory of it.
    pub(super) fn fill(&mut self, flush: &mut Flush) {
        flush.from = self.durable;
        flush.to = self.position;
        flush.changes = std::mem::take(&mut self.changes);
        flush.pause = self.pause.take();
        flush.end_single_step = std::mem::take(&mut self.end_single_step);
    }

    pub(super) fn depart(&mut self, flush: std::sync::Arc<Flush>, answer: Pending<Written, rusqlite::Error>) {
        self.flying = std::mem::take(&mut self.current);
        self.flight = Some(Flight { answer, flush, rows: std::mem::take(&mut self.rows) });
        self.oldest = None;
    }

    pub(super) fn take_flight(&mut self) -> Option<Flight> {
        self.flight.take()
    }

    pub(super) fn put_back_flight(&mut self, flight: Flight) {
        self.flight = Some(flight);
    }

    pub(super) fn is_flying(&self) -> bool {
        self.flight.is_some()
    }

    /// The flight has committed.
    pub(super) fn landed(&mut self, flush: &Flush) {
        self.durable = flush.to;
        let flying = std::mem::take(&mut self.flying);
        self.settled.absorb(flying);
    }

    /// The flight was not applied: its outcomes are to be written again.
    pub(super) fn turned_back(&mut self, flush: &Flush, rows: usize, now: Instant) {
        self.rows += rows;
        self.restore(flush, now);
    }

    /// A flush was not even accepted.
    pub(super) fn restore(&mut self, flush: &Flush, now: Instant) {
        let mut changes = flush.changes.clone();
        changes.append(&mut self.changes);
        self.changes = changes;
        if self.pause.is_none() {
            self.pause.clone_from(&flush.pause);
        }
        self.end_single_step |= flush.end_single_step;
        let flying = std::mem::take(&mut self.flying);
        self.current.absorb(flying);
        self.oldest.get_or_insert(now);
    }
}
