//! What a service is, and what it is given to start with.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Spawner;
use super::shared::deadline_after;

/// Any error a service may return from a hook.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A named part of the program that is started and stopped in order.
///
/// Contract: `start` returns once the service is ready for work; `stop` returns once no thread of the service is left
/// or `deadline` has passed (then with an error that names what is left). `stop` before `start`, and a second `stop`,
/// do nothing and return `Ok`. A `start` that errs leaves nothing running.
///
/// A manager calls each hook at most once, on a thread made for the call. A hook that wants the whole program stopped
/// calls [`Handle::request_stop`](super::Handle::request_stop), which does not wait.
pub trait Service: Send + Sync + 'static {
    /// The service's name, unique within a manager.
    fn name(&self) -> &str;
    /// Starts the service; threads are spawned through `ctx.spawner()`.
    ///
    /// # Errors
    /// Why the service cannot run. [`Interrupted`] (see [`StartContext::check_stop`]) says that it gave up because the
    /// program is stopping anyway.
    fn start(&self, ctx: &StartContext) -> Result<(), BoxError>;
    /// Stops the service, at the latest by `deadline`.
    ///
    /// # Errors
    /// What could not be stopped or brought to an orderly end.
    fn stop(&self, deadline: Instant) -> Result<(), BoxError>;
}

impl<S: Service + ?Sized> Service for Arc<S> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        (**self).start(ctx)
    }
    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        (**self).stop(deadline)
    }
}

/// What a service is given to start with.
#[derive(Debug)]
pub struct StartContext {
    spawner: Spawner,
    deadline: Instant,
}

impl StartContext {
    pub(super) fn new(spawner: Spawner, deadline: Instant) -> Self {
        Self { spawner, deadline }
    }

    /// A context without a manager, for a service that is started by hand. No stop is ever requested through it.
    pub fn standalone(service: &str, timeout: Duration) -> Self {
        Self::new(Spawner::standalone(service), deadline_after(Instant::now(), timeout))
    }

    /// Spawns the service's threads so that their end is noticed.
    pub fn spawner(&self) -> &Spawner {
        &self.spawner
    }

    /// When the start must have returned.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the start has become pointless: a stop was requested meanwhile, another service failed, or this start is
    /// past its deadline.
    pub fn stop_requested(&self) -> bool {
        self.spawner.link().is_some_and(|link| link.shared.is_stopping())
    }

    /// An error once [`stop_requested`](Self::stop_requested), to leave a long start with `?`. The service then ends as
    /// Stopped, not as Failed.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check_stop(&self) -> Result<(), Interrupted> {
        if self.stop_requested() { Err(Interrupted) } else { Ok(()) }
    }

    /// Waits for `pause`, but no longer than until the start has become pointless or its deadline has passed.
    ///
    /// # Errors
    /// [`Interrupted`] when it ended early because of [`stop_requested`](Self::stop_requested).
    pub fn pause(&self, pause: Duration) -> Result<(), Interrupted> {
        let until = deadline_after(Instant::now(), pause).min(self.deadline);
        match self.spawner.link() {
            Some(link) => match link.shared.wait_for(Some(until), |state| state.cause.as_ref().map(|_| ())) {
                Some(()) => Err(Interrupted),
                None => Ok(()),
            },
            None => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                Ok(())
            }
        }
    }
}

/// A start gave up because the program is stopping anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the start was given up because a stop was requested")
    }
}

impl std::error::Error for Interrupted {}
