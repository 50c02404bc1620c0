//! Articles out of rows; shared by the mutations and the repository.

use rusqlite::{Connection, OptionalExtension, Row};

use super::{Article, Status, sql};

/// The article that `sql` finds by `key`, with its tags.
pub(super) fn find(conn: &Connection, sql: &str, key: &str) -> rusqlite::Result<Option<Article>> {
    let found = conn.prepare_cached(sql)?.query_row([key], without_tags).optional()?;
    let Some(mut article) = found else { return Ok(None) };
    article.tags = tags_of(conn, &article.id)?;
    Ok(Some(article))
}

pub(super) fn tags_of(conn: &Connection, article_id: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare_cached(sql::TAGS_OF)?.query_map([article_id], |row| row.get(0))?.collect()
}

pub(super) fn exists(conn: &Connection, sql: &str, key: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached(sql)?.exists([key])
}

/// A draft with a time is a scheduled article.
pub(super) fn status(stored: Status, publish_at: Option<i64>) -> Status {
    if stored == Status::Draft && publish_at.is_some() { Status::Scheduled } else { stored }
}

/// A row with all columns of `articles`, in the table's order.
pub(super) fn without_tags(row: &Row<'_>) -> rusqlite::Result<Article> {
    let publish_at = row.get(9)?;
    Ok(Article {
        id: row.get(0)?,
        kind: row.get(1)?,
        status: status(row.get(2)?, publish_at),
        slug: row.get(3)?,
        title: row.get(4)?,
        tags: Vec::new(),
        version: row.get(5)?,
        created_at: row.get(6)?,
        updated_at: row.get(7)?,
        content: row.get(8)?,
        publish_at,
    })
}
