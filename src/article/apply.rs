//! Mutations inside a transaction: the article, its tags and its event, or nothing.
//!
//! Every conflict is found before the first write, so that a refused mutation leaves the transaction as it was and the
//! other members of a group unharmed. What fails after a write (a full disk, an event id that is there already) fails
//! the transaction; whoever owns it must roll back.

use rusqlite::{OptionalExtension, Transaction, params};
use serde::{Deserialize, Serialize};

use super::model::{Article, DELETED, Status, UPDATED};
use super::mutation::{Change, Draft, PreparedMutation};
use super::tags::{self, Tag};
use super::validate::{self, CheckedPatch};
use super::{ArticleError, Expected, rows, slug, sql};
use crate::outbox;

/// What a mutation did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Applied {
    /// The article was created as given here; `article.created.v1` was emitted.
    Created(Article),
    /// The article was changed and is now as given here; `article.updated.v1` was emitted.
    Updated(Article),
    /// The article, last as given here, is gone; `article.deleted.v1` was emitted.
    Deleted(Article),
    /// The change would have changed nothing: nothing was written and no event emitted.
    Unchanged(Article),
    /// An import left things as they are: nothing was written and no event emitted.
    Kept {
        /// Why.
        reason: Kept,
        /// The article as it is; `None` if it was deleted.
        article: Option<Article>,
    },
}

/// Why an import changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kept {
    /// The source is the same as at its last import.
    SameSource,
    /// The source has changed, but the article was edited since its last import.
    Edited,
    /// The source has changed, but the article was deleted since its last import.
    Deleted,
}

impl Applied {
    /// The article as this left it (of a deletion: as it last was); `None` only for a kept deletion.
    pub fn article(&self) -> Option<&Article> {
        match self {
            Self::Created(article) | Self::Updated(article) | Self::Deleted(article) | Self::Unchanged(article) => {
                Some(article)
            }
            Self::Kept { article, .. } => article.as_ref(),
        }
    }

    /// As [`article`](Self::article), by value.
    pub fn into_article(self) -> Option<Article> {
        match self {
            Self::Created(article) | Self::Updated(article) | Self::Deleted(article) | Self::Unchanged(article) => {
                Some(article)
            }
            Self::Kept { article, .. } => article,
        }
    }

    /// Whether something was written and an event emitted.
    pub fn changed(&self) -> bool {
        matches!(self, Self::Created(_) | Self::Updated(_) | Self::Deleted(_))
    }
}

/// Applies `mutation` in the caller's transaction, together with its event.
///
/// Needs the tables of the components `articles` and `outbox`. After an error for which
/// [`is_callers`](ArticleError::is_callers) holds, nothing was written and the transaction may go on; after any other,
/// roll it back.
///
/// ```
/// use std::time::{Duration, Instant};
/// use vayu_articles::article::{self, ArticleError, Mutation, NewArticle, apply};
/// use vayu_articles::{outbox, storage};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("site.db");
/// # let components = [outbox::COMPONENT, article::COMPONENT];
/// # let database = storage::Database::open(path, &components, storage::Options::default())?;
/// let now_ms = database.clock().now_ms();
/// let mutation = Mutation::Create(NewArticle::new("A title", "Some text.")).prepare(now_ms, None, None)?;
/// let applied = database.writer().transact(move |tx| -> Result<_, ArticleError> {
///     // Rows of your own go into the same commit here.
///     apply(tx, &mutation)
/// })?;
/// assert_eq!(applied.article().map(|article| article.slug.as_str()), Some("a-title"));
/// # database.close(Instant::now() + Duration::from_secs(10))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Any [`ArticleError`] but the batch limits.
pub fn apply(tx: &Transaction<'_>, mutation: &PreparedMutation) -> Result<Applied, ArticleError> {
    match &mutation.change {
        Change::Create(draft) => create(tx, mutation, draft).map(Applied::Created),
        Change::Update { slug, patch, expected } => {
            let before = current(tx, slug, expected)?;
            revise(tx, mutation, before, patch, mutation.now_ms)
        }
        Change::Delete { slug, expected } => {
            let before = current(tx, slug, expected)?;
            delete(tx, mutation, before).map(Applied::Deleted)
        }
        Change::Publish { id, publish_at } => publish(tx, mutation, id, *publish_at),
        Change::Import { source, hash, draft } => import(tx, mutation, source, hash, draft),
    }
}

fn current(tx: &Transaction<'_>, slug: &str, expected: &Expected) -> Result<Article, ArticleError> {
    let found = rows::find(tx, sql::ARTICLE_BY_SLUG, slug)?;
    let article = found.ok_or_else(|| ArticleError::NotFound { slug: slug.to_owned() })?;
    expected.check(&article)?;
    Ok(article)
}

fn create(tx: &Transaction<'_>, mutation: &PreparedMutation, draft: &Draft) -> Result<Article, ArticleError> {
    let mut article = draft.spare.take(&draft.article);
    let first_slug = insert_first_free(tx, mutation, draft, &mut article)?;
    insert_tags(tx, &article.id, &draft.tags)?;
    if first_slug {
        outbox::insert_serialized(tx, &mutation.event)?;
    } else {
        let event = mutation.event(super::CREATED, &article.event(None))?;
        outbox::insert_serialized(tx, &event)?;
    }
    Ok(article)
}

/// Inserts the article under its slug (`true`) or, if that was derived and is taken, under the first free alternative.
fn insert_first_free(
    tx: &Transaction<'_>,
    mutation: &PreparedMutation,
    draft: &Draft,
    article: &mut Article,
) -> Result<bool, ArticleError> {
    if insert_article(tx, article)? {
        return Ok(true);
    }
    if draft.explicit_id && rows::exists(tx, sql::HAS_ID, &article.id)? {
        return Err(ArticleError::IdTaken { id: article.id.clone() });
    }
    if !draft.explicit_slug {
        for slug in slug::alternatives(&draft.article.slug, mutation.random_suffix()) {
            article.slug = slug;
            if insert_article(tx, article)? {
                return Ok(false);
            }
        }
    }
    Err(ArticleError::SlugTaken { slug: draft.article.slug.clone() })
}

/// `false` if the slug or the id is taken; then nothing was written.
fn insert_article(tx: &Transaction<'_>, article: &Article) -> rusqlite::Result<bool> {
    let inserted = tx.prepare_cached(sql::INSERT_ARTICLE)?.execute(params![
        article.id,
        article.kind,
        article.status,
        article.slug,
        article.title,
        article.created_at,
        article.updated_at,
        article.content,
        article.publish_at,
    ])?;
    Ok(inserted == 1)
}

fn insert_tags(tx: &Transaction<'_>, article_id: &str, tags: &[Tag]) -> rusqlite::Result<()> {
    if tags.is_empty() {
        return Ok(());
    }
    let mut insert = tx.prepare_cached(sql::INSERT_TAG)?;
    for (position, tag) in (0_i64..).zip(tags) {
        insert.execute(params![article_id, tag.key, position, tag.label])?;
    }
    Ok(())
}

/// Changes `before` as `patch` says, unless that would change nothing.
fn revise(
    tx: &Transaction<'_>,
    mutation: &PreparedMutation,
    before: Article,
    patch: &CheckedPatch,
    updated_at: i64,
) -> Result<Applied, ArticleError> {
    let previous = before.as_previous();
    let mut article = before;
    let placed = placed(&article, patch, mutation.now_ms)?;
    let revised = Revised::new(&mut article, patch, placed);
    if !revised.anything() {
        return Ok(Applied::Unchanged(article));
    }
    if revised.slug && rows::exists(tx, sql::HAS_SLUG, &article.slug)? {
        return Err(ArticleError::SlugTaken { slug: article.slug });
    }
    article.updated_at = updated_at;
    update_article(tx, &article, &revised)?;
    article.version += 1;
    if let Some(tags) = patch.tags.as_deref().filter(|_| revised.tags) {
        tx.prepare_cached(sql::DELETE_TAGS)?.execute([&article.id])?;
        insert_tags(tx, &article.id, tags)?;
    }
    outbox::insert_serialized(tx, &mutation.event(UPDATED, &article.event(Some(previous)))?)?;
    Ok(Applied::Updated(article))
}

type Placed = (Status, Option<i64>);

/// The status and the time that the patch leaves `article` with.
fn placed(article: &Article, patch: &CheckedPatch, now_ms: i64) -> Result<Placed, ArticleError> {
    let status = patch.status.unwrap_or(article.status);
    match patch.publish_at {
        Some(Some(at)) if at <= now_ms => Ok((Status::Published, None)),
        Some(Some(_)) if article.status == Status::Published && patch.status != Some(Status::Scheduled) => {
            let reason = "cannot be set: the article is published already; send the status \"scheduled\" along to withdraw it until then";
            Err(ArticleError::invalid("publish_at", reason))
        }
        Some(Some(at)) => Ok((Status::Scheduled, Some(at))),
        Some(None) => Ok((status.stored(), None)),
        None if status != Status::Scheduled => Ok((status, None)),
        None if article.publish_at.is_some() => Ok((status, article.publish_at)),
        None => Err(validate::unscheduled()),
    }
}

/// What a patch changed in an article.
struct Revised {
    /// Title or content.
    text: bool,
    slug: bool,
    /// Another column that stands in an index.
    listed: bool,
    tags: bool,
}

impl Revised {
    fn new(article: &mut Article, patch: &CheckedPatch, (status, publish_at): Placed) -> Self {
        let title = set(&mut article.title, patch.title.as_ref());
        let content = set(&mut article.content, patch.content.as_ref());
        let kind = set(&mut article.kind, patch.kind.as_ref());
        let status = set(&mut article.status, Some(&status)) | set(&mut article.publish_at, Some(&publish_at));
        let created_at = set(&mut article.created_at, patch.created_at.as_ref());
        Self {
            text: title || content,
            slug: set(&mut article.slug, patch.slug.as_ref()),
            listed: kind || status || created_at,
            tags: set(&mut article.tags, patch.tags.as_deref().map(tags::labels).as_ref()),
        }
    }

    fn anything(&self) -> bool {
        self.text || self.slug || self.listed || self.tags
    }
}

/// Sets `field` to `value`, if there is one, and tells whether that changed it.
fn set<T: Clone + PartialEq>(field: &mut T, value: Option<&T>) -> bool {
    match value {
        Some(value) if value != field => {
            *field = value.clone();
            true
        }
        _ => false,
    }
}

/// Writes `article` over the row that still has its version.
fn update_article(tx: &Transaction<'_>, article: &Article, revised: &Revised) -> Result<(), ArticleError> {
    let updated = if revised.slug || revised.listed {
        tx.prepare_cached(sql::UPDATE_ALL)?.execute(params![
            article.id,
            article.version,
            article.title,
            article.updated_at,
            article.content,
            article.kind,
            article.status,
            article.slug,
            article.created_at,
            article.publish_at,
        ])?
    } else {
        tx.prepare_cached(sql::UPDATE_TEXT)?.execute(params![
            article.id,
            article.version,
            article.title,
            article.updated_at,
            article.content,
        ])?
    };
    one_row(updated)
}

/// Publishes a scheduled article whose time this is. It comes first in the lists, as what was just published.
fn publish(
    tx: &Transaction<'_>,
    mutation: &PreparedMutation,
    id: &str,
    publish_at: i64,
) -> Result<Applied, ArticleError> {
    let found = rows::find(tx, sql::ARTICLE_BY_ID, id)?;
    let article = found.ok_or_else(|| ArticleError::NotFound { slug: id.to_owned() })?;
    if article.publish_at != Some(publish_at) {
        return Ok(Applied::Unchanged(article));
    }
    let patch =
        CheckedPatch { status: Some(Status::Published), created_at: Some(publish_at), ..CheckedPatch::default() };
    revise(tx, mutation, article, &patch, mutation.now_ms)
}

fn delete(tx: &Transaction<'_>, mutation: &PreparedMutation, article: Article) -> Result<Article, ArticleError> {
    let mut event = article.event(Some(article.as_previous()));
    // Sinks order by version: the deletion comes after the last change.
    event.version += 1;
    event.tags.clear();
    one_row(tx.prepare_cached(sql::DELETE_ARTICLE)?.execute(params![article.id, article.version])?)?;
    tx.prepare_cached(sql::DELETE_TAGS)?.execute([&article.id])?;
    outbox::insert_serialized(tx, &mutation.event(DELETED, &event)?)?;
    Ok(article)
}

/// The row was read in this very transaction, so it is there unless somebody's trigger keeps it from being written.
fn one_row(rows: usize) -> Result<(), ArticleError> {
    if rows == 1 { Ok(()) } else { Err(ArticleError::Sqlite(rusqlite::Error::StatementChangedRows(rows))) }
}

fn import(
    tx: &Transaction<'_>,
    mutation: &PreparedMutation,
    source: &str,
    hash: &str,
    draft: &Draft,
) -> Result<Applied, ArticleError> {
    let last = tx.prepare_cached(sql::SOURCE)?.query_row([source], LastImport::from_row).optional()?;
    let applied = match last {
        None => Applied::Created(create(tx, mutation, draft)?),
        Some(last) => {
            let article = rows::find(tx, sql::ARTICLE_BY_ID, &last.article_id)?;
            let kept = |reason, article| Ok(Applied::Kept { reason, article });
            match article {
                article if last.hash == hash => return kept(Kept::SameSource, article),
                None => return kept(Kept::Deleted, None),
                Some(article) if article.version != last.version => return kept(Kept::Edited, Some(article)),
                Some(article) => {
                    let updated_at = draft.times.1.unwrap_or(mutation.now_ms);
                    revise(tx, mutation, article, &draft.as_patch(), updated_at)?
                }
            }
        }
    };
    if let Some(article) = applied.article() {
        let put = params![source, article.id, hash, article.version, mutation.now_ms];
        tx.prepare_cached(sql::PUT_SOURCE)?.execute(put)?;
    }
    Ok(applied)
}

/// What the last import of a source left behind.
struct LastImport {
    article_id: String,
    hash: String,
    version: i64,
}

impl LastImport {
    fn from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { article_id: row.get(0)?, hash: row.get(1)?, version: row.get(2)? })
    }
}
