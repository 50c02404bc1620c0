//! `handler list|hold|release`.

use std::path::Path;

use super::outbox::state_of;
use super::output::{Output, moment, printable};
use super::{CliError, HandlerArgs, HandlerCommand, HandlersArgs, exit, json, log_file};
use crate::outbox::{LaneInfo, Operator};

/// Runs one of the commands on a database that exists.
pub(super) fn run(data: &Path, args: &HandlersArgs) -> Result<u8, CliError> {
    let database = log_file::open(data, args.database.as_deref())?;
    let operator = Operator::new(&database);
    let mut out = Output::new();
    let done = match &args.command {
        HandlerCommand::List(args) => list(&operator, args.json, &mut out),
        HandlerCommand::Hold(args) => hold(&operator, args, &mut out),
        HandlerCommand::Release(args) => release(&operator, args, &mut out),
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
    out.table(["HANDLER", "EVENTS", "ON DEAD LETTER", "CURSOR", "OWNER", "SINCE", "STATE"], &rows)?;
    Ok(())
}

fn hold(operator: &Operator, args: &HandlerArgs, out: &mut Output) -> Result<(), CliError> {
    let name = &args.name;
    operator.hold(name).map_err(|error| CliError::failed(format!("{name:?} was not held: {error}")))?;
    out.line(&format!("{} is held: it delivers nothing, and its events are kept, until its release", printable(name)))?;
    Ok(())
}

fn release(operator: &Operator, args: &HandlerArgs, out: &mut Output) -> Result<(), CliError> {
    let name = &args.name;
    operator.release(name).map_err(|error| CliError::failed(format!("{name:?} was not released: {error}")))?;
    out.line(&format!("{} is released: a running serve goes on with it, else the next one", printable(name)))?;
    Ok(())
}

fn row(lane: &LaneInfo) -> [String; 7] {
    [
        printable(&lane.handler),
        printable(&lane.event_types.join(",")),
        lane.on_dead_letter.clone(),
        lane.cursor.to_string(),
        lane.owner.clone().unwrap_or_else(|| "-".to_owned()),
        lane.owned_since.map_or_else(|| "-".to_owned(), moment),
        state_of(lane),
    ]
}
