//! The writer in production: jobs become tasks of the database's queue-writer.

use std::sync::Arc;

use rusqlite::Connection;

use super::batch::{Batch, apply_all};
use super::gate::{self, Gate};
use super::{Receipt, WriteError, WriteJob, Writer};
use crate::article::PreparedMutation;
use crate::clock::SharedClock;
use crate::storage::{Database, QueueWriter, TaskOptions};

/// Writes through the queue-writer of a [`Database`]. Cheap to clone.
#[derive(Debug, Clone)]
pub struct SqliteWriter {
    queue: QueueWriter,
    clock: SharedClock,
    gate: Option<Arc<dyn Gate>>,
}

impl SqliteWriter {
    /// A writer to `database`, which must hold the components `articles` and `outbox`.
    pub fn new(database: &Database) -> Self {
        Self { queue: database.writer().clone(), clock: database.clock().clone(), gate: None }
    }

    /// A writer that asks `gate` inside each transaction.
    pub fn with_gate(database: &Database, gate: Arc<dyn Gate>) -> Self {
        Self { gate: Some(gate), ..Self::new(database) }
    }
}

impl Writer for SqliteWriter {
    fn enqueue(&self, job: WriteJob) -> Result<Receipt, WriteError> {
        let deadline = job.deadline;
        let mutation = Arc::new(job.prepare(self.clock.now_ms())?);
        let (probed, gate) = (Arc::clone(&mutation), self.gate.clone());
        let options = TaskOptions {
            bytes: mutation.bytes(),
            rows: mutation.rows(),
            deadline,
            probe: Some(Box::new(move |conn| is_written(&probed, gate.as_deref(), conn))),
        };
        let gate = self.gate.clone();
        // Held here until the answer is there, so that it is freed on this thread and not on the queue-writer's.
        let _held = Arc::clone(&mutation);
        let receipt = self.queue.transact_with(options, move |tx| {
            let gate = gate.as_deref();
            gate::pass(tx, gate, gate::way(tx, gate)?, &mutation)
        })?;
        Ok(receipt)
    }

    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        let batch = Batch::prepare(jobs, self.clock.now_ms())?;
        if batch.mutations.is_empty() {
            return Ok(batch.answers(Vec::new()));
        }
        let (probed, gate) = (Arc::clone(&batch.mutations), self.gate.clone());
        let options = TaskOptions {
            bytes: batch.bytes(),
            rows: batch.rows(),
            deadline: batch.deadline,
            probe: Some(Box::new(move |conn| any_written(&probed, gate.as_deref(), conn))),
        };
        let (mutations, gate) = (Arc::clone(&batch.mutations), self.gate.clone());
        let outcomes = self.queue.transact_with(options, move |tx| apply_all(tx, gate.as_deref(), &mutations))?;
        Ok(batch.answers(outcomes))
    }
}

fn is_written(mutation: &PreparedMutation, gate: Option<&dyn Gate>, conn: &Connection) -> rusqlite::Result<bool> {
    Ok(mutation.is_logged(conn)? || gate.map_or(Ok(false), |gate| gate.is_deferred(conn, mutation))?)
}

/// They commit together; one that was refused has no event.
fn any_written(mutations: &[PreparedMutation], gate: Option<&dyn Gate>, conn: &Connection) -> rusqlite::Result<bool> {
    for mutation in mutations {
        if is_written(mutation, gate, conn)? {
            return Ok(true);
        }
    }
    Ok(false)
}
