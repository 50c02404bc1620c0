//! Why a job was not applied.

use std::fmt;
use std::time::Duration;

use crate::article::ArticleError;
use crate::storage::{Fault, TransactError};

/// Why a job was not applied. Nothing of it was written, except where [`OutcomeUnknown`](Self::OutcomeUnknown) says so.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The article does not allow it: mend the request.
    Article(ArticleError),
    /// No error of the write: it is accepted, committed as a job, and will be applied later. Said where the article itself was
    /// asked for, which is not there yet.
    Deferred {
        /// The job's number.
        job: i64,
    },
    /// The site is read-only at present: try again once it is open.
    ReadOnly,
    /// The site is frozen, and as many writes wait as may: try again once it is open.
    JournalFull {
        /// How many may wait.
        limit: usize,
    },
    /// Too much is waiting to be written: try again after `retry_after`.
    Saturated {
        /// A good moment to try again.
        retry_after: Duration,
    },
    /// The writer is not running (any more).
    Stopped,
    /// The job's deadline passed before it was taken.
    DeadlineExceeded,
    /// The database is full, busy or failing: try again when the cause is gone.
    Unavailable(Fault),
    /// The database failed at COMMIT, or the writer died: the job may or may not be applied. Look before trying again.
    OutcomeUnknown(String),
    /// A defect of the program: a panic, or a writer called from its own thread.
    Internal(String),
}

impl WriteError {
    /// A stable name for programs: those of [`ArticleError::code`], and `deferred`, `read_only`, `journal_full`, `saturated`, `stopped`, `deadline_exceeded`,
    /// `database_full`, `database_busy`, `database_unavailable`, `outcome_unknown`, `internal`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Article(error) => error.code(),
            Self::Deferred { .. } => "deferred",
            Self::ReadOnly => "read_only",
            Self::JournalFull { .. } => "journal_full",
            Self::Saturated { .. } => "saturated",
            Self::Stopped => "stopped",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unavailable(fault) if fault.is_full() => "database_full",
            Self::Unavailable(fault) if fault.is_busy() => "database_busy",
            Self::Unavailable(_) => "database_unavailable",
            Self::OutcomeUnknown(_) => "outcome_unknown",
            Self::Internal(_) => "internal",
        }
    }

    /// The field at fault, if one is.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Article(error) => error.field(),
            _ => None,
        }
    }

    /// Whether the same job may succeed later without being changed.
    pub fn retryable(&self) -> bool {
        self.retry_after().is_some()
    }

    /// When to try the same job again; `None` if that is of no use, or not safe without a look.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ReadOnly | Self::JournalFull { .. } => Some(Duration::from_secs(30)),
            Self::Saturated { retry_after } => Some(*retry_after),
            Self::DeadlineExceeded => Some(Duration::from_secs(1)),
            Self::Unavailable(fault) if fault.is_busy() => Some(Duration::from_secs(1)),
            Self::Unavailable(fault) if fault.is_transient() => Some(Duration::from_secs(10)),
            Self::Stopped => Some(Duration::from_secs(5)),
            _ => None,
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Article(error) => error.fmt(f),
            Self::Deferred { job } => write!(f, "accepted as job {job}, to be applied once the site is open again"),
            Self::ReadOnly => f.write_str("the site is read-only at present, nothing was written; try again later"),
            Self::JournalFull { limit } => write!(
                f,
                "the site is frozen and {limit} writes wait already, nothing was written; try again once it is open"
            ),
            Self::Saturated { .. } => f.write_str("too many writes are waiting, nothing was written; try again later"),
            Self::Stopped => f.write_str("the writer is not running, nothing was written"),
            Self::DeadlineExceeded => {
                f.write_str("the deadline passed before the write was begun, nothing was written")
            }
            Self::Unavailable(fault) => write!(f, "the database failed, nothing was written: {fault}"),
            Self::OutcomeUnknown(what) => {
                write!(f, "it is not known whether this was written ({what}); look before trying again")
            }
            Self::Internal(what) => write!(f, "a defect in the program, nothing was written: {what}"),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Article(error) => error.source(),
            Self::Unavailable(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<ArticleError> for WriteError {
    fn from(error: ArticleError) -> Self {
        match error.sqlite().map(Fault::from) {
            Some(fault) if fault.is_transient() || fault.is_corrupt() => Self::Unavailable(fault),
            _ => Self::Article(error),
        }
    }
}

impl<E: Into<WriteError>> From<TransactError<E>> for WriteError {
    fn from(error: TransactError<E>) -> Self {
        match error {
            TransactError::Task(error) => error.into(),
            TransactError::TooLarge { bytes, limit } => ArticleError::TooLarge { bytes, limit }.into(),
            TransactError::Saturated { .. } => Self::Saturated { retry_after: Duration::from_secs(1) },
            TransactError::Stopped => Self::Stopped,
            TransactError::DeadlineExceeded => Self::DeadlineExceeded,
            TransactError::Database(fault) => Self::Unavailable(fault),
            TransactError::OutcomeUnknown(what) => Self::OutcomeUnknown(what),
            TransactError::Panicked(what) => Self::Internal(format!("a panic: {what}")),
            TransactError::Refused(what) => Self::Internal(what),
            TransactError::WouldDeadlock => Self::Internal("the writer was called from its own thread".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn database_faults_are_named_by_what_helps_and_may_be_tried_again() {
        for (code, name) in [
            (ffi::SQLITE_FULL, "database_full"),
            (ffi::SQLITE_BUSY, "database_busy"),
            (ffi::SQLITE_IOERR_WRITE, "database_unavailable"),
        ] {
            for error in [
                WriteError::from(ArticleError::Sqlite(failure(code))),
                WriteError::from(TransactError::<ArticleError>::Database(Fault::from(failure(code)))),
            ] {
                assert_eq!(error.code(), name);
                assert!(error.retryable(), "{error}");
                assert!(std::error::Error::source(&error).is_some());
            }
        }
    }

    #[test]
    fn what_cannot_succeed_unchanged_is_not_retryable() {
        for error in [
            WriteError::from(ArticleError::NotFound { slug: "a".into() }),
            WriteError::from(ArticleError::Sqlite(failure(ffi::SQLITE_CONSTRAINT))),
            WriteError::OutcomeUnknown("disk".into()),
            WriteError::from(TransactError::<ArticleError>::WouldDeadlock),
        ] {
            assert!(!error.retryable(), "{error}");
        }
    }
}
