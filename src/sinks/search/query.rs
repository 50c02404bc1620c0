//! Reading hits out of the index.

use rusqlite::Transaction;

use super::text::{self, HIT_END, HIT_START};
use super::{Hit, MAX_RANK, sql};

/// One page of hits, the best first.
pub(super) fn hits(tx: &Transaction<'_>, expression: &str, page: u32, limit: u32) -> rusqlite::Result<Vec<Hit>> {
    let offset = u64::from(page - 1) * u64::from(limit);
    if offset >= u64::from(MAX_RANK) {
        return Ok(Vec::new());
    }
    let mut statement = tx.prepare_cached(sql::SEARCH)?;
    let marks = (HIT_START.to_string(), HIT_END.to_string());
    let rows = statement.query_map((expression, marks.0, marks.1, limit, offset as i64), |row| {
        let tags: String = row.get(5)?;
        Ok(Hit {
            id: row.get(0)?,
            slug: row.get(1)?,
            title: row.get(2)?,
            title_html: text::highlighted_title(&row.get::<_, String>(3)?),
            snippet: text::highlighted(&row.get::<_, String>(4)?),
            tags: serde_json::from_str(&tags).unwrap_or_default(),
            created_at: row.get(6)?,
            score: row.get(7)?,
        })
    })?;
    rows.collect()
}

/// The one number a query returns.
pub(super) fn count(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    let count: i64 = row.get(0)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
