//! One event's story, and the trail of a correlation id.

use rusqlite::{Connection, OptionalExtension};

use super::exception::{ExceptionInfo, exception_info, lossy};
use super::{MAX_PAGE, Operator};
use crate::outbox::log::{self, Body};
use crate::outbox::{Event, EventFilter, sql};
use crate::storage::ReadError;

/// How many of the newest events [`Operator::look_back`] looks at.
const LOOK_BACK: i64 = 10_000;

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
    /// Handlers for which an operator replaced the payload, with the new one.
    pub edited: Vec<(String, String)>,
}

impl Operator {
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

    /// Among the newest 10,000 events those of this type (a pattern such as `order.*` too) or of this key, the newest
    /// first, at most `limit`.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn look_back(
        &self,
        event_type: Option<&str>,
        key: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Event>, ReadError<rusqlite::Error>> {
        let types = event_type.map(|pattern| EventFilter::Types(vec![pattern.to_owned()]));
        self.database.read(|connection| {
            let mut events = Vec::new();
            let mut statement = connection.prepare_cached(sql::LOOK_BACK)?;
            let mut rows = statement.query((i64::MAX, LOOK_BACK))?;
            while let Some(row) = rows.next()?
                && events.len() < limit.min(MAX_PAGE)
            {
                let fits = |wanted: Option<&str>, found: Option<String>| wanted.is_some() && wanted == found.as_deref();
                let typed = types.as_ref().zip(lossy(row, 1)?).is_some_and(|(types, found)| types.matches(&found));
                if (typed || fits(key, lossy(row, 2)?))
                    && let Body::Event(event) = log::read_event(connection, row.get(0)?)?
                {
                    events.push(event);
                }
            }
            Ok(events)
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
    let edited = connection
        .prepare_cached(sql::EDITED_PAYLOADS)?
        .query_map([id], |row| Ok((lossy(row, 0)?.unwrap_or_default(), lossy(row, 1)?.unwrap_or_default())))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Some(EventStory { event, undecodable, lanes, exceptions, edited }))
}
