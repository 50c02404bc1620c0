//! Starting and stopping one service: its hooks on threads of their own, their deadlines, and what becomes of them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::report::{Fault, HookKind};
use super::shared::{Call, Shared, Slot, State, deadline_after, millis};
use super::spawner::{panic_text, spawn_thread};
use super::{BoxError, Interrupted, Service, ServiceState, Spawner, StartContext};

/// How long past its deadline a stop is waited for, so that a hook that itself notices the deadline can still say what
/// is left.
const STOP_GRACE: Duration = Duration::from_millis(250);

/// What was taken from a call that does not run: its result, if nobody took it before.
type Taken = Option<Result<(), BoxError>>;

/// One registered service, as the thread that starts and stops it sees it.
pub(super) struct Entry {
    pub(super) service: Arc<dyn Service>,
    pub(super) name: Arc<str>,
    pub(super) index: usize,
    pub(super) start_timeout: Duration,
    pub(super) stop_timeout: Duration,
    pub(super) stop_after_failed_start: bool,
}

impl Entry {
    /// Starts the service. Returns when that succeeded, failed, overran its deadline, or became pointless.
    pub(super) fn start(&self, shared: &Arc<Shared>) {
        let deadline = deadline_after(Instant::now(), self.start_timeout);
        shared.update(|state| {
            let slot = &mut state.slots[self.index];
            slot.start = Call::Running;
            slot.called = Instant::now();
            state.transition(self.index, ServiceState::Starting);
        });
        if let Err(error) = self.call_start(shared, deadline) {
            let error: BoxError = Box::new(Fault::NoThread(error.to_string()));
            return self.settle_start(shared, Err(error));
        }
        let answer = shared.wait_for(Some(deadline), |state| {
            let result = state.slots[self.index].start.take();
            (result.is_some() || state.cause.is_some()).then_some(result)
        });
        match answer {
            Some(Some(result)) => self.settle_start(shared, result),
            // A stop or another service's failure came first: `stop` waits for the hook.
            Some(None) => {}
            None => self.start_overran(shared, self.start_timeout),
        }
    }

    /// Stops the service if it needs it, and sees to it that no thread of it is left; at the latest a moment after
    /// `deadline`.
    pub(super) fn stop(&self, shared: &Arc<Shared>, deadline: Instant) {
        if !self.await_start(shared, deadline) {
            return;
        }
        let (needs_stop, threads) = shared.update(|state| {
            let slot = &mut state.slots[self.index];
            (std::mem::take(&mut slot.needs_stop), slot.threads.len())
        });
        if needs_stop && !self.run_stop(shared, deadline) {
            return;
        }
        if needs_stop || threads > 0 {
            self.await_threads(shared, deadline);
            shared.update(|state| {
                let failed = state.slots[self.index].reason.is_some();
                let to = if failed { ServiceState::Failed } else { ServiceState::Stopped };
                state.transition(self.index, to);
            });
        }
        let hooks = shared.update(|state| std::mem::take(&mut state.slots[self.index].hooks));
        for thread in hooks {
            // It has handed its result over and has nothing left to do but end; panics of hooks are caught in it.
            let _ = thread.join();
        }
    }

    fn call_start(&self, shared: &Arc<Shared>, deadline: Instant) -> io::Result<()> {
        let spawner = Spawner::managed(self.name.clone(), shared.clone(), self.index);
        let (service, link, shared) = (self.service.clone(), shared.clone(), shared.clone());
        let (name, index, stop_timeout) = (self.name.clone(), self.index, self.stop_timeout);
        self.spawn_hook("start", &link, move || {
            let result = caught(|| service.start(&StartContext::new(spawner, deadline)));
            let Err(late) = shared.update(|state| state.slots[index].start.finish(result)) else { return };
            if late.is_ok() {
                log::warn!("service={name} phase=started-late and is stopped at once");
                shared.update(|state| state.slots[index].threads_may_end = true);
                log_late(&name, &caught(|| service.stop(deadline_after(Instant::now(), stop_timeout))));
            } else {
                log_late(&name, &late);
            }
            shared.update(|state| state.ended_late(index));
        })
    }

    /// Records what the start came to.
    fn settle_start(&self, shared: &Shared, result: Result<(), BoxError>) {
        let error = result.err().map(|error| (error.is::<Interrupted>(), error.to_string(), error));
        shared.update(|state| {
            let interrupted = state.cause.is_some();
            let slot = &mut state.slots[self.index];
            slot.start_ms = Some(millis(slot.called.elapsed()));
            slot.needs_stop = error.is_none() || self.stop_after_failed_start;
            slot.threads_may_end = error.is_some();
            match (error, slot.ended_early.take()) {
                (None, None) if slot.state == ServiceState::Starting => {
                    state.transition(self.index, ServiceState::Running);
                }
                (None, None) => {}
                (None, Some(fault)) => state.fail_with(self.index, HookKind::Start, fault),
                (Some((true, _, _)), _) if interrupted && slot.state == ServiceState::Starting => {
                    state.transition(self.index, ServiceState::Stopped);
                }
                (Some((_, text, error)), _) => state.fail(self.index, HookKind::Start, error.into(), text),
            }
        });
    }

    /// If the start still runs, waits for it. Whether the service can be stopped now; else it is left behind, and its
    /// start thread stops it should it ever return.
    fn await_start(&self, shared: &Shared, deadline: Instant) -> bool {
        let Some(settled) = self.await_call(shared, deadline, |slot| &mut slot.start) else {
            let waited = shared.update(|state| state.slots[self.index].called.elapsed());
            self.start_overran(shared, waited);
            return false;
        };
        if let Some(result) = settled {
            self.settle_start(shared, result);
        }
        true
    }

    /// Waits while the call runs, and takes its result if nobody has. `None` when the deadline passed before: nobody
    /// waits for the call any more and the service counts as left behind.
    fn await_call(&self, shared: &Shared, deadline: Instant, call: fn(&mut Slot) -> &mut Call) -> Option<Taken> {
        let settled = |state: &mut State| {
            let call = call(&mut state.slots[self.index]);
            (!matches!(call, Call::Running)).then(|| call.take())
        };
        shared.wait_for(Some(deadline), settled).or_else(|| {
            shared.update(|state| {
                let settled = settled(state);
                if settled.is_none() {
                    let slot = &mut state.slots[self.index];
                    *call(slot) = Call::Abandoned;
                    slot.left_behind = true;
                }
                settled
            })
        })
    }

    fn start_overran(&self, shared: &Shared, limit: Duration) {
        shared.update(|state| {
            let early = state.slots[self.index].ended_early.take();
            let fault = early.unwrap_or(Fault::HookOverran { limit_ms: millis(limit) });
            state.fail_with(self.index, HookKind::Start, fault);
        });
    }

    /// Runs the stop hook; whether it returned in time.
    fn run_stop(&self, shared: &Arc<Shared>, deadline: Instant) -> bool {
        let index = self.index;
        let called = Instant::now();
        shared.update(|state| {
            let slot = &mut state.slots[index];
            slot.threads_may_end = true;
            slot.stop = Call::Running;
            slot.called = called;
            state.transition(index, ServiceState::Stopping);
        });
        if let Err(error) = self.call_stop(shared, deadline) {
            // Without a thread for it the stop still has to happen; its own regard for the deadline must do.
            log::warn!("service={} phase=stopping no thread for the stop, called in place: {error}", self.name);
            let result = caught(|| self.service.stop(deadline));
            shared.update(|state| state.slots[index].stop = Call::Returned(result));
        }
        let Some(result) = self.await_call(shared, deadline_after(deadline, STOP_GRACE), |slot| &mut slot.stop) else {
            let limit_ms = millis(deadline.saturating_duration_since(called));
            shared.update(|state| {
                state.fail_with(index, HookKind::Stop, Fault::HookOverran { limit_ms });
                state.transition(index, ServiceState::Failed);
            });
            return false;
        };
        let error = result.and_then(Result::err).map(|error| (error.to_string(), error));
        shared.update(|state| {
            state.slots[index].stop_ms = Some(millis(called.elapsed()));
            if let Some((text, error)) = error {
                state.fail(index, HookKind::Stop, error.into(), text);
            }
        });
        true
    }

    fn call_stop(&self, shared: &Arc<Shared>, deadline: Instant) -> io::Result<()> {
        let (service, link, shared) = (self.service.clone(), shared.clone(), shared.clone());
        let (name, index) = (self.name.clone(), self.index);
        self.spawn_hook("stop", &link, move || {
            let result = caught(|| service.stop(deadline));
            if let Err(late) = shared.update(|state| state.slots[index].stop.finish(result)) {
                log_late(&name, &late);
                shared.update(|state| state.ended_late(index));
            }
        })
    }

    /// Spawns the thread of one hook call.
    fn spawn_hook(&self, hook: &str, shared: &Shared, call: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = spawn_thread(format!("{hook}:{}", self.name), call)?;
        shared.update(|state| state.slots[self.index].hooks.push(thread));
        Ok(())
    }

    fn await_threads(&self, shared: &Shared, deadline: Instant) {
        let index = self.index;
        let until = Some(deadline_after(deadline, STOP_GRACE));
        let gone = shared.wait_for(until, |state| state.slots[index].threads.is_empty().then_some(()));
        if gone.is_none() {
            shared.update(|state| {
                let slot = &mut state.slots[index];
                slot.left_behind = true;
                let threads = slot.threads.values().cloned().collect();
                state.fail_with(index, HookKind::Stop, Fault::ThreadsLeft(threads));
            });
        }
    }
}

fn caught(hook: impl FnOnce() -> Result<(), BoxError>) -> Result<(), BoxError> {
    catch_unwind(AssertUnwindSafe(hook))
        .unwrap_or_else(|payload| Err(Box::new(Fault::HookPanicked(panic_text(&*payload)))))
}

fn log_late(service: &str, result: &Result<(), BoxError>) {
    if let Err(error) = result {
        log::error!("service={service} a hook that was left behind has ended: {error}");
    }
}
