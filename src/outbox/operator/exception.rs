//! An exception as an operator sees it.

use std::fmt;

use rusqlite::Row;

use crate::outbox::history::{self, HistoryEntry};

/// The state of an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExceptionState {
    /// To be tried again.
    Retry,
    /// Behind an earlier event of its key.
    Waiting,
    /// Given up, holding its key.
    Parked,
    /// Given up, passed over.
    DeadLetter,
    /// Given up by an operator.
    Discarded,
    /// Went well after a failure.
    Done,
}

/// An exception: an event that did not go through a handler at the first try.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExceptionInfo {
    /// The event's log position.
    pub outbox_id: i64,
    /// The handler's name.
    pub handler: String,
    /// The event's type; `None` when the log no longer holds the event.
    pub event_type: Option<String>,
    /// The event's key.
    pub key: Option<String>,
    /// Where it stands.
    pub state: ExceptionState,
    /// Failed calls since the last replay.
    pub attempts: u32,
    /// Deaths of the process while it ran alone.
    pub crashes: u32,
    /// How often it was replayed.
    pub replays: u32,
    /// Next try, milliseconds since the Unix epoch.
    pub next_attempt_at: Option<i64>,
    /// A later event of its key that is done.
    pub superseded_by: Option<i64>,
    /// The last failure in the handler's words.
    pub reason: Option<String>,
    /// What happened to it, oldest first (the newest 20 entries).
    pub history: Vec<HistoryEntry>,
    /// An operator replaced its payload; [`EventStory::edited`](super::EventStory::edited) holds the new one.
    pub edited: bool,
    /// When it became an exception, milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub updated_at: i64,
}

/// Decodes a row of the columns `exception_columns!` in `sql`. Text that is not UTF-8 is shown as far as it goes.
pub(super) fn exception_info(row: &Row<'_>) -> rusqlite::Result<ExceptionInfo> {
    Ok(ExceptionInfo {
        outbox_id: row.get(0)?,
        handler: lossy(row, 1)?.unwrap_or_default(),
        key: lossy(row, 2)?,
        state: state_of(row, 3)?,
        attempts: count(row, 4)?,
        crashes: count(row, 5)?,
        replays: count(row, 6)?,
        next_attempt_at: row.get(7)?,
        superseded_by: row.get(8)?,
        reason: lossy(row, 9)?,
        history: history::parse(&lossy(row, 10)?.unwrap_or_default()),
        created_at: row.get(11)?,
        updated_at: row.get(12)?,
        edited: row.get(13)?,
        event_type: lossy(row, 14)?,
    })
}

pub(super) fn state_of(row: &Row<'_>, index: usize) -> rusqlite::Result<ExceptionState> {
    Ok(ExceptionState::parse(row.get_ref(index)?.as_str().unwrap_or_default()))
}

/// A text column, whatever bytes a foreign hand put there.
pub(in crate::outbox) fn lossy(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<String>> {
    let bytes = row.get_ref(index)?.as_bytes_or_null()?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
}

/// A count, whatever number a foreign hand put there.
pub(in crate::outbox) fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(row.get::<_, i64>(index)?.max(0)).unwrap_or(u32::MAX))
}

impl ExceptionState {
    /// Every state, in the order in which an operator cares.
    pub const ALL: [Self; 6] =
        [Self::DeadLetter, Self::Parked, Self::Retry, Self::Waiting, Self::Discarded, Self::Done];

    /// What still wants somebody's eye: all but what was discarded or done.
    pub const UNDONE: [Self; 4] = [Self::DeadLetter, Self::Parked, Self::Retry, Self::Waiting];

    /// The word for it in the database and on the command line.
    pub fn stored(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::DeadLetter => "dead_letter",
            Self::Discarded => "discarded",
            Self::Done => "done",
        }
    }

    pub(super) fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|state| state.stored() == word).unwrap_or(Self::Done)
    }
}

impl fmt::Display for ExceptionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stored())
    }
}

impl std::str::FromStr for ExceptionState {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.stored() == word).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|state| state.stored()).collect();
            format!("no such state: {word}; known are {}", known.join(", "))
        })
    }
}
