//! What an operator sees and does: lanes, exceptions, an event's story; replay, discard, hold and release.
//!
//! Every act works on the database alone, so it may come from any process, while the lanes run or not.

use std::fmt;

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::flush::make_next_due;
use super::history::{self, HistoryEntry};
use super::log::{self, Body};
use super::operator_error::{DiscardError, HoldError, ReplayError};
use super::owner::{self, OwnerState};
use super::{Event, sql};
use crate::storage::{Database, ReadError, TransactError};

/// Replays of one exception before only force works on it.
pub const MAX_REPLAYS: u32 = 3;
/// Most rows in one page of [`Operator::exceptions`].
pub const MAX_PAGE: usize = 1_000;
/// How many of the newest events are looked at for types that no lane delivers.
const TYPES_LOOK_BACK: i64 = 10_000;

/// The operator's view of a database's outbox. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Operator {
    database: Database,
}

/// A lane as the database holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneInfo {
    /// The handler's name.
    pub handler: String,
    /// Patterns of the event types it delivers; `["*"]` means all.
    pub event_types: Vec<String>,
    /// `continue` or `park_key`.
    pub on_dead_letter: String,
    /// Held by an operator.
    pub held: bool,
    /// Every event up to this log position has an outcome.
    pub cursor: i64,
    /// Events after the cursor, whatever their type. Counted up to 100,000; that number means "at least".
    pub lag_events: u64,
    /// Age of the oldest event after the cursor, milliseconds; 0 without lag.
    pub lag_ms: i64,
    /// Age of the oldest event with an open exception (retry, waiting or parked), milliseconds; 0 without one.
    pub open_ms: i64,
    /// The owning relay, a UUID; `None` when nobody runs it.
    pub owner: Option<String>,
    /// Whether the owner lives, as its lock file beside the database tells now.
    pub owner_state: OwnerState,
    /// The owner's process id, if its file names one. Of a dead owner it may belong to another process by now.
    pub owner_pid: Option<u32>,
    /// Since when, milliseconds since the Unix epoch.
    pub owned_since: Option<i64>,
    /// The lane's transport is down and it tries again then, milliseconds since the Unix epoch.
    pub paused_until: Option<i64>,
    /// What the handler said.
    pub pause_reason: Option<String>,
    /// Since when its transport is down, milliseconds since the Unix epoch.
    pub outage_since: Option<i64>,
    /// Exceptions by state.
    pub exceptions: ExceptionCounts,
}

/// Exceptions of one lane by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExceptionCounts {
    /// To be tried again.
    pub retry: u64,
    /// Behind an earlier event of their key.
    pub waiting: u64,
    /// Given up, holding their key.
    pub parked: u64,
    /// Given up, passed over.
    pub dead_letter: u64,
    /// Given up by an operator.
    pub discarded: u64,
    /// Went well after a failure.
    pub done: u64,
}

/// All lanes, and what no lane delivers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxStats {
    /// The newest log position; 0 when nothing was ever inserted.
    pub last_id: i64,
    /// One entry per lane, by name.
    pub lanes: Vec<LaneInfo>,
    /// Types among the newest 10,000 events that no lane delivers, with how many events of each.
    pub types_without_lane: Vec<(String, u64)>,
}

/// The state of an exception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub updated_at: i64,
}

/// Which exceptions to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExceptionQuery {
    /// In this state; dead letters by default.
    pub state: ExceptionState,
    /// Of this handler only.
    pub handler: Option<String>,
    /// Only those after this handler and log position: the last row of the page before.
    pub after: Option<(String, i64)>,
    /// At most this many, up to [`MAX_PAGE`]; 50 by default.
    pub limit: usize,
}

impl Default for ExceptionQuery {
    fn default() -> Self {
        Self { state: ExceptionState::DeadLetter, handler: None, after: None, limit: 50 }
    }
}

/// An event and where it stands with every lane.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventStory {
    /// The event; `None` when retention has removed it or it cannot be decoded (then `undecodable` says why).
    pub event: Option<Event>,
    /// Why the event cannot be decoded.
    pub undecodable: Option<String>,
    /// Per lane: its name, and `pending`, `delivered` (or passed over by the filter) or the exception's state.
    pub lanes: Vec<(String, String)>,
    /// The exceptions, one per handler at most.
    pub exceptions: Vec<ExceptionInfo>,
}

impl Operator {
    /// The operator's view of `database`.
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }

    /// All lanes with their lag and exceptions, and the types nobody delivers.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn stats(&self) -> Result<OutboxStats, ReadError<rusqlite::Error>> {
        let now = self.database.clock().now_ms();
        let mut stats = self.database.read(|connection| {
            let lanes = read_lanes(connection, now)?;
            Ok(OutboxStats {
                last_id: connection.prepare_cached(sql::LAST_ID)?.query_row([], |row| row.get(0))?,
                types_without_lane: types_without_lane(connection, &lanes)?,
                lanes,
            })
        })?;
        self.look_at_owners(&mut stats.lanes);
        Ok(stats)
    }

    /// All lanes with their lag and exceptions: [`stats`](Self::stats) without the look over the newest events.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn lanes(&self) -> Result<Vec<LaneInfo>, ReadError<rusqlite::Error>> {
        let now = self.database.clock().now_ms();
        let mut lanes = self.database.read(|connection| read_lanes(connection, now))?;
        self.look_at_owners(&mut lanes);
        Ok(lanes)
    }

    fn look_at_owners(&self, lanes: &mut [LaneInfo]) {
        let Some(path) = self.database.canonical_path() else { return };
        for lane in lanes {
            let Some(owner) = &lane.owner else { continue };
            (lane.owner_state, lane.owner_pid) = owner::look(&path, owner);
        }
    }

    /// One page of exceptions, by handler and log position.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn exceptions(&self, query: &ExceptionQuery) -> Result<Vec<ExceptionInfo>, ReadError<rusqlite::Error>> {
        let limit = i64::try_from(query.limit.clamp(1, MAX_PAGE)).unwrap_or(i64::MAX);
        let (after_handler, after_id) = query.after.clone().unwrap_or_default();
        let state = query.state.stored();
        self.database.read(|connection| {
            let mut statement;
            let rows = match &query.handler {
                Some(handler) => {
                    let after = if after_handler == *handler { after_id } else { i64::MIN };
                    statement = connection.prepare_cached(sql::LIST_OF_HANDLER)?;
                    statement.query_map((state, handler, after, limit), exception_info)?
                }
                None => {
                    statement = connection.prepare_cached(sql::LIST_ALL)?;
                    statement.query_map((state, after_handler, after_id, limit), exception_info)?
                }
            };
            rows.collect()
        })
    }

    /// An event by its log position (`"42"`) or its event id, and where it stands; `None` when neither the log nor an
    /// exception knows it.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn show(&self, event: &str) -> Result<Option<EventStory>, ReadError<rusqlite::Error>> {
        self.database.read(|connection| {
            let id = match event.parse::<i64>() {
                Ok(id) => Some(id),
                Err(_) => {
                    connection.prepare_cached(sql::ID_OF_EVENT)?.query_row([event], |row| row.get(0)).optional()?
                }
            };
            let Some(id) = id else { return Ok(None) };
            story(connection, id)
        })
    }

    /// Events that share a correlation id, oldest first, at most `limit`.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn trace(&self, correlation_id: &str, limit: usize) -> Result<Vec<Event>, ReadError<rusqlite::Error>> {
        let limit = i64::try_from(limit.min(MAX_PAGE)).unwrap_or(i64::MAX);
        self.database.read(|connection| {
            let ids: Vec<i64> = connection
                .prepare_cached(sql::TRACE)?
                .query_map((correlation_id, limit), |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            let mut events = Vec::with_capacity(ids.len());
            for id in ids {
                if let Body::Event(event) = log::read_event(connection, id)? {
                    events.push(event);
                }
            }
            Ok(events)
        })
    }

    /// Has a dead letter or parked event delivered again, with all its attempts. Later events of its key wait for it.
    ///
    /// `force` overrides [`ReplayError::Superseded`] and [`ReplayError::TooOften`].
    ///
    /// # Errors
    /// A [`ReplayError`]; nothing was changed then.
    pub fn replay(&self, outbox_id: i64, handler: &str, force: bool) -> Result<(), TransactError<ReplayError>> {
        let handler = handler.to_owned();
        let now = self.database.clock().now_ms();
        self.database.writer().transact(move |tx| replay(tx, outbox_id, &handler, force, now))
    }

    /// Replays every dead letter (of one handler, if named) that may be replayed without force, in order; returns how
    /// many were replayed and how many were left.
    ///
    /// # Errors
    /// As the database reports them; what was replayed stays replayed.
    pub fn replay_all(&self, handler: Option<&str>) -> Result<(u64, u64), TransactError<ReplayError>> {
        let mut query = ExceptionQuery { handler: handler.map(str::to_owned), limit: 200, ..Default::default() };
        let (mut replayed, mut left) = (0, 0);
        loop {
            let page = self.exceptions(&query).map_err(|error| match error {
                ReadError::Read(error) => TransactError::Task(ReplayError::Sqlite(error)),
                ReadError::Database(fault) => TransactError::Database(fault),
                _ => TransactError::Stopped,
            })?;
            let Some(last) = page.last() else { return Ok((replayed, left)) };
            query.after = Some((last.handler.clone(), last.outbox_id));
            for exception in page {
                match self.replay(exception.outbox_id, &exception.handler, false) {
                    Ok(()) => replayed += 1,
                    Err(TransactError::Task(ReplayError::Sqlite(error))) => {
                        return Err(TransactError::Task(ReplayError::Sqlite(error)));
                    }
                    Err(TransactError::Task(_)) => left += 1,
                    Err(other) => return Err(other),
                }
            }
        }
    }

    /// Gives an exception up for good: whatever is open (also if it runs at this moment: its outcome no longer counts),
    /// or a dead letter. The next event of its key is due at once. `reason` goes into its history.
    ///
    /// # Errors
    /// A [`DiscardError`]; nothing was changed then.
    pub fn discard(
        &self,
        outbox_id: i64,
        handler: &str,
        reason: impl Into<String>,
    ) -> Result<(), TransactError<DiscardError>> {
        let (handler, reason) = (handler.to_owned(), reason.into());
        let now = self.database.clock().now_ms();
        self.database.writer().transact(move |tx| discard(tx, outbox_id, &handler, &reason, now))
    }

    /// Has the lane's owner finish its running call, write what it knows and let go; nobody delivers for this handler
    /// until it is [released](Self::release). Its events stay in the log meanwhile. A held lane stays held.
    ///
    /// # Errors
    /// A [`HoldError`]; nothing was changed then.
    pub fn hold(&self, handler: &str) -> Result<(), TransactError<HoldError>> {
        self.set_held(handler, true)
    }

    /// Ends a hold: a relay with that handler goes on. A lane that is not held stays as it is.
    ///
    /// # Errors
    /// A [`HoldError`]; nothing was changed then.
    pub fn release(&self, handler: &str) -> Result<(), TransactError<HoldError>> {
        self.set_held(handler, false)
    }

    fn set_held(&self, handler: &str, held: bool) -> Result<(), TransactError<HoldError>> {
        let handler = handler.to_owned();
        self.database.writer().transact(move |tx| {
            let found = tx.prepare_cached(sql::SET_HELD)?.execute((&handler, held))?;
            if found == 0 { Err(HoldError::NotFound) } else { Ok(()) }
        })
    }
}

fn discard(tx: &Transaction<'_>, id: i64, handler: &str, reason: &str, now: i64) -> Result<(), DiscardError> {
    let row = tx.prepare_cached(sql::READ_EXCEPTION)?.query_row((id, handler), exception_info).optional()?;
    let Some(row) = row else { return Err(DiscardError::NotFound) };
    if matches!(row.state, ExceptionState::Discarded | ExceptionState::Done) {
        return Err(DiscardError::Closed(row.state));
    }
    let history: String = tx.prepare_cached(sql::READ_HISTORY)?.query_row((id, handler), |row| row.get(0))?;
    let history = history::append(&history, now, "discard", reason);
    tx.prepare_cached(sql::DISCARD_ROW)?.execute((id, handler, history::shorten(reason), history, now))?;
    if let Some(key) = &row.key {
        make_next_due(tx, handler, key, now)?;
    }
    Ok(())
}

fn replay(tx: &Transaction<'_>, id: i64, handler: &str, force: bool, now: i64) -> Result<(), ReplayError> {
    let row = tx.prepare_cached(sql::READ_EXCEPTION)?.query_row((id, handler), exception_info).optional()?;
    let Some(row) = row else { return Err(ReplayError::NotFound) };
    if !matches!(row.state, ExceptionState::DeadLetter | ExceptionState::Parked) {
        return Err(ReplayError::NotDead(row.state));
    }
    if !force {
        if let Some(by) = row.superseded_by {
            return Err(ReplayError::Superseded { by });
        }
        if row.replays >= MAX_REPLAYS {
            return Err(ReplayError::TooOften);
        }
    }
    if matches!(log::read_event(tx, id)?, Body::Missing) {
        return Err(ReplayError::EventMissing);
    }
    // A crash loop keeps two of its three crashes: one more condemns it again.
    let crashes = if row.crashes > 0 { 2 } else { 0 };
    let history: String = tx.prepare_cached(sql::READ_HISTORY)?.query_row((id, handler), |row| row.get(0))?;
    let history = history::append(&history, now, if force { "forced replay" } else { "replay" }, "by an operator");
    if let Some(key) = &row.key {
        tx.prepare_cached(sql::OPEN_ROWS_WAIT)?.execute((handler, key, now))?;
    }
    let state = if row.key.is_some() { "waiting" } else { "retry" };
    let due = row.key.is_none().then_some(now);
    tx.prepare_cached(sql::REPLAY_ROW)?.execute((id, handler, state, due, crashes, history, now))?;
    if let Some(key) = &row.key {
        // The lowest open row of the key goes first, whichever it is.
        make_next_due(tx, handler, key, now)?;
    }
    Ok(())
}

fn read_lanes(connection: &Connection, now: i64) -> rusqlite::Result<Vec<LaneInfo>> {
    let mut lanes: Vec<LaneInfo> = connection
        .prepare_cached(sql::LIST_LANES)?
        .query_map([], |row| {
            Ok(LaneInfo {
                handler: row.get(0)?,
                event_types: serde_json::from_str(&row.get::<_, String>(1)?).unwrap_or_default(),
                on_dead_letter: row.get(2)?,
                held: row.get(3)?,
                cursor: row.get(4)?,
                owner: row.get(5)?,
                owned_since: row.get(6)?,
                paused_until: row.get(7)?,
                pause_reason: row.get(8)?,
                outage_since: row.get(9)?,
                lag_events: 0,
                lag_ms: 0,
                open_ms: 0,
                owner_state: OwnerState::NoOwner,
                owner_pid: None,
                exceptions: ExceptionCounts::default(),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    for lane in &mut lanes {
        lane.lag_events =
            connection.prepare_cached(sql::LAG)?.query_row([lane.cursor], |row| row.get::<_, i64>(0))?.unsigned_abs();
        let oldest: Option<i64> =
            connection.prepare_cached(sql::OLDEST_PENDING)?.query_row([lane.cursor], |row| row.get(0)).optional()?;
        let open: Option<i64> =
            connection.prepare_cached(sql::OLDEST_OPEN)?.query_row([&lane.handler], |row| row.get(0)).optional()?;
        let age = |at: Option<i64>| at.map_or(0, |at| now.saturating_sub(at).max(0));
        (lane.lag_ms, lane.open_ms) = (age(oldest), age(open));
    }
    let mut statement = connection.prepare_cached(sql::COUNT_EXCEPTIONS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let handler: String = row.get(1)?;
        if let Some(lane) = lanes.iter_mut().find(|lane| lane.handler == handler) {
            lane.exceptions.add(row.get_ref(0)?.as_str().unwrap_or_default(), row.get::<_, i64>(2)?.unsigned_abs());
        }
    }
    Ok(lanes)
}

impl ExceptionCounts {
    fn add(&mut self, state: &str, count: u64) {
        match state {
            "retry" => self.retry += count,
            "waiting" => self.waiting += count,
            "parked" => self.parked += count,
            "dead_letter" => self.dead_letter += count,
            "discarded" => self.discarded += count,
            _ => self.done += count,
        }
    }
}

fn types_without_lane(connection: &Connection, lanes: &[LaneInfo]) -> rusqlite::Result<Vec<(String, u64)>> {
    let filters: Vec<super::EventFilter> =
        lanes.iter().map(|lane| super::EventFilter::Types(lane.event_types.clone())).collect();
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let mut statement = connection.prepare_cached(sql::READ_BACK)?;
    let mut rows = statement.query((i64::MAX, TYPES_LOOK_BACK))?;
    while let Some(row) = rows.next()? {
        let Ok(event_type) = row.get_ref(2)?.as_str() else { continue };
        if let Some(count) = counts.get_mut(event_type) {
            *count += 1;
        } else if !filters.iter().any(|filter| filter.matches(event_type)) {
            counts.insert(event_type.to_owned(), 1);
        }
    }
    Ok(counts.into_iter().collect())
}

fn story(connection: &Connection, id: i64) -> rusqlite::Result<Option<EventStory>> {
    let (event, undecodable, known) = match log::read_event(connection, id)? {
        Body::Event(event) => (Some(event), None, true),
        Body::Bad(reason) => (None, Some(reason.reason), true),
        Body::Skip | Body::Missing => (None, None, false),
    };
    let exceptions: Vec<ExceptionInfo> = connection
        .prepare_cached(sql::EXCEPTIONS_OF_EVENT)?
        .query_map([id], exception_info)?
        .collect::<rusqlite::Result<_>>()?;
    if !known && exceptions.is_empty() {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached(sql::LIST_LANES)?;
    let mut rows = statement.query([])?;
    let mut lanes = Vec::new();
    while let Some(row) = rows.next()? {
        let handler: String = row.get(0)?;
        let exception = exceptions.iter().find(|exception| exception.handler == handler);
        let standing = match exception {
            Some(exception) => exception.state.to_string(),
            None if id > row.get::<_, i64>(4)? => "pending".to_owned(),
            None => "delivered".to_owned(),
        };
        lanes.push((handler, standing));
    }
    Ok(Some(EventStory { event, undecodable, lanes, exceptions }))
}

fn exception_info(row: &Row<'_>) -> rusqlite::Result<ExceptionInfo> {
    Ok(ExceptionInfo {
        outbox_id: row.get(0)?,
        handler: row.get(1)?,
        key: row.get(2)?,
        state: ExceptionState::parse(row.get_ref(3)?.as_str().unwrap_or_default()),
        attempts: row.get(4)?,
        crashes: row.get(5)?,
        replays: row.get(6)?,
        next_attempt_at: row.get(7)?,
        superseded_by: row.get(8)?,
        reason: row.get(9)?,
        history: history::parse(row.get_ref(10)?.as_str().unwrap_or_default()),
        created_at: row.get(11)?,
        updated_at: row.get(12)?,
    })
}

impl ExceptionState {
    /// Every state, in the order in which an operator cares.
    pub const ALL: [Self; 6] =
        [Self::DeadLetter, Self::Parked, Self::Retry, Self::Waiting, Self::Discarded, Self::Done];

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

    fn parse(word: &str) -> Self {
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
