//! What a lane lets others see while it runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::report;
use crate::clock::rfc3339;
use crate::outbox::flush::{Change, Flush, Verdict};
use crate::storage::{Recent, RecentCounts};

/// What a lane is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaneState {
    /// Its thread has not looked at the database yet.
    Starting,
    /// Another living relay owns the lane; this one takes over when that one ends.
    Standby {
        /// The owner's name, a UUID.
        owner: String,
    },
    /// It delivers.
    Running,
    /// Its transport is down; it tries again by itself.
    Paused {
        /// When, milliseconds since the Unix epoch.
        until: i64,
        /// What the handler said.
        reason: String,
    },
    /// An operator holds it.
    Held,
    /// The database does not answer; it tries again by itself.
    Waiting {
        /// What the database said.
        reason: String,
    },
    /// Its thread panicked. The lane is let go, for another relay to take; without a manager it is started again, five times
    /// at most. Under a manager the relay has failed and the program stops.
    Failed {
        /// What the panic said.
        reason: String,
    },
    /// Its thread has ended.
    Stopped,
}

/// One line for people and logs: `paused until=2026-01-31T09:05:00.000Z reason="connection refused"`.
impl fmt::Display for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Standby { owner } => write!(f, "standby owner={owner}"),
            Self::Running => f.write_str("running"),
            Self::Paused { until, reason } => {
                write!(f, "paused until={} reason={:?}", rfc3339(*until), report::shorten(reason))
            }
            Self::Held => f.write_str("held"),
            Self::Waiting { reason } => write!(f, "waiting reason={:?}", report::shorten(reason)),
            Self::Failed { reason } => write!(f, "failed reason={:?}", report::shorten(reason)),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// A lane as its own process sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LaneStatus {
    /// The handler's name.
    pub handler: String,
    /// What the lane is doing.
    pub state: LaneState,
    /// Durable cursor: every event up to this log position has a written outcome.
    pub cursor: i64,
    /// Calls made since the start.
    pub calls: u64,
    /// Time since the last pass over the database that succeeded; `None` before the first.
    pub last_pass: Option<Duration>,
    /// Time since the lane's last sign of life: a look at the database that succeeded (a pass, or one that found the lane
    /// held or owned by another), a call that began, or the start of its thread. `None` before the relay was started.
    pub last_sign: Option<Duration>,
    /// Longest time between two looks at the database.
    pub poll: Duration,
    /// How long the running call has been running, if one is; with several threads, the longest.
    pub running_for: Option<Duration>,
    /// The handler's time limit for one call.
    pub time_limit: Duration,
    /// Failed calls since the start that are to be repeated.
    pub retries: u64,
    /// Events given up since the start: dead letters, parked ones, and those whose event was gone.
    pub given_up: u64,
    /// Times it paused since the start, its transport being down.
    pub pauses: u64,
    /// Calls of the last minutes whose outcome is written.
    pub recent_calls: RecentCounts,
    /// Events that the filter passed over since the start, by type (at most 4,096 types).
    pub skipped: HashMap<String, u64>,
}

impl LaneState {
    /// It does not deliver though it should.
    fn is_trouble(&self) -> bool {
        matches!(self, Self::Paused { .. } | Self::Waiting { .. } | Self::Failed { .. })
    }
}

impl LaneStatus {
    /// Whether the lane should look at the database and has not for three poll intervals: no look has succeeded, and no
    /// call runs that would explain it. So also for one that cannot be taken, from its start.
    pub fn is_stalled(&self) -> bool {
        let over = matches!(self.state, LaneState::Stopped | LaneState::Failed { .. });
        let silent = self.last_sign.is_some_and(|since| since > self.poll.saturating_mul(3));
        silent && self.running_for.is_none() && !over
    }

    /// Whether the running call, or [`Handler::begin`](crate::outbox::Handler::begin), is past the handler's time limit.
    pub fn is_overdue(&self) -> bool {
        self.running_for.is_some_and(|time| time > self.time_limit)
    }
}

/// The shared half of a lane's status.
#[derive(Debug)]
pub(in crate::outbox) struct Board {
    handler: String,
    time_limit: Duration,
    started: Instant,
    /// For each thread of the lane, microseconds since `started`; 0 means no call runs.
    call_since: Box<[AtomicU64]>,
    /// Microseconds since `started` when the last call began.
    last_call: AtomicU64,
    /// The poll interval, and when the lane was made ready to run.
    begun: OnceLock<(Duration, Instant)>,
    calls: AtomicU64,
    retries: AtomicU64,
    given_up: AtomicU64,
    pauses: AtomicU64,
    recent_calls: Recent,
    /// Calls that `recent_calls` holds.
    calls_counted: AtomicU64,
    cursor: AtomicI64,
    shown: Mutex<Shown>,
    changed: Condvar,
}

#[derive(Debug)]
struct Shown {
    state: LaneState,
    last_pass: Option<Instant>,
    /// The last look that found the lane held or in other hands.
    last_look: Option<Instant>,
    /// The lane found nothing to do, with everything up to here written.
    idle_at: Option<i64>,
    skipped: HashMap<String, u64>,
}

impl Board {
    pub(in crate::outbox) fn new(handler: &str, time_limit: Duration, threads: usize) -> Self {
        let shown = Shown {
            state: LaneState::Starting,
            last_pass: None,
            last_look: None,
            idle_at: None,
            skipped: HashMap::new(),
        };
        Self {
            handler: handler.to_owned(),
            time_limit,
            started: Instant::now(),
            call_since: (0..threads.max(1)).map(|_| AtomicU64::new(0)).collect(),
            last_call: AtomicU64::new(0),
            begun: OnceLock::new(),
            calls: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            pauses: AtomicU64::new(0),
            recent_calls: Recent::new(Instant::now()),
            calls_counted: AtomicU64::new(0),
            cursor: AtomicI64::new(0),
            shown: Mutex::new(shown),
            changed: Condvar::new(),
        }
    }

    pub(in crate::outbox) fn status(&self) -> LaneStatus {
        let shown = self.shown();
        let calls = self.call_since.iter().map(|since| since.load(Ordering::Relaxed));
        let oldest = calls.filter(|since| *since > 0).min();
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let last_pass = shown.last_pass.map(|at| at.elapsed());
        let begun = self.begun.get();
        let last_call = self.started + Duration::from_micros(self.last_call.load(Ordering::Relaxed));
        let signs = [begun.map(|(_, at)| *at), Some(last_call), shown.last_pass, shown.last_look];
        let last_sign = begun.and_then(|_| signs.into_iter().flatten().max());
        LaneStatus {
            handler: self.handler.clone(),
            state: shown.state.clone(),
            cursor: self.cursor.load(Ordering::Relaxed),
            calls: self.calls.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            given_up: self.given_up.load(Ordering::Relaxed),
            pauses: self.pauses.load(Ordering::Relaxed),
            recent_calls: self.recent_calls.read(Instant::now()),
            last_pass,
            last_sign: last_sign.map(|at| at.elapsed()),
            poll: begun.map_or(Duration::ZERO, |(poll, _)| *poll),
            running_for: oldest.map(|since| Duration::from_micros(elapsed.saturating_sub(since))),
            time_limit: self.time_limit,
            skipped: shown.skipped.clone(),
        }
    }

    /// Waits until the lane has nothing left to do up to `target`, or does not deliver at all (standby, held,
    /// stopped); `false` when `until` passes first.
    pub(in crate::outbox) fn wait_drained(&self, target: i64, until: Instant) -> bool {
        let mut shown = self.shown();
        loop {
            let out_of_service = matches!(
                shown.state,
                LaneState::Standby { .. } | LaneState::Held | LaneState::Failed { .. } | LaneState::Stopped
            );
            if out_of_service || shown.idle_at.is_some_and(|cursor| cursor >= target) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            shown = self.changed.wait_timeout(shown, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn begins(&self, poll: Duration) {
        let _ = self.begun.set((poll, Instant::now()));
    }

    /// A look found the lane held or in other hands.
    pub(super) fn looked(&self) {
        self.shown().last_look = Some(Instant::now());
    }

    /// The handler's time limit, as it named it once at the start.
    pub(super) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    pub(super) fn call_begins(&self, place: usize, at: Instant) {
        let micros = at.saturating_duration_since(self.started).as_micros();
        let micros = u64::try_from(micros).unwrap_or(u64::MAX).max(1);
        self.call_since[place].store(micros, Ordering::Relaxed);
        self.last_call.store(micros, Ordering::Relaxed);
    }

    pub(super) fn calls_end(&self, place: usize, calls: u64) {
        self.call_since[place].store(0, Ordering::Relaxed);
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }

    /// How many threads the lane has.
    pub(super) fn threads(&self) -> usize {
        self.call_since.len()
    }

    /// Counts what a flush has written, and the calls since the flush before: here, since a call may take no longer than
    /// looking at a clock.
    pub(super) fn written(&self, flush: &Flush) {
        let calls = self.calls.load(Ordering::Relaxed);
        let before = self.calls_counted.swap(calls, Ordering::Relaxed);
        self.recent_calls.record(calls.saturating_sub(before), Instant::now());
        for change in &flush.changes {
            let (Change::New { verdict, .. } | Change::Ran { verdict, .. }) = change else { continue };
            match verdict {
                Verdict::Retry { .. } => self.retries.fetch_add(1, Ordering::Relaxed),
                Verdict::Final { .. } | Verdict::Discarded { .. } => self.given_up.fetch_add(1, Ordering::Relaxed),
                _ => continue,
            };
        }
    }

    /// An event was given up while the lane was taken.
    pub(super) fn condemned(&self) {
        self.given_up.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_cursor(&self, cursor: i64) {
        self.cursor.store(cursor, Ordering::Relaxed);
    }

    /// Shows a state; logs it when it is another one.
    pub(in crate::outbox) fn show(&self, state: LaneState) {
        self.show_with(state, format_args!(""));
    }

    /// The same with something more to say in the log.
    pub(super) fn show_with(&self, state: LaneState, more: fmt::Arguments<'_>) {
        let mut shown = self.shown();
        if shown.state == state {
            return;
        }
        if matches!(state, LaneState::Paused { .. }) {
            self.pauses.fetch_add(1, Ordering::Relaxed);
        }
        let ends_trouble = state == LaneState::Running && shown.state.is_trouble();
        let level = if state.is_trouble() || ends_trouble { log::Level::Warn } else { log::Level::Info };
        shown.state = state.clone();
        self.changed.notify_all();
        drop(shown);
        log::log!(level, "lane handler={} state={state}{more}", self.handler);
    }

    pub(super) fn passed(&self, skipped: HashMap<String, u64>) {
        let mut shown = self.shown();
        shown.last_pass = Some(Instant::now());
        shown.idle_at = None;
        for (event_type, count) in skipped {
            if shown.skipped.len() < 4_096 || shown.skipped.contains_key(&event_type) {
                *shown.skipped.entry(event_type).or_default() += count;
            }
        }
    }

    pub(super) fn idle(&self, cursor: i64) {
        self.shown().idle_at = Some(cursor);
        self.changed.notify_all();
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_without_a_look_for_three_intervals_is_stalled_unless_a_call_runs_or_it_has_ended() {
        let board = Board::new("h", Duration::from_secs(30), 1);
        assert_eq!(board.status().last_sign, None, "nobody has started it");
        assert!(!board.status().is_stalled());
        board.begins(Duration::from_millis(200));
        let mut status = board.status();
        let resting = [LaneState::Held, LaneState::Standby { owner: "another".into() }];
        let waiting = LaneState::Waiting { reason: "disk I/O error".into() };
        let paused = LaneState::Paused { until: 1, reason: "down".into() };
        for state in resting.into_iter().chain([LaneState::Starting, LaneState::Running, waiting, paused]) {
            status.state = state;
            status.last_sign = Some(Duration::from_millis(600));
            assert!(!status.is_stalled(), "{}", status.state);
            status.last_sign = Some(Duration::from_millis(601));
            assert!(status.is_stalled(), "{}", status.state);
        }
        status.running_for = Some(Duration::from_secs(9));
        assert!(!status.is_stalled() && !status.is_overdue(), "a call that is not late explains it");
        status.running_for = Some(Duration::from_secs(31));
        assert!(status.is_overdue());
        status.running_for = None;
        for over in [LaneState::Stopped, LaneState::Failed { reason: "its thread panicked".into() }] {
            status.state = over;
            assert!(!status.is_stalled(), "{}", status.state);
        }
    }
}
