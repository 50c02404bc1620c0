//! Rows of the original, whose schema has grown by migrations: what an older one lacks is NULL.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::times;
use crate::cli::CliError;

/// Longest text that is looked at, in bytes: the longest content, were each of its characters escaped.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// `SELECT` of these columns of `table`, in this order; `None` if there is no such table.
///
/// # Errors
/// The source cannot be read.
pub(super) fn select(conn: &Connection, table: &str, wanted: &[&str], rest: &str) -> Result<Option<String>, CliError> {
    let names = || -> rusqlite::Result<Vec<String>> {
        conn.prepare("SELECT name FROM pragma_table_info(?1)")?.query_map([table], |row| row.get(0))?.collect()
    };
    let names = names().map_err(unreadable)?;
    if names.is_empty() {
        return Ok(None);
    }
    let there =
        |name: &&str| if names.iter().any(|there| there == name) { format!("\"{name}\"") } else { "NULL".into() };
    let columns: Vec<String> = wanted.iter().map(there).collect();
    Ok(Some(format!("SELECT {} FROM \"{table}\" {rest}", columns.join(", "))))
}

/// How many rows there are.
///
/// # Errors
/// The source cannot be read.
pub(super) fn count(conn: &Connection, table: &str) -> Result<u64, CliError> {
    let Some(sql) = select(conn, table, &[], "")? else { return Ok(0) };
    let sql = sql.replacen("SELECT ", "SELECT count(*)", 1);
    conn.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs).map_err(unreadable)
}

/// What a column says as text: the original's driver stores bytes as BLOBs. `None` for NULL.
///
/// # Errors
/// It is not UTF-8, or too long.
pub(super) fn text(row: &Row<'_>, column: usize, name: &str) -> Result<Option<String>, String> {
    let value = row.get_ref(column).map_err(|error| error.to_string())?;
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) if bytes.len() > MAX_TEXT_BYTES => {
            Err(format!("{name} is longer than {MAX_TEXT_BYTES} bytes"))
        }
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(format!("{name} is not UTF-8")),
        },
        ValueRef::Integer(number) => Ok(Some(number.to_string())),
        ValueRef::Real(number) => Ok(Some(number.to_string())),
    }
}

/// [`text`] with NULL as an empty one.
pub(super) fn plain(row: &Row<'_>, column: usize, name: &str) -> Result<String, String> {
    Ok(text(row, column, name)?.unwrap_or_default())
}

pub(super) fn time(row: &Row<'_>, column: usize, name: &str) -> Result<Option<i64>, String> {
    let value = row.get_ref(column).map_err(|error| error.to_string())?;
    times::moment(value).map_err(|reason| format!("{name}: {reason}"))
}

/// A number, 0 where there is none.
pub(super) fn number(row: &Row<'_>, column: usize) -> i64 {
    row.get::<_, Option<i64>>(column).ok().flatten().unwrap_or(0)
}

/// What names the row, for people.
pub(super) fn label(row: &Row<'_>, column: usize) -> String {
    match text(row, column, "id") {
        Ok(Some(id)) => id.chars().take(100).collect(),
        _ => "without an id".to_owned(),
    }
}

pub(super) fn unreadable(error: rusqlite::Error) -> CliError {
    CliError::failed(format!("the database of VayuPress cannot be read: {error}; what came before is stored"))
}
