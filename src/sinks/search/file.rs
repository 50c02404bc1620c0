//! The index's file: opening it, creating it, and setting a useless one aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::Failure;
use super::sql;

/// How long a statement waits for another process that writes the same file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Statements a connection keeps prepared: more than there are.
const STATEMENTS: usize = 32;
/// The log file is cut back to this size after a checkpoint.
const WAL_LIMIT_BYTES: i64 = 16 << 20;

/// Opens the file for writing. A missing one is created; one that is damaged, or of another layout, is set aside first.
///
/// `synchronous` is NORMAL: a power failure may cost the last transactions but not the file's soundness, and an index
/// that fell behind is noticed when the lane begins and mended from the articles.
pub(super) fn open_writer(path: &Path) -> Result<Connection, Failure> {
    match try_open_writer(path) {
        Ok(Some(connection)) => Ok(connection),
        Ok(None) => {
            log::warn!("search index has another layout and is built anew path={}", path.display());
            set_aside(path)?;
            try_open_writer(path)?.ok_or_else(|| Failure::unavailable("a fresh search index has the wrong layout"))
        }
        Err(Failure::Sqlite(error)) if is_damage(&error) => {
            log::error!(
                "search index is damaged and is built anew path={} error={:?}",
                path.display(),
                error.to_string()
            );
            set_aside(path)?;
            try_open_writer(path)?.ok_or_else(|| Failure::unavailable("a fresh search index has the wrong layout"))
        }
        Err(failure) => Err(failure),
    }
}

/// Without this SQLite compiles a statement anew at each run when a parameter stands where its plan might depend on it.
fn keep_plans(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

fn try_open_writer(path: &Path) -> Result<Option<Connection>, Failure> {
    let mut connection = Connection::open(path)?;
    keep_plans(&connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let (application, layout, tables) = identity(&connection)?;
    if tables > 0 && application != sql::APPLICATION_ID {
        // Renaming somebody's database away would be worse than not searching.
        let reason =
            format!("{} is a database of something else: choose another path for the search index", path.display());
        return Err(Failure::unavailable(reason));
    }
    if tables > 0 && layout != sql::SCHEMA_VERSION {
        return Ok(None);
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "journal_size_limit", WAL_LIMIT_BYTES)?;
    create_schema(&mut connection)?;
    Ok(Some(connection))
}

fn identity(connection: &Connection) -> rusqlite::Result<(i64, i64, i64)> {
    Ok((
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?,
        connection.pragma_query_value(None, "user_version", |row| row.get(0))?,
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
    ))
}

fn create_schema(connection: &mut Connection) -> rusqlite::Result<()> {
    if identity(connection)?.2 > 0 {
        return Ok(());
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Looked at again under the lock: another process may have been first.
    if identity(&tx)?.2 == 0 {
        tx.execute_batch(sql::SCHEMA)?;
        tx.pragma_update(None, "application_id", sql::APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", sql::SCHEMA_VERSION)?;
    }
    tx.commit()
}

/// Opens the file for reading; `None` when it does not exist or holds nothing yet.
pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Option<Connection>> {
    if !path.exists() {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    keep_plans(&connection)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let (application, layout, tables) = identity(&connection)?;
    let ours = application == sql::APPLICATION_ID && layout == sql::SCHEMA_VERSION && tables > 0;
    Ok(ours.then_some(connection))
}

/// Renames the file and its log to `….damaged`, in the place of an earlier one. Connections that still read it go on doing so.
pub(super) fn set_aside(path: &Path) -> Result<(), Failure> {
    for (suffix, keep) in [("-shm", false), ("-wal", true), ("", true)] {
        let from = with_suffix(path, suffix);
        let outcome = if keep {
            fs::rename(&from, with_suffix(path, &format!(".damaged{suffix}")))
        } else {
            fs::remove_file(&from)
        };
        match outcome {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::unavailable(format!("cannot set {} aside: {error}", from.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Whether the file, rather than the circumstances, is at fault.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}
