//! A request that is sent again with the same key changes nothing and gets the answer that the first one got.
//!
//! What the first one led to is written in its own transaction, so key, article and event are there together or not at
//! all. Only what was committed is remembered: a refused request does not use its key up.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::{Applied, Article, ArticleError, Expected, Kept, sql};

/// How long a key is remembered, milliseconds.
pub const REQUEST_KEY_KEPT_MS: i64 = 24 * 3600 * 1000;
/// Longest key, in bytes.
pub const MAX_REQUEST_KEY_BYTES: usize = 255;
/// Keys past their time that each new one removes: more than one, so that a heap of them shrinks.
const PRUNED_PER_KEY: i64 = 8;

/// What became of each mutation of a request, in order.
pub(crate) type Outcomes = Vec<Result<Outcome, ArticleError>>;

/// What became of a mutation that was not refused.
#[derive(Debug)]
pub(crate) enum Outcome {
    Applied(Applied),
    /// It waits as the job of this number.
    Deferred(i64),
}

/// What makes a repeated request harmless: a key that its sender chose, and what tells this request from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    scope: String,
    key: String,
    fingerprint: String,
}

impl RequestKey {
    /// A key within `scope` (whose keys do not meet those of other scopes) for the request that `fingerprint` stands for:
    /// equal for the same request, another for any other, such as a digest.
    ///
    /// # Errors
    /// `invalid`, field `idempotency_key`: the key is not 1 to 255 visible ASCII characters.
    pub fn new(
        scope: impl Into<String>,
        key: impl Into<String>,
        fingerprint: impl Into<String>,
    ) -> Result<Self, ArticleError> {
        let key = key.into();
        if !(1..=MAX_REQUEST_KEY_BYTES).contains(&key.len()) || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = format!("must be 1 to {MAX_REQUEST_KEY_BYTES} visible ASCII characters without blanks");
            return Err(ArticleError::invalid("idempotency_key", reason));
        }
        Ok(Self { scope: scope.into(), key, fingerprint: fingerprint.into() })
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.key
    }
}

/// Does `work` in the caller's transaction unless that was done before under `key`; then gives what came of it.
pub(crate) fn once<E: From<ArticleError>>(
    tx: &Transaction<'_>,
    key: &RequestKey,
    now_ms: i64,
    work: impl FnOnce() -> Result<Outcomes, E>,
) -> Result<Outcomes, E> {
    let found = Remembered::find(tx, key, now_ms).map_err(ArticleError::from)?;
    if let Some(outcomes) = found.map(|found| found.outcomes(key)).transpose()? {
        return Ok(outcomes);
    }
    let outcomes = work()?;
    if outcomes.iter().any(Result::is_ok) {
        remember(tx, key, now_ms, &outcomes)?;
    }
    Ok(outcomes)
}

/// Whether the request's outcome is there: answers what became of a COMMIT whose outcome is unknown.
pub(crate) fn is_remembered(conn: &Connection, key: &RequestKey) -> rusqlite::Result<bool> {
    conn.prepare_cached(sql::HAS_REQUEST_KEY)?.exists([&key.scope, &key.key, &key.fingerprint])
}

/// Removes up to `limit` keys past their time, the oldest first; returns how many.
///
/// # Errors
/// As SQLite reports it.
pub fn prune_request_keys(tx: &Transaction<'_>, now_ms: i64, limit: u32) -> rusqlite::Result<usize> {
    tx.prepare_cached(sql::PRUNE_REQUEST_KEYS)?.execute(params![now_ms - REQUEST_KEY_KEPT_MS, limit])
}

fn remember(tx: &Transaction<'_>, key: &RequestKey, now_ms: i64, outcomes: &Outcomes) -> Result<(), ArticleError> {
    let stored: Option<Vec<Stored<'_>>> = outcomes.iter().map(Stored::of).collect();
    let text = stored.and_then(|stored| serde_json::to_string(&stored).ok());
    let text = text.ok_or(rusqlite::Error::ToSqlConversionFailure("an outcome that cannot be kept".into()))?;
    tx.prepare_cached(sql::PUT_REQUEST_KEY)?.execute(params![key.scope, key.key, key.fingerprint, now_ms, text])?;
    tx.prepare_cached(sql::PRUNE_REQUEST_KEYS)?.execute([now_ms - REQUEST_KEY_KEPT_MS, PRUNED_PER_KEY])?;
    Ok(())
}

/// What stands under a key.
pub(super) struct Remembered {
    fingerprint: String,
    outcomes: String,
}

impl Remembered {
    /// A key past its time is as good as none.
    pub(super) fn find(conn: &Connection, key: &RequestKey, now_ms: i64) -> rusqlite::Result<Option<Self>> {
        let read = |row: &Row<'_>| Ok(Self { fingerprint: row.get(0)?, outcomes: row.get(1)? });
        let found = params![key.scope, key.key, now_ms - REQUEST_KEY_KEPT_MS];
        conn.prepare_cached(sql::REQUEST_KEY)?.query_row(found, read).optional()
    }

    /// # Errors
    /// [`ArticleError::KeyReused`]: that was another request.
    pub(super) fn outcomes(self, key: &RequestKey) -> Result<Outcomes, ArticleError> {
        if self.fingerprint != key.fingerprint {
            return Err(ArticleError::KeyReused { key: key.key.clone() });
        }
        let stored: Vec<Restored> = serde_json::from_str(&self.outcomes).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error))
        })?;
        Ok(stored.into_iter().map(Restored::into_outcome).collect())
    }
}

/// An outcome on its way into the table. Names must stay what they are for a day.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Stored<'a> {
    Created(&'a Article),
    Updated(&'a Article),
    Deleted(&'a Article),
    Unchanged(&'a Article),
    Kept(Kept, Option<&'a Article>),
    Deferred(i64),
    Invalid(&'a str, &'a str),
    SlugTaken(&'a str),
    IdTaken(&'a str),
    NotFound(&'a str),
    Stale(&'a Expected, &'a str, i64, i64),
}

/// The same on its way out.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Restored {
    Created(Article),
    Updated(Article),
    Deleted(Article),
    Unchanged(Article),
    Kept(Kept, Option<Article>),
    Deferred(i64),
    Invalid(String, String),
    SlugTaken(String),
    IdTaken(String),
    NotFound(String),
    Stale(Expected, String, i64, i64),
}

impl<'a> Stored<'a> {
    /// `None` for what no committed request can have led to.
    fn of(outcome: &'a Result<Outcome, ArticleError>) -> Option<Self> {
        Some(match outcome {
            Ok(Outcome::Applied(applied)) => match applied {
                Applied::Created(article) => Self::Created(article),
                Applied::Updated(article) => Self::Updated(article),
                Applied::Deleted(article) => Self::Deleted(article),
                Applied::Unchanged(article) => Self::Unchanged(article),
                Applied::Kept { reason, article } => Self::Kept(*reason, article.as_ref()),
            },
            Ok(Outcome::Deferred(job)) => Self::Deferred(*job),
            Err(ArticleError::Invalid { field, reason }) => Self::Invalid(field, reason),
            Err(ArticleError::SlugTaken { slug }) => Self::SlugTaken(slug),
            Err(ArticleError::IdTaken { id }) => Self::IdTaken(id),
            Err(ArticleError::NotFound { slug }) => Self::NotFound(slug),
            Err(ArticleError::Stale { expected, id, version, updated_at }) => {
                Self::Stale(expected, id, *version, *updated_at)
            }
            Err(_) => return None,
        })
    }
}

impl Restored {
    fn into_outcome(self) -> Result<Outcome, ArticleError> {
        let applied = |applied| Ok(Outcome::Applied(applied));
        match self {
            Self::Created(article) => applied(Applied::Created(article)),
            Self::Updated(article) => applied(Applied::Updated(article)),
            Self::Deleted(article) => applied(Applied::Deleted(article)),
            Self::Unchanged(article) => applied(Applied::Unchanged(article)),
            Self::Kept(reason, article) => applied(Applied::Kept { reason, article }),
            Self::Deferred(job) => Ok(Outcome::Deferred(job)),
            Self::Invalid(field, reason) => Err(ArticleError::invalid(field, reason)),
            Self::SlugTaken(slug) => Err(ArticleError::SlugTaken { slug }),
            Self::IdTaken(id) => Err(ArticleError::IdTaken { id }),
            Self::NotFound(slug) => Err(ArticleError::NotFound { slug }),
            Self::Stale(expected, id, version, updated_at) => {
                Err(ArticleError::Stale { expected, id, version, updated_at })
            }
        }
    }
}
