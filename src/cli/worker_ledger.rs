//! `outbox …` on a worker's database: the same commands over the ledger, which is where a worker keeps what failed.

mod check;
mod list;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};

use self::list::{MAX_LOOKED_AT, PAGE, Search, find, must_be_known};
use super::acts::read_stdin;
use super::log_file;
use super::operator_args::{DiscardArgs, EditArgs, ReplayArgs, ShowArgs};
use super::output::{Output, moment, printable, say};
use super::settings::DataDir;
use super::{CliError, OutboxCommand, exit, json as documents};
use crate::clock::rfc3339;
use crate::outbox::{LEDGER_COMPONENT, Ledger, LedgerActError, LedgerEntry, LedgerOptions, LedgerQuery, LedgerState};
use crate::storage::{Database, Options, TransactError};

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
        .and_then(|ledger| act(&ledger, file, command, &mut out));
    log_file::close(&database)?;
    let code = done?;
    out.flush()?;
    Ok(code)
}

/// The exit code.
fn act(ledger: &Ledger, file: &Path, command: &OutboxCommand, out: &mut Output) -> Result<u8, CliError> {
    match command {
        OutboxCommand::Stats(args) => stats(ledger, args.json, out),
        OutboxCommand::List(args) => list::list(ledger, args, out),
        OutboxCommand::Show(args) => show(ledger, args, out),
        OutboxCommand::Replay(args) => replay(ledger, args, out),
        OutboxCommand::Edit(args) => edit(ledger, args, out),
        OutboxCommand::Discard(args) => discard(ledger, args, out),
        OutboxCommand::Check(args) => return check::check(ledger, file, args, out),
        OutboxCommand::Trace(_) => Err(CliError::failed(
            "this is a worker's database, which keeps no event that went well: trace on the server that published them",
        )),
        OutboxCommand::Resume(_) => Err(CliError::failed(
            "this is a worker's database, where nothing is parked: a key goes on by itself once its event is a dead letter; \
             what holds it until then is in `outbox list --key KEY`, and `outbox discard` gives that up",
        )),
    }?;
    Ok(exit::OK)
}

fn show(ledger: &Ledger, args: &ShowArgs, out: &mut Output) -> Result<(), CliError> {
    let entries = ledger.show(&args.event).map_err(unreadable)?;
    if entries.is_empty() {
        return Err(CliError::failed(format!("the ledger knows no event {:?}", args.event)));
    }
    if args.shape.json {
        return documents::print(&entries.iter().map(document).collect(), out);
    }
    entries.iter().try_for_each(|entry| show_entry(entry, out))
}

fn show_entry(entry: &LedgerEntry, out: &mut Output) -> Result<(), CliError> {
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
        ledger
            .replay(event, handler, args.force)
            .map_err(|error| refused("replayed", ledger, event, handler, &error))?;
        if args.shape.json {
            return documents::print(&json!({ "handler": handler, "id": event, "replayed": 1, "left": 0 }), out);
        }
        out.line(&format!("event {} is due again for {}", printable(event), printable(handler)))?;
        return Ok(());
    }
    must_be_known(ledger, handler)?;
    let search =
        Search { handler: Some(handler), filter: &args.filter, states: &[LedgerState::DeadLetter], after: None };
    let (found, next) = find(ledger, &search, MAX_LOOKED_AT)?;
    let more = next.is_some();
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

fn edit(ledger: &Ledger, args: &EditArgs, out: &mut Output) -> Result<(), CliError> {
    let EditArgs { handler, event, payload, force, shape } = args;
    let payload = if payload == "-" { read_stdin()? } else { payload.clone() };
    let done = ledger.edit(event, handler, &payload, *force);
    done.map_err(|error| refused("edited", ledger, event, handler, &error))?;
    if shape.json {
        return documents::print(&json!({ "handler": handler, "id": event, "edited": true }), out);
    }
    out.line(&format!("event {} is due again for {}, with the new payload", printable(event), printable(handler)))?;
    Ok(())
}

fn discard(ledger: &Ledger, args: &DiscardArgs, out: &mut Output) -> Result<(), CliError> {
    let DiscardArgs { handler, event, reason, shape } = args;
    let done = ledger.discard(event, handler, reason);
    done.map_err(|error| refused("discarded", ledger, event, handler, &error))?;
    if shape.json {
        return documents::print(&json!({ "handler": handler, "id": event, "discarded": true }), out);
    }
    out.line(&format!("event {} is given up for {}", printable(event), printable(handler)))?;
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

fn refused(what: &str, ledger: &Ledger, event: &str, handler: &str, error: &TransactError<LedgerActError>) -> CliError {
    if let (TransactError::Task(LedgerActError::NotFound), Err(unknown)) = (error, must_be_known(ledger, handler)) {
        return unknown;
    }
    let hint = match error {
        TransactError::Task(LedgerActError::Superseded { .. } | LedgerActError::TooOften) => "; --force overrules that",
        TransactError::Task(LedgerActError::WrongState(LedgerState::Done)) => {
            "; a worker keeps no event that went well: `outbox replay nats EVENT --force` on the server sends it once more"
        }
        _ => "",
    };
    CliError::failed(format!("event {event:?} at {handler:?} was not {what}: {error}{hint}"))
}

fn unreadable(error: impl std::fmt::Display) -> CliError {
    CliError::failed(error.to_string())
}
