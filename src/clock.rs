//! Time as a dependency: everything that stores or compares a wall-clock time takes it from a [`Clock`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of wall-clock time.
///
/// The program reads the system's clock in one place, [`SystemClock`]; tests put a [`ManualClock`] in its stead.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, UTC. Negative before 1970.
    fn now_ms(&self) -> i64;
}

/// A clock that can be handed to several components.
pub type SharedClock = Arc<dyn Clock>;

/// The system's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The system's clock, ready to be shared.
    pub fn shared() -> SharedClock {
        Arc::new(SystemClock)
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        }
    }
}

/// A clock that stands still until it is told otherwise. For tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now_ms` (milliseconds since the Unix epoch).
    pub fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock by `delta_ms` milliseconds; a negative number sets it back.
    pub fn advance(&self, delta_ms: i64) {
        self.0.fetch_add(delta_ms, Ordering::SeqCst);
    }

    /// Sets the clock to `now_ms`.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(1_000);
        clock.advance(-1_500);
        assert_eq!(clock.now_ms(), -500);
        clock.set(7);
        assert_eq!(clock.now_ms(), 7);
    }

    #[test]
    fn the_system_clock_shows_this_century() {
        assert!(SystemClock.now_ms() > 946_684_800_000);
    }
}
