//! The pool of read connections: `query_only`, one snapshot per read, each read bounded in time.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use r2d2::{ManageConnection, Pool};
use rusqlite::{Connection, OpenFlags};
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};

use super::guard::Guard;
use super::{Fault, OpenError, Options, ReadError, open};

/// Name of the one thread that makes and replaces pooled connections.
const THREAD_NAME: &str = "storage-pool";
/// How often a running statement looks whether its time is up, in virtual machine steps (some 10 µs).
const STEPS_PER_LOOK: i32 = 1_000;
/// For opening all connections at the start.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// Statements a reader keeps prepared.
const STATEMENTS: usize = 128;
/// Readers meet a lock only while a log is recovered or reset.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
const BEGIN: &str = "BEGIN DEFERRED";
const END: &str = "COMMIT";
const UNLIMITED: u64 = u64::MAX;

/// How many read connections there are and how many are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolState {
    /// Open connections.
    pub connections: u32,
    /// Those of them that nobody uses now.
    pub idle: u32,
}

/// An open pool. Cheap to clone; the connections close and the thread ends when the last clone is gone.
#[derive(Clone)]
pub(super) struct Readers {
    pool: Pool<Manager>,
    wait: Duration,
    limit: Duration,
    /// Tells this pool from others in the process.
    id: u64,
}

/// Disconnected once the pool's thread has ended.
pub(super) type PoolThread = Receiver<()>;

impl Readers {
    /// Opens all connections; fails if that takes longer than [`OPEN_WITHIN`].
    pub(super) fn open(path: PathBuf, options: &Options) -> Result<(Self, PoolThread), OpenError> {
        let threads = start_thread()?;
        let ended = watch_end(&threads);
        let pool = Pool::builder()
            .max_size(options.readers)
            .connection_timeout(OPEN_WITHIN)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_on_check_out(false)
            .thread_pool(Arc::new(threads))
            .build(Manager { path })
            .map_err(|error| OpenError::Pool(error.to_string()))?;
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let id = NEXT_ID.fetch_add(1, Relaxed);
        Ok((Self { pool, wait: options.read_wait, limit: options.read_limit, id }, ended))
    }

    /// Runs `f` in one snapshot.
    pub(super) fn read<T, E>(&self, f: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, ReadError<E>> {
        let Some(_entered) = Entered::new(self.id) else {
            return Err(ReadError::Nested);
        };
        let reader = self.pool.get_timeout(self.wait).map_err(|error| {
            log::warn!("event=read_without_connection wait_ms={} error=\"{error}\"", self.wait.as_millis());
            ReadError::PoolTimeout
        })?;
        let snapshot = Snapshot::begin(&reader, self.limit).map_err(ReadError::Database)?;
        let result = f(&reader.connection);
        if snapshot.end() { Err(ReadError::TooLong) } else { result.map_err(ReadError::Read) }
    }

    pub(super) fn state(&self) -> PoolState {
        let state = self.pool.state();
        PoolState { connections: state.connections, idle: state.idle_connections }
    }
}

/// Waits until the pool's thread has ended. Says whether it has.
pub(super) fn wait_for_end(thread: &PoolThread, deadline: Instant) -> bool {
    matches!(thread.recv_deadline(deadline), Err(RecvTimeoutError::Disconnected))
}

/// The pool's own crate panics when the system has no thread to give.
fn start_thread() -> Result<ScheduledThreadPool, OpenError> {
    let start = || {
        ScheduledThreadPool::builder()
            .num_threads(1)
            .thread_name_pattern(THREAD_NAME)
            .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
            .build()
    };
    std::panic::catch_unwind(start)
        .map_err(|_| OpenError::Pool(format!("the thread `{THREAD_NAME}` could not be started")))
}

/// Leaves a sender with the pool's thread, which is dropped when that thread ends.
fn watch_end(threads: &ScheduledThreadPool) -> PoolThread {
    thread_local! {
        static ALIVE: RefCell<Option<Sender<()>>> = const { RefCell::new(None) };
    }
    let (alive, ended) = bounded(1);
    threads.execute(move || ALIVE.with_borrow_mut(|slot| *slot = Some(alive)));
    ended
}

/// The pools this thread is reading from now.
struct Entered(u64);

thread_local! {
    static READING: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Entered {
    fn new(pool: u64) -> Option<Self> {
        READING.with_borrow_mut(|pools| {
            if pools.contains(&pool) {
                return None;
            }
            pools.push(pool);
            Some(Self(pool))
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        READING.with_borrow_mut(|pools| pools.retain(|pool| *pool != self.0));
    }
}

/// A read transaction with a time limit; ended also when the reader's closure panics.
struct Snapshot<'a> {
    reader: &'a Reader,
    began: Instant,
    limit: Duration,
}

impl<'a> Snapshot<'a> {
    fn begin(reader: &'a Reader, limit: Duration) -> Result<Self, Fault> {
        reader.connection.prepare_cached(BEGIN)?.execute([])?;
        let began = Instant::now();
        reader.timer.start(began + limit);
        reader.guard.set_lent(true);
        Ok(Self { reader, began, limit })
    }

    /// Says whether the read was interrupted.
    fn end(self) -> bool {
        let interrupted = self.reader.timer.interrupted.load(Relaxed);
        let took = self.began.elapsed();
        if took > self.limit {
            log::warn!("event=long_read ms={} interrupted={interrupted}", took.as_millis());
        }
        interrupted
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let Reader { connection, guard, timer } = self.reader;
        guard.set_lent(false);
        timer.stop();
        // A connection that is still inside its transaction is not given back to the pool: see `has_broken`.
        let ended = connection.prepare_cached(END).and_then(|mut end| end.execute([]));
        if let Err(error) = ended {
            log::warn!("event=read_end_failed error=\"{error}\"");
        }
    }
}

/// When the running statement is to be interrupted.
#[derive(Debug)]
struct Timer {
    origin: Instant,
    /// Microseconds after `origin`.
    until: AtomicU64,
    interrupted: AtomicBool,
}

impl Timer {
    fn start(&self, until: Instant) {
        let until = until.saturating_duration_since(self.origin).as_micros();
        self.until.store(u64::try_from(until).unwrap_or(UNLIMITED), Relaxed);
        self.interrupted.store(false, Relaxed);
    }

    fn stop(&self) {
        self.until.store(UNLIMITED, Relaxed);
    }

    fn is_up(&self) -> bool {
        let until = self.until.load(Relaxed);
        let up = until != UNLIMITED && self.origin.elapsed().as_micros() >= u128::from(until);
        if up {
            self.interrupted.store(true, Relaxed);
        }
        up
    }
}

/// A pooled connection.
struct Reader {
    connection: Connection,
    guard: Arc<Guard>,
    timer: Arc<Timer>,
}

/// Makes pooled connections, each set up the same way, also those that replace a broken one.
#[derive(Debug)]
struct Manager {
    path: PathBuf,
}

impl Manager {
    fn open(&self) -> Result<Reader, OpenError> {
        let mut connection = open::connect(&self.path, OpenFlags::empty())?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        open::check_wal(&connection)?;
        open::set_number(&connection, "query_only", 1)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let timer = Arc::new(Timer {
            origin: Instant::now(),
            until: AtomicU64::new(UNLIMITED),
            interrupted: AtomicBool::new(false),
        });
        let asked = Arc::clone(&timer);
        connection.progress_handler(STEPS_PER_LOOK, Some(move || asked.is_up()))?;
        let guard = Guard::install(&mut connection)?;
        Ok(Reader { connection, guard, timer })
    }
}

impl ManageConnection for Manager {
    type Connection = Reader;
    type Error = OpenError;

    fn connect(&self) -> Result<Reader, OpenError> {
        self.open()
    }

    fn is_valid(&self, _: &mut Reader) -> Result<(), OpenError> {
        Ok(())
    }

    fn has_broken(&self, reader: &mut Reader) -> bool {
        !reader.connection.is_autocommit()
    }
}
