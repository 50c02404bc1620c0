//! `handler list`.

use std::path::Path;

use super::app::App;
use super::outbox::state_of;
use super::output::{Output, moment, printable};
use super::settings::DataDir;
use super::{CliError, exit};
use crate::outbox::{LaneInfo, Operator};

/// Every lane in the database, whoever made it.
pub(super) fn list(data: &Path) -> Result<u8, CliError> {
    let dir = DataDir::existing(data).map_err(CliError::Failed)?;
    let app = App::open(&dir)?;
    let stats = Operator::new(&app.database).stats();
    app.close()?;
    let stats = stats.map_err(|error| CliError::failed(error.to_string()))?;
    let rows: Vec<_> = stats.lanes.iter().map(row).collect();
    let mut out = Output::new();
    out.table(["HANDLER", "EVENTS", "ON DEAD LETTER", "CURSOR", "OWNER", "SINCE", "STATE"], &rows)?;
    out.flush()?;
    Ok(exit::OK)
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
