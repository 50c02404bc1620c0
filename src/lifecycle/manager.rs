//! The manager: registration, start, stop, and the run from one to the other.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::drive::Entry;
use super::report::{Cause, HookKind, Outcome, RegisterError, StartError};
use super::shared::{Phase, Shared, Slot, deadline_after, millis};
use super::{Handle, Service};

/// Longest service name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The manager's time limits.
#[derive(Debug, Clone)]
pub struct ManagerOptions {
    /// How long a service's start may take (default 30 s).
    pub start_timeout: Duration,
    /// How long a service's stop may take (default 10 s).
    pub stop_timeout: Duration,
    /// How long all stops together may take (default 30 s). Half of it is shared out evenly, so that services that
    /// overrun leave something to those stopped after them; each may take 250 ms more to say what is left.
    pub stop_budget: Duration,
    /// The same for the stops after a failed or interrupted start (default 30 s), counted from there.
    pub rollback_budget: Duration,
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            start_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(10),
            stop_budget: Duration::from_secs(30),
            rollback_budget: Duration::from_secs(30),
        }
    }
}

/// What is different for one service.
#[derive(Debug, Clone, Default)]
pub struct ServiceOptions {
    /// Instead of [`ManagerOptions::start_timeout`].
    pub start_timeout: Option<Duration>,
    /// Instead of [`ManagerOptions::stop_timeout`].
    pub stop_timeout: Option<Duration>,
    /// Calls the stop also when the start returned an error or panicked (default: no, a failing start cleans up after
    /// itself).
    pub stop_after_failed_start: bool,
}

/// Starts services in order and stops them in reverse, once: a manager that has ended stays so.
///
/// Dropping a running manager stops its services.
pub struct Manager {
    shared: Arc<Shared>,
    entries: Vec<Entry>,
    options: ManagerOptions,
}

impl Manager {
    /// A manager without services.
    pub fn new(options: ManagerOptions) -> Self {
        Self { shared: Arc::new(Shared::new()), entries: Vec::new(), options }
    }

    /// Adds a service, to be started after and stopped before all added so far.
    ///
    /// # Errors
    /// [`RegisterError`]: the name is taken or unusable, or the manager was started or stopped already.
    pub fn register(&mut self, service: impl Service) -> Result<(), RegisterError> {
        self.register_with(service, ServiceOptions::default())
    }

    /// [`register`](Self::register) with limits of the service's own.
    ///
    /// # Errors
    /// As there.
    pub fn register_with(&mut self, service: impl Service, options: ServiceOptions) -> Result<(), RegisterError> {
        let name: Arc<str> = service.name().into();
        let unusable = |c: char| c.is_whitespace() || c.is_control() || c == '=' || c == '"';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(unusable) {
            return Err(RegisterError::BadName(name.to_string()));
        }
        if self.entries.iter().any(|entry| entry.name == name) {
            return Err(RegisterError::DuplicateName(name.to_string()));
        }
        let entry = Entry {
            service: Arc::new(service),
            name: name.clone(),
            index: self.entries.len(),
            start_timeout: options.start_timeout.unwrap_or(self.options.start_timeout),
            stop_timeout: options.stop_timeout.unwrap_or(self.options.stop_timeout),
            stop_after_failed_start: options.stop_after_failed_start,
        };
        self.shared.update(|state| match state.phase {
            Phase::New => {
                state.slots.push(Slot::new(&name));
                Ok(())
            }
            _ => Err(RegisterError::TooLate),
        })?;
        self.entries.push(entry);
        Ok(())
    }

    /// A handle for signal handlers, health answers and the services themselves.
    pub fn handle(&self) -> Handle {
        Handle { shared: self.shared.clone() }
    }

    /// Starts everything, waits for a stop request or a failure, stops everything in reverse.
    pub fn run(&self) -> Outcome {
        match self.start() {
            Err(StartError::Failed { outcome, .. } | StartError::Stopped(outcome)) => *outcome,
            Ok(()) | Err(StartError::Refused { .. }) => {
                self.wait();
                self.shut_down()
            }
        }
    }

    /// Starts the services in order; returns when all run, or when what had been started is stopped again.
    ///
    /// # Errors
    /// [`StartError`]: a service failed, a stop was requested, or the manager was started before.
    pub fn start(&self) -> Result<(), StartError> {
        let begun = Instant::now();
        let claimed = self.shared.update(|state| {
            let new = state.phase == Phase::New;
            if new {
                state.phase = Phase::Starting;
            }
            new
        });
        if !claimed {
            let outcome = self.shared.wait_for(None, |state| Some(state.outcome.clone())).flatten();
            return Err(StartError::Refused { outcome: outcome.map(Box::new) });
        }
        for entry in &self.entries {
            if self.shared.is_stopping() {
                break;
            }
            entry.start(&self.shared);
        }
        let running = self.shared.update(|state| {
            let running = state.cause.is_none();
            state.phase = if running { Phase::Running } else { Phase::Stopping };
            running
        });
        if running {
            log::info!("phase=ready ms={}", millis(begun.elapsed()));
            return Ok(());
        }
        let outcome = Box::new(self.stop_services(self.options.rollback_budget));
        Err(match &outcome.cause {
            Cause::Failed(failure) => StartError::Failed { failure: failure.clone(), outcome },
            Cause::Requested(_) => StartError::Stopped(outcome),
        })
    }

    /// Waits for a stop request or a failure, and returns which. Nothing is stopped yet.
    pub fn wait(&self) -> Cause {
        let cause = self.shared.wait_for(None, |state| state.cause.clone());
        cause.expect("a wait without a deadline ends only with an answer")
    }

    /// Stops the services in reverse and returns how that ended. From any thread but a service's own, any number of
    /// times: all get the same answer. Before a start it only makes starting impossible.
    pub fn stop(&self, cause: impl Into<String>) -> Outcome {
        self.shared.request_stop(cause.into());
        self.shut_down()
    }

    fn shut_down(&self) -> Outcome {
        // A start under way sees the request and stops what it has started; so only its end is awaited here.
        let ended = self.shared.wait_for(None, |state| match state.phase {
            Phase::New | Phase::Running => {
                state.phase = Phase::Stopping;
                Some(None)
            }
            Phase::Starting | Phase::Stopping => None,
            Phase::Ended => Some(state.outcome.clone()),
        });
        ended.flatten().unwrap_or_else(|| self.stop_services(self.options.stop_budget))
    }

    /// Stops the services; only for the thread that moved the phase to Stopping.
    fn stop_services(&self, budget: Duration) -> Outcome {
        let begun = Instant::now();
        let cause = self.wait();
        match &cause {
            Cause::Requested(text) => log::info!("phase=shutdown cause={text:?}"),
            // The reason stands in the service's own line already.
            Cause::Failed(failure) if failure.during == HookKind::Start => {
                log::error!("phase=shutdown cause=\"service {} failed to start\"", failure.service);
            }
            Cause::Failed(failure) => log::error!("phase=shutdown cause={:?}", failure.to_string()),
        }
        let until = deadline_after(begun, budget);
        let share = budget / (2 * u32::try_from(self.entries.len()).unwrap_or(u32::MAX / 2).max(1));
        for (after, entry) in self.entries.iter().enumerate().rev() {
            let now = Instant::now();
            let reserved = share.saturating_mul(u32::try_from(after).unwrap_or(u32::MAX));
            let latest = until.checked_sub(reserved).unwrap_or(now).max(now);
            entry.stop(&self.shared, deadline_after(now, entry.stop_timeout).min(latest));
        }
        let outcome = self.end(cause);
        let (exit, left) = (outcome.exit_code(), outcome.left_behind.join(","));
        log::info!("phase=ended exit={exit} ms={} left_behind={left:?}", millis(begun.elapsed()));
        outcome
    }

    fn end(&self, cause: Cause) -> Outcome {
        let services = self.handle().status().services;
        let left_behind = services.iter().filter(|service| service.left_behind).map(|s| s.name.clone()).collect();
        self.shared.update(|state| {
            let outcome = Outcome { cause, failure: state.failure.clone(), services, left_behind };
            state.phase = Phase::Ended;
            state.outcome = Some(outcome.clone());
            outcome
        })
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let running = self.shared.update(|state| state.phase == Phase::Running);
        if running {
            self.stop("the manager was dropped");
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.entries.iter().map(|entry| &entry.name).collect();
        f.debug_struct("Manager").field("services", &names).field("options", &self.options).finish()
    }
}
