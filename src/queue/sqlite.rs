//! The writer in production: jobs become tasks of the database's queue-writer.

use std::sync::Arc;

use rusqlite::Connection;

use super::batch::{Batch, apply_all};
use super::{Receipt, WriteError, WriteJob, Writer};
use crate::article::{PreparedMutation, apply};
use crate::clock::SharedClock;
use crate::storage::{Database, Probe, QueueWriter, TaskOptions};

/// Answers whether a commit of unknown outcome came through: an article never exists without its event.
const HAS_EVENT: &str = "SELECT 1 FROM event_outbox WHERE event_id = ?1";

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
        let mutation = job.prepare(self.clock.now_ms())?;
        let options = TaskOptions {
            bytes: mutation.bytes(),
            rows: mutation.rows(),
            deadline,
            probe: Some(probe_one(mutation.event_id().to_owned())),
        };
        let applied = self.queue.transact_with(options, move |tx| apply(tx, &mutation))?;
        Ok(Receipt::Applied(applied))
    }

    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        let batch = Batch::prepare(jobs, self.clock.now_ms())?;
        if batch.mutations.is_empty() {
            return Ok(batch.answers(Vec::new()));
        }
        let options = TaskOptions {
            bytes: batch.bytes(),
            rows: batch.rows(),
            deadline: batch.deadline,
            probe: Some(probe_any(Arc::clone(&batch.mutations))),
        };
        let mutations = Arc::clone(&batch.mutations);
        let outcomes = self.queue.transact_with(options, move |tx| apply_all(tx, &mutations))?;
        Ok(batch.answers(outcomes))
    }
}

fn probe_one(event_id: String) -> Probe {
    Box::new(move |conn| conn.prepare(HAS_EVENT)?.exists([&event_id]))
}

/// Any of them will do: they commit together, but a refused one has no event.
fn probe_any(mutations: Arc<[PreparedMutation]>) -> Probe {
    Box::new(move |conn: &Connection| {
        let mut lookup = conn.prepare(HAS_EVENT)?;
        for mutation in mutations.iter() {
            if lookup.exists([mutation.event_id()])? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}
