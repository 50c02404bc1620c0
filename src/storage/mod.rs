//! SQLite as this project uses it: opening, migrations, the reader pool and the queue-writer thread.
//! SKELETON: the storage helper fills this in; the signatures are the contract.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use rusqlite::{Connection, Transaction};

use crate::clock::SharedClock;
use crate::lifecycle::{BoxError, Service, Spawner};

/// A component's numbered migrations; versions stand in `vayu_schema(component, version)`.
#[derive(Debug, Clone, Copy)]
pub struct Component {
    /// Name in `vayu_schema`.
    pub name: &'static str,
    /// `migrations[i]` takes the component from version `i` to `i + 1`.
    pub migrations: &'static [&'static str],
}

/// How to open a database. All fields public with defaults; see the helper's text.
#[derive(Debug, Clone)]
pub struct Options {
    /// Clock for everything stored.
    pub clock: SharedClock,
    /// Pooled read connections (default 4).
    pub readers: u32,
    /// Longest wait for a pooled connection (default 2 s).
    pub read_wait: Duration,
    /// Longest read snapshot; longer reads are interrupted (default 2 s).
    pub read_limit: Duration,
}

/// One SQLite database: reader pool and the process's only write connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {}

impl Database {
    /// An unopened database: no I/O happens before `start` of its services or `Database::open`.
    pub fn new(_path: impl AsRef<Path>, _components: &[Component], _options: Options) -> Self {
        todo!()
    }
    /// `new`, then both services started without a manager.
    pub fn open(_path: impl AsRef<Path>, _components: &[Component], _options: Options) -> Result<Self, OpenError> {
        todo!()
    }
    /// Stops the queue-writer (draining what was accepted), then the pool.
    pub fn close(&self, _deadline: Instant) -> Result<(), BoxError> {
        todo!()
    }
    /// The file's canonical path as SQLite reports it.
    pub fn canonical_path(&self) -> Option<PathBuf> {
        todo!()
    }
    /// The clock given in the options.
    pub fn clock(&self) -> &SharedClock {
        todo!()
    }
    /// Runs `f` in one read snapshot (BEGIN DEFERRED … end) on a pooled `query_only` connection.
    pub fn read<T, E>(&self, _f: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, ReadError<E>> {
        todo!()
    }
    /// The queue-writer: the only way to write.
    pub fn writer(&self) -> &QueueWriter {
        todo!()
    }
    /// Service "storage": opens, migrates, fills the pool.
    pub fn storage_service(&self) -> impl Service {
        Dummy
    }
    /// Service "queue-writer": the writing thread.
    pub fn writer_service(&self) -> impl Service {
        Dummy
    }
}

struct Dummy;
impl Service for Dummy {
    fn name(&self) -> &str {
        todo!()
    }
    fn start(&self, _: &crate::lifecycle::StartContext) -> Result<(), BoxError> {
        let _ = Spawner::standalone("x");
        todo!()
    }
    fn stop(&self, _: Instant) -> Result<(), BoxError> {
        todo!()
    }
}

/// Handle to the queue-writer thread. Cheap to clone.
#[derive(Debug, Clone)]
pub struct QueueWriter {}

/// Looks, on a fresh connection, whether the task's effect is in the database (only after a COMMIT of unknown outcome).
pub type Probe = Box<dyn Fn(&Connection) -> rusqlite::Result<bool> + Send>;

/// What the queue-writer should know of a task.
#[derive(Default)]
pub struct TaskOptions {
    /// Rough size of what the task carries, in bytes: counts towards admission (64 MiB) and the group cap (8 MiB).
    pub bytes: usize,
    /// Rows the task writes, roughly (0 counts as 1): counts towards the group's row cap.
    pub rows: usize,
    /// Cancelled when not yet taken by then.
    pub deadline: Option<Instant>,
    /// How to find out about an unknown outcome.
    pub probe: Option<Probe>,
}

impl QueueWriter {
    /// Runs `f` inside the next group's transaction and returns once that has committed.
    pub fn transact<T, E, F>(&self, f: F) -> Result<T, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        self.transact_with(TaskOptions::default(), f)
    }
    /// `transact` with options.
    pub fn transact_with<T, E, F>(&self, options: TaskOptions, f: F) -> Result<T, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        self.submit(options, f)?.wait()
    }
    /// Hands the task over without waiting.
    pub fn submit<T, E, F>(&self, _options: TaskOptions, _f: F) -> Result<Pending<T, E>, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        todo!()
    }
    /// For the crate's own background work (flushes, retention): not counted in the admission, never `Saturated`.
    /// `wake`: whether its commit wakes the subscribers.
    #[allow(dead_code)]
    pub(crate) fn submit_internal<T, E, F>(&self, _wake: bool, _f: F) -> Result<Pending<T, E>, TransactError<E>>
    where
        F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        todo!()
    }
    /// A receiver (capacity 1, filled with `try_send`) that gets a message after each commit of a caller's task.
    pub fn subscribe(&self) -> Receiver<()> {
        todo!()
    }
}

/// An answer on its way.
#[derive(Debug)]
pub struct Pending<T, E> {
    _x: std::marker::PhantomData<(T, E)>,
}

impl<T, E> Pending<T, E> {
    /// Blocks until the task was answered or the writer is gone.
    pub fn wait(self) -> Result<T, TransactError<E>> {
        todo!()
    }
    /// The answer if it is there already; else gives the pending back.
    pub fn try_wait(self) -> Result<Result<T, TransactError<E>>, Self> {
        todo!()
    }
}

/// A database fault as SQLite named it. Cloneable, since one fault may answer a whole group.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Fault {
    /// Primary result code.
    pub code: rusqlite::ErrorCode,
    /// Extended result code.
    pub extended: i32,
    /// SQLite's words.
    pub message: String,
}

/// Why a task was not applied (or not known to be).
#[derive(Debug)]
#[non_exhaustive]
pub enum TransactError<E> {
    /// The task returned this; nothing of it was written.
    Task(E),
    /// The task panicked with this text; nothing of it was written.
    Panicked(String),
    /// The task ended the transaction, ran DDL or the like; nothing of it was written.
    Refused(String),
    /// Too much is waiting: try later. Nothing was written.
    Saturated {
        /// Jobs waiting.
        jobs: usize,
        /// Bytes waiting.
        bytes: usize,
    },
    /// The queue-writer does not run (not started, stopped, stopping): nothing was written.
    Stopped,
    /// The deadline passed before the task was taken: nothing was written.
    DeadlineExceeded,
    /// The database failed (full, I/O, busy): nothing was written; try again when the cause is gone.
    Database(Fault),
    /// The database failed at COMMIT, or the writer died: it may or may not have been written.
    OutcomeUnknown(String),
    /// `transact` was called on the queue-writer's own thread.
    WouldDeadlock,
}

/// Why a read failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError<E> {
    /// The closure returned this.
    Read(E),
    /// No pooled connection became free in time.
    PoolTimeout,
    /// `read` within `read` on one thread.
    Nested,
    /// Not open (any more).
    Closed,
    /// The snapshot was held longer than the limit and was interrupted.
    TooLong,
    /// SQLite failed to begin the snapshot.
    Database(Fault),
}

/// Why a database could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// See the storage helper's text.
    Sqlite(Fault),
}
