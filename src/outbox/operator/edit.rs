//! Edit: one handler gets another payload for an event. It stands on the exception; the log never changes.

use rusqlite::{OptionalExtension, Transaction};

use super::Operator;
use super::error::EditError;
use super::exception::{ExceptionState, exception_info};
use super::replay::run_again;
use crate::outbox::event::{InsertError, check_json};
use crate::outbox::log::{self, Body};
use crate::outbox::sql;
use crate::storage::TransactError;

impl Operator {
    /// Has an exception delivered with another payload (JSON text, at most
    /// [`MAX_PAYLOAD_BYTES`](crate::outbox::MAX_PAYLOAD_BYTES)) and fresh attempts, in its turn. An open one, also one
    /// that runs at this moment, is run again with it: the outcome of that run no longer counts.
    ///
    /// `force` overrides [`EditError::Superseded`]. The number of replays does not matter.
    ///
    /// # Errors
    /// An [`EditError`]; nothing was changed then.
    pub fn edit(
        &self,
        outbox_id: i64,
        handler: &str,
        payload: impl Into<String>,
        force: bool,
    ) -> Result<(), TransactError<EditError>> {
        let (handler, payload) = (handler.to_owned(), payload.into());
        check_json(&payload).map_err(|error| TransactError::Task(unfit(error)))?;
        let now = self.database.clock().now_ms();
        self.database.writer().transact(move |tx| edit(tx, outbox_id, &handler, &payload, force, now))
    }
}

fn unfit(error: InsertError) -> EditError {
    match error {
        InsertError::Invalid { field, reason } => EditError::Payload(format!("the {field} {reason}")),
        InsertError::Sqlite(error) => EditError::Sqlite(error),
    }
}

fn edit(tx: &Transaction<'_>, id: i64, handler: &str, payload: &str, force: bool, now: i64) -> Result<(), EditError> {
    let row = tx.prepare_cached(sql::READ_EXCEPTION)?.query_row((id, handler), exception_info).optional()?;
    let Some(row) = row else { return Err(EditError::NotFound) };
    if matches!(row.state, ExceptionState::Discarded | ExceptionState::Done) {
        return Err(EditError::Closed(row.state));
    }
    if let (false, Some(by)) = (force, row.superseded_by) {
        return Err(EditError::Superseded { by });
    }
    if matches!(log::read_event(tx, id)?, Body::Missing) {
        return Err(EditError::EventMissing);
    }
    tx.prepare_cached(sql::SET_PAYLOAD)?.execute((id, handler, payload))?;
    Ok(run_again(tx, &row, "edit", "a new payload by an operator", now)?)
}
