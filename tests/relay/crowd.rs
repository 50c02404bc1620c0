//! A handler for a lane of several threads: it remembers when each call begins and ends, holds calls inside as long as a
//! test likes, and judges the order of each key.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::ThreadId;

use vayu_articles::outbox::{
    DispatchError, Event, EventFilter, ExceptionState, Handler, OnDeadLetter, Relay, RelayOptions,
};

use crate::harness::*;

pub const THREADS: usize = 4;

/// Remembers each call; some wait until they are let go.
#[derive(Default)]
pub struct Crowd {
    state: Mutex<State>,
    changed: Condvar,
    batch: usize,
    parks: bool,
}

#[derive(Default)]
pub struct State {
    shut: HashSet<i64>,
    pub running: HashMap<i64, Option<String>>,
    pub most_at_once: usize,
    /// Completed, in order.
    pub done: Vec<i64>,
    pub threads: HashMap<String, HashSet<ThreadId>>,
    /// How often an event shall fail yet.
    pub failing: HashMap<i64, usize>,
    /// How an event ends whenever it is called, in a batch or alone, with this payload (empty: any).
    ends: HashMap<i64, (End, &'static str)>,
    pub down: bool,
    pub breaches: Vec<String>,
    pub calls: Vec<Seen>,
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Well,
    Fail,
    Poison,
    Panic,
}

/// A call as it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub id: i64,
    pub payload: String,
    pub attempts: u32,
}

impl Crowd {
    pub fn new() -> Arc<Self> {
        Self::with(1, false)
    }

    pub fn with(batch: usize, parks: bool) -> Arc<Self> {
        Arc::new(Self { batch, parks, ..Self::default() })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Calls of this event stay inside until it is opened.
    pub fn shut(&self, id: i64) {
        self.state().shut.insert(id);
    }

    pub fn open(&self, id: i64) {
        self.state().shut.remove(&id);
        self.changed.notify_all();
    }

    /// From now on, also for a call that is inside.
    pub fn ends(&self, id: i64, end: End) {
        self.state().ends.insert(id, (end, ""));
    }

    /// Only with this payload; with another one all is well.
    pub fn ends_with(&self, id: i64, payload: &'static str, end: End) {
        self.state().ends.insert(id, (end, payload));
    }

    pub fn wait(&self, what: &str, mut holds: impl FnMut(&State) -> bool) {
        let state = self.state();
        let (state, timeout) = self.changed.wait_timeout_while(state, LONG, |state| !holds(state)).unwrap();
        assert!(!timeout.timed_out(), "waited too long until {what}: {:?} done, {:?} run", state.done, state.running);
    }

    pub fn wait_inside(&self, ids: &[i64]) {
        self.wait("they run", |state| ids.iter().all(|id| state.running.contains_key(id)));
    }

    pub fn done(&self) -> Vec<i64> {
        self.state().done.clone()
    }

    pub fn calls_of(&self, id: i64) -> Vec<Seen> {
        self.state().calls.iter().filter(|call| call.id == id).cloned().collect()
    }

    /// No two events of a key at once, and each key on one thread.
    pub fn check(&self) {
        self.check_alone();
        for (key, threads) in &self.state().threads {
            assert_eq!(threads.len(), 1, "{key} ran on several threads");
        }
    }

    pub fn check_alone(&self) {
        let state = self.state();
        assert!(state.breaches.is_empty(), "{:?}", state.breaches);
    }

    /// Per key: no two at once, and first completions in the order of the log. Nothing is lost: each event is done, or
    /// stands in the exceptions as given up.
    pub fn judge(&self, site: &Site) {
        self.check_alone();
        let of_key: Vec<(i64, Option<String>)> = site
            .database
            .read(|connection| -> vayu_articles::rusqlite::Result<_> {
                let mut statement = connection.prepare("SELECT id, event_key FROM event_outbox ORDER BY id")?;
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            })
            .unwrap();
        let done = first_of_each(self.done());
        let place: HashMap<i64, usize> = done.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let given_up: HashSet<i64> = [ExceptionState::DeadLetter, ExceptionState::Discarded]
            .map(|state| site.ids_in_state(state))
            .concat()
            .into_iter()
            .collect();
        let mut last: BTreeMap<String, (usize, i64)> = BTreeMap::new();
        for (id, key) in of_key {
            let Some(place) = place.get(&id) else {
                assert!(given_up.contains(&id), "event {id} of {key:?} is lost");
                continue;
            };
            let Some(key) = key else { continue };
            if let Some((before, other)) = last.insert(key.clone(), (*place, id)) {
                assert!(before < *place, "{id} of {key} was done before {other}");
            }
        }
    }

    fn enter(&self, event: &Event) -> MutexGuard<'_, State> {
        let mut state = self.state();
        if let Some(key) = &event.key {
            if state.running.values().any(|other| other.as_ref() == Some(key)) {
                state.breaches.push(format!("two events of {key} run at once"));
            }
            state.threads.entry(key.clone()).or_default().insert(std::thread::current().id());
        }
        if state.running.insert(event.id, event.key.clone()).is_some() {
            state.breaches.push(format!("{} runs twice at once", event.id));
        }
        state.most_at_once = state.most_at_once.max(state.running.len());
        let (payload, attempts) = (event.payload.clone(), event.attempts);
        state.calls.push(Seen { id: event.id, payload, attempts });
        self.changed.notify_all();
        state
    }

    /// How this call of the event ends.
    fn end_of(state: &mut State, event: &Event) -> Result<End, DispatchError> {
        let id = event.id;
        if state.down {
            return Err(DispatchError::unavailable("down"));
        }
        if state.failing.get_mut(&id).filter(|left| **left > 0).map(|left| *left -= 1).is_some() {
            return Ok(End::Fail);
        }
        let told = state.ends.get(&id).filter(|(_, payload)| payload.is_empty() || event.payload == *payload);
        Ok(told.map_or(End::Well, |(end, _)| *end))
    }
}

impl Handler for Crowd {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let state = self.enter(event);
        let mut state = self.changed.wait_while(state, |state| state.shut.contains(&event.id)).unwrap();
        state.running.remove(&event.id);
        let end = Self::end_of(&mut state, event);
        if let Ok(End::Well) = end {
            state.done.push(event.id);
        }
        drop(state);
        self.changed.notify_all();
        match end? {
            End::Well => Ok(()),
            End::Fail => Err(DispatchError::retry("told to fail")),
            End::Poison => Err(DispatchError::poison("told to be poison")),
            End::Panic => panic!("told to panic"),
        }
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        events.iter().try_for_each(|event| self.handle(event))
    }

    fn batch_limit(&self) -> usize {
        self.batch.max(1)
    }

    fn concurrency(&self) -> usize {
        THREADS
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        if self.parks { OnDeadLetter::ParkKey } else { OnDeadLetter::Continue }
    }
}

/// The same crowd behind other settings, as a program has them that was started anew.
pub struct Anew {
    pub crowd: Arc<Crowd>,
    pub filter: EventFilter,
    pub parks: bool,
    pub threads: usize,
}

impl Handler for Anew {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.crowd.handle(event)
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.crowd.handle_batch(events)
    }

    fn batch_limit(&self) -> usize {
        self.crowd.batch_limit()
    }

    fn concurrency(&self) -> usize {
        self.threads
    }

    fn filter(&self) -> EventFilter {
        self.filter.clone()
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        if self.parks { OnDeadLetter::ParkKey } else { OnDeadLetter::Continue }
    }
}

pub fn start(site: &Site, crowd: &Arc<Crowd>) -> Relay {
    start_as("h", site, crowd)
}

pub fn start_as(name: &str, site: &Site, crowd: &Arc<Crowd>) -> Relay {
    site.relay().shared_handler(name, crowd.clone()).start().unwrap()
}

pub fn start_with(site: &Site, crowd: &Arc<Crowd>, change: impl FnOnce(&mut RelayOptions)) -> Relay {
    let mut options = RelayOptions::default();
    change(&mut options);
    site.relay().shared_handler("h", crowd.clone()).options(options).start().unwrap()
}

/// Keys that stand in different lines, as many as there are threads: each is the first of its line to run. A key has the
/// same line in every lane of so many threads.
pub fn keys_of_each_thread() -> Vec<String> {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    KEYS.get_or_init(find_keys).clone()
}

fn find_keys() -> Vec<String> {
    let site = Site::new();
    let crowd = Crowd::new();
    let keys: Vec<String> = (0..64).map(|n| format!("key-{n}")).collect();
    keys.iter().for_each(|key| {
        site.insert(key);
    });
    let relay = start(&site, &crowd);
    drain(&relay);
    stop(&relay);
    let mut of_thread: HashMap<ThreadId, String> = HashMap::new();
    for (key, threads) in &crowd.state().threads {
        let thread = threads.iter().next().unwrap();
        of_thread.entry(*thread).or_insert_with(|| key.clone());
    }
    assert_eq!(of_thread.len(), THREADS, "64 keys leave no thread without work");
    of_thread.into_values().collect()
}

pub fn first_of_each(mut done: Vec<i64>) -> Vec<i64> {
    let mut seen = HashSet::new();
    done.retain(|id| seen.insert(*id));
    done
}
