//! The writer in production: jobs become tasks of the database's queue-writer.

use std::sync::Arc;

use rusqlite::Connection;

use super::batch::{Batch, apply_all};
use super::{Receipt, WriteError, WriteJob, Writer};
use crate::article::{PreparedMutation, apply};
use crate::clock::SharedClock;
use crate::storage::{Database, QueueWriter, TaskOptions};

/// Writes through the queue-writer of a [`Database`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SqliteWriter {
    queue: QueueWriter,
    clock: SharedClock,
}

impl SqliteWriter {
    /// A writer to `database`, which must hold the components `articles` and `outbox`.
    pub fn new(database: &Database) -> Self {
        Self { queue: database.writer().clone(), clock: database.clock().clone() }
    }
}

impl Writer for SqliteWriter {
    fn enqueue(&self, job: WriteJob) -> Result<Receipt, WriteError> {
        let deadline = job.deadline;
        let mutation = Arc::new(job.prepare(self.clock.now_ms())?);
        let probed = Arc::clone(&mutation);
        let options = TaskOptions {
            bytes: mutation.bytes(),
            rows: mutation.rows(),
            deadline,
            probe: Some(Box::new(move |conn| probed.is_logged(conn))),
        };
        // Held here until the answer is there, so that it is freed on this thread and not on the queue-writer's.
        let _held = Arc::clone(&mutation);
        let applied = self.queue.transact_with(options, move |tx| apply(tx, &mutation))?;
        Ok(Receipt::Applied(applied))
    }

    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        let batch = Batch::prepare(jobs, self.clock.now_ms())?;
        if batch.mutations.is_empty() {
            return Ok(batch.answers(Vec::new()));
        }
        let probed = Arc::clone(&batch.mutations);
        let options = TaskOptions {
            bytes: batch.bytes(),
            rows: batch.rows(),
            deadline: batch.deadline,
            probe: Some(Box::new(move |conn| any_logged(&probed, conn))),
        };
        let mutations = Arc::clone(&batch.mutations);
        let outcomes = self.queue.transact_with(options, move |tx| apply_all(tx, &mutations))?;
        Ok(batch.answers(outcomes))
    }
}

/// They commit together; one that was refused has no event.
fn any_logged(mutations: &[PreparedMutation], conn: &Connection) -> rusqlite::Result<bool> {
    for mutation in mutations {
        if mutation.is_logged(conn)? {
            return Ok(true);
        }
    }
    Ok(false)
}
