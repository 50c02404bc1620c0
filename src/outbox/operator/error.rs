//! Why an operator's act was refused.

use std::fmt;

use super::{ExceptionState, MAX_REPLAYS};
use crate::storage::{ReadError, TransactError};

/// Why a replay was refused.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log holds no such event (any more), and the handler has no exception for it.
    NotFound,
    /// The database knows no handler of that name.
    NoHandler,
    /// Only a dead letter or a parked event can be replayed, by force also one that is done.
    NotDead(ExceptionState),
    /// The handler has it behind it without a failure. Force it to have it delivered once more.
    Delivered,
    /// The handler has it still before it: it will be delivered.
    NotYetDelivered,
    /// The handler does not take events of that type.
    NotWanted,
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
    /// No such handler, or no such event.
    NotFound,
    /// The handler has it behind it: it was delivered, or its filter passed it over.
    Delivered,
    /// It is closed already: only an open exception or a dead letter can be discarded.
    Closed(ExceptionState),
    /// The write failed.
    Sqlite(rusqlite::Error),
}

/// Why a payload was not edited.
#[derive(Debug)]
#[non_exhaustive]
pub enum EditError {
    /// The handler has no exception for that event.
    NotFound,
    /// It is closed already: only an open exception or a dead letter can be edited.
    Closed(ExceptionState),
    /// A later event of its key is done, so delivering it would bring an old state back. Force it if that is harmless.
    Superseded {
        /// The later event's log position.
        by: i64,
    },
    /// The payload is too large or no JSON: what is wrong with it.
    Payload(String),
    /// The log no longer holds the event.
    EventMissing,
    /// The write failed.
    Sqlite(rusqlite::Error),
}

/// Why a key was not resumed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ResumeError {
    /// No event of that key is parked at that handler.
    NotParked,
    /// The write failed.
    Sqlite(rusqlite::Error),
}

/// Why a lane was not held or released.
#[derive(Debug)]
#[non_exhaustive]
pub enum HoldError {
    /// The database knows no handler of that name.
    NotFound,
    /// Its owner did not let go in time: a call of the handler still runs. The lane is as it was before.
    StillOwned {
        /// The owning relay, a UUID.
        owner: String,
        /// Its process id, if known.
        pid: Option<u32>,
    },
    /// The database failed.
    Sqlite(rusqlite::Error),
}

/// Why a held lane was not rewound, renamed or retired.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaneError {
    /// The lane is there no more.
    NotFound,
    /// Somebody released it meanwhile.
    NotHeld,
    /// Somebody released it meanwhile, and a relay took it.
    Owned {
        /// The owning relay, a UUID.
        owner: String,
    },
    /// A lane goes back only: to leave events out, discard them.
    NotBehind {
        /// Where it stands.
        cursor: i64,
    },
    /// The log holds no such event (any more).
    NoSuchEvent,
    /// No name for a handler: 1 to 100 letters, digits, `-`, `_`, `.` or `:`.
    InvalidName(String),
    /// Another lane, or open or dead exceptions without one, have that name.
    NameTaken(String),
    /// The handler has a lane: hold it, then retire that.
    HasLane,
    /// The database failed.
    Sqlite(rusqlite::Error),
}

/// Of an act on a held lane.
pub(super) type LaneResult<T> = Result<T, TransactError<LaneError>>;

/// A read that an act begins with failed.
pub(super) fn reading<E: From<rusqlite::Error>>(error: ReadError<rusqlite::Error>) -> TransactError<E> {
    match error {
        ReadError::Read(error) => TransactError::Task(error.into()),
        ReadError::Database(fault) => TransactError::Database(fault),
        ReadError::PoolTimeout | ReadError::TooLong => TransactError::DeadlineExceeded,
        _ => TransactError::Stopped,
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the log holds no such event (any more)"),
            Self::NoHandler => f.write_str("the database knows no handler of that name: list them first"),
            Self::NotDead(ExceptionState::Done) => f.write_str(DELIVERED),
            Self::NotDead(state) => {
                write!(f, "its state is {state}; only a dead letter, a parked or a delivered event can be replayed")
            }
            Self::Delivered => f.write_str(DELIVERED),
            Self::NotYetDelivered => f.write_str("it is not delivered yet: it will be"),
            Self::NotWanted => f.write_str("the handler does not take events of that type"),
            Self::Superseded { by } => superseded(f, *by),
            Self::TooOften => {
                write!(f, "it was replayed {MAX_REPLAYS} times already: mend the cause, then force it")
            }
            Self::EventMissing => f.write_str("the log no longer holds the event"),
            Self::Sqlite(error) => write!(f, "the replay could not be written: {error}"),
        }
    }
}

impl fmt::Display for DiscardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("there is no such handler, or no such event: list them first"),
            Self::Delivered => f.write_str("the handler has it behind it: there is nothing left to discard"),
            Self::Closed(state) => write!(f, "its state is {state}: there is nothing left to discard"),
            Self::Sqlite(error) => write!(f, "the discard could not be written: {error}"),
        }
    }
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str(NO_EXCEPTION),
            Self::Closed(state) => write!(f, "its state is {state}: it is not delivered any more"),
            Self::Superseded { by } => superseded(f, *by),
            Self::Payload(reason) => f.write_str(reason),
            Self::EventMissing => f.write_str("the log no longer holds the event"),
            Self::Sqlite(error) => write!(f, "the payload could not be written: {error}"),
        }
    }
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotParked => f.write_str("no event of that key is parked there: list what is parked first"),
            Self::Sqlite(error) => write!(f, "it could not be written: {error}"),
        }
    }
}

impl fmt::Display for HoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the database knows no handler of that name: list them first"),
            Self::StillOwned { owner, pid } => {
                let pid = pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
                write!(
                    f,
                    "its owner (relay {owner}{pid}) did not let go in time, as a call of the handler still runs: wait \
                     longer, or stop that program"
                )
            }
            Self::Sqlite(error) => write!(f, "the database failed: {error}"),
        }
    }
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("the lane is there no more"),
            Self::NotHeld => f.write_str("somebody released the lane meanwhile: hold it once more"),
            Self::Owned { owner } => {
                write!(f, "somebody released the lane meanwhile, and relay {owner} runs it: hold it once more")
            }
            Self::NotBehind { cursor } => write!(
                f,
                "that is ahead of the lane, which stands at {cursor}; it goes back only: to leave events out, discard them"
            ),
            Self::NoSuchEvent => f.write_str("the log holds no such event (any more)"),
            Self::InvalidName(name) => {
                write!(f, "handler name {name:?} is not allowed: use 1 to 100 letters, digits, '-', '_', '.' or ':'")
            }
            Self::NameTaken(name) => {
                write!(f, "a lane, or open or dead exceptions, named {name:?} are there already: retire it first")
            }
            Self::HasLane => f.write_str("the handler has a lane: hold it and retire that"),
            Self::Sqlite(error) => write!(f, "the database failed: {error}"),
        }
    }
}

const DELIVERED: &str = "the handler has it behind it: force it to have it delivered once more";
const NO_EXCEPTION: &str = "that handler has no exception for that event: list them first";

fn superseded(f: &mut fmt::Formatter<'_>, by: i64) -> fmt::Result {
    write!(
        f,
        "event {by} of the same key is done since, so it would deliver an older state after a newer one; force it if \
         the handler stands that"
    )
}

/// What all of them have in common: a cause below may be SQLite's.
macro_rules! caused_by_sqlite {
    ($($error:ident),*) => {$(
        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                match self {
                    Self::Sqlite(error) => Some(error),
                    _ => None,
                }
            }
        }

        impl From<rusqlite::Error> for $error {
            fn from(error: rusqlite::Error) -> Self {
                Self::Sqlite(error)
            }
        }
    )*};
}

caused_by_sqlite!(ReplayError, DiscardError, EditError, ResumeError, HoldError, LaneError);
