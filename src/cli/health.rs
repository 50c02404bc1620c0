//! What `/health/ready` tells: the services, the lanes of this process, and the backlog that the database holds.

use crate::http::{Health, LaneBacklog, LaneHealth, ServiceHealth, rfc3339};
use crate::lifecycle::Handle;
use crate::outbox::{LaneInfo, LaneState, LaneStatus, Operator, Relay};

/// How the program is at this moment. A database that does not answer leaves the backlog out; it is no failure of this.
pub(super) fn of(handle: &Handle, relay: &Relay, operator: &Operator) -> Health {
    let status = handle.status();
    let services = status.services.into_iter().map(|service| ServiceHealth {
        name: service.name,
        state: service.state.as_str().to_owned(),
        reason: service.reason,
    });
    let mut lanes: Vec<LaneHealth> = relay.status().iter().map(running).collect();
    let backlog_error = match operator.lanes() {
        Ok(stored) => {
            stored.iter().for_each(|lane| add(&mut lanes, lane));
            None
        }
        Err(error) => Some(error.to_string()),
    };
    Health { ready: status.ready, services: services.collect(), lanes, backlog_error }
}

fn running(lane: &LaneStatus) -> LaneHealth {
    let (state, reason) = match &lane.state {
        LaneState::Running if lane.is_overdue() => ("overdue", Some("a call is past its time limit".to_owned())),
        LaneState::Running if lane.is_stalled() => {
            ("stalled", Some("no look at the database has succeeded for three intervals".to_owned()))
        }
        LaneState::Running => ("running", None),
        LaneState::Starting => ("starting", None),
        LaneState::Standby { owner } => ("standby", Some(format!("owned by {owner}"))),
        LaneState::Paused { reason, .. } => ("paused", Some(reason.clone())),
        LaneState::Held => ("held", Some("by an operator".to_owned())),
        LaneState::Waiting { reason } => ("waiting", Some(reason.clone())),
        LaneState::Failed { reason } => ("failed", Some(reason.clone())),
        LaneState::Stopped => ("stopped", None),
    };
    let healthy = matches!(state, "running" | "standby" | "starting");
    LaneHealth { handler: lane.handler.clone(), state: state.to_owned(), healthy, reason, backlog: None }
}

/// Files what the database knows of `lane`, which may be one that this process does not run.
fn add(lanes: &mut Vec<LaneHealth>, lane: &LaneInfo) {
    let backlog = Some(backlog(lane));
    if let Some(known) = lanes.iter_mut().find(|known| known.handler == lane.handler) {
        known.backlog = backlog;
        return;
    }
    lanes.push(LaneHealth {
        handler: lane.handler.clone(),
        state: "absent".to_owned(),
        healthy: false,
        reason: Some("this process has no handler of that name".to_owned()),
        backlog,
    });
}

fn backlog(lane: &LaneInfo) -> LaneBacklog {
    LaneBacklog {
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
