//! The writer in production: jobs become tasks of the database's queue-writer.

use std::sync::Arc;

use super::batch::Batch;
use super::gate::{Door, Gate};
use super::{Receipt, WriteError, WriteJob, Writer};
use crate::article::RequestKey;
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

    /// How jobs with this key come in, for a task and for its probe.
    fn door(&self, key: Option<Arc<RequestKey>>, now_ms: i64) -> Entrance {
        Entrance { gate: self.gate.clone(), key, now_ms }
    }
}

impl Writer for SqliteWriter {
    fn enqueue(&self, job: WriteJob) -> Result<Receipt, WriteError> {
        let now_ms = self.clock.now_ms();
        let deadline = job.deadline;
        let key = job.key.clone().map(Arc::new);
        let mutation = Arc::new(job.prepare(now_ms)?);
        let door = self.door(key, now_ms);
        let (probed, probing) = (Arc::clone(&mutation), door.clone());
        let options = TaskOptions {
            bytes: mutation.bytes(),
            rows: mutation.rows(),
            deadline,
            probe: Some(Box::new(move |conn| probing.as_door().is_committed(conn, std::slice::from_ref(&*probed)))),
        };
        // Held here until the answer is there, so that it is freed on this thread and not on the queue-writer's.
        let _held = Arc::clone(&mutation);
        let outcome = self.queue.transact_with(options, move |tx| door.as_door().pass_one(tx, &mutation))?;
        Ok(outcome.into())
    }

    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        let batch = Batch::prepare(jobs, self.clock.now_ms())?;
        if batch.mutations.is_empty() {
            return Ok(batch.answers(Vec::new()));
        }
        let door = self.door(batch.key.clone(), batch.now_ms);
        let (probed, probing) = (Arc::clone(&batch.mutations), door.clone());
        let options = TaskOptions {
            bytes: batch.bytes(),
            rows: batch.rows(),
            deadline: batch.deadline,
            probe: Some(Box::new(move |conn| probing.as_door().is_committed(conn, &probed))),
        };
        let mutations = Arc::clone(&batch.mutations);
        let outcomes = self.queue.transact_with(options, move |tx| door.as_door().pass(tx, &mutations))?;
        Ok(batch.answers(outcomes))
    }
}

/// What a [`Door`] is made of, as a task holds it.
#[derive(Clone)]
struct Entrance {
    gate: Option<Arc<dyn Gate>>,
    key: Option<Arc<RequestKey>>,
    now_ms: i64,
}

impl Entrance {
    fn as_door(&self) -> Door<'_> {
        Door { gate: self.gate.as_deref(), key: self.key.as_deref(), now_ms: self.now_ms }
    }
}
