//! Whether search holds the articles as they are.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::backup::open_to_read;
use super::check::{Report, integrity};

/// The published articles, in the order of their ids, and what search knows, in the same order.
const PUBLISHED: &str = "SELECT id, version FROM articles WHERE status = 'published' ORDER BY id";
const INDEXED: &str = "SELECT article_id, version FROM docs WHERE indexed = 1 ORDER BY article_id";
const PUBLISHED_ONE: &str = "SELECT version FROM articles WHERE id = ?1 AND status = 'published'";
const INDEXED_ONE: &str = "SELECT version FROM docs WHERE article_id = ?1 AND indexed = 1";
const STANDING: &str = "SELECT (SELECT coalesce(max(id), 0) FROM event_outbox),
                               coalesce((SELECT cursor FROM lanes WHERE handler = 'search'), 0)";
const BUILDING: &str = "SELECT rebuild <> 0 OR built = 0 FROM state";
/// Most differences looked at a second time.
const DIFFERENCES_MAX: usize = 1_000;
/// Most that are named.
const NAMED_MAX: usize = 5;

/// Compares articles with what search holds, unless search is still being brought up to date.
pub(super) fn check(articles: &Connection, search: &Path, report: &mut Report) -> rusqlite::Result<()> {
    if !search.exists() {
        report.notes.push("there is no search index: the next `serve` or `import` makes it".to_owned());
        return Ok(());
    }
    // A damaged index is thrown away and built again, so it is a fault of its own kind.
    if let Err(error) = compare(articles, search, report) {
        report.faults.push(format!("search.db cannot be compared: {error}; it can be deleted while nothing runs"));
    }
    Ok(())
}

fn compare(articles: &Connection, path: &Path, report: &mut Report) -> rusqlite::Result<()> {
    let search = open_to_read(path)?;
    integrity(&search, "search.db", report)?;
    let differing = differences(articles, &search)?;
    // Articles change while this reads. What differs is looked at again, and counts only if all the while there was no
    // event that search had not applied.
    let before = standing(articles)?;
    let mut wrong = Vec::new();
    for id in &differing {
        let version = |connection: &Connection, sql: &str| -> rusqlite::Result<Option<i64>> {
            connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()
        };
        if version(articles, PUBLISHED_ONE)? != version(&search, INDEXED_ONE)? {
            wrong.push(id.as_str());
        }
    }
    let (newest, cursor) = standing(articles)?;
    let at_work = (newest, cursor) != before || newest > cursor || search.query_row(BUILDING, [], |row| row.get(0))?;
    let at_least = if differing.len() < DIFFERENCES_MAX { "" } else { "at least " };
    match (wrong.len(), at_work) {
        (0, _) => report.good.push("search holds every published article in its newest version".to_owned()),
        (count, true) => {
            report.notes.push(format!("search is still being brought up to date: {at_least}{count} articles differ"))
        }
        (count, false) => {
            let named = wrong[..count.min(NAMED_MAX)].join(", ");
            report.faults.push(format!(
                "search differs from {at_least}{count} articles ({named}) and has no event to come: delete search.db while nothing runs, \
                 and it is built again"
            ));
        }
    }
    Ok(())
}

/// The newest event, and the one up to which search has applied them.
fn standing(articles: &Connection) -> rusqlite::Result<(i64, i64)> {
    articles.query_row(STANDING, [], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// The ids that one side has and the other has not, or in another version.
fn differences(articles: &Connection, search: &Connection) -> rusqlite::Result<Vec<String>> {
    let (mut published, mut indexed) = (articles.prepare(PUBLISHED)?, search.prepare(INDEXED)?);
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let (mut published, mut indexed) = (published.query_map([], row)?, indexed.query_map([], row)?);
    let (mut left, mut right) = (published.next().transpose()?, indexed.next().transpose()?);
    let mut differing = Vec::new();
    while differing.len() < DIFFERENCES_MAX {
        let order = match (&left, &right) {
            (None, None) => break,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let same = order.is_eq() && left == right;
        let id = if order.is_gt() { &right } else { &left };
        if let (false, Some((id, _))) = (same, id) {
            differing.push(id.clone());
        }
        if order.is_le() {
            left = published.next().transpose()?;
        }
        if order.is_ge() {
            right = indexed.next().transpose()?;
        }
    }
    Ok(differing)
}
