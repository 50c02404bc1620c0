//! Rewind: a lane delivers again what it has behind it. Back-filling a handler that began at the end is the same.

use rusqlite::{Connection, OptionalExtension};

use super::error::{LaneError, reading};
use super::hold::HeldLane;
use crate::outbox::sql;
use crate::storage::TransactError;

/// Rows of the past that one transaction forgets.
const BATCH: i64 = 1_000;

/// The first event that is delivered again.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RewindTo {
    /// The oldest that the log still holds.
    Start,
    /// The one at this log position, or the next one there is.
    Id(i64),
    /// The one with this event id.
    Event(String),
    /// The first that happened at this time or later, milliseconds since the Unix epoch. Found by halving the log,
    /// since times rise with positions; where writers gave times that do not, name a position.
    Time(i64),
}

/// What a rewind did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rewound {
    /// Where the cursor stood.
    pub from: i64,
    /// Where it stands now: every event beyond it is delivered again.
    pub to: i64,
    /// Exceptions that had ended well and were forgotten, so that their events are delivered again, too.
    pub done_forgotten: u64,
}

impl HeldLane {
    /// Moves the cursor back, so that the lane delivers again what comes after. Exceptions beyond it that are open keep
    /// their turn (they run once the lane has come to them again), dead letters and discarded ones stay closed.
    ///
    /// # Errors
    /// A [`LaneError`]. Only [`LaneError::NotHeld`] and [`LaneError::Owned`], when somebody released the lane meanwhile,
    /// may come after some `done` exceptions were forgotten; the cursor stands where it stood.
    pub fn rewind(&self, to: &RewindTo) -> Result<Rewound, TransactError<LaneError>> {
        let target = self.database.read(|connection| target(connection, to)).map_err(reading)?;
        let Some(target) = target else { return Err(TransactError::Task(LaneError::NoSuchEvent)) };
        let mut done_forgotten = 0;
        loop {
            let proof = self.proof();
            let (from, forgotten) = self.database.writer().transact(move |tx| {
                let lane = proof.check(tx)?;
                if target > lane.cursor {
                    return Err(LaneError::NotBehind { cursor: lane.cursor });
                }
                let done: Vec<i64> = tx
                    .prepare_cached(sql::DONE_ABOVE)?
                    .query_map((&proof.handler, target, BATCH), |row| row.get(0))?
                    .collect::<rusqlite::Result<_>>()?;
                for id in &done {
                    tx.prepare_cached(sql::DELETE_EXCEPTION)?.execute((id, &proof.handler))?;
                }
                if (done.len() as i64) < BATCH {
                    tx.prepare_cached(sql::SET_CURSOR)?.execute((&proof.handler, target))?;
                }
                Ok((lane.cursor, done.len() as u64))
            })?;
            done_forgotten += forgotten;
            if forgotten < BATCH.unsigned_abs() {
                return Ok(Rewound { from, to: target, done_forgotten });
            }
        }
    }
}

/// The cursor from which that event comes next; `None` if there is no such event.
fn target(connection: &Connection, to: &RewindTo) -> rusqlite::Result<Option<i64>> {
    let first = match to {
        RewindTo::Start => Some(1),
        RewindTo::Id(id) => Some(*id),
        RewindTo::Event(event_id) => {
            connection.prepare_cached(sql::ID_OF_EVENT)?.query_row([event_id], |row| row.get(0)).optional()?
        }
        RewindTo::Time(time) => first_at(connection, *time)?,
    };
    Ok(first.map(|first| first.saturating_sub(1).max(0)))
}

/// The first event at `time` or later, by halving: at most 64 looks.
fn first_at(connection: &Connection, time: i64) -> rusqlite::Result<Option<i64>> {
    let last: i64 = connection.prepare_cached(sql::LAST_ID)?.query_row([], |row| row.get(0))?;
    let (mut low, mut high) = (0, last.saturating_add(1));
    let mut found = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let next: Option<(i64, i64)> = connection
            .prepare_cached(sql::EVENT_FROM)?
            .query_row([middle], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        match next {
            Some((id, at)) if at < time => low = id + 1,
            Some((id, _)) => {
                found = Some(id);
                high = middle;
            }
            None => high = middle,
        }
    }
    Ok(found)
}
