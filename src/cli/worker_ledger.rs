//! `outbox …` on a worker's database: the same commands over the ledger, which is where a worker keeps what failed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use super::log_file;
use super::operator_args::{FilterArgs, ListArgs, ReplayArgs};
use super::output::{Output, moment, printable, say};
use super::settings::{DataDir, ListState};
use super::{CliError, OutboxCommand, exit, json as documents};
use crate::clock::rfc3339;
use crate::outbox::{
    EventFilter, LEDGER_COMPONENT, Ledger, LedgerActError, LedgerEntry, LedgerOptions, LedgerQuery, LedgerState,
};
use crate::storage::{Database, Options, TransactError};

/// Entries looked at for one list, at most; with a filter that little fits, the rest is another page.
const MAX_LOOKED_AT: usize = 100_000;
/// Entries read at once.
const PAGE: usize = 500;
/// How long the look at a file may wait for its writer.
const LOOK: Duration = Duration::from_secs(10);

/// The worker's database that is meant, if one is.
pub(super) fn file(data: &Path, named: Option<&Path>) -> Option<PathBuf> {
    let dir_file = DataDir::existing(data).is_err().then(|| data.join("worker.db"));
    let file = named.map(Path::to_owned).or(dir_file)?;
    (file.is_file() && holds_a_ledger_alone(&file).unwrap_or(false)).then_some(file)
}

fn holds_a_ledger_alone(file: &Path) -> rusqlite::Result<bool> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(LOOK)?;
    let has = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
    let has = |table: &str| connection.query_row(has, [table], |row| row.get::<_, bool>(0));
    Ok(has("processed_events")? && !has("event_outbox")?)
}

/// Runs the command.
pub(super) fn run(file: &Path, command: &OutboxCommand) -> Result<u8, CliError> {
    let failed = |error: &dyn std::fmt::Display| CliError::failed(format!("{}: {error}", file.display()));
    let database = Database::open(file, &[LEDGER_COMPONENT], Options::default()).map_err(|error| failed(&error))?;
    let mut out = Output::new();
    let done = Ledger::new(&database, LedgerOptions::default())
        .map_err(|error| failed(&error))
        .and_then(|ledger| act(&ledger, command, &mut out));
    log_file::close(&database)?;
    done?;
    out.flush()?;
    Ok(exit::OK)
}

fn act(ledger: &Ledger, command: &OutboxCommand, out: &mut Output) -> Result<(), CliError> {
    match command {
        OutboxCommand::List(args) => list(ledger, args, out),
        OutboxCommand::Show(args) => {
            let entries = ledger.show(&args.event).map_err(unreadable)?;
            if entries.is_empty() {
                return Err(CliError::failed(format!("the ledger knows no event {:?}", args.event)));
            }
            if args.shape.json {
                return documents::print(&entries.iter().map(document).collect(), out);
            }
            entries.iter().try_for_each(|entry| show(entry, out))
        }
        OutboxCommand::Replay(args) => replay(ledger, args, out),
        OutboxCommand::Discard(args) => {
            ledger
                .discard(&args.event, &args.handler, &args.reason)
                .map_err(|error| refused("discarded", &args.event, &args.handler, &error))?;
            if args.shape.json {
                return documents::print(&json!({ "handler": args.handler, "id": args.event, "discarded": true }), out);
            }
            out.line(&format!("event {} is given up for {}", printable(&args.event), printable(&args.handler)))?;
            Ok(())
        }
        OutboxCommand::Stats(args) => stats(ledger, args.json, out),
        _ => {
            Err(CliError::failed("this is a worker's database: it has `list`, `show`, `replay`, `discard` and `stats`"))
        }
    }
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

/// Entries by state, handler and event id.
fn find(
    ledger: &Ledger,
    (handler, filter, default): (Option<&str>, &FilterArgs, &[LedgerState]),
    limit: usize,
) -> Result<(Vec<LedgerEntry>, bool), CliError> {
    let wanted = Wanted::new(filter);
    let (mut found, mut looked_at) = (Vec::new(), 0);
    for state in wanted.states(default)? {
        let mut query = LedgerQuery::default();
        (query.state, query.handler, query.limit) = (state, handler.map(str::to_owned), PAGE);
        loop {
            let page = ledger.entries(&query).map_err(unreadable)?;
            looked_at += page.len();
            let Some(last) = page.last() else { break };
            query.after = Some(last.place.clone());
            found.extend(page.into_iter().filter(|entry| wanted.takes(entry)));
            if found.len() > limit || looked_at >= MAX_LOOKED_AT {
                found.truncate(limit);
                return Ok((found, true));
            }
        }
    }
    Ok((found, false))
}

fn list(ledger: &Ledger, args: &ListArgs, out: &mut Output) -> Result<(), CliError> {
    if args.after.is_some() {
        return Err(CliError::Usage("--after is not for a worker's database: narrow the list with its filters".into()));
    }
    let undone = [LedgerState::DeadLetter, LedgerState::InProgress, LedgerState::Retry];
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let (found, more) = find(ledger, (args.handler.as_deref(), &args.filter, &undone), limit)?;
    if args.shape.json {
        let document = json!({ "exceptions": found.iter().map(document).collect::<Vec<_>>(), "more": more });
        return documents::print(&document, out);
    }
    if !found.is_empty() {
        let rows: Vec<_> = found.iter().map(row).collect();
        out.table(["HANDLER", "EVENT", "STATE", "KEY", "CALLS", "REPLAYS", "REASON"], &rows)?;
    }
    out.flush()?;
    match (found.is_empty(), more) {
        (_, true) => say("there may be more: narrow the list, or raise --limit"),
        (true, false) => say("nothing failed and nothing waits"),
        (false, false) => {}
    }
    Ok(())
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

fn show(entry: &LedgerEntry, out: &mut Output) -> Result<(), CliError> {
    let (name, state) = (printable(&entry.handler), entry.state);
    out.line(&format!("{name}  {state}  failed calls: {}  replays: {}", entry.attempts, entry.replays))?;
    if let Some(event) = &entry.event {
        let key = printable(event.key.as_deref().unwrap_or("-"));
        out.line(&format!("  {}  key {key}  {}", printable(&event.event_type), printable(&event.payload)))?;
    }
    for step in &entry.history {
        out.line(&format!("  {}  {}  {}", moment(step.at), printable(&step.what), printable(&step.reason)))?;
    }
    Ok(())
}

fn document(entry: &LedgerEntry) -> Value {
    json!({
        "handler": entry.handler,
        "event_id": entry.event_id,
        "event_type": entry.event.as_ref().map(|event| &event.event_type),
        "payload": entry.event.as_ref().map(|event| &event.payload),
        "key": entry.key,
        "state": entry.state.to_string(),
        "attempts": entry.attempts,
        "crashes": entry.crashes,
        "replays": entry.replays,
        "next_attempt_at": entry.next_attempt_at.map(rfc3339),
        "reason": entry.reason,
        "history": entry.history.iter()
            .map(|step| json!({ "at": rfc3339(step.at), "what": step.what, "reason": step.reason }))
            .collect::<Vec<_>>(),
    })
}

fn replay(ledger: &Ledger, args: &ReplayArgs, out: &mut Output) -> Result<(), CliError> {
    let handler = &args.handler;
    if let Some(event) = &args.event {
        ledger.replay(event, handler, args.force).map_err(|error| refused("replayed", event, handler, &error))?;
        if args.shape.json {
            return documents::print(&json!({ "handler": handler, "id": event, "replayed": 1, "left": 0 }), out);
        }
        out.line(&format!("event {} is due again for {}", printable(event), printable(handler)))?;
        return Ok(());
    }
    let (found, more) = find(ledger, (Some(handler), &args.filter, &[LedgerState::DeadLetter]), MAX_LOOKED_AT)?;
    let (mut replayed, mut left) = (0, 0);
    for entry in found {
        match ledger.replay(&entry.event_id, handler, args.force) {
            Ok(()) => replayed += 1,
            Err(TransactError::Task(LedgerActError::Sqlite(error))) => return Err(unreadable(error)),
            Err(TransactError::Task(_)) => left += 1,
            Err(error) => return Err(unreadable(error)),
        }
    }
    if args.shape.json {
        let document = json!({ "handler": handler, "id": null, "replayed": replayed, "left": left, "more": more });
        return documents::print(&document, out);
    }
    let left = if left == 0 { String::new() } else { format!(", left: {left} (they need --force)") };
    out.line(&format!("{}: due again: {replayed}{left}", printable(handler)))?;
    if more {
        out.flush()?;
        say("there may be more: replay again");
    }
    Ok(())
}

fn stats(ledger: &Ledger, as_json: bool, out: &mut Output) -> Result<(), CliError> {
    let begun = Instant::now();
    let mut counts = std::collections::BTreeMap::<String, [u64; 3]>::new();
    // There was no time to count them all.
    let mut more = false;
    for (place, state) in [LedgerState::InProgress, LedgerState::Retry, LedgerState::DeadLetter].into_iter().enumerate()
    {
        let mut query = LedgerQuery::default();
        (query.state, query.limit) = (state, PAGE);
        loop {
            if begun.elapsed() >= LOOK {
                more = true;
                break;
            }
            let page = ledger.entries(&query).map_err(unreadable)?;
            let Some(last) = page.last() else { break };
            query.after = Some(last.place.clone());
            page.iter().for_each(|entry| counts.entry(entry.handler.clone()).or_default()[place] += 1);
        }
    }
    if as_json {
        let lane = |(handler, [running, retry, dead]): (&String, &[u64; 3])| json!({ "handler": handler, "running": running, "retry": retry, "dead_letter": dead });
        return documents::print(
            &json!({ "handlers": counts.iter().map(lane).collect::<Vec<_>>(), "more": more }),
            out,
        );
    }
    let row = |(handler, [running, retry, dead]): (&String, &[u64; 3])| {
        [printable(handler), running.to_string(), retry.to_string(), dead.to_string()]
    };
    out.table(["HANDLER", "RUNNING", "RETRY", "DEAD"], &counts.iter().map(row).collect::<Vec<_>>())?;
    if more {
        out.flush()?;
        say("there are more: counting them all would take too long");
    }
    Ok(())
}

fn refused(what: &str, event: &str, handler: &str, error: &TransactError<LedgerActError>) -> CliError {
    let hint = match error {
        TransactError::Task(LedgerActError::Superseded { .. } | LedgerActError::TooOften) => "; --force overrules that",
        _ => "",
    };
    CliError::failed(format!("event {event:?} at {handler:?} was not {what}: {error}{hint}"))
}

fn unreadable(error: impl std::fmt::Display) -> CliError {
    CliError::failed(error.to_string())
}
