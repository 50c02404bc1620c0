//! `outbox …`: the operator's view on the command line. Each command but `stats` has a module of its own.

use std::fmt::Display;
use std::path::Path;

use super::output::{Output, printable};
use super::{
    CliError, OutboxArgs, OutboxCommand, acts, exceptions, exit, invariants, json, lane_line, log_file, story,
    worker_ledger,
};
use crate::outbox::{LaneInfo, Operator, OwnerState};

/// Runs one of the commands on a database that exists.
pub(super) fn run(data: &Path, args: &OutboxArgs) -> Result<u8, CliError> {
    if let Some(file) = worker_ledger::file(data, args.database.as_deref()) {
        return worker_ledger::run(&file, &args.command);
    }
    let database = log_file::open(data, args.database.as_deref())?;
    let operator = Operator::new(&database);
    let mut out = Output::new();
    let out = &mut out;
    let done = match &args.command {
        OutboxCommand::Stats(args) => stats(&operator, args.json, out),
        OutboxCommand::List(args) => exceptions::list(&operator, args, database.clock().now_ms(), out),
        OutboxCommand::Show(args) => story::show(&operator, args, out),
        OutboxCommand::Trace(args) => story::trace(&operator, args, out),
        OutboxCommand::Replay(args) => acts::replay(&operator, args, out),
        OutboxCommand::Edit(args) => acts::edit(&operator, args, out),
        OutboxCommand::Discard(args) => acts::discard(&operator, args, out),
        OutboxCommand::Resume(args) => acts::resume(&operator, args, out),
        OutboxCommand::Check(args) => {
            let code = invariants::check(&database, args, out);
            log_file::close(&database)?;
            let code = code?;
            out.flush()?;
            return Ok(code);
        }
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
        if let Some(line) = lane_line::of(lane) {
            out.line(&line)?;
        }
    }
    for (event_type, count) in &stats.types_without_lane {
        out.line(&format!("no handler takes {}: {count} of the newest events", printable(event_type)))?;
    }
    Ok(())
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

/// What a lane does, as far as the database and its owner's lock file tell. Why stands in its line below the table.
pub(super) fn state_of(lane: &LaneInfo) -> String {
    if lane.held {
        return "held".to_owned();
    }
    let pid = lane.owner_pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    match (lane.owner_state, lane.paused_until) {
        (OwnerState::NoOwner, _) => "no owner".to_owned(),
        (OwnerState::Dead, _) => "owner dead: the next relay takes over".to_owned(),
        (OwnerState::Alive, Some(_)) => format!("paused{pid}"),
        (OwnerState::Alive, None) => format!("running{pid}"),
        _ => "owner unknown: its lock file is missing, replaced by a copy, or unreadable".to_owned(),
    }
}

fn unreadable(error: impl Display) -> CliError {
    CliError::failed(error.to_string())
}
