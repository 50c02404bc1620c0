//! `outbox list`: the events that failed or wait.

use super::output::{Output, moment, printable, say};
use super::{CliError, ListArgs, json};
use crate::outbox::{ExceptionCursor, ExceptionInfo, ExceptionState, Filter, Operator};

pub(super) fn list(operator: &Operator, args: &ListArgs, out: &mut Output) -> Result<(), CliError> {
    if let Some(handler) = &args.handler {
        must_be_known(operator, handler)?;
    }
    let found = find(operator, args)?;
    if args.json {
        return json::print(&json::exceptions(&found), out);
    }
    if found.is_empty() {
        out.flush()?;
        say(if args.state.is_none() && args.after.is_none() { "nothing failed and nothing waits" } else { "none" });
        return Ok(());
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    out.table(["HANDLER", "ID", "STATE", "KEY", "FAILED CALLS", "REPLAYS", "SINCE", "REASON"], &rows)?;
    Ok(())
}

fn find(operator: &Operator, args: &ListArgs) -> Result<Vec<ExceptionInfo>, CliError> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let states = args.state.map_or(ExceptionState::UNDONE.to_vec(), |state| vec![state.into()]);
    let mut filter = Filter::states(states);
    filter.handler.clone_from(&args.handler);
    let after = args.handler.clone().zip(args.after).map(|(handler, id)| ExceptionCursor::after(handler, id));
    let page = operator.exceptions(&filter, after.as_ref(), limit).map_err(|e| CliError::failed(e.to_string()))?;
    Ok(page.exceptions)
}

fn must_be_known(operator: &Operator, handler: &str) -> Result<(), CliError> {
    let lanes = operator.stats().map_err(|error| CliError::failed(error.to_string()))?.lanes;
    if lanes.iter().any(|lane| lane.handler == handler) {
        return Ok(());
    }
    let known: Vec<&str> = lanes.iter().map(|lane| lane.handler.as_str()).collect();
    let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    Err(CliError::failed(format!("the database knows no handler {handler:?}; known: {known}")))
}

fn row(info: &ExceptionInfo) -> [String; 8] {
    [
        printable(&info.handler),
        info.outbox_id.to_string(),
        info.state.to_string(),
        printable(info.key.as_deref().unwrap_or("-")),
        info.attempts.to_string(),
        info.replays.to_string(),
        moment(info.updated_at),
        note(info),
    ]
}

fn note(info: &ExceptionInfo) -> String {
    let mut note = printable(info.reason.as_deref().unwrap_or("-"));
    if let Some(by) = info.superseded_by {
        note.push_str(&format!(" (superseded by {by})"));
    }
    note
}
