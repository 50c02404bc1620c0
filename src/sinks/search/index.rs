//! Writing to the index: one article, one event, the newest event applied.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::plain::plain_text;
use super::text::indexable;
use super::{Failure, sql};
use crate::article::{Article, Status};
use crate::sinks::change::Change;
use crate::sinks::source::ArticleSource;

/// What the index knows of itself.
#[derive(Debug)]
pub(super) struct State {
    pub applied: Option<(i64, String)>,
    pub built: bool,
    pub rebuild: i64,
    pub rebuild_after: Option<String>,
    pub rebuild_target: Option<(i64, String)>,
    /// Of the texts: what [`REVISION`](super::plain::REVISION) was when they were extracted.
    pub revision: i64,
}

pub(super) fn read_state(connection: &Connection) -> rusqlite::Result<State> {
    connection.prepare_cached(sql::READ_STATE)?.query_row([], |row| {
        let applied: Option<i64> = row.get(0)?;
        let target: Option<i64> = row.get(5)?;
        Ok(State {
            applied: applied.zip(row.get(1)?),
            built: row.get(2)?,
            rebuild: row.get(3)?,
            rebuild_after: row.get(4)?,
            rebuild_target: target.zip(row.get(6)?),
            revision: row.get(7)?,
        })
    })
}

pub(super) fn set_applied(connection: &Connection, log_id: i64, event_id: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql::SET_APPLIED)?.execute(params![log_id, event_id])?;
    Ok(())
}

/// Brings the article of `change` up to its current state unless the index has that version already. Returns the bytes indexed.
pub(super) fn apply(connection: &Connection, source: &dyn ArticleSource, change: &Change) -> Result<usize, Failure> {
    let id = &change.article.id;
    let known = find(connection, id)?;
    if known.as_ref().is_some_and(|doc| doc.version >= change.article.version) {
        return Ok(0);
    }
    match (source.article(id)?, known) {
        (Some(article), known) => Ok(put(connection, known, &article)?),
        (None, Some(doc)) => remove(connection, doc).map(|()| 0).map_err(Failure::from),
        (None, None) => Ok(0),
    }
}

/// A row of `docs`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Doc {
    pub doc_id: i64,
    pub version: i64,
    pub indexed: bool,
}

pub(super) fn find(connection: &Connection, article_id: &str) -> rusqlite::Result<Option<Doc>> {
    connection
        .prepare_cached(sql::FIND_DOC)?
        .query_row([article_id], |row| Ok(Doc { doc_id: row.get(0)?, version: row.get(1)?, indexed: row.get(2)? }))
        .optional()
}

/// Stores `article` as it is: findable when published, otherwise only its version. Returns the bytes indexed.
pub(super) fn put(connection: &Connection, known: Option<Doc>, article: &Article) -> rusqlite::Result<usize> {
    let public = article.status == Status::Published;
    let tags = serde_json::Value::from(article.tags.as_slice()).to_string();
    let row = Row {
        article_id: &article.id,
        version: article.version,
        updated_at: article.updated_at,
        indexed: public,
        slug: &article.slug,
        title: &article.title,
        tags: &tags,
        created_at: article.created_at,
    };
    let doc_id = row.write(connection, known)?;
    let was_indexed = known.is_some_and(|doc| doc.indexed);
    if !public {
        if was_indexed {
            connection.prepare_cached(sql::DELETE_FTS)?.execute([doc_id])?;
        }
        return Ok(0);
    }
    let (title, content) = (indexable(&article.title), indexable(&plain_text(&article.title, &article.content)));
    let labels = indexable(&article.tags.join("\n"));
    let statement = if was_indexed { sql::UPDATE_FTS } else { sql::INSERT_FTS };
    connection.prepare_cached(statement)?.execute(params![doc_id, title, labels, content])?;
    Ok(title.len() + labels.len() + content.len())
}

/// Removes every trace of a document.
pub(super) fn remove(connection: &Connection, doc: Doc) -> rusqlite::Result<()> {
    if doc.indexed {
        connection.prepare_cached(sql::DELETE_FTS)?.execute([doc.doc_id])?;
    }
    connection.prepare_cached(sql::DELETE_DOC)?.execute([doc.doc_id])?;
    Ok(())
}

struct Row<'a> {
    article_id: &'a str,
    version: i64,
    updated_at: i64,
    indexed: bool,
    slug: &'a str,
    title: &'a str,
    tags: &'a str,
    created_at: i64,
}

impl Row<'_> {
    fn write(&self, connection: &Connection, known: Option<Doc>) -> rusqlite::Result<i64> {
        let Self { article_id, version, updated_at, indexed, slug, title, tags, created_at } = self;
        match known {
            Some(Doc { doc_id, .. }) => {
                connection.prepare_cached(sql::UPDATE_DOC)?.execute(params![
                    article_id, version, updated_at, indexed, slug, title, tags, created_at, doc_id
                ])?;
                Ok(doc_id)
            }
            None => connection
                .prepare_cached(sql::INSERT_DOC)?
                .insert(params![article_id, version, updated_at, indexed, slug, title, tags, created_at]),
        }
    }
}
