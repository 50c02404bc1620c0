//! The threads of a lane that asks for more than one. They call the handler and know nothing else: what to call, and
//! what comes of it, is the lane's own thread's business.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::call::{self, Called};
use super::status::Board;
use crate::lifecycle::spawn_thread;
use crate::outbox::gate::Entrance;
use crate::outbox::owner::OwnerLock;
use crate::outbox::{Event, Handler};

/// What one thread is to do.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) events: Vec<Event>,
    /// Hand them over at once; if that fails, one by one.
    pub(super) batch: bool,
    /// Wait at the process's gate for a suspect to finish. Not when the lane has its turn already.
    pub(super) gated: bool,
}

/// What came of a job.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) worker: usize,
    /// As they were given.
    pub(super) events: Vec<Event>,
    /// Outcomes of the first of them. After one that did not go well, or when the first are old enough to be written
    /// down, no further one is called.
    pub(super) called: Vec<Called>,
}

/// A panic that is not the handler's goes on in the lane's thread.
pub(super) type Answer = Result<Report, Box<dyn Any + Send>>;

/// What a crew is made of.
pub(super) struct CrewParts {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) handler: Arc<dyn Handler>,
    pub(super) board: Arc<Board>,
    pub(super) lock: Arc<OwnerLock>,
    pub(super) flush_after: Duration,
}

/// Running threads; each has at most one job. Dropping it waits until their calls have ended.
#[derive(Debug)]
pub(super) struct Crew {
    /// Emptied first on drop: a thread ends when its sender is gone.
    workers: Vec<Sender<Job>>,
    answers: Receiver<Answer>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    /// # Errors
    /// The system has no thread left to give; those that began have ended again.
    pub(super) fn start(parts: &CrewParts) -> io::Result<Self> {
        let (answer, answers) = bounded(parts.size);
        let mut crew = Self { workers: Vec::new(), answers, threads: Vec::new() };
        for index in 0..parts.size {
            let (job, jobs) = bounded(1);
            let worker = Worker {
                index,
                handler: Arc::clone(&parts.handler),
                board: Arc::clone(&parts.board),
                entrance: Entrance::new(),
                flush_after: parts.flush_after,
                jobs,
                answers: answer.clone(),
                _lock: Arc::clone(&parts.lock),
            };
            let name = format!("lane-{}-{index}", parts.name);
            crew.threads.push(spawn_thread(name, move || worker.run())?);
            crew.workers.push(job);
        }
        Ok(crew)
    }

    pub(super) fn size(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn answers(&self) -> &Receiver<Answer> {
        &self.answers
    }

    /// Gives a job to a thread that has none.
    pub(super) fn give(&self, worker: usize, job: Job) {
        // A thread ends only after its sender is gone, so this neither blocks nor fails.
        let _ = self.workers[worker].send(job);
    }

    pub(super) fn take_answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    pub(super) fn wait_answer(&self, timeout: Duration) -> Option<Answer> {
        self.answers.recv_timeout(timeout).ok()
    }

    /// Runs one event on one thread and waits for it; no other job may be under way.
    pub(super) fn run(&self, worker: usize, event: Event) -> Called {
        self.give(worker, Job { events: vec![event], batch: false, gated: false });
        match self.answers.recv() {
            Ok(Ok(mut report)) => report.called.pop().unwrap_or(Called::Failed { reason: "was not called".into() }),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Called::Failed { reason: "the lane's thread has ended".into() },
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.workers.clear();
        // A call that runs is waited for, however long: the lane must not be given up under it.
        while self.answers.recv().is_ok() {}
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Worker {
    index: usize,
    handler: Arc<dyn Handler>,
    board: Arc<Board>,
    entrance: Entrance,
    flush_after: Duration,
    jobs: Receiver<Job>,
    answers: Sender<Answer>,
    /// The proof of life lasts as long as a call does.
    _lock: Arc<OwnerLock>,
}

impl Worker {
    fn run(self) {
        while let Ok(job) = self.jobs.recv() {
            let answer = catch_unwind(AssertUnwindSafe(|| self.work(job)));
            if self.answers.send(answer).is_err() {
                return;
            }
        }
    }

    fn work(&self, job: Job) -> Report {
        let Job { events, batch, gated } = job;
        let mut called = Vec::with_capacity(events.len());
        if batch && events.len() > 1 {
            let run = |now| call::call_batch(self.handler.as_ref(), (&self.board, self.index), &events, now);
            if let Called::Done = self.pass_gate(gated, run) {
                called.resize(events.len(), Called::Done);
                return Report { worker: self.index, events, called };
            }
        }
        let began = Instant::now();
        for event in &events {
            let run = |now| call::call(self.handler.as_ref(), (&self.board, self.index), event, now);
            called.push(self.pass_gate(gated, run));
            let went_well = matches!(called.last(), Some(Called::Done));
            if !went_well || began.elapsed() >= self.flush_after {
                break;
            }
        }
        Report { worker: self.index, events, called }
    }

    fn pass_gate(&self, gated: bool, run: impl FnOnce(Instant) -> Called) -> Called {
        let _pass = gated.then(|| self.entrance.enter(self.board.time_limit()));
        run(Instant::now())
    }
}
