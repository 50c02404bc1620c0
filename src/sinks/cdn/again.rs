//! The second purge, for pages that were on their way into the cache during the first.
//!
//! A cache that asked the server just before a change may get the answer just after the purge, and keep it: what is
//! forgotten is only what is there already (Varnish with `PURGE` and bans is no exception, and neither are services). How long an answer can
//! be under way is bounded by the cache's own patience with the server. A purge that comes later than that after the
//! change reaches every such page.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{CdnOptions, CdnOptionsError, CdnPurge};
use crate::clock::SharedClock;
use crate::outbox::{DispatchError, Event, EventFilter, Handler, StartAt};

/// Longest delay. The lane sleeps in its call, and a call has 30 s.
pub const DELAY_MAX: Duration = Duration::from_secs(20);
/// Longest time between a change's own time and its commit: it may have waited for its turn, or for another process.
const COMMIT_LAG_MAX: Duration = Duration::from_secs(60);
/// How often the clock is looked at again, since it may be a test's.
const LOOK: Duration = Duration::from_millis(200);
/// The wall clock was set if it moved this much more, or less, than the steady one since the last look; milliseconds.
const STEP: u64 = 1_000;

/// A [`Handler`] that purges as [`CdnPurge`] does, once a change has been committed for at least `delay`. It has a lane of its own, so it is as durable
/// as the first purge: a crash, an outage or a full queue put it off and lose nothing. Cheap to clone.
#[derive(Clone)]
pub struct CdnAgain {
    purge: CdnPurge,
    delay: Duration,
    clock: SharedClock,
    closing: Arc<Closing>,
    steps: Arc<Mutex<Steps>>,
}

/// When the wall clock was set, as far as that was noticed; on the steady one.
#[derive(Debug)]
struct Steps {
    ahead: i64,
    set_at: Option<i64>,
}

impl Steps {
    fn new(clock: &SharedClock) -> Self {
        Self { ahead: clock.now_ms().saturating_sub(clock.steady_ms()), set_at: None }
    }

    /// Whether the wall clock was set within this time. What it says of an age from before is then worth nothing.
    fn are_recent(&mut self, time: Duration, wall: i64, steady: i64) -> bool {
        let ahead = wall.saturating_sub(steady);
        if ahead.abs_diff(self.ahead) > STEP {
            self.set_at = Some(steady);
        }
        self.ahead = ahead;
        self.set_at.is_some_and(|at| since(at, steady) < time)
    }
}

#[derive(Default)]
struct Closing {
    asked: Mutex<bool>,
    changed: Condvar,
}

impl CdnAgain {
    /// A handler with these settings, which purges `delay` after each change: longer than the cache waits for an answer of the server.
    ///
    /// # Errors
    /// A setting cannot work, or the delay is zero or above [`DELAY_MAX`].
    pub fn new(options: CdnOptions, delay: Duration, clock: SharedClock) -> Result<Self, CdnOptionsError> {
        if delay.is_zero() || delay > DELAY_MAX {
            return Err(CdnOptionsError { field: "delay", reason: "must be above zero and at most 20 s" });
        }
        // Of its own, since each remembers what is left of an event that failed.
        let purge = CdnPurge::new(options, clock.clone())?;
        let steps = Arc::new(Mutex::new(Steps::new(&clock)));
        Ok(Self { purge, delay, clock, closing: Arc::default(), steps })
    }

    /// Ends the wait under way, and all to come, without a purge: the events stay in the log for the next start. To be called before the relay
    /// is stopped, which would else wait for as long as the delay.
    pub fn close(&self) {
        *self.closing.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.closing.changed.notify_all();
    }

    /// Waits as long as the delay, from now on: until now is the change surely committed, while its own time is from before that, and only
    /// then nobody reads the old state any more. What happened so long ago that it cannot have been committed just now does not wait.
    /// The wait itself is counted by a clock that nobody sets.
    fn wait(&self, occurred_at: i64) -> Result<(), DispatchError> {
        let (begun, begun_ms) = (Instant::now(), self.clock.steady_ms());
        let is_old = self.is_old(occurred_at);
        let mut closing = self.closing.asked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *closing {
                return Err(DispatchError::unavailable(
                    "the program stops: the second purge comes after the next start",
                ));
            }
            let by_clock = self.delay.saturating_sub(since(begun_ms, self.clock.steady_ms()));
            let left = by_clock.min(self.delay.saturating_sub(begun.elapsed()));
            if is_old || left.is_zero() {
                return Ok(());
            }
            let woken = self.closing.changed.wait_timeout(closing, left.min(LOOK));
            closing = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Only the wall clock knows that, so it is not asked for a while after it was set.
    fn is_old(&self, occurred_at: i64) -> bool {
        let limit = self.delay + COMMIT_LAG_MAX;
        let (wall, steady) = (self.clock.now_ms(), self.clock.steady_ms());
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        !steps.are_recent(limit, wall, steady) && since(occurred_at, wall) >= limit
    }
}

fn since(then: i64, now: i64) -> Duration {
    Duration::from_millis(now.saturating_sub(then).max(0).unsigned_abs())
}

impl Handler for CdnAgain {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.wait(event.occurred_at)?;
        self.purge.handle(event)
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.wait(events.iter().map(|event| event.occurred_at).max().unwrap_or(i64::MIN))?;
        self.purge.handle_batch(events)
    }

    fn batch_limit(&self) -> usize {
        self.purge.batch_limit()
    }

    fn filter(&self) -> EventFilter {
        self.purge.filter()
    }

    /// What happened before this lane was known is in nobody's hands any more.
    fn start_at(&self) -> StartAt {
        StartAt::End
    }

    fn time_limit(&self) -> Duration {
        self.purge.time_limit() + self.delay
    }
}

impl fmt::Debug for CdnAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CdnAgain").field("purge", &self.purge).field("delay", &self.delay).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_is_not_believed_for_a_while_and_one_that_drifts_is() {
        let mut steps = Steps { ahead: 1_000_000, set_at: None };
        let limit = Duration::from_secs(80);
        let mut is_doubtful = |wall, steady| steps.are_recent(limit, wall, steady);
        assert!(!is_doubtful(1_000_000, 0) && !is_doubtful(1_900_500, 900_000), "it drifts");
        assert!(is_doubtful(5_500_500, 900_000), "set ahead");
        assert!(is_doubtful(5_580_400, 979_900), "not long ago");
        assert!(!is_doubtful(5_580_500, 980_000), "long enough");
        assert!(is_doubtful(1_000, 990_000), "set back");
    }
}
