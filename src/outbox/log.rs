//! Reading the log and the exceptions, defensively: a row that cannot be decoded is reported, never fatal.

use std::collections::HashMap;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row};

use super::sql;
use super::standing::Questions;
use super::{Event, EventFilter, MAX_PAYLOAD_BYTES};

/// Most types that are counted; a hostile writer could invent any number.
const MAX_REMEMBERED_TYPES: usize = 4_096;

/// Most events that a lane keeps to use again, and the largest payload among them, in bytes: 2 MiB together.
const MAX_SPARE_EVENTS: usize = 512;
const MAX_SPARE_BYTES: usize = 4_096;

/// A log row as a lane sees it.
#[derive(Debug)]
pub(super) struct LogRow {
    pub(super) id: i64,
    pub(super) body: Body,
    /// This handler has a row for it: not the cursor's business.
    pub(super) own_row: bool,
    /// An open exception of its key lies below it.
    pub(super) blocked: bool,
    /// A dead letter of its key lies below it.
    pub(super) dead_below: bool,
}

/// What a row holds.
#[derive(Debug)]
pub(super) enum Body {
    Event(Event),
    /// Not for this handler.
    Skip,
    /// Cannot be decoded.
    Bad(Undecodable),
    /// The log holds it no more.
    Missing,
}

/// What can be said of a row that cannot be decoded.
#[derive(Debug)]
pub(super) struct Undecodable {
    /// Its key, if that much is sound.
    pub(super) key: Option<String>,
    /// What is wrong with the rest.
    pub(super) reason: String,
}

impl LogRow {
    /// The key of a row that has an outcome of its own.
    pub(super) fn key(&self) -> Option<&str> {
        match &self.body {
            Body::Event(event) => event.key.as_deref(),
            Body::Bad(undecodable) => undecodable.key.as_deref(),
            Body::Skip | Body::Missing => None,
        }
    }

    pub(super) fn into_event(self) -> Option<Event> {
        match self.body {
            Body::Event(event) => Some(event),
            _ => None,
        }
    }
}

/// An exception that is to be run.
#[derive(Debug)]
pub(super) struct Exception {
    pub(super) id: i64,
    pub(super) key: Option<String>,
    pub(super) began: Began,
    pub(super) attempts: u32,
    pub(super) crashes: u32,
    pub(super) superseded: bool,
    /// Another row of its key was open behind it.
    pub(super) followed: bool,
    pub(super) body: Body,
}

impl Exception {
    fn text_bytes(&self) -> usize {
        if let Body::Event(event) = &self.body { text_bytes(event) } else { 0 }
    }

    /// Whether a handler may be given it together with others: nothing is known that speaks against it. What has failed
    /// before, or was asked for by an operator, is run alone.
    pub(super) fn may_join_a_batch(&self) -> bool {
        let is_fresh = self.attempts == 0 && self.crashes == 0 && self.began.replays == 0;
        is_fresh && !self.superseded && matches!(self.body, Body::Event(_))
    }
}

/// The row as the run found it; its outcome is written only if it still is so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Began {
    pub(super) state: &'static str,
    /// As the column holds it, which a foreign hand may have filled with any number.
    pub(super) replays: i64,
    /// The edited payload, as bytes: it may be no text.
    pub(super) payload: Option<Vec<u8>>,
}

impl Began {
    /// Nobody asked for it, and it was not due before what it waited for.
    pub(super) fn only_waited(&self) -> bool {
        self.state == "waiting" && self.replays == 0 && self.payload.is_none()
    }

    /// To be compared with the column: as text, whatever bytes it holds.
    pub(super) fn payload(&self) -> ToSqlOutput<'_> {
        let payload = self.payload.as_deref();
        ToSqlOutput::Borrowed(payload.map_or(ValueRef::Null, ValueRef::Text))
    }
}

/// A filter that counts what passed by, and keeps events that are done with: their text goes into the same memory again.
#[derive(Debug)]
pub(super) struct Matcher {
    filter: EventFilter,
    spare: Vec<Event>,
    skipped: HashMap<String, u64>,
}

impl Matcher {
    pub(super) fn new(filter: EventFilter) -> Self {
        Self { filter, spare: Vec::new(), skipped: HashMap::new() }
    }

    pub(super) fn filter(&self) -> &EventFilter {
        &self.filter
    }

    /// Types that passed by since the last call, with how many events of each.
    pub(super) fn take_skipped(&mut self) -> HashMap<String, u64> {
        std::mem::take(&mut self.skipped)
    }

    /// Keeps what may be used again.
    pub(super) fn take_back(&mut self, events: impl IntoIterator<Item = Event>) {
        let room = MAX_SPARE_EVENTS.saturating_sub(self.spare.len());
        let small = |event: &Event| event.payload.capacity() <= MAX_SPARE_BYTES;
        self.spare.extend(events.into_iter().filter(small).take(room));
    }

    fn spare_event(&mut self) -> Event {
        self.spare.pop().unwrap_or_else(Event::blank)
    }

    fn matches(&mut self, event_type: &str) -> bool {
        let matches = self.filter.matches(event_type);
        if !matches {
            if let Some(count) = self.skipped.get_mut(event_type) {
                *count += 1;
            } else if self.skipped.len() < MAX_REMEMBERED_TYPES {
                self.skipped.insert(event_type.to_owned(), 1);
            }
        }
        matches
    }
}

/// Limits of one batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchLimits {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// The log after `position`, with the answers for `handler`.
pub(super) fn read_log(
    connection: &Connection,
    matcher: &mut Matcher,
    position: i64,
    limits: BatchLimits,
    (handler, ask): (&str, Questions),
) -> rusqlite::Result<Vec<LogRow>> {
    let rows = i64::try_from(limits.rows).unwrap_or(i64::MAX);
    let mut batch = Vec::with_capacity(limits.rows.min(512));
    let mut bytes = 0;
    let mut statement = connection.prepare_cached(sql::READ_LOG)?;
    let mut found = statement.query((position, rows, MAX_PAYLOAD_BYTES as i64))?;
    while let Some(row) = found.next()? {
        let row = decode_row(row, matcher)?;
        if let Body::Event(event) = &row.body {
            bytes += text_bytes(event);
        }
        batch.push(row);
        if bytes >= limits.bytes {
            break;
        }
    }
    ask.answer(connection, handler, &mut batch)?;
    Ok(batch)
}

/// Where an event stands, without the event.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: i64,
    pub(super) key: Option<String>,
}

/// A stretch of the log.
#[derive(Debug)]
pub(super) struct Places {
    /// Of the events that may be the handler's.
    pub(super) places: Vec<Place>,
    /// The last row that was read; `None` if there was none.
    pub(super) end: Option<i64>,
}

/// At most `limit` rows after `position`, looked at by type and key alone.
pub(super) fn read_places(
    connection: &Connection,
    matcher: &Matcher,
    position: i64,
    limit: usize,
) -> rusqlite::Result<Places> {
    let (mut places, mut end) = (Vec::new(), None);
    let mut statement = connection.prepare_cached(sql::READ_PLACES)?;
    let mut rows = statement.query((position, limit as i64))?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        end = Some(id);
        if required_text(row, 1).map_or(true, |event_type| matcher.filter.matches(event_type)) {
            places.push(Place { id, key: optional_text(row, 2).ok().flatten().map(str::to_owned) });
        }
    }
    Ok(Places { places, end })
}

/// One row of the log, with the answers for `handler`; `None` if there is none at `id` itself.
pub(super) fn read_row(
    connection: &Connection,
    matcher: &mut Matcher,
    id: i64,
    handler: &str,
) -> rusqlite::Result<Option<LogRow>> {
    let before = id.saturating_sub(1);
    let ask = Questions::worth_asking(connection, handler, before)?;
    let rows = read_log(connection, matcher, before, BatchLimits { rows: 1, bytes: 0 }, (handler, ask))?;
    Ok(rows.into_iter().find(|row| row.id == id))
}

fn decode_row(row: &Row<'_>, matcher: &mut Matcher) -> rusqlite::Result<LogRow> {
    let id = row.get(0)?;
    let body = match required_text(row, 2) {
        Err(what) => undecodable(row, format!("event_type {what}")),
        Ok(event_type) if !matcher.matches(event_type) => Body::Skip,
        Ok(event_type) => match decode_event(row, id, event_type, matcher.spare_event()) {
            Ok(event) => Body::Event(event),
            Err(reason) => undecodable(row, reason),
        },
    };
    Ok(LogRow { id, body, own_row: false, blocked: false, dead_below: false })
}

fn undecodable(row: &Row<'_>, reason: String) -> Body {
    let key = optional_text(row, 3).ok().flatten().map(str::to_owned);
    Body::Bad(Undecodable { key, reason })
}

/// Fills `event` with what the row holds.
fn decode_event(row: &Row<'_>, id: i64, event_type: &str, mut event: Event) -> Result<Event, String> {
    let key = optional_text(row, 3).map_err(|what| format!("event_key {what}"))?;
    let payload = match row.get_ref(4) {
        Ok(ValueRef::Null) => Err(format!("is larger than {MAX_PAYLOAD_BYTES} bytes")),
        _ => required_text(row, 4),
    };
    event.id = id;
    set(&mut event.event_id, required_text(row, 1).map_err(|what| format!("event_id {what}"))?);
    set(&mut event.event_type, event_type);
    set_optional(&mut event.key, key);
    set(&mut event.payload, payload.map_err(|what| format!("payload {what}"))?);
    let correlation = optional_text(row, 5).map_err(|what| format!("correlation_id {what}"))?;
    set_optional(&mut event.correlation_id, correlation);
    let causation = optional_text(row, 6).map_err(|what| format!("causation_id {what}"))?;
    set_optional(&mut event.causation_id, causation);
    event.occurred_at = row.get(7).map_err(|error| format!("occurred_at {error}"))?;
    (event.attempts, event.replays) = (0, 0);
    (event.forced, event.edited) = (false, false);
    Ok(event)
}

fn set(text: &mut String, value: &str) {
    text.clear();
    text.push_str(value);
}

fn set_optional(text: &mut Option<String>, value: Option<&str>) {
    match (text.as_mut(), value) {
        (Some(text), Some(value)) => set(text, value),
        _ => *text = value.map(str::to_owned),
    }
}

/// Bytes of an event's text in memory.
fn text_bytes(event: &Event) -> usize {
    let optional = [&event.key, &event.correlation_id, &event.causation_id];
    let optional: usize = optional.into_iter().flatten().map(String::len).sum();
    event.event_id.len() + event.event_type.len() + event.payload.len() + optional
}

fn required_text<'r>(row: &'r Row<'_>, index: usize) -> Result<&'r str, String> {
    optional_text(row, index)?.ok_or_else(|| "is NULL".to_owned())
}

fn optional_text<'r>(row: &'r Row<'_>, index: usize) -> Result<Option<&'r str>, String> {
    match row.get_ref(index) {
        Ok(ValueRef::Null) => Ok(None),
        // Not even a name, which another program may have made as long as it liked.
        Ok(ValueRef::Text(bytes)) if bytes.len() > MAX_PAYLOAD_BYTES => {
            Err(format!("is larger than {MAX_PAYLOAD_BYTES} bytes"))
        }
        Ok(ValueRef::Text(bytes)) => {
            std::str::from_utf8(bytes).map(Some).map_err(|error| format!("is not UTF-8: {error}"))
        }
        Ok(other) => Err(format!("is {}, not text", other.data_type())),
        Err(error) => Err(error.to_string()),
    }
}

/// Exceptions of `handler` that one of the statements for their ids finds, with their events. Those that are not `wanted` are
/// passed over.
pub(super) fn read_exceptions(
    connection: &Connection,
    handler: &str,
    (statement, parameters): (&str, impl rusqlite::Params),
    max_bytes: usize,
    wanted: impl Fn(i64) -> bool,
) -> rusqlite::Result<Vec<Exception>> {
    let mut ids = connection.prepare_cached(statement)?;
    let mut ids = ids.query(parameters)?;
    let mut one = connection.prepare_cached(sql::READ_EXCEPTION_TO_RUN)?;
    let mut everything = Matcher::new(EventFilter::All);
    let mut found = Vec::new();
    let mut bytes = 0;
    while let Some(row) = ids.next()? {
        let id = row.get(0)?;
        if !wanted(id) {
            continue;
        }
        let mut rows = one.query((id, handler, MAX_PAYLOAD_BYTES as i64))?;
        // The same snapshot holds it.
        let Some(row) = rows.next()? else { continue };
        let exception = decode_exception(row, &mut everything)?;
        bytes += exception.text_bytes();
        found.push(exception);
        if bytes >= max_bytes {
            break;
        }
    }
    Ok(found)
}

/// What waits behind the row `head` of a key and may run now, in order, with its events.
pub(super) fn read_waiting(
    connection: &Connection,
    (handler, key): (&str, &str),
    head: i64,
    reach: i64,
    limits: BatchLimits,
) -> rusqlite::Result<Vec<Exception>> {
    let rows = i64::try_from(limits.rows).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(sql::READ_WAITING)?;
    let mut rows = statement.query((head, handler, MAX_PAYLOAD_BYTES as i64, rows, key, reach))?;
    let mut everything = Matcher::new(EventFilter::All);
    let mut found = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let exception = decode_exception(row, &mut everything)?;
        bytes += exception.text_bytes();
        found.push(exception);
        if bytes >= limits.bytes {
            break;
        }
    }
    Ok(found)
}

fn decode_exception(row: &Row<'_>, everything: &mut Matcher) -> rusqlite::Result<Exception> {
    let state = match row.get_ref(9)?.as_str() {
        Ok("waiting") => "waiting",
        Ok("parked") => "parked",
        _ => "retry",
    };
    let attempts = count(row, 10)?;
    let replays = count(row, 12)?;
    let payload = optional_text(row, 14);
    let is_logged = row.get_ref(0)? != ValueRef::Null;
    let body = match &payload {
        Err(what) => Body::Bad(Undecodable { key: None, reason: format!("edited payload {what}") }),
        Ok(_) if !is_logged => Body::Missing,
        // Whatever the filter says: an exception is finished even after a filter changed.
        Ok(edited) => match decode_row(row, everything)?.body {
            Body::Event(mut event) => {
                event.attempts = attempts;
                event.replays = replays;
                event.forced = row.get(15)?;
                if let Some(edited) = edited {
                    event.edited = true;
                    event.payload = (*edited).to_owned();
                }
                Body::Event(event)
            }
            other => other,
        },
    };
    Ok(Exception {
        id: row.get(16)?,
        key: optional_text(row, 8).ok().flatten().map(str::to_owned),
        began: Began {
            state,
            replays: row.get(12)?,
            payload: row.get_ref(14)?.as_bytes_or_null()?.map(<[u8]>::to_vec),
        },
        attempts,
        crashes: count(row, 11)?,
        superseded: row.get::<_, Option<i64>>(13)?.is_some(),
        followed: row.get(17)?,
        body,
    })
}

/// One event by its log position, whatever the filter says: an exception is finished even after a filter changed.
pub(super) fn read_event(connection: &Connection, id: i64) -> rusqlite::Result<Body> {
    let mut everything = Matcher::new(EventFilter::All);
    let mut statement = connection.prepare_cached(sql::READ_EVENT)?;
    let mut rows = statement.query((id, MAX_PAYLOAD_BYTES as i64))?;
    match rows.next()? {
        Some(row) => Ok(decode_row(row, &mut everything)?.body),
        None => Ok(Body::Missing),
    }
}

fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<u32> {
    Ok(u32::try_from(row.get::<_, i64>(index)?.max(0)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    /// Rows of another program: each column in turn holds half of what a batch may.
    fn rows_of_half_a_batch(column: &str) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        crate::outbox::COMPONENT.migrations.iter().for_each(|migration| connection.execute_batch(migration).unwrap());
        let columns = ["event_id", "event_type", "event_key", "payload", "correlation_id", "causation_id"];
        let values = columns.map(|name| match name == column {
            true => format!("printf('%0{}d', value)", LIMIT / 2),
            false => "printf('%d', value)".to_owned(),
        });
        let insert = format!(
            "WITH RECURSIVE numbers(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM numbers WHERE value < 6) \
             INSERT INTO event_outbox ({}) SELECT {} FROM numbers",
            columns.join(", "),
            values.join(", ")
        );
        connection.execute_batch(&insert).unwrap();
        connection
            .execute_batch(
                "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, history, created_at, updated_at) \
                 SELECT id, 'h', event_key, 'retry', 1, '[]', 1, 1 FROM event_outbox",
            )
            .unwrap();
        connection
    }

    #[test]
    fn a_batch_is_as_large_as_all_the_text_of_its_events() {
        for column in ["event_id", "event_type", "event_key", "payload", "correlation_id", "causation_id"] {
            let connection = rows_of_half_a_batch(column);
            let mut matcher = Matcher::new(EventFilter::All);
            let limits = BatchLimits { rows: 512, bytes: LIMIT };
            let log = read_log(&connection, &mut matcher, 0, limits, ("h", Questions::default())).unwrap();
            assert!(log.iter().all(|row| matches!(row.body, Body::Event(_))), "{column}");
            assert_eq!(log.len(), 2, "{column}");
            let due = (sql::READ_DUE, ("h", 2, 512, i64::MAX));
            assert_eq!(read_exceptions(&connection, "h", due, LIMIT, |_| true).unwrap().len(), 2, "{column}");
        }
    }
}
