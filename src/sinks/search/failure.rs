//! Why work on the index fails, and what that means for a delivery and for a search.

use std::time::Duration;

use rusqlite::ErrorCode;

use super::SearchError;
use crate::outbox::DispatchError;

/// Why work on the index failed.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    /// The articles could not be read.
    Source(DispatchError),
    /// The file was damaged; a new one takes its place.
    Damaged(String),
}

impl Failure {
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Source(DispatchError::unavailable(reason))
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        Self::Source(error)
    }
}

impl From<Failure> for DispatchError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sqlite(error) => sqlite_failure(&error),
            Failure::Source(error) => error,
            Failure::Damaged(error) => Self::Unavailable {
                reason: format!("the search index was damaged and is built anew: {error}"),
                retry_after: Some(Duration::ZERO),
            },
        }
    }
}

impl From<Failure> for SearchError {
    fn from(failure: Failure) -> Self {
        let reason = match DispatchError::from(failure) {
            DispatchError::Retry { reason } | DispatchError::Poison { reason } => reason,
            DispatchError::Unavailable { reason, .. } => reason,
        };
        Self::Unavailable { reason }
    }
}

/// What a fault of the index's own database means for a delivery.
fn sqlite_failure(error: &rusqlite::Error) -> DispatchError {
    let reason = format!("the search index: {error}");
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed,
        ) => DispatchError::unavailable(reason),
        Some(ErrorCode::TooBig) => DispatchError::poison(reason),
        _ => DispatchError::retry(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn each_fault_has_its_outcome() {
        let outcome = |code| sqlite_failure(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [
            ffi::SQLITE_BUSY,
            ffi::SQLITE_LOCKED,
            ffi::SQLITE_FULL,
            ffi::SQLITE_CANTOPEN,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_PERM,
        ] {
            assert!(matches!(outcome(code), DispatchError::Unavailable { .. }), "{code}");
        }
        assert!(matches!(outcome(ffi::SQLITE_TOOBIG), DispatchError::Poison { .. }));
        for code in [ffi::SQLITE_ERROR, ffi::SQLITE_CONSTRAINT, ffi::SQLITE_MISUSE] {
            assert!(matches!(outcome(code), DispatchError::Retry { .. }), "{code}");
        }
    }
}
