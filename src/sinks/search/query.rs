//! Reading hits out of the index.

use rusqlite::Transaction;

use super::snippet::{LOOKED_AT_CHARS, Phrases};
use super::text::{self, indexable};
use super::{Hit, MAX_RANK, sql};

/// One page of the hits for `query`, whose MATCH expression is `expression`, the best first.
pub(super) fn hits(
    tx: &Transaction<'_>,
    query: &str,
    expression: &str,
    page: u32,
    limit: u32,
) -> rusqlite::Result<Vec<Hit>> {
    let offset = u64::from(page - 1) * u64::from(limit);
    if offset >= u64::from(MAX_RANK) {
        return Ok(Vec::new());
    }
    let mut statement = tx.prepare_cached(sql::SEARCH)?;
    let phrases = Phrases::of(query);
    let rows = statement.query_map((expression, LOOKED_AT_CHARS as i64, limit, offset as i64), |row| {
        let (title, content): (String, String) = (row.get(2)?, row.get(3)?);
        let tags: String = row.get(4)?;
        Ok(Hit {
            id: row.get(0)?,
            slug: row.get(1)?,
            title_html: text::highlighted_title(&phrases.mark(&indexable(&title))),
            snippet: text::highlighted(&phrases.snippet(&content)),
            title,
            tags: serde_json::from_str(&tags).unwrap_or_default(),
            created_at: row.get(5)?,
            score: row.get(6)?,
        })
    })?;
    rows.collect()
}

/// The one number a query returns.
pub(super) fn count(row: &rusqlite::Row<'_>) -> rusqlite::Result<u64> {
    let count: i64 = row.get(0)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
