//! The way to write articles: a [`Writer`] takes [`WriteJob`]s and answers each with a [`Receipt`].
//!
//! [`SqliteWriter`] puts them on the database's queue-writer thread, where the jobs of many callers share one commit.
//! [`DirectWriter`] is its stand-in for tests: one connection, one transaction per call, no thread. Both answer alike;
//! whoever depends on the trait alone can be tested without a queue.

mod batch;
mod direct;
mod error;
mod gate;
mod sqlite;

use std::time::Instant;

use crate::article::{Applied, ArticleError, Mutation, Outcome, PreparedMutation, RequestKey};

pub use direct::DirectWriter;
pub use error::WriteError;
pub use gate::{Gate, Refusal, Way};
pub use sqlite::SqliteWriter;

/// Most jobs in one [`Writer::enqueue_batch`] call.
pub const MAX_BATCH_JOBS: usize = 1_000;
/// Most bytes that the jobs of one [`Writer::enqueue_batch`] call may carry together (32 MiB).
pub const MAX_BATCH_BYTES: usize = 32 << 20;

/// Takes writes and answers once they are decided.
///
/// Contract, checked for both implementations by one suite:
/// - `Ok` means committed: the article and its event are in the database (or the job that will make them), and a crash does
///   not undo that.
/// - An error means that nothing of the job was written, except [`WriteError::OutcomeUnknown`], which says it does not
///   know.
/// - A job or batch whose [key](WriteJob::key) was committed before is not done again: it gets the outcomes of then. The
///   key commits with what the job wrote; a refused job leaves none. The same key for another request is an error.
/// - Each call returns exactly once, and in bounded time once the database answers.
pub trait Writer: Send + Sync + 'static {
    /// Applies one job in a transaction.
    ///
    /// # Errors
    /// See [`WriteError`].
    fn enqueue(&self, job: WriteJob) -> Result<Receipt, WriteError>;

    /// Applies up to [`MAX_BATCH_JOBS`] jobs in order, in one transaction, and answers each: what is wrong with one job
    /// leaves the others committed. A later job sees what an earlier one did.
    ///
    /// # Errors
    /// The whole batch failed and nothing of it was written: too many jobs or bytes, or a fault of the queue or the
    /// database.
    fn enqueue_batch(&self, jobs: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError>;
}

/// A mutation and what belongs to the request that asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteJob {
    /// What to do.
    pub mutation: Mutation,
    /// Ties together what one request caused; 1 to 256 bytes without control characters. Stands on the event.
    pub correlation_id: Option<String>,
    /// What caused the mutation (a job, another event); as the correlation id.
    pub causation_id: Option<String>,
    /// When the caller gives up: the job is cancelled if it was not taken by then. Of a batch, the earliest counts.
    pub deadline: Option<Instant>,
    /// Makes a repeated job harmless: what was committed under the same key within a day is not done again but answered as
    /// it was. Of a batch, the key of its first job stands for the whole.
    pub key: Option<RequestKey>,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Receipt {
    /// Committed.
    Applied(Applied),
    /// Committed as a job that will be applied later: the site is frozen, or a line of such jobs is being worked off.
    Deferred {
        /// The job's number.
        job: i64,
    },
}

impl From<Outcome> for Receipt {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Applied(applied) => Self::Applied(applied),
            Outcome::Deferred(job) => Self::Deferred { job },
        }
    }
}

impl WriteJob {
    /// A job without correlation id, causation id and deadline.
    pub fn new(mutation: Mutation) -> Self {
        Self { mutation, correlation_id: None, causation_id: None, deadline: None, key: None }
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the causation id.
    #[must_use]
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// Sets the deadline.
    #[must_use]
    pub fn deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(at);
        self
    }

    /// Sets the key.
    #[must_use]
    pub fn key(mut self, key: RequestKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Checks the job and gives it ids and a time (milliseconds since the Unix epoch), for a [`Writer`] of your own.
    ///
    /// # Errors
    /// As [`Mutation::prepare`].
    pub fn prepare(self, now_ms: i64) -> Result<PreparedMutation, ArticleError> {
        self.mutation.prepare(now_ms, self.correlation_id, self.causation_id)
    }
}

impl Receipt {
    /// What was applied; `None` if it waits.
    pub fn into_applied(self) -> Option<Applied> {
        match self {
            Self::Applied(applied) => Some(applied),
            Self::Deferred { .. } => None,
        }
    }

    /// What was applied.
    ///
    /// # Errors
    /// [`WriteError::Deferred`] if it waits, for callers that cannot go on without it.
    pub fn applied(self) -> Result<Applied, WriteError> {
        match self {
            Self::Applied(applied) => Ok(applied),
            Self::Deferred { job } => Err(WriteError::Deferred { job }),
        }
    }
}
