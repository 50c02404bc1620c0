//! Failures that cannot be brought about from outside: a COMMIT that fails, a writer that dies.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rusqlite::ffi;

use crate::storage::Fault;

/// Failures to happen once, at the next group.
#[derive(Debug, Default)]
pub(super) struct Injected {
    die_before_commit: AtomicBool,
    die_after_commit: AtomicBool,
    commit_fails_after: AtomicBool,
    commit_fails_before: AtomicBool,
    reopen_fails: AtomicBool,
}

impl Injected {
    pub(super) fn before_commit(&self) {
        assert!(!self.die_before_commit.swap(false, SeqCst), "injected: the queue-writer dies before COMMIT");
    }

    pub(super) fn after_commit(&self, committed: rusqlite::Result<()>) -> rusqlite::Result<()> {
        committed
    }

    pub(super) fn on_reopen(&self) -> Result<(), Fault> {
        if self.reopen_fails.swap(false, SeqCst) { Err(Fault::from(io_error())) } else { Ok(()) }
    }
}

fn io_error() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), Some("injected: fsync failed".to_owned()))
}
