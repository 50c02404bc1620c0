//! The queue-writer: one thread holds the process's only write connection and commits what waits in groups.

mod admission;
mod checkpoint;
mod connection;
mod group;
mod health;
mod recovery;
mod sleepers;
mod stats;
mod task;
#[cfg(test)]
mod tests;
mod thread;

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, TrySendError, bounded};
use rusqlite::Transaction;

use self::admission::{Admission, Waiting};
use self::connection::Settings;
use self::sleepers::Sleepers;
use self::stats::Counters;
pub use self::stats::{WriterDistributions, WriterStats};
pub use self::task::{Pending, Probe, TaskOptions};
use self::task::{Ticket, new_task};
use super::{Fault, OpenError, Options, TransactError};
use crate::lifecycle::{BoxError, Spawner};

const THREAD_NAME: &str = "queue-writer";
/// Places in the inbox beyond what callers may fill, for the crate's own work and for what its callers gave up.
const INBOX_RESERVE: usize = 1_024;
/// How long the crate's own work waits for a place in an inbox that is full against all expectation.
const INTERNAL_WAIT: Duration = Duration::from_secs(30);

/// How long before a stop's deadline the writer stops draining, at most (else an eighth of the time).
const STOP_MARGIN_MAX: Duration = Duration::from_millis(250);

/// Handle to the queue-writer thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct QueueWriter {
    shared: Arc<Shared>,
    _last_handle: Arc<LastHandle>,
}

impl QueueWriter {
    /// Runs `f` inside the next group's transaction and returns once that has committed.
    ///
    /// `f` may run more than once (a neighbour in its group failed), so it is pure but for the database: ids and times
    /// are made before. It must not run DDL, COMMIT, ROLLBACK, SAVEPOINT, ATTACH or a PRAGMA that changes settings.
    /// Finding conflicts before the first write (`INSERT … ON CONFLICT DO NOTHING`, `UPDATE … WHERE version = ?`) keeps
    /// the group's other tasks from being run twice. A constraint that is checked at COMMIT (a deferred foreign key) is
    /// checked for the group as a whole; if it is violated, each task gets a transaction of its own.
    ///
    /// # Errors
    /// [`TransactError`]; all but [`TransactError::OutcomeUnknown`] mean that nothing was written.
    pub fn transact<T, E, F>(&self, f: F) -> Result<T, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        self.transact_with(TaskOptions::default(), f)
    }

    /// [`transact`](Self::transact) with options.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T, E, F>(&self, options: TaskOptions, f: F) -> Result<T, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        if self.shared.id.is_this_thread() {
            return Err(TransactError::WouldDeadlock);
        }
        self.submit(options, f)?.wait()
    }

    /// Hands the task over without waiting.
    ///
    /// # Errors
    /// When it is not accepted: [`TransactError::Stopped`], [`Saturated`](TransactError::Saturated) or
    /// [`TooLarge`](TransactError::TooLarge).
    pub fn submit<T, E, F>(&self, options: TaskOptions, f: F) -> Result<Pending<T, E>, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let shared = &self.shared;
        shared.check_running()?;
        let (bytes, limit) = (options.bytes, shared.callers.admission.bytes_max);
        if bytes > limit {
            return Err(TransactError::TooLarge { bytes, limit });
        }
        shared.callers.admission.admit(bytes).map_err(saturated)?;
        let (ticket, pending) = new_task(options, true, Some(Arc::clone(&shared.callers)), shared.id, f);
        // What callers gave up still lies in the inbox until the writer comes by; the reserve is not theirs to fill.
        if shared.sender.len() >= shared.callers.admission.jobs_max + INBOX_RESERVE / 2 {
            ticket.withdraw();
            return Err(saturated(shared.callers.admission.waiting()));
        }
        match shared.sender.try_send(Message::Task(ticket)) {
            Ok(()) => shared.accepted(pending),
            Err(TrySendError::Full(message)) => {
                message.withdraw();
                Err(saturated(shared.callers.admission.waiting()))
            }
            Err(TrySendError::Disconnected(message)) => {
                message.withdraw();
                Err(TransactError::Stopped)
            }
        }
    }

    /// For the crate's own background work (flushes, retention): not counted in the admission, never `Saturated`.
    /// `wake`: whether its commit wakes the subscribers.
    #[allow(dead_code)]
    pub(crate) fn submit_internal<T, E, F>(&self, wake: bool, f: F) -> Result<Pending<T, E>, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        self.submit_internal_with(TaskOptions::default(), wake, f)
    }

    /// [`submit_internal`](Self::submit_internal) with options, for work that fills a group.
    pub(crate) fn submit_internal_with<T, E, F>(
        &self,
        options: TaskOptions,
        wake: bool,
        f: F,
    ) -> Result<Pending<T, E>, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let shared = &self.shared;
        shared.check_running()?;
        let (ticket, pending) = new_task(options, wake, None, shared.id, f);
        let wait = if shared.id.is_this_thread() { Duration::ZERO } else { INTERNAL_WAIT };
        match shared.sender.send_timeout(Message::Task(ticket), wait) {
            Ok(()) => shared.accepted(pending),
            Err(SendTimeoutError::Timeout(message)) => {
                message.withdraw();
                Err(saturated(shared.callers.admission.waiting()))
            }
            Err(SendTimeoutError::Disconnected(message)) => {
                message.withdraw();
                Err(TransactError::Stopped)
            }
        }
    }

    /// A receiver (capacity 1, filled with `try_send`) that gets a message after each commit of a caller's task.
    /// Several commits may be one message: it is a hint to look.
    pub fn subscribe(&self) -> Receiver<()> {
        let (sender, receiver) = bounded(1);
        lock(&self.shared.subscribers).push(sender);
        receiver
    }

    /// The counters, read without stopping the writer.
    pub fn stats(&self) -> WriterStats {
        let Waiting { jobs, bytes } = self.shared.callers.admission.waiting();
        WriterStats { waiting_jobs: jobs, waiting_bytes: bytes, ..self.shared.counters.read() }
    }

    /// What it measures, read without stopping it.
    pub fn distributions(&self) -> WriterDistributions {
        self.shared.counters.distributions()
    }

    /// Whether tasks are accepted.
    pub fn is_running(&self) -> bool {
        self.shared.phase() == RUNNING
    }

    /// The fault the last group was answered with; `None` once a group has committed again.
    pub fn last_fault(&self) -> Option<Fault> {
        lock(&self.shared.fault).clone()
    }

    pub(super) fn new(options: &Options) -> Self {
        let jobs_max = options.max_jobs.min(super::options::MAX_JOBS_LIMIT);
        let (sender, inbox) = bounded(jobs_max + INBOX_RESERVE);
        let shared = Arc::new(Shared {
            id: WriterId::next(),
            sender,
            phase: AtomicU8::new(NEW),
            callers: Arc::new(Callers {
                admission: Admission::new(jobs_max, options.max_bytes),
                sleepers: Sleepers::default(),
            }),
            counters: Arc::new(Counters::default()),
            subscribers: Mutex::new(Vec::new()),
            fault: Mutex::new(None),
            stop_by: Mutex::new(None),
            control: Mutex::new(Control { inbox: Some(inbox), thread: None }),
            #[cfg(test)]
            injected: tests::Injected::default(),
        });
        Self { _last_handle: Arc::new(LastHandle(Arc::clone(&shared))), shared }
    }

    /// Starts the thread; returns once its connection is open.
    pub(super) fn start(&self, path: PathBuf, options: &Options, spawner: &Spawner) -> Result<(), OpenError> {
        let shared = &self.shared;
        let mut control = lock(&shared.control);
        match shared.phase() {
            NEW => {}
            RUNNING => return Err(OpenError::AlreadyStarted),
            _ => return Err(OpenError::Stopped),
        }
        let settings = Settings::new(path, options, Arc::clone(&shared.counters));
        let connection = settings.connect()?;
        let Some(inbox) = control.inbox.take() else {
            return Err(OpenError::Stopped);
        };
        let (alive, ended) = bounded(1);
        shared.phase.store(RUNNING, SeqCst);
        let writer = thread::Writer::new(Arc::clone(shared), inbox, settings, connection, options, alive);
        match spawner.spawn(THREAD_NAME, move || writer.run()) {
            Ok(handle) => {
                control.thread = Some(Running { handle, ended });
                Ok(())
            }
            Err(error) => {
                shared.phase.store(GONE, SeqCst);
                Err(OpenError::Thread(error))
            }
        }
    }

    /// Drains what was accepted and ends the thread. Legal before the start (then nothing happens) and twice.
    pub(super) fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        let ended = {
            // Under the lock, since a start that is under way is over then; the wait is outside of it.
            let control = lock(&self.shared.control);
            // The writer gives up a little earlier, so that it is gone in time.
            let left = deadline.saturating_duration_since(Instant::now());
            self.shared.request_stop(Some(deadline - (left / 8).min(STOP_MARGIN_MAX)));
            match &control.thread {
                Some(running) => running.ended.clone(),
                None => return Ok(()),
            }
        };
        if self.shared.id.is_this_thread() {
            return Err("the queue-writer cannot wait for its own end: stop it from another thread".into());
        }
        if let Err(RecvTimeoutError::Timeout) = ended.recv_deadline(deadline) {
            return Err("the thread `queue-writer` did not end in time: a task or a commit still runs".into());
        }
        if let Some(running) = lock(&self.shared.control).thread.take() {
            // Its panic, if it had one, was reported when it happened.
            let _ = running.handle.join();
        }
        Ok(())
    }
}

/// In the order of life.
const NEW: u8 = 0;
const RUNNING: u8 = 1;
const STOPPING: u8 = 2;
const GONE: u8 = 3;

/// What the handles and the thread share.
#[derive(Debug)]
struct Shared {
    id: WriterId,
    sender: Sender<Message>,
    phase: AtomicU8,
    callers: Arc<Callers>,
    counters: Arc<Counters>,
    subscribers: Mutex<Vec<Sender<()>>>,
    fault: Mutex<Option<Fault>>,
    /// When a requested stop has to be over; without one, everything accepted is drained.
    stop_by: Mutex<Option<Instant>>,
    control: Mutex<Control>,
    #[cfg(test)]
    injected: tests::Injected,
}

/// What the tasks of callers share.
#[derive(Debug)]
struct Callers {
    admission: Admission,
    sleepers: Sleepers,
}

/// What start and stop hand each other.
#[derive(Debug)]
struct Control {
    inbox: Option<Receiver<Message>>,
    thread: Option<Running>,
}

#[derive(Debug)]
struct Running {
    handle: JoinHandle<()>,
    /// Disconnected when the thread has ended its work.
    ended: Receiver<()>,
}

impl Shared {
    fn phase(&self) -> u8 {
        self.phase.load(SeqCst)
    }

    fn check_running<E>(&self) -> Result<(), TransactError<E>> {
        if self.phase() == RUNNING { Ok(()) } else { Err(TransactError::Stopped) }
    }

    /// A message sent while the writer ended may have come after its last look at the inbox: nobody will ever take it.
    /// The writer says `GONE` before that look and the sender asks after sending, so one of them notices.
    fn accepted<T, E>(&self, pending: Pending<T, E>) -> Result<Pending<T, E>, TransactError<E>> {
        fence(SeqCst);
        if self.phase() == GONE && pending.cancel() { Err(TransactError::Stopped) } else { Ok(pending) }
    }

    /// A flag and a sentinel: the flag for a writer at work, the sentinel for one that waits for work.
    fn request_stop(&self, deadline: Option<Instant>) {
        if self.phase() == NEW {
            return;
        }
        if deadline.is_some() {
            *lock(&self.stop_by) = deadline;
        }
        let running = self.phase.compare_exchange(RUNNING, STOPPING, SeqCst, SeqCst).is_ok();
        if running {
            // A full inbox needs no sentinel: the writer sees the flag when it has emptied it.
            let _ = self.sender.try_send(Message::Stop);
        }
    }

    fn wake_subscribers(&self) {
        lock(&self.subscribers)
            .retain(|subscriber| !matches!(subscriber.try_send(()), Err(TrySendError::Disconnected(()))));
    }
}

/// Ends a writer that nobody can reach any more.
#[derive(Debug)]
struct LastHandle(Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.request_stop(None);
    }
}

/// What lies in the inbox.
enum Message {
    Task(Ticket),
    Stop,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Stop) { "Stop" } else { "Task" })
    }
}

impl Message {
    fn withdraw(self) {
        if let Self::Task(ticket) = self {
            ticket.withdraw();
        }
    }
}

/// Tells the threads of several writers in one process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WriterId(u64);

thread_local! {
    static WRITER_HERE: Cell<Option<WriterId>> = const { Cell::new(None) };
}

impl WriterId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    fn is_this_thread(self) -> bool {
        WRITER_HERE.get() == Some(self)
    }

    fn mark_this_thread(self) {
        WRITER_HERE.set(Some(self));
    }
}

fn saturated<E>(waiting: Waiting) -> TransactError<E> {
    TransactError::Saturated { jobs: waiting.jobs, bytes: waiting.bytes }
}

/// None of these locks is held while foreign code runs, so poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
