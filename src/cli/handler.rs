//! `handler list|hold|release`.

use std::path::Path;

use super::app::App;
use super::outbox::state_of;
use super::output::{Output, moment, printable};
use super::settings::DataDir;
use super::{CliError, HandlerArgs, HandlerCommand, exit};
use crate::outbox::{LaneInfo, Operator};

/// Runs one of the commands on a database that exists.
pub(super) fn run(data: &Path, command: &HandlerCommand) -> Result<u8, CliError> {
    let dir = DataDir::existing(data).map_err(CliError::Failed)?;
    let app = App::open(&dir)?;
    let operator = Operator::new(&app.database);
    let mut out = Output::new();
    let done = match command {
        HandlerCommand::List => list(&operator, &mut out),
        HandlerCommand::Hold(args) => hold(&operator, args, &mut out),
        HandlerCommand::Release(args) => release(&operator, args, &mut out),
    };
    app.close()?;
    done?;
    out.flush()?;
    Ok(exit::OK)
}

/// Every lane in the database, whoever made it.
fn list(operator: &Operator, out: &mut Output) -> Result<(), CliError> {
    let stats = operator.stats().map_err(|error| CliError::failed(error.to_string()))?;
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
