//! Why an operator's act was refused.

use std::fmt;

use super::operator::{ExceptionState, MAX_REPLAYS};

/// Why a replay was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// The handler has no exception for that event.
    NotFound,
    /// Only a dead letter or a parked event can be replayed.
    NotDead(ExceptionState),
    /// A later event of its key is done, so replaying would bring an old state back. Force it if that is harmless.
    Superseded {
        /// The later event's log position.
        by: i64,
    },
    /// It was replayed [`MAX_REPLAYS`] times already. Mend the cause, then force it.
    TooOften,
    /// The log no longer holds the event.
    EventMissing,
    /// The write failed.
    Sqlite(rusqlite::Error),
}

/// Why a discard was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum DiscardError {
    /// The handler has no exception for that event. One that has not failed cannot be discarded.
    NotFound,
    /// It is closed already: only an open exception or a dead letter can be discarded.
    Closed(ExceptionState),
    /// The write failed.
    Sqlite(rusqlite::Error),
}

/// Why a lane was not held or released.
#[derive(Debug)]
#[non_exhaustive]
pub enum HoldError {
    /// The database knows no handler of that name.
    NotFound,
    /// The write failed.
    Sqlite(rusqlite::Error),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("that handler has no exception for that event: list them first"),
            Self::NotDead(state) => {
                write!(f, "its state is {state}; only a dead letter or a parked event can be replayed")
            }
            Self::Superseded { by } => write!(
                f,
                "event {by} of the same key is done since, so a replay would deliver an older state after a newer one; \
                 force it if the handler stands that"
            ),
            Self::TooOften => {
                write!(f, "it was replayed {MAX_REPLAYS} times already: mend the cause, then force it")
            }
            Self::EventMissing => f.write_str("the log no longer holds the event"),
            Self::Sqlite(error) => write!(f, "the replay could not be written: {error}"),
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for ReplayError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl fmt::Display for DiscardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("that handler has no exception for that event: list them first"),
            Self::Closed(state) => write!(f, "its state is {state}: there is nothing left to discard"),
            Self::Sqlite(error) => write!(f, "the discard could not be written: {error}"),
        }
    }
}

impl std::error::Error for DiscardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for DiscardError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the database knows no handler of that name: list them first"),
            Self::Sqlite(error) => write!(f, "it could not be written: {error}"),
        }
    }
}

impl std::error::Error for HoldError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Sqlite(error) => Some(error),
            Self::NotFound => None,
        }
    }
}

impl From<rusqlite::Error> for HoldError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}
