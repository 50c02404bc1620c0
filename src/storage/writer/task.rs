//! A task between its caller and the queue-writer: run there, answered exactly once, whatever happens to either side.
//!
//! Caller and writer share one cell, which holds the closure, its result and the answer. A caller waits for nothing but
//! its cell: whoever drops the writer's side of it, be it a thread that unwinds, gives the answer that is true then. So
//! there is no second thing to wait for, and a task costs one allocation.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Instant;

use rusqlite::{Connection, Transaction};

use super::Callers;
use crate::storage::{Fault, TransactError};

/// Looks, on a fresh connection, whether the task's effect is in the database (only after a COMMIT of unknown outcome).
pub type Probe = Box<dyn Fn(&Connection) -> rusqlite::Result<bool> + Send>;

const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const CANCELLED: u8 = 2;

type Answer<T, E> = Result<T, TransactError<E>>;

/// How one run of a task ended.
#[derive(Debug)]
pub(super) enum Ran {
    Done,
    /// The task returned an error; with the SQLite error behind it, if there is one.
    Erred(Option<Fault>),
    Panicked(String),
}

/// What a task is answered.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// What its last run returned.
    Own,
    Panicked(String),
    Refused(String),
    Database(Fault),
    OutcomeUnknown(String),
    Stopped,
    DeadlineExceeded,
}

/// The queue-writer's side of a task. Dropped without an answer, it gives the one that fits.
pub(super) struct Ticket {
    task: Arc<dyn Task>,
    pub(super) bytes: usize,
    pub(super) rows: usize,
    pub(super) deadline: Option<Instant>,
    pub(super) wake: bool,
    pub(super) probe: Option<Probe>,
    pub(super) queued_at: Instant,
    is_callers: bool,
    answered: bool,
}

impl Ticket {
    /// Takes the task, unless it was cancelled: from now on it is not cancelled any more.
    pub(super) fn take(&self) -> bool {
        self.task.leave_queue(TAKEN)
    }

    /// Whether its caller gave up.
    pub(super) fn is_cancelled(&self) -> bool {
        self.task.state() == CANCELLED
    }

    /// Runs the task. Panics are caught.
    pub(super) fn run(&self, tx: &Transaction<'_>) -> Ran {
        self.task.run(tx)
    }

    /// Answers the caller. Runs no foreign code, so that nothing of one task keeps another's caller asleep: what the task held is
    /// there until [`free`](Self::free). Who waits for the answer is to be woken: one of the crate's own tasks is at once, a caller
    /// is given back.
    pub(super) fn answer(&mut self, verdict: Verdict) -> Option<Thread> {
        let waiter = self.close(verdict)?;
        if self.is_callers {
            return Some(waiter);
        }
        waiter.unpark();
        None
    }

    /// Frees what an answered task held, also a result that nobody waits for.
    pub(super) fn free(mut self) {
        self.empty();
        drop_safely(self);
    }

    /// Ends the wait of a task that was never handed over.
    pub(super) fn withdraw(mut self) {
        self.answered = true;
        self.task.leave_queue(CANCELLED);
    }

    /// Gives back who waits for the answer.
    fn close(&mut self, verdict: Verdict) -> Option<Thread> {
        self.answered = true;
        self.task.leave_queue(CANCELLED);
        self.task.answer(verdict)
    }

    fn empty(&mut self) {
        drop_safely(self.probe.take());
        self.task.empty();
    }
}

/// Dropping a caller's closure or value may run foreign code, which must not take the queue-writer down.
fn drop_safely<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // What it panicked with may panic again.
        let text = panic_text(panic);
        log::error!(
            "event=panic_in_drop note=\"a task's closure or result panicked while it was dropped\" panic={text:?}"
        );
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let verdict = if self.task.state() == TAKEN {
            Verdict::OutcomeUnknown("the queue-writer ended before its answer".to_owned())
        } else {
            Verdict::Stopped
        };
        if let Some(waiter) = self.close(verdict) {
            waiter.unpark();
        }
        self.empty();
    }
}

/// An answer on its way. Dropped, it leaves the task to run without anybody waiting for its answer.
pub struct Pending<T, E> {
    task: Arc<dyn Awaited<T, E>>,
    deadline: Option<Instant>,
    writer: super::WriterId,
}

impl<T, E> Pending<T, E> {
    /// Blocks until the task was answered or the writer is gone. A deadline in the options cancels only a task that
    /// was not taken yet.
    ///
    /// # Errors
    /// See [`TransactError`]; on the queue-writer's own thread [`TransactError::WouldDeadlock`], and the task is
    /// cancelled.
    pub fn wait(self) -> Result<T, TransactError<E>> {
        let mut deadline = self.deadline;
        let may_wait = !self.writer.is_this_thread();
        let me = thread::current();
        let mut has_slept = false;
        loop {
            if let Some(answer) = self.task.take_answer(Some(&me)) {
                self.task.wake_others();
                return answer;
            }
            if has_slept {
                // Perhaps woken for an answer it has taken before: those behind it in the chain shall not sleep on for that.
                self.task.wake_others();
            }
            has_slept = true;
            if !may_wait {
                self.task.cancel();
                return Err(TransactError::WouldDeadlock);
            }
            let Some(until) = deadline else {
                thread::park();
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                thread::park_timeout(left);
            } else if self.task.cancel() {
                return Err(TransactError::DeadlineExceeded);
            } else {
                deadline = None;
            }
        }
    }

    /// The answer if it is there already; else gives the pending back.
    ///
    /// # Errors
    /// `self`, when there is no answer yet.
    pub fn try_wait(self) -> Result<Result<T, TransactError<E>>, Self> {
        self.task.take_answer(None).ok_or(self)
    }

    /// Cancels the task unless it was taken. Says whether it was cancelled.
    pub(super) fn cancel(&self) -> bool {
        self.task.cancel()
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// What the queue-writer should know of a task.
#[derive(Default)]
pub struct TaskOptions {
    /// Rough size of what the task carries, in bytes: counts towards admission (64 MiB) and the group cap (8 MiB).
    pub bytes: usize,
    /// Rows the task writes, roughly (0 counts as 1): counts towards the group's row cap.
    pub rows: usize,
    /// Cancelled when not yet taken by then.
    pub deadline: Option<Instant>,
    /// How to find out about an unknown outcome.
    pub probe: Option<Probe>,
}

impl fmt::Debug for TaskOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskOptions")
            .field("bytes", &self.bytes)
            .field("rows", &self.rows)
            .field("deadline", &self.deadline)
            .field("probe", &self.probe.is_some())
            .finish()
    }
}

/// Both sides of a new task. `callers`: of a caller's task, where it was counted in.
pub(super) fn new_task<T, E, F>(
    options: TaskOptions,
    wake: bool,
    callers: Option<Arc<Callers>>,
    writer: super::WriterId,
    f: F,
) -> (Ticket, Pending<T, E>)
where
    F: FnMut(&Transaction<'_>) -> Result<T, E> + Send + 'static,
    T: Send + 'static,
    E: std::error::Error + Send + 'static,
{
    let TaskOptions { bytes, rows, deadline, probe } = options;
    let parts = Parts { work: Some(f), result: None, answer: None, answered: false, waiter: None };
    let is_callers = callers.is_some();
    let task = Arc::new(Cell { state: AtomicU8::new(QUEUED), callers, bytes, parts: Mutex::new(parts) });
    let pending = Pending { task: Arc::clone(&task) as Arc<dyn Awaited<T, E>>, deadline, writer };
    let queued_at = Instant::now();
    (Ticket { task, bytes, rows: rows.max(1), deadline, wake, probe, queued_at, is_callers, answered: false }, pending)
}

trait Task: Send + Sync {
    fn state(&self) -> u8;
    /// Moves a queued task to `state` and counts it out; says whether it was queued.
    fn leave_queue(&self, state: u8) -> bool;
    fn run(&self, tx: &Transaction<'_>) -> Ran;
    /// Gives the one answer, and back who waits for it.
    fn answer(&self, verdict: Verdict) -> Option<Thread>;
    /// Frees what an answered task held but the answer. Panics are caught.
    fn empty(&self);
}

trait Awaited<T, E>: Send + Sync {
    /// Takes the answer, or leaves word whom to wake when it comes.
    fn take_answer(&self, waiter: Option<&Thread>) -> Option<Answer<T, E>>;
    /// Wakes others whose answer is there.
    fn wake_others(&self);
    fn cancel(&self) -> bool;
}

/// One allocation holds all of a task.
struct Cell<T, E, F> {
    state: AtomicU8,
    callers: Option<Arc<Callers>>,
    bytes: usize,
    parts: Mutex<Parts<T, E, F>>,
}

struct Parts<T, E, F> {
    work: Option<F>,
    result: Option<Result<T, E>>,
    answer: Option<Answer<T, E>>,
    /// The one answer was given, and perhaps taken already.
    answered: bool,
    waiter: Option<Thread>,
}

impl<T, E, F> Cell<T, E, F> {
    /// No foreign code runs under this lock, so it is never poisoned by one.
    fn parts(&self) -> MutexGuard<'_, Parts<T, E, F>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leave_queue_to(&self, state: u8) -> bool {
        let left = self.state.compare_exchange(QUEUED, state, SeqCst, SeqCst).is_ok();
        if left && let Some(callers) = &self.callers {
            callers.admission.release(self.bytes);
        }
        left
    }
}

impl<T, E, F> Task for Cell<T, E, F>
where
    F: FnMut(&Transaction<'_>) -> Result<T, E> + Send,
    T: Send,
    E: std::error::Error + Send + 'static,
{
    fn state(&self) -> u8 {
        self.state.load(SeqCst)
    }

    fn leave_queue(&self, state: u8) -> bool {
        self.leave_queue_to(state)
    }

    fn run(&self, tx: &Transaction<'_>) -> Ran {
        let (work, earlier) = {
            let mut parts = self.parts();
            (parts.work.take(), parts.result.take())
        };
        let Some(mut work) = work else {
            return Ran::Panicked("the task is gone".to_owned());
        };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            drop(earlier);
            let result = work(tx);
            let fault = result.as_ref().err().map(|error| Fault::in_chain(error));
            (result, fault)
        }))
        .map_err(panic_text);
        let mut parts = self.parts();
        parts.work = Some(work);
        match ran {
            Ok((result, fault)) => {
                parts.result = Some(result);
                fault.map_or(Ran::Done, Ran::Erred)
            }
            Err(text) => Ran::Panicked(text),
        }
    }

    fn answer(&self, verdict: Verdict) -> Option<Thread> {
        let mut parts = self.parts();
        if parts.answered {
            return None;
        }
        parts.answered = true;
        parts.answer = Some(match verdict {
            Verdict::Own => own_answer(parts.result.take()),
            other => Err(other.into_error()),
        });
        parts.waiter.take()
    }

    fn empty(&self) {
        let (work, unused) = {
            let mut parts = self.parts();
            (parts.work.take(), parts.result.take())
        };
        // One by one: two that panic in one unwinding end the program.
        drop_safely(work);
        drop_safely(unused);
    }
}

fn own_answer<T, E>(result: Option<Result<T, E>>) -> Answer<T, E> {
    match result {
        Some(result) => result.map_err(TransactError::Task),
        None => Err(TransactError::OutcomeUnknown("the task's result is missing".to_owned())),
    }
}

impl<T, E, F> Awaited<T, E> for Cell<T, E, F>
where
    F: Send,
    T: Send,
    E: Send,
{
    fn take_answer(&self, waiter: Option<&Thread>) -> Option<Answer<T, E>> {
        let mut parts = self.parts();
        let answer = parts.answer.take();
        if answer.is_none() {
            parts.waiter = waiter.cloned();
        }
        answer
    }

    fn wake_others(&self) {
        if let Some(callers) = &self.callers {
            callers.sleepers.wake_next();
        }
    }

    fn cancel(&self) -> bool {
        let cancelled = self.leave_queue_to(CANCELLED);
        if cancelled {
            // What waits in the inbox is only a shell from now on.
            let work = self.parts().work.take();
            drop(work);
        }
        cancelled
    }
}

impl Verdict {
    fn into_error<E>(self) -> TransactError<E> {
        match self {
            Self::Own => TransactError::OutcomeUnknown("the task's result is missing".to_owned()),
            Self::Panicked(text) => TransactError::Panicked(text),
            Self::Refused(text) => TransactError::Refused(text),
            Self::Database(fault) => TransactError::Database(fault),
            Self::OutcomeUnknown(text) => TransactError::OutcomeUnknown(text),
            Self::Stopped => TransactError::Stopped,
            Self::DeadlineExceeded => TransactError::DeadlineExceeded,
        }
    }
}

/// The panic's text. A payload of another type is leaked, since dropping it may panic again.
fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let panic = match panic.downcast::<String>() {
        Ok(text) => return *text,
        Err(panic) => panic,
    };
    match panic.downcast::<&str>() {
        Ok(text) => (*text).to_owned(),
        Err(panic) => {
            std::mem::forget(panic);
            "a panic without text".to_owned()
        }
    }
}
