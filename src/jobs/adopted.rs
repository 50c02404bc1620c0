//! Rows of another program's database that were taken over, so that each comes once.

use rusqlite::{Connection, Transaction};

use super::mode::{self, ModeInfo};
use super::sql;

/// Whether the row that `origin` names was taken over before.
///
/// # Errors
/// As SQLite reports it.
pub fn is_adopted(conn: &Connection, origin: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached(sql::IS_ADOPTED)?.exists([origin])
}

/// Notes, in the transaction that takes it over, that the row that `origin` names came.
///
/// # Errors
/// As SQLite reports it.
pub fn mark_adopted(tx: &Transaction<'_>, origin: &str, now_ms: i64) -> rusqlite::Result<()> {
    tx.prepare_cached(sql::MARK_ADOPTED)?.execute((origin, now_ms))?;
    Ok(())
}

/// What becomes of writes, as this transaction sees it.
///
/// # Errors
/// As SQLite reports it.
pub fn mode_info(conn: &Connection) -> rusqlite::Result<ModeInfo> {
    mode::info(conn)
}
