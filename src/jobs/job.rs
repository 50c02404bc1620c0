//! A write that waits, as it is stored and as it is handed in.

use std::fmt;
use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Row, Transaction, params};
use serde::{Deserialize, Serialize};

use super::sql;

/// Where a job stands.
///
/// | from | event | to |
/// |---|---|---|
/// | `pending` | applied, together with its event · cannot be applied, ever · cancelled | `applied` · `dead_letter`, after three replays `quarantined` · `cancelled` |
/// | `dead_letter`, `cancelled` | replay | `pending` |
/// | `quarantined` | forced replay | `pending` |
/// | `applied`, `cancelled` | a day | gone |
/// | `dead_letter`, `quarantined`, `cancelled` | discard | gone |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JobStatus {
    /// Waits for its turn, its time, or the site to be opened.
    Pending,
    /// Done: the change and its event are there.
    Applied,
    /// Could not be applied, and never will as it is.
    DeadLetter,
    /// As a dead letter, after three replays.
    Quarantined,
    /// Taken back before its turn.
    Cancelled,
}

/// A job as stored. What another process inserted may lack anything but its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Job {
    /// Its number; the line is in the order of these.
    pub id: i64,
    /// Where it stands.
    pub status: JobStatus,
    /// How often it was replayed.
    pub replays: u32,
    /// Not before this time, milliseconds since the Unix epoch; `None`: as soon as the line comes to it.
    pub run_at: Option<i64>,
    /// See [`Mutation::from_parts`](crate::article::Mutation::from_parts).
    pub operation: Option<String>,
    /// Will stand on the event.
    pub correlation_id: Option<String>,
    /// At most one job has it.
    pub idempotency_key: Option<String>,
    /// The id of its event; `None` if that is minted when it is applied.
    pub event_id: Option<String>,
    /// The article, once it is known.
    pub article_id: Option<String>,
    /// The article's slug, once the job is applied.
    pub slug: Option<String>,
    /// Why it could not be applied: a code, a colon, and words.
    pub last_error: Option<String>,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub updated_at: i64,
    /// JSON; left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A job to be inserted.
///
/// The fields after `idempotency_key` are for jobs that have a past elsewhere; leave them as [`NewJob::new`] makes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// `create`, `update`, `delete`, `publish` or `import`.
    pub operation: String,
    /// JSON, as the operation wants it.
    pub body: String,
    /// Not before this time, milliseconds since the Unix epoch; `None`: as soon as possible.
    pub run_at: Option<i64>,
    /// Will stand on the event.
    pub correlation_id: Option<String>,
    /// A second job with the same key is not inserted.
    pub idempotency_key: Option<String>,
    /// Its number; `None` takes the next.
    pub id: Option<i64>,
    /// Where it stands.
    pub status: JobStatus,
    /// How often it was replayed.
    pub replays: u32,
    /// The id of the event that it will emit; `None` mints one when it is applied.
    pub event_id: Option<String>,
    /// The article that it concerns, if that is known.
    pub article_id: Option<String>,
    /// Why it could not be applied.
    pub last_error: Option<String>,
}

impl NewJob {
    /// A pending job to be applied as soon as possible.
    pub fn new(operation: impl Into<String>, body: impl Into<String>) -> Self {
        Self {
            operation: operation.into(),
            body: body.into(),
            run_at: None,
            correlation_id: None,
            idempotency_key: None,
            id: None,
            status: JobStatus::Pending,
            replays: 0,
            event_id: None,
            article_id: None,
            last_error: None,
        }
    }
}

/// Inserts a job in the caller's transaction and returns its number; `None` if another has its id or its idempotency key, and
/// then nothing is written. The body is looked at when the job's turn comes.
///
/// # Errors
/// As SQLite reports it.
pub fn insert(tx: &Transaction<'_>, job: &NewJob, now_ms: i64) -> rusqlite::Result<Option<i64>> {
    let inserted = tx.prepare_cached(sql::INSERT)?.execute(params![
        job.id,
        job.status,
        job.replays,
        job.run_at,
        job.operation,
        job.correlation_id,
        job.idempotency_key,
        job.event_id,
        job.article_id,
        job.last_error,
        now_ms,
        job.body,
    ])?;
    Ok((inserted == 1).then(|| tx.last_insert_rowid()))
}

impl Job {
    /// A row with the columns of `sql::SHOW`. Text that is not UTF-8 is shown as far as it goes.
    pub(super) fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            status: row.get(1)?,
            replays: u32::try_from(row.get::<_, i64>(2)?).unwrap_or(u32::MAX),
            run_at: row.get(3)?,
            operation: lossy(row, 4)?,
            correlation_id: lossy(row, 5)?,
            idempotency_key: lossy(row, 6)?,
            event_id: lossy(row, 7)?,
            article_id: lossy(row, 8)?,
            slug: lossy(row, 9)?,
            last_error: lossy(row, 10)?,
            created_at: row.get(11)?,
            updated_at: row.get(12)?,
            body: lossy(row, 13)?,
        })
    }
}

fn lossy(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    })
}

impl JobStatus {
    /// Every status there is.
    pub const ALL: &'static [JobStatus] =
        &[Self::Pending, Self::Applied, Self::DeadLetter, Self::Quarantined, Self::Cancelled];

    /// The status's name: `pending`, `applied`, `dead_letter`, `quarantined`, `cancelled`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Applied => "applied",
            Self::DeadLetter => "dead_letter",
            Self::Quarantined => "quarantined",
            Self::Cancelled => "cancelled",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str() == name)
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for JobStatus {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let unknown = || "must be pending, applied, dead_letter, quarantined or cancelled".to_owned();
        Self::from_name(name).ok_or_else(unknown)
    }
}

impl ToSql for JobStatus {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_str()))
    }
}

impl FromSql for JobStatus {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::from_name(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}
