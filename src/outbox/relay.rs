//! The relay: runs every handler's lane, each on its own thread, and keeps house beside them.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::housekeeping::{self, Housekeeping};
use super::lane::{Board, Lane, LaneParts, LaneStatus, StopSignal};
use super::owner::OwnerLock;
use super::policy::Policy;
use super::retention::Retention;
use super::{DispatchError, Event, Handler, HandlerFn, sql};
use crate::lifecycle::{BoxError, Service, Spawner, StartContext};
use crate::storage::Database;

/// Most threads of one lane.
const MAX_THREADS: usize = 64;

/// How a relay works. The defaults are the project's design.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RelayOptions {
    /// Longest time between two looks at the database; a commit in this process wakes the lanes at once. 200 ms.
    pub poll: Duration,
    /// Most log rows read at once; 512.
    pub batch_events: usize,
    /// Most payload bytes read at once; 8 MiB.
    pub batch_bytes: usize,
    /// The cursor and the exceptions are written this long after the oldest unwritten outcome; 50 ms.
    pub flush_after: Duration,
    /// They are written earlier when this many outcomes wait; 1,024.
    pub flush_events: usize,
    /// Most log rows between a lane and its durable cursor; 2,048. Must be the same in every process that shares the
    /// database, since a successor single-steps through as many after a crash.
    pub run_ahead: usize,
    /// When a call is made again and when it is given up.
    pub policy: Policy,
    /// What is removed from the log, and when; `None` keeps everything.
    pub retention: Option<Retention>,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            poll: Duration::from_millis(200),
            batch_events: 512,
            batch_bytes: 8 << 20,
            flush_after: Duration::from_millis(50),
            flush_events: 1_024,
            run_ahead: 2_048,
            policy: Policy::default(),
            retention: Some(Retention::default()),
        }
    }
}

/// Collects the handlers of a [`Relay`].
#[derive(Debug)]
pub struct RelayBuilder {
    database: Database,
    handlers: Vec<Registered>,
    options: RelayOptions,
}

/// Delivers every event of a database to every handler: at least once, in order per key.
///
/// Cheap to clone; all clones are the same relay. Use it alone ([`start`](Self::start), [`stop`](Self::stop)) or
/// register it with a [`Manager`](crate::lifecycle::Manager), after the queue-writer.
#[derive(Debug, Clone)]
pub struct Relay {
    shared: Arc<Shared>,
}

/// Why a relay was not built or not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum RelayError {
    /// A handler's name is empty, longer than 100 bytes, or has characters besides letters, digits, `-`, `_`, `.`, `:`.
    InvalidName(String),
    /// Two handlers have one name: a name is a lane, and a lane has one cursor.
    DuplicateName(String),
    /// The database is not open: start it first.
    NotOpen,
    /// The database has no outbox: open it with [`outbox::COMPONENT`](super::COMPONENT) among its components.
    NoOutbox,
    /// The owner file beside the database could not be created and locked.
    OwnerFile(io::Error),
    /// A thread could not be started.
    Thread(io::Error),
    /// It was started before: build a new relay.
    StartedBefore,
}

/// Lanes that did not end by the deadline. They keep their ownership until their calls return or the process ends, so
/// no event is run twice at once.
#[derive(Debug)]
#[non_exhaustive]
pub struct StopTimeout {
    /// Names of the handlers whose call still runs.
    pub handlers: Vec<String>,
}

#[derive(Clone)]
struct Registered {
    name: String,
    handler: Arc<dyn Handler>,
    board: Arc<Board>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Shared {
    database: Database,
    handlers: Vec<Registered>,
    options: RelayOptions,
    stop_deadline: Arc<OnceLock<Instant>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    started: bool,
    /// Dropped to wake every lane for the stop.
    stop: Option<Sender<()>>,
    notices: Vec<Sender<()>>,
    threads: Vec<Running>,
}

impl Drop for Shared {
    /// The last clone of the relay is gone and nobody can stop it any more: its lanes finish their running call, write
    /// what they know and let go, without anybody waiting for it.
    fn drop(&mut self) {
        let _ = self.stop_deadline.set(Instant::now());
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).stop = None;
    }
}

#[derive(Debug)]
struct Running {
    name: String,
    thread: JoinHandle<()>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
}

impl RelayBuilder {
    /// Adds a handler under a name that stays the same over restarts: the name is the lane.
    #[must_use]
    pub fn handler(self, name: impl Into<String>, handler: impl Handler) -> Self {
        self.shared_handler(name, Arc::new(handler))
    }

    /// Adds a closure as handler. Its lane, when new to the database, begins with the oldest event the log still holds,
    /// which may be days old; [`HandlerFn::start_at`] says otherwise.
    #[must_use]
    pub fn handler_fn<F>(self, name: impl Into<String>, handler: F) -> Self
    where
        F: Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static,
    {
        self.handler(name, handler)
    }

    /// Adds a closure that gets only events of these types; a final `*` stands for any ending. It begins as with
    /// [`handler_fn`](Self::handler_fn).
    #[must_use]
    pub fn handler_for<F>(self, name: impl Into<String>, types: &[&str], handler: F) -> Self
    where
        F: Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static,
    {
        self.handler(name, HandlerFn::new(handler).types(types))
    }

    /// Adds a handler that others hold too.
    #[must_use]
    pub fn shared_handler(mut self, name: impl Into<String>, handler: Arc<dyn Handler>) -> Self {
        let name = name.into();
        let board = Arc::new(Board::new(&name, handler.time_limit(), handler.concurrency().clamp(1, MAX_THREADS)));
        self.handlers.push(Registered { name, handler, board });
        self
    }

    /// Sets the options.
    #[must_use]
    pub fn options(mut self, options: RelayOptions) -> Self {
        self.options = options;
        self
    }

    /// Checks the names and builds the relay; nothing runs yet.
    ///
    /// # Errors
    /// [`RelayError::InvalidName`] and [`RelayError::DuplicateName`].
    pub fn build(mut self) -> Result<Relay, RelayError> {
        let mut names = HashSet::new();
        for registered in &self.handlers {
            if !is_name(&registered.name) {
                return Err(RelayError::InvalidName(registered.name.clone()));
            }
            if !names.insert(registered.name.as_str()) {
                return Err(RelayError::DuplicateName(registered.name.clone()));
            }
        }
        let options = &mut self.options;
        options.batch_events = options.batch_events.max(1);
        options.flush_events = options.flush_events.max(1);
        options.run_ahead = options.run_ahead.max(1);
        let shared = Shared {
            database: self.database,
            handlers: self.handlers,
            options: self.options,
            stop_deadline: Arc::new(OnceLock::new()),
            state: Mutex::default(),
        };
        Ok(Relay { shared: Arc::new(shared) })
    }

    /// Builds and starts the relay without a manager.
    ///
    /// # Errors
    /// Those of [`build`](Self::build) and [`Relay::start`].
    pub fn start(self) -> Result<Relay, RelayError> {
        let relay = self.build()?;
        relay.start()?;
        Ok(relay)
    }
}

/// What may name a lane.
pub(super) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !name.is_empty() && name.len() <= 100 && name.chars().all(allowed)
}

impl Relay {
    /// A relay over the events of `database`, which may be opened later, but before the relay starts.
    pub fn builder(database: &Database) -> RelayBuilder {
        RelayBuilder { database: database.clone(), handlers: Vec::new(), options: RelayOptions::default() }
    }

    /// Starts the lanes without a manager. Returns at once; a lane that another living process owns stands by.
    ///
    /// # Errors
    /// The database is not open or has no outbox, the owner file cannot be made, a thread cannot be started, or it was started before.
    pub fn start(&self) -> Result<(), RelayError> {
        self.start_with(&Spawner::standalone("relay"))
    }

    /// Finishes the running calls, delivers what is committed until shortly before `deadline` (an eighth of the time, at
    /// most 250 ms), writes the cursors and gives the lanes up. A second stop, and one before the start, do nothing.
    ///
    /// # Errors
    /// [`StopTimeout`] names the handlers whose call still runs.
    pub fn stop(&self, deadline: Instant) -> Result<(), StopTimeout> {
        let threads = {
            let mut state = self.state();
            // A relay that was never started must not start after its stop.
            state.started = true;
            let _ = self.shared.stop_deadline.set(drain_until(deadline, Instant::now()));
            state.stop = None;
            std::mem::take(&mut state.threads)
        };
        let mut late = Vec::new();
        for running in threads {
            match running.ended.recv_deadline(deadline.max(Instant::now() + Duration::from_millis(50))) {
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => late.push(running),
                _ => {
                    let _ = running.thread.join();
                }
            }
        }
        if late.is_empty() {
            return Ok(());
        }
        let handlers = late.iter().map(|running| running.name.clone()).collect();
        self.state().threads.append(&mut late);
        Err(StopTimeout { handlers })
    }

    /// Tells the lanes to look now: for events that were inserted on a connection of the program's own. Without it the
    /// poll finds them within 200 ms.
    pub fn notify(&self) {
        for lane in &self.state().notices {
            // Full means that a notice waits already.
            let _ = lane.try_send(());
        }
    }

    /// Every lane as this process sees it.
    pub fn status(&self) -> Vec<LaneStatus> {
        self.shared.handlers.iter().map(|registered| registered.board.status()).collect()
    }

    /// Waits until every lane this relay owns has an outcome for everything committed before the call and has written
    /// it; `false` if `until` passed first. Lanes that stand by, are held or stopped are not waited for; an event that
    /// waits for its next try counts as having an outcome.
    pub fn wait_drained(&self, until: Instant) -> bool {
        let target = self
            .shared
            .database
            .read(|connection| connection.prepare_cached(sql::LAST_ID)?.query_row([], |row| row.get::<_, i64>(0)));
        let Ok(target) = target else { return false };
        self.notify();
        self.shared.handlers.iter().all(|registered| registered.board.wait_drained(target, until))
    }

    fn start_with(&self, spawner: &Spawner) -> Result<(), RelayError> {
        if self.state().started {
            return Err(RelayError::StartedBefore);
        }
        let path = self.shared.database.canonical_path().ok_or(RelayError::NotOpen)?;
        // A database that does not answer now may do so later: the lanes wait for it.
        if let Ok(false) = self.shared.database.read(has_outbox) {
            return Err(RelayError::NoOutbox);
        }
        let handlers: Vec<String> = self.shared.handlers.iter().map(|registered| registered.name.clone()).collect();
        let lock = OwnerLock::create(&path, handlers.clone()).map_err(RelayError::OwnerFile)?;
        let lock = Arc::new(lock);
        let (stop, asked) = bounded(0);
        // The handlers are asked for their filters and limits here, where no lane runs yet and no lock is held: one that
        // panics leaves nothing behind.
        let lanes: Vec<(Lane, Sender<()>)> = (self.shared.handlers.iter())
            .map(|registered| {
                let (notice, notices) = bounded(1);
                (Lane::new(self.lane_parts(registered, &lock, path.clone(), asked.clone(), notices)), notice)
            })
            .collect();
        lanes.iter().for_each(|(lane, _)| lane.register());
        let retention = self.shared.options.retention.clone();
        let database = self.shared.database.clone();
        let housekeeping = Housekeeping { database, lock, path, handlers, retention, stop: asked };
        let mut state = self.state();
        if state.started {
            return Err(RelayError::StartedBefore);
        }
        state.started = true;
        state.stop = Some(stop);
        let started = self.spawn_all(&mut state, spawner, lanes, housekeeping);
        if started.is_err() {
            // The lanes that run already see the deadline and end; the caller's stop joins them.
            let _ = self.shared.stop_deadline.set(Instant::now());
            state.stop = None;
        }
        started
    }

    fn spawn_all(
        &self,
        state: &mut State,
        spawner: &Spawner,
        lanes: Vec<(Lane, Sender<()>)>,
        housekeeping: Housekeeping,
    ) -> Result<(), RelayError> {
        let managed = spawner.is_managed();
        for (registered, (lane, notice)) in self.shared.handlers.iter().zip(lanes) {
            let name = format!("lane-{}", registered.name);
            state.threads.push(spawn(spawner, &registered.name, &name, move || lane.run(managed))?);
            state.notices.push(notice);
        }
        let name = "relay-housekeeping";
        state.threads.push(spawn(spawner, name, name, move || housekeeping::run(&housekeeping))?);
        Ok(())
    }

    fn lane_parts(
        &self,
        registered: &Registered,
        lock: &Arc<OwnerLock>,
        path: PathBuf,
        asked: Receiver<()>,
        notices: Receiver<()>,
    ) -> LaneParts {
        LaneParts {
            database: self.shared.database.clone(),
            name: registered.name.clone(),
            handler: Arc::clone(&registered.handler),
            options: self.shared.options.clone(),
            lock: Arc::clone(lock),
            path,
            board: Arc::clone(&registered.board),
            stop: StopSignal { asked, deadline: Arc::clone(&self.shared.stop_deadline) },
            commits: self.shared.database.writer().subscribe(),
            notices,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn has_outbox(connection: &rusqlite::Connection) -> rusqlite::Result<bool> {
    connection.prepare_cached(sql::HAS_OUTBOX)?.query_row([], |row| row.get(0))
}

/// When a lane that is asked to stop takes up no further event: what it knows has to be written before the deadline.
fn drain_until(deadline: Instant, now: Instant) -> Instant {
    const MARGIN_MAX: Duration = Duration::from_millis(250);
    let left = deadline.saturating_duration_since(now);
    now + (left - (left / 8).min(MARGIN_MAX))
}

fn spawn(
    spawner: &Spawner,
    name: &str,
    thread_name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<Running, RelayError> {
    let (ends, ended) = bounded::<()>(0);
    let thread = spawner
        .spawn(thread_name, move || {
            let _ends = ends;
            run();
        })
        .map_err(RelayError::Thread)?;
    Ok(Running { name: name.to_owned(), thread, ended })
}

impl Service for Relay {
    fn name(&self) -> &str {
        "relay"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        self.start_with(ctx.spawner()).map_err(BoxError::from)
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        Relay::stop(self, deadline).map_err(BoxError::from)
    }
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName(name) => {
                write!(f, "handler name {name:?} is not allowed: use 1 to 100 letters, digits, '-', '_', '.' or ':'")
            }
            Self::DuplicateName(name) => write!(f, "two handlers are named {name:?}: give each its own name"),
            Self::NotOpen => f.write_str("the database is not open: start it before the relay"),
            Self::NoOutbox => f.write_str(
                "the database has no tables of the outbox: open it with outbox::COMPONENT among its components",
            ),
            Self::OwnerFile(error) => write!(
                f,
                "the relay's owner file beside the database cannot be created and locked: {error}; \
                 the folder must be writable and on a local file system"
            ),
            Self::Thread(error) => error.fmt(f),
            Self::StartedBefore => f.write_str("a relay runs once: build a new one"),
        }
    }
}

impl std::error::Error for RelayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OwnerFile(error) | Self::Thread(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for StopTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "still running past the stop deadline: {}", self.handlers.join(", "))
    }
}

impl std::error::Error for StopTimeout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_keeps_some_of_its_time_for_the_last_flush() {
        let now = Instant::now();
        let drained = |left: Duration| drain_until(now + left, now) - now;
        assert_eq!(drained(Duration::from_secs(10)), Duration::from_millis(9_750));
        assert_eq!(drained(Duration::from_millis(80)), Duration::from_millis(70));
        assert_eq!(
            drain_until(now, now + Duration::from_secs(1)),
            now + Duration::from_secs(1),
            "the past means at once"
        );
    }
}
