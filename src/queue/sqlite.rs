//! The writer in production: jobs become tasks of the database's queue-writer.

use std::sync::Arc;

use super::batch::{Batch, apply_batch, apply_one, is_committed};
use super::{Receipt, WriteError, WriteJob, Writer};
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
        let now_ms = self.clock.now_ms();
        let deadline = job.deadline;
        let key = job.key.clone().map(Arc::new);
        let mutation = Arc::new(job.prepare(now_ms)?);
        let (probed, probed_key) = (Arc::clone(&mutation), key.clone());
        let options = TaskOptions {
            bytes: mutation.bytes(),
            rows: mutation.rows(),
            deadline,
            probe: Some(Box::new(move |conn| {
                is_committed(conn, probed_key.as_deref(), std::slice::from_ref(&*probed))
            })),
        };
        // Held here until the answer is there, so that it is freed on this thread and not on the queue-writer's.
        let _held = Arc::clone(&mutation);
        let applied = self.queue.transact_with(options, move |tx| apply_one(tx, key.as_deref(), now_ms, &mutation))?;
        Ok(Receipt::Applied(applied))
    }

    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        let batch = Batch::prepare(jobs, self.clock.now_ms())?;
        if batch.mutations.is_empty() {
            return Ok(batch.answers(Vec::new()));
        }
        let (probed, probed_key) = (Arc::clone(&batch.mutations), batch.key.clone());
        let options = TaskOptions {
            bytes: batch.bytes(),
            rows: batch.rows(),
            deadline: batch.deadline,
            probe: Some(Box::new(move |conn| is_committed(conn, probed_key.as_deref(), &probed))),
        };
        let (mutations, key, now_ms) = (Arc::clone(&batch.mutations), batch.key.clone(), batch.now_ms);
        let outcomes =
            self.queue.transact_with(options, move |tx| apply_batch(tx, key.as_deref(), now_ms, &mutations))?;
        Ok(batch.answers(outcomes))
    }
}
