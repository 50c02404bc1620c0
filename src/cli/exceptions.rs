//! `outbox list`: the events that failed or wait.

use super::output::{Output, age, printable, say};
use super::{CliError, FilterArgs, ListArgs, json};
use crate::outbox::{ExceptionCursor, ExceptionInfo, ExceptionState, Filter, Operator};

/// Pages that are read to fill one list: a filter that little fits ends a page early.
const MAX_PAGES: usize = 100;

/// `now` in milliseconds since the Unix epoch, to tell ages.
pub(super) fn list(operator: &Operator, args: &ListArgs, now: i64, out: &mut Output) -> Result<(), CliError> {
    if let Some(handler) = &args.handler {
        must_be_known(operator, handler)?;
    }
    let (found, next) = find(operator, args)?;
    if args.shape.json {
        return json::print(&json::exceptions(&found, next.as_ref()), out);
    }
    if !found.is_empty() {
        let rows: Vec<_> = found.iter().map(|info| row(info, now)).collect();
        out.table(["HANDLER", "ID", "STATE", "KEY", "CALLS", "REPLAYS", "AGE", "REASON"], &rows)?;
    }
    out.flush()?;
    match next {
        Some(next) => say(&format!("there may be more: --after {next}")),
        None if !found.is_empty() => {}
        None if args.filter.is_empty() && args.after.is_none() => say("nothing failed and nothing waits"),
        None => say("none"),
    }
    Ok(())
}

/// By handler and position in the log, whatever the state.
fn find(operator: &Operator, args: &ListArgs) -> Result<(Vec<ExceptionInfo>, Option<ExceptionCursor>), CliError> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let filter = args.filter.filter(args.handler.as_deref(), &ExceptionState::UNDONE);
    let mut place = args.after.as_deref().map(|text| place(text, args.handler.as_deref())).transpose()?;
    let mut found = Vec::new();
    for _ in 0..MAX_PAGES {
        let page = operator
            .exceptions(&filter, place.as_ref(), limit - found.len())
            .map_err(|error| CliError::failed(error.to_string()))?;
        found.extend(page.exceptions);
        place = page.next;
        if place.is_none() || found.len() >= limit {
            break;
        }
    }
    Ok((found, place))
}

fn place(text: &str, handler: Option<&str>) -> Result<ExceptionCursor, CliError> {
    match (text.parse(), handler) {
        (Ok(id), Some(handler)) => Ok(ExceptionCursor::after(handler, id)),
        _ => text.parse().map_err(CliError::Usage),
    }
}

impl FilterArgs {
    /// In `states` unless the arguments name one.
    pub(super) fn filter(&self, handler: Option<&str>, states: &[ExceptionState]) -> Filter {
        let states = self.state.map_or_else(|| states.to_vec(), |state| vec![state.into()]);
        let mut filter = Filter::states(states);
        filter.handler = handler.map(str::to_owned);
        filter.event_type.clone_from(&self.event_type);
        filter.key.clone_from(&self.key);
        filter.reason.clone_from(&self.reason);
        (filter.older_than, filter.newer_than) = (self.older_than, self.newer_than);
        filter
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { event_type, key, reason, older_than, newer_than, state } = self;
        let texts = [event_type, key, reason];
        texts.iter().all(|text| text.is_none()) && older_than.is_none() && newer_than.is_none() && state.is_none()
    }
}

/// So that a name with a slip in it is called that.
pub(super) fn must_be_known(operator: &Operator, handler: &str) -> Result<(), CliError> {
    let lanes = operator.lanes().map_err(|error| CliError::failed(error.to_string()))?;
    if lanes.iter().any(|lane| lane.handler == handler) {
        return Ok(());
    }
    let known: Vec<&str> = lanes.iter().map(|lane| lane.handler.as_str()).collect();
    let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    Err(CliError::failed(format!("the database knows no handler {handler:?}; known: {known}")))
}

fn row(info: &ExceptionInfo, now: i64) -> [String; 8] {
    [
        printable(&info.handler),
        info.outbox_id.to_string(),
        info.state.to_string(),
        printable(info.key.as_deref().unwrap_or("-")),
        info.attempts.to_string(),
        info.replays.to_string(),
        age(now.saturating_sub(info.created_at)),
        note(info),
    ]
}

fn note(info: &ExceptionInfo) -> String {
    let reason = printable(info.reason.as_deref().unwrap_or("-"));
    match info.superseded_by {
        Some(by) => format!("(superseded by {by}) {reason}"),
        None => reason,
    }
}
