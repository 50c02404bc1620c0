//! What a lane has found out, and how one transaction writes it down.
//!
//! The cursor and the exceptions go together. Whether a key is blocked is decided here, inside the transaction, since
//! an operator may have changed the rows after the lane read them.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, Transaction};

use super::log::Began;
use super::{history, sql};

/// The open states.
const RETRY: &str = "retry";
const WAITING: &str = "waiting";
const PARKED: &str = "parked";

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
    let mut keys = TouchedKeys::default();
    for change in &flush.changes {
        write_change(tx, flush, change, &mut keys)?;
    }
    keys.settle(tx, flush)?;
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

/// What is to be looked at once all changes are written, for each key that they touched.
#[derive(Debug, Default)]
struct Touched {
    /// The highest event of the key that went well.
    passed: Option<i64>,
    /// A row of the key was closed: the next in line becomes due.
    closed: bool,
}

#[derive(Debug, Default)]
struct TouchedKeys<'f>(HashMap<&'f str, Touched>);

impl<'f> TouchedKeys<'f> {
    fn passed(&mut self, key: &'f str, id: i64) {
        let passed = &mut self.0.entry(key).or_default().passed;
        *passed = (*passed).max(Some(id));
    }

    fn closed(&mut self, key: &'f str) {
        self.0.entry(key).or_default().closed = true;
    }

    fn settle(&self, tx: &Transaction<'_>, flush: &Flush) -> rusqlite::Result<()> {
        for (key, touched) in &self.0 {
            let lowest = lowest_open(tx, &flush.handler, key)?;
            if let Some(id) = touched.passed {
                supersede_below(tx, flush, key, id, lowest)?;
            }
            if touched.closed {
                make_lowest_due(tx, &flush.handler, lowest, flush.now)?;
            }
        }
        Ok(())
    }
}

/// What is dead, or was replayed, below an event of the key that went well is superseded. Each update is asked for first: it
/// sets up a temporary table even when there is nothing to update.
fn supersede_below(
    tx: &Transaction<'_>,
    flush: &Flush,
    key: &str,
    id: i64,
    lowest: Option<Lowest>,
) -> rusqlite::Result<()> {
    let dead: bool = tx.prepare_cached(sql::DEAD_BELOW)?.query_row((&flush.handler, key, id), |row| row.get(0))?;
    if dead {
        tx.prepare_cached(sql::SUPERSEDE_DEAD)?.execute((&flush.handler, key, id, flush.now))?;
    }
    if lowest.is_some_and(|lowest| lowest.id < id) {
        tx.prepare_cached(sql::SUPERSEDE_REPLAYED)?.execute((&flush.handler, key, id, flush.now))?;
    }
    Ok(())
}

/// The first open row of a key.
#[derive(Debug, Clone, Copy)]
struct Lowest {
    id: i64,
    waits: bool,
}

fn lowest_open(tx: &Transaction<'_>, handler: &str, key: &str) -> rusqlite::Result<Option<Lowest>> {
    tx.prepare_cached(sql::LOWEST_OPEN)?
        .query_row((handler, key), |row| Ok(Lowest { id: row.get(0)?, waits: row.get_ref(1)?.as_str()? == "waiting" }))
        .optional()
}

/// Makes the lowest waiting row of a key due if nothing open is below it. Whoever closes a row of a key calls this in
/// the same transaction.
pub(super) fn make_next_due(tx: &Transaction<'_>, handler: &str, key: &str, now: i64) -> rusqlite::Result<()> {
    let lowest = lowest_open(tx, handler, key)?;
    make_lowest_due(tx, handler, lowest, now)
}

fn make_lowest_due(tx: &Transaction<'_>, handler: &str, lowest: Option<Lowest>, now: i64) -> rusqlite::Result<()> {
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

fn write_change<'f>(
    tx: &Transaction<'_>,
    flush: &Flush,
    change: &'f Change,
    keys: &mut TouchedKeys<'f>,
) -> rusqlite::Result<()> {
    match change {
        Change::Passed { id, key } => keys.passed(key, *id),
        Change::New { id, key, verdict } => {
            insert_row(tx, flush, *id, key.as_deref(), verdict)?;
        }
        Change::Ran { id, key, began, verdict } => {
            let Some(found) = read_run(tx, flush, *id, key.as_deref(), began)? else { return Ok(()) };
            let stays_open = match verdict {
                Verdict::Done => close_row(tx, flush, *id, found).map(|()| false),
                _ => fail_row(tx, flush, *id, found, verdict),
            }?;
            if let Some(key) = key {
                if matches!(verdict, Verdict::Done) {
                    keys.passed(key, *id);
                }
                if !stays_open {
                    keys.closed(key);
                }
            }
        }
    }
    Ok(())
}

/// A row's columns that a verdict decides.
struct Decided<'v> {
    state: &'static str,
    attempts: u32,
    due: Option<i64>,
    what: Option<&'static str>,
    reason: Option<&'v str>,
}

/// `behind`: whether an open row of its key is below it.
fn decide<'v>(flush: &Flush, verdict: &'v Verdict, behind: bool) -> Decided<'v> {
    match verdict {
        Verdict::Done => Decided { state: "done", attempts: 0, due: None, what: None, reason: None },
        Verdict::Blocked if behind => Decided { state: WAITING, attempts: 0, due: None, what: None, reason: None },
        // What it waited for was closed meanwhile.
        Verdict::Blocked => Decided { state: RETRY, attempts: 0, due: Some(flush.now), what: None, reason: None },
        Verdict::Retry { attempts, due, reason } => Decided {
            state: if behind { WAITING } else { RETRY },
            attempts: *attempts,
            due: (!behind).then_some(*due),
            what: Some("retry"),
            reason: Some(reason),
        },
        Verdict::Final { attempts, what, reason } => Decided {
            state: if flush.park_keys { PARKED } else { "dead_letter" },
            attempts: *attempts,
            due: None,
            what: Some(what),
            reason: Some(reason),
        },
        Verdict::Discarded { reason } => {
            Decided { state: "discarded", attempts: 0, due: None, what: Some("discard"), reason: Some(reason) }
        }
    }
}

fn insert_row(
    tx: &Transaction<'_>,
    flush: &Flush,
    id: i64,
    key: Option<&str>,
    verdict: &Verdict,
) -> rusqlite::Result<()> {
    let lowest = match key {
        Some(key) => lowest_open(tx, &flush.handler, key)?,
        None => None,
    };
    let decided = decide(flush, verdict, lowest.is_some_and(|lowest| lowest.id < id));
    let history = match (decided.what, decided.reason) {
        (Some(what), Some(reason)) => history::append("[]", flush.now, what, reason),
        _ => "[]".to_owned(),
    };
    tx.prepare_cached(sql::NEW_EXCEPTION)?.execute((
        id,
        &flush.handler,
        key,
        decided.state,
        decided.attempts,
        decided.due,
        decided.reason.map(history::shorten),
        history,
        flush.now,
    ))?;
    // Nothing of its key was open: nothing has to wait for it.
    if lowest.is_some() && [RETRY, PARKED].contains(&decided.state) {
        later_ones_wait(tx, &flush.handler, key, id, flush.now)?;
    }
    Ok(())
}

/// A row that was run, as it stands when the outcome is written.
struct Found {
    history: String,
    retries: bool,
    crashed: bool,
    /// An open row of its key is below it.
    behind: bool,
}

/// `None` if it is not what the run began with; one that waited may have become due meanwhile.
fn read_run(
    tx: &Transaction<'_>,
    flush: &Flush,
    id: i64,
    key: Option<&str>,
    began: &Began,
) -> rusqlite::Result<Option<Found>> {
    tx.prepare_cached(sql::READ_RUN)?
        .query_row((id, &flush.handler, key, began.state, began.replays, began.payload()), |row| {
            Ok(Found {
                history: history::column(row, 0)?,
                retries: row.get_ref(1)?.as_str()? == RETRY,
                crashed: row.get(2)?,
                behind: row.get(3)?,
            })
        })
        .optional()
}

/// A row that never failed leaves no trace; one that did stays as history.
fn close_row(tx: &Transaction<'_>, flush: &Flush, id: i64, found: Found) -> rusqlite::Result<()> {
    let handler = &flush.handler;
    let history = match found.history {
        empty if empty == "[]" && id <= flush.to => {
            tx.prepare_cached(sql::DELETE_EXCEPTION)?.execute((id, handler))?;
            return Ok(());
        }
        empty if empty == "[]" => empty,
        old => history::append(&old, flush.now, "done", "delivered"),
    };
    tx.prepare_cached(sql::CLOSE_DONE)?.execute((id, handler, history, flush.now))?;
    Ok(())
}

/// Says whether the row is open still.
fn fail_row(tx: &Transaction<'_>, flush: &Flush, id: i64, found: Found, verdict: &Verdict) -> rusqlite::Result<bool> {
    let decided = decide(flush, verdict, found.behind);
    let reason = decided.reason.unwrap_or_default();
    let history = history::append(&found.history, flush.now, decided.what.unwrap_or(decided.state), reason);
    let (handler, reason) = (&flush.handler, history::shorten(reason));
    if found.retries && decided.state == RETRY && !found.crashed {
        let again = (id, handler, decided.attempts, decided.due, reason, history, flush.now);
        tx.prepare_cached(sql::FAIL_AGAIN)?.execute(again)?;
    } else {
        let failed = (id, handler, decided.state, decided.attempts, decided.due, reason, history, flush.now);
        tx.prepare_cached(sql::FAIL_ROW)?.execute(failed)?;
    }
    Ok([RETRY, WAITING, PARKED].contains(&decided.state))
}
