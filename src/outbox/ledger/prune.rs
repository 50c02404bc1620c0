//! Forgetting what is over, in small steps.

use rusqlite::Transaction;

use super::stored::RawText;
use super::{Ledger, LedgerError, sql};
use crate::outbox::policy::millis;

impl Ledger {
    /// Removes entries that were done or discarded longer ago than the retention, in tasks of
    /// [`rows_per_task`](super::LedgerOptions::rows_per_task); returns how many. What is open or dead stays whatever its age.
    /// `stop` is asked between two tasks. With nothing to remove nothing is written.
    ///
    /// # Errors
    /// As the database reports them; what was removed stays removed.
    pub fn prune(&self, stop: impl Fn() -> bool) -> Result<u64, LedgerError> {
        let inner = &self.inner;
        let before = self.now().saturating_sub(millis(inner.options.retention));
        let limit = i64::try_from(inner.options.rows_per_task.max(1)).unwrap_or(i64::MAX);
        let mut removed = 0;
        while !stop() {
            let found = inner.database.read(|connection| connection.prepare_cached(sql::OVER)?.exists((before, 1)));
            if !found.map_err(LedgerError::Read)? {
                break;
            }
            let step = inner.database.writer().submit_internal(false, move |tx| prune_step(tx, before, limit));
            let gone = step.and_then(crate::storage::Pending::wait).map_err(LedgerError::Write)?;
            removed += gone;
            if gone == 0 {
                break;
            }
        }
        Ok(removed)
    }
}

fn prune_step(tx: &Transaction<'_>, before: i64, limit: i64) -> rusqlite::Result<u64> {
    let over: Vec<(RawText, RawText)> = tx
        .prepare_cached(sql::OVER)?
        .query_map((before, limit), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut removed = 0;
    for (event_id, handler) in over {
        removed += tx.prepare_cached(sql::FORGET)?.execute((event_id, handler))? as u64;
    }
    Ok(removed)
}
