//! What SQLite reported, in a form that can answer a whole group of callers.

use std::error::Error;
use std::fmt;

use rusqlite::{ErrorCode, ffi};

/// A database fault as SQLite named it. Cloneable, since one fault may answer a whole group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// Primary result code.
    pub code: ErrorCode,
    /// Extended result code.
    pub extended: i32,
    /// SQLite's words.
    pub message: String,
}

impl Fault {
    /// The disk, the quota or `max_page_count` is used up.
    pub fn is_full(&self) -> bool {
        self.code == ErrorCode::DiskFull
    }

    /// Another connection held the lock for too long.
    pub fn is_busy(&self) -> bool {
        matches!(self.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    }

    /// Reading, writing or syncing failed in the operating system.
    pub fn is_io(&self) -> bool {
        self.code == ErrorCode::SystemIoFailure
    }

    /// The file is damaged or is no database.
    pub fn is_corrupt(&self) -> bool {
        matches!(self.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    }

    /// Worth another try later: busy, full, out of memory or I/O.
    pub fn is_transient(&self) -> bool {
        self.is_busy() || self.is_full() || self.is_io() || self.code == ErrorCode::OutOfMemory
    }

    /// A fault of the database as a whole, which SQLite may answer by rolling the transaction back.
    pub(crate) fn is_of_the_database(&self) -> bool {
        self.is_full() || self.is_io() || self.is_corrupt() || self.code == ErrorCode::OutOfMemory
    }

    /// The first SQLite error among `error` and its sources.
    pub(crate) fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        /// Longer chains are cut: a chain may be endless by mistake.
        const LINKS_MAX: usize = 16;
        let mut link = Some(error);
        for _ in 0..LINKS_MAX {
            let error = link?;
            if let Some(error) = error.downcast_ref::<rusqlite::Error>()
                && let Some(fault) = Self::of(error)
            {
                return Some(fault);
            }
            if let Some(error) = error.downcast_ref::<ffi::Error>() {
                return Some(Self { code: error.code, extended: error.extended_code, message: error.to_string() });
            }
            link = error.source();
        }
        None
    }

    fn of(error: &rusqlite::Error) -> Option<Self> {
        let code = match error {
            rusqlite::Error::SqliteFailure(code, _) => code,
            rusqlite::Error::SqlInputError { error, .. } => error,
            _ => return None,
        };
        Some(Self { code: code.code, extended: code.extended_code, message: error.to_string() })
    }

    fn advice(&self) -> &'static str {
        match self.code {
            ErrorCode::DiskFull => "free disk space; writing works again by itself then",
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                "another connection holds the lock; try again when it is done"
            }
            ErrorCode::SystemIoFailure => "check the disk and its file system, then try again",
            ErrorCode::DatabaseCorrupt => "restore the file from a backup",
            ErrorCode::NotADatabase => "check the path: the file is not an SQLite database",
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly => {
                "check that the directory exists and that file and directory are writable"
            }
            ErrorCode::OutOfMemory => "free memory, then try again",
            _ => "see SQLite's documentation of the result code",
        }
    }
}

impl From<&rusqlite::Error> for Fault {
    fn from(error: &rusqlite::Error) -> Self {
        Self::of(error).unwrap_or_else(|| Self {
            code: ErrorCode::Unknown,
            extended: ffi::SQLITE_ERROR,
            message: error.to_string(),
        })
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::from(&error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLite code {}): {}", self.message, self.extended, self.advice())
    }
}

impl Error for Fault {}
