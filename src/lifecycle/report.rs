//! What came of it: failures, causes, outcomes, and the errors of the manager's calls.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::{ServiceState, ServiceStatus};

/// How a run of the manager ended.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Outcome {
    /// What began the shutdown.
    pub cause: Cause,
    /// The first thing that went wrong, before or during the shutdown.
    pub failure: Option<Failure>,
    /// Every service in order of registration, as it was when the stop ended.
    pub services: Vec<ServiceStatus>,
    /// Services that did not stop in time: a hook or a thread of theirs was still running.
    pub left_behind: Vec<String>,
}

impl Outcome {
    /// Whether the stop was asked for, nothing failed and nothing was left behind.
    pub fn is_clean(&self) -> bool {
        matches!(self.cause, Cause::Requested(_)) && self.failure.is_none() && self.left_behind.is_empty()
    }

    /// 0 for a clean, asked-for stop; else 1.
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.is_clean())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stopped, cause: {}", self.cause)?;
        if let (Cause::Requested(_), Some(failure)) = (&self.cause, &self.failure) {
            write!(f, "; {failure}")?;
        }
        if !self.left_behind.is_empty() {
            write!(f, "; still running: {}", self.left_behind.join(", "))?;
        }
        Ok(())
    }
}

/// What began a shutdown.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Cause {
    /// Somebody asked for it; in the asker's words.
    Requested(String),
    /// A service failed.
    Failed(Failure),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested(text) => f.write_str(text),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}

/// Which part of a service's life a failure belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookKind {
    /// Its start.
    Start,
    /// The time between start and stop.
    Run,
    /// Its stop.
    Stop,
}

/// A service failed, and why.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Failure {
    /// The service's name.
    pub service: String,
    /// Where in its life.
    pub during: HookKind,
    /// The error the hook returned, or a [`Fault`] when it returned none.
    pub error: Arc<dyn Error + Send + Sync>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.during {
            HookKind::Start => "failed to start",
            HookKind::Run => "failed",
            HookKind::Stop => "did not stop cleanly",
        };
        write!(f, "service {} {what}: {}", self.service, self.error)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.error)
    }
}

/// A failure that the manager found, rather than a hook returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The hook panicked with this text.
    HookPanicked(String),
    /// The hook did not return within this many milliseconds.
    HookOverran {
        /// The time it had.
        limit_ms: u64,
    },
    /// The hook's thread could not be spawned: the system's words.
    NoThread(String),
    /// A thread of the service ended although nobody stopped the service.
    ThreadReturned {
        /// The thread's name.
        thread: String,
    },
    /// A thread of the service panicked.
    ThreadPanicked {
        /// The thread's name.
        thread: String,
        /// The panic's text.
        text: String,
    },
    /// The stop returned, but these threads still run.
    ThreadsLeft(Vec<String>),
    /// The service said so itself, through [`Spawner::fail`](super::Spawner::fail).
    Reported(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HookPanicked(text) => write!(f, "it panicked: {text}"),
            Self::HookOverran { limit_ms } => write!(f, "it did not return within {limit_ms} ms"),
            Self::NoThread(text) => write!(f, "no thread could be spawned for it: {text}"),
            Self::ThreadReturned { thread } => write!(f, "thread {thread} ended unasked"),
            Self::ThreadPanicked { thread, text } => write!(f, "thread {thread} panicked: {text}"),
            Self::ThreadsLeft(threads) => write!(f, "threads still running: {}", threads.join(", ")),
            Self::Reported(reason) => f.write_str(reason),
        }
    }
}

impl Error for Fault {}

/// Why a service was not registered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// A service of this name is registered already: give this one another.
    DuplicateName(String),
    /// The name is empty, longer than 64 bytes, or has whitespace, control characters, `=` or `"`: log lines and health
    /// answers could not name the service.
    BadName(String),
    /// The manager was started or stopped already: register before.
    TooLate,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateName(name) => write!(f, "a service named {name} is registered already; use another name"),
            Self::BadName(name) => {
                write!(f, "{name:?} is no service name; use 1 to 64 bytes without blanks, '=' or '\"'")
            }
            Self::TooLate => f.write_str("the manager was started or stopped already; register services before"),
        }
    }
}

impl Error for RegisterError {}

/// Why a start did not lead to a running program. Unless it says `Refused`, everything that had been started has been
/// stopped again.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StartError {
    /// A service failed; `failure` is the original one, also when stopping the others failed too.
    Failed {
        /// The first failure.
        failure: Failure,
        /// How the stop of the others ended.
        outcome: Box<Outcome>,
    },
    /// A stop was requested meanwhile or before; nothing further was started.
    Stopped(Box<Outcome>),
    /// The manager was started before. It runs, or it has ended (`outcome`): then make a new one.
    Refused {
        /// How it ended; `None` while it runs.
        outcome: Option<Box<Outcome>>,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { failure, .. } => failure.fmt(f),
            Self::Stopped(outcome) => write!(f, "not started, a stop was requested: {}", outcome.cause),
            Self::Refused { outcome: None } => f.write_str("the manager was started already"),
            Self::Refused { outcome: Some(outcome) } => {
                write!(f, "the manager has ended ({outcome}) and cannot be started again; make a new one")
            }
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed { failure, .. } => Some(&*failure.error),
            _ => None,
        }
    }
}

impl fmt::Display for ServiceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
