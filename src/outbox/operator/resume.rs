//! Resume: a key that a parked event holds back goes on without it.

use rusqlite::Transaction;

use super::Operator;
use super::error::ResumeError;
use crate::outbox::flush::make_next_due;
use crate::outbox::{history, sql};
use crate::storage::TransactError;

/// Parked rows of one key that are passed over at once. There is one as a rule.
const MAX_ROWS: i64 = 1_000;

impl Operator {
    /// Passes over the parked events of a key: they become dead letters, and what waits behind them is due. Returns
    /// their log positions.
    ///
    /// # Errors
    /// A [`ResumeError`]; nothing was changed then.
    pub fn resume(&self, handler: &str, key: &str) -> Result<Vec<i64>, TransactError<ResumeError>> {
        let (handler, key) = (handler.to_owned(), key.to_owned());
        let now = self.database.clock().now_ms();
        self.database.writer().transact(move |tx| resume(tx, &handler, &key, now))
    }
}

fn resume(tx: &Transaction<'_>, handler: &str, key: &str, now: i64) -> Result<Vec<i64>, ResumeError> {
    let parked: Vec<(i64, String)> = tx
        .prepare_cached(sql::PARKED_OF_KEY)?
        .query_map((handler, key, MAX_ROWS), |row| Ok((row.get(0)?, history::column(row, 1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    if parked.is_empty() {
        return Err(ResumeError::NotParked);
    }
    for (id, history) in &parked {
        let history = history::append(history, now, "resume", "the key goes on without it, by an operator");
        tx.prepare_cached(sql::PASS_OVER)?.execute((id, handler, history, now))?;
    }
    make_next_due(tx, handler, key, now)?;
    Ok(parked.into_iter().map(|(id, _)| id).collect())
}
