//! Reading articles: one read snapshot per call.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use rusqlite::{Connection, OptionalExtension, Row, ToSql};
use serde::Serialize;

use super::request_key::Remembered;
use super::tags::tag_key;
use super::{Article, ArticleError, Kind, Outcome, RequestKey, Status, rows, sql};
use crate::storage::{Database, ReadError};

/// Most articles on one page of a list.
const MAX_LIMIT: u32 = 100;
/// [`ArticleRepository::after`] ends a page once it holds this many bytes of content.
const PAGE_BYTES: usize = 8 << 20;

/// Reads articles. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ArticleRepository {
    database: Database,
}

/// Which articles to list.
///
/// ```
/// use vayu_articles::article::ListQuery;
///
/// let query = ListQuery { tag: Some("Rust".into()), page: 2, ..ListQuery::default() };
/// assert_eq!(query.limit, 20);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// From 1 (the default).
    pub page: u32,
    /// Articles per page, 1 to 100; 20 by default.
    pub limit: u32,
    /// Only articles with this tag, in any spelling.
    pub tag: Option<String>,
    /// Only articles of this status; published by default, `None` means every status.
    pub status: Option<Status>,
    /// Only articles of this kind; `None` (the default) means every kind.
    pub kind: Option<Kind>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// At most `limit`.
    pub items: Vec<T>,
    /// From 1.
    pub page: u32,
    /// Most items per page.
    pub limit: u32,
    /// Items on all pages together.
    pub total: u64,
}

/// An article without its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ArticleSummary {
    /// As in [`Article`].
    pub id: String,
    /// As in [`Article`].
    pub kind: Kind,
    /// As in [`Article`].
    pub status: Status,
    /// As in [`Article`].
    pub slug: String,
    /// As in [`Article`].
    pub title: String,
    /// As in [`Article`].
    pub tags: Vec<String>,
    /// As in [`Article`].
    pub version: i64,
    /// As in [`Article`].
    pub created_at: i64,
    /// As in [`Article`].
    pub updated_at: i64,
    /// As in [`Article`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish_at: Option<i64>,
}

/// Where an article is, and since when it is as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArticleAddress {
    /// As in [`Article`].
    pub id: String,
    /// As in [`Article`].
    pub slug: String,
    /// As in [`Article`].
    pub created_at: i64,
    /// As in [`Article`].
    pub updated_at: i64,
}

/// A tag and how many articles have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TagCount {
    /// The tag's key: what all its spellings have in common; for URLs.
    pub tag: String,
    /// The spelling on the oldest article that has the tag.
    pub label: String,
    /// Articles that have it.
    pub count: u64,
}

/// Identifies a state of all articles: two equal ones saw the same articles. Reading it costs the same at any size.
///
/// It is made of the newest event's position and identity, so it moves with every event in the log, and a restored
/// backup that goes on differently gets other ones. Its text is plain ASCII, fit for a file name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SiteVersion {
    event: i64,
    event_id: Option<String>,
    newest_article: Option<String>,
}

/// Identifies one state of one article. Version and time together, since after a restored backup an article may reach
/// the same version a second time with another text; and the text's own mark, since an import brings its times along.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArticleStamp {
    /// Article id.
    pub id: String,
    /// The article's version.
    pub version: i64,
    /// When it changed last, milliseconds since the Unix epoch.
    pub updated_at: i64,
    /// A mark of all that readers see of it: equal for equal articles, and hardly ever for others. `None` where the
    /// content was not read. Not the same in every build.
    pub mark: Option<u64>,
}

/// Why a read failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum RepositoryError {
    /// The question is wrong: mend `field` as `reason` says.
    Invalid {
        /// `page`, `limit` or `tag`.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The database could not answer.
    Read(ReadError<rusqlite::Error>),
}

impl Default for ListQuery {
    fn default() -> Self {
        Self { page: 1, limit: 20, tag: None, status: Some(Status::Published), kind: None }
    }
}

impl ArticleRepository {
    /// Reads from `database`, which must hold the components `articles` and `outbox`.
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// The article that has `slug`, whatever its status.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn by_slug(&self, slug: &str) -> Result<Option<Article>, RepositoryError> {
        self.read(|conn| rows::find(conn, sql::ARTICLE_BY_SLUG, slug))
    }

    /// The article with this id, whatever its status.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn by_id(&self, id: &str) -> Result<Option<Article>, RepositoryError> {
        self.read(|conn| rows::find(conn, sql::ARTICLE_BY_ID, id))
    }

    /// One page of articles, newest first (by `created_at`, then id), and how many there are in all.
    ///
    /// # Errors
    /// [`RepositoryError::Invalid`] for a page 0 or a limit outside 1 to 100; [`RepositoryError::Read`].
    pub fn list(&self, query: &ListQuery) -> Result<Page<ArticleSummary>, RepositoryError> {
        let invalid = |field, reason: &str| Err(RepositoryError::Invalid { field, reason: reason.to_owned() });
        if query.page == 0 {
            return invalid("page", "must be 1 or more");
        }
        if !(1..=MAX_LIMIT).contains(&query.limit) {
            return invalid("limit", "must be 1 to 100");
        }
        self.read(|conn| list(conn, query))
    }

    /// The tags of the articles with this status (of all with `None`), each with its count, in the order of their keys.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn tags(&self, status: Option<Status>) -> Result<Vec<TagCount>, RepositoryError> {
        self.read(|conn| match status {
            None => conn.prepare_cached(sql::TAG_COUNTS)?.query_map([], TagCount::from_row)?.collect(),
            Some(status) => {
                conn.prepare_cached(sql::TAG_COUNTS_OF_STATUS)?.query_map([status], TagCount::from_row)?.collect()
            }
        })
    }

    /// The articles whose id is above `id` (from the lowest with `None`), in order of their ids: at most `limit`, and
    /// fewer, though at least one, when they are long. An empty answer is the end.
    ///
    /// Visits every article once, in bounded memory, each page in a snapshot of its own.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn after(&self, id: Option<&str>, limit: u32) -> Result<Vec<Article>, RepositoryError> {
        self.read(|conn| after(conn, id.unwrap_or_default(), limit))
    }

    /// The first `limit` articles whose id is above `id` (from the lowest with `None`), in order of their ids, without
    /// reading any content. Fewer than `limit` is the end.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn stamps_after(&self, id: Option<&str>, limit: u32) -> Result<Vec<ArticleStamp>, RepositoryError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(sql::STAMPS_AFTER)?;
            let found = statement.query_map((id.unwrap_or_default(), limit), ArticleStamp::from_row)?;
            found.collect()
        })
    }

    /// What a single mutation under `key` led to, or that the key was used for another request; `None` if nothing was
    /// committed under it within the last day.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub(crate) fn remembered(
        &self,
        key: &RequestKey,
    ) -> Result<Option<Result<Outcome, ArticleError>>, RepositoryError> {
        let now_ms = self.database.clock().now_ms();
        let found = self.read(|conn| Remembered::find(conn, key, now_ms))?;
        Ok(found.and_then(|found| found.outcomes(key).map_or_else(|error| Some(Err(error)), |mut all| all.pop())))
    }

    /// The first `chars` characters of the texts of these articles, in their order; empty for one that is gone.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn openings(&self, ids: &[&str], chars: u32) -> Result<Vec<String>, RepositoryError> {
        self.read(|conn| {
            let mut statement = conn.prepare_cached(sql::OPENING)?;
            let mut opening = |id: &&str| statement.query_row((id, chars), |row| row.get(0)).optional();
            ids.iter().map(|id| opening(id).map(Option::unwrap_or_default)).collect()
        })
    }

    /// Where published articles of one kind are, newest first: at most `limit` of those after `after`, which is an
    /// earlier answer's last one, or after the first `skip` without it. Fewer than `limit` is the end.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn addresses(
        &self,
        kind: Kind,
        after: Option<&ArticleAddress>,
        skip: u32,
        limit: u32,
    ) -> Result<Vec<ArticleAddress>, RepositoryError> {
        self.read(|conn| addresses(conn, kind, after, skip, limit))
    }

    /// The database that is read.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// The present state of all articles, for whoever caches lists of them.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn site_version(&self) -> Result<SiteVersion, RepositoryError> {
        self.read(site_version)
    }

    fn read<T>(&self, f: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, RepositoryError> {
        self.database.read(f).map_err(RepositoryError::Read)
    }
}

fn list(conn: &Connection, query: &ListQuery) -> rusqlite::Result<Page<ArticleSummary>> {
    let tag = query.tag.as_deref().map(tag_key);
    let tagged = tag.is_some();
    let limit = i64::from(query.limit);
    let offset = i64::from(query.page - 1) * limit;
    let tag: Option<&dyn ToSql> = tag.as_ref().map(|tag| tag as &dyn ToSql);

    let count: Vec<&dyn ToSql> = tag.into_iter().collect();
    let total: i64 =
        conn.prepare_cached(&sql::count(query.status, query.kind, tagged))?.query_row(&*count, |row| row.get(0))?;
    let parameters: Vec<&dyn ToSql> = [&limit as &dyn ToSql, &offset].into_iter().chain(tag).collect();
    let mut statement = conn.prepare_cached(&sql::list(query.status, query.kind, tagged))?;
    let found = statement.query_map(&*parameters, ArticleSummary::without_tags)?;
    let mut items: Vec<ArticleSummary> = found.collect::<rusqlite::Result<_>>()?;
    for item in &mut items {
        item.tags = rows::tags_of(conn, &item.id)?;
    }
    Ok(Page { items, page: query.page, limit: query.limit, total: total.unsigned_abs() })
}

fn addresses(
    conn: &Connection,
    kind: Kind,
    after: Option<&ArticleAddress>,
    skip: u32,
    limit: u32,
) -> rusqlite::Result<Vec<ArticleAddress>> {
    let start = match after {
        Some(last) => Some((last.created_at, last.id.clone())),
        // Before everything there is.
        None if skip == 0 => Some((i64::MAX, String::new())),
        None => {
            let place = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            conn.prepare_cached(sql::ADDRESS_AT)?.query_row((kind, skip - 1), place).optional()?
        }
    };
    let Some((created_at, id)) = start else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(sql::ADDRESSES)?;
    let found = statement.query_map((kind, created_at, id, limit), |row| {
        Ok(ArticleAddress { id: row.get(0)?, slug: row.get(1)?, created_at: row.get(2)?, updated_at: row.get(3)? })
    })?;
    found.collect()
}

fn after(conn: &Connection, id: &str, limit: u32) -> rusqlite::Result<Vec<Article>> {
    let mut statement = conn.prepare_cached(sql::ARTICLES_AFTER)?;
    let mut found = statement.query((id, limit))?;
    let mut page = Vec::new();
    let mut bytes = 0;
    while bytes < PAGE_BYTES
        && let Some(row) = found.next()?
    {
        let mut article = rows::without_tags(row)?;
        article.tags = rows::tags_of(conn, &article.id)?;
        bytes += article.content.len();
        page.push(article);
    }
    Ok(page)
}

fn site_version(conn: &Connection) -> rusqlite::Result<SiteVersion> {
    let newest = conn.prepare_cached(sql::NEWEST_EVENT)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
    let (event, event_id) = match newest.optional()? {
        Some((event, event_id)) => (event, Some(event_id)),
        None => {
            let sequence = conn.prepare_cached(sql::EVENT_SEQUENCE)?.query_row([], |row| row.get(0)).optional()?;
            (sequence.unwrap_or(0), None)
        }
    };
    let newest_article = conn.prepare_cached(sql::NEWEST_ARTICLE)?.query_row([], |row| row.get(0))?;
    Ok(SiteVersion { event, event_id, newest_article })
}

impl ArticleSummary {
    fn without_tags(row: &Row<'_>) -> rusqlite::Result<Self> {
        let publish_at = row.get(8)?;
        Ok(Self {
            id: row.get(0)?,
            kind: row.get(1)?,
            status: rows::status(row.get(2)?, publish_at),
            slug: row.get(3)?,
            title: row.get(4)?,
            tags: Vec::new(),
            version: row.get(5)?,
            created_at: row.get(6)?,
            updated_at: row.get(7)?,
            publish_at,
        })
    }
}

impl ArticleStamp {
    /// The stamp of `article`.
    pub fn of(article: &Article) -> Self {
        let Article { id, kind, status, slug, title, content, tags, version, created_at, updated_at, publish_at } =
            article;
        let mut mark = DefaultHasher::new();
        (kind, status, slug, title, content, tags, created_at, publish_at).hash(&mut mark);
        Self { id: id.clone(), version: *version, updated_at: *updated_at, mark: Some(mark.finish()) }
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { id: row.get(0)?, version: row.get(1)?, updated_at: row.get(2)?, mark: None })
    }
}

impl TagCount {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { tag: row.get(0)?, label: row.get(1)?, count: row.get::<_, i64>(2)?.unsigned_abs() })
    }
}

impl fmt::Display for SiteVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Foreign event ids may hold any character; their bytes in hexadecimal do not.
        write!(f, "{}", self.event)?;
        for part in [&self.event_id, &self.newest_article] {
            f.write_str("-")?;
            part.iter().flat_map(|text| text.bytes()).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        }
        Ok(())
    }
}

impl RepositoryError {
    /// A stable name for programs: `invalid`, `saturated` (no free connection: try later), `stopped`, `too_long`,
    /// `database_error`, `internal`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::Read(ReadError::PoolTimeout) => "saturated",
            Self::Read(ReadError::Closed) => "stopped",
            Self::Read(ReadError::TooLong) => "too_long",
            Self::Read(ReadError::Nested) => "internal",
            Self::Read(_) => "database_error",
        }
    }

    /// The field at fault, if one is.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Invalid { field, .. } => Some(field),
            Self::Read(_) => None,
        }
    }
}

impl fmt::Display for RepositoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, reason } => write!(f, "{field} {reason}"),
            Self::Read(error) => write!(f, "articles could not be read: {error}"),
        }
    }
}

impl std::error::Error for RepositoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Invalid { .. } => None,
            Self::Read(error) => Some(error),
        }
    }
}
