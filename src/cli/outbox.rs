//! `outbox stats|list|show|replay|discard`: the operator's view on the command line.

use std::fmt::Display;
use std::path::Path;

use super::output::{Output, moment, printable};
use super::{CliError, DiscardArgs, OutboxArgs, OutboxCommand, ReplayArgs, ShowArgs, exceptions, exit, json, log_file};
use crate::outbox::{EventStory, LaneInfo, Operator, OwnerState, ReplayError};
use crate::storage::TransactError;

/// Runs one of the commands on a database that exists.
pub(super) fn run(data: &Path, args: &OutboxArgs) -> Result<u8, CliError> {
    let database = log_file::open(data, args.database.as_deref())?;
    let operator = Operator::new(&database);
    let mut out = Output::new();
    let done = match &args.command {
        OutboxCommand::Stats(args) => stats(&operator, args.json, &mut out),
        OutboxCommand::List(args) => exceptions::list(&operator, args, &mut out),
        OutboxCommand::Show(args) => show(&operator, args, &mut out),
        OutboxCommand::Replay(args) => replay(&operator, args, &mut out),
        OutboxCommand::Discard(args) => discard(&operator, args, &mut out),
    };
    log_file::close(&database)?;
    done?;
    out.flush()?;
    Ok(exit::OK)
}

fn stats(operator: &Operator, as_json: bool, out: &mut Output) -> Result<(), CliError> {
    let stats = operator.stats().map_err(unreadable)?;
    if as_json {
        return json::print(&json::stats(&stats), out);
    }
    out.line(&format!("newest event {}", stats.last_id))?;
    let rows: Vec<_> = stats.lanes.iter().map(stats_row).collect();
    out.table(["HANDLER", "CURSOR", "BEHIND", "OLDEST", "RETRY", "WAITING", "PARKED", "DEAD", "STATE"], &rows)?;
    for lane in &stats.lanes {
        if let Some(line) = kept_for(lane) {
            out.line(&line)?;
        }
    }
    for (event_type, count) in &stats.types_without_lane {
        out.line(&format!("no handler takes {}: {count} of the newest events", printable(event_type)))?;
    }
    Ok(())
}

/// A lane that nobody runs keeps the log from being pruned.
fn kept_for(lane: &LaneInfo) -> Option<String> {
    let who = match lane.owner_state {
        OwnerState::Alive => return None,
        _ if lane.held => "is held",
        OwnerState::Dead => "has a dead owner",
        _ => "has no owner",
    };
    let (name, count) = (printable(&lane.handler), behind(lane));
    (lane.lag_events > 0).then(|| format!("lane {name} {who}: {count} events are kept for it"))
}

fn behind(lane: &LaneInfo) -> String {
    lane.lag_events.to_string()
}

fn stats_row(lane: &LaneInfo) -> [String; 9] {
    let behind = behind(lane);
    let open = &lane.exceptions;
    let undelivered = lane.lag_events > 0 || open.retry + open.waiting + open.parked > 0;
    let oldest = lane.lag_ms.max(lane.open_ms) / 1_000;
    let oldest = if undelivered { format!("{oldest} s") } else { "-".to_owned() };
    let counts = [open.retry, open.waiting, open.parked, open.dead_letter].map(|count| count.to_string());
    let [retry, waiting, parked, dead] = counts;
    let cursor = lane.cursor.to_string();
    [printable(&lane.handler), cursor, behind, oldest, retry, waiting, parked, dead, state_of(lane)]
}

/// What a lane does, as far as the database and its owner's lock file tell.
pub(super) fn state_of(lane: &LaneInfo) -> String {
    if lane.held {
        return "held".to_owned();
    }
    let pid = lane.owner_pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    match (lane.owner_state, lane.paused_until) {
        (OwnerState::NoOwner, _) => "no owner".to_owned(),
        (OwnerState::Dead, _) => "owner dead: the next serve takes over".to_owned(),
        (OwnerState::Alive, Some(until)) => {
            let reason = printable(lane.pause_reason.as_deref().unwrap_or_default());
            format!("paused until {}: {reason}{pid}", moment(until))
        }
        (OwnerState::Alive, None) => format!("running{pid}"),
        _ => "owner unknown: its lock file is missing or unreadable".to_owned(),
    }
}

fn show(operator: &Operator, args: &ShowArgs, out: &mut Output) -> Result<(), CliError> {
    let story = operator.show(&args.event).map_err(unreadable)?;
    let Some(story) = story else {
        return Err(CliError::failed(format!("neither the log nor an exception knows an event {:?}", args.event)));
    };
    show_event(&story, out)?;
    let lanes: Vec<_> = story.lanes.iter().map(|(lane, state)| [printable(lane), state.clone()]).collect();
    out.table(["HANDLER", "STATE"], &lanes)?;
    for exception in &story.exceptions {
        out.line("")?;
        let calls = exception.attempts;
        out.line(&format!("{}  failed calls: {calls}  replays: {}", printable(&exception.handler), exception.replays))?;
        if let Some(at) = exception.next_attempt_at {
            out.line(&format!("  next try at {}", moment(at)))?;
        }
        for entry in &exception.history {
            out.line(&format!("  {}  {}  {}", moment(entry.at), printable(&entry.what), printable(&entry.reason)))?;
        }
    }
    Ok(())
}

fn show_event(story: &EventStory, out: &mut Output) -> Result<(), CliError> {
    if let Some(event) = &story.event {
        let dash = |text: &Option<String>| printable(text.as_deref().unwrap_or("-"));
        out.line(&format!("id           {}", event.id))?;
        out.line(&format!("event_id     {}", printable(&event.event_id)))?;
        out.line(&format!("type         {}", printable(&event.event_type)))?;
        out.line(&format!("key          {}", dash(&event.key)))?;
        out.line(&format!("occurred     {}", moment(event.occurred_at)))?;
        out.line(&format!("correlation  {}", dash(&event.correlation_id)))?;
        out.line(&format!("causation    {}", dash(&event.causation_id)))?;
        out.line(&format!("payload      {}", printable(&event.payload)))?;
    } else {
        let why = story.undecodable.as_deref().unwrap_or("the log no longer holds it");
        out.line(&format!("the event cannot be shown: {}", printable(why)))?;
    }
    out.line("")?;
    Ok(())
}

fn replay(operator: &Operator, args: &ReplayArgs, out: &mut Output) -> Result<(), CliError> {
    let Some(event) = &args.event else {
        let (replayed, left) = operator.replay_all(Some(&args.handler)).map_err(|e| CliError::failed(e.to_string()))?;
        let left = if left == 0 { String::new() } else { format!(", left: {left} (they need --force)") };
        out.line(&format!("{}: due again: {replayed}{left}", printable(&args.handler)))?;
        return Ok(());
    };
    let id = position(operator, event)?;
    operator.replay(id, &args.handler, args.force).map_err(|error| refused(id, &args.handler, error))?;
    out.line(&format!("event {id} is due again for {}", printable(&args.handler)))?;
    Ok(())
}

fn refused(id: i64, handler: &str, error: TransactError<ReplayError>) -> CliError {
    let hint = match &error {
        TransactError::Task(ReplayError::Superseded { .. } | ReplayError::TooOften) => "; --force overrules that",
        _ => "",
    };
    CliError::failed(format!("event {id} at {handler:?} was not replayed: {error}{hint}"))
}

fn discard(operator: &Operator, args: &DiscardArgs, out: &mut Output) -> Result<(), CliError> {
    let DiscardArgs { handler, event, reason } = args;
    let id = position(operator, event)?;
    operator
        .discard(id, handler, reason)
        .map_err(|error| CliError::failed(format!("event {id} at {handler:?} was not discarded: {error}")))?;
    out.line(&format!("event {id} is given up for {}; the next of its key goes on", printable(handler)))?;
    Ok(())
}

/// The log position of an event that is named by it or by its event id.
fn position(operator: &Operator, event: &str) -> Result<i64, CliError> {
    if let Ok(id) = event.parse() {
        return Ok(id);
    }
    let story = operator.show(event).map_err(unreadable)?;
    let of_event = |story: &EventStory| story.event.as_ref().map(|event| event.id);
    let id = story.and_then(|story| of_event(&story).or_else(|| Some(story.exceptions.first()?.outbox_id)));
    id.ok_or_else(|| CliError::failed(format!("the log knows no event {event:?}: name its number or its event id")))
}

fn unreadable(error: impl Display) -> CliError {
    CliError::failed(error.to_string())
}
