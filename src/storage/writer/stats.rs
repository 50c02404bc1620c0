//! What the queue-writer counts, for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counters of the queue-writer since its start, read without stopping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WriterStats {
    /// Jobs of callers that wait now.
    pub waiting_jobs: usize,
    /// Bytes those jobs carry.
    pub waiting_bytes: usize,
    /// Transactions committed.
    pub groups: u64,
    /// Tasks in them.
    pub tasks: u64,
    /// Tasks in the last one.
    pub last_group: usize,
    /// How long its COMMIT took, in microseconds.
    pub last_commit_us: u64,
    /// Times a group was run again because a task in it failed after writing, panicked or was refused.
    pub reruns: u64,
    /// Groups that were answered with a database fault or an unknown outcome.
    pub faults: u64,
    /// Pages in the write-ahead log after the last commit.
    pub wal_pages: usize,
}

/// The counters themselves; written by the queue-writer alone.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) groups: AtomicU64,
    pub(super) tasks: AtomicU64,
    pub(super) last_group: AtomicUsize,
    pub(super) last_commit_us: AtomicU64,
    pub(super) reruns: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) wal_pages: AtomicUsize,
}

impl Counters {
    pub(super) fn committed(&self, tasks: usize, commit_us: u64) {
        self.groups.fetch_add(1, Relaxed);
        self.tasks.fetch_add(tasks as u64, Relaxed);
        self.last_group.store(tasks, Relaxed);
        self.last_commit_us.store(commit_us, Relaxed);
    }

    pub(super) fn read(&self) -> WriterStats {
        WriterStats {
            groups: self.groups.load(Relaxed),
            tasks: self.tasks.load(Relaxed),
            last_group: self.last_group.load(Relaxed),
            last_commit_us: self.last_commit_us.load(Relaxed),
            reruns: self.reruns.load(Relaxed),
            faults: self.faults.load(Relaxed),
            wal_pages: self.wal_pages.load(Relaxed),
            ..WriterStats::default()
        }
    }
}
