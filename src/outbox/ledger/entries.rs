//! What an operator sees of the ledger and does to it, and what the ledger itself brings again.

use std::collections::BTreeSet;
use std::fmt;

use rusqlite::{OptionalExtension, Row, Transaction};

use super::place::LedgerPlace;
use super::stored::{RawText, StoredEvent};
use super::{Ledger, LedgerActError, LedgerError, sql};
use crate::outbox::operator::{count, lossy};
use crate::outbox::policy::millis;
use crate::outbox::{Event, HistoryEntry, history};
use crate::outbox::{MAX_PAGE, MAX_REPLAYS};
use crate::storage::TransactError;

/// Where an entry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerState {
    /// Claimed: a handler runs, or its process died.
    InProgress,
    /// To be run again.
    Retry,
    /// Done.
    Done,
    /// Given up by the policy.
    DeadLetter,
    /// Given up by an operator.
    Discarded,
}

/// One event with one handler, as the ledger holds it. Times are milliseconds since the Unix epoch. Text that is not UTF-8 is
/// shown as far as it goes, and a count beyond its range as the nearest one in it: no row hides the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerEntry {
    /// The event's identity.
    pub event_id: String,
    /// The handler's name.
    pub handler: String,
    /// Where it stands.
    pub state: LedgerState,
    /// Who claimed it.
    pub owner: Option<String>,
    /// Since when it is claimed.
    pub started_at: Option<i64>,
    /// Failed calls since the last replay.
    pub attempts: u32,
    /// Claims whose owner died or went silent.
    pub crashes: u32,
    /// How often it was replayed.
    pub replays: u32,
    /// When it is due.
    pub next_attempt_at: Option<i64>,
    /// When it was closed.
    pub processed_at: Option<i64>,
    /// The event's key.
    pub key: Option<String>,
    /// The event's place in the order of its key.
    pub position: Option<i64>,
    /// The event; `None` once it is done, when it was never stored, or when what is stored is no event.
    pub event: Option<Event>,
    /// The position of a later event of its key that is done.
    pub superseded_by: Option<i64>,
    /// The last failure in the handler's words.
    pub reason: Option<String>,
    /// What happened to it, oldest first (the newest 20 entries).
    pub history: Vec<HistoryEntry>,
    /// When it was first claimed.
    pub created_at: i64,
    /// When it last changed.
    pub updated_at: i64,
    /// Its place in the list, for the next page.
    pub place: LedgerPlace,
}

/// Which entries to list. Done ones are not listed, only shown by [`Ledger::show`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerQuery {
    /// In this state; dead letters by default.
    pub state: LedgerState,
    /// Of this handler only.
    pub handler: Option<String>,
    /// Only those after this [`place`](LedgerEntry::place): the last row of the page before.
    pub after: Option<LedgerPlace>,
    /// At most this many, up to [`MAX_PAGE`]; 50 by default.
    pub limit: usize,
}

impl Default for LedgerQuery {
    fn default() -> Self {
        Self { state: LedgerState::DeadLetter, handler: None, after: None, limit: 50 }
    }
}

impl Ledger {
    /// One page of entries, by handler and event id.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn entries(&self, query: &LedgerQuery) -> Result<Vec<LedgerEntry>, LedgerError> {
        let limit = page(query.limit);
        let state = query.state.stored();
        let LedgerPlace { handler: after_handler, event_id: after_id } = query.after.clone().unwrap_or_default();
        let read = self.inner.database.read(|connection| match &query.handler {
            Some(handler) => {
                let after = if after_handler.is(handler) { after_id } else { RawText::default() };
                let mut statement = connection.prepare_cached(sql::LIST_OF_HANDLER)?;
                statement.query_map((state, handler, after, limit), entry)?.collect()
            }
            None => {
                let mut statement = connection.prepare_cached(sql::LIST_ALL)?;
                statement.query_map((state, after_handler, after_id, limit), entry)?.collect()
            }
        });
        read.map_err(LedgerError::Read)
    }

    /// The handlers of which something is open or was given up, and those of the 10,000 entries that were closed last, in
    /// order. One that was told of nothing yet is not among them: a ledger keeps no list of handlers.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn handlers(&self) -> Result<Vec<String>, LedgerError> {
        const CLOSED: i64 = 10_000;
        let read = self.inner.database.read(|connection| {
            let mut names = BTreeSet::new();
            for state in LedgerState::LISTED {
                let mut last = RawText::default();
                let mut next = connection.prepare_cached(sql::NEXT_HANDLER)?;
                while names.len() < MAX_PAGE
                    && let Some(name) =
                        next.query_row((state.stored(), &last), |row| row.get::<_, RawText>(0)).optional()?
                {
                    names.insert(name.clone());
                    last = name;
                }
            }
            let mut closed = connection.prepare_cached(sql::LAST_CLOSED)?;
            for name in closed.query_map([CLOSED], |row| row.get::<_, RawText>(0))? {
                names.insert(name?);
            }
            Ok(names.iter().map(|name| String::from_utf8_lossy(name.bytes()).into_owned()).collect())
        });
        read.map_err(LedgerError::Read)
    }

    /// An event's entries, one per handler (at most [`MAX_PAGE`]).
    ///
    /// # Errors
    /// As the read reports it.
    pub fn show(&self, event_id: &str) -> Result<Vec<LedgerEntry>, LedgerError> {
        let read = self.inner.database.read(|connection| {
            let mut statement = connection.prepare_cached(sql::ENTRIES_OF_EVENT)?;
            statement.query_map((event_id, page(MAX_PAGE)), entry)?.collect()
        });
        read.map_err(LedgerError::Read)
    }

    /// Events that no broker will bring again, in the order in which they are due: replayed ones, and those whose delivery
    /// or claim is overdue by more than a lease. Give each to [`run_event`](Self::run_event). At most `limit`.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn due(&self, handler: &str, limit: usize) -> Result<Vec<Event>, LedgerError> {
        let limit = page(limit);
        let now = self.now();
        let long_ago = now.saturating_sub(millis(self.inner.options.lease));
        let beyond = now.saturating_add(millis(self.inner.options.policy.longest_wait()));
        let read = self.inner.database.read(|connection| {
            let mut due: Vec<Option<Event>> = connection
                .prepare_cached(sql::DUE)?
                .query_map((handler, now, long_ago, limit), stored_event)?
                .collect::<rusqlite::Result<_>>()?;
            for (text, time) in [(sql::STRANDED, beyond), (sql::ABANDONED, long_ago)] {
                let mut statement = connection.prepare_cached(text)?;
                for event in statement.query_map((handler, time, limit), stored_event)? {
                    due.push(event?);
                }
            }
            Ok::<_, rusqlite::Error>(due)
        });
        let mut due: Vec<Event> = read.map_err(LedgerError::Read)?.into_iter().flatten().collect();
        due.truncate(usize::try_from(limit).unwrap_or(MAX_PAGE));
        Ok(due)
    }

    /// The earlier event of its key that `event` has to wait for, if it was stored: to be given to
    /// [`run_event`](Self::run_event) by a consumer that the broker will not bring it to again.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn earlier_open(&self, event: &Event, handler: &str) -> Result<Option<Event>, LedgerError> {
        let Some(key) = &event.key else { return Ok(None) };
        let read = self.inner.database.read(|connection| {
            let mut statement = connection.prepare_cached(sql::EVENT_BELOW)?;
            statement
                .query_row((handler, key, event.id), |row| match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Null => Ok(None),
                    _ => stored_event(row),
                })
                .optional()
        });
        read.map(Option::flatten).map_err(LedgerError::Read)
    }

    /// Has a dead letter run again, with all its attempts. One that was stored as an event comes from
    /// [`due`](Self::due); another one needs the broker to bring it.
    ///
    /// `force` overrides [`LedgerActError::Superseded`] and [`LedgerActError::TooOften`].
    ///
    /// # Errors
    /// A [`LedgerActError`]; nothing was changed then.
    pub fn replay(&self, event_id: &str, handler: &str, force: bool) -> Result<(), TransactError<LedgerActError>> {
        let (event_id, handler, now) = (event_id.to_owned(), handler.to_owned(), self.now());
        let keep = self.inner.options.policy.max_crashes.saturating_sub(1);
        self.inner.database.writer().transact(move |tx| replay(tx, &event_id, &handler, force, keep, now))
    }

    /// Gives an entry up for good, also while its handler runs: the outcome of that run no longer counts.
    ///
    /// # Errors
    /// A [`LedgerActError`]; nothing was changed then.
    pub fn discard(&self, event_id: &str, handler: &str, reason: &str) -> Result<(), TransactError<LedgerActError>> {
        let (event_id, handler, now) = (event_id.to_owned(), handler.to_owned(), self.now());
        let reason = history::shorten(reason);
        self.inner.database.writer().transact(move |tx| discard(tx, &event_id, &handler, &reason, now))
    }
}

/// An entry as far as an act on it has to know.
pub(super) struct Dead {
    pub(super) state: LedgerState,
    replays: u32,
    pub(super) superseded_by: Option<i64>,
    reason: Option<String>,
    history: String,
    pub(super) event: Option<StoredEvent>,
}

pub(super) fn read_dead(tx: &Transaction<'_>, event_id: &str, handler: &str) -> Result<Dead, LedgerActError> {
    let read = |row: &Row<'_>| {
        Ok(Dead {
            state: LedgerState::from_stored(&lossy(row, 0)?.unwrap_or_default()),
            replays: count(row, 1)?,
            superseded_by: row.get(2)?,
            reason: lossy(row, 3)?,
            history: history::column(row, 4)?,
            event: StoredEvent::read(row, 5)?,
        })
    };
    let found = tx.prepare_cached(sql::READ_DEAD)?.query_row((event_id, handler), read).optional()?;
    found.ok_or(LedgerActError::NotFound)
}

pub(super) fn replay(
    tx: &Transaction<'_>,
    event_id: &str,
    handler: &str,
    force: bool,
    keep: u32,
    now: i64,
) -> Result<(), LedgerActError> {
    let dead = read_dead(tx, event_id, handler)?;
    if dead.state != LedgerState::DeadLetter {
        return Err(LedgerActError::WrongState(dead.state));
    }
    if let Some(by) = dead.superseded_by.filter(|_| !force) {
        return Err(LedgerActError::Superseded { by });
    }
    if dead.replays >= MAX_REPLAYS && !force {
        return Err(LedgerActError::TooOften);
    }
    let why = ("replay", if force { "forced" } else { "" });
    Ok(run_again(tx, (event_id, handler), &dead, why, keep, now)?)
}

/// Makes the entry due with all its attempts; the history says after what act and why.
pub(super) fn run_again(
    tx: &Transaction<'_>,
    (event_id, handler): (&str, &str),
    dead: &Dead,
    (what, reason): (&str, &str),
    keep: u32,
    now: i64,
) -> rusqlite::Result<()> {
    // It killed its process and may do so again: one more death is enough.
    let crashes = if dead.reason.as_deref() == Some("crash_loop") { keep } else { 0 };
    let history = history::append(&dead.history, now, what, reason);
    tx.prepare_cached(sql::REPLAY_ROW)?.execute((event_id, handler, now, crashes, history))?;
    Ok(())
}

pub(super) fn discard(
    tx: &Transaction<'_>,
    event_id: &str,
    handler: &str,
    reason: &str,
    now: i64,
) -> Result<(), LedgerActError> {
    let dead = read_dead(tx, event_id, handler)?;
    if matches!(dead.state, LedgerState::Done | LedgerState::Discarded) {
        return Err(LedgerActError::WrongState(dead.state));
    }
    let history = history::append(&dead.history, now, "discard", reason);
    tx.prepare_cached(sql::DISCARD_ROW)?.execute((event_id, handler, reason, history, now))?;
    Ok(())
}

fn stored_event(row: &Row<'_>) -> rusqlite::Result<Option<Event>> {
    let (attempts, replays) = (count(row, 1)?, count(row, 2)?);
    Ok(StoredEvent::read(row, 0)?.map(|stored| stored.into_event(attempts, replays)))
}

fn entry(row: &Row<'_>) -> rusqlite::Result<LedgerEntry> {
    let (attempts, replays) = (count(row, 5)?, count(row, 7)?);
    Ok(LedgerEntry {
        event_id: lossy(row, 0)?.unwrap_or_default(),
        handler: lossy(row, 1)?.unwrap_or_default(),
        state: LedgerState::from_stored(&lossy(row, 2)?.unwrap_or_default()),
        owner: lossy(row, 3)?,
        started_at: row.get(4)?,
        attempts,
        crashes: count(row, 6)?,
        replays,
        next_attempt_at: row.get(8)?,
        processed_at: row.get(9)?,
        key: lossy(row, 10)?,
        position: row.get(11)?,
        event: StoredEvent::read(row, 12)?.map(|stored| stored.into_event(attempts, replays)),
        superseded_by: row.get(13)?,
        reason: lossy(row, 14)?,
        history: history::parse(&history::column(row, 15)?),
        created_at: row.get(16)?,
        updated_at: row.get(17)?,
        place: LedgerPlace { handler: row.get(1)?, event_id: row.get(0)? },
    })
}

pub(super) fn page(limit: usize) -> i64 {
    i64::try_from(limit.clamp(1, MAX_PAGE)).unwrap_or(i64::MAX)
}

impl LedgerState {
    /// All but done ones have an index of their own.
    const LISTED: [Self; 4] = [Self::InProgress, Self::Retry, Self::DeadLetter, Self::Discarded];

    pub(super) fn stored(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Retry => "retry",
            Self::Done => "done",
            Self::DeadLetter => "dead_letter",
            Self::Discarded => "discarded",
        }
    }

    /// The table's CHECK lets no other word in.
    fn from_stored(text: &str) -> Self {
        match text {
            "in_progress" => Self::InProgress,
            "retry" => Self::Retry,
            "done" => Self::Done,
            "discarded" => Self::Discarded,
            _ => Self::DeadLetter,
        }
    }
}

impl fmt::Display for LedgerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stored())
    }
}
