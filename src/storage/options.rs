//! How a database is opened, and the limits it works under.

use std::time::Duration;

use crate::clock::{SharedClock, SystemClock};

/// How to open a database. Start from `Options::default()` and assign the fields that differ.
///
/// ```
/// use vayu_articles::storage::Options;
///
/// let mut options = Options::default();
/// options.readers = 2;
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Clock for everything stored (default: the system's).
    pub clock: SharedClock,
    /// When a commit counts as done (default [`Synchronous::Full`]).
    pub synchronous: Synchronous,
    /// Pooled read connections, at least 1 (default 4).
    pub readers: u32,
    /// Longest wait for a pooled connection, above zero, at most a day (default 2 s).
    pub read_wait: Duration,
    /// Longest read snapshot; a statement that runs beyond it is interrupted (default 2 s).
    pub read_limit: Duration,
    /// Most jobs of callers that may wait for the queue-writer, 1 to 100,000 (default 1,000).
    pub max_jobs: usize,
    /// Most bytes those jobs may carry together (default 64 MiB).
    pub max_bytes: usize,
    /// Most rows written by one transaction of the queue-writer (default 1,024). A larger single task is a group alone.
    pub group_rows: usize,
    /// Most bytes written by one transaction of the queue-writer (default 8 MiB). A larger single task is a group alone.
    pub group_bytes: usize,
    /// How long the queue-writer tries to get the write lock from other connections before the waiting group is
    /// answered with the fault (default 5 s).
    pub busy_deadline: Duration,
    /// Size of the write-ahead log, in bytes, above which the queue-writer asks for a fresh start of the log after
    /// each 1,000 pages (default 64 MiB).
    pub wal_limit: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: SystemClock::shared(),
            synchronous: Synchronous::Full,
            readers: 4,
            read_wait: Duration::from_secs(2),
            read_limit: Duration::from_secs(2),
            max_jobs: 1_000,
            max_bytes: 64 << 20,
            group_rows: 1_024,
            group_bytes: 8 << 20,
            busy_deadline: Duration::from_secs(5),
            wal_limit: 64 << 20,
        }
    }
}

impl Options {
    /// What is wrong with the settings, if anything.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if self.readers == 0 {
            return Some("readers must be at least 1");
        }
        if self.read_wait.is_zero() || self.read_limit.is_zero() {
            return Some("read_wait and read_limit must be above zero");
        }
        if self.read_wait.max(self.read_limit).max(self.busy_deadline) > DURATION_MAX {
            return Some("read_wait, read_limit and busy_deadline must not be longer than a day");
        }
        if self.max_jobs == 0 || self.max_jobs > MAX_JOBS_LIMIT {
            return Some("max_jobs must be between 1 and 100,000");
        }
        if self.max_bytes == 0 || self.group_rows == 0 || self.group_bytes == 0 {
            return Some("max_bytes, group_rows and group_bytes must be above zero");
        }
        None
    }
}

/// The inbox of the queue-writer is allocated at once, so its size has a limit too.
pub(super) const MAX_JOBS_LIMIT: usize = 100_000;

/// Longer waits are taken for a mistake; they would also overflow when added to the time.
const DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// When SQLite counts a commit as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// The log is synced at each commit: what was answered survives a power cut. The default.
    #[default]
    Full,
    /// The log is synced at checkpoints only: what was answered survives a crash of the process, but the last
    /// commits may be lost in a power cut. The database stays consistent.
    Normal,
}

impl Synchronous {
    /// The number SQLite knows the mode by.
    pub(super) fn level(self) -> i64 {
        match self {
            Self::Normal => 1,
            Self::Full => 2,
        }
    }
}
