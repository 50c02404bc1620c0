//! One error type per operation: opening, reading, writing.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

use super::Fault;
use crate::lifecycle::Interrupted;

/// Why a database could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The path names no file of its own: it is empty, `:memory:`, a `file:` URI, or not usable as text.
    Path {
        /// What was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A setting is out of its range.
    Options(&'static str),
    /// The linked SQLite can damage a database in WAL mode.
    SqliteTooOld {
        /// The version that is linked.
        found: &'static str,
    },
    /// A setting was not taken over by SQLite: it reads back differently.
    Setting {
        /// The pragma.
        pragma: &'static str,
        /// What was asked for.
        wanted: String,
        /// What it reads back as.
        found: String,
    },
    /// A component's tables were written by a newer program.
    Newer {
        /// The component.
        component: String,
        /// The version in the database.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// A migration failed and was rolled back.
    Migration {
        /// The component.
        component: String,
        /// The version the migration leads to.
        version: i64,
        /// What SQLite said.
        fault: Fault,
    },
    /// Two components of one name, a name without letters, or one that is used by this crate.
    Component {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Another process held the lock for longer than the start waits (5 tries, 100 ms to 1 s apart).
    Busy {
        /// What was to be done.
        what: String,
    },
    /// The pool's connections could not be made within 5 s.
    Pool(String),
    /// The queue-writer's thread could not be started.
    Thread(std::io::Error),
    /// The queue-writer was started before the storage.
    NotOpen,
    /// It is running already.
    AlreadyStarted,
    /// It was stopped; a stopped database is not started again.
    Stopped,
    /// The start was given up while it waited for a lock, because the program is stopping.
    Interrupted,
    /// SQLite failed.
    Sqlite(Fault),
}

impl OpenError {
    /// As an answer to a caller whose task met a database that cannot be opened again.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Self::Sqlite(fault) | Self::Migration { fault, .. } => fault,
            other => Fault {
                code: rusqlite::ErrorCode::CannotOpen,
                extended: rusqlite::ffi::SQLITE_CANTOPEN,
                message: other.to_string(),
            },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path { path, reason } => {
                write!(f, "cannot open {}: {reason}; give the path of a database file", path.display())
            }
            Self::Options(reason) => write!(f, "cannot open the database with these options: {reason}"),
            Self::SqliteTooOld { found } => write!(
                f,
                "the linked SQLite {found} can damage databases in WAL mode; link 3.51.3 or newer (feature `bundled`)"
            ),
            Self::Setting { pragma, wanted, found } => write!(
                f,
                "SQLite did not take {pragma} = {wanted} (it reads back as {found}); is the file on a local disk and \
                 not open elsewhere in another mode?"
            ),
            Self::Newer { component, found, known } => write!(
                f,
                "the tables of `{component}` have version {found}, this program knows up to {known}; \
                 run a newer version of it"
            ),
            Self::Migration { component, version, fault } => {
                write!(f, "migration of `{component}` to version {version} failed and was rolled back: {fault}")
            }
            Self::Component { name, reason } => write!(f, "component `{name}`: {reason}"),
            Self::Busy { what } => write!(
                f,
                "another process held the database's lock while this one wanted to {what}; try again when it is done"
            ),
            Self::Pool(reason) => write!(f, "the read connections could not be opened: {reason}"),
            Self::Thread(error) => error.fmt(f),
            Self::NotOpen => f.write_str("the database is not open: start the service `storage` first"),
            Self::AlreadyStarted => f.write_str("it is running already"),
            Self::Stopped => f.write_str("it was stopped and is not started again: make a new `Database`"),
            Self::Interrupted => Interrupted.fmt(f),
            Self::Sqlite(fault) => write!(f, "cannot open the database: {fault}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Migration { fault, .. } | Self::Sqlite(fault) => Some(fault),
            Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Fault::from(error))
    }
}

/// Why a read failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError<E> {
    /// The closure returned this.
    Read(E),
    /// No pooled connection became free in time.
    PoolTimeout,
    /// `read` within `read` on one thread.
    Nested,
    /// Not open (any more).
    Closed,
    /// The snapshot was held longer than the limit and was interrupted.
    TooLong,
    /// SQLite failed to begin the snapshot.
    Database(Fault),
}

impl<E: fmt::Display> fmt::Display for ReadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::PoolTimeout => f.write_str("no read connection became free in time: try again later"),
            Self::Nested => f.write_str("a read inside a read: use the connection the outer read was given"),
            Self::Closed => f.write_str("the database is not open"),
            Self::TooLong => f.write_str("the read took longer than allowed and was interrupted: read less at once"),
            Self::Database(fault) => write!(f, "the read could not begin: {fault}"),
        }
    }
}

impl<E: Error + 'static> Error for ReadError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            Self::Database(fault) => Some(fault),
            _ => None,
        }
    }
}

/// Why a task was not applied (or not known to be).
#[derive(Debug)]
#[non_exhaustive]
pub enum TransactError<E> {
    /// The task returned this; nothing of it was written.
    Task(E),
    /// The task panicked with this text; nothing of it was written.
    Panicked(String),
    /// The task ended the transaction, ran DDL or the like; nothing of it was written.
    Refused(String),
    /// The task alone carries more than may wait in all: split it. Nothing was written.
    TooLarge {
        /// What the task carries.
        bytes: usize,
        /// What may wait.
        limit: usize,
    },
    /// Too much is waiting: try later. Nothing was written.
    Saturated {
        /// Jobs waiting.
        jobs: usize,
        /// Bytes waiting.
        bytes: usize,
    },
    /// The queue-writer does not run (not started, stopped, stopping): nothing was written.
    Stopped,
    /// The deadline passed before the task was taken: nothing was written.
    DeadlineExceeded,
    /// The database failed (full, I/O, busy): nothing was written; try again when the cause is gone.
    Database(Fault),
    /// The database failed at COMMIT, or the writer died: it may or may not have been written.
    OutcomeUnknown(String),
    /// `transact` was called on the queue-writer's own thread.
    WouldDeadlock,
}

impl<E: fmt::Display> fmt::Display for TransactError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(error) => error.fmt(f),
            Self::Panicked(text) => write!(f, "the task panicked, nothing was written: {text}"),
            Self::Refused(text) => write!(f, "the task was refused, nothing was written: {text}"),
            Self::TooLarge { bytes, limit } => {
                write!(f, "the task carries {bytes} bytes, at most {limit} may wait: split it")
            }
            Self::Saturated { jobs, bytes } => {
                write!(f, "too much is waiting to be written ({jobs} jobs, {bytes} bytes): try again later")
            }
            Self::Stopped => f.write_str("the queue-writer does not run, nothing was written"),
            Self::DeadlineExceeded => f.write_str("the deadline passed before the task was taken, nothing was written"),
            Self::Database(fault) => write!(f, "the database failed, nothing was written: {fault}"),
            Self::OutcomeUnknown(text) => {
                write!(f, "it is not known whether it was written ({text}): look before trying again")
            }
            Self::WouldDeadlock => {
                f.write_str("a task waited for another task of the same queue-writer: use the transaction it was given")
            }
        }
    }
}

impl<E: Error + 'static> Error for TransactError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Task(error) => Some(error),
            Self::Database(fault) => Some(fault),
            _ => None,
        }
    }
}
