//! The worker: handlers on another machine, fed from a JetStream stream that a [`NatsSink`](crate::sinks::nats::NatsSink) fills.
//!
//! Per handler (and partition, if the subjects have any) there is one durable pull consumer and one thread, the
//! *lane*. It holds one message at a time, runs the handler through the [`Ledger`], and acknowledges once the effect or
//! the dead letter is durable here. So:
//!
//! - Attempts, backoff, crash loops and dead letters are the ledger's, by the policy of a local relay. The broker's count
//!   of deliveries decides nothing: `max_deliver` is unlimited, and no event is lost in a "last delivery".
//! - A failing handler, an outage or a claim held elsewhere makes the lane wait with its message in hand, which it tells
//!   the broker every third of `ack_wait` (or of what the consumer waits, if less); nothing is spent, and nothing of the partition overtakes.
//! - The consumer lets one message be under way at a time (`max_ack_pending` 1), over all workers that share its name. That
//!   keeps the order of each key whichever worker is fed next, also after one was killed.
//!
//! Workers of one [`name`](WorkerOptions::name) share the events, by partition; workers of different names get all of
//! them each. With [`in_flight`](WorkerOptions::in_flight) above 1 events of one partition run at the same time and order
//! is not kept.

mod broker;
mod lane;
mod origin;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::sync::watch;

pub use origin::{Origin, OriginOptions};

use self::broker::Pipe;
use self::lane::{Calls, Lane, Subscriber};
use crate::lifecycle::{BoxError, Service, Spawner, StartContext};
use crate::outbox::{Handler, Ledger, LedgerOptions, Policy};
use crate::sinks::nats::care::ConsumerWish;
use crate::sinks::nats::{NatsOptions, NatsOptionsError, subject_filter};
use crate::storage::Database;

/// What a worker's database holds: hand it to [`Database::open`], nothing else is needed.
pub use crate::outbox::LEDGER_COMPONENT as COMPONENT;

/// The ledger remembers an event for this long if the stream keeps its messages for ever.
const REMEMBERED: Duration = Duration::from_secs(365 * 86_400);

/// How a worker works. Start from [`WorkerOptions::new`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorkerOptions {
    /// The broker, the stream and its subjects; the same as the sink's.
    pub nats: NatsOptions,
    /// Workers of one name share the events; `worker`. Letters, digits, `-`, `_`.
    pub name: String,
    /// Events of one partition and handler that run at once in this worker; 1. Above that, order is not kept.
    pub in_flight: u32,
    /// After this long without a sign of life from a worker the broker gives its message to another; 30 s. If the consumer has a
    /// shorter wait that cannot be changed, the worker keeps to that one.
    pub ack_wait: Duration,
    /// As for a local relay.
    pub policy: Policy,
    /// How often a lane without messages looks for events that an operator replayed; 1 s.
    pub poll: Duration,
}

impl WorkerOptions {
    /// The defaults, for this broker.
    pub fn new(nats: NatsOptions) -> Self {
        Self {
            nats,
            name: "worker".to_owned(),
            in_flight: 1,
            ack_wait: Duration::from_secs(30),
            policy: Policy::default(),
            poll: Duration::from_secs(1),
        }
    }

    fn check(&self) -> Result<(), NatsOptionsError> {
        let wrong = |field, reason: &str| Err(NatsOptionsError { field, reason: reason.to_owned() });
        self.nats.check()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if self.name.is_empty() || self.name.len() > 100 || !self.name.bytes().all(plain) {
            return wrong("name", "must be 1 to 100 letters, digits, - and _");
        }
        if !(1..=64).contains(&self.in_flight) {
            return wrong("in_flight", "must be 1 to 64");
        }
        if self.ack_wait < Duration::from_secs(1) {
            return wrong("ack_wait", "must be at least 1 s");
        }
        Ok(())
    }

    /// What may come again must not be forgotten.
    fn ledger(&self) -> LedgerOptions {
        let mut options = LedgerOptions { policy: self.policy.clone(), ..LedgerOptions::default() };
        let max_age = self.nats.max_age;
        options.redelivery = if max_age.is_zero() { REMEMBERED } else { max_age };
        options.retention = options.retention.max(options.horizon().saturating_add(Duration::from_secs(86_400)));
        options
    }
}

/// Runs handlers over the events of a stream, as a [`Service`] or by hand.
pub struct Worker {
    database: Database,
    options: WorkerOptions,
    handlers: Vec<(String, Arc<dyn Handler>)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    started: bool,
    /// Dropped to tell the lanes to stop.
    stop: Option<Sender<()>>,
    /// Tells the broker's side.
    stopping: Option<watch::Sender<bool>>,
    threads: Vec<Running>,
}

struct Running {
    name: String,
    thread: JoinHandle<()>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
}

impl Worker {
    /// A worker without handlers; `database` holds [`COMPONENT`] and may be opened later, but before the start.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn new(database: &Database, options: WorkerOptions) -> Result<Self, NatsOptionsError> {
        options.check()?;
        Ok(Self { database: database.clone(), options, handlers: Vec::new(), state: Mutex::default() })
    }

    /// Adds a handler under a name that stays the same over restarts: it is part of the consumer's name and of each entry
    /// in the ledger. Its batches are not used: a worker runs one event at a time. Its
    /// [`start_at`](Handler::start_at) and [`on_dead_letter`](Handler::on_dead_letter) are not asked either: a consumer
    /// begins with the oldest message of the stream, and a dead letter is passed over.
    #[must_use]
    pub fn handler(mut self, name: impl Into<String>, handler: impl Handler) -> Self {
        self.handlers.push((name.into(), Arc::new(handler)));
        self
    }

    /// Starts without a manager. Returns at once: a broker that is down is waited for.
    ///
    /// # Errors
    /// The database is not open or holds no ledger, a handler's name is none or too much like another's, a thread cannot be
    /// started.
    pub fn start(&self) -> Result<(), BoxError> {
        self.start_with(&Spawner::standalone("worker"))
    }

    /// Lets the running calls end, acknowledges what is done, gives the rest back to the broker at once, and ends the
    /// threads. A second stop, and one before the start, do nothing.
    ///
    /// # Errors
    /// Names the threads that still run at `deadline`; their messages stay theirs as long as they run.
    pub fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        let threads = {
            let mut state = self.state();
            state.started = true;
            // The broker's side first, so that nothing more is handed over.
            if let Some(stopping) = &state.stopping {
                let _ = stopping.send(true);
            }
            state.stop = None;
            std::mem::take(&mut state.threads)
        };
        let mut late = Vec::new();
        for running in threads {
            match running.ended.recv_deadline(deadline.max(Instant::now() + Duration::from_millis(50))) {
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => late.push(running),
                _ => drop(running.thread.join()),
            }
        }
        if late.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = late.iter().map(|running| running.name.clone()).collect();
        self.state().threads.append(&mut late);
        Err(format!("still running past the stop deadline: {}", names.join(", ")).into())
    }

    fn start_with(&self, spawner: &Spawner) -> Result<(), BoxError> {
        let mut state = self.state();
        if state.started {
            return Err("a worker runs once: build a new one".into());
        }
        self.check_names()?;
        let ledger = Ledger::new(&self.database, self.options.ledger())?;
        let remembered = ledger.options().redelivery;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        state.started = true;
        let (stop, asked) = bounded(0);
        let (stopping, told) = watch::channel(false);
        (state.stop, state.stopping) = (Some(stop), Some(stopping));
        let mut pipes = Vec::new();
        let mut lanes = Vec::new();
        for (name, handler) in &self.handlers {
            let subscriber = Arc::new(Subscriber::new(name, Arc::clone(handler), ledger.clone(), &self.options)?);
            for (number, wish) in self.wishes(name).into_iter().enumerate() {
                let (hand, deliveries) = bounded(1);
                let calls = Arc::new(Calls::new(handler.time_limit()));
                pipes.push(Pipe { wish, handler: name.clone(), hand, calls: Arc::clone(&calls) });
                lanes.push((
                    format!("work-{name}-{number}"),
                    Lane::new(Arc::clone(&subscriber), deliveries, asked.clone(), calls, number == 0),
                ));
            }
        }
        let started = (|| {
            for (name, lane) in lanes {
                state.threads.push(spawn(spawner, &name, move || lane.run())?);
            }
            let (nats, policy) = (self.options.nats.clone(), self.options.policy.clone());
            let talk = move || runtime.block_on(broker::talk(&nats, remembered, &policy, pipes, told));
            state.threads.push(spawn(spawner, "work-broker", talk)?);
            Ok(())
        })();
        if started.is_err() {
            // What runs already sees it and ends; the caller's stop joins it.
            state.stop = None;
        }
        started
    }

    /// Two handlers with one consumer would get half of the events each.
    fn check_names(&self) -> Result<(), BoxError> {
        let mut words = HashSet::new();
        match self.handlers.iter().find(|(name, _)| !words.insert(consumers_word(name))) {
            None => Ok(()),
            Some((name, _)) => Err(format!("two handlers would share the consumer of {name:?}: rename one").into()),
        }
    }

    /// The consumers of one handler: one per partition, as often as events may run at once.
    fn wishes(&self, handler: &str) -> Vec<ConsumerWish> {
        let WorkerOptions { nats, name, in_flight, ack_wait, .. } = &self.options;
        let partitions: Vec<Option<u32>> = match nats.partitions {
            0 => vec![None],
            count => (0..count).map(Some).collect(),
        };
        let handler = consumers_word(handler);
        let wish = |partition: Option<u32>| ConsumerWish {
            name: match partition {
                Some(partition) => format!("{name}-{handler}-{partition}of{}", nats.partitions),
                None => format!("{name}-{handler}"),
            },
            filter: subject_filter(&nats.prefix, partition),
            ack_wait: *ack_wait,
            max_ack_pending: if *in_flight == 1 { 1 } else { 1_000 },
        };
        let copies = |partition| (0..*in_flight).map(move |_| partition);
        partitions.into_iter().flat_map(copies).map(wish).collect()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handler's name may have characters that a consumer's may not.
fn consumers_word(handler: &str) -> String {
    handler.replace(['.', ':'], "_")
}

fn spawn(spawner: &Spawner, name: &str, run: impl FnOnce() + Send + 'static) -> Result<Running, BoxError> {
    let (ends, ended) = bounded::<()>(0);
    let thread = spawner.spawn(name, move || {
        let _ends = ends;
        run();
    })?;
    Ok(Running { name: name.to_owned(), thread, ended })
}

impl Service for Worker {
    fn name(&self) -> &str {
        "worker"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        self.start_with(ctx.spawner())
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        Worker::stop(self, deadline)
    }
}

impl Drop for Worker {
    /// Its threads finish their running call, give back the rest and end, without anybody waiting for it.
    fn drop(&mut self) {
        let mut state = self.state();
        state.stop = None;
        if let Some(stopping) = &state.stopping {
            let _ = stopping.send(true);
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handlers: Vec<&str> = self.handlers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Worker").field("options", &self.options).field("handlers", &handlers).finish_non_exhaustive()
    }
}
