//! A line about a lane that does not get on: why, since when, until when.

use super::output::{cut, moment, printable};
use crate::outbox::{LaneInfo, OwnerState};

/// Most characters of a reason.
const REASON: usize = 500;
/// An event that is older than this although its lane has a living owner that does not rest is worth a line, milliseconds.
const OVERDUE_MS: i64 = 60_000;

/// `None` for a lane that needs no eye: one that runs and keeps up, or that nobody runs and that has nothing to do.
pub(super) fn of(lane: &LaneInfo) -> Option<String> {
    let name = printable(&lane.handler);
    let open = &lane.exceptions;
    let kept = if open.retry + open.waiting > 0 {
        format!("{} events are kept for it, and {} to be tried again", lane.lag_events, open.retry + open.waiting)
    } else {
        format!("{} events are kept for it", lane.lag_events)
    };
    let idle = lane.lag_events == 0 && open.retry + open.waiting == 0;
    let who = match lane.owner_state {
        OwnerState::Alive if lane.paused_until.is_some() => return Some(format!("lane {name} is {}", pause(lane)?)),
        OwnerState::Alive => return overdue(lane),
        _ if lane.held => "is held",
        OwnerState::Dead => "has a dead owner",
        OwnerState::Unknown => "has an owner of whom nobody knows whether it lives",
        OwnerState::NoOwner => "has no owner",
    };
    if idle {
        return None;
    }
    let before = pause(lane).map(|pause| format!("; when it last ran it was {pause}")).unwrap_or_default();
    Some(format!("lane {name} {who}: {kept}{before}"))
}

fn pause(lane: &LaneInfo) -> Option<String> {
    let until = moment(lane.paused_until?);
    let since = lane.outage_since.map(|since| format!(" since {}", moment(since))).unwrap_or_default();
    let reason = lane.pause_reason.as_deref().map(printable).unwrap_or_default();
    let reason = if reason.is_empty() { "no reason was given" } else { &reason };
    Some(format!("paused{since} until {until}: {}", cut(reason, REASON)))
}

fn overdue(lane: &LaneInfo) -> Option<String> {
    let (name, count, seconds) = (printable(&lane.handler), lane.lag_events, lane.lag_ms / 1_000);
    (lane.lag_events > 0 && lane.lag_ms > OVERDUE_MS).then(|| {
        let pid = lane.owner_pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        format!("lane {name} is behind: {count} events, the oldest {seconds} s old; its owner{pid} lives and catches up, or a call is stuck")
    })
}
