//! What the queue-writer counts, for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::storage::distribution::{Buckets, Distribution};
use crate::storage::{Recent, RecentCounts};

/// Microseconds.
const TIMES_US: [u64; 15] =
    [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];
const TASKS: [u64; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];
const US: f64 = 1e-6;

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

/// What the queue-writer measures, since its start.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WriterDistributions {
    /// Tasks per transaction.
    pub group_tasks: Distribution,
    /// How long a COMMIT took, seconds.
    pub commit_seconds: Distribution,
    /// How long a task waited until it was taken, seconds.
    pub wait_seconds: Distribution,
    /// Tasks committed in the last minutes.
    pub recent_tasks: RecentCounts,
}

/// The counters themselves; written by the queue-writer alone.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) groups: AtomicU64,
    pub(super) tasks: AtomicU64,
    pub(super) last_group: AtomicUsize,
    pub(super) last_commit_us: AtomicU64,
    pub(super) reruns: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) wal_pages: AtomicUsize,
    group_tasks: Buckets<11>,
    commit_us: Buckets<15>,
    wait_us: Buckets<15>,
    recent_tasks: Recent,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            groups: AtomicU64::default(),
            tasks: AtomicU64::default(),
            last_group: AtomicUsize::default(),
            last_commit_us: AtomicU64::default(),
            reruns: AtomicU64::default(),
            faults: AtomicU64::default(),
            wal_pages: AtomicUsize::default(),
            group_tasks: Buckets::new(&TASKS, 1.0),
            commit_us: Buckets::new(&TIMES_US, US),
            wait_us: Buckets::new(&TIMES_US, US),
            recent_tasks: Recent::new(Instant::now()),
        }
    }
}

impl Counters {
    /// A task that lay in the queue since then is taken now.
    pub(super) fn taken(&self, queued_at: Instant) {
        self.wait_us.record(u64::try_from(queued_at.elapsed().as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn committed(&self, tasks: usize, commit_us: u64) {
        self.group_tasks.record(tasks as u64);
        self.commit_us.record(commit_us);
        self.recent_tasks.record(tasks as u64, Instant::now());
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
    pub(super) fn distributions(&self) -> WriterDistributions {
        WriterDistributions {
            group_tasks: self.group_tasks.read(),
            commit_seconds: self.commit_us.read(),
            wait_seconds: self.wait_us.read(),
            recent_tasks: self.recent_tasks.read(Instant::now()),
        }
    }
}
