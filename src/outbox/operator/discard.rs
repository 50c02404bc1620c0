//! Discard: an event is given up for one handler, for good.

use rusqlite::{OptionalExtension, Transaction};

use super::Operator;
use super::error::DiscardError;
use super::exception::{ExceptionState, exception_info, lossy};
use super::hold::Standing;
use crate::outbox::flush::make_next_due;
use crate::outbox::{history, sql};
use crate::storage::TransactError;

impl Operator {
    /// Gives an event up for a handler: an open exception (also if it runs at this moment: its outcome no longer
    /// counts), a dead letter, or an event that the handler has still before it, which is then skipped; one that the lane
    /// has read already may still be called, to no effect on its state. The next event of its key is due at once. `reason`
    /// goes into its history.
    ///
    /// # Errors
    /// A [`DiscardError`]; nothing was changed then.
    pub fn discard(
        &self,
        outbox_id: i64,
        handler: &str,
        reason: impl Into<String>,
    ) -> Result<(), TransactError<DiscardError>> {
        let (handler, reason) = (handler.to_owned(), reason.into());
        let now = self.database.clock().now_ms();
        self.database.writer().transact(move |tx| discard(tx, outbox_id, &handler, &reason, now))
    }
}

fn discard(tx: &Transaction<'_>, id: i64, handler: &str, reason: &str, now: i64) -> Result<(), DiscardError> {
    let row = tx.prepare_cached(sql::READ_EXCEPTION)?.query_row((id, handler), exception_info).optional()?;
    let Some(row) = row else { return discard_ahead(tx, id, handler, reason, now) };
    if matches!(row.state, ExceptionState::Discarded | ExceptionState::Done) {
        return Err(DiscardError::Closed(row.state));
    }
    let history: String =
        tx.prepare_cached(sql::READ_HISTORY)?.query_row((id, handler), |row| history::column(row, 0))?;
    let history = history::append(&history, now, "discard", reason);
    tx.prepare_cached(sql::DISCARD_ROW)?.execute((id, handler, history::shorten(reason), history, now))?;
    if let Some(key) = &row.key {
        make_next_due(tx, handler, key, now)?;
    }
    Ok(())
}

/// The event has no row: it is still before the handler, perhaps running. A lane that finds the row passes it by, and
/// what a run under way leaves cannot replace it.
fn discard_ahead(tx: &Transaction<'_>, id: i64, handler: &str, reason: &str, now: i64) -> Result<(), DiscardError> {
    let Some(lane) = Standing::read(tx, handler)? else { return Err(DiscardError::NotFound) };
    let in_log: Option<String> =
        tx.prepare_cached(sql::EVENT_ID_OF)?.query_row([id], |row| lossy(row, 0)).optional()?.flatten();
    if in_log.is_none() {
        return Err(DiscardError::NotFound);
    }
    if id <= lane.cursor {
        return Err(DiscardError::Delivered);
    }
    let history = history::append("[]", now, "discard", reason);
    tx.prepare_cached(sql::DISCARD_AHEAD)?.execute((id, handler, history::shorten(reason), history, now))?;
    Ok(())
}
