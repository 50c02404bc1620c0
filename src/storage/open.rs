//! Opening connections: which paths and versions are accepted, and what every connection is set to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{Component, Fault, OpenError, migrate};
use crate::lifecycle::{Interrupted, StartContext};

/// SQLite before this version may damage a database when a log is reset while it is checkpointed.
const SQLITE_MIN: i32 = 3_051_003;
/// For statements of the start; a lock held longer meets the backoff of [`retry_busy`].
const START_BUSY_TIMEOUT: Duration = Duration::from_millis(100);
/// Tries before a start gives up on a locked database.
const BUSY_TRIES: u32 = 5;
/// First wait between tries; it doubles up to [`BUSY_WAIT_MAX`].
const BUSY_WAIT: Duration = Duration::from_millis(100);
const BUSY_WAIT_MAX: Duration = Duration::from_secs(1);
const PAGE_SIZE: i64 = 4096;
const AUTO_VACUUM_INCREMENTAL: i64 = 2;

/// How a database file gives free pages back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AutoVacuum {
    /// Never: the file does not shrink.
    None,
    /// At each commit.
    Full,
    /// In small steps when asked; what a file made by this crate is set to.
    Incremental,
}

/// What opening found out about the file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) canonical: PathBuf,
    pub(super) auto_vacuum: AutoVacuum,
    /// Keeps the log in place until the pool has its connections.
    pub(super) connection: Connection,
}

/// Opens or creates the file, sets what belongs to the file, and brings the components up to date.
pub(super) fn open(path: &Path, components: &[Component], ctx: &StartContext) -> Result<Opened, OpenError> {
    check_sqlite(rusqlite::version_number(), rusqlite::version())?;
    check_path(path)?;
    let connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    connection.busy_timeout(START_BUSY_TIMEOUT)?;
    let created = retry_busy(ctx, "read the file", || create_settings(&connection))?;
    retry_busy(ctx, "switch the file to WAL mode", || set_wal(&connection))?;
    let auto_vacuum = read_auto_vacuum(&connection)?;
    if created && auto_vacuum != AutoVacuum::Incremental {
        return Err(setting("auto_vacuum", AUTO_VACUUM_INCREMENTAL, format!("{auto_vacuum:?}")));
    }
    if !created && auto_vacuum != AutoVacuum::Incremental {
        log::info!("event=foreign_file auto_vacuum={auto_vacuum:?} note=\"left as it is; the file will not shrink\"");
    }
    let canonical = canonical(&connection, path)?;
    migrate::run(&connection, components, ctx)?;
    Ok(Opened { canonical, auto_vacuum, connection })
}

/// A connection to `path` without any shared mutex: each is used by one thread at a time.
///
/// The query planner must not look at bound values: otherwise a statement with, say, a parameter after LIMIT is compiled
/// again at each run, which costs more than most of them.
pub(super) fn connect(path: &Path, more: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Fails unless the connection is in WAL mode.
pub(super) fn check_wal(connection: &Connection) -> Result<(), OpenError> {
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode.eq_ignore_ascii_case("wal") { Ok(()) } else { Err(setting("journal_mode", "wal", mode)) }
}

/// Sets a pragma with a number and reads it back.
pub(super) fn set_number(connection: &Connection, pragma: &'static str, value: i64) -> Result<(), OpenError> {
    connection.pragma_update_and_check(None, pragma, value, |_| Ok(())).or_else(ignore_no_row)?;
    let found: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0))?;
    if found == value { Ok(()) } else { Err(setting(pragma, value, found)) }
}

/// Runs `f` until it is not busy: 5 tries, 100 ms to 1 s apart, fewer when the start has become pointless.
pub(super) fn retry_busy<T>(
    ctx: &StartContext,
    what: &str,
    mut f: impl FnMut() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let mut wait = BUSY_WAIT;
    for attempt in 1..=BUSY_TRIES {
        match f() {
            Err(OpenError::Sqlite(fault)) if fault.is_busy() => {
                log::info!("event=start_waits what=\"{what}\" attempt={attempt} wait_ms={}", wait.as_millis());
            }
            other => return other,
        }
        if attempt < BUSY_TRIES {
            ctx.pause(wait).map_err(|Interrupted| OpenError::Interrupted)?;
            wait = (wait * 2).min(BUSY_WAIT_MAX);
        }
    }
    Err(OpenError::Busy { what: what.to_owned() })
}

fn check_sqlite(number: i32, name: &'static str) -> Result<(), OpenError> {
    if number < SQLITE_MIN { Err(OpenError::SqliteTooOld { found: name }) } else { Ok(()) }
}

fn check_path(path: &Path) -> Result<(), OpenError> {
    let refuse = |reason| Err(OpenError::Path { path: path.to_owned(), reason });
    let Some(text) = path.to_str() else {
        return refuse("the path is not valid UTF-8");
    };
    if text.is_empty() {
        return refuse("an empty path means a temporary database that is gone when it is closed");
    }
    if text.contains('\0') {
        return refuse("the path contains a NUL character");
    }
    if text == ":memory:" {
        return refuse("a database in memory cannot be shared by the writer and the readers, nor survive a crash");
    }
    if text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:")) {
        return refuse("URIs are not accepted, since their parameters can switch locking and durability off");
    }
    Ok(())
}

/// Sets what a file can only be given before its first page is written. Says whether the file is new.
fn create_settings(connection: &Connection) -> Result<bool, OpenError> {
    let pages: i64 = connection.pragma_query_value(None, "page_count", |row| row.get(0))?;
    if pages > 0 {
        return Ok(false);
    }
    set_number(connection, "page_size", PAGE_SIZE)?;
    set_number(connection, "auto_vacuum", AUTO_VACUUM_INCREMENTAL)?;
    Ok(true)
}

fn set_wal(connection: &Connection) -> Result<(), OpenError> {
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    check_wal(connection)
}

fn read_auto_vacuum(connection: &Connection) -> Result<AutoVacuum, OpenError> {
    let mode: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0))?;
    Ok(match mode {
        AUTO_VACUUM_INCREMENTAL => AutoVacuum::Incremental,
        1 => AutoVacuum::Full,
        _ => AutoVacuum::None,
    })
}

fn canonical(connection: &Connection, path: &Path) -> Result<PathBuf, OpenError> {
    match connection.path() {
        Some(name) if !name.is_empty() => Ok(PathBuf::from(name)),
        _ => Err(OpenError::Path { path: path.to_owned(), reason: "SQLite keeps this database in memory" }),
    }
}

fn ignore_no_row(error: rusqlite::Error) -> rusqlite::Result<()> {
    if error == rusqlite::Error::QueryReturnedNoRows { Ok(()) } else { Err(error) }
}

fn setting(pragma: &'static str, wanted: impl ToString, found: impl ToString) -> OpenError {
    OpenError::Setting { pragma, wanted: wanted.to_string(), found: found.to_string() }
}

impl From<Fault> for OpenError {
    fn from(fault: Fault) -> Self {
        Self::Sqlite(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_sqlite_is_refused() {
        assert!(matches!(check_sqlite(3_051_002, "3.51.2"), Err(OpenError::SqliteTooOld { found: "3.51.2" })));
        assert!(check_sqlite(3_051_003, "3.51.3").is_ok());
        assert!(check_sqlite(rusqlite::version_number(), rusqlite::version()).is_ok());
    }

    #[test]
    fn a_statement_is_compiled_once_whatever_is_bound_to_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let connection =
            connect(&directory.path().join("test.db"), OpenFlags::SQLITE_OPEN_CREATE).expect("a connection");
        connection
            .execute_batch("CREATE TABLE t (a, b); CREATE INDEX some ON t(a) WHERE b = 'x'")
            .expect("a table with a partial index");
        let text = "SELECT a FROM t WHERE a = ?1 AND b = ?2 ORDER BY a LIMIT ?3";
        for round in 0..3 {
            let mut statement = connection.prepare_cached(text).expect("a statement");
            statement.exists((round, format!("{round}"), round)).expect("a run");
            assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0, "round {round}");
        }
    }

    #[test]
    fn a_busy_start_is_tried_five_times_and_other_errors_once() {
        let busy = || Fault { code: rusqlite::ErrorCode::DatabaseBusy, extended: 5, message: String::new() };
        let ctx = StartContext::standalone("test", Duration::from_secs(30));
        let mut tries = 0;
        let ended: Result<(), _> = retry_busy(&ctx, "test", || {
            tries += 1;
            Err(OpenError::Sqlite(busy()))
        });
        assert!(matches!(ended, Err(OpenError::Busy { .. })));
        assert_eq!(tries, BUSY_TRIES);
        let ended: Result<(), _> = retry_busy(&ctx, "test", || Err(OpenError::NotOpen));
        assert!(matches!(ended, Err(OpenError::NotOpen)));
    }
}
