//! Rename and retire: what becomes of a handler that the program knows by another name, or no more.

use std::io;

use rusqlite::{Connection, Transaction};

use super::Operator;
use super::error::{LaneError, LaneResult, reading};
use super::exception::{ExceptionState, lossy};
use super::hold::{HeldLane, Proof, Standing};
use super::stats::MAX_COUNTED;
use crate::outbox::relay::is_name;
use crate::outbox::{EventFilter, history, owner, sql};
use crate::storage::{Database, TransactError};

/// Rows that one transaction discards.
const BATCH: i64 = 1_000;
/// Owners' files beside a database that are looked at: of living relays there are few, and a start removes the others.
const MAX_FILES: usize = 10_000;

impl HeldLane {
    /// Gives the lane and all its exceptions another name, in one transaction. A running program that has the handler
    /// under the old name delivers nothing more for it until it is started anew; stop it first
    /// ([`Operator::living_relay`] finds it).
    ///
    /// The name of a handler that was retired is free: the events discarded with it, which say nothing of this lane, are
    /// forgotten first.
    ///
    /// # Errors
    /// A [`LaneError`]; nothing of the lane was changed then.
    pub fn rename(&mut self, new_name: &str) -> LaneResult<()> {
        if !is_name(new_name) {
            return Err(TransactError::Task(LaneError::InvalidName(new_name.to_owned())));
        }
        loop {
            let (proof, new) = (self.proof(), new_name.to_owned());
            if self.database.writer().transact(move |tx| rename_or_make_room(tx, &proof, &new))? {
                break;
            }
        }
        self.handler = new_name.to_owned();
        Ok(())
    }

    /// How many events of the log the lane has still before it and would deliver, up to [`MAX_COUNTED`]: a retire drops
    /// them. Others may be inserted meanwhile.
    ///
    /// # Errors
    /// A [`LaneError`].
    pub fn undelivered(&self) -> LaneResult<u64> {
        let counted = self.database.read(|connection| {
            let Some(lane) = Standing::read(connection, &self.handler)? else { return Ok(None) };
            let filter = filter_of(connection, &self.handler)?;
            let mut statement = connection.prepare_cached(sql::TYPES_AFTER)?;
            let mut rows = statement.query((lane.cursor, MAX_COUNTED))?;
            let mut count = 0;
            while let Some(row) = rows.next()? {
                // A type that cannot be read is tried, and becomes a dead letter.
                count += u64::from(row.get_ref(0)?.as_str().map_or(true, |event_type| filter.matches(event_type)));
            }
            Ok(Some(count))
        });
        counted.map_err(reading)?.ok_or(TransactError::Task(LaneError::NotFound))
    }

    /// Removes the lane for good, so that the log keeps nothing for it any more. What is open or dead of it is
    /// discarded with `reason`; returns how many. What it has still [before it](Self::undelivered) is delivered to it
    /// by nobody. A program that has the handler makes a new lane when it starts.
    ///
    /// # Errors
    /// A [`LaneError`]; the lane is still there then, some of its exceptions may be discarded.
    pub fn retire(&self, reason: &str) -> LaneResult<u64> {
        let proof = self.proof();
        let handler = self.handler.clone();
        discard_all(&self.database, &handler, reason, move |tx, left| {
            proof.check(tx)?;
            if !left {
                tx.prepare_cached(sql::DELETE_LANE)?.execute([&proof.handler])?;
            }
            Ok(())
        })
    }
}

impl Operator {
    /// The process id of a relay that lives and has this handler, in whatever process, and whether it has the lane at this
    /// moment or stands by; `None` if there is none. One whose lock file does not name its handlers (an earlier build's, or
    /// made on a full disk) is found only by the lane that it owns, in [`lanes`](Self::lanes).
    ///
    /// A lane that is renamed or retired beneath such a relay is lost to it until its program is started anew.
    ///
    /// # Errors
    /// The folder of the database cannot be read.
    pub fn living_relay(&self, handler: &str) -> io::Result<Option<u32>> {
        let Some(path) = self.database.canonical_path() else { return Ok(None) };
        owner::living_relay(&path, handler, MAX_FILES)
    }

    /// Discards what is open or dead of a handler that has no lane (any more); returns how many.
    ///
    /// # Errors
    /// [`LaneError::HasLane`] if it has one; hold and [retire](HeldLane::retire) it.
    pub fn discard_without_lane(&self, handler: &str, reason: &str) -> LaneResult<u64> {
        let name = handler.to_owned();
        discard_all(&self.database, handler, reason, move |tx, _| match Standing::read(tx, &name)? {
            Some(_) => Err(LaneError::HasLane),
            None => Ok(()),
        })
    }
}

/// What the lane's last owner said that it wants.
pub(super) fn filter_of(connection: &Connection, handler: &str) -> rusqlite::Result<EventFilter> {
    let stored: Option<String> =
        connection.prepare_cached(sql::EVENT_TYPES)?.query_row([handler], |row| lossy(row, 0))?;
    Ok(EventFilter::Types(serde_json::from_str(&stored.unwrap_or_default()).unwrap_or_default()))
}

/// `false` when there may be more closed rows of a former handler of that name; a batch of them is gone.
fn rename_or_make_room(tx: &Transaction<'_>, proof: &Proof, new: &str) -> Result<bool, LaneError> {
    proof.check(tx)?;
    if new == proof.handler {
        return Ok(true);
    }
    if Standing::read(tx, new)?.is_some() || has_undone_rows(tx, new)? {
        return Err(LaneError::NameTaken(new.to_owned()));
    }
    for state in [ExceptionState::Discarded, ExceptionState::Done] {
        if forget(tx, new, state)? == BATCH.unsigned_abs() {
            return Ok(false);
        }
    }
    for state in ExceptionState::ALL {
        tx.prepare_cached(sql::RENAME_ROWS)?.execute((state.stored(), &proof.handler, new))?;
    }
    tx.prepare_cached(sql::RENAME_LANE)?.execute((&proof.handler, new))?;
    Ok(true)
}

fn has_undone_rows(tx: &Transaction<'_>, handler: &str) -> rusqlite::Result<bool> {
    for state in ExceptionState::UNDONE {
        let mut statement = tx.prepare_cached(sql::ROWS_IN_STATE)?;
        if statement.exists((state.stored(), handler, 1))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Batch after batch; `settle` judges each transaction and is told whether more is left.
fn discard_all(
    database: &Database,
    handler: &str,
    reason: &str,
    settle: impl Fn(&Transaction<'_>, bool) -> Result<(), LaneError> + Clone + Send + 'static,
) -> LaneResult<u64> {
    let mut total = 0;
    loop {
        let (handler, reason, settle) = (handler.to_owned(), reason.to_owned(), settle.clone());
        let now = database.clock().now_ms();
        let (discarded, left) = database.writer().transact(move |tx| {
            let discarded = discard_batch(tx, &handler, &reason, now)?;
            // A new lane of that name would take them for its own, and pass by what it has never had.
            let forgotten = forget(tx, &handler, ExceptionState::Done)?;
            let left = [discarded, forgotten].contains(&BATCH.unsigned_abs());
            settle(tx, left)?;
            Ok((discarded, left))
        })?;
        total += discarded;
        if !left {
            return Ok(total);
        }
    }
}

/// Removes a batch of closed rows; returns how many.
fn forget(tx: &Transaction<'_>, handler: &str, state: ExceptionState) -> rusqlite::Result<u64> {
    let closed: Vec<i64> = tx
        .prepare_cached(sql::ROWS_IN_STATE)?
        .query_map((state.stored(), handler, BATCH), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for id in &closed {
        tx.prepare_cached(sql::DELETE_EXCEPTION)?.execute((id, handler))?;
    }
    Ok(closed.len() as u64)
}

fn discard_batch(tx: &Transaction<'_>, handler: &str, reason: &str, now: i64) -> rusqlite::Result<u64> {
    let mut rows: Vec<(i64, String)> = Vec::new();
    for state in ExceptionState::UNDONE {
        let room = BATCH - rows.len() as i64;
        let found = tx
            .prepare_cached(sql::ROWS_IN_STATE)?
            .query_map((state.stored(), handler, room), |row| Ok((row.get(0)?, history::column(row, 1)?)))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        rows.extend(found);
    }
    for (id, history) in &rows {
        let history = history::append(history, now, "retire", reason);
        tx.prepare_cached(sql::DISCARD_ROW)?.execute((id, handler, history::shorten(reason), history, now))?;
    }
    Ok(rows.len() as u64)
}
