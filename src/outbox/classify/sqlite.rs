//! The table of `rusqlite::Error`.

use rusqlite::ErrorCode as Code;

use super::Class::{self, Poison, Retry, Unavailable};
use crate::outbox::DispatchError;

/// Every primary result code, as rusqlite names it; an extended code counts as its primary one. What concerns the whole
/// database is an outage, as with [`io`](super::io).
const CODES: &[(Code, Class)] = &[
    // The database, its file, or the disk below it.
    (Code::DatabaseBusy, Unavailable),
    (Code::DatabaseLocked, Unavailable),
    (Code::FileLockingProtocolFailed, Unavailable),
    (Code::DiskFull, Unavailable),
    (Code::NoLargeFileSupport, Unavailable),
    (Code::SystemIoFailure, Unavailable),
    (Code::OutOfMemory, Unavailable),
    (Code::CannotOpen, Unavailable),
    (Code::ReadOnly, Unavailable),
    (Code::PermissionDenied, Unavailable),
    (Code::DatabaseCorrupt, Unavailable),
    (Code::NotADatabase, Unavailable),
    // A value that SQLite takes from nobody.
    (Code::TooBig, Poison),
    // The statement, or what it met.
    (Code::ConstraintViolation, Retry),
    (Code::TypeMismatch, Retry),
    (Code::SchemaChanged, Retry),
    (Code::OperationAborted, Retry),
    (Code::OperationInterrupted, Retry),
    (Code::AuthorizationForStatementDenied, Retry),
    (Code::NotFound, Retry),
    (Code::ParameterOutOfRange, Retry),
    (Code::ApiMisuse, Retry),
    (Code::InternalMalfunction, Retry),
    // `SQLITE_ERROR`: a wrong statement, most of the time.
    (Code::Unknown, Retry),
];

/// A sink's own database that is busy, full, unreadable or not to be opened is an outage; what is too big for SQLite
/// never will work; a constraint, a wrong statement, and everything that rusqlite itself finds wrong with columns,
/// parameters and rows, is a failure of this event.
impl From<&rusqlite::Error> for DispatchError {
    fn from(error: &rusqlite::Error) -> Self {
        let code = match error {
            rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => Some(error.code),
            _ => None,
        };
        let row = code.and_then(|code| CODES.iter().find(|(known, _)| *known == code));
        row.map_or(Retry, |(_, class)| *class).with(error.to_string())
    }
}

impl From<rusqlite::Error> for DispatchError {
    fn from(error: rusqlite::Error) -> Self {
        Self::from(&error)
    }
}
