//! `outbox list` of a worker's database, and what else asks for entries by filter.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;

use super::{document, documents, unreadable};
use crate::cli::CliError;
use crate::cli::operator_args::{FilterArgs, ListArgs};
use crate::cli::output::{Output, printable, say};
use crate::cli::settings::ListState;
use crate::outbox::{EventFilter, Ledger, LedgerEntry, LedgerPlace, LedgerQuery, LedgerState};

/// Entries looked at for one list, at most; with a filter that little fits, the rest is another page.
pub(super) const MAX_LOOKED_AT: usize = 100_000;
/// Entries read at once.
pub(super) const PAGE: usize = 500;

pub(super) fn list(ledger: &Ledger, args: &ListArgs, out: &mut Output) -> Result<(), CliError> {
    let undone = [LedgerState::DeadLetter, LedgerState::InProgress, LedgerState::Retry];
    let handler = args.handler.as_deref();
    handler.map_or(Ok(()), |handler| must_be_known(ledger, handler))?;
    let after = args.after.as_deref().map(|text| place(text, handler)).transpose()?;
    let search = Search { handler, filter: &args.filter, states: &undone, after };
    let (found, next) = find(ledger, &search, usize::try_from(args.limit).unwrap_or(usize::MAX))?;
    if args.shape.json {
        let next = next.map(|place| place.to_string());
        let entries: Vec<_> = found.iter().map(document).collect();
        return documents::print(&json!({ "exceptions": entries, "more": next.is_some(), "next": next }), out);
    }
    if !found.is_empty() {
        let rows: Vec<_> = found.iter().map(row).collect();
        out.table(["HANDLER", "EVENT", "STATE", "KEY", "CALLS", "REPLAYS", "REASON"], &rows)?;
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

/// So that a name with a slip in it is called that.
pub(super) fn must_be_known(ledger: &Ledger, handler: &str) -> Result<(), CliError> {
    let known = ledger.handlers().map_err(unreadable)?;
    if known.iter().any(|name| name == handler) {
        return Ok(());
    }
    let known = if known.is_empty() { "none yet".to_owned() } else { known.join(", ") };
    Err(CliError::failed(format!("the ledger knows no handler {handler:?}; known: {known}")))
}

/// With a handler the event's id will do.
fn place(text: &str, handler: Option<&str>) -> Result<LedgerPlace, CliError> {
    match handler {
        Some(handler) if !text.contains('@') => Ok(LedgerPlace::after(handler, text)),
        _ => text.parse().map_err(CliError::Usage),
    }
}

fn row(entry: &LedgerEntry) -> [String; 7] {
    let text = |text: &Option<String>| printable(text.as_deref().unwrap_or("-"));
    [
        printable(&entry.handler),
        printable(&entry.event_id),
        entry.state.to_string(),
        text(&entry.key),
        entry.attempts.to_string(),
        entry.replays.to_string(),
        text(&entry.reason),
    ]
}

/// Entries of some states, merged in the order of their places.
struct Merge<'a> {
    ledger: &'a Ledger,
    states: Vec<Pages>,
}

/// The entries of one state, read a page at a time.
struct Pages {
    query: LedgerQuery,
    page: VecDeque<LedgerEntry>,
    is_last: bool,
}

impl Pages {
    fn fill(&mut self, ledger: &Ledger) -> Result<(), CliError> {
        if self.page.is_empty() && !self.is_last {
            self.page = ledger.entries(&self.query).map_err(unreadable)?.into();
            self.is_last = self.page.len() < PAGE;
            if let Some(last) = self.page.back() {
                self.query.after = Some(last.place.clone());
            }
        }
        Ok(())
    }
}

impl Merge<'_> {
    fn next(&mut self) -> Result<Option<LedgerEntry>, CliError> {
        for pages in &mut self.states {
            pages.fill(self.ledger)?;
        }
        let begun = self.states.iter_mut().filter(|pages| !pages.page.is_empty());
        let first = begun.min_by(|one, other| one.page[0].place.cmp(&other.page[0].place));
        Ok(first.and_then(|pages| pages.page.pop_front()))
    }
}

/// Which entries to look for.
pub(super) struct Search<'a> {
    pub(super) handler: Option<&'a str>,
    pub(super) filter: &'a FilterArgs,
    /// Unless the filter names one.
    pub(super) states: &'a [LedgerState],
    pub(super) after: Option<LedgerPlace>,
}

/// Up to `limit` entries by handler and event id, whatever their state, and where the next page begins if there may be one.
pub(super) fn find(
    ledger: &Ledger,
    search: &Search<'_>,
    limit: usize,
) -> Result<(Vec<LedgerEntry>, Option<LedgerPlace>), CliError> {
    let wanted = Wanted::new(search.filter);
    let pages = |state| {
        let mut query = LedgerQuery::default();
        (query.state, query.handler, query.limit) = (state, search.handler.map(str::to_owned), PAGE);
        query.after.clone_from(&search.after);
        Pages { query, page: VecDeque::new(), is_last: false }
    };
    let mut merge = Merge { ledger, states: wanted.states(search.states)?.into_iter().map(pages).collect() };
    let (mut found, mut looked_at, mut last) = (Vec::new(), 0, None);
    while let Some(entry) = merge.next()? {
        if found.len() >= limit || looked_at >= MAX_LOOKED_AT {
            return Ok((found, last));
        }
        looked_at += 1;
        last = Some(entry.place.clone());
        if wanted.takes(&entry) {
            found.push(entry);
        }
    }
    Ok((found, None))
}

/// What the arguments let through.
struct Wanted<'a> {
    filter: &'a FilterArgs,
    types: Option<EventFilter>,
    now: i64,
}

impl<'a> Wanted<'a> {
    fn new(filter: &'a FilterArgs) -> Self {
        let types = filter.event_type.clone().map(|pattern| EventFilter::Types(vec![pattern]));
        let clock = crate::clock::SystemClock::shared();
        Self { filter, types, now: clock.now_ms() }
    }

    fn takes(&self, entry: &LedgerEntry) -> bool {
        let of_type = |types: &EventFilter| entry.event.as_ref().is_some_and(|event| types.matches(&event.event_type));
        let says = |text: &String| {
            let reason = entry.reason.as_deref().unwrap_or_default().to_lowercase();
            reason.contains(&text.to_lowercase())
        };
        let age = Duration::from_millis(u64::try_from(self.now.saturating_sub(entry.created_at)).unwrap_or(0));
        self.types.as_ref().is_none_or(of_type)
            && self.filter.key.as_ref().is_none_or(|key| entry.key.as_ref() == Some(key))
            && self.filter.reason.as_ref().is_none_or(says)
            && self.filter.older_than.is_none_or(|limit| age > limit)
            && self.filter.newer_than.is_none_or(|limit| age <= limit)
    }

    fn states(&self, default: &[LedgerState]) -> Result<Vec<LedgerState>, CliError> {
        Ok(match self.filter.state {
            None => default.to_vec(),
            Some(ListState::DeadLetter) => vec![LedgerState::DeadLetter],
            Some(ListState::Retry) => vec![LedgerState::Retry],
            Some(ListState::Discarded) => vec![LedgerState::Discarded],
            Some(_) => {
                let reason = "a worker's database lists what is dead_letter, retry or discarded";
                return Err(CliError::Usage(reason.to_owned()));
            }
        })
    }
}
