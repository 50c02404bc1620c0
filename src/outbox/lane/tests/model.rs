//! What the test knows of the events without looking into the database, and a handler that follows a script and judges
//! every call.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};

use super::Death;
use crate::outbox::{DispatchError, Event, Handler, OnDeadLetter};
use crate::storage::Database;

/// One that nobody could name, and three while it ran alone.
const MOST_DEATHS: u32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Fail,
    Poison,
    Panic,
    Die,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) keys: BTreeMap<i64, Option<String>>,
    pub(super) done: BTreeSet<i64>,
    /// Done since the last rewind to them or before: what is later of their key may be done.
    pub(super) ordered: BTreeSet<i64>,
    /// Done, and neither a death nor a replay since: nothing excuses another run.
    pub(super) finished: BTreeSet<i64>,
    /// Failed calls since the last replay, and what was called hopeless.
    pub(super) failed: HashMap<i64, u32>,
    pub(super) dead: BTreeSet<i64>,
    /// By the operator: given up, passed over though parked, and payloads.
    pub(super) discarded: BTreeSet<i64>,
    pub(super) resumed: BTreeSet<i64>,
    pub(super) edited: HashMap<i64, String>,
    pub(super) deaths: HashMap<i64, u32>,
    /// Deaths with no other outcome in between.
    pub(super) deaths_in_a_row: HashMap<i64, u32>,
    pub(super) script: HashMap<i64, VecDeque<Outcome>>,
    pub(super) outage: bool,
    /// The key whose address is dead.
    pub(super) dead_address: Option<String>,
    pub(super) breaches: Vec<String>,
    /// Keys of calls under way, and the thread that had a key's events in this life of the process.
    pub(super) running: BTreeSet<String>,
    pub(super) threads: HashMap<String, std::thread::ThreadId>,
}

pub(super) struct Modelled {
    pub(super) database: Database,
    pub(super) model: Arc<Mutex<Model>>,
    pub(super) on_dead_letter: OnDeadLetter,
    pub(super) batch: usize,
    pub(super) threads: usize,
}

impl Model {
    fn is_at_dead_address(&self, event: &Event) -> bool {
        event.key.is_some() && event.key == self.dead_address
    }

    fn count_failure(&mut self, id: i64) {
        let failed = self.failed.entry(id).or_default();
        *failed += 1;
        if *failed >= 3 {
            self.dead.insert(id);
        }
    }

    /// An operator has the event run again.
    pub(super) fn runs_again(&mut self, id: i64) {
        self.failed.remove(&id);
        self.deaths_in_a_row.remove(&id);
        self.finished.remove(&id);
        self.dead.remove(&id);
        self.resumed.remove(&id);
    }

    /// The lane was moved back: what is in the log from here on comes again. A death that nobody has settled is forgotten.
    pub(super) fn rewound(&mut self, first: i64, in_log: &BTreeSet<i64>, forgotten: &BTreeSet<i64>) {
        let stays = |id: &i64| *id < first || !in_log.contains(id);
        self.ordered.retain(stays);
        self.finished.retain(stays);
        self.deaths_in_a_row.clear();
        for id in forgotten {
            self.failed.remove(id);
            self.edited.remove(id);
        }
    }
}

impl Handler for Modelled {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let _alone = self.enter(event.key.as_deref());
        let mut model = self.model.lock().unwrap();
        if model.outage {
            return Err(DispatchError::unavailable("all is down"));
        }
        if model.is_at_dead_address(event) {
            // Whether it counts depends on whether another key works.
            model.deaths_in_a_row.remove(&event.id);
            model.count_failure(event.id);
            return Err(DispatchError::unavailable("nobody answers there"));
        }
        self.check_call(&mut model, event);
        let deaths_before = model.deaths_in_a_row.remove(&event.id).unwrap_or(0);
        match model.script.get_mut(&event.id).and_then(VecDeque::pop_front) {
            None => {
                self.check_order(&mut model, event);
                model.done.insert(event.id);
                model.ordered.insert(event.id);
                model.finished.insert(event.id);
                Ok(())
            }
            Some(outcome @ (Outcome::Fail | Outcome::Panic)) => {
                model.count_failure(event.id);
                drop(model);
                assert!(outcome == Outcome::Fail, "told to panic");
                Err(DispatchError::retry("told to fail"))
            }
            Some(Outcome::Poison) => {
                *model.failed.entry(event.id).or_default() += 1;
                model.dead.insert(event.id);
                Err(DispatchError::poison("told to be poison"))
            }
            Some(Outcome::Die) => {
                *model.deaths.entry(event.id).or_default() += 1;
                model.deaths_in_a_row.insert(event.id, deaths_before + 1);
                if deaths_before + 1 > MOST_DEATHS {
                    model.breaches.push(format!("{} has killed {} times in a row", event.id, deaths_before + 1));
                }
                drop(model);
                // Without the panic hook: this is no failure.
                resume_unwind(Box::new(Death));
            }
        }
    }

    /// All or nothing: what is scripted shows in single calls.
    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        let scripted = {
            let model = self.model.lock().unwrap();
            let is_scripted = |event: &Event| model.script.get(&event.id).is_some_and(|script| !script.is_empty());
            model.outage || events.iter().any(|event| is_scripted(event) || model.is_at_dead_address(event))
        };
        if scripted {
            return Err(DispatchError::retry("one by one, please"));
        }
        events.iter().try_for_each(|event| self.handle(event))
    }

    fn batch_limit(&self) -> usize {
        self.batch
    }

    fn concurrency(&self) -> usize {
        self.threads
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        self.on_dead_letter
    }
}

/// A call under way; ends with it, also when the handler panics.
pub(super) struct Running<'m>(&'m Modelled, Option<String>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut model = self.0.model.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(key) = &self.1 {
            model.running.remove(key);
        }
    }
}

impl Modelled {
    /// G4, G5: of one key one event runs at a time, always on the same thread.
    fn enter(&self, key: Option<&str>) -> Running<'_> {
        let Some(key) = key else { return Running(self, None) };
        let mut model = self.model.lock().unwrap();
        if !model.running.insert(key.to_owned()) {
            model.breaches.push(format!("two events of {key} run at once"));
        }
        let thread = std::thread::current().id();
        if self.threads > 1 && *model.threads.entry(key.to_owned()).or_insert(thread) != thread {
            model.breaches.push(format!("{key} runs on two threads"));
        }
        drop(model);
        std::thread::yield_now();
        Running(self, Some(key.to_owned()))
    }

    /// What is closed or parked does not run, and nothing runs twice without a reason.
    fn check_call(&self, model: &mut Model, event: &Event) {
        let id = event.id;
        if let Some(edited) = model.edited.get(&id).filter(|edited| **edited != event.payload) {
            let breach = format!("{id} runs with {} though an operator made it {edited}", event.payload);
            model.breaches.push(breach);
        }
        if model.finished.contains(&id) {
            model.breaches.push(format!("{id} runs again though nobody died"));
        }
        let state = state_of(&self.database, id);
        if let Some("dead_letter" | "parked" | "discarded" | "done") = state.as_deref() {
            model.breaches.push(format!("{id} runs though it is {state:?}"));
        }
    }

    /// G5: whatever is earlier of its key is done, or given up and passed over.
    fn check_order(&self, model: &mut Model, event: &Event) {
        let Some(key) = &event.key else { return };
        if model.ordered.contains(&event.id) {
            return;
        }
        let earlier = model.keys.range(..event.id).filter(|(_, other)| other.as_ref() == Some(key));
        let open: Vec<i64> = earlier.map(|(id, _)| *id).filter(|id| !model.ordered.contains(id)).collect();
        for id in open {
            let state = state_of(&self.database, id);
            let passed_over = match self.on_dead_letter {
                OnDeadLetter::Continue => model.dead.contains(&id) || state.as_deref() == Some("dead_letter"),
                OnDeadLetter::ParkKey => model.resumed.contains(&id),
            };
            if !passed_over && !model.discarded.contains(&id) {
                model.breaches.push(format!("{} of {key} is done before {id}, which is {state:?}", event.id));
            }
        }
    }
}

pub(super) fn state_of(database: &Database, id: i64) -> Option<String> {
    database
        .read(|connection| {
            let mut statement = connection.prepare_cached("SELECT state FROM deliveries WHERE outbox_id = ?1")?;
            let mut rows = statement.query([id])?;
            rows.next()?.map(|row| row.get(0)).transpose()
        })
        .unwrap_or_else(|error: crate::storage::ReadError<rusqlite::Error>| panic!("{error}"))
}
