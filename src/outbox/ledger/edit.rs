//! Edit: one handler gets another payload for an event that it could not take.

use rusqlite::Transaction;

use super::entries::{read_dead, run_again};
use super::{Ledger, LedgerActError, LedgerState, sql};
use crate::outbox::event::{InsertError, check_json};
use crate::storage::TransactError;

impl Ledger {
    /// Has a dead letter, or an entry that waits for its next call, run with another payload (JSON text, at most
    /// [`MAX_PAYLOAD_BYTES`](crate::outbox::MAX_PAYLOAD_BYTES)) and all its attempts. The broker's own copy no longer counts, should it
    /// come again. The handler sees [`Event::edited`](crate::outbox::Event::edited).
    ///
    /// `force` overrides [`LedgerActError::Superseded`]. The number of replays does not matter.
    ///
    /// # Errors
    /// A [`LedgerActError`]; nothing was changed then.
    pub fn edit(
        &self,
        event_id: &str,
        handler: &str,
        payload: &str,
        force: bool,
    ) -> Result<(), TransactError<LedgerActError>> {
        check_json(payload).map_err(|error| TransactError::Task(unfit(error)))?;
        let (event_id, handler, payload) = (event_id.to_owned(), handler.to_owned(), payload.to_owned());
        let (keep, now) = (self.inner.options.policy.max_crashes.saturating_sub(1), self.now());
        self.inner.database.writer().transact(move |tx| edit(tx, (&event_id, &handler), &payload, force, keep, now))
    }
}

fn unfit(error: InsertError) -> LedgerActError {
    match error {
        InsertError::Invalid { field, reason } => LedgerActError::Payload(format!("the {field} {reason}")),
        InsertError::Sqlite(error) => LedgerActError::Sqlite(error),
    }
}

pub(super) fn edit(
    tx: &Transaction<'_>,
    (event_id, handler): (&str, &str),
    payload: &str,
    force: bool,
    keep: u32,
    now: i64,
) -> Result<(), LedgerActError> {
    let mut dead = read_dead(tx, event_id, handler)?;
    match dead.state {
        LedgerState::DeadLetter | LedgerState::Retry => {}
        // A second run beside the one that goes on is what the ledger is there to prevent.
        LedgerState::InProgress => return Err(LedgerActError::Running),
        closed => return Err(LedgerActError::WrongState(closed)),
    }
    if let Some(by) = dead.superseded_by.filter(|_| !force) {
        return Err(LedgerActError::Superseded { by });
    }
    let Some(stored) = dead.event.take() else { return Err(LedgerActError::NoEvent) };
    tx.prepare_cached(sql::SET_EVENT)?.execute((event_id, handler, stored.edited(payload)))?;
    Ok(run_again(tx, (event_id, handler), &dead, ("edit", "a new payload by an operator"), keep, now)?)
}
