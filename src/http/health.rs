//! Liveness and readiness.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use super::engine::Response;

/// Whether the program can do its work, and what it is made of. Asked for at each request.
#[derive(Debug, Clone, Serialize)]
pub struct Health {
    /// Every service runs.
    pub ready: bool,
    /// The services in the order of their start.
    pub services: Vec<ServiceHealth>,
    /// The relay's lanes.
    pub lanes: Vec<LaneHealth>,
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
    /// Its state in one word.
    pub state: String,
    /// Delivering or standing by, with no call past its time limit.
    pub healthy: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The process answers.
pub(super) fn live() -> Response {
    answer(StatusCode::OK, r#"{"status":"live"}"#.to_owned())
}

pub(super) fn ready(health: &Health) -> Response {
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = serde_json::json!({ "status": if health.ready { "ready" } else { "not_ready" } });
    body["services"] = serde_json::json!(health.services);
    body["lanes"] = serde_json::json!(health.lanes);
    answer(status, body.to_string())
}

fn answer(status: StatusCode, body: String) -> Response {
    Response::new(status, body)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
