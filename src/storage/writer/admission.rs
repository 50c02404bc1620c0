//! How much of callers' work may wait.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts the jobs that wait, and the bytes they carry, against their limits.
#[derive(Debug)]
pub(super) struct Admission {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
    pub(super) jobs_max: usize,
    pub(super) bytes_max: usize,
}

/// What was waiting when a job was turned away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) jobs: usize,
    pub(super) bytes: usize,
}

impl Admission {
    pub(super) fn new(jobs_max: usize, bytes_max: usize) -> Self {
        Self { jobs: AtomicUsize::new(0), bytes: AtomicUsize::new(0), jobs_max, bytes_max }
    }

    /// Counts a job in, or turns it away at once. Two that race for the last place may both be turned away.
    pub(super) fn admit(&self, bytes: usize) -> Result<(), Waiting> {
        let jobs_before = self.jobs.fetch_add(1, Relaxed);
        let bytes_before = self.bytes.fetch_add(bytes, Relaxed);
        if jobs_before < self.jobs_max && bytes_before.saturating_add(bytes) <= self.bytes_max {
            return Ok(());
        }
        self.release(bytes);
        Err(Waiting { jobs: jobs_before, bytes: bytes_before })
    }

    /// Counts a job out, once it no longer waits.
    pub(super) fn release(&self, bytes: usize) {
        self.jobs.fetch_sub(1, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn waiting(&self) -> Waiting {
        Waiting { jobs: self.jobs.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_bytes_are_limited_apart_and_come_back() {
        let admission = Admission::new(2, 100);
        assert_eq!(admission.admit(60), Ok(()));
        assert_eq!(admission.admit(41), Err(Waiting { jobs: 1, bytes: 60 }));
        assert_eq!(admission.admit(40), Ok(()));
        assert_eq!(admission.admit(0), Err(Waiting { jobs: 2, bytes: 100 }));
        admission.release(60);
        assert_eq!(admission.admit(60), Ok(()));
        assert_eq!(admission.waiting(), Waiting { jobs: 2, bytes: 100 });
    }
}
