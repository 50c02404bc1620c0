//! Waiting rows that nothing would ever wake: no open row of their key is below them.

use rusqlite::{Connection, Transaction};

use crate::outbox::flush::make_next_due;
use crate::outbox::sql;

/// Rows looked at in one page.
const PAGE: i64 = 4_096;

/// One page of a lane's waiting rows.
#[derive(Debug)]
pub(super) struct Page {
    /// Log position and key of those that nothing would wake.
    pub(super) orphans: Vec<(i64, Option<String>)>,
    /// Where the next page begins; `None` when this was the last.
    pub(super) next: Option<i64>,
}

pub(super) fn read_page(connection: &Connection, handler: &str, after: i64) -> rusqlite::Result<Page> {
    let mut statement = connection.prepare_cached(sql::READ_ORPHANS)?;
    let mut rows = statement.query((handler, after, PAGE))?;
    let mut page = Page { orphans: Vec::new(), next: None };
    let mut seen = 0;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        seen += 1;
        page.next = Some(id);
        let bytes = row.get_ref(1)?.as_bytes_or_null()?;
        let key = bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).map(str::to_owned);
        // A key that is no text keeps no order.
        if row.get(2)? || (bytes.is_some() && key.is_none()) {
            page.orphans.push((id, key));
        }
    }
    if seen < PAGE {
        page.next = None;
    }
    Ok(page)
}

/// Makes them due; what has changed since the page was read stays as it is.
pub(super) fn wake(
    tx: &Transaction<'_>,
    handler: &str,
    orphans: &[(i64, Option<String>)],
    now: i64,
) -> rusqlite::Result<()> {
    for (id, key) in orphans {
        match key {
            Some(key) => make_next_due(tx, handler, key, now)?,
            None => {
                tx.prepare_cached(sql::WAKE_ORPHAN)?.execute((id, handler, now))?;
            }
        }
    }
    Ok(())
}
