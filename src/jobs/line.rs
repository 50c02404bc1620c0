//! The line: which jobs are due, and what applying some of them does.
//!
//! A group is read and its bodies are checked outside of any transaction, while the group before it commits. Inside, each job
//! is applied if it still stands as it was read: the change, its event and the job's new status are one transaction. So two
//! processes may work on one line, and a crash applies nothing twice.
//!
//! What cannot be undone alone (a panic, a refusal after the first write) fails the group; the job is remembered, and the group
//! runs once more with that job failed beforehand.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::job::JobStatus;
use super::mode::{self, Mode, Standing};
use super::{MAX_REPLAYS, schedule, sql};
use crate::article::{Applied, ArticleError, Mutation, PreparedMutation, apply};
use crate::lifecycle::panic_text;
use crate::storage::Fault;

/// Jobs of one transaction, at most.
pub(super) const GROUP_JOBS: usize = 256;
/// A group ends once its bodies hold so many bytes.
const GROUP_BYTES: usize = 4 << 20;
/// Largest body that is loaded: the longest content, were each of its characters escaped.
const MAX_BODY_BYTES: i64 = 32 << 20;
/// Scheduled jobs that are put in the order of their ids, at most; of more the earliest come first.
const DUE_MAX: i64 = 1_000;
/// Longest reason that is kept, in characters.
const REASON_CHARS: usize = 1_000;

/// Applies one mutation; another than [`apply`] only in tests.
pub(super) type Apply = Arc<dyn Fn(&Transaction<'_>, &PreparedMutation) -> Result<Applied, ArticleError> + Send + Sync>;

pub(super) fn usual() -> Apply {
    Arc::new(apply)
}

/// A job whose turn has come.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub id: i64,
    replays: i64,
    /// What it does, or why it cannot be done.
    mutation: Result<PreparedMutation, String>,
}

impl Due {
    /// Rows that applying it writes, roughly.
    pub(super) fn rows(&self) -> usize {
        1 + self.mutation.as_ref().map_or(0, PreparedMutation::rows)
    }

    /// Bytes that applying it writes, roughly: the job's row is written anew, too.
    pub(super) fn bytes(&self) -> usize {
        self.mutation.as_ref().map_or(0, |mutation| 2 * mutation.bytes())
    }
}

/// What there is to do.
#[derive(Debug)]
pub(super) struct Look {
    pub standing: Standing,
    pub group: Vec<Due>,
    /// When the next scheduled job is due.
    pub next_run_at: Option<i64>,
}

/// What a group has done.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The site is not open: nothing was done.
    pub held: bool,
    pub applied: u64,
    /// With the reason of each.
    pub failed: Vec<(i64, JobStatus, String)>,
}

/// Why a group was rolled back.
#[derive(Debug)]
pub(super) enum GroupError {
    /// This job cannot be applied, and what it did could not be undone alone.
    Job { id: i64, reason: String },
    /// The database failed; no job is to blame.
    Database(ArticleError),
}

/// The mode, and up to `limit` jobs that are due, in the order of their ids, without those that are in hand.
pub(super) fn look(conn: &Connection, limit: usize, in_hand: &[i64], now_ms: i64) -> rusqlite::Result<Look> {
    let standing = mode::standing(conn)?;
    let mut look = Look { standing, group: Vec::new(), next_run_at: None };
    if standing.mode != Mode::Open {
        return Ok(look);
    }
    look.next_run_at = conn.prepare_cached(sql::NEXT_RUN_AT)?.query_row([now_ms], |row| row.get(0)).optional()?;
    let mut bytes = 0;
    for id in due_ids(conn, limit + in_hand.len(), now_ms)?.into_iter().filter(|id| !in_hand.contains(id)).take(limit) {
        if bytes >= GROUP_BYTES {
            break;
        }
        let (due, carried) = load(conn, id, now_ms)?;
        bytes += carried;
        look.group.push(due);
    }
    Ok(look)
}

fn due_ids(conn: &Connection, limit: usize, now_ms: i64) -> rusqlite::Result<Vec<i64>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut ready = conn.prepare_cached(sql::READY_IDS)?;
    let mut due = conn.prepare_cached(sql::DUE_IDS)?;
    let ready = ready.query_map([limit], |row| row.get(0))?;
    let due = due.query_map((now_ms, DUE_MAX), |row| row.get(0))?;
    let mut ids = ready.chain(due).collect::<rusqlite::Result<Vec<i64>>>()?;
    ids.sort_unstable();
    Ok(ids)
}

fn load(conn: &Connection, id: i64, now_ms: i64) -> rusqlite::Result<(Due, usize)> {
    conn.prepare_cached(sql::LOAD)?.query_row((id, MAX_BODY_BYTES), |row| {
        let mutation = mutation_of(row, id, now_ms)?;
        let bytes = row.get::<_, Option<i64>>(2)?.map_or(0, |bytes| usize::try_from(bytes).unwrap_or(0));
        Ok((Due { id, replays: row.get(5)?, mutation: mutation.map_err(|error| reason_of(&error)) }, bytes))
    })
}

/// Anybody may have written the row: every column may hold anything.
fn mutation_of(row: &Row<'_>, id: i64, now_ms: i64) -> rusqlite::Result<Result<PreparedMutation, ArticleError>> {
    let size: Option<i64> = row.get(2)?;
    if size.is_some_and(|size| size > MAX_BODY_BYTES) {
        let reason = format!("is longer than {MAX_BODY_BYTES} bytes");
        return Ok(Err(ArticleError::invalid("body", reason)));
    }
    let read = || -> Result<Result<PreparedMutation, ArticleError>, rusqlite::Error> {
        let (operation, body) = (text(row, 0, "operation")?, text(row, 1, "body")?);
        let (correlation_id, event_id) = (text(row, 3, "correlation_id")?, text(row, 4, "event_id")?);
        let prepare = move || {
            let missing = |field| ArticleError::invalid(field, "is missing");
            let operation = operation?.ok_or_else(|| missing("operation"))?;
            let body = body?.ok_or_else(|| missing("body"))?;
            let mutation = Mutation::from_parts(&operation, &body)?;
            let mut prepared = mutation.prepare(now_ms, correlation_id?, Some(id.to_string()))?;
            if let Some(event_id) = event_id? {
                prepared.set_event_id(event_id);
            }
            Ok(prepared)
        };
        Ok(prepare())
    };
    read()
}

type Field = Result<Option<String>, ArticleError>;

fn text(row: &Row<'_>, column: usize, field: &'static str) -> rusqlite::Result<Field> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => Ok(None),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Some(text.to_owned())),
            Err(_) => Err(ArticleError::invalid(field, "is not UTF-8")),
        },
        _ => Err(ArticleError::invalid(field, "is not text")),
    })
}

/// Applies the group's jobs that still wait, if the site is open. The line's last group ends the draining.
pub(super) fn apply_group(
    tx: &Transaction<'_>,
    apply: &Apply,
    group: &[Due],
    condemned: &BTreeMap<i64, String>,
    now_ms: i64,
) -> Result<Done, GroupError> {
    let standing = mode::standing(tx)?;
    let mut done = Done { held: standing.mode != Mode::Open, ..Done::default() };
    if done.held {
        return Ok(done);
    }
    for due in group {
        if !still_stands(tx, due)? {
            continue;
        }
        let outcome = match (condemned.get(&due.id), &due.mutation) {
            (Some(reason), _) | (None, Err(reason)) => Err(reason.clone()),
            (None, Ok(mutation)) => run(tx, apply, due.id, mutation, now_ms)?,
        };
        match outcome {
            Ok(()) => done.applied += 1,
            Err(reason) => {
                let status =
                    if due.replays >= i64::from(MAX_REPLAYS) { JobStatus::Quarantined } else { JobStatus::DeadLetter };
                tx.prepare_cached(sql::FAIL)?.execute((due.id, status, &reason, now_ms))?;
                done.failed.push((due.id, status, reason));
            }
        }
    }
    if standing.draining && !tx.prepare_cached(sql::HAS_READY)?.query_row([], |row| row.get::<_, bool>(0))? {
        tx.prepare_cached(sql::END_DRAIN)?.execute([])?;
    }
    Ok(done)
}

/// Not applied, cancelled or replayed by somebody else meanwhile.
fn still_stands(tx: &Transaction<'_>, due: &Due) -> rusqlite::Result<bool> {
    let row = tx.prepare_cached(sql::STANDING)?.query_row([due.id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(row == Some((JobStatus::Pending, due.replays)))
}

/// Applies one job. The inner error is its reason to be a dead letter, and nothing of it is written.
fn run(
    tx: &Transaction<'_>,
    apply: &Apply,
    id: i64,
    mutation: &PreparedMutation,
    now_ms: i64,
) -> Result<Result<(), String>, GroupError> {
    let before = tx.total_changes();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let applied = apply(tx, mutation)?;
        schedule::follow(tx, mutation, &applied, now_ms)?;
        Ok::<_, ArticleError>(applied)
    }));
    match ran {
        Ok(Ok(applied)) => {
            let article = applied.article();
            let (article_id, slug) = (article.map(|article| &article.id), article.map(|article| &article.slug));
            let event_id = applied.changed().then(|| mutation.event_id());
            tx.prepare_cached(sql::FINISH)?.execute((id, article_id, slug, event_id, now_ms))?;
            Ok(Ok(()))
        }
        Ok(Err(error)) if error.is_callers() && tx.total_changes() == before => Ok(Err(reason_of(&error))),
        Ok(Err(error)) if is_of_the_database(&error) => Err(GroupError::Database(error)),
        Ok(Err(error)) => Err(GroupError::Job { id, reason: reason_of(&error) }),
        Err(payload) => Err(GroupError::Job { id, reason: shortened(&format!("panic: {}", panic_text(&*payload))) }),
    }
}

/// The fault passes, or is not the job's: it stays as it is and the line waits.
fn is_of_the_database(error: &ArticleError) -> bool {
    let fault = error.sqlite().map(Fault::from);
    fault.is_some_and(|fault| fault.is_transient() || fault.is_corrupt())
}

fn reason_of(error: &ArticleError) -> String {
    shortened(&format!("{}: {error}", error.code()))
}

pub(super) fn shortened(reason: &str) -> String {
    reason.chars().take(REASON_CHARS).collect()
}

impl From<rusqlite::Error> for GroupError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job { id, reason } => write!(f, "job {id} cannot be applied: {reason}"),
            Self::Database(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GroupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Job { .. } => None,
            Self::Database(error) => error.source(),
        }
    }
}
