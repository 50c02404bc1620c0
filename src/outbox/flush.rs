//! What a lane has found out, and how one transaction writes it down.
//!
//! The cursor and the exceptions go together. Whether a key is blocked is decided here, inside the transaction, since
//! an operator may have changed the rows after the lane read them.

use std::collections::{HashMap, HashSet};

use rusqlite::{OptionalExtension, Transaction};

use super::log::Began;
use super::{history, sql};

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

/// Keys whose rows need a last look once all changes are written.
#[derive(Debug, Default)]
struct TouchedKeys<'f> {
    /// The highest event of the key that went well.
    passed: HashMap<&'f str, i64>,
    /// A row of the key was closed: the next in line becomes due.
    closed: HashSet<&'f str>,
}

impl<'f> TouchedKeys<'f> {
    fn passed(&mut self, key: &'f str, id: i64) {
        let highest = self.passed.entry(key).or_insert(id);
        *highest = (*highest).max(id);
    }

    fn settle(&self, tx: &Transaction<'_>, flush: &Flush) -> rusqlite::Result<()> {
        for (key, id) in &self.passed {
            let dead: bool =
                tx.prepare_cached(sql::DEAD_BELOW)?.query_row((&flush.handler, key, id), |row| row.get(0))?;
            if dead {
                tx.prepare_cached(sql::SUPERSEDE_DEAD)?.execute((&flush.handler, key, id, flush.now))?;
            }
            tx.prepare_cached(sql::SUPERSEDE_REPLAYED)?.execute((&flush.handler, key, id, flush.now))?;
        }
        for key in &self.closed {
            make_next_due(tx, &flush.handler, key, flush.now)?;
        }
        Ok(())
    }
}

/// Makes the lowest waiting row of a key due if nothing open is below it. Whoever closes a row of a key calls this in
/// the same transaction.
pub(super) fn make_next_due(tx: &Transaction<'_>, handler: &str, key: &str, now: i64) -> rusqlite::Result<()> {
    let lowest = tx
        .prepare_cached(sql::LOWEST_OPEN)?
        .query_row((handler, key), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    if let Some((id, state)) = lowest
        && state == "waiting"
    {
        tx.prepare_cached(sql::MAKE_DUE)?.execute((id, handler, now))?;
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
            let key = key.as_deref();
            let written = match verdict {
                Verdict::Done => close_row(tx, flush, *id, began)?,
                _ => fail_row(tx, flush, *id, key, began, verdict)?,
            };
            if let (true, Some(key)) = (written, key) {
                if matches!(verdict, Verdict::Done) {
                    keys.passed(key, *id);
                }
                keys.closed.insert(key);
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

fn decide<'v>(
    tx: &Transaction<'_>,
    flush: &Flush,
    id: i64,
    key: Option<&str>,
    verdict: &'v Verdict,
) -> rusqlite::Result<Decided<'v>> {
    let behind_another = |tx: &Transaction<'_>| -> rusqlite::Result<bool> {
        match key {
            Some(key) => tx.prepare_cached(sql::OPEN_BELOW)?.query_row((&flush.handler, key, id), |row| row.get(0)),
            None => Ok(false),
        }
    };
    Ok(match verdict {
        Verdict::Done => Decided { state: "done", attempts: 0, due: None, what: None, reason: None },
        Verdict::Blocked if behind_another(tx)? => {
            Decided { state: "waiting", attempts: 0, due: None, what: None, reason: None }
        }
        // What it waited for was closed meanwhile.
        Verdict::Blocked => Decided { state: "retry", attempts: 0, due: Some(flush.now), what: None, reason: None },
        Verdict::Retry { attempts, due, reason } => {
            let waiting = behind_another(tx)?;
            Decided {
                state: if waiting { "waiting" } else { "retry" },
                attempts: *attempts,
                due: (!waiting).then_some(*due),
                what: Some("retry"),
                reason: Some(reason),
            }
        }
        Verdict::Final { attempts, what, reason } => Decided {
            state: if flush.park_keys { "parked" } else { "dead_letter" },
            attempts: *attempts,
            due: None,
            what: Some(what),
            reason: Some(reason),
        },
        Verdict::Discarded { reason } => {
            Decided { state: "discarded", attempts: 0, due: None, what: Some("discard"), reason: Some(reason) }
        }
    })
}

fn insert_row(
    tx: &Transaction<'_>,
    flush: &Flush,
    id: i64,
    key: Option<&str>,
    verdict: &Verdict,
) -> rusqlite::Result<()> {
    let decided = decide(tx, flush, id, key, verdict)?;
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
    if matches!(decided.state, "retry" | "parked") {
        later_ones_wait(tx, &flush.handler, key, id, flush.now)?;
    }
    Ok(())
}

/// A row that never failed leaves no trace; one that did stays as history.
fn close_row(tx: &Transaction<'_>, flush: &Flush, id: i64, began: &Began) -> rusqlite::Result<bool> {
    let (handler, state, replays) = (&flush.handler, began.state, began.replays);
    let written = (id, handler, state, replays, began.payload(), flush.to);
    let deleted = tx.prepare_cached(sql::DELETE_DONE)?.execute(written)?;
    if deleted > 0 {
        return Ok(true);
    }
    let old: Option<String> =
        tx.prepare_cached(sql::READ_HISTORY)?.query_row((id, handler), |row| history::column(row, 0)).optional()?;
    let Some(old) = old else { return Ok(false) };
    let history = if old == "[]" { old } else { history::append(&old, flush.now, "done", "delivered") };
    let written = (id, handler, state, replays, began.payload(), flush.now, history);
    let closed = tx.prepare_cached(sql::CLOSE_DONE)?.execute(written)?;
    Ok(closed > 0)
}

fn fail_row(
    tx: &Transaction<'_>,
    flush: &Flush,
    id: i64,
    key: Option<&str>,
    began: &Began,
    verdict: &Verdict,
) -> rusqlite::Result<bool> {
    let decided = decide(tx, flush, id, key, verdict)?;
    let old: Option<String> = tx
        .prepare_cached(sql::READ_HISTORY)?
        .query_row((id, &flush.handler), |row| history::column(row, 0))
        .optional()?;
    let Some(old) = old else { return Ok(false) };
    let reason = decided.reason.unwrap_or_default();
    let written = tx.prepare_cached(sql::FAIL_ROW)?.execute((
        id,
        &flush.handler,
        began.state,
        began.replays,
        began.payload(),
        decided.state,
        decided.attempts,
        decided.due,
        history::shorten(reason),
        history::append(&old, flush.now, decided.what.unwrap_or(decided.state), reason),
        flush.now,
    ))?;
    Ok(written > 0)
}
