//! What the tests of the worker share: its database and options, events, and a record of what ran.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use vayu_articles::outbox::{DispatchError, Event, Handler, Ledger, LedgerEntry, LedgerOptions, LedgerQuery, NewEvent};
use vayu_articles::outbox::{LedgerState, Policy};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};
use vayu_articles::storage::{Database, Options};
use vayu_articles::worker::{COMPONENT, Worker, WorkerOptions};

use crate::support::{LONG, Server, wait_until};

pub const STREAM: &str = "VAYU_EVENTS";
pub const KEYS: usize = 10;

pub fn database(folder: &Path) -> Database {
    Database::open(folder.join("worker.db"), &[COMPONENT], Options::default()).unwrap()
}

pub fn nats(server: &Server, partitions: u32) -> NatsOptions {
    let mut options = NatsOptions::new([server.url()]);
    options.partitions = partitions;
    options
}

/// With waits that no test has to sit through.
pub fn quick() -> Policy {
    let mut policy = Policy::default();
    policy.backoff_base = Duration::from_millis(30);
    policy.backoff_max = Duration::from_millis(100);
    policy.pause_base = Duration::from_millis(30);
    policy.pause_max = Duration::from_millis(100);
    policy
}

pub fn options(server: &Server, partitions: u32) -> WorkerOptions {
    let mut options = WorkerOptions::new(nats(server, partitions));
    options.policy = quick();
    options.poll = Duration::from_millis(20);
    options
}

/// A worker with one handler, `notes`, that runs.
pub fn start(folder: &Path, options: WorkerOptions, handler: impl Handler) -> Worker {
    let worker = Worker::new(&database(folder), options).unwrap().handler("notes", handler);
    worker.start().unwrap();
    worker
}

pub fn stop(worker: &Worker) {
    worker.stop(Instant::now() + LONG).unwrap();
}

pub fn event(number: usize) -> Event {
    let mut event = NewEvent::new("note.changed.v1", &number).unwrap().key(format!("key-{}", number % KEYS));
    event.event_id = format!("event-{number}");
    event.into_event(number as i64 + 1)
}

/// As a lane does: a stream that a worker makes at this moment is there before it takes messages.
pub fn publish(server: &Server, partitions: u32, numbers: std::ops::Range<usize>) {
    let events: Vec<Event> = numbers.map(event).collect();
    deliver(&NatsSink::new(nats(server, partitions)).unwrap(), &events);
}

/// Until the broker is there.
pub fn deliver(sink: &NatsSink, events: &[Event]) {
    wait_until("the broker takes the events", || match sink.handle_batch(events) {
        Err(DispatchError::Unavailable { .. }) => false,
        done => done.map(|()| true).unwrap(),
    });
}

pub fn consumer(server: &Server, name: &str) -> Value {
    server.api(&format!("CONSUMER.INFO.{STREAM}.{name}"), &Value::Null)
}

/// Until the broker knows that all of the stream up to `count` is settled.
pub fn wait_acknowledged(server: &Server, name: &str, count: u64) {
    wait_until("all is acknowledged", || {
        let info = consumer(server, name);
        info["num_ack_pending"] == 0 && info["num_pending"] == 0 && info["ack_floor"]["stream_seq"] == count
    });
}

pub fn dead_letters(database: &Database) -> Vec<LedgerEntry> {
    let ledger = Ledger::new(database, LedgerOptions::default()).unwrap();
    ledger.entries(&LedgerQuery::default()).unwrap()
}

/// What a worker's ledger says of this event at `notes`.
pub fn entry(database: &Database, event: &str) -> LedgerEntry {
    Ledger::new(database, LedgerOptions::default()).unwrap().show(event).unwrap().remove(0)
}

pub fn is_done(database: &Database, event: &str) -> bool {
    let ledger = Ledger::new(database, LedgerOptions::default()).unwrap();
    ledger.show(event).unwrap().first().is_some_and(|entry| entry.state == LedgerState::Done)
}

/// What ran, in the order in which it ended: who, and the event's number.
#[derive(Clone, Default)]
pub struct Runs(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    ended: Vec<(String, usize)>,
    running: HashSet<usize>,
    /// One event twice at once.
    overlaps: usize,
    most_at_once: usize,
}

impl Runs {
    pub fn handler(&self, who: &str) -> impl Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static + use<> {
        self.handler_with(who, |_| {})
    }

    /// `during` gets the event's number.
    pub fn handler_with<F>(
        &self,
        who: &str,
        during: F,
    ) -> impl Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static + use<F>
    where
        F: Fn(usize) + Send + Sync + 'static,
    {
        let (runs, who) = (self.clone(), who.to_owned());
        move |event| {
            let number: usize = event.json()?;
            {
                let mut seen = runs.0.lock().unwrap();
                if !seen.running.insert(number) {
                    seen.overlaps += 1;
                }
                seen.most_at_once = seen.most_at_once.max(seen.running.len());
            }
            during(number);
            let mut seen = runs.0.lock().unwrap();
            seen.running.remove(&number);
            seen.ended.push((who.clone(), number));
            Ok(())
        }
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().ended.len()
    }

    pub fn by(&self, who: &str) -> usize {
        self.0.lock().unwrap().ended.iter().filter(|(by, _)| by == who).count()
    }

    pub fn numbers(&self) -> Vec<usize> {
        self.0.lock().unwrap().ended.iter().map(|(_, number)| *number).collect()
    }

    pub fn most_at_once(&self) -> usize {
        self.0.lock().unwrap().most_at_once
    }

    /// Each of `count` events once, and never two runs of one at once.
    pub fn assert_once(&self, count: usize) {
        let numbers = self.numbers();
        let all: HashSet<usize> = numbers.iter().copied().collect();
        assert_eq!((numbers.len(), all.len()), (count, count), "each once");
        assert_eq!(self.0.lock().unwrap().overlaps, 0, "never twice at once");
    }

    /// And those of one key in their order.
    pub fn assert_once_and_in_order(&self, count: usize) {
        self.assert_once(count);
        let mut last = HashMap::new();
        for number in self.numbers() {
            if let Some(before) = last.insert(number % KEYS, number) {
                assert!(before < number, "{number} ran after {before}");
            }
        }
    }
}
