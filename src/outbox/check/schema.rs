//! Tables, indexes, triggers and the view, against what the migrations make.

use std::collections::BTreeMap;

use rusqlite::Connection;

use super::{Breach, CheckReport, Finding};
use crate::outbox::{COMPONENT, sql};

/// Type and name, with the SQL that made it.
type Objects = BTreeMap<(String, String), String>;

pub(super) fn check(connection: &Connection, report: &mut CheckReport) -> rusqlite::Result<()> {
    let (expected, found) = (expected()?, read(connection)?);
    for ((kind, name), text) in &expected {
        match found.get(&(kind.clone(), name.clone())) {
            None => report.add(missing(kind, name, text)),
            Some(other) if other != text => report.add(Finding::new(
                Breach::SchemaDiffers,
                format!("{kind} {name} is not as this version makes it: {other}"),
                format!("with no program running, put it back as it was: {text}"),
            )),
            Some(_) => {}
        }
    }
    for ((kind, name), text) in &found {
        if !expected.contains_key(&(kind.clone(), name.clone())) {
            report.add(foreign(kind, name, text));
        }
    }
    Ok(())
}

fn missing(kind: &str, name: &str, text: &str) -> Finding {
    let remedy = if kind == "table" {
        "restore the database from a backup".to_owned()
    } else {
        format!("with no program running, make it again: {text}")
    };
    Finding::new(Breach::SchemaMissing, format!("{kind} {name} is missing"), remedy)
}

fn foreign(kind: &str, name: &str, text: &str) -> Finding {
    let why = if kind == "index" { "every write keeps it" } else { "it runs inside the outbox's transactions" };
    Finding::new(
        Breach::SchemaForeign,
        format!("{kind} {name} is not the outbox's, and {why}: {text}"),
        format!("if nobody needs it, with no program running: DROP {} \"{name}\"", kind.to_uppercase()),
    )
}

/// What the migrations of this version make, in an empty database.
fn expected() -> rusqlite::Result<Objects> {
    let connection = Connection::open_in_memory()?;
    for migration in COMPONENT.migrations {
        connection.execute_batch(migration)?;
    }
    read(&connection)
}

fn read(connection: &Connection) -> rusqlite::Result<Objects> {
    connection
        .prepare_cached(sql::SCHEMA)?
        .query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?
        .collect()
}
