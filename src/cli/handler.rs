//! `handler list|hold|release|rewind|rename|retire`.

use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::outbox::state_of;
use super::output::{Output, printable};
use super::{
    CliError, HandlerArgs, HandlerCommand, HandlersArgs, RenameArgs, RetireArgs, RewindArgs, exit, json, lane_line,
    log_file,
};
use crate::outbox::{HeldLane, HoldError, LaneInfo, MAX_COUNTED, Operator, OwnerState, RewindTo};
use crate::storage::TransactError;

/// Runs one of the commands on a database that exists.
pub(super) fn run(data: &Path, args: &HandlersArgs) -> Result<u8, CliError> {
    let database = log_file::open(data, args.database.as_deref())?;
    let operator = Operator::new(&database);
    let mut out = Output::new();
    let done = match &args.command {
        HandlerCommand::List(args) => list(&operator, args.json, &mut out),
        HandlerCommand::Hold(args) => hold(&operator, args, &mut out),
        HandlerCommand::Release(args) => release(&operator, args, &mut out),
        HandlerCommand::Rewind(args) => rewind(&operator, args, &mut out),
        HandlerCommand::Rename(args) => rename(&operator, args, &mut out),
        HandlerCommand::Retire(args) => retire(&operator, args, &mut out),
    };
    log_file::close(&database)?;
    done?;
    out.flush()?;
    Ok(exit::OK)
}

/// Every lane in the database, whoever made it.
fn list(operator: &Operator, as_json: bool, out: &mut Output) -> Result<(), CliError> {
    let stats = operator.stats().map_err(|error| CliError::failed(error.to_string()))?;
    if as_json {
        return json::print(&json::handlers(&stats), out);
    }
    let rows: Vec<_> = stats.lanes.iter().map(row).collect();
    out.table(["HANDLER", "CURSOR", "ON DEAD LETTER", "STATE", "EVENTS"], &rows)?;
    for line in stats.lanes.iter().filter_map(lane_line::of) {
        out.line(&line)?;
    }
    Ok(())
}

fn row(lane: &LaneInfo) -> [String; 5] {
    [
        printable(&lane.handler),
        lane.cursor.to_string(),
        lane.on_dead_letter.clone(),
        state_of(lane),
        printable(&lane.event_types.join(",")),
    ]
}

fn hold(operator: &Operator, args: &HandlerArgs, out: &mut Output) -> Result<(), CliError> {
    let name = &args.name;
    operator.hold(name).map_err(|error| CliError::failed(format!("{name:?} was not held: {error}")))?;
    if args.shape.json {
        return json::print(&json!({ "handler": name, "held": true }), out);
    }
    out.line(&format!("{} is held: it delivers nothing, and its events are kept, until its release", printable(name)))?;
    Ok(())
}

fn release(operator: &Operator, args: &HandlerArgs, out: &mut Output) -> Result<(), CliError> {
    let name = &args.name;
    operator.release(name).map_err(|error| CliError::failed(format!("{name:?} was not released: {error}")))?;
    if args.shape.json {
        return json::print(&json!({ "handler": name, "held": false }), out);
    }
    out.line(&format!("{} is released: a running relay goes on with it, else the next one", printable(name)))?;
    Ok(())
}

fn rewind(operator: &Operator, args: &RewindArgs, out: &mut Output) -> Result<(), CliError> {
    let name = &args.name;
    let to = match (&args.to, args.since) {
        (Some(event), _) => match event.parse() {
            Ok(id) => RewindTo::Id(id),
            Err(_) => RewindTo::Event(event.clone()),
        },
        (None, Some(time)) => RewindTo::Time(time),
        (None, None) => RewindTo::Start,
    };
    let lane = hold_and_wait(operator, name, args.wait, "rewound")?;
    let done = lane.rewind(&to);
    give_back(&lane)?;
    let done = done.map_err(|error| CliError::failed(format!("{name:?} was not rewound: {error}")))?;
    if args.shape.json {
        let (from, to, forgotten) = (done.from, done.to, done.done_forgotten);
        let document =
            json!({ "handler": name, "from": from, "to": to, "done_forgotten": forgotten, "held": lane.was_held() });
        return json::print(&document, out);
    }
    let (from, to) = (done.from, done.to);
    out.line(&format!("{} goes from {from} back to {to} and delivers again what comes after", printable(name)))?;
    still_held(&lane, out)
}

fn rename(operator: &Operator, args: &RenameArgs, out: &mut Output) -> Result<(), CliError> {
    let RenameArgs { name, new_name, wait, shape } = args;
    if let Some(why) = runs_now(operator, name, "with the new name in its settings")? {
        return Err(CliError::failed(format!("{name:?} was not renamed: {why}")));
    }
    let mut lane = hold_and_wait(operator, name, *wait, "renamed")?;
    let done = lane.rename(new_name);
    give_back(&lane)?;
    done.map_err(|error| CliError::failed(format!("{name:?} was not renamed: {error}")))?;
    if shape.json {
        return json::print(&json!({ "handler": new_name, "from": name, "held": lane.was_held() }), out);
    }
    out.line(&format!("{} is named {} now", printable(name), printable(new_name)))?;
    still_held(&lane, out)
}

fn retire(operator: &Operator, args: &RetireArgs, out: &mut Output) -> Result<(), CliError> {
    let RetireArgs { name, reason, wait, shape } = args;
    let refused = |error: String| CliError::failed(format!("{name:?} was not retired: {error}"));
    if let Some(why) = runs_now(operator, name, "without it in its settings")? {
        return Err(refused(why));
    }
    let (discarded, undelivered) = match operator.hold_and_wait(name, Duration::from_secs(*wait)) {
        Ok(lane) => {
            let done = lane.undelivered().and_then(|undelivered| Ok((lane.retire(reason)?, undelivered)));
            if done.is_err() {
                give_back(&lane)?;
            }
            done.map_err(|error| refused(error.to_string()))?
        }
        // What an earlier lane of that name left.
        Err(TransactError::Task(HoldError::NotFound)) => {
            let discarded = operator.discard_without_lane(name, reason).map_err(|error| refused(error.to_string()))?;
            if discarded == 0 {
                return Err(refused("the database knows no handler of that name: list them first".to_owned()));
            }
            (discarded, 0)
        }
        Err(error) => return Err(refused(error.to_string())),
    };
    if shape.json {
        let document = json!({ "handler": name, "discarded": discarded, "undelivered": undelivered });
        return json::print(&document, out);
    }
    let name = printable(name);
    let least = if undelivered >= u64::from(MAX_COUNTED) { "at least " } else { "" };
    out.line(&format!(
        "{name} is retired; failed events discarded with it: {discarded}; events of the log that it never got and gets \
         no more: {least}{undelivered}"
    ))?;
    Ok(())
}

/// Why a lane must not be taken away from a program that has its handler: that would deliver nothing more for it, and
/// nothing but its log would say so. A lane that nobody owns may be on its way back to such a program, after a rewind or
/// a release. One that is held was taken away on purpose.
///
/// `settings`: how the program is to be started again.
fn runs_now(operator: &Operator, name: &str, settings: &str) -> Result<Option<String>, CliError> {
    let lanes = operator.lanes().map_err(|error| CliError::failed(error.to_string()))?;
    let Some(lane) = lanes.iter().find(|lane| lane.handler == name && !lane.held) else { return Ok(None) };
    let pid = match lane.owner_state {
        OwnerState::Alive => lane.owner_pid,
        _ => match operator.living_relay(name).map_err(|error| CliError::failed(error.to_string()))? {
            None => return Ok(None),
            pid => pid,
        },
    };
    let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
    Ok(Some(format!(
        "a program that runs{pid} has that handler: stop it first, and start it {settings} (or `handler hold` the \
         handler, if the program is to go on without)"
    )))
}

fn hold_and_wait(operator: &Operator, name: &str, seconds: u64, what: &str) -> Result<HeldLane, CliError> {
    operator
        .hold_and_wait(name, Duration::from_secs(seconds))
        .map_err(|error| CliError::failed(format!("{name:?} was not {what}: {error}")))
}

fn give_back(lane: &HeldLane) -> Result<(), CliError> {
    let name = lane.handler();
    lane.give_back()
        .map_err(|error| CliError::failed(format!("{name:?} is still held (`handler release` ends that): {error}")))
}

fn still_held(lane: &HeldLane, out: &mut Output) -> Result<(), CliError> {
    if lane.was_held() {
        out.line(&format!("{} is still held, as before", printable(lane.handler())))?;
    }
    Ok(())
}
