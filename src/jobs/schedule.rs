//! Scheduled articles and the jobs that publish them: one pending job per article that has a time.

use rusqlite::{OptionalExtension, Transaction};

use super::job::{NewJob, insert};
use super::sql;
use crate::article::{Applied, Article, PreparedMutation};
use crate::clock::rfc3339;
use crate::storage::{Database, ReadError, TransactError};

/// Articles that are given their missing job in one transaction.
const REPAIRED_MAX: i64 = 500;

/// Makes, moves or cancels the job of the article that was just changed, in the same transaction.
pub(super) fn follow(
    tx: &Transaction<'_>,
    mutation: &PreparedMutation,
    applied: &Applied,
    now_ms: i64,
) -> rusqlite::Result<()> {
    match applied {
        Applied::Created(Article { id, publish_at: Some(at), .. })
        | Applied::Updated(Article { id, publish_at: Some(at), .. }) => {
            plan(tx, id, *at, mutation.correlation_id(), now_ms)
        }
        // The job that publishes is the one that is being applied.
        Applied::Updated(article) if mutation.operation() != "publish" => cancel(tx, &article.id, now_ms),
        Applied::Deleted(Article { id, publish_at: Some(_), .. }) => cancel(tx, id, now_ms),
        _ => Ok(()),
    }
}

fn plan(
    tx: &Transaction<'_>,
    article_id: &str,
    at: i64,
    correlation_id: Option<&str>,
    now_ms: i64,
) -> rusqlite::Result<()> {
    let body = || serde_json::json!({ "id": article_id, "publish_at": rfc3339(at) }).to_string();
    let planned = tx
        .prepare_cached(sql::PUBLICATION)?
        .query_row([article_id], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Option<i64>>(1)?)))
        .optional()?;
    match planned {
        Some((_, run_at)) if run_at == Some(at) => {}
        Some((id, _)) => {
            let moved = (id, at, body(), correlation_id, now_ms);
            tx.prepare_cached(sql::MOVE_PUBLICATION)?.execute(moved)?;
        }
        None => {
            let job = NewJob {
                run_at: Some(at),
                correlation_id: correlation_id.map(str::to_owned),
                article_id: Some(article_id.to_owned()),
                ..NewJob::new("publish", body())
            };
            insert(tx, &job, now_ms)?;
        }
    }
    Ok(())
}

/// Looks before it writes: hardly any change is one to a scheduled article.
fn cancel(tx: &Transaction<'_>, article_id: &str, now_ms: i64) -> rusqlite::Result<()> {
    if tx.prepare_cached(sql::PUBLICATION)?.exists([article_id])? {
        tx.prepare_cached(sql::CANCEL_PUBLICATIONS)?.execute((article_id, now_ms))?;
    }
    Ok(())
}

/// Gives scheduled articles their job if it is missing: they may come from a restored backup, or from a writer that knows no
/// jobs. Says how many there were.
pub(super) fn repair(database: &Database) -> Result<usize, TransactError<rusqlite::Error>> {
    let missing = database.read(|conn| conn.prepare_cached(sql::UNPLANNED)?.exists([1]));
    match missing {
        Ok(true) => {}
        Ok(false) | Err(ReadError::Closed) => return Ok(0),
        Err(error) => {
            log::warn!("jobs unplanned=unread error={error}");
            return Ok(0);
        }
    }
    let now_ms = database.clock().now_ms();
    let repaired = database.writer().submit_internal(false, move |tx| {
        let found: Vec<(String, i64)> = tx
            .prepare_cached(sql::UNPLANNED)?
            .query_map([REPAIRED_MAX], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        found.iter().try_for_each(|(id, at)| plan(tx, id, *at, None, now_ms))?;
        Ok::<_, rusqlite::Error>(found.len())
    })?;
    repaired.wait()
}
