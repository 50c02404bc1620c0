//! Liveness and readiness.

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde::Serialize;

use super::engine::Response;
use super::jobs;
use super::route::{Answer, Call, Guard, Route};
use super::view::rfc3339;
use crate::lifecycle::{Handle, ServiceStatus};
use crate::outbox::{LaneInfo, LaneState, LaneStatus, Operator, OwnerState, Relay};

/// `/health`.
pub(super) const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/health/live", guard: Guard::Open, answer: live },
    Route { method: "GET", path: "/health/ready", guard: Guard::Open, answer: ready },
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
#[derive(Debug, Clone, Default, Serialize)]
pub struct ServiceHealth {
    /// Its name.
    pub name: String,
    /// Its state in one word.
    pub state: String,
    /// For how long it has been in that state, milliseconds.
    pub for_ms: u64,
    /// How long its start took, milliseconds, once it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_ms: Option<u64>,
    /// How long its stop took, milliseconds, once it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_ms: Option<u64>,
    /// Why it is in that state, if there is more to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One lane. A lane that is not well does not make the program unready: articles are served and written all the same.
#[derive(Debug, Clone, Serialize)]
pub struct LaneHealth {
    /// The handler's name.
    pub handler: String,
    /// Its state in one word; `absent` if no living process runs it, `elsewhere` if another one does.
    pub state: String,
    /// Delivering or standing by, with no call past its time limit.
    pub healthy: bool,
    /// An operator holds it, as the database has it.
    pub held: bool,
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
    /// Events given up and passed over, counted up to 100,000 as the others here.
    pub dead_letters: u64,
    /// Events given up that hold back their key.
    pub parked: u64,
    /// Events to be tried again.
    pub retrying: u64,
    /// Events behind an earlier one of their key.
    pub waiting: u64,
    /// Log positions after the cursor.
    pub lag_events: u64,
    /// Age of the oldest event after the cursor, milliseconds.
    pub lag_ms: i64,
    /// The transport is down, and is tried again then (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_until: Option<String>,
    /// Since when it is down (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_since: Option<String>,
}

impl Health {
    /// How the program is at this moment. A database that does not answer leaves the backlog out; it is no failure of
    /// this. Costs the same however much the log and the exceptions hold.
    pub fn look(handle: &Handle, relay: &Relay, operator: &Operator) -> Self {
        let status = handle.status();
        let mut lanes: Vec<LaneHealth> = relay.status().iter().map(running).collect();
        let backlog_error = match operator.lanes() {
            Ok(stored) => {
                stored.iter().for_each(|lane| add(&mut lanes, lane));
                None
            }
            Err(error) => Some(error.to_string()),
        };
        let services = status.services.into_iter().map(ServiceHealth::from).collect();
        Self { ready: status.ready, services, lanes, backlog_error }
    }

    /// The lanes: those that `relay` runs, then those that only the database knows.
    pub(super) fn lanes_of(relay: &Relay, stored: &[LaneInfo]) -> Vec<LaneHealth> {
        let mut lanes: Vec<LaneHealth> = relay.status().iter().map(running).collect();
        stored.iter().for_each(|lane| add(&mut lanes, lane));
        lanes
    }

    /// `green`; `yellow` when the program does its work and a lane waits for something; `red` when it is not ready, or a
    /// lane has lost its thread or its database.
    pub fn color(&self) -> &'static str {
        let broken = self.lanes.iter().any(|lane| matches!(lane.state.as_str(), "failed" | "stalled"));
        match (self.ready && !broken, self.reasons().is_empty()) {
            (false, _) => "red",
            (true, false) => "yellow",
            (true, true) => "green",
        }
    }

    /// What is not as it should be, a sentence for each.
    pub fn reasons(&self) -> Vec<String> {
        let because = |reason: &Option<String>| reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let services = self.services.iter().filter(|service| service.state != "running");
        let services = services
            .map(|service| format!("service {} is {}{}", service.name, service.state, because(&service.reason)));
        let lanes = self.lanes.iter().filter(|lane| !lane.healthy);
        let lanes = lanes.map(|lane| format!("lane {} is {}{}", lane.handler, lane.state, because(&lane.reason)));
        let database = self.backlog_error.iter().map(|error| format!("the database does not answer: {error}"));
        services.chain(lanes).chain(database).collect()
    }
}

impl From<ServiceStatus> for ServiceHealth {
    fn from(service: ServiceStatus) -> Self {
        Self {
            for_ms: u64::try_from(service.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            name: service.name,
            state: service.state.as_str().to_owned(),
            start_ms: service.start_ms,
            stop_ms: service.stop_ms,
            reason: service.reason,
        }
    }
}

/// What the lane is doing, in a word.
pub(super) fn state_word(lane: &LaneStatus) -> &'static str {
    match &lane.state {
        LaneState::Failed { .. } => "failed",
        LaneState::Stopped => "stopped",
        _ if lane.is_overdue() => "overdue",
        _ if lane.is_stalled() => "stalled",
        LaneState::Running => "running",
        LaneState::Starting => "starting",
        LaneState::Standby { .. } => "standby",
        LaneState::Paused { .. } => "paused",
        LaneState::Held => "held",
        LaneState::Waiting { .. } => "waiting",
    }
}

/// Why it does what [`state_word`] says.
fn reason_of(lane: &LaneStatus) -> Option<String> {
    match (state_word(lane), &lane.state) {
        ("overdue", _) => {
            let ran = lane.running_for.unwrap_or_default().as_secs();
            Some(format!("a call runs for {ran} s, beyond its limit of {} s", lane.time_limit.as_secs()))
        }
        (_, LaneState::Waiting { reason } | LaneState::Failed { reason }) => Some(reason.clone()),
        ("stalled", _) => Some("no look at the database has succeeded for three intervals".to_owned()),
        (_, LaneState::Paused { reason, .. }) => Some(reason.clone()),
        (_, LaneState::Standby { owner }) => Some(format!("owned by {owner}")),
        (_, LaneState::Held) => Some("by an operator".to_owned()),
        (_, LaneState::Running | LaneState::Starting | LaneState::Stopped) => None,
    }
}

fn running(lane: &LaneStatus) -> LaneHealth {
    let reason = reason_of(lane);
    let state = state_word(lane);
    let healthy = matches!(state, "running" | "standby" | "starting");
    LaneHealth {
        handler: lane.handler.clone(),
        state: state.to_owned(),
        healthy,
        held: state == "held",
        reason,
        backlog: None,
    }
}

/// Files what the database knows of `lane`, which may be one that this process does not run.
fn add(lanes: &mut Vec<LaneHealth>, lane: &LaneInfo) {
    let backlog = Some(LaneBacklog::from(lane));
    if let Some(known) = lanes.iter_mut().find(|known| known.handler == lane.handler) {
        known.backlog = backlog;
        known.held = lane.held;
        return;
    }
    let elsewhere = lane.owner_state == OwnerState::Alive;
    let (state, reason) = if elsewhere {
        ("elsewhere", format!("process {} runs it", lane.owner_pid.unwrap_or_default()))
    } else {
        ("absent", format!("no living process runs it, and {} events are kept for it", lane.lag_events))
    };
    lanes.push(LaneHealth {
        handler: lane.handler.clone(),
        state: state.to_owned(),
        healthy: elsewhere,
        held: lane.held,
        reason: Some(reason),
        backlog,
    });
}

impl From<&LaneInfo> for LaneBacklog {
    fn from(lane: &LaneInfo) -> Self {
        Self {
            dead_letters: lane.exceptions.dead_letter,
            parked: lane.exceptions.parked,
            retrying: lane.exceptions.retry,
            waiting: lane.exceptions.waiting,
            lag_events: lane.lag_events,
            lag_ms: lane.lag_ms,
            paused_until: lane.paused_until.map(rfc3339),
            outage_since: lane.outage_since.map(rfc3339),
        }
    }
}

/// The process answers.
fn live(_call: &Call<'_>) -> Answer {
    Ok(json(StatusCode::OK, r#"{"status":"live"}"#.to_owned()))
}

fn ready(call: &Call<'_>) -> Answer {
    let health = (call.parts.health)();
    let status = if health.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = serde_json::json!({
        "status": if health.ready { "ready" } else { "not_ready" },
        "color": health.color(),
        "reasons": health.reasons(),
    });
    body["services"] = serde_json::json!(health.services);
    body["lanes"] = serde_json::json!(health.lanes);
    if let Some(error) = &health.backlog_error {
        body["backlog_error"] = serde_json::json!(error);
    }
    if let Some(jobs) = call.parts.jobs.get() {
        body["writes"] = jobs::health(jobs);
    }
    Ok(json(status, body.to_string()))
}

fn json(status: StatusCode, body: String) -> Response {
    Response::new(status, body)
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn lane(state: LaneState, change: impl Fn(&mut LaneStatus)) -> LaneHealth {
        let mut status = LaneStatus {
            handler: "mail".into(),
            state,
            cursor: 0,
            calls: 0,
            last_pass: Some(Duration::ZERO),
            last_sign: Some(Duration::ZERO),
            poll: SECOND,
            running_for: None,
            time_limit: 30 * SECOND,
            retries: 0,
            given_up: 0,
            pauses: 0,
            recent_calls: Default::default(),
            skipped: Default::default(),
        };
        change(&mut status);
        running(&status)
    }

    fn health(lanes: Vec<LaneHealth>) -> Health {
        Health { ready: true, services: Vec::new(), lanes, backlog_error: None }
    }

    #[test]
    fn health_is_red_for_a_lane_without_a_pass_and_names_each_lane_that_is_not_well() {
        let silent = |lane: &mut LaneStatus| lane.last_sign = Some(4 * SECOND);
        let late = |lane: &mut LaneStatus| lane.running_for = Some(31 * SECOND);
        let quiet = |_: &mut LaneStatus| {};
        let waiting = LaneState::Waiting { reason: "reading failed: disk I/O error".into() };
        let paused = LaneState::Paused { reason: "mail server down".into(), until: 1 };
        let failed = LaneState::Failed { reason: "its thread panicked".into() };
        for (lane, state, color, words) in [
            (lane(LaneState::Running, quiet), "running", "green", ""),
            (lane(LaneState::Running, silent), "stalled", "red", "three intervals"),
            (lane(waiting.clone(), silent), "stalled", "red", "disk I/O error"),
            (lane(waiting, quiet), "waiting", "yellow", "disk I/O error"),
            (lane(failed, quiet), "failed", "red", "panicked"),
            (lane(paused.clone(), quiet), "paused", "yellow", "mail server down"),
            (lane(LaneState::Running, late), "overdue", "yellow", "31 s"),
            (lane(paused, late), "overdue", "yellow", "31 s"),
            (lane(LaneState::Starting, quiet), "starting", "green", ""),
            (lane(LaneState::Starting, silent), "stalled", "red", "three intervals"),
            (lane(LaneState::Held, silent), "stalled", "red", "three intervals"),
            (lane(LaneState::Held, quiet), "held", "yellow", "operator"),
        ] {
            let health = health(vec![lane]);
            assert_eq!((health.lanes[0].state.as_str(), health.color()), (state, color));
            assert!(health.reasons().join(" ").contains(words), "{:?}", health.reasons());
            assert_eq!(health.reasons().is_empty(), color == "green", "{:?}", health.reasons());
        }
    }
}
