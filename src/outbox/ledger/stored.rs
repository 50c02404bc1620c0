//! An event as the ledger keeps it: JSON text.

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
        };
        // Strings and numbers always have a JSON form.
        serde_json::to_string(&stored).unwrap_or_default()
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
            edited: false,
        }
    }
}
