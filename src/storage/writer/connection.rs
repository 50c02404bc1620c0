//! The process's only write connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::stats::Counters;
use crate::storage::guard::Guard;
use crate::storage::{OpenError, Options, Synchronous, open};

/// Statements kept prepared; more than all the crate's own writing statements together.
const STATEMENTS: usize = 256;

/// While it is opened, only another process's recovery of the log can be in the way.
const OPEN_BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// How the connection is opened, at the start and after a fault.
pub(super) struct Settings {
    path: PathBuf,
    synchronous: Synchronous,
    wal_limit: u64,
    counters: Arc<Counters>,
}

/// The connection and the guard that is on while tasks have it.
pub(super) struct Writable {
    pub(super) connection: Connection,
    pub(super) guard: Arc<Guard>,
}

impl Settings {
    pub(super) fn new(path: PathBuf, options: &Options, counters: Arc<Counters>) -> Self {
        Self { path, synchronous: options.synchronous, wal_limit: options.wal_limit, counters }
    }

    /// Opens the connection; every setting is read back.
    pub(super) fn connect(&self) -> Result<Writable, OpenError> {
        let mut connection = open::connect(&self.path, OpenFlags::empty())?;
        connection.busy_timeout(OPEN_BUSY_TIMEOUT)?;
        open::check_wal(&connection)?;
        open::set_number(&connection, "synchronous", self.synchronous.level())?;
        open::set_number(&connection, "wal_autocheckpoint", 0)?;
        let limit = i64::try_from(self.wal_limit).unwrap_or(i64::MAX);
        open::set_number(&connection, "journal_size_limit", limit)?;
        // Waiting for the write lock is done in short tries of our own, which see deadlines and stops.
        connection.busy_timeout(Duration::ZERO)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let guard = Guard::install(&mut connection)?;
        guard.install_commit_hook(&mut connection)?;
        let counters = Arc::clone(&self.counters);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            counters.wal_pages.store(usize::try_from(pages).unwrap_or(0), Relaxed);
            Ok(())
        }))?;
        Ok(Writable { connection, guard })
    }
}
