//! Holding every lane at once, in a transaction of the caller's.

use rusqlite::Transaction;

use super::sql;

/// Holds the lanes that are not held yet and returns their names. Their owners finish their running call, write what they
/// know and let go.
pub(crate) fn hold_lanes(tx: &Transaction<'_>) -> rusqlite::Result<Vec<String>> {
    let free: Vec<String> =
        tx.prepare_cached(sql::NOT_HELD)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for lane in &free {
        tx.prepare_cached(sql::SET_HELD)?.execute((lane, true))?;
    }
    Ok(free)
}

/// Ends the hold of these lanes; one that is gone meanwhile is passed over.
pub(crate) fn release_lanes(tx: &Transaction<'_>, lanes: &[String]) -> rusqlite::Result<()> {
    for lane in lanes {
        tx.prepare_cached(sql::SET_HELD)?.execute((lane, false))?;
    }
    Ok(())
}
