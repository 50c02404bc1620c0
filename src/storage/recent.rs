//! How much happened in the last minutes, interval by interval, without a thread that watches.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Intervals that are kept.
const KEPT: usize = 60;
/// Length of one.
const INTERVAL: Duration = Duration::from_secs(10);

/// Counts per interval, in a ring: what is older than the ring is forgotten when something is recorded or read.
#[derive(Debug)]
pub(crate) struct Recent {
    began: Instant,
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    counts: [u64; KEPT],
    /// Number of the newest interval that has a place in the ring.
    newest: u64,
}

/// What happened in the last ten minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecentCounts {
    /// One count per interval, the oldest first. The last interval is still running.
    pub counts: Vec<u64>,
    /// Length of an interval.
    pub interval: Duration,
}

impl RecentCounts {
    /// Both together, interval by interval.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self
    }
}

impl Default for RecentCounts {
    fn default() -> Self {
        Self { counts: vec![0; KEPT], interval: INTERVAL }
    }
}

impl Recent {
    pub(crate) fn new(now: Instant) -> Self {
        Self { began: now, ring: Mutex::new(Ring { counts: [0; KEPT], newest: 0 }) }
    }

    pub(crate) fn record(&self, count: u64, now: Instant) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ring.advance(self.interval(now));
        ring.counts[at] += count;
    }

    pub(crate) fn read(&self, now: Instant) -> RecentCounts {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let last = ring.advance(self.interval(now));
        let counts = (1..=KEPT).map(|step| ring.counts[(last + step) % KEPT]).collect();
        RecentCounts { counts, interval: INTERVAL }
    }

    fn interval(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs() / INTERVAL.as_secs()
    }
}

impl Ring {
    /// Goes on to an interval, emptying the places of those in between; returns its place. Never goes back.
    fn advance(&mut self, interval: u64) -> usize {
        let steps = interval.saturating_sub(self.newest).min(KEPT as u64);
        self.newest = self.newest.max(interval);
        for back in 0..steps {
            let place = self.place(self.newest - back);
            self.counts[place] = 0;
        }
        self.place(self.newest)
    }

    fn place(&self, interval: u64) -> usize {
        (interval % KEPT as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_ten_minutes_is_forgotten_and_nothing_else() {
        let start = Instant::now();
        let recent = Recent::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        recent.record(1, at(0));
        recent.record(2, at(9));
        recent.record(4, at(10));
        recent.record(8, at(595));
        let counts = recent.read(at(599)).counts;
        assert_eq!((counts[0], counts[1], counts[59], counts.iter().sum::<u64>()), (3, 4, 8, 15));
        let counts = recent.read(at(605)).counts;
        assert_eq!((counts[0], counts[58], counts.iter().sum::<u64>()), (4, 8, 12));
        assert_eq!(recent.read(at(100_000)), RecentCounts::default());
        recent.record(16, at(100_001));
        assert_eq!(recent.read(at(5)).counts[59], 16, "a clock that seems to go back loses nothing");
    }
}
