//! An event as the ledger keeps it: JSON text. And text whatever its bytes are.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::outbox::Event;

/// All that a handler is given, but for the counts, which stand on the row.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredEvent {
    id: i64,
    event_id: String,
    event_type: String,
    key: Option<String>,
    payload: String,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    occurred_at: i64,
    /// An operator has given it another payload.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    edited: bool,
}

impl StoredEvent {
    pub(super) fn text(event: &Event) -> String {
        let stored = Self {
            id: event.id,
            event_id: event.event_id.clone(),
            event_type: event.event_type.clone(),
            key: event.key.clone(),
            payload: event.payload.clone(),
            correlation_id: event.correlation_id.clone(),
            causation_id: event.causation_id.clone(),
            occurred_at: event.occurred_at,
            edited: event.edited,
        };
        stored.to_text()
    }

    /// The same event with another payload.
    pub(super) fn edited(self, payload: &str) -> String {
        Self { payload: payload.to_owned(), edited: true, ..self }.to_text()
    }

    fn to_text(&self) -> String {
        // Strings and numbers always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether a run of it would be a run of the row with this name and this place in the order of its key.
    pub(super) fn is_of(&self, event_id: &RawText, key: Option<&RawText>, position: Option<i64>) -> bool {
        let same_key = match (&self.key, key) {
            (Some(own), Some(key)) => key.is(own) && position == Some(self.id),
            (None, None) => true,
            _ => false,
        };
        same_key && event_id.is(&self.event_id)
    }

    /// A column that may hold an event; `None` if what is there is none. Its text is never mended: a handler must not be given
    /// what nobody has said.
    pub(super) fn read(row: &rusqlite::Row<'_>, index: usize) -> rusqlite::Result<Option<Self>> {
        Ok(row.get_ref(index)?.as_str_or_null().ok().flatten().and_then(Self::parse))
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn into_event(self, attempts: u32, replays: u32) -> Event {
        Event {
            id: self.id,
            event_id: self.event_id,
            event_type: self.event_type,
            key: self.key,
            payload: self.payload,
            correlation_id: self.correlation_id,
            causation_id: self.causation_id,
            occurred_at: self.occurred_at,
            attempts,
            replays,
            forced: false,
            edited: self.edited,
        }
    }
}

/// A text column as it lies in the database: a foreign hand may have put bytes there that are no UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawText(Vec<u8>);

impl RawText {
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.0 == text.as_bytes()
    }
}

impl FromSql for RawText {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_bytes().map(|bytes| Self(bytes.to_vec()))
    }
}

impl ToSql for RawText {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(&self.0)))
    }
}
