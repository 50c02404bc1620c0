//! The writer for tests: no queue, no thread.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::batch::Batch;
use super::gate::{Door, Refusal};
use super::{Receipt, WriteError, WriteJob, Writer};
use crate::clock::SharedClock;
use crate::storage::Fault;

/// Applies each job at once, on the caller's thread, on a connection of its own.
///
/// For tests of code that depends on [`Writer`]: it answers as [`SqliteWriter`](super::SqliteWriter) does, but is never
/// saturated or stopped and shares no commit with other callers. A relay on the same file finds its events by polling.
#[derive(Debug)]
pub struct DirectWriter {
    connection: Mutex<Connection>,
    clock: SharedClock,
}

impl DirectWriter {
    /// A writer to the database file at `path`, which must exist and hold the components `articles` and `outbox` (as
    /// after [`Database::open`](crate::storage::Database::open)).
    ///
    /// # Errors
    /// [`WriteError::Unavailable`] if the file cannot be opened or lacks the tables of one of them.
    pub fn open(path: impl AsRef<Path>, clock: SharedClock) -> Result<Self, WriteError> {
        let open = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(Duration::from_secs(5))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.set_prepared_statement_cache_capacity(64);
            // A table that is not there is SQLite's own error, which names it.
            for table in ["articles", "event_outbox"] {
                connection.prepare(&format!("SELECT 1 FROM {table}"))?;
            }
            Ok(connection)
        };
        let connection = open().map_err(|error| WriteError::Unavailable(Fault::from(error)))?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    fn transact<T>(&self, f: impl FnOnce(&Transaction<'_>) -> Result<T, Refusal>) -> Result<T, WriteError> {
        // A panic while the lock was held dropped its transaction, which rolled it back.
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let unavailable = |error: rusqlite::Error| WriteError::Unavailable(Fault::from(error));
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(unavailable)?;
        let done = f(&tx)?;
        match tx.commit().map_err(Fault::from) {
            Ok(()) => Ok(done),
            Err(fault) if fault.is_io() => Err(WriteError::OutcomeUnknown(fault.to_string())),
            Err(fault) => Err(WriteError::Unavailable(fault)),
        }
    }
}

impl Writer for DirectWriter {
    fn enqueue(&self, job: WriteJob) -> Result<Receipt, WriteError> {
        let now_ms = self.clock.now_ms();
        let (deadline, key) = (job.deadline, job.key.clone());
        let mutation = job.prepare(now_ms)?;
        check_deadline(deadline)?;
        let door = Door { gate: None, key: key.as_ref(), now_ms };
        self.transact(|tx| door.pass_one(tx, &mutation)).map(Receipt::from)
    }

    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        let batch = Batch::prepare(jobs, self.clock.now_ms())?;
        if batch.mutations.is_empty() {
            return Ok(batch.answers(Vec::new()));
        }
        check_deadline(batch.deadline)?;
        let door = Door { gate: None, key: batch.key.as_deref(), now_ms: batch.now_ms };
        let outcomes = self.transact(|tx| door.pass(tx, &batch.mutations))?;
        Ok(batch.answers(outcomes))
    }
}

fn check_deadline(deadline: Option<Instant>) -> Result<(), WriteError> {
    match deadline {
        Some(deadline) if deadline <= Instant::now() => Err(WriteError::DeadlineExceeded),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::outbox;
    use crate::storage::{Database, Options};

    #[test]
    fn a_file_without_the_tables_is_refused_at_the_opening() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        Database::open(&path, &[outbox::COMPONENT], Options::default()).unwrap();
        let refused = DirectWriter::open(&path, SystemClock::shared()).unwrap_err();
        assert!(refused.to_string().contains("articles"), "{refused}");
    }
}
