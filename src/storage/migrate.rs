//! Numbered migrations per component, beside other people's tables: versions stand in `vayu_schema`, never in
//! `user_version`.

use rusqlite::{Connection, OptionalExtension};

use super::open::retry_busy;
use super::{Fault, OpenError};
use crate::lifecycle::StartContext;

/// A component's numbered migrations; versions stand in `vayu_schema(component, version)`.
#[derive(Debug, Clone, Copy)]
pub struct Component {
    /// Name in `vayu_schema`.
    pub name: &'static str,
    /// `migrations[i]` takes the component from version `i` to `i + 1`.
    pub migrations: &'static [&'static str],
}

/// What this module itself keeps in the database.
const STORAGE: Component =
    Component { name: "storage", migrations: &[include_str!("../../sql/storage/0001_recovery.sql")] };

const TABLE_EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'vayu_schema')";
const CREATE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS vayu_schema (component TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT";
const READ_VERSION: &str = "SELECT version FROM vayu_schema WHERE component = ?1";
const WRITE_VERSION: &str = "INSERT INTO vayu_schema (component, version) VALUES (?1, ?2)
     ON CONFLICT (component) DO UPDATE SET version = excluded.version";

/// Brings every component to its newest version. Components migrate apart: what one has done stays when the next fails.
pub(super) fn run(connection: &Connection, components: &[Component], ctx: &StartContext) -> Result<(), OpenError> {
    check_names(components)?;
    for component in std::iter::once(&STORAGE).chain(components) {
        let what = format!("migrate `{}`", component.name);
        retry_busy(ctx, &what, || bring_up_to_date(connection, component))?;
    }
    Ok(())
}

fn check_names(components: &[Component]) -> Result<(), OpenError> {
    for (i, component) in components.iter().enumerate() {
        let refuse = |reason| Err(OpenError::Component { name: component.name.to_owned(), reason });
        if component.name.trim().is_empty() {
            return refuse("a component needs a name");
        }
        if component.name == STORAGE.name {
            return refuse("this name is used by the crate itself");
        }
        if components[..i].iter().any(|earlier| earlier.name == component.name) {
            return refuse("the name was given twice");
        }
    }
    Ok(())
}

/// Takes the write lock only when there is something to do, and reads the version again once it has it.
fn bring_up_to_date(connection: &Connection, component: &Component) -> Result<(), OpenError> {
    if check_version(connection, component)? == known(component) {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let migrated = migrate_in_transaction(connection, component);
    let ended = match migrated {
        Ok(()) => connection.execute_batch("COMMIT").map_err(|error| failed(component, known(component), &error)),
        Err(error) => Err(error),
    };
    if ended.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    ended
}

fn migrate_in_transaction(connection: &Connection, component: &Component) -> Result<(), OpenError> {
    let found = check_version(connection, component)?;
    connection.execute_batch(CREATE_TABLE)?;
    for (version, sql) in (1..).zip(component.migrations).skip_while(|(version, _)| *version <= found) {
        connection.execute_batch(sql).map_err(|error| failed(component, version, &error))?;
        if connection.is_autocommit() {
            return Err(OpenError::Component {
                name: component.name.to_owned(),
                reason: "a migration ended the transaction it runs in",
            });
        }
        connection.execute(WRITE_VERSION, (component.name, version))?;
        log::info!("event=migrated component={} version={version}", component.name);
    }
    Ok(())
}

/// The component's version in the database, unless that is newer than what is known here.
fn check_version(connection: &Connection, component: &Component) -> Result<i64, OpenError> {
    if !connection.query_row(TABLE_EXISTS, [], |row| row.get::<_, bool>(0))? {
        return Ok(0);
    }
    let found: Option<i64> = connection.query_row(READ_VERSION, [component.name], |row| row.get(0)).optional()?;
    let found = found.unwrap_or(0);
    if found > known(component) {
        return Err(OpenError::Newer { component: component.name.to_owned(), found, known: known(component) });
    }
    Ok(found)
}

fn known(component: &Component) -> i64 {
    i64::try_from(component.migrations.len()).unwrap_or(i64::MAX)
}

/// A busy database is no fault of the migration: the caller tries again.
fn failed(component: &Component, version: i64, error: &rusqlite::Error) -> OpenError {
    let fault = Fault::from(error);
    if fault.is_busy() {
        return OpenError::Sqlite(fault);
    }
    OpenError::Migration { component: component.name.to_owned(), version, fault }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const PAIR: Component =
        Component { name: "pair", migrations: &["CREATE TABLE first (x)", "CREATE TABLE second (x)"] };

    #[test]
    fn the_loser_of_a_start_waits_reads_again_and_goes_on_from_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || Connection::open(directory.path().join("test.db")).expect("a database");
        let (winner, loser) = (open(), open());
        loser.busy_timeout(Duration::ZERO).expect("a setting");
        winner.pragma_update(None, "journal_mode", "wal").expect("WAL");
        winner.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        let mut met_the_lock = false;
        let migrated = retry_busy(&StartContext::standalone("test", LIMIT), "test", || {
            let tried = bring_up_to_date(&loser, &PAIR);
            if !met_the_lock {
                met_the_lock = matches!(&tried, Err(OpenError::Sqlite(fault)) if fault.is_busy());
                // The winner does half of the work: doing it again would fail.
                let half =
                    format!("{CREATE_TABLE}; {}; INSERT INTO vayu_schema VALUES ('pair', 1)", PAIR.migrations[0]);
                winner.execute_batch(&half).expect("half of the work");
                winner.execute_batch("COMMIT").expect("the winner's commit");
            }
            tried
        });
        assert!(met_the_lock);
        migrated.expect("the loser goes on");
        assert_eq!(check_version(&winner, &PAIR).expect("a version"), 2);
    }
}
