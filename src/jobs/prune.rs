//! Removing jobs that are done and old, in small steps that no writer notices.

use std::time::Duration;

use super::job::JobStatus;
use super::sql;
use crate::storage::{Database, TransactError};

/// Rows removed in one task.
const STEP: i64 = 200;

/// Removes applied and cancelled jobs that have been so for longer than `keep`. Says how many; `stop` is asked between two steps.
pub(super) fn prune(
    database: &Database,
    keep: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<u64, TransactError<rusqlite::Error>> {
    let keep_ms = i64::try_from(keep.as_millis()).unwrap_or(i64::MAX);
    let before = database.clock().now_ms().saturating_sub(keep_ms);
    let mut removed = 0;
    for status in [JobStatus::Applied, JobStatus::Cancelled] {
        while !stop() && has_old(database, status, before) {
            let step = database
                .writer()
                .submit_internal(false, move |tx| tx.prepare_cached(sql::PRUNE)?.execute((status, before, STEP)))?;
            let step = step.wait()?;
            removed += step as u64;
            if step == 0 {
                // Another process has removed them meanwhile, or somebody's trigger keeps them.
                break;
            }
        }
    }
    Ok(removed)
}

/// Looks before it writes, so that nothing to remove costs no write transaction.
fn has_old(database: &Database, status: JobStatus, before: i64) -> bool {
    let found = database
        .read(|conn| conn.prepare_cached(sql::HAS_OLD)?.query_row((status, before), |row| row.get::<_, bool>(0)));
    found.unwrap_or(false)
}
