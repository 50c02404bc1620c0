//! Opening the database that holds an outbox, for the operator's commands.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::CliError;
use super::app;
use super::settings::DataDir;
use crate::outbox;
use crate::storage::{Database, Options};

/// How long a command waits at its end for what was accepted to be written.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// The database named by `file`, of whatever program, else the articles' in the folder `data`. It must be there.
///
/// # Errors
/// There is none, it cannot be opened, or `file` holds no outbox (and is left as it is).
pub(super) fn open(data: &Path, file: Option<&Path>) -> Result<Database, CliError> {
    let Some(file) = file else {
        let dir = DataDir::existing(data).map_err(CliError::Failed)?;
        return app::open_database(&dir, Options::default());
    };
    let failed = |reason: &dyn std::fmt::Display| CliError::failed(format!("--database {}: {reason}", file.display()));
    if !file.is_file() {
        return Err(failed(&"there is no such file"));
    }
    match holds_an_outbox(file) {
        Ok(true) => Database::open(file, &[outbox::COMPONENT], Options::default()).map_err(|error| failed(&error)),
        Ok(false) => Err(failed(&"this database holds no outbox")),
        Err(error) => Err(failed(&error)),
    }
}

/// Writes what was accepted and closes the database.
///
/// # Errors
/// It took too long.
pub(super) fn close(database: &Database) -> Result<(), CliError> {
    database.close(Instant::now() + CLOSE_WITHIN).map_err(|error| CliError::failed(error.to_string()))
}

/// Looked at without writing: opening it for good would make the outbox's tables.
fn holds_an_outbox(file: &Path) -> rusqlite::Result<bool> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(CLOSE_WITHIN)?;
    let table = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'event_outbox'";
    connection.prepare(table)?.exists([])
}
