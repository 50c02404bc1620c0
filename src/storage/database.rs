//! The handle to an open database, and the two services that start and stop it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::open::Opened;
use super::readers::{PoolThread, Readers, wait_for_end};
use super::{AutoVacuum, Component, OpenError, Options, PoolState, QueueWriter, ReadError, open};
use crate::clock::SharedClock;
use crate::lifecycle::{BoxError, Interrupted, Service, Spawner, StartContext};

const STORAGE: &str = "storage";
const QUEUE_WRITER: &str = "queue-writer";
/// For an open without a manager; its waits have bounds of their own.
const OPEN_WITHIN: Duration = Duration::from_secs(24 * 60 * 60);

/// One SQLite database: reader pool and the process's only write connection. Cheap to clone.
///
/// When the last handle is dropped without [`close`](Self::close), the queue-writer still finishes what it accepted and
/// then ends on its own.
#[derive(Debug, Clone)]
pub struct Database {
    shared: Arc<Shared>,
    writer: QueueWriter,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    components: Vec<Component>,
    options: Options,
    phase: RwLock<Phase>,
    /// Serialises start and stop; holds what the stop has to wait for.
    pool_thread: Mutex<Option<PoolThread>>,
    opened: OnceLock<(PathBuf, AutoVacuum)>,
}

enum Phase {
    New,
    Open(Readers),
    Stopped,
}

impl Database {
    /// An unopened database: no I/O happens before `start` of its services or [`Database::open`].
    pub fn new(path: impl AsRef<Path>, components: &[Component], options: Options) -> Self {
        let writer = QueueWriter::new(&options);
        let shared = Shared {
            path: path.as_ref().to_owned(),
            components: components.to_vec(),
            options,
            phase: RwLock::new(Phase::New),
            pool_thread: Mutex::new(None),
            opened: OnceLock::new(),
        };
        Self { shared: Arc::new(shared), writer }
    }

    /// [`new`](Self::new), then both services started without a manager.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong and what to do; nothing is left running then.
    pub fn open(path: impl AsRef<Path>, components: &[Component], options: Options) -> Result<Self, OpenError> {
        let database = Self::new(path, components, options);
        database.start_storage(&StartContext::standalone(STORAGE, OPEN_WITHIN))?;
        if let Err(error) = database.start_writer(&Spawner::standalone(QUEUE_WRITER)) {
            let within = Instant::now() + database.shared.options.read_limit;
            if let Err(left) = database.stop_storage(within) {
                log::warn!("event=open_undone_late error=\"{left}\"");
            }
            return Err(error);
        }
        Ok(database)
    }

    /// Stops the queue-writer (draining what was accepted), then the pool. A second call does nothing.
    ///
    /// # Errors
    /// Names what was still running at `deadline`.
    pub fn close(&self, deadline: Instant) -> Result<(), BoxError> {
        let writer = self.writer.stop(deadline);
        let storage = self.stop_storage(deadline);
        writer.and(storage)
    }

    /// The file's canonical path as SQLite reports it, once it has been opened.
    pub fn canonical_path(&self) -> Option<PathBuf> {
        self.shared.opened.get().map(|(path, _)| path.clone())
    }

    /// How the file gives free pages back, once it has been opened. A file that was made elsewhere is left as it is.
    pub fn auto_vacuum(&self) -> Option<AutoVacuum> {
        self.shared.opened.get().map(|(_, mode)| *mode)
    }

    /// The clock given in the options.
    pub fn clock(&self) -> &SharedClock {
        &self.shared.options.clock
    }

    /// Runs `f` in one read snapshot (BEGIN DEFERRED … end) on a pooled `query_only` connection.
    ///
    /// `f` cannot write, attach, change settings or end the snapshot. It waits for a free connection at most
    /// `read_wait` and is interrupted after `read_limit`.
    ///
    /// # Errors
    /// What `f` returned as [`ReadError::Read`]; the other variants say why there was no complete read.
    pub fn read<T, E>(&self, f: impl FnOnce(&Connection) -> Result<T, E>) -> Result<T, ReadError<E>> {
        match self.readers() {
            Some(readers) => readers.read(f),
            None => Err(ReadError::Closed),
        }
    }

    /// How many read connections there are and how many are free; `None` when the database is not open.
    pub fn pool_state(&self) -> Option<PoolState> {
        self.readers().map(|readers| readers.state())
    }

    /// The queue-writer: the only way to write.
    pub fn writer(&self) -> &QueueWriter {
        &self.writer
    }

    /// Service "storage": opens, migrates, fills the pool.
    pub fn storage_service(&self) -> StorageService {
        StorageService(self.clone())
    }

    /// Service "queue-writer": the writing thread. Starts after, and stops before, the service "storage".
    pub fn writer_service(&self) -> WriterService {
        WriterService(self.clone())
    }

    fn readers(&self) -> Option<Readers> {
        match &*self.shared.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::Open(readers) => Some(readers.clone()),
            Phase::New | Phase::Stopped => None,
        }
    }

    fn start_storage(&self, ctx: &StartContext) -> Result<(), OpenError> {
        let shared = &*self.shared;
        let mut pool_thread = self.pool_thread();
        match &*shared.phase.read().unwrap_or_else(PoisonError::into_inner) {
            Phase::New => {}
            Phase::Open(_) => return Err(OpenError::AlreadyStarted),
            Phase::Stopped => return Err(OpenError::Stopped),
        }
        if let Some(reason) = shared.options.fault() {
            return Err(OpenError::Options(reason));
        }
        let Opened { canonical, auto_vacuum, connection } = open::open(&shared.path, &shared.components, ctx)?;
        let (readers, thread) = Readers::open(canonical.clone(), &shared.options)?;
        drop(connection);
        shared.opened.get_or_init(|| (canonical, auto_vacuum));
        *pool_thread = Some(thread);
        *shared.phase.write().unwrap_or_else(PoisonError::into_inner) = Phase::Open(readers);
        Ok(())
    }

    fn start_writer(&self, spawner: &Spawner) -> Result<(), OpenError> {
        let (Some(path), Some(_)) = (self.canonical_path(), self.readers()) else {
            return Err(OpenError::NotOpen);
        };
        self.writer.start(path, &self.shared.options, spawner)
    }

    fn stop_storage(&self, deadline: Instant) -> Result<(), BoxError> {
        // Under the lock, since a start that is under way is over then; the wait is outside of it.
        let Some(thread) = self.pool_thread().clone() else {
            return Ok(());
        };
        let open = {
            let mut phase = self.shared.phase.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *phase, Phase::Stopped)
        };
        drop(open);
        if !wait_for_end(&thread, deadline) {
            return Err("the read pool did not end in time: a read is still running".into());
        }
        *self.pool_thread() = None;
        Ok(())
    }

    fn pool_thread(&self) -> MutexGuard<'_, Option<PoolThread>> {
        self.shared.pool_thread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Service "storage" of a [`Database`].
#[derive(Debug)]
pub struct StorageService(Database);

impl Service for StorageService {
    fn name(&self) -> &str {
        STORAGE
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        self.0.start_storage(ctx).map_err(|error| match error {
            OpenError::Interrupted => Interrupted.into(),
            other => other.into(),
        })
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        self.0.stop_storage(deadline)
    }
}

/// Service "queue-writer" of a [`Database`].
#[derive(Debug)]
pub struct WriterService(Database);

impl Service for WriterService {
    fn name(&self) -> &str {
        QUEUE_WRITER
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        Ok(self.0.start_writer(ctx.spawner())?)
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        self.0.writer.stop(deadline)
    }
}

impl std::fmt::Debug for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::New => "New",
            Self::Open(_) => "Open",
            Self::Stopped => "Stopped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::{Manager, ManagerOptions};

    fn ctx() -> StartContext {
        StartContext::standalone(STORAGE, Duration::from_secs(30))
    }

    #[test]
    fn starts_out_of_order_and_second_starts_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let database = Database::new(directory.path().join("test.db"), &[], Options::default());
        let spawner = Spawner::standalone(QUEUE_WRITER);
        let soon = || Instant::now() + Duration::from_secs(30);
        assert!(matches!(database.start_writer(&spawner), Err(OpenError::NotOpen)));
        database.start_storage(&ctx()).expect("a first start");
        assert!(matches!(database.start_storage(&ctx()), Err(OpenError::AlreadyStarted)));
        database.start_writer(&spawner).expect("a first start");
        assert!(matches!(database.start_writer(&spawner), Err(OpenError::AlreadyStarted)));
        database.close(soon()).expect("a stop");
        assert!(matches!(database.start_storage(&ctx()), Err(OpenError::Stopped)));
        assert!(database.start_writer(&spawner).is_err());
        database.close(soon()).expect("a second stop");
    }

    #[test]
    fn a_stop_ends_a_start_that_waits_for_a_lock() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("test.db");
        let soon = || Instant::now() + Duration::from_secs(30);
        Database::open(&path, &[], Options::default()).expect("a file").close(soon()).expect("a stop");
        let foreign = Connection::open(&path).expect("a connection");
        foreign.execute_batch("BEGIN IMMEDIATE").expect("the lock");

        const MORE: Component = Component { name: "more", migrations: &["CREATE TABLE more (x)"] };
        let database = Database::new(&path, &[MORE], Options::default());
        let mut manager = Manager::new(ManagerOptions::default());
        manager.register(database.storage_service()).expect("a name");
        let handle = manager.handle();
        std::thread::scope(|scope| {
            let starting = scope.spawn(|| manager.start());
            handle.request_stop("test");
            assert!(starting.join().expect("no panic").is_err());
        });
        drop(foreign);
        assert!(database.pool_state().is_none());
    }

    #[test]
    fn a_start_that_failed_may_be_tried_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("missing");
        let database = Database::new(missing.join("test.db"), &[], Options::default());
        assert!(database.start_storage(&ctx()).is_err());
        std::fs::create_dir(&missing).expect("a directory");
        database.start_storage(&ctx()).expect("a start");
        database.close(Instant::now() + Duration::from_secs(30)).expect("a stop");
    }
}
