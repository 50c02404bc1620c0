//! Taking a lane: one transaction that checks the owner, and after a death settles what it may have caused.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction};

use crate::outbox::dispatch::{OnDeadLetter, StartAt};
use crate::outbox::{history, sql};

/// The log takes no ids from here on.
const MAX_CURSOR: i64 = 1 << 62;

/// A lane's row, as far as a relay needs it.
#[derive(Debug, Clone)]
pub(in crate::outbox) struct LaneRow {
    pub(in crate::outbox) owner: Option<String>,
    pub(in crate::outbox) held: bool,
    pub(in crate::outbox) cursor: i64,
    pub(in crate::outbox) single_step_to: Option<i64>,
    pub(in crate::outbox) running: Option<i64>,
}

pub(in crate::outbox) fn read_lane(connection: &Connection, handler: &str) -> rusqlite::Result<Option<LaneRow>> {
    connection
        .prepare_cached(sql::READ_LANE)?
        .query_row([handler], |row| {
            Ok(LaneRow {
                owner: row.get(0)?,
                held: row.get(1)?,
                cursor: row.get(2)?,
                single_step_to: row.get(3)?,
                running: row.get(4)?,
            })
        })
        .optional()
}

/// Everything the taking transaction needs; made before it, since it may run twice.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) handler: String,
    pub(super) owner: String,
    pub(super) event_types: String,
    pub(super) on_dead_letter: OnDeadLetter,
    pub(super) start_at: StartAt,
    /// An owner that is known to be dead.
    pub(super) dead: Option<String>,
    /// How many log rows the dead owner may have had in flight.
    pub(super) run_ahead: usize,
    pub(super) max_crashes: u32,
    /// The lane's row has been there: if it is gone, it was renamed or retired.
    pub(super) seen: bool,
    pub(super) now: i64,
}

/// How a claim ended.
#[derive(Debug)]
pub(super) enum Taken {
    Ours {
        cursor: i64,
        single_step_to: Option<i64>,
        dead_owner_is_done: bool,
        /// The event that the dead owner ran, if that was one death too many.
        condemned: Option<i64>,
        /// The handler's last row that is open or dead; beyond the cursor after a rewind.
        rows_until: i64,
    },
    /// Somebody else was faster, or an operator holds it.
    Refused,
}

pub(super) fn take(tx: &Transaction<'_>, claim: &Claim) -> rusqlite::Result<Taken> {
    let handler = &claim.handler;
    if !claim.seen {
        tx.prepare_cached(sql::NEW_LANE)?.execute((
            handler,
            &claim.event_types,
            claim.on_dead_letter.stored(),
            claim.start_at == StartAt::End,
        ))?;
    }
    let Some(lane) = read_lane(tx, handler)? else { return Ok(Taken::Refused) };
    let is_ours = lane.owner.as_ref() == Some(&claim.owner);
    if lane.held || (lane.owner.is_some() && !is_ours && lane.owner != claim.dead) {
        return Ok(Taken::Refused);
    }
    let mut single_step_to = lane.single_step_to;
    let mut condemned = None;
    if lane.owner.is_some() && !is_ours {
        if let Some(running) = lane.running
            && count_crash(tx, claim, running)?
        {
            condemned = Some(running);
        }
        let end = in_flight_end(tx, lane.cursor, claim.run_ahead)?;
        single_step_to = Some(end.max(single_step_to.unwrap_or(0)));
    }
    if lane.cursor < MAX_CURSOR {
        tx.prepare_cached(sql::RAISE_SEQUENCE)?.execute([lane.cursor])?;
        tx.prepare_cached(sql::NEW_SEQUENCE)?.execute([lane.cursor])?;
    }
    tx.prepare_cached(sql::TAKE_LANE)?.execute((
        handler,
        &claim.owner,
        claim.now,
        &claim.event_types,
        claim.on_dead_letter.stored(),
        single_step_to,
    ))?;
    let dead_owner_is_done = match &lane.owner {
        Some(dead) if !is_ours => {
            tx.prepare_cached(sql::LANES_OF_OWNER)?.query_row([dead], |row| Ok(row.get::<_, i64>(0)? == 0))?
        }
        _ => false,
    };
    let rows_until = tx.prepare_cached(sql::LAST_ROW)?.query_row([handler], |row| row.get(0))?;
    Ok(Taken::Ours { cursor: lane.cursor, single_step_to, dead_owner_is_done, condemned, rows_until })
}

/// The last log row that the dead owner may have been running: it is never further ahead of its cursor than that.
fn in_flight_end(tx: &Transaction<'_>, cursor: i64, run_ahead: usize) -> rusqlite::Result<i64> {
    let rows = i64::try_from(run_ahead).unwrap_or(i64::MAX);
    let end: Option<i64> = tx.prepare_cached(sql::SINGLE_STEP_END)?.query_row((cursor, rows), |row| row.get(0))?;
    Ok(end.unwrap_or(cursor))
}

/// The owner died while this event ran alone in its lane. `true` if the event is given up for that.
fn count_crash(tx: &Transaction<'_>, claim: &Claim, id: i64) -> rusqlite::Result<bool> {
    const WORDS: &str = "the process died while this event was handled";
    let now = claim.now;
    let row = tx
        .prepare_cached(sql::READ_CRASHES)?
        .query_row((id, &claim.handler), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    let Some((crashes, state)) = row else {
        let first = history::append("[]", now, "crash", WORDS);
        tx.prepare_cached(sql::NEW_CRASHED)?.execute((id, &claim.handler, now, WORDS, first))?;
        tx.prepare_cached(sql::CRASHED_WAITS)?.execute((id, &claim.handler))?;
        crate::outbox::flush::later_ones_wait(tx, &claim.handler, key_of(tx, claim, id)?.as_deref(), id, now)?;
        return Ok(false);
    };
    if !matches!(state.as_str(), "retry" | "waiting") {
        return Ok(false);
    }
    let crashes = u32::try_from(crashes.max(0)).unwrap_or(u32::MAX).saturating_add(1);
    let old: String =
        tx.prepare_cached(sql::READ_HISTORY)?.query_row((id, &claim.handler), |row| history::column(row, 0))?;
    let condemned = crashes >= claim.max_crashes;
    let (state, due, reason) = match (condemned, claim.on_dead_letter) {
        (true, OnDeadLetter::Continue) => ("dead_letter", None, "crash_loop"),
        (true, OnDeadLetter::ParkKey) => ("parked", None, "crash_loop"),
        (false, _) => (if state == "retry" { "retry" } else { "waiting" }, (state == "retry").then_some(now), WORDS),
    };
    let history = history::append(&old, now, if condemned { "crash_loop" } else { "crash" }, WORDS);
    tx.prepare_cached(sql::COUNT_CRASH)?.execute((id, &claim.handler, crashes, state, due, reason, history, now))?;
    if condemned && let Some(key) = key_of(tx, claim, id)? {
        crate::outbox::flush::make_next_due(tx, &claim.handler, &key, now)?;
    }
    Ok(condemned)
}

fn key_of(tx: &Transaction<'_>, claim: &Claim, id: i64) -> rusqlite::Result<Option<String>> {
    let key = tx.prepare_cached(sql::READ_KEY)?.query_row((id, &claim.handler), |row| row.get(0)).optional()?;
    Ok(key.flatten())
}

/// Removes the dead owner's file once no lane names it.
pub(super) fn clean_up_after(database: &Path, dead: &str) {
    crate::outbox::owner::remove_owner_file(database, dead);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Database, Options, TransactError};

    /// An operator may rename it between a relay's look at it and this transaction.
    #[test]
    fn a_lane_that_was_there_and_is_gone_is_not_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = Database::open(folder.path().join("lanes.db"), &[crate::outbox::COMPONENT], Options::default());
        let database = database.expect("opens");
        let lanes_after = |seen: bool| {
            let claim = Claim {
                handler: "h".to_owned(),
                owner: "owner".to_owned(),
                event_types: "[\"*\"]".to_owned(),
                on_dead_letter: OnDeadLetter::Continue,
                start_at: StartAt::Beginning,
                dead: None,
                run_ahead: 1,
                max_crashes: 3,
                seen,
                now: 0,
            };
            let taken = database.writer().transact(move |tx| {
                let is_ours = matches!(take(tx, &claim)?, Taken::Ours { .. });
                Ok::<_, rusqlite::Error>((is_ours, read_lane(tx, "h")?.is_some()))
            });
            taken.map_err(|error: TransactError<rusqlite::Error>| error.to_string())
        };
        assert_eq!(lanes_after(true), Ok((false, false)));
        assert_eq!(lanes_after(false), Ok((true, true)));
    }
}
