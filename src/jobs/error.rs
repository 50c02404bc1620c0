//! Why an act on a job, or a freeze, did not go through.

use std::fmt;

use super::JobStatus;
use crate::storage::{Fault, ReadError, TransactError};

/// Why an act on the jobs was refused or failed. Nothing was changed then, except where [`Freeze`](Self::Freeze) says so.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError {
    /// There is no job of that number; applied and cancelled ones are removed after a day.
    NotFound {
        /// The number.
        id: i64,
    },
    /// The job's status does not allow it.
    Status {
        /// The number.
        id: i64,
        /// What it is.
        status: JobStatus,
        /// What was asked for.
        act: &'static str,
    },
    /// It was replayed three times; only force replays it.
    Quarantined {
        /// The number.
        id: i64,
    },
    /// It publishes a scheduled article, and the article says when.
    Publication {
        /// The number.
        id: i64,
    },
    /// The lanes could not be drained or did not let go in time; the site stays frozen. Say `thaw`, or try again.
    Freeze {
        /// What was in the way.
        what: String,
    },
    /// The database could not be read.
    Read(String),
    /// The database could not be written.
    Database(String),
}

impl JobError {
    /// A stable name for programs: `job_not_found`, `job_status`, `job_quarantined`, `job_publication`, `freeze_incomplete`,
    /// `database_unavailable`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "job_not_found",
            Self::Status { .. } => "job_status",
            Self::Quarantined { .. } => "job_quarantined",
            Self::Publication { .. } => "job_publication",
            Self::Freeze { .. } => "freeze_incomplete",
            Self::Read(_) | Self::Database(_) => "database_unavailable",
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { id } => {
                write!(f, "there is no job {id}; applied and cancelled ones are removed after a day")
            }
            Self::Status { id, status, act } => {
                write!(f, "job {id} is {status}: it cannot be {act}; {}", fitting(status))
            }
            Self::Quarantined { id } => {
                write!(f, "job {id} was replayed three times already; force replays it once more")
            }
            Self::Publication { id } => write!(
                f,
                "job {id} publishes a scheduled article: change the article's publish_at, or make it a draft, instead"
            ),
            Self::Freeze { what } => write!(
                f,
                "the freeze is not complete, writes are kept back: {what}; freeze again to wait longer, or thaw"
            ),
            Self::Read(what) => write!(f, "the jobs could not be read: {what}"),
            Self::Database(what) => write!(f, "the database failed, nothing was changed: {what}"),
        }
    }
}

/// What can be done with a job in this status.
fn fitting(status: &JobStatus) -> &'static str {
    match status {
        JobStatus::Pending => "it can be cancelled",
        JobStatus::Applied => "it is done",
        JobStatus::DeadLetter | JobStatus::Cancelled => "it can be replayed or discarded",
        JobStatus::Quarantined => "it can be replayed with force, or discarded",
    }
}

impl std::error::Error for JobError {}

impl From<ReadError<rusqlite::Error>> for JobError {
    fn from(error: ReadError<rusqlite::Error>) -> Self {
        Self::Read(error.to_string())
    }
}

impl From<rusqlite::Error> for JobError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(Fault::from(error).to_string())
    }
}

impl From<TransactError<JobError>> for JobError {
    fn from(error: TransactError<JobError>) -> Self {
        match error {
            TransactError::Task(error) => error,
            other => Self::Database(other.to_string()),
        }
    }
}
