//! Which of the policy's outcomes an error from elsewhere counts as: the table of what is an outage and what is not.

use std::fmt;
use std::io;

use rusqlite::ErrorCode;

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

/// Not reachable, no space and too many files are outages; anything else is a failure of this event.
impl From<io::Error> for DispatchError {
    fn from(error: io::Error) -> Self {
        if is_outage(&error) { Self::unavailable(error.to_string()) } else { Self::retry(error.to_string()) }
    }
}

fn is_outage(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    // EMFILE and ENFILE have no kind of their own.
    const TOO_MANY_FILES: [i32; 2] = [24, 23];
    let by_kind = matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::NotConnected
            | Kind::AddrInUse
            | Kind::AddrNotAvailable
            | Kind::NetworkDown
            | Kind::NetworkUnreachable
            | Kind::HostUnreachable
            | Kind::BrokenPipe
            | Kind::TimedOut
            | Kind::WouldBlock
            | Kind::UnexpectedEof
            | Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::ReadOnlyFilesystem
            | Kind::ResourceBusy
            | Kind::OutOfMemory
    );
    by_kind || error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code))
}

/// A sink's own database that is busy, full, unreadable or not to be opened is an outage; what is too big for SQLite
/// never will work; a constraint or a wrong statement is a failure of this event.
impl From<&rusqlite::Error> for DispatchError {
    fn from(error: &rusqlite::Error) -> Self {
        let reason = error.to_string();
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
            ) => Self::unavailable(reason),
            Some(ErrorCode::TooBig) => Self::poison(reason),
            _ => Self::retry(reason),
        }
    }
}

impl From<rusqlite::Error> for DispatchError {
    fn from(error: rusqlite::Error) -> Self {
        Self::from(&error)
    }
}

/// A payload that does not parse never will.
impl From<serde_json::Error> for DispatchError {
    fn from(error: serde_json::Error) -> Self {
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

/// A queue-writer that is full, stopped or without a working database is an outage; the task's own error keeps its
/// class.
impl<E: Into<DispatchError> + fmt::Debug> From<TransactError<E>> for DispatchError {
    fn from(error: TransactError<E>) -> Self {
        match error {
            TransactError::Task(error) => error.into(),
            TransactError::Panicked(text) => Self::retry(format!("the task panicked: {text}")),
            TransactError::Refused(reason) => Self::retry(reason),
            other => Self::unavailable(format!("write failed: {other:?}")),
        }
    }
}

/// A call that got no answer met an outage, unless the request itself cannot be made; so did one that was answered 429,
/// 502, 503 or 504. Other statuses below 500 never will work, save 408 and 425; the rest is worth another try.
#[cfg(feature = "sinks")]
impl From<&ureq::Error> for DispatchError {
    fn from(error: &ureq::Error) -> Self {
        use ureq::Error as Http;
        let text = error.to_string();
        match error {
            Http::StatusCode(status) => from_status(*status),
            Http::BadUri(_) | Http::Http(_) | Http::InvalidProxyUrl => Self::poison(text),
            Http::RedirectFailed | Http::TooManyRedirects | Http::BodyExceedsLimit(_) => Self::retry(text),
            _ => Self::unavailable(text),
        }
    }
}

#[cfg(feature = "sinks")]
impl From<ureq::Error> for DispatchError {
    fn from(error: ureq::Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(feature = "sinks")]
fn from_status(status: u16) -> DispatchError {
    let text = format!("the other side answered {status}");
    match status {
        429 | 502..=504 => DispatchError::unavailable(text),
        408 | 425 => DispatchError::retry(text),
        400..=499 => DispatchError::poison(text),
        _ => DispatchError::retry(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Class {
        Retry,
        Poison,
        Unavailable,
    }

    fn class(error: impl Into<DispatchError>) -> Class {
        match error.into() {
            DispatchError::Retry { .. } => Class::Retry,
            DispatchError::Poison { .. } => Class::Poison,
            DispatchError::Unavailable { .. } => Class::Unavailable,
        }
    }

    #[test]
    fn io_errors_sort_by_kind() {
        use io::ErrorKind as Kind;
        let table = [
            (Kind::ConnectionRefused, Class::Unavailable),
            (Kind::ConnectionReset, Class::Unavailable),
            (Kind::TimedOut, Class::Unavailable),
            (Kind::HostUnreachable, Class::Unavailable),
            (Kind::StorageFull, Class::Unavailable),
            (Kind::UnexpectedEof, Class::Unavailable),
            (Kind::NotFound, Class::Retry),
            (Kind::PermissionDenied, Class::Retry),
            (Kind::InvalidData, Class::Retry),
        ];
        for (kind, want) in table {
            assert_eq!(class(io::Error::from(kind)), want, "{kind:?}");
        }
        assert_eq!(class(io::Error::from_raw_os_error(24)), Class::Unavailable, "too many open files");
    }

    #[test]
    fn sqlite_errors_sort_by_code() {
        let table = [
            (5, Class::Unavailable),  // busy
            (13, Class::Unavailable), // full
            (14, Class::Unavailable), // cannot open
            (10, Class::Unavailable), // I/O
            (3, Class::Unavailable),  // permission
            (18, Class::Poison),      // too big
            (19, Class::Retry),       // constraint
            (1, Class::Retry),        // SQL error
        ];
        for (code, want) in table {
            let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            assert_eq!(class(error), want, "code {code}");
        }
    }

    #[test]
    fn a_payload_that_does_not_parse_is_poison() {
        let error = serde_json::from_str::<u32>("{").unwrap_err();
        assert_eq!(class(error), Class::Poison);
    }

    #[test]
    fn a_follow_up_event_that_is_invalid_is_poison_and_a_full_disk_an_outage() {
        let invalid = InsertError::Invalid { field: "payload", reason: "is not JSON".into() };
        assert_eq!(class(invalid), Class::Poison);
        let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), None);
        assert_eq!(class(TransactError::Task(InsertError::Sqlite(full))), Class::Unavailable);
    }

    #[cfg(feature = "sinks")]
    #[test]
    fn http_answers_sort_by_status() {
        let table = [
            (429, Class::Unavailable),
            (503, Class::Unavailable),
            (408, Class::Retry),
            (500, Class::Retry),
            (502, Class::Unavailable),
            (504, Class::Unavailable),
            (400, Class::Poison),
            (401, Class::Poison),
            (422, Class::Poison),
        ];
        for (status, want) in table {
            assert_eq!(class(ureq::Error::StatusCode(status)), want, "status {status}");
        }
        assert_eq!(class(ureq::Error::HostNotFound), Class::Unavailable);
        assert_eq!(class(ureq::Error::Io(io::ErrorKind::ConnectionRefused.into())), Class::Unavailable);
        assert_eq!(class(ureq::Error::Tls("x")), Class::Unavailable);
        assert_eq!(class(ureq::Error::TooManyRedirects), Class::Retry);
        assert_eq!(class(ureq::Error::BadUri("x".into())), Class::Poison);
    }
}
