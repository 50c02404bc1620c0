//! Every lane with its lag and its exceptions, and the event types that nobody delivers.

use rusqlite::{Connection, OptionalExtension};

use super::exception::lossy;
use super::{ExceptionState, Operator};
use crate::outbox::owner::{self, OwnerState};
use crate::outbox::{EventFilter, sql};
use crate::storage::ReadError;

/// How many of the newest events are looked at for types that no lane delivers.
const TYPES_LOOK_BACK: i64 = 10_000;

/// Exceptions of one state and lane are counted up to this many; that number means "at least".
pub const MAX_COUNTED: u32 = 100_000;

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
    /// Log positions after the cursor, whatever their type. Not counted but subtracted, so that it costs nothing.
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

/// Exceptions of one lane by state, each counted up to [`MAX_COUNTED`].
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

impl Operator {
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

    /// The newest log position; 0 when nothing was ever inserted.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn last_id(&self) -> Result<i64, ReadError<rusqlite::Error>> {
        self.database.read(|connection| connection.prepare_cached(sql::LAST_ID)?.query_row([], |row| row.get(0)))
    }

    fn look_at_owners(&self, lanes: &mut [LaneInfo]) {
        let Some(path) = self.database.canonical_path() else { return };
        for lane in lanes {
            let Some(owner) = &lane.owner else { continue };
            (lane.owner_state, lane.owner_pid) = owner::look(&path, owner);
        }
    }
}

fn read_lanes(connection: &Connection, now: i64) -> rusqlite::Result<Vec<LaneInfo>> {
    let mut lanes: Vec<LaneInfo> = connection
        .prepare_cached(sql::LIST_LANES)?
        .query_map([], |row| {
            Ok(LaneInfo {
                handler: lossy(row, 0)?.unwrap_or_default(),
                event_types: serde_json::from_str(&lossy(row, 1)?.unwrap_or_default()).unwrap_or_default(),
                on_dead_letter: row.get(2)?,
                held: row.get(3)?,
                cursor: row.get(4)?,
                owner: lossy(row, 5)?,
                owned_since: row.get(6)?,
                paused_until: row.get(7)?,
                pause_reason: lossy(row, 8)?,
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
    let last_id: i64 = connection.prepare_cached(sql::LAST_ID)?.query_row([], |row| row.get(0))?;
    for lane in &mut lanes {
        lane.lag_events = last_id.saturating_sub(lane.cursor).max(0).unsigned_abs();
        lane.exceptions = ExceptionCounts::read(connection, &lane.handler)?;
        let oldest: Option<i64> =
            connection.prepare_cached(sql::OLDEST_PENDING)?.query_row([lane.cursor], |row| row.get(0)).optional()?;
        let open: Option<i64> =
            connection.prepare_cached(sql::OLDEST_OPEN)?.query_row([&lane.handler], |row| row.get(0)).optional()?;
        let age = |at: Option<i64>| at.map_or(0, |at| now.saturating_sub(at).max(0));
        (lane.lag_ms, lane.open_ms) = (age(oldest), age(open));
    }
    Ok(lanes)
}

impl ExceptionCounts {
    /// How many there are in a state.
    pub fn of(&self, state: ExceptionState) -> u64 {
        match state {
            ExceptionState::Retry => self.retry,
            ExceptionState::Waiting => self.waiting,
            ExceptionState::Parked => self.parked,
            ExceptionState::DeadLetter => self.dead_letter,
            ExceptionState::Discarded => self.discarded,
            ExceptionState::Done => self.done,
        }
    }

    fn read(connection: &Connection, handler: &str) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached(sql::COUNT_IN_STATE)?;
        let mut count = |state: ExceptionState| {
            let counted = statement.query_row((state.stored(), handler, MAX_COUNTED), |row| row.get::<_, i64>(0));
            counted.map(i64::unsigned_abs)
        };
        Ok(Self {
            retry: count(ExceptionState::Retry)?,
            waiting: count(ExceptionState::Waiting)?,
            parked: count(ExceptionState::Parked)?,
            dead_letter: count(ExceptionState::DeadLetter)?,
            discarded: count(ExceptionState::Discarded)?,
            done: count(ExceptionState::Done)?,
        })
    }
}

fn types_without_lane(connection: &Connection, lanes: &[LaneInfo]) -> rusqlite::Result<Vec<(String, u64)>> {
    let filters: Vec<EventFilter> = lanes.iter().map(|lane| EventFilter::Types(lane.event_types.clone())).collect();
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
