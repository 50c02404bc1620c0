//! The gate in front of the articles: what becomes of a write is decided inside its own transaction.

use rusqlite::{Connection, Transaction};

use super::job::{NewJob, insert};
use super::mode::{self, Mode};
use super::{JobOptions, schedule, sql};
use crate::article::{Applied, ArticleError, PreparedMutation};
use crate::clock::SharedClock;
use crate::queue::{Gate, Refusal, Way};
use crate::storage::Database;

/// Applies, keeps or refuses writes as the database's mode says, and gives scheduled articles their job.
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
/// use vayu_articles::article::{self, Mutation, NewArticle};
/// use vayu_articles::jobs::{self, JobOptions, Jobs, Journal, Mode};
/// use vayu_articles::queue::{Receipt, SqliteWriter, WriteJob, Writer};
/// use vayu_articles::{outbox, storage};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("site.db");
/// let components = [outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT];
/// let database = storage::Database::open(path, &components, storage::Options::default())?;
/// let writer = SqliteWriter::with_gate(&database, Arc::new(Journal::new(&database, &JobOptions::default())));
/// let jobs = Jobs::new(&database, JobOptions::default());
///
/// jobs.set_mode(Mode::Journal, Some("backup"))?;
/// let receipt = writer.enqueue(WriteJob::new(Mutation::Create(NewArticle::new("Later", "Text."))))?;
/// let Receipt::Deferred { job } = receipt else { panic!("the site is frozen") };
///
/// let soon = Instant::now() + Duration::from_secs(10);
/// jobs.set_mode(Mode::Open, None)?;
/// jobs.run_due(soon)?; // a JobRunner does this by itself
/// assert_eq!(jobs.show(job)?.and_then(|job| job.slug).as_deref(), Some("later"));
/// # database.close(soon)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Journal {
    clock: SharedClock,
    waiting_max: usize,
}

impl Journal {
    /// The gate of `database`, which must hold the component `jobs`.
    pub fn new(database: &Database, options: &JobOptions) -> Self {
        Self { clock: database.clock().clone(), waiting_max: options.waiting_max }
    }

    /// Whether so many more may wait. No more can wait than lie between the first and the last that does, so that they are counted
    /// only where that is not enough to tell.
    fn has_room(&self, tx: &Transaction<'_>, more: usize) -> rusqlite::Result<bool> {
        let limit = i64::try_from(self.waiting_max).unwrap_or(i64::MAX);
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        let span: (Option<i64>, Option<i64>) =
            tx.prepare_cached(sql::READY_SPAN)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let most = span.0.zip(span.1).map_or(0, |(first, last)| last.saturating_sub(first).saturating_add(1));
        if most.saturating_add(more) <= limit {
            return Ok(true);
        }
        let waiting: i64 = tx.prepare_cached(sql::COUNT_READY)?.query_row([limit], |row| row.get(0))?;
        Ok(waiting.saturating_add(more) <= limit)
    }
}

impl Gate for Journal {
    fn way(&self, tx: &Transaction<'_>, count: usize) -> Result<Way, Refusal> {
        let standing = mode::standing(tx)?;
        match standing.mode {
            Mode::Open if !standing.draining => Ok(Way::Apply),
            Mode::ReadOnly => Err(Refusal::ReadOnly),
            _ if self.has_room(tx, count)? => Ok(Way::Defer),
            _ => Err(Refusal::Full { limit: self.waiting_max }),
        }
    }

    fn defer(&self, tx: &Transaction<'_>, mutation: &PreparedMutation) -> Result<i64, ArticleError> {
        let job = NewJob {
            correlation_id: mutation.correlation_id().map(str::to_owned),
            event_id: Some(mutation.event_id().to_owned()),
            article_id: mutation.created_id().map(str::to_owned),
            ..NewJob::new(mutation.operation(), mutation.body())
        };
        let inserted = insert(tx, &job, mutation.now_ms())?;
        inserted.ok_or(ArticleError::Sqlite(rusqlite::Error::StatementChangedRows(0)))
    }

    fn applied(
        &self,
        tx: &Transaction<'_>,
        mutation: &PreparedMutation,
        applied: &Applied,
    ) -> Result<(), ArticleError> {
        schedule::follow(tx, mutation, applied, self.clock.now_ms()).map_err(ArticleError::from)
    }

    fn is_deferred(&self, conn: &Connection, mutation: &PreparedMutation) -> rusqlite::Result<bool> {
        conn.prepare_cached(sql::IS_WAITING)?.query_row([mutation.event_id()], |row| row.get(0))
    }
}
