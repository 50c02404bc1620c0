//! `--json`: one document a command, for scripts. Fields are only ever added; moments are RFC 3339 in UTC.

use serde_json::{Value, json};

use super::CliError;
use super::output::{Output, moment};
use crate::outbox::{
    CheckReport, Event, EventStory, ExceptionCursor, ExceptionInfo, Finding, HistoryEntry, LaneInfo, OutboxStats,
    OwnerState,
};

pub(super) fn print(document: &Value, out: &mut Output) -> Result<(), CliError> {
    Ok(out.line(&document.to_string())?)
}

/// `outbox stats`
pub(super) fn stats(stats: &OutboxStats) -> Value {
    let without = stats.types_without_lane.iter().map(|(name, count)| json!({ "event_type": name, "events": count }));
    json!({
        "last_id": stats.last_id,
        "lanes": stats.lanes.iter().map(lane).collect::<Vec<_>>(),
        "types_without_lane": without.collect::<Vec<_>>(),
    })
}

/// `handler list`
pub(super) fn handlers(stats: &OutboxStats) -> Value {
    json!({ "lanes": stats.lanes.iter().map(lane).collect::<Vec<_>>() })
}

/// `outbox list`
pub(super) fn exceptions(found: &[ExceptionInfo], next: Option<&ExceptionCursor>) -> Value {
    json!({ "exceptions": found.iter().map(exception).collect::<Vec<_>>(), "next": next.map(ToString::to_string) })
}

/// `outbox show`
pub(super) fn story(story: &EventStory) -> Value {
    let lanes = story.lanes.iter().map(|(handler, state)| json!({ "handler": handler, "state": state }));
    let edited = story.edited.iter().map(|(handler, payload)| json!({ "handler": handler, "payload": payload }));
    json!({
        "event": story.event.as_ref().map(event),
        "undecodable": story.undecodable,
        "lanes": lanes.collect::<Vec<_>>(),
        "exceptions": story.exceptions.iter().map(exception).collect::<Vec<_>>(),
        "edited": edited.collect::<Vec<_>>(),
    })
}

/// `outbox trace`
pub(super) fn trail(correlation_id: &str, events: &[Event]) -> Value {
    json!({ "correlation_id": correlation_id, "events": events.iter().map(event).collect::<Vec<_>>() })
}

/// `outbox check`
pub(super) fn findings(report: &CheckReport, mended: u64) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "breach": finding.breach.code(),
            "handler": finding.handler,
            "id": finding.outbox_id,
            "what": finding.what,
            "remedy": finding.remedy,
            "mendable": finding.is_mendable(),
        })
    };
    json!({
        "lanes": report.lanes,
        "exceptions": report.exceptions,
        "mended": mended,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "notes": report.notes.iter().map(finding).collect::<Vec<_>>(),
        "more": report.more,
    })
}

fn event(event: &Event) -> Value {
    json!({
        "id": event.id,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "key": event.key,
        "occurred_at": moment(event.occurred_at),
        "correlation_id": event.correlation_id,
        "causation_id": event.causation_id,
        "payload": event.payload,
    })
}

fn lane(lane: &LaneInfo) -> Value {
    let counts = &lane.exceptions;
    json!({
        "handler": lane.handler,
        "event_types": lane.event_types,
        "on_dead_letter": lane.on_dead_letter,
        "held": lane.held,
        "cursor": lane.cursor,
        "lag_events": lane.lag_events,
        "lag_ms": lane.lag_ms,
        "open_ms": lane.open_ms,
        "owner": lane.owner,
        "owner_state": owner_state(lane.owner_state),
        "owner_pid": lane.owner_pid,
        "owned_since": lane.owned_since.map(moment),
        "paused_until": lane.paused_until.map(moment),
        "pause_reason": lane.pause_reason,
        "outage_since": lane.outage_since.map(moment),
        "exceptions": {
            "retry": counts.retry,
            "waiting": counts.waiting,
            "parked": counts.parked,
            "dead_letter": counts.dead_letter,
            "discarded": counts.discarded,
            "done": counts.done,
        },
    })
}

fn owner_state(state: OwnerState) -> &'static str {
    match state {
        OwnerState::NoOwner => "no_owner",
        OwnerState::Alive => "alive",
        OwnerState::Dead => "dead",
        OwnerState::Unknown => "unknown",
    }
}

fn exception(info: &ExceptionInfo) -> Value {
    let entry = |entry: &HistoryEntry| json!({ "at": moment(entry.at), "what": entry.what, "reason": entry.reason });
    json!({
        "handler": info.handler,
        "id": info.outbox_id,
        "state": info.state.stored(),
        "event_type": info.event_type,
        "key": info.key,
        "attempts": info.attempts,
        "crashes": info.crashes,
        "replays": info.replays,
        "next_attempt_at": info.next_attempt_at.map(moment),
        "superseded_by": info.superseded_by,
        "reason": info.reason,
        "edited": info.edited,
        "history": info.history.iter().map(entry).collect::<Vec<_>>(),
        "created_at": moment(info.created_at),
        "updated_at": moment(info.updated_at),
    })
}
