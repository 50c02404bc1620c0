//! The one piece of shared state, its transitions, and the one way to wait for them.
//!
//! **Invariant:** no code of a service, a predicate or a logger runs under the lock. Log lines are collected by the
//! transitions and written after it is released.

use std::collections::BTreeMap;
use std::error::Error;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::report::{Cause, Failure, Fault, HookKind, Outcome};
use super::{BoxError, ServiceState, ServiceStatus, Status};

/// The state that the manager, its handles and its services' threads share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Set once: what began the shutdown. From then on nothing further is started.
    pub(super) cause: Option<Cause>,
    /// Set once: the first thing that went wrong.
    pub(super) failure: Option<Failure>,
    pub(super) slots: Vec<Slot>,
    /// Set together with [`Phase::Ended`].
    pub(super) outcome: Option<Outcome>,
    /// Grows with every change.
    pub(super) revision: u64,
    first_signal: Option<Instant>,
    threads_begun: u64,
    lines: Vec<Line>,
}

/// Who may act: the thread that moved the phase to Starting or Stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    New,
    Starting,
    Running,
    Stopping,
    Ended,
}

/// One service.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) name: Arc<str>,
    pub(super) state: ServiceState,
    since: Instant,
    /// When the hook that runs, or ran last, was called.
    pub(super) called: Instant,
    pub(super) start_ms: Option<u64>,
    pub(super) stop_ms: Option<u64>,
    /// The first reason; a service that has one ends as Failed.
    pub(super) reason: Option<String>,
    pub(super) left_behind: bool,
    pub(super) start: Call,
    pub(super) stop: Call,
    pub(super) needs_stop: bool,
    /// From when on the service's threads may return.
    pub(super) threads_may_end: bool,
    /// The first thread that returned during the start; judged when the start has returned, since a failing start ends
    /// its own threads and its error is the one that counts.
    pub(super) ended_early: Option<Fault>,
    /// The threads spawned through the service's [`Spawner`](super::Spawner) that have not ended.
    pub(super) threads: BTreeMap<u64, String>,
    /// The threads its hooks were called on; joined when the service has stopped.
    pub(super) hooks: Vec<JoinHandle<()>>,
}

/// A hook's call.
#[derive(Debug)]
pub(super) enum Call {
    Idle,
    Running,
    Returned(Result<(), BoxError>),
    /// Its result was taken by the thread that drives the services.
    Taken,
    /// Nobody waits for it any more.
    Abandoned,
}

/// A log line to be written once the lock is released.
#[derive(Debug)]
struct Line {
    service: Arc<str>,
    phase: &'static str,
    ms: u64,
    reason: Option<String>,
}

impl Shared {
    pub(super) fn new() -> Self {
        let state = State {
            phase: Phase::New,
            cause: None,
            failure: None,
            slots: Vec::new(),
            outcome: None,
            revision: 0,
            first_signal: None,
            threads_begun: 0,
            lines: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Changes the state, wakes everybody who waits for it, and writes the log lines of the change.
    pub(super) fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let (result, lines) = {
            let mut state = self.lock();
            let result = change(&mut state);
            state.revision += 1;
            (result, mem::take(&mut state.lines))
        };
        self.changed.notify_all();
        lines.iter().for_each(Line::write);
        result
    }

    /// Waits until `probe` gives something; `None` when the deadline passed before.
    pub(super) fn wait_for<R>(
        &self,
        deadline: Option<Instant>,
        mut probe: impl FnMut(&mut State) -> Option<R>,
    ) -> Option<R> {
        let mut state = self.lock();
        loop {
            if let Some(found) = probe(&mut state) {
                return Some(found);
            }
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// The status and the revision it belongs to.
    pub(super) fn snapshot(&self) -> (Status, u64) {
        let state = self.lock();
        let cause = state.cause.clone();
        let running = state.slots.iter().all(|slot| slot.state == ServiceState::Running);
        let mut status = Status {
            ready: state.phase == Phase::Running && cause.is_none() && running,
            stop_cause: None,
            ended: state.phase == Phase::Ended,
            services: state.slots.iter().map(Slot::status).collect(),
        };
        let revision = state.revision;
        drop(state);
        // A service's error writes itself here, so not under the lock.
        status.stop_cause = cause.map(|cause| cause.to_string());
        (status, revision)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.lock().cause.is_some()
    }

    pub(super) fn request_stop(&self, cause: String) {
        self.update(|state| {
            state.cause.get_or_insert(Cause::Requested(cause));
        });
    }

    /// When the first signal came; `None` if it is the one that comes `now`.
    pub(super) fn first_signal(&self, now: Instant) -> Option<Instant> {
        self.update(|state| state.first_signal.replace(state.first_signal.unwrap_or(now)))
    }

    pub(super) fn thread_begins(&self, index: usize, thread: &str) -> u64 {
        self.update(|state| {
            state.threads_begun += 1;
            state.slots[index].threads.insert(state.threads_begun, thread.to_owned());
            state.threads_begun
        })
    }

    pub(super) fn thread_not_begun(&self, index: usize, ticket: u64) {
        self.update(|state| state.slots[index].threads.remove(&ticket));
    }

    pub(super) fn thread_ended(&self, index: usize, ticket: u64, fault: Fault) {
        self.update(|state| {
            let slot = &mut state.slots[index];
            slot.threads.remove(&ticket);
            let panicked = matches!(fault, Fault::ThreadPanicked { .. });
            if !panicked && slot.threads_may_end {
                return;
            }
            if !panicked && slot.state == ServiceState::Starting {
                slot.ended_early.get_or_insert(fault);
                return;
            }
            let during = slot.part_of_life();
            state.fail_with(index, during, fault);
        });
    }

    pub(super) fn reported(&self, index: usize, reason: &str) {
        self.update(|state| {
            let during = state.slots[index].part_of_life();
            state.fail_with(index, during, Fault::Reported(reason.to_owned()));
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock, so a poisoned one is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Moves a service to another state, for the log with the milliseconds it spent in the one it leaves.
    pub(super) fn transition(&mut self, index: usize, to: ServiceState) {
        let slot = &mut self.slots[index];
        if slot.state == to {
            return;
        }
        let now = Instant::now();
        let reason = if to == ServiceState::Failed { slot.reason.clone() } else { None };
        let ms = millis(now.saturating_duration_since(slot.since));
        self.lines.push(Line { service: slot.name.clone(), phase: to.as_str(), ms, reason });
        slot.state = to;
        slot.since = now;
    }

    /// Makes a service Failed; the first reason stays. One that is being stopped becomes Failed when that has ended.
    pub(super) fn fail(&mut self, index: usize, during: HookKind, error: Arc<dyn Error + Send + Sync>, text: String) {
        let slot = &mut self.slots[index];
        let failure = Failure { service: slot.name.to_string(), during, error };
        slot.reason.get_or_insert(text);
        self.failure.get_or_insert(failure.clone());
        self.cause.get_or_insert(Cause::Failed(failure));
        if self.slots[index].state != ServiceState::Stopping {
            self.transition(index, ServiceState::Failed);
        }
    }

    /// [`fail`](Self::fail) for a reason of the manager's own.
    pub(super) fn fail_with(&mut self, index: usize, during: HookKind, fault: Fault) {
        let text = fault.to_string();
        self.fail(index, during, Arc::new(fault), text);
    }

    /// Something that was left behind has ended after all.
    pub(super) fn ended_late(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let ms = millis(slot.called.elapsed());
        slot.left_behind = !slot.threads.is_empty();
        self.lines.push(Line { service: slot.name.clone(), phase: "stopped-late", ms, reason: None });
    }
}

impl Slot {
    pub(super) fn new(name: &str) -> Self {
        let now = Instant::now();
        Self {
            name: name.into(),
            state: ServiceState::New,
            since: now,
            called: now,
            start_ms: None,
            stop_ms: None,
            reason: None,
            left_behind: false,
            start: Call::Idle,
            stop: Call::Idle,
            needs_stop: false,
            threads_may_end: false,
            ended_early: None,
            threads: BTreeMap::new(),
            hooks: Vec::new(),
        }
    }

    fn status(&self) -> ServiceStatus {
        ServiceStatus {
            name: self.name.to_string(),
            state: self.state,
            since: self.since,
            start_ms: self.start_ms,
            stop_ms: self.stop_ms,
            reason: self.reason.clone(),
            left_behind: self.left_behind,
        }
    }

    fn part_of_life(&self) -> HookKind {
        match self.state {
            ServiceState::New | ServiceState::Starting => HookKind::Start,
            ServiceState::Running | ServiceState::Failed => HookKind::Run,
            ServiceState::Stopping | ServiceState::Stopped => HookKind::Stop,
        }
    }
}

impl Call {
    /// The result, if it is there.
    pub(super) fn take(&mut self) -> Option<Result<(), BoxError>> {
        match mem::replace(self, Call::Taken) {
            Call::Returned(result) => Some(result),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Hands the result over; gives it back when nobody waits.
    pub(super) fn finish(&mut self, result: Result<(), BoxError>) -> Result<(), Result<(), BoxError>> {
        if matches!(self, Call::Abandoned) {
            return Err(result);
        }
        *self = Call::Returned(result);
        Ok(())
    }
}

impl Line {
    fn write(&self) {
        let Self { service, phase, ms, reason } = self;
        match reason {
            Some(reason) => log::error!("service={service} phase={phase} ms={ms} reason={reason:?}"),
            None => log::info!("service={service} phase={phase} ms={ms}"),
        }
    }
}

/// Whole milliseconds.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `from + limit`; a limit too large for the clock means ten years.
pub(super) fn deadline_after(from: Instant, limit: Duration) -> Instant {
    const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
    from.checked_add(limit).unwrap_or_else(|| from + TEN_YEARS)
}
