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
/// How often the clock is looked at again, since it may be set.
const LOOK: Duration = Duration::from_millis(200);

/// A [`Handler`] that purges as [`CdnPurge`] does, once a change has been committed for at least `delay`. It has a lane of its own, so it is as durable
/// as the first purge: a crash, an outage or a full queue put it off and lose nothing. Cheap to clone.
#[derive(Clone)]
pub struct CdnAgain {
    purge: CdnPurge,
    delay: Duration,
    clock: SharedClock,
    closing: Arc<Closing>,
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
        Ok(Self { purge, delay, clock, closing: Arc::default() })
    }

    /// Ends the wait under way, and all to come, without a purge: the events stay in the log for the next start. To be called before the relay
    /// is stopped, which would else wait for as long as the delay.
    pub fn close(&self) {
        *self.closing.asked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.closing.changed.notify_all();
    }

    /// Waits as long as the delay, from now on: until now is the change surely committed, while its own time is from before that, and only
    /// then nobody reads the old state any more. What happened so long ago that it cannot have been committed just now does not wait.
    /// Never longer than the delay, wherever the clock is set to.
    fn wait(&self, occurred_at: i64) -> Result<(), DispatchError> {
        let (begun, begun_ms) = (Instant::now(), self.clock.now_ms());
        let since = |then: i64, now: i64| Duration::from_millis(now.saturating_sub(then).max(0).unsigned_abs());
        let is_old = since(occurred_at, begun_ms) >= self.delay + COMMIT_LAG_MAX;
        let mut closing = self.closing.asked.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if *closing {
                return Err(DispatchError::unavailable(
                    "the program stops: the second purge comes after the next start",
                ));
            }
            let by_clock = self.delay.saturating_sub(since(begun_ms, self.clock.now_ms()));
            let left = by_clock.min(self.delay.saturating_sub(begun.elapsed()));
            if is_old || left.is_zero() {
                return Ok(());
            }
            let woken = self.closing.changed.wait_timeout(closing, left.min(LOOK));
            closing = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
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
