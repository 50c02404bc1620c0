//! Which of the policy's outcomes an error from elsewhere counts as: the tables of what is an outage and what is not, one
//! per crate that errors come from. `tests/error_tables.rs` walks their rows.

#[cfg(feature = "sinks")]
mod http;
mod io;
mod sqlite;

use std::fmt;

use super::{DispatchError, InsertError};
use crate::storage::{ReadError, TransactError};

impl fmt::Display for DispatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry { reason } => write!(f, "failed: {reason}"),
            Self::Poison { reason } => write!(f, "will never work: {reason}"),
            Self::Unavailable { reason, retry_after: None } => write!(f, "unavailable: {reason}"),
            Self::Unavailable { reason, retry_after: Some(wait) } => {
                write!(f, "unavailable for {} s: {reason}", wait.as_secs())
            }
        }
    }
}

impl std::error::Error for DispatchError {}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
enum Class {
    Retry,
    Poison,
    Unavailable,
}

impl Class {
    fn with(self, reason: String) -> DispatchError {
        match self {
            Self::Retry => DispatchError::retry(reason),
            Self::Poison => DispatchError::poison(reason),
            Self::Unavailable => DispatchError::unavailable(reason),
        }
    }
}

/// A payload that does not parse never will; reading that failed counts as any error of I/O.
impl From<serde_json::Error> for DispatchError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() {
            return Self::from(std::io::Error::from(error)).context("JSON");
        }
        Self::poison(format!("payload: {error}"))
    }
}

/// A follow-up event that is not valid never will be; what SQLite refuses counts as any error of SQLite.
impl From<InsertError> for DispatchError {
    fn from(error: InsertError) -> Self {
        match error {
            InsertError::Invalid { .. } => Self::poison(error.to_string()),
            InsertError::Sqlite(error) => Self::from(error).context("event not inserted"),
        }
    }
}

/// A pool without a free connection, a closed database and a failing one are outages; the closure's own error keeps
/// its class.
impl<E: Into<DispatchError> + fmt::Debug> From<ReadError<E>> for DispatchError {
    fn from(error: ReadError<E>) -> Self {
        match error {
            ReadError::Read(error) => error.into(),
            ReadError::Nested => Self::retry("a read within a read: finish the outer one first"),
            other => Self::unavailable(format!("read failed: {other:?}")),
        }
    }
}

/// A queue-writer that is full, stopped or without a working database is an outage, and what is larger than it takes at
/// all never will work; the task's own error keeps its class.
impl<E: Into<DispatchError> + fmt::Debug> From<TransactError<E>> for DispatchError {
    fn from(error: TransactError<E>) -> Self {
        match error {
            TransactError::Task(error) => error.into(),
            TransactError::Panicked(text) => Self::retry(format!("the task panicked: {text}")),
            TransactError::Refused(reason) => Self::retry(reason),
            TransactError::WouldDeadlock => Self::retry("a write within a write: finish the outer one first"),
            TransactError::TooLarge { bytes, limit } => {
                Self::poison(format!("the task carries {bytes} bytes, at most {limit} may wait"))
            }
            other => Self::unavailable(format!("write failed: {other:?}")),
        }
    }
}
