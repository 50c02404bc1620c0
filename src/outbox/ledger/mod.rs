//! The inbox ledger: for consumers that get their events from a broker, which may bring each of them more than once.
//!
//! A [`Ledger`] remembers per event and handler whether the handler is running, is to be run again, or is done. It works in
//! any database of this crate, with [`LEDGER_COMPONENT`](COMPONENT) among its components; it needs no outbox there.

mod check;
mod claim;
mod edit;
mod entries;
mod error;
mod options;
mod place;
mod prune;
mod run;
mod sql;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::check::{LedgerFinding, LedgerReport};
pub use self::entries::{LedgerEntry, LedgerQuery, LedgerState};
pub use self::error::{LedgerActError, LedgerError};
pub use self::options::{LedgerOptions, LedgerSetupError};
pub use self::place::LedgerPlace;
use self::run::Unrecorded;
use super::owner::{self, OwnerLock, OwnerWatch};
use super::{DispatchError, Event};
use crate::storage::{Component, Database};

/// The ledger's table: hand it to [`Database::open`](crate::storage::Database::open).
pub const COMPONENT: Component =
    Component { name: "ledger", migrations: &[include_str!("../../../sql/ledger/0001_ledger.sql")] };

/// Dead owners' files removed at the start, at most.
const MAX_DEAD_FILES: usize = 1_000;

/// Runs each handler once per event, as far as that can be known. Cheap to clone; may be used from any thread.
///
/// Before a handler runs, the pair of event and handler is *claimed* with a random token; afterwards the claim is ended
/// under that token. So no two deliveries run one handler for one event at the same time, a finished one is skipped, and
/// a stale owner can end no claim but its own. What remains is the window of every such scheme: a process that dies after
/// the effect and before the mark runs the handler again. Handlers are therefore idempotent, as everywhere here.
///
/// Attempts, the next attempt's time and deaths are counted on the row, so they survive restarts, whatever the broker
/// counts. An event that may have killed its process runs alone from then on, and is given up after
/// [`max_crashes`](super::Policy::max_crashes). Given-up events are kept here with reason, history and, for
/// [`run_event`](Self::run_event), the event itself: acknowledge the message then; [`replay`](Self::replay) and
/// [`due`](Self::due) bring it back without the broker.
///
/// ```
/// use vayu_articles::outbox::{LEDGER_COMPONENT, Ledger, LedgerOptions, LedgerOutcome};
/// use vayu_articles::storage::{Database, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let folder = tempfile::tempdir()?;
/// let database = Database::open(folder.path().join("worker.db"), &[LEDGER_COMPONENT], Options::default())?;
/// let ledger = Ledger::new(&database, LedgerOptions::default())?;
/// let mut mails = 0;
/// let first = ledger.run_once("event-1", "mail", || {
///     mails += 1;
///     Ok(())
/// })?;
/// assert_eq!(first, LedgerOutcome::Done);
/// assert_eq!(ledger.run_once("event-1", "mail", || unreachable!())?, LedgerOutcome::Skipped);
/// assert_eq!(mails, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    database: Database,
    options: LedgerOptions,
    path: PathBuf,
    /// This process's proof of life.
    lock: OwnerLock,
    watches: Mutex<HashMap<String, OwnerWatch>>,
    unrecorded: Mutex<Unrecorded>,
}

/// What became of one delivery. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LedgerOutcome {
    /// The handler ran and went well, and that is durable. Acknowledge.
    Done,
    /// It was done before; the handler did not run. Acknowledge.
    Skipped,
    /// Not now: somebody else runs it, its next attempt is not due, or an earlier event of its key is still open. Nothing
    /// ran and nothing was spent: deliver it again then.
    Deferred {
        /// When to deliver it again. May be earlier than it can run.
        until: i64,
    },
    /// The handler failed or panicked; the attempt is counted. Deliver it again then.
    Retry {
        /// What the handler said.
        reason: String,
        /// Failed calls so far.
        attempts: u32,
        /// When the next attempt is due.
        until: i64,
    },
    /// What the handler needs is down: nothing was spent. Pause, then deliver it again.
    Unavailable {
        /// What is down.
        reason: String,
        /// How long the other side asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Given up, now or before, and kept here. Acknowledge.
    DeadLetter {
        /// Why; `crash_loop` when it was its process that died.
        reason: String,
    },
    /// Given up by an operator. Acknowledge.
    Discarded,
    /// The handler ran, but its claim was taken over or given up by an operator meanwhile: their word counts. Deliver it
    /// again and hear it.
    Lost,
}

impl Ledger {
    /// A ledger in `database`, which is open and has the table of [`LEDGER_COMPONENT`](COMPONENT).
    ///
    /// # Errors
    /// [`LedgerSetupError`]; among others, when the options would forget an event while it may still come again.
    pub fn new(database: &Database, options: LedgerOptions) -> Result<Self, LedgerSetupError> {
        options.check()?;
        let path = database.canonical_path().ok_or(LedgerSetupError::NotOpen)?;
        let has = |text| database.read(|connection| connection.query_row(text, [], |row| row.get::<_, bool>(0)));
        if !has(sql::HAS_LEDGER).map_err(LedgerSetupError::Read)? {
            return Err(LedgerSetupError::NoLedger);
        }
        // In a database with lanes a dead owner's file may prove their owner's death: the relay removes those.
        if !has(sql::HAS_LANES).map_err(LedgerSetupError::Read)? {
            remove_dead_files(database, &path);
        }
        let lock = OwnerLock::create(&path, Vec::new()).map_err(LedgerSetupError::OwnerFile)?;
        let inner = Inner {
            database: database.clone(),
            options,
            path,
            lock,
            watches: Mutex::default(),
            unrecorded: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs `f` unless it is done, given up, not due or claimed elsewhere. A panic in `f` counts as a failure with its
    /// text. No lock, transaction or connection is held while `f` runs.
    ///
    /// The event itself is not stored: a dead letter of this form can be listed and replayed, but then it needs the
    /// broker to bring the event again. [`run_event`](Self::run_event) does not.
    ///
    /// # Errors
    /// [`LedgerError`]: in all cases but [`LedgerError::NotRecorded`] `f` did not run.
    pub fn run_once(
        &self,
        event_id: &str,
        handler: &str,
        f: impl FnOnce() -> Result<(), DispatchError>,
    ) -> Result<LedgerOutcome, LedgerError> {
        self.run_named(event_id, handler, f)
    }

    /// [`run_once`](Self::run_once) for an event at hand. The event is stored until it is done, so a dead letter is
    /// complete, and events of one key run in the order of [`Event::id`]: one is deferred while an earlier one of its key
    /// is open.
    ///
    /// `f` gets the event with the attempts and replays counted here, and after a replay as the ledger stores it.
    ///
    /// # Errors
    /// As [`run_once`](Self::run_once).
    pub fn run_event(
        &self,
        event: &Event,
        handler: &str,
        f: impl FnOnce(&Event) -> Result<(), DispatchError>,
    ) -> Result<LedgerOutcome, LedgerError> {
        self.run_stored(event, handler, f)
    }

    /// The options it was made with.
    pub fn options(&self) -> &LedgerOptions {
        &self.inner.options
    }

    fn now(&self) -> i64 {
        self.inner.database.clock().now_ms()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A claim stays behind whose end could not be written: the file then proves at once that its owner is gone.
        if !lock(&self.unrecorded).is_empty() {
            self.lock.leave_behind();
        }
    }
}

/// Files of dead owners whose claims have all been taken over.
fn remove_dead_files(database: &Database, path: &std::path::Path) {
    let dead = owner::remove_unfinished(path, MAX_DEAD_FILES).and_then(|()| owner::dead_owners(path, MAX_DEAD_FILES));
    let dead = dead.unwrap_or_else(|error| {
        log::warn!("ledger owner_files=unreadable error={error}");
        Vec::new()
    });
    for owner in dead {
        let claims = database.read(|connection| {
            connection.prepare_cached(sql::CLAIMS_OF_OWNER)?.query_row([&owner], |row| row.get::<_, bool>(0))
        });
        if matches!(claims, Ok(false)) {
            owner::remove_owner_file(path, &owner);
        }
    }
}

/// No foreign code runs under these locks, so poison means nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
