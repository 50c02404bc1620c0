//! Liveness and readiness.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use super::engine::Response;
use super::jobs;
use super::route::{Guard, Route};

/// For supervisors and proxies, which have no token.
pub(super) const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/health/live", guard: Guard::Open, answer: |_| Ok(live()) },
    Route {
        method: "GET",
        path: "/health/ready",
        guard: Guard::Open,
        answer: |call| Ok(ready(&(call.parts.health)(), call.parts.jobs.get().map(jobs::health))),
    },
];

/// Whether the program can do its work, and what it is made of. Asked for at each request.
#[derive(Debug, Clone, Serialize)]
pub struct Health {
    /// Every service runs.
    pub ready: bool,
    /// The services in the order of their start.
    pub services: Vec<ServiceHealth>,
    /// The lanes: those that this process runs, then those that only the database knows.
    pub lanes: Vec<LaneHealth>,
    /// Why the database could not tell how far the lanes are; their [`backlog`](LaneHealth::backlog) is missing then.
    pub backlog_error: Option<String>,
}

/// One service.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceHealth {
    /// Its name.
    pub name: String,
    /// Its state in one word.
    pub state: String,
    /// Why it is in that state, if there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One lane. A lane that is not well does not make the program unready: articles are served and written all the same.
#[derive(Debug, Clone, Serialize)]
pub struct LaneHealth {
    /// The handler's name.
    pub handler: String,
    /// Its state in one word; `absent` if this process does not run it.
    pub state: String,
    /// Delivering or standing by, with no call past its time limit.
    pub healthy: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is still to be done; `None` if the database could not tell.
    #[serde(flatten)]
    pub backlog: Option<LaneBacklog>,
}

/// What a lane has before it, as the database holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LaneBacklog {
    /// Events given up and passed over.
    pub dead_letters: u64,
    /// Events given up that hold back their key.
    pub parked: u64,
    /// Events to be tried again.
    pub retrying: u64,
    /// Events behind an earlier one of their key.
    pub waiting: u64,
    /// Events after the cursor, counted up to 100,000.
    pub lag_events: u64,
    /// Age of the oldest of them, milliseconds.
    pub lag_ms: i64,
    /// The transport is down, and is tried again then (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_until: Option<String>,
    /// Since when it is down (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_since: Option<String>,
}

/// The process answers.
fn live() -> Response {
    json(StatusCode::OK, r#"{"status":"live"}"#.to_owned())
}

fn ready(health: &Health, writes: Option<serde_json::Value>) -> Response {
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = serde_json::json!({ "status": if health.ready { "ready" } else { "not_ready" } });
    body["services"] = serde_json::json!(health.services);
    body["lanes"] = serde_json::json!(health.lanes);
    if let Some(error) = &health.backlog_error {
        body["backlog_error"] = serde_json::json!(error);
    }
    if let Some(writes) = writes {
        body["writes"] = writes;
    }
    json(status, body.to_string())
}

fn json(status: StatusCode, body: String) -> Response {
    Response::new(status, body)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
