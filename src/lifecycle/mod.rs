//! Ordered start and reversed stop of named services. SKELETON: the lifecycle helper fills this in.

use std::io;
use std::thread::JoinHandle;
use std::time::Instant;

/// Any error a service may return from a hook.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A named part of the program that is started and stopped in order.
///
/// Contract: `start` returns once the service is ready for work; `stop` returns once no thread of the service is left
/// or `deadline` has passed (then with an error that names what is left). `stop` before `start`, and a second `stop`,
/// do nothing and return `Ok`.
pub trait Service: Send + Sync + 'static {
    /// The service's name, unique within a manager.
    fn name(&self) -> &str;
    /// Starts the service; threads are spawned through `ctx.spawner()`.
    fn start(&self, ctx: &StartContext) -> Result<(), BoxError>;
    /// Stops the service, at the latest by `deadline`.
    fn stop(&self, deadline: Instant) -> Result<(), BoxError>;
}

/// What a service is given to start with.
#[derive(Debug)]
pub struct StartContext {
    spawner: Spawner,
    deadline: Instant,
}

impl StartContext {
    /// Spawns the service's threads so that their end is noticed.
    pub fn spawner(&self) -> &Spawner {
        &self.spawner
    }
    /// When the start must have returned.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Spawns named threads whose unexpected end (a return or a panic while the service runs) is reported to the manager.
#[derive(Debug, Clone)]
pub struct Spawner {}

impl Spawner {
    /// A spawner without a manager, for a component used alone: an ending thread is only logged.
    pub fn standalone(_service: &str) -> Self {
        Self {}
    }

    /// Spawns a named thread.
    pub fn spawn<F>(&self, thread: &str, f: F) -> io::Result<JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        std::thread::Builder::new().name(thread.to_owned()).spawn(f)
    }
}
