//! Tracing a request's events.

use serde_json::{Value, json};

use super::document::{Document, named, object};
use super::operation::{Operation, Reply};

pub(super) fn describe(document: &mut Document) {
    let text = json!({ "type": ["string", "null"] });
    let event = object(&json!({
        "id": { "type": "integer", "description": "Its place in the log." },
        "event_id": { "type": "string" },
        "event_type": { "type": "string" },
        "key": text,
        "correlation_id": text,
        "causation_id": text,
        "occurred_at": { "type": "string", "format": "date-time" },
        "payload": { "description": "JSON; text if a foreign writer stored something else." },
    }));
    document.schema("Event", event);
    let trace = object(&json!({
        "correlation_id": { "type": "string" }, "items": { "type": "array", "items": named("Event") },
    }));
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 });
    let operation = Operation::new("traceRequest", "What a request has caused: the events with its correlation id")
        .tag("admin")
        .segment("correlation_id", "As in `X-Correlation-ID`.", "no-such-request")
        .query("limit", "Most events, the oldest first.", limit)
        .reads()
        .reply(200, Reply::new("The events; none if it changed nothing.", trace).example(nothing()));
    document.operation("GET", "/api/v1/admin/trace/{correlation_id}", operation);
}

fn nothing() -> Value {
    json!({ "correlation_id": "no-such-request", "items": [] })
}
