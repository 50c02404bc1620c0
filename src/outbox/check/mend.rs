//! Mends that lose nothing. Each is judged anew inside its transaction: what has changed meanwhile stays as it is.

use rusqlite::{OptionalExtension, Transaction};

use super::CheckReport;
use crate::outbox::flush::make_next_due;
use crate::outbox::operator::{Standing, lossy};
use crate::outbox::{history, sql};
use crate::storage::{Database, TransactError};

/// Findings mended in one transaction.
const BATCH: usize = 200;

/// How a finding is mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// A due row waits behind an earlier one of its key.
    Wait { id: i64, handler: String },
    /// A row that nothing wakes is due.
    Wake { id: i64, handler: String, key: Option<String> },
    /// A row whose event is gone is closed, or removed if it is closed already.
    CloseGone { id: i64, handler: String },
    /// Nothing runs in a lane that nobody owns.
    ClearRunning { handler: String },
    /// The next event comes after the cursor.
    RaiseSequence { handler: String },
}

/// Mends what of a report can be mended without losing anything; returns how many findings that were.
///
/// # Errors
/// As the database reports them; what was mended stays mended.
pub fn mend(database: &Database, report: &CheckReport) -> Result<u64, TransactError<rusqlite::Error>> {
    let fixes: Vec<Fix> = report.findings.iter().filter_map(|finding| finding.fix.clone()).collect();
    let mut mended = 0;
    for batch in fixes.chunks(BATCH) {
        let (batch, now) = (batch.to_vec(), database.clock().now_ms());
        mended += database.writer().transact(move |tx| {
            let mut mended = 0;
            for fix in &batch {
                mended += u64::from(fix.apply(tx, now)?);
            }
            Ok(mended)
        })?;
    }
    Ok(mended)
}

impl Fix {
    /// `false` if there is nothing to mend any more.
    fn apply(&self, tx: &Transaction<'_>, now: i64) -> rusqlite::Result<bool> {
        match self {
            Self::Wait { id, handler } => Ok(tx.prepare_cached(sql::WAIT_BEHIND)?.execute((id, handler, now))? > 0),
            Self::Wake { handler, key: Some(key), .. } => make_next_due(tx, handler, key, now).map(|()| true),
            Self::Wake { id, handler, key: None } => {
                Ok(tx.prepare_cached(sql::WAKE_ORPHAN)?.execute((id, handler, now))? > 0)
            }
            Self::CloseGone { id, handler } => close_gone(tx, *id, handler, now),
            Self::ClearRunning { handler } => Ok(tx.prepare_cached(sql::CLEAR_RUNNING)?.execute([handler])? > 0),
            Self::RaiseSequence { handler } => {
                let Some(lane) = Standing::read(tx, handler)? else { return Ok(false) };
                let raised = tx.prepare_cached(sql::RAISE_SEQUENCE)?.execute([lane.cursor])?;
                let made = tx.prepare_cached(sql::NEW_SEQUENCE)?.execute([lane.cursor])?;
                Ok(raised + made > 0)
            }
        }
    }
}

fn close_gone(tx: &Transaction<'_>, id: i64, handler: &str, now: i64) -> rusqlite::Result<bool> {
    if tx.prepare_cached(sql::EVENT_ID_OF)?.exists([id])? {
        return Ok(false);
    }
    let row = tx
        .prepare_cached(sql::READ_STATE)?
        .query_row((id, handler), |row| Ok((row.get::<_, String>(0)?, lossy(row, 1)?, history::column(row, 2)?)))
        .optional()?;
    let Some((state, key, history)) = row else { return Ok(false) };
    if matches!(state.as_str(), "done" | "discarded") {
        return Ok(tx.prepare_cached(sql::DELETE_EXCEPTION)?.execute((id, handler))? > 0);
    }
    let history = history::append(&history, now, "discard", "event_missing");
    tx.prepare_cached(sql::DISCARD_ROW)?.execute((id, handler, "event_missing", history, now))?;
    if let Some(key) = key {
        make_next_due(tx, handler, &key, now)?;
    }
    Ok(true)
}
