//! What a ledger reports besides its outcomes.

use std::fmt;

use crate::outbox::DispatchError;
use crate::outbox::MAX_REPLAYS;
use crate::storage::{ReadError, TransactError};

/// Why the ledger has no outcome to report.
#[derive(Debug)]
#[non_exhaustive]
pub enum LedgerError {
    /// `field` is empty, too long or holds a NUL; nothing ran.
    Invalid {
        /// `event_id`, `handler` or `event_key`.
        field: &'static str,
    },
    /// The ledger could not be read; nothing ran.
    Read(ReadError<rusqlite::Error>),
    /// The claim was not written, or nobody knows; nothing ran.
    Claim(TransactError<rusqlite::Error>),
    /// The handler ran, but what became of it is not written. The ledger remembers it and writes it when the event comes
    /// again; a process that dies before then leaves a claim that is taken over, and the handler runs once more.
    NotRecorded(TransactError<rusqlite::Error>),
    /// Another write failed.
    Write(TransactError<rusqlite::Error>),
}

/// Why an entry was not replayed, edited or discarded. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum LedgerActError {
    /// The ledger has no such entry.
    NotFound,
    /// Only a dead letter can be replayed, and nothing that is closed already be edited or discarded.
    WrongState(super::LedgerState),
    /// A later event of its key is done: a replay would bring an old state back. Force it if that is harmless.
    Superseded {
        /// The later event's position.
        by: i64,
    },
    /// It was replayed [`MAX_REPLAYS`] times. Mend the cause, then force it.
    TooOften,
    /// It runs at this moment, or its process has died and nobody has claimed it since: only when that call is over it can be
    /// edited.
    Running,
    /// The ledger holds no event that could be edited: it was never stored, or is none.
    NoEvent,
    /// The new payload is too large or no JSON.
    Payload(String),
    /// The write failed.
    Sqlite(rusqlite::Error),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field } => write!(f, "{field} is empty, too long or holds a NUL character; nothing ran"),
            Self::Read(error) => write!(f, "the ledger could not be read, so nothing ran: {error}"),
            Self::Claim(error) => write!(f, "the ledger's claim was not written, so nothing ran: {error}"),
            Self::NotRecorded(error) => {
                write!(f, "the handler ran, but its outcome is not written yet; deliver the event again: {error}")
            }
            Self::Write(error) => write!(f, "the ledger could not be written: {error}"),
        }
    }
}

impl std::error::Error for LedgerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid { .. } => None,
            Self::Read(error) => Some(error),
            Self::Claim(error) | Self::NotRecorded(error) | Self::Write(error) => Some(error),
        }
    }
}

/// A ledger that cannot be read or written is an outage; a name that is not valid never will be.
impl From<LedgerError> for DispatchError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Invalid { .. } => Self::poison(error.to_string()),
            other => Self::unavailable(other.to_string()),
        }
    }
}

impl fmt::Display for LedgerActError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the ledger has no entry of that event and handler: list them first"),
            Self::WrongState(state) => write!(
                f,
                "its state is {state}: only a dead letter can be replayed, and only what is open or dead edited or discarded"
            ),
            Self::Superseded { by } => write!(
                f,
                "event {by} of the same key is done since, so a replay would deliver an older state after a newer one; \
                 force it if the handler stands that"
            ),
            Self::TooOften => {
                write!(f, "it was replayed {MAX_REPLAYS} times already: mend the cause, then force it")
            }
            Self::Running => f.write_str("it runs at this moment: edit it once that call is over"),
            Self::NoEvent => f.write_str("the ledger holds no event of it whose payload could be another"),
            Self::Payload(reason) => f.write_str(reason),
            Self::Sqlite(error) => write!(f, "it could not be written: {error}"),
        }
    }
}

impl std::error::Error for LedgerActError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for LedgerActError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}
