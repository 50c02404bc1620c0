//! What a lane has found out, and how one transaction writes it down.
//!
//! The cursor and the exceptions go together. Whether a key is blocked is decided inside the transaction, since an operator
//! may have changed the rows after the lane read them.

use rusqlite::{OptionalExtension, Transaction};

use super::log::Began;
use super::row_writer::RowWriter;
use super::sql;

/// One thing to write down besides the cursor.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// An event went well, and a dead letter of its key may lie below it.
    Passed { id: i64, key: String },
    /// An event of the log needs a row.
    New { id: i64, key: Option<String>, verdict: Verdict },
    /// A row was run.
    Ran { id: i64, key: Option<String>, began: Began, verdict: Verdict },
}

/// How a run, or the decision not to run, ended.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    Done,
    /// Try again at `due`.
    Retry {
        attempts: u32,
        due: i64,
        reason: String,
    },
    /// No further try; `what` goes into the history.
    Final {
        attempts: u32,
        what: &'static str,
        reason: String,
    },
    /// An earlier event of its key is not finished.
    Blocked,
    /// Nothing to deliver.
    Discarded {
        reason: String,
    },
}

/// What the history says of a replayed row whose key has gone on meanwhile.
pub(super) const SUPERSEDED: &str = "superseded";

impl Verdict {
    /// Whether a row that ends so holds back later events of its key until an operator acts. What is superseded does not:
    /// a later one is done already.
    pub(super) fn parks(&self, park_keys: bool) -> bool {
        park_keys && matches!(self, Self::Final { what, .. } if *what != SUPERSEDED)
    }
}

/// The lane's pause, as others see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) until: Option<i64>,
    pub(super) reason: Option<String>,
    pub(super) since: Option<i64>,
}

/// Everything one flush writes.
#[derive(Debug, Clone)]
pub(super) struct Flush {
    pub(super) handler: String,
    pub(super) owner: String,
    pub(super) from: i64,
    pub(super) to: i64,
    /// The event about to run alone, while single-stepping.
    pub(super) running: Option<i64>,
    pub(super) changes: Vec<Change>,
    pub(super) pause: Option<Pause>,
    pub(super) end_single_step: bool,
    pub(super) park_keys: bool,
    pub(super) give_up: bool,
    pub(super) now: i64,
}

/// What became of a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// All of it is written. `held`: an operator has asked for the lane.
    Yes { held: bool },
    /// Nothing: the lane is not ours any more.
    NotOurs,
}

/// Writes a flush, all or nothing.
pub(super) fn apply(tx: &Transaction<'_>, flush: &Flush) -> rusqlite::Result<Written> {
    let place = (&flush.handler, &flush.owner, flush.from, flush.to, flush.running);
    let held = tx.prepare_cached(sql::MOVE_CURSOR)?.query_row(place, |row| row.get(0)).optional()?;
    let Some(held) = held else { return Ok(Written::NotOurs) };
    if !flush.changes.is_empty() {
        RowWriter::new(tx, flush)?.write()?;
    }
    if let Some(pause) = &flush.pause {
        tx.prepare_cached(sql::SET_PAUSE)?.execute((&flush.handler, pause.until, &pause.reason, pause.since))?;
    }
    if flush.end_single_step {
        tx.prepare_cached(sql::END_SINGLE_STEP)?.execute([&flush.handler])?;
    }
    if flush.give_up {
        tx.prepare_cached(sql::GIVE_UP_LANE)?.execute((&flush.handler, &flush.owner))?;
    }
    Ok(Written::Yes { held })
}

/// Makes the lowest waiting row of a key due if nothing open is below it. Whoever closes a row of a key calls this in
/// the same transaction.
pub(super) fn make_next_due(tx: &Transaction<'_>, handler: &str, key: &str, now: i64) -> rusqlite::Result<()> {
    let lowest = tx.prepare_cached(sql::LOWEST_OPEN)?.query_row((handler, key), Lowest::from_row).optional()?;
    make_lowest_due(tx, handler, lowest, now)
}

pub(super) fn make_lowest_due(
    tx: &Transaction<'_>,
    handler: &str,
    lowest: Option<Lowest>,
    now: i64,
) -> rusqlite::Result<()> {
    if let Some(lowest) = lowest.filter(|lowest| lowest.waits) {
        tx.prepare_cached(sql::MAKE_DUE)?.execute((lowest.id, handler, now))?;
    }
    Ok(())
}

/// A row of the key was made: what was first of it so far waits, if that is later. Only after a rewind it can be.
pub(super) fn later_ones_wait(
    tx: &Transaction<'_>,
    handler: &str,
    key: Option<&str>,
    id: i64,
    now: i64,
) -> rusqlite::Result<()> {
    let Some(key) = key else { return Ok(()) };
    let next = tx
        .prepare_cached(sql::NEXT_OPEN)?
        .query_row((handler, key, id), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    if let Some((next, state)) = next
        && state == "retry"
    {
        tx.prepare_cached(sql::HEAD_WAITS)?.execute((next, handler, now))?;
    }
    Ok(())
}

/// The first open row of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lowest {
    pub(super) id: i64,
    pub(super) waits: bool,
}

impl Lowest {
    pub(super) fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, waits: row.get_ref(1)?.as_str()? == "waiting" })
    }
}
