//! Removing what every lane has passed long ago, in small steps that no writer notices.

use std::time::{Duration, Instant};

use rusqlite::Transaction;

use super::policy::millis;
use super::sql;
use crate::storage::{Database, TransactError};

/// Longest pause between two steps: a step may have waited behind much else.
const LONGEST_REST: Duration = Duration::from_millis(100);

/// What is removed from the log, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// Events younger than this stay; 7 days.
    pub keep: Duration,
    /// Most rows looked at in one task of the queue-writer; 200.
    pub rows_per_task: usize,
    /// Time between two passes; 10 minutes.
    pub every: Duration,
    /// Free pages given back to the file system in one task, where the file has `auto_vacuum=INCREMENTAL`; 64.
    pub vacuum_pages: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            keep: Duration::from_secs(7 * 86_400),
            rows_per_task: 200,
            every: Duration::from_secs(600),
            vacuum_pages: 64,
        }
    }
}

/// What one pass removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Pruned {
    /// Events removed from the log.
    pub events: u64,
    /// Where the pass stopped: the next one goes on there.
    pub resume_after: i64,
}

/// One step's result.
struct Step {
    removed: u64,
    /// The last row looked at; `None` when there was none left or it was too young.
    last: Option<i64>,
}

/// Removes from the log what every lane has passed, is older than `retention.keep` and has no exception left but closed
/// `done` or `discarded` ones, which go along. Dead letters keep their event. While every lane is held, nothing is removed. Each step is one small task, with a pause after
/// it as long as it took (at most 100 ms); `stop` is asked between two of them.
///
/// # Errors
/// As the queue-writer reports them; what was removed stays removed.
pub fn prune(
    database: &Database,
    retention: &Retention,
    resume_after: i64,
    stop: impl Fn() -> bool,
) -> Result<Pruned, TransactError<rusqlite::Error>> {
    let now = database.clock().now_ms();
    let age = Age { before: now.saturating_sub(millis(retention.keep)), now };
    let rows = i64::try_from(retention.rows_per_task.max(1)).unwrap_or(i64::MAX);
    let mut pruned = Pruned { events: 0, resume_after };
    while !stop() && !all_held(database) && has_old_rows(database, pruned.resume_after, age, rows) {
        let after = pruned.resume_after;
        let step = step_and_rest(database, move |tx| prune_step(tx, after, age, rows))?;
        pruned.events += step.removed;
        match step.last {
            Some(last) => pruned.resume_after = last,
            None => break,
        }
    }
    Ok(pruned)
}

/// Gives free pages back to the file system, [`Retention::vacuum_pages`] in one task of the queue-writer, until there are none
/// left; returns how many. Does nothing in a file without `auto_vacuum=INCREMENTAL`. `stop` is asked between two tasks.
///
/// # Errors
/// As the database reports them; what was given back stays so.
pub fn reclaim(
    database: &Database,
    retention: &Retention,
    stop: impl Fn() -> bool,
) -> Result<u64, TransactError<rusqlite::Error>> {
    /// One call ends after this many steps.
    const MAX_STEPS: u32 = 100_000;
    let pages = retention.vacuum_pages.max(1);
    let mut given_back = 0;
    for _ in 0..MAX_STEPS {
        let free = free_pages(database);
        if free == 0 || stop() {
            break;
        }
        step_and_rest(database, move |tx| vacuum_step(tx, pages))?;
        let gone = free.saturating_sub(free_pages(database));
        given_back += gone;
        if gone == 0 {
            // Others use pages faster than they are given back.
            break;
        }
    }
    Ok(given_back)
}

/// One task of the queue-writer, and then nothing for as long as it took: the writer and the disk are others' at least half
/// of the time.
fn step_and_rest<T: Send + 'static>(
    database: &Database,
    step: impl FnMut(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
) -> Result<T, TransactError<rusqlite::Error>> {
    let began = Instant::now();
    let done = database.writer().submit_internal(false, step)?.wait()?;
    std::thread::sleep(began.elapsed().min(LONGEST_REST));
    Ok(done)
}

fn vacuum_step(tx: &Transaction<'_>, pages: u32) -> rusqlite::Result<()> {
    // Each step of the statement gives back one page, so it has to be run to its end.
    let mut statement = tx.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Free pages that a vacuum would give back.
fn free_pages(database: &Database) -> u64 {
    const INCREMENTAL: i64 = 2;
    let found = database.read(|connection| {
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok::<_, rusqlite::Error>(if pragma("auto_vacuum")? == INCREMENTAL { pragma("freelist_count")? } else { 0 })
    });
    u64::try_from(found.unwrap_or(0)).unwrap_or(0)
}

/// Which rows are old enough.
#[derive(Debug, Clone, Copy)]
struct Age {
    /// Older ones go.
    before: i64,
    now: i64,
}

impl Age {
    /// `None` ends the pass: the rows after it are younger still. One from the future (a wrong clock, a caller's own
    /// time) says nothing about those after it.
    fn is_over(self, occurred_at: i64) -> Option<bool> {
        if occurred_at < self.before {
            Some(true)
        } else if occurred_at > self.now {
            Some(false)
        } else {
            None
        }
    }
}

/// Whoever holds every lane wants the outbox to stay as it is.
fn all_held(database: &Database) -> bool {
    let read = database.read(|connection| connection.prepare_cached(sql::ALL_HELD)?.query_row([], |row| row.get(0)));
    read.unwrap_or(false)
}

/// Looks before it writes, so that a log with nothing to remove costs no write transaction.
fn has_old_rows(database: &Database, after: i64, age: Age, limit: i64) -> bool {
    let found = database.read(|connection| {
        let mut statement = connection.prepare_cached(sql::OLD_ROWS)?;
        let mut rows = statement.query((after, limit))?;
        let mut seen = 0;
        while let Some(row) = rows.next()? {
            seen += 1;
            match age.is_over(row.get(1)?) {
                Some(true) => return Ok::<_, rusqlite::Error>(true),
                Some(false) => {}
                None => return Ok(false),
            }
        }
        // A whole step of rows from the future: beyond them there may be old ones.
        Ok(seen == limit)
    });
    found.unwrap_or_else(|error| {
        log::warn!("relay retention=unread after={after} error={error}: looked at again at the next pass");
        false
    })
}

fn prune_step(tx: &Transaction<'_>, after: i64, age: Age, limit: i64) -> rusqlite::Result<Step> {
    let mut step = Step { removed: 0, last: None };
    let candidates: Vec<(i64, i64)> = tx
        .prepare_cached(sql::OLD_ROWS)?
        .query_map((after, limit), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (id, occurred_at) in candidates {
        let Some(is_over) = age.is_over(occurred_at) else { break };
        step.last = Some(id);
        if !is_over {
            continue;
        }
        if tx.prepare_cached(sql::HAS_LIVE_EXCEPTION)?.query_row([id], |row| row.get(0))? {
            continue;
        }
        tx.prepare_cached(sql::DELETE_EXCEPTIONS)?.execute([id])?;
        step.removed += tx.prepare_cached(sql::DELETE_EVENT)?.execute([id])? as u64;
    }
    Ok(step)
}
