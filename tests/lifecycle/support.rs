//! Services that do as they are told, and ways to wait for what they did.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vayu_articles::lifecycle::{
    BoxError, Failure, Handle, Manager, ManagerOptions, Outcome, Service, ServiceOptions, ServiceState, StartContext,
    StartError,
};

/// Long enough for anything that must succeed.
pub const AMPLE: Duration = Duration::from_secs(30);
/// For what never returns in time.
pub const SHORT: Duration = Duration::from_millis(20);

/// What a hook does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Ok,
    Err,
    Panic,
    /// Returns Ok, but not before its deadline has been found overrun.
    Late,
    /// Does not return before the test opens the gate.
    Never,
}

/// A door that opens once.
#[derive(Debug, Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
    pub fn pass(&self) {
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }
}

/// What happened, in order; can be waited for.
#[derive(Debug, Clone, Default)]
pub struct Journal(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Journal {
    pub fn add(&self, line: impl Into<String>) {
        self.0.0.lock().unwrap().push(line.into());
        self.0.1.notify_all();
    }
    pub fn lines(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }
    pub fn await_line(&self, line: &str) {
        let deadline = Instant::now() + AMPLE;
        let mut lines = self.0.0.lock().unwrap();
        while !lines.iter().any(|l| l == line) {
            assert!(Instant::now() < deadline, "{line:?} did not come: {lines:?}");
            lines = self.0.1.wait_timeout(lines, Duration::from_millis(100)).unwrap().0;
        }
    }
}

/// A service that does as it is told and writes down when it was called.
#[derive(Clone)]
pub struct Scripted {
    pub name: &'static str,
    pub start: Act,
    pub stop: Act,
    pub journal: Journal,
    pub gate: Gate,
}

impl Scripted {
    pub fn new(name: &'static str, journal: &Journal) -> Self {
        Self { name, start: Act::Ok, stop: Act::Ok, journal: journal.clone(), gate: Gate::default() }
    }
    pub fn start_by(mut self, act: Act) -> Self {
        self.start = act;
        self
    }
    pub fn stop_by(mut self, act: Act) -> Self {
        self.stop = act;
        self
    }
    fn act(&self, act: Act, hook: &str) -> Result<(), BoxError> {
        match act {
            Act::Ok | Act::Late => Ok(()),
            Act::Err => Err(format!("{} cannot {hook}", self.name).into()),
            Act::Panic => panic!("{} panics in {hook}", self.name),
            Act::Never => {
                self.gate.pass();
                self.journal.add(format!("{hook} {} returned", self.name));
                Ok(())
            }
        }
    }
}

impl Service for Scripted {
    fn name(&self) -> &str {
        self.name
    }
    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        self.journal.add(format!("start {}", self.name));
        if self.start == Act::Late {
            while ctx.pause(AMPLE).is_ok() {
                if ctx.stop_requested() {
                    break;
                }
            }
        }
        self.act(self.start, "start")
    }
    fn stop(&self, _deadline: Instant) -> Result<(), BoxError> {
        self.journal.add(format!("stop {}", self.name));
        self.act(self.stop, "stop")
    }
}

/// A service made of two closures.
pub struct Closures<S, T>(pub &'static str, pub S, pub T);

impl<S, T> Service for Closures<S, T>
where
    S: Fn(&StartContext) -> Result<(), BoxError> + Send + Sync + 'static,
    T: Fn(Instant) -> Result<(), BoxError> + Send + Sync + 'static,
{
    fn name(&self) -> &str {
        self.0
    }
    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        self.1(ctx)
    }
    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        self.2(deadline)
    }
}

pub fn manager() -> Manager {
    Manager::new(ManagerOptions {
        start_timeout: AMPLE,
        stop_timeout: AMPLE,
        stop_budget: AMPLE * 20,
        rollback_budget: AMPLE * 20,
    })
}

pub fn short_start() -> ServiceOptions {
    ServiceOptions { start_timeout: Some(SHORT), ..ServiceOptions::default() }
}

pub fn short_both() -> ServiceOptions {
    ServiceOptions { start_timeout: Some(SHORT), stop_timeout: Some(SHORT), ..ServiceOptions::default() }
}

pub fn state(handle: &Handle, name: &str) -> ServiceState {
    handle.status().service(name).unwrap().state
}

pub fn failed_start(result: Result<(), StartError>) -> (Failure, Outcome) {
    match result {
        Err(StartError::Failed { failure, outcome }) => (failure, *outcome),
        other => panic!("a failed start, not {other:?}"),
    }
}

/// Threads of this process whose name starts with `prefix` (the kernel keeps 15 bytes of a name).
#[cfg(target_os = "linux")]
pub fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(prefix))
        .count()
}

/// A spawned thread that has been counted out may need a moment to vanish from the kernel's list.
#[cfg(target_os = "linux")]
pub fn assert_threads_gone(prefix: &str) {
    let deadline = Instant::now() + AMPLE;
    while threads_named(prefix) > 0 {
        assert!(Instant::now() < deadline, "threads named {prefix}* are still there");
        std::thread::yield_now();
    }
}
