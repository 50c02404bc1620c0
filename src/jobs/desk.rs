//! What an operator sees of the jobs and does with them.
//!
//! Every act works on the database alone, so it may come from any process.

use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, Transaction};
use serde::Serialize;

use super::job::{self, Job, JobStatus, NewJob};
use super::mode::{self, Mode, ModeInfo};
use super::worker::{Rest, Worker, log_failures};
use super::{JobError, JobOptions, MAX_REPLAYS, line, prune, sql};
use crate::storage::Database;

/// Most rows in one page of [`Jobs::list`].
pub const MAX_PAGE: usize = 1_000;
/// Counts go no further; that number means "at least".
pub const COUNT_MAX: u64 = 100_000;
/// Jobs inserted in one transaction by [`Jobs::enqueue`].
const ENQUEUE_STEP: usize = 500;

/// The jobs of a database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Jobs {
    pub(super) database: Database,
    options: JobOptions,
}

/// How many jobs there are. Each count goes up to [`COUNT_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct JobStats {
    /// Pending, scheduled ones included.
    pub pending: u64,
    /// Pending, with a time to come.
    pub scheduled: u64,
    /// Given up.
    pub dead_letter: u64,
    /// Given up after three replays.
    pub quarantined: u64,
    /// Taken back.
    pub cancelled: u64,
    /// Done, and not removed yet.
    pub applied: u64,
    /// How many may wait while the site is frozen.
    pub waiting_max: usize,
    /// Age of the job that comes next, milliseconds; 0 when none waits.
    pub oldest_ms: i64,
    /// When the next scheduled job is due, milliseconds since the Unix epoch.
    pub next_run_at: Option<i64>,
}

/// Which jobs to list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobQuery {
    /// In this status; pending by default.
    pub status: JobStatus,
    /// Only those after this `(updated_at, id)`: the last of the page before.
    pub after: Option<(i64, i64)>,
    /// At most this many, up to [`MAX_PAGE`]; 50 by default.
    pub limit: usize,
}

impl Default for JobQuery {
    fn default() -> Self {
        Self { status: JobStatus::Pending, after: None, limit: 50 }
    }
}

/// What [`Jobs::run_due`] has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Ran {
    /// Jobs applied.
    pub applied: u64,
    /// Jobs given up.
    pub failed: u64,
    /// Nothing that is due is left; else the site is not open, or the time was over.
    pub finished: bool,
}

impl JobStats {
    /// How many there are in this status.
    pub fn of(&self, status: JobStatus) -> u64 {
        match status {
            JobStatus::Pending => self.pending,
            JobStatus::Applied => self.applied,
            JobStatus::DeadLetter => self.dead_letter,
            JobStatus::Quarantined => self.quarantined,
            JobStatus::Cancelled => self.cancelled,
        }
    }
}

impl Jobs {
    /// The jobs of `database`, which must hold the component `jobs`.
    pub fn new(database: &Database, options: JobOptions) -> Self {
        Self { database: database.clone(), options }
    }

    /// What becomes of writes at present.
    ///
    /// # Errors
    /// [`JobError::Read`].
    pub fn mode(&self) -> Result<ModeInfo, JobError> {
        Ok(self.database.read(mode::info)?)
    }

    /// Sets what becomes of writes from the next transaction on, in every process. [`Mode::Open`] also lets go of the lanes that a
    /// freeze holds; what was accepted meanwhile is applied in order, and new writes go behind it.
    ///
    /// # Errors
    /// [`JobError::Database`].
    pub fn set_mode(&self, mode: Mode, reason: Option<&str>) -> Result<ModeInfo, JobError> {
        let (reason, now_ms) = (reason.map(line::shortened), self.database.clock().now_ms());
        self.transact(move |tx| Ok(mode::set(tx, mode, reason.as_deref(), now_ms)?))
    }

    /// Counts the jobs.
    ///
    /// # Errors
    /// [`JobError::Read`].
    pub fn stats(&self) -> Result<JobStats, JobError> {
        let now_ms = self.database.clock().now_ms();
        let waiting_max = self.options.waiting_max;
        Ok(self.database.read(|conn| {
            let limit = i64::try_from(COUNT_MAX).unwrap_or(i64::MAX);
            let count = |status: JobStatus| -> rusqlite::Result<u64> {
                let count: i64 = conn.prepare_cached(sql::COUNT)?.query_row((status, limit), |row| row.get(0))?;
                Ok(count.unsigned_abs())
            };
            let scheduled: i64 =
                conn.prepare_cached(sql::COUNT_SCHEDULED)?.query_row((now_ms, limit), |row| row.get(0))?;
            let oldest: Option<i64> =
                conn.prepare_cached(sql::OLDEST_READY)?.query_row([], |row| row.get(0)).optional()?;
            Ok::<_, rusqlite::Error>(JobStats {
                pending: count(JobStatus::Pending)?,
                scheduled: scheduled.unsigned_abs(),
                dead_letter: count(JobStatus::DeadLetter)?,
                quarantined: count(JobStatus::Quarantined)?,
                cancelled: count(JobStatus::Cancelled)?,
                applied: count(JobStatus::Applied)?,
                waiting_max,
                oldest_ms: oldest.map_or(0, |at| now_ms.saturating_sub(at).max(0)),
                next_run_at: conn.prepare_cached(sql::NEXT_RUN_AT)?.query_row([now_ms], |row| row.get(0)).optional()?,
            })
        })?)
    }

    /// One page of jobs, in the order in which they came to their status, without their bodies.
    ///
    /// # Errors
    /// [`JobError::Read`].
    pub fn list(&self, query: &JobQuery) -> Result<Vec<Job>, JobError> {
        let limit = i64::try_from(query.limit.clamp(1, MAX_PAGE)).unwrap_or(i64::MAX);
        let (at, id) = query.after.unwrap_or((i64::MIN, i64::MIN));
        Ok(self.database.read(|conn| {
            let mut statement = conn.prepare_cached(sql::LIST)?;
            let found = statement.query_map((query.status, at, id, limit), Job::from_row)?;
            found.collect::<rusqlite::Result<_>>()
        })?)
    }

    /// One job with its body; `None` if there is none of that number.
    ///
    /// # Errors
    /// [`JobError::Read`].
    pub fn show(&self, id: i64) -> Result<Option<Job>, JobError> {
        Ok(self.database.read(|conn| conn.prepare_cached(sql::SHOW)?.query_row([id], Job::from_row).optional())?)
    }

    /// Inserts jobs in their order, in transactions of up to 500; their numbers, `None` for one whose id or idempotency key
    /// another has.
    ///
    /// # Errors
    /// [`JobError::Database`]; what came before the failing transaction stays.
    pub fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Option<i64>>, JobError> {
        let now_ms = self.database.clock().now_ms();
        let mut ids = Vec::with_capacity(jobs.len());
        for step in jobs.chunks(ENQUEUE_STEP) {
            let step = step.to_vec();
            ids.extend(self.transact(move |tx| {
                let ids = step.iter().map(|new| job::insert(tx, new, now_ms)).collect::<rusqlite::Result<Vec<_>>>()?;
                Ok(ids)
            })?);
        }
        Ok(ids)
    }

    /// Has a job that was given up or cancelled applied once more, at its old place in the line. `force` does so with one that
    /// was replayed three times.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn replay(&self, id: i64, force: bool) -> Result<(), JobError> {
        let now_ms = self.database.clock().now_ms();
        self.transact(move |tx| {
            let job = find(tx, id)?;
            match job.status {
                JobStatus::DeadLetter | JobStatus::Cancelled | JobStatus::Quarantined => {}
                status => return Err(JobError::Status { id, status, act: "replayed" }),
            }
            if (job.status == JobStatus::Quarantined || job.replays >= MAX_REPLAYS) && !force {
                return Err(JobError::Quarantined { id });
            }
            tx.prepare_cached(sql::REPLAY)?.execute((id, now_ms))?;
            Ok(())
        })
    }

    /// Takes back a job before its turn.
    ///
    /// # Errors
    /// [`JobError`]; [`JobError::Publication`] for the job of a scheduled article.
    pub fn cancel(&self, id: i64, reason: Option<&str>) -> Result<(), JobError> {
        let (reason, now_ms) = (reason.map(line::shortened), self.database.clock().now_ms());
        self.transact(move |tx| {
            let job = find(tx, id)?;
            if job.status != JobStatus::Pending {
                return Err(JobError::Status { id, status: job.status, act: "cancelled" });
            }
            if job.operation.as_deref() == Some("publish") && job.article_id.is_some() {
                return Err(JobError::Publication { id });
            }
            tx.prepare_cached(sql::CANCEL)?.execute((id, &reason, now_ms))?;
            Ok(())
        })
    }

    /// Removes a job that was given up or cancelled, for good.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn discard(&self, id: i64, reason: &str) -> Result<(), JobError> {
        self.transact(move |tx| {
            let job = find(tx, id)?;
            if matches!(job.status, JobStatus::Pending | JobStatus::Applied) {
                return Err(JobError::Status { id, status: job.status, act: "discarded" });
            }
            tx.prepare_cached(sql::DELETE)?.execute([id])?;
            Ok(())
        })?;
        log::info!("jobs job={id} discarded reason={:?}", line::shortened(reason));
        Ok(())
    }

    /// Applies what is due on the caller's thread until nothing is, or `until` has passed. A [`JobRunner`](super::JobRunner) does
    /// this by itself; another that works on the same line does no harm.
    ///
    /// # Errors
    /// The database failed; what was applied stays.
    pub fn run_due(&self, until: Instant) -> Result<Ran, JobError> {
        let worker = Worker { database: self.database.clone(), apply: line::usual() };
        let mut ran = Ran::default();
        let rest = worker.work(&|| Instant::now() >= until, &mut |done| {
            ran.applied += done.applied;
            ran.failed += done.failed.len() as u64;
            log_failures(done);
        });
        match rest {
            Rest::Idle { .. } => ran.finished = true,
            Rest::Held | Rest::Asked => {}
            Rest::Fault(what) => return Err(JobError::Database(what)),
            Rest::Stopped => return Err(JobError::Database("the queue-writer is not running".to_owned())),
        }
        Ok(ran)
    }

    /// Removes applied and cancelled jobs older than that; says how many. A [`JobRunner`](super::JobRunner) does so each minute.
    ///
    /// # Errors
    /// [`JobError::Database`]; what was removed stays removed.
    pub fn prune(&self, keep: Duration) -> Result<u64, JobError> {
        prune::prune(&self.database, keep, &|| false).map_err(|error| JobError::Database(error.to_string()))
    }

    /// The database they are in.
    pub fn database(&self) -> &Database {
        &self.database
    }

    pub(super) fn transact<T: Send + 'static>(
        &self,
        f: impl FnMut(&Transaction<'_>) -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        Ok(self.database.writer().transact(f)?)
    }
}

fn find(tx: &Transaction<'_>, id: i64) -> Result<Job, JobError> {
    let found = tx.prepare_cached(sql::SHOW)?.query_row([id], Job::from_row).optional()?;
    found.ok_or(JobError::NotFound { id })
}
