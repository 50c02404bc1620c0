//! The manager from outside: asking for a stop, looking at states, waiting for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shared::{Shared, deadline_after};

/// The exit code after a second signal (128 + SIGINT).
pub const SIGNAL_EXIT_CODE: u8 = 130;

/// So soon after the first signal, another is the same one.
pub const SIGNAL_ECHO: Duration = Duration::from_millis(100);

/// Asks for a stop, and looks at the states, from any thread. Cheap to clone; does not keep services alive.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
}

impl Handle {
    /// Asks for an orderly stop and returns at once. The first cause, or failure, is the one that is kept and logged.
    pub fn request_stop(&self, cause: impl Into<String>) {
        self.shared.request_stop(cause.into());
    }

    /// What a signal handler calls: the first signal asks for a stop, a further one tells the caller to exit.
    ///
    /// What comes within [`SIGNAL_ECHO`] of the first counts as that one: whoever signals a process and its group, as
    /// `timeout` and some terminals do, signals it twice and means it once.
    pub fn on_signal(&self) -> SignalReply {
        self.on_signal_at(Instant::now())
    }

    /// [`on_signal`](Self::on_signal) for a signal that came at `now`.
    pub fn on_signal_at(&self, now: Instant) -> SignalReply {
        let Some(first) = self.shared.first_signal(now) else {
            self.request_stop("signal");
            return SignalReply::Stopping;
        };
        if now.saturating_duration_since(first) < SIGNAL_ECHO {
            return SignalReply::Stopping;
        }
        log::warn!("phase=shutdown a second signal: exit at once with {SIGNAL_EXIT_CODE}");
        SignalReply::Exit(SIGNAL_EXIT_CODE)
    }

    /// [`on_signal`](Self::on_signal) as a closure for `ctrlc::set_handler` and the like; `exit` gets the exit code
    /// and is usually `|code| std::process::exit(code.into())`.
    pub fn signal_hook(&self, exit: impl Fn(u8) + Send + Sync + 'static) -> impl Fn() + Send + Sync + 'static {
        let handle = self.clone();
        move || {
            if let SignalReply::Exit(code) = handle.on_signal() {
                exit(code);
            }
        }
    }

    /// Whether everything runs: all services are Running, nothing failed and no stop was requested.
    pub fn is_ready(&self) -> bool {
        self.status().ready
    }

    /// The state of every service at this moment.
    pub fn status(&self) -> Status {
        self.shared.snapshot().0
    }

    /// Waits until `holds` says yes to the status, asked at each change; `None` when `timeout` passed before.
    pub fn wait_until(&self, timeout: Duration, mut holds: impl FnMut(&Status) -> bool) -> Option<Status> {
        let deadline = deadline_after(Instant::now(), timeout);
        loop {
            // The predicate is foreign code: it is asked without the lock.
            let (status, revision) = self.shared.snapshot();
            if holds(&status) {
                return Some(status);
            }
            self.shared.wait_for(Some(deadline), |state| (state.revision != revision).then_some(()))?;
        }
    }
}

/// What to do about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a second signal wants the caller to exit"]
pub enum SignalReply {
    /// An orderly stop is under way.
    Stopping,
    /// The user insists: exit now with this code.
    Exit(u8),
}

/// Where a service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServiceState {
    /// Registered, not started.
    New,
    /// Its start has been called.
    Starting,
    /// Its start succeeded.
    Running,
    /// Its stop has been called.
    Stopping,
    /// Stopped in good order.
    Stopped,
    /// Its start, a thread of it, or its stop failed. A service that fails while it runs is Stopping in between, while
    /// it is cleaned up.
    Failed,
}

impl ServiceState {
    /// The state's name in lower case, as in log lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// The program's state at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// Whether everything runs; see [`Handle::is_ready`].
    pub ready: bool,
    /// What began the shutdown, if one has begun.
    pub stop_cause: Option<String>,
    /// Whether the stop has ended.
    pub ended: bool,
    /// Every service in order of registration.
    pub services: Vec<ServiceStatus>,
}

impl Status {
    /// The service of this name.
    pub fn service(&self, name: &str) -> Option<&ServiceStatus> {
        self.services.iter().find(|service| service.name == name)
    }
}

/// One service's state at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServiceStatus {
    /// The service's name.
    pub name: String,
    /// Where it stands.
    pub state: ServiceState,
    /// Since when.
    pub since: Instant,
    /// How long the start took, in milliseconds, once it has returned.
    pub start_ms: Option<u64>,
    /// How long the stop took, in milliseconds, once it has returned.
    pub stop_ms: Option<u64>,
    /// Why it failed: the first reason.
    pub reason: Option<String>,
    /// It did not stop in time and something of it still runs.
    pub left_behind: bool,
}
