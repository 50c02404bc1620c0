//! Events: what a caller inserts and what a handler receives.

use std::fmt;

use rusqlite::Transaction;
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::sql;

/// Longest `event_type`, `event_key`, `correlation_id` and `causation_id`, in bytes.
pub const MAX_NAME_BYTES: usize = 512;
/// Largest payload that [`insert`] accepts and the relay loads, in bytes (1 MiB).
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// An event as the log holds it and a handler receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Position in the log; delivery order. Gaps are normal.
    pub id: i64,
    /// The event's own identity, the same at each delivery: deduplicate by this.
    pub event_id: String,
    /// For example `article.created.v1`.
    pub event_type: String,
    /// Events of one key are delivered in order; `None` means no order.
    pub key: Option<String>,
    /// JSON text.
    pub payload: String,
    /// Ties together what one request caused.
    pub correlation_id: Option<String>,
    /// What caused the event (a job, another event).
    pub causation_id: Option<String>,
    /// When it happened, milliseconds since the Unix epoch.
    pub occurred_at: i64,
    /// Calls before this one that spent an attempt (0 on the first call).
    pub attempts: u32,
    /// How often an operator replayed the event for this handler.
    pub replays: u32,
    /// An operator forced a replay: what was done before is wanted once more. Whoever deduplicates by
    /// [`event_id`](Self::event_id) has to count [`replays`](Self::replays) in.
    pub forced: bool,
    /// The payload is an operator's, not the log's.
    pub edited: bool,
}

impl Event {
    /// An event to be filled in.
    pub(super) fn blank() -> Self {
        NewEvent {
            event_id: String::new(),
            event_type: String::new(),
            key: None,
            payload: String::new(),
            correlation_id: None,
            causation_id: None,
            occurred_at: None,
        }
        .into_event(0)
    }

    /// The payload as `T`. The error converts into [`DispatchError::Poison`](super::DispatchError).
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.payload)
    }
}

/// An event to be inserted. Its id is minted here, before any transaction, so that a task that is run twice inserts the
/// same event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Defaults to a fresh UUIDv7.
    pub event_id: String,
    /// For example `article.created.v1`; 1 to [`MAX_NAME_BYTES`] bytes.
    pub event_type: String,
    /// Order key.
    pub key: Option<String>,
    /// JSON text, at most [`MAX_PAYLOAD_BYTES`].
    pub payload: String,
    /// Ties together what one request caused.
    pub correlation_id: Option<String>,
    /// What caused the event.
    pub causation_id: Option<String>,
    /// Milliseconds since the Unix epoch; `None` takes SQLite's clock at insertion.
    pub occurred_at: Option<i64>,
}

impl NewEvent {
    /// An event of this type with `payload` as JSON.
    ///
    /// # Errors
    /// `payload` has no JSON form (a map with keys that are not strings, for example).
    pub fn new(event_type: impl Into<String>, payload: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self::from_json(event_type, serde_json::to_string(payload)?))
    }

    /// An event of this type whose payload is JSON text already; [`insert`] checks that it is.
    pub fn from_json(event_type: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            event_id: Uuid::now_v7().to_string(),
            event_type: event_type.into(),
            key: None,
            payload: payload.into(),
            correlation_id: None,
            causation_id: None,
            occurred_at: None,
        }
    }

    /// Sets the order key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// Sets the causation id.
    #[must_use]
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.causation_id = Some(id.into());
        self
    }

    /// Sets the time of the event (milliseconds since the Unix epoch).
    #[must_use]
    pub fn occurred_at(mut self, ms: i64) -> Self {
        self.occurred_at = Some(ms);
        self
    }

    /// The event as a handler would receive it at log position `id`, on its first call: for tests of handlers.
    #[must_use]
    pub fn into_event(self, id: i64) -> Event {
        Event {
            id,
            event_id: self.event_id,
            event_type: self.event_type,
            key: self.key,
            payload: self.payload,
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            occurred_at: self.occurred_at.unwrap_or(0),
            attempts: 0,
            replays: 0,
            forced: false,
            edited: false,
        }
    }
}

/// Why an event was not inserted. Nothing was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum InsertError {
    /// `field` is empty, too long or not JSON: `reason` says which.
    Invalid {
        /// The field of [`NewEvent`].
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// SQLite refused: an `event_id` that is there already, a full disk, and the like.
    Sqlite(rusqlite::Error),
}

/// Inserts `event` in the caller's transaction and returns its position in the log.
///
/// The event becomes visible to the relay when that transaction commits, and not otherwise.
///
/// # Errors
/// [`InsertError::Invalid`] before anything is written; [`InsertError::Sqlite`] as SQLite reports it.
pub fn insert(tx: &Transaction<'_>, event: &NewEvent) -> Result<i64, InsertError> {
    check_json(&event.payload)?;
    insert_serialized(tx, event)
}

/// [`insert`] for a payload that a serialiser has just made: it is not parsed again to see whether it is JSON.
///
/// # Errors
/// As [`insert`].
pub(crate) fn insert_serialized(tx: &Transaction<'_>, event: &NewEvent) -> Result<i64, InsertError> {
    check(event)?;
    let mut statement = tx.prepare_cached(sql::INSERT_EVENT)?;
    statement.execute((
        &event.event_id,
        &event.event_type,
        &event.key,
        &event.payload,
        &event.correlation_id,
        &event.causation_id,
        event.occurred_at,
    ))?;
    Ok(tx.last_insert_rowid())
}

fn check(event: &NewEvent) -> Result<(), InsertError> {
    check_name("event_id", &event.event_id)?;
    check_name("event_type", &event.event_type)?;
    let optional =
        [("key", &event.key), ("correlation_id", &event.correlation_id), ("causation_id", &event.causation_id)];
    for (field, value) in optional {
        if let Some(value) = value {
            check_name(field, value)?;
        }
    }
    check_size(&event.payload)
}

fn check_size(payload: &str) -> Result<(), InsertError> {
    if payload.len() <= MAX_PAYLOAD_BYTES {
        return Ok(());
    }
    let reason = format!(
        "is {} bytes, at most {MAX_PAYLOAD_BYTES} are allowed: store the bulk elsewhere and send its id",
        payload.len()
    );
    Err(InsertError::Invalid { field: "payload", reason })
}

pub(super) fn check_json(payload: &str) -> Result<(), InsertError> {
    // First, so that the parser never sees more than that.
    check_size(payload)?;
    serde_json::from_str::<serde::de::IgnoredAny>(payload)
        .map(drop)
        .map_err(|error| InsertError::Invalid { field: "payload", reason: format!("is not JSON: {error}") })
}

fn check_name(field: &'static str, value: &str) -> Result<(), InsertError> {
    let reason = if value.is_empty() {
        "is empty".to_owned()
    } else if value.len() > MAX_NAME_BYTES {
        format!("is {} bytes, at most {MAX_NAME_BYTES} are allowed", value.len())
    } else if value.contains('\0') {
        "holds a NUL character".to_owned()
    } else {
        return Ok(());
    };
    Err(InsertError::Invalid { field, reason })
}

impl fmt::Display for InsertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, reason } => write!(f, "event not inserted: {field} {reason}"),
            Self::Sqlite(error) => write!(f, "event not inserted: {error}"),
        }
    }
}

impl std::error::Error for InsertError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid { .. } => None,
            Self::Sqlite(error) => Some(error),
        }
    }
}

/// A payload that has no JSON form.
impl From<serde_json::Error> for InsertError {
    fn from(error: serde_json::Error) -> Self {
        Self::Invalid { field: "payload", reason: format!("has no JSON form: {error}") }
    }
}

impl From<rusqlite::Error> for InsertError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}
