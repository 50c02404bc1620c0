//! A database with a relay over it, a clock that is moved by hand, and handlers that follow a script.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{
    self, DispatchError, Event, ExceptionInfo, ExceptionState, Filter, Handler, NewEvent, OnDeadLetter, Operator,
    Relay, RelayBuilder,
};
use vayu_articles::storage::{Database, Options};

/// Generous: only a hang reaches it.
pub const LONG: Duration = Duration::from_secs(30);
/// The clock's start: 2026-01-01.
pub const START_MS: i64 = 1_767_225_600_000;

pub struct Site {
    pub clock: Arc<ManualClock>,
    pub database: Database,
    pub folder: Arc<tempfile::TempDir>,
}

impl Site {
    pub fn new() -> Self {
        Self::in_folder(Arc::new(tempfile::tempdir().unwrap()))
    }

    pub fn in_folder(folder: Arc<tempfile::TempDir>) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let mut options = Options::default();
        options.clock = clock.clone();
        let database = Database::open(folder.path().join("site.db"), &[outbox::COMPONENT], options).unwrap();
        Self { clock, database, folder }
    }

    pub fn relay(&self) -> RelayBuilder {
        Relay::builder(&self.database)
    }

    pub fn insert(&self, key: &str) -> i64 {
        self.insert_event(NewEvent::from_json("test.happened.v1", "{}").key(key))
    }

    pub fn insert_event(&self, event: NewEvent) -> i64 {
        self.database.writer().transact(move |tx| outbox::insert(tx, &event)).unwrap()
    }

    /// Several events in one transaction.
    pub fn insert_all(&self, keys: &[&str]) -> Vec<i64> {
        let events: Vec<_> = keys.iter().map(|key| NewEvent::from_json("test.happened.v1", "{}").key(*key)).collect();
        self.database
            .writer()
            .transact(move |tx| events.iter().map(|event| outbox::insert(tx, event)).collect::<Result<Vec<_>, _>>())
            .unwrap()
    }

    pub fn operator(&self) -> Operator {
        Operator::new(&self.database)
    }

    pub fn in_state(&self, state: ExceptionState) -> Vec<ExceptionInfo> {
        self.operator().exceptions(&Filter::states([state]), None, 1_000).unwrap().exceptions
    }

    pub fn ids_in_state(&self, state: ExceptionState) -> Vec<i64> {
        self.in_state(state).iter().map(|exception| exception.outbox_id).collect()
    }

    pub fn count(&self, sql: &str) -> i64 {
        let sql = sql.to_owned();
        self.database.read(move |connection| connection.query_row(&sql, [], |row| row.get(0))).unwrap()
    }

    /// SQL on a foreign connection, as another program would run it.
    pub fn foreign(&self, sql: &str) -> rusqlite::Result<()> {
        let connection = rusqlite::Connection::open(self.folder.path().join("site.db")).unwrap();
        connection.busy_timeout(LONG).unwrap();
        connection.execute_batch(sql)
    }

    pub fn advance(&self, relay: &Relay, seconds: i64) {
        self.clock.advance(seconds * 1_000);
        relay.notify();
    }
}

use vayu_articles::rusqlite;

pub fn stop(relay: &Relay) {
    relay.stop(Instant::now() + LONG).unwrap();
}

pub fn drain(relay: &Relay) {
    assert!(relay.wait_drained(Instant::now() + LONG), "not drained: {:?}", relay.status());
}

/// Waits until `condition` holds; it is looked at again every few milliseconds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < until, "waited too long until {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Does what the script says for an event, then succeeds; remembers every call.
#[derive(Default)]
pub struct Scripted {
    script: Mutex<HashMap<i64, VecDeque<Step>>>,
    calls: Mutex<Vec<Call>>,
    called: Condvar,
    batches: Mutex<Vec<usize>>,
    pub on_dead_letter: OnDeadLetter,
    pub batch: usize,
}

#[derive(Clone)]
pub enum Step {
    Fail,
    Poison,
    Down(Option<Duration>),
    Panic,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub id: i64,
    pub key: Option<String>,
    pub payload: String,
    pub attempts: u32,
    pub replays: u32,
    pub ok: bool,
}

impl Scripted {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn parking() -> Arc<Self> {
        Arc::new(Self { on_dead_letter: OnDeadLetter::ParkKey, ..Self::default() })
    }

    pub fn batching(batch: usize) -> Arc<Self> {
        Arc::new(Self { batch, ..Self::default() })
    }

    pub fn script(&self, id: i64, steps: impl IntoIterator<Item = Step>) {
        self.script.lock().unwrap().entry(id).or_default().extend(steps);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Ids whose calls went well, in order.
    pub fn done(&self) -> Vec<i64> {
        self.calls().iter().filter(|call| call.ok).map(|call| call.id).collect()
    }

    pub fn ids(&self) -> Vec<i64> {
        self.calls().iter().map(|call| call.id).collect()
    }

    /// Sizes of the batches it was handed.
    pub fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }

    pub fn wait_calls(&self, count: usize) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        let (calls, timeout) = self.called.wait_timeout_while(calls, LONG, |calls| calls.len() < count).unwrap();
        assert!(!timeout.timed_out(), "waited for {count} calls, saw {:?}", *calls);
        calls.clone()
    }

    fn act(&self, event: &Event) -> Result<(), DispatchError> {
        let step = self.script.lock().unwrap().get_mut(&event.id).and_then(VecDeque::pop_front);
        {
            let mut calls = self.calls.lock().unwrap();
            calls.push(Call {
                id: event.id,
                key: event.key.clone(),
                payload: event.payload.clone(),
                attempts: event.attempts,
                replays: event.replays,
                ok: step.is_none(),
            });
        }
        self.called.notify_all();
        match step {
            None => Ok(()),
            Some(Step::Fail) => Err(DispatchError::retry("told to fail")),
            Some(Step::Poison) => Err(DispatchError::poison("told to be poison")),
            Some(Step::Down(retry_after)) => {
                Err(DispatchError::Unavailable { reason: "told to be down".into(), retry_after })
            }
            Some(Step::Panic) => panic!("told to panic"),
        }
    }
}

impl Handler for Scripted {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.act(event)
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.batches.lock().unwrap().push(events.len());
        events.iter().try_for_each(|event| self.act(event))
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        self.on_dead_letter
    }

    fn batch_limit(&self) -> usize {
        self.batch.max(1)
    }
}
