//! The service that works the line off while the program runs.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, select};

use super::line::{self, Apply, Done};
use super::worker::{Rest, Worker, log_failures};
use super::{JobOptions, Jobs, prune, schedule};
use crate::lifecycle::{BoxError, Service, Spawner, StartContext};
use crate::storage::Database;

const NAME: &str = "job-runner";
/// How long the line waits before it tries a database again that failed.
const FAULT_PAUSE: Duration = Duration::from_secs(1);
/// How often old jobs are looked for, and scheduled articles without a job.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// Applies due jobs, one line by id. Cheap to clone.
///
/// A service of a [`Manager`](crate::lifecycle::Manager), or started alone. It looks at each poll, when a scheduled job is due, and
/// when [`notify`](Self::notify) is called; an idle look reads and never writes. While the database fails the line waits, and spends
/// nothing. Runners in several processes share one line.
#[derive(Clone)]
pub struct JobRunner {
    shared: Arc<Shared>,
}

/// What a runner has done since it was made, and what it does now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunnerStatus {
    /// Its thread is running.
    pub running: bool,
    /// Jobs it has applied.
    pub applied: u64,
    /// Jobs it has given up (dead letters and quarantined ones).
    pub failed: u64,
    /// The line stands still for this reason; `None` when it does not.
    pub fault: Option<String>,
}

struct Shared {
    database: Database,
    options: JobOptions,
    apply: Apply,
    notices: (Sender<()>, Receiver<()>),
    applied: AtomicU64,
    failed: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: bool,
    fault: Option<String>,
    /// Dropping it asks the thread to end.
    stop: Option<Sender<()>>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
}

impl JobRunner {
    /// A runner for `database`, which must hold the components `jobs`, `articles` and `outbox` once it is open.
    pub fn new(database: &Database, options: JobOptions) -> Self {
        Self::with_apply(database, options, line::usual())
    }

    pub(super) fn with_apply(database: &Database, options: JobOptions, apply: Apply) -> Self {
        let shared = Shared {
            database: database.clone(),
            options,
            apply,
            notices: bounded(1),
            applied: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            state: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Starts it without a manager.
    ///
    /// # Errors
    /// The database is not open or lacks a table, the system has no thread to give, or this runner was started before.
    pub fn start(&self) -> Result<(), BoxError> {
        self.start_with(&Spawner::standalone(NAME))
    }

    /// Has it look now.
    pub fn notify(&self) {
        // Full means that a notice waits already.
        let _ = self.shared.notices.0.try_send(());
    }

    /// What it has done and does.
    pub fn status(&self) -> RunnerStatus {
        let state = self.state();
        RunnerStatus {
            running: state.stop.is_some() && state.thread.as_ref().is_some_and(|(thread, _)| !thread.is_finished()),
            applied: self.shared.applied.load(Relaxed),
            failed: self.shared.failed.load(Relaxed),
            fault: state.fault.clone(),
        }
    }

    /// Finishes the running group and ends, at the latest by `deadline`. Legal before the start and twice.
    ///
    /// # Errors
    /// It was still running at `deadline`.
    pub fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        let ended = {
            let mut state = self.state();
            state.stop = None;
            state.thread.as_ref().map(|(_, ended)| ended.clone())
        };
        let Some(ended) = ended else { return Ok(()) };
        if let Err(RecvTimeoutError::Timeout) = ended.recv_deadline(deadline) {
            return Err("the thread `job-runner` did not end in time: its group is still being written".into());
        }
        if let Some((thread, _)) = self.state().thread.take() {
            // Its panic, if it had one, was reported when it happened.
            let _ = thread.join();
        }
        Ok(())
    }

    fn start_with(&self, spawner: &Spawner) -> Result<(), BoxError> {
        // A missing table is SQLite's own error, which names it. A database that does not answer now may do so later.
        let tables = self.shared.database.read(|conn| {
            ["write_jobs", "articles", "event_outbox"]
                .iter()
                .try_for_each(|table| conn.prepare(&format!("SELECT 1 FROM {table}")).map(drop))
        });
        if let Err(error) = tables {
            return Err(format!("the job runner cannot work on this database: {error}").into());
        }
        if let Some(mode) = self.shared.options.mode {
            Jobs::new(&self.shared.database, self.shared.options.clone()).set_mode(mode, Some("by setting"))?;
        }
        let mut state = self.state();
        if state.started {
            return Err("a job runner runs once: make a new one".into());
        }
        let (stop, asked) = bounded(0);
        let (ends, ended) = bounded::<()>(0);
        let runner = Running { shared: Arc::clone(&self.shared), asked };
        let thread = spawner.spawn(NAME, move || {
            let _ends = ends;
            runner.run();
        })?;
        state.started = true;
        state.stop = Some(stop);
        state.thread = Some((thread, ended));
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }
}

/// What the thread owns.
struct Running {
    shared: Arc<Shared>,
    asked: Receiver<()>,
}

impl Running {
    fn run(&self) {
        let shared = &self.shared;
        let worker = Worker { database: shared.database.clone(), apply: Arc::clone(&shared.apply) };
        let mut tidied: Option<Instant> = None;
        while !self.is_asked() {
            if tidied.is_none_or(|at| at.elapsed() >= TIDY_EVERY) {
                self.tidy();
                tidied = Some(Instant::now());
            }
            let rest = worker.work(&|| self.is_asked(), &mut |done| self.note(done));
            self.note_fault(&rest);
            let poll = shared.options.poll;
            let wait = match rest {
                Rest::Asked | Rest::Stopped => return,
                Rest::Fault(_) => FAULT_PAUSE.max(poll),
                Rest::Held => poll,
                Rest::Idle { next_run_at } => next_run_at.map_or(poll, |at| {
                    let left = at.saturating_sub(shared.database.clock().now_ms()).max(1);
                    poll.min(Duration::from_millis(left.unsigned_abs()))
                }),
            };
            select! {
                recv(self.asked) -> _ => return,
                recv(shared.notices.1) -> _ => {}
                default(wait) => {}
            }
        }
    }

    fn is_asked(&self) -> bool {
        matches!(self.asked.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected))
    }

    fn note(&self, done: &Done) {
        self.shared.applied.fetch_add(done.applied, Relaxed);
        self.shared.failed.fetch_add(done.failed.len() as u64, Relaxed);
        log_failures(done);
        if done.applied > 0 {
            log::debug!("jobs applied={} failed={}", done.applied, done.failed.len());
        }
    }

    /// Says it when the line stops and when it goes on, not at each try.
    fn note_fault(&self, rest: &Rest) {
        let fault = match rest {
            Rest::Fault(fault) => Some(fault.clone()),
            _ => None,
        };
        let before = std::mem::replace(&mut lock(&self.shared.state).fault, fault.clone());
        match (before, fault) {
            (None, Some(fault)) => log::warn!("jobs line=stopped error={fault:?}: it goes on by itself"),
            (Some(_), None) => log::info!("jobs line=running"),
            _ => {}
        }
    }

    fn tidy(&self) {
        let (database, options) = (&self.shared.database, &self.shared.options);
        match schedule::repair(database) {
            Ok(0) => {}
            Ok(count) => log::info!("jobs planned={count} note=\"scheduled articles without a job\""),
            Err(error) => log::warn!("jobs planned=failed error={error}"),
        }
        match prune::prune(database, options.keep, &|| self.is_asked()) {
            Ok(0) => {}
            Ok(count) => log::info!("jobs pruned={count}"),
            Err(error) => log::warn!("jobs pruned=failed error={error}"),
        }
    }
}

impl Service for JobRunner {
    fn name(&self) -> &str {
        NAME
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        self.start_with(ctx.spawner())
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        JobRunner::stop(self, deadline)
    }
}

impl fmt::Debug for JobRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRunner").field("status", &self.status()).finish_non_exhaustive()
    }
}

/// No foreign code runs under this lock, so poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
