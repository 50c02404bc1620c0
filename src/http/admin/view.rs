//! The outbox as the admin API shows it.

use serde::Serialize;
use serde_json::{Value, json};

use crate::http::health::{LaneBacklog, state_word};
use crate::http::trace::EventView;
use crate::http::view::rfc3339;
use crate::outbox::{EventStory, ExceptionInfo, HistoryEntry, LaneInfo, LaneStatus, OutboxStats};
use crate::storage::WriterStats;

/// An exception.
#[derive(Debug, Serialize)]
pub(super) struct ExceptionView<'a> {
    id: i64,
    handler: &'a str,
    event_type: Option<&'a str>,
    key: Option<&'a str>,
    status: &'static str,
    attempts: u32,
    crashes: u32,
    replays: u32,
    next_attempt_at: Option<String>,
    superseded_by: Option<i64>,
    reason: Option<&'a str>,
    edited: bool,
    history: Vec<Entry<'a>>,
    created_at: String,
    updated_at: String,
}

#[derive(Debug, Serialize)]
struct Entry<'a> {
    at: String,
    what: &'a str,
    reason: &'a str,
}

impl<'a> From<&'a ExceptionInfo> for ExceptionView<'a> {
    fn from(row: &'a ExceptionInfo) -> Self {
        let entry = |entry: &'a HistoryEntry| Entry { at: rfc3339(entry.at), what: &entry.what, reason: &entry.reason };
        Self {
            id: row.outbox_id,
            handler: &row.handler,
            event_type: row.event_type.as_deref(),
            key: row.key.as_deref(),
            status: row.state.stored(),
            attempts: row.attempts,
            crashes: row.crashes,
            replays: row.replays,
            next_attempt_at: row.next_attempt_at.map(rfc3339),
            superseded_by: row.superseded_by,
            reason: row.reason.as_deref(),
            edited: row.edited,
            history: row.history.iter().map(entry).collect(),
            created_at: rfc3339(row.created_at),
            updated_at: rfc3339(row.updated_at),
        }
    }
}

/// An event, and where it stands with every handler.
#[derive(Debug, Serialize)]
pub(super) struct StoryView<'a> {
    event: Option<EventView<'a>>,
    undecodable: Option<&'a str>,
    lanes: Vec<Value>,
    exceptions: Vec<ExceptionView<'a>>,
}

impl<'a> From<&'a EventStory> for StoryView<'a> {
    fn from(story: &'a EventStory) -> Self {
        let standing = |(handler, status): &(String, String)| json!({ "handler": handler, "status": status });
        Self {
            event: story.event.as_ref().map(EventView::from),
            undecodable: story.undecodable.as_deref(),
            lanes: story.lanes.iter().map(standing).collect(),
            exceptions: story.exceptions.iter().map(ExceptionView::from).collect(),
        }
    }
}

/// A lane: what the database holds, and what this process knows of it.
#[derive(Debug, Serialize)]
pub(super) struct LaneView<'a> {
    handler: &'a str,
    /// `None` if this process does not run it.
    state: Option<&'static str>,
    held: bool,
    event_types: &'a [String],
    on_dead_letter: &'a str,
    cursor: i64,
    owner: Option<&'a str>,
    owned_since: Option<String>,
    pause_reason: Option<&'a str>,
    #[serde(flatten)]
    backlog: LaneBacklog,
    discarded: u64,
    done: u64,
    /// Of this process since its start.
    calls: Option<u64>,
    running_ms: Option<u64>,
}

impl<'a> LaneView<'a> {
    pub(super) fn new(lane: &'a LaneInfo, running: Option<&LaneStatus>) -> Self {
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            handler: &lane.handler,
            state: running.map(state_word),
            held: lane.held,
            event_types: &lane.event_types,
            on_dead_letter: &lane.on_dead_letter,
            cursor: lane.cursor,
            owner: lane.owner.as_deref(),
            owned_since: lane.owned_since.map(rfc3339),
            pause_reason: lane.pause_reason.as_deref(),
            backlog: LaneBacklog::from(lane),
            discarded: lane.exceptions.discarded,
            done: lane.exceptions.done,
            calls: running.map(|status| status.calls),
            running_ms: running.and_then(|status| status.running_for).map(millis),
        }
    }
}

pub(super) fn stats_json(stats: &OutboxStats, writer: &WriterStats, running: &[LaneStatus]) -> Value {
    let lane = |lane| LaneView::new(lane, running.iter().find(|status| status.handler == lane.handler));
    let lanes: Vec<LaneView<'_>> = stats.lanes.iter().map(lane).collect();
    let types: Vec<Value> = stats
        .types_without_lane
        .iter()
        .map(|(event_type, count)| json!({ "event_type": event_type, "count": count }))
        .collect();
    json!({
        "last_id": stats.last_id,
        "lanes": lanes,
        "types_without_lane": types,
        "queue": {
            "waiting_jobs": writer.waiting_jobs, "waiting_bytes": writer.waiting_bytes,
            "tasks": writer.tasks, "groups": writer.groups, "faults": writer.faults,
        },
    })
}
