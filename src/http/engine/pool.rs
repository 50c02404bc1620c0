//! The handler threads and the queue before them.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender};
use tokio::sync::oneshot;

use super::counters::Gauge;
use super::{EngineCounters, EngineOptions, Handler, Request, Response};
use crate::lifecycle::{Spawner, panic_text};

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const CANCELLED: u8 = 2;

/// A request on its way to a handler thread, and where its answer goes.
pub(super) struct Job {
    request: Request,
    answer: oneshot::Sender<Answer>,
    state: Arc<AtomicU8>,
    /// It waits for a thread.
    queued: Gauge,
}

/// What a handler made of a request.
pub(super) enum Answer {
    Response(Response),
    Panicked,
}

/// The asker's end of a job. Dropped, it cancels a job that no thread has taken.
pub(super) struct Ticket {
    pub(super) answer: oneshot::Receiver<Answer>,
    state: Arc<AtomicU8>,
}

/// The running threads, and the only sender of their queue.
pub(super) struct Pool {
    pub(super) jobs: Sender<Job>,
    pub(super) threads: Vec<JoinHandle<()>>,
}

/// Starts the handler threads. They end when the sender of their queue is dropped; each holds a clone of `alive`.
pub(super) fn start(
    spawner: &Spawner,
    options: &EngineOptions,
    handler: &Arc<Handler>,
    counters: &Arc<EngineCounters>,
    alive: &Sender<()>,
) -> io::Result<Pool> {
    let (jobs, queue) = crossbeam_channel::bounded(options.queue_bound);
    let mut threads = Vec::with_capacity(options.handler_threads);
    for number in 1..=options.handler_threads {
        let (queue, handler, alive) = (queue.clone(), handler.clone(), alive.clone());
        let counters = counters.clone();
        let spawned = spawner.spawn(&format!("http-{number}"), move || {
            let _alive = alive;
            handle_all(&queue, &*handler, &counters);
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                drop(jobs);
                join(threads);
                return Err(error);
            }
        }
    }
    Ok(Pool { jobs, threads })
}

/// Joins threads that are known to be ending.
pub(super) fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        // A panic has been logged and reported where it was caught.
        let _ = thread.join();
    }
}

impl Job {
    pub(super) fn new(request: Request, queued: Gauge) -> (Self, Ticket) {
        let (sender, answer) = oneshot::channel();
        let state = Arc::new(AtomicU8::new(WAITING));
        (Self { request, answer: sender, state: state.clone(), queued }, Ticket { answer, state })
    }

    fn run(self, handler: &Handler, counters: &EngineCounters) {
        if self.state.compare_exchange(WAITING, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        drop(self.queued);
        let line = format!("{} {}", self.request.method, self.request.path);
        let answer = match catch_unwind(AssertUnwindSafe(|| handler(self.request))) {
            Ok(response) => Answer::Response(response),
            Err(payload) => {
                log::error!("service=http request={line:?} panic={:?}", panic_text(&*payload));
                counters.panicked();
                Answer::Panicked
            }
        };
        // Nobody waits when the client has gone or was answered 504.
        let _ = self.answer.send(answer);
    }
}

impl Ticket {
    /// Cancels the job if no thread has taken it; whether it will never be handled.
    pub(super) fn cancel(&self) -> bool {
        self.state.compare_exchange(WAITING, CANCELLED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancel();
    }
}

fn handle_all(queue: &Receiver<Job>, handler: &Handler, counters: &EngineCounters) {
    for job in queue {
        job.run(handler, counters);
    }
}
