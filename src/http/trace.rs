//! What one request has caused: the events that carry its correlation id.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

use super::access::Role;
use super::api::json_answer;
use super::problem::Problem;
use super::route::{Answer, Call, Guard, Route};
use super::view::rfc3339;
use crate::outbox::Event;

/// Most events in one answer.
const MAX_EVENTS: u32 = 1_000;
const EVENTS_BY_DEFAULT: u32 = 100;

pub(super) const ROUTES: &[Route] = &[Route {
    method: "GET",
    path: "/api/v1/admin/trace/{correlation_id}",
    guard: Guard::Token(Role::Admin),
    answer: trace,
}];

/// An event as the admin API shows it.
#[derive(Debug, Serialize)]
pub(super) struct EventView<'a> {
    id: i64,
    event_id: &'a str,
    event_type: &'a str,
    key: Option<&'a str>,
    correlation_id: Option<&'a str>,
    causation_id: Option<&'a str>,
    occurred_at: String,
    /// What a foreign writer stored may be no JSON; then it is shown as text.
    payload: Value,
}

impl<'a> From<&'a Event> for EventView<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            id: event.id,
            event_id: &event.event_id,
            event_type: &event.event_type,
            key: event.key.as_deref(),
            correlation_id: event.correlation_id.as_deref(),
            causation_id: event.causation_id.as_deref(),
            occurred_at: rfc3339(event.occurred_at),
            payload: serde_json::from_str(&event.payload).unwrap_or_else(|_| json!(event.payload)),
        }
    }
}

/// `GET /api/v1/admin/trace/{correlation_id}`: oldest first; none is no error, as most requests change nothing.
fn trace(call: &Call<'_>) -> Answer {
    let limit = call.query()?.number("limit", EVENTS_BY_DEFAULT)?;
    if limit > MAX_EVENTS {
        return Err(Problem::bad_parameter("limit", format!("must be 1 to {MAX_EVENTS}")));
    }
    let id = call.segment();
    let events = call.parts.operator.trace(id, limit as usize)?;
    let items: Vec<EventView<'_>> = events.iter().map(EventView::from).collect();
    json_answer(StatusCode::OK, &json!({ "correlation_id": id, "items": items }))
}
