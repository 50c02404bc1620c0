//! A lane driven step by step, against a simple model: commits, outcomes of each kind, deaths in and between calls,
//! takeovers, steps of the clock, replays, holds, restarts and prunes in any order. After each step no event is lost
//! sight of, at each completion nothing earlier of its key is open, and in the end everything is settled.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crossbeam_channel::{bounded, never};
use proptest::prelude::*;

use super::{Board, Interrupt, Lane, LaneParts, StopSignal};
use crate::clock::ManualClock;
use crate::outbox::owner::OwnerLock;
use crate::outbox::{self, DispatchError, Event, Handler, NewEvent, OnDeadLetter, Operator, RelayOptions, Retention};
use crate::storage::{Database, Options};

/// Thrown by the handler: the process dies here, and with it all that the lane has in memory.
pub(super) struct Death;

const START_MS: i64 = 1_767_225_600_000;
/// One that nobody could name, and three while it ran alone.
const MOST_DEATHS: u32 = 4;
/// Enough for every event to be tried, parked, and run through again.
const LAST_STEPS: usize = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Fail,
    Poison,
    Panic,
    Die,
}

#[derive(Debug, Clone)]
enum Step {
    /// So many events of this key; 0 is no key.
    Commit(u8, usize),
    /// What the handler will do with one of the newest events.
    Script(usize, Vec<Outcome>),
    Pass,
    /// The process dies between two calls.
    Crash,
    /// It stops in good order and is started again.
    Restart,
    Clock(i64),
    Replay(usize, bool),
    Hold(bool),
    Outage(bool),
    Prune,
}

/// What the test knows of the events without looking into the database.
#[derive(Debug, Default)]
struct Model {
    keys: BTreeMap<i64, Option<String>>,
    done: BTreeSet<i64>,
    /// Done, and neither a death nor a replay since: nothing excuses another run.
    finished: BTreeSet<i64>,
    /// Failed calls since the last replay, and what was called hopeless.
    failed: HashMap<i64, u32>,
    dead: BTreeSet<i64>,
    deaths: HashMap<i64, u32>,
    /// Deaths with no other outcome in between.
    deaths_in_a_row: HashMap<i64, u32>,
    script: HashMap<i64, VecDeque<Outcome>>,
    outage: bool,
    breaches: Vec<String>,
    /// Keys of calls under way, and the thread that had a key's events in this life of the process.
    running: BTreeSet<String>,
    threads: HashMap<String, std::thread::ThreadId>,
}

struct Modelled {
    database: Database,
    model: Arc<Mutex<Model>>,
    on_dead_letter: OnDeadLetter,
    batch: usize,
    threads: usize,
}

impl Handler for Modelled {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let _alone = self.enter(event.key.as_deref());
        let mut model = self.model.lock().unwrap();
        if model.outage {
            return Err(DispatchError::unavailable("all is down"));
        }
        self.check_call(&mut model, event.id);
        let deaths_before = model.deaths_in_a_row.remove(&event.id).unwrap_or(0);
        match model.script.get_mut(&event.id).and_then(VecDeque::pop_front) {
            None => {
                self.check_order(&mut model, event);
                model.done.insert(event.id);
                model.finished.insert(event.id);
                Ok(())
            }
            Some(outcome @ (Outcome::Fail | Outcome::Panic)) => {
                let failed = model.failed.entry(event.id).or_default();
                *failed += 1;
                if *failed >= 3 {
                    model.dead.insert(event.id);
                }
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
            model.outage || events.iter().any(|event| model.script.get(&event.id).is_some_and(|s| !s.is_empty()))
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
struct Running<'m>(&'m Modelled, Option<String>);

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
    fn check_call(&self, model: &mut Model, id: i64) {
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
        if model.done.contains(&event.id) {
            return;
        }
        let earlier = model.keys.range(..event.id).filter(|(_, other)| other.as_ref() == Some(key));
        let open: Vec<i64> = earlier.map(|(id, _)| *id).filter(|id| !model.done.contains(id)).collect();
        for id in open {
            let state = state_of(&self.database, id);
            let passed_over = match self.on_dead_letter {
                OnDeadLetter::Continue => model.dead.contains(&id) || state.as_deref() == Some("dead_letter"),
                OnDeadLetter::ParkKey => false,
            };
            if !passed_over {
                model.breaches.push(format!("{} of {key} is done before {id}, which is {state:?}", event.id));
            }
        }
    }
}

/// One pass, and with several threads all that comes of it: the next step of the world comes after it.
fn pass_to_the_end(lane: &mut Lane) -> Result<bool, Interrupt> {
    let mut worked = lane.pass()?;
    while lane.spread.is_running() {
        lane.spread.inbox = lane.crew.as_ref().unwrap().wait_answer(Duration::from_secs(60));
        assert!(lane.spread.inbox.is_some(), "a call does not end");
        worked |= lane.collect()?;
    }
    Ok(worked)
}

fn state_of(database: &Database, id: i64) -> Option<String> {
    database
        .read(|connection| {
            let mut statement = connection.prepare_cached("SELECT state FROM deliveries WHERE outbox_id = ?1")?;
            let mut rows = statement.query([id])?;
            rows.next()?.map(|row| row.get(0)).transpose()
        })
        .unwrap_or_else(|error: crate::storage::ReadError<rusqlite::Error>| panic!("{error}"))
}

/// Sizes small enough that every limit is met, and large ones.
#[derive(Debug, Clone)]
struct Sizes {
    batch_events: usize,
    run_ahead: usize,
    flush_at_once: bool,
    handler_batch: usize,
    park: bool,
    threads: usize,
}

struct World {
    database: Database,
    clock: Arc<ManualClock>,
    sizes: Sizes,
    model: Arc<Mutex<Model>>,
    lane: Option<Lane>,
    /// The lane is ours and `pass` may be called.
    serving: bool,
    _folder: tempfile::TempDir,
}

impl World {
    fn new(sizes: Sizes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let options = Options { clock: clock.clone(), ..Options::default() };
        let database = Database::open(folder.path().join("a.db"), &[outbox::COMPONENT], options).unwrap();
        let mut world =
            Self { database, clock, sizes, model: Arc::default(), lane: None, serving: false, _folder: folder };
        world.lane = Some(world.new_lane());
        world
    }

    /// The lane of a process that has just started.
    fn new_lane(&self) -> Lane {
        let path = self.database.canonical_path().unwrap();
        let sizes = &self.sizes;
        let options = RelayOptions {
            batch_events: sizes.batch_events,
            run_ahead: sizes.run_ahead,
            flush_after: if sizes.flush_at_once { Duration::ZERO } else { Duration::MAX },
            ..RelayOptions::default()
        };
        let handler = Arc::new(Modelled {
            database: self.database.clone(),
            model: self.model.clone(),
            on_dead_letter: if sizes.park { OnDeadLetter::ParkKey } else { OnDeadLetter::Continue },
            batch: sizes.handler_batch,
            threads: sizes.threads,
        });
        self.model.lock().unwrap().threads.clear();
        let (_, asked) = bounded(0);
        Lane::new(LaneParts {
            database: self.database.clone(),
            name: "h".into(),
            board: Arc::new(Board::new("h", handler.time_limit(), sizes.threads)),
            handler,
            options,
            lock: Arc::new(OwnerLock::create(&path).unwrap()),
            path,
            stop: StopSignal { asked, deadline: Arc::new(OnceLock::new()) },
            commits: never(),
            notices: never(),
        })
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Commit(key, count) => (0..*count).for_each(|_| self.commit(*key)),
            Step::Script(which, outcomes) => {
                if let Some(id) = self.event(*which) {
                    self.model.lock().unwrap().script.entry(id).or_default().extend(outcomes);
                }
            }
            Step::Pass => drop(self.pass()),
            Step::Crash => self.crash(),
            Step::Restart => {
                if std::mem::take(&mut self.serving) {
                    self.lane.as_mut().unwrap().give_up();
                }
                self.lane = Some(self.new_lane());
            }
            Step::Clock(seconds) => self.clock.advance(seconds * 1_000),
            Step::Replay(which, force) => self.replay(*which, *force),
            Step::Hold(held) => self.sql(&format!("UPDATE lanes SET held = {}", u8::from(*held))),
            Step::Outage(outage) => self.model.lock().unwrap().outage = *outage,
            Step::Prune => {
                let retention = Retention { keep: Duration::ZERO, ..Retention::default() };
                outbox::prune(&self.database, &retention, 0, || false).unwrap();
            }
        }
    }

    /// One of the newest events: there is to be more than one act on one event.
    fn event(&self, which: usize) -> Option<i64> {
        self.model.lock().unwrap().keys.keys().rev().nth(which).copied()
    }

    fn commit(&self, key: u8) {
        let key = (key > 0).then(|| format!("key-{key}"));
        let mut event = NewEvent::from_json("t", "{}").occurred_at(self.database.clock().now_ms());
        event.key.clone_from(&key);
        let id = self.database.writer().transact(move |tx| outbox::insert(tx, &event)).unwrap();
        self.model.lock().unwrap().keys.insert(id, key);
    }

    fn sql(&self, sql: &str) {
        let sql = sql.to_owned();
        self.database.writer().transact(move |tx| tx.execute_batch(&sql)).unwrap();
    }

    fn replay(&self, which: usize, force: bool) {
        let Some(id) = self.event(which) else { return };
        if Operator::new(&self.database).replay(id, "h", force).is_ok() {
            let mut model = self.model.lock().unwrap();
            model.failed.remove(&id);
            model.deaths_in_a_row.remove(&id);
            model.finished.remove(&id);
            model.dead.remove(&id);
        }
    }

    /// One step of the lane's life; `true` when there was something to do.
    fn pass(&mut self) -> bool {
        let lane = self.lane.as_mut().unwrap();
        if !self.serving {
            self.serving = lane.acquire().unwrap();
            return self.serving;
        }
        match catch_unwind(AssertUnwindSafe(|| pass_to_the_end(lane))) {
            Ok(Ok(worked)) => worked,
            Ok(Err(Interrupt::Held)) => {
                lane.give_up();
                self.serving = false;
                true
            }
            Ok(Err(other)) => panic!("{other:?}"),
            Err(panic) => {
                assert!(panic.is::<Death>());
                self.crash();
                true
            }
        }
    }

    /// What the lane has in memory is gone; its row still names an owner whose file can be locked.
    fn crash(&mut self) {
        self.lane = None;
        self.serving = false;
        self.lane = Some(self.new_lane());
        // A flush that was under way may still be written: wait for the writer.
        self.sql("UPDATE lanes SET held = held");
        // What was not written is forgotten by the relay, so the model must not count on it.
        let mut model = self.model.lock().unwrap();
        model.dead.clear();
        model.finished.clear();
        model.failed.clear();
        for (id, attempts) in self.attempts() {
            model.failed.insert(id, attempts);
        }
    }

    fn attempts(&self) -> Vec<(i64, u32)> {
        self.rows("SELECT outbox_id, attempts FROM deliveries", |row| (row.get(0).unwrap(), row.get(1).unwrap()))
    }

    fn rows<T>(&self, sql: &str, read: impl Fn(&rusqlite::Row<'_>) -> T) -> Vec<T> {
        let all = |connection: &rusqlite::Connection| -> rusqlite::Result<Vec<T>> {
            connection.prepare(sql)?.query_map([], |row| Ok(read(row)))?.collect()
        };
        self.database.read(all).unwrap()
    }

    fn number(&self, sql: &str) -> i64 {
        self.rows(sql, |row| row.get(0).unwrap())[0]
    }

    /// What holds at any moment.
    fn check(&self) {
        let cursor = self.number("SELECT coalesce(max(cursor), 0) FROM lanes");
        let states: HashMap<i64, (String, Option<String>)> = self
            .rows("SELECT outbox_id, state, reason FROM deliveries", |row| {
                (row.get(0).unwrap(), (row.get(1).unwrap(), row.get(2).unwrap()))
            })
            .into_iter()
            .collect();
        let in_log: BTreeSet<i64> =
            self.rows("SELECT id FROM event_outbox", |row| row.get(0).unwrap()).into_iter().collect();
        let model = self.model.lock().unwrap();
        assert!(model.breaches.is_empty(), "{:?}", model.breaches);
        for id in model.keys.keys() {
            // G3: done, before the cursor, or an exception; and only what is done leaves the log.
            let known = model.done.contains(id) || *id > cursor || states.contains_key(id);
            assert!(known, "event {id} is lost: cursor {cursor}, {states:?}");
            assert!(in_log.contains(id) || model.done.contains(id), "event {id} was pruned undelivered");
            // G8: condemned is only who has killed three times itself.
            let condemned = states.get(id).is_some_and(|(_, reason)| reason.as_deref() == Some("crash_loop"));
            let deaths = model.deaths.get(id).copied().unwrap_or(0);
            assert!(!condemned || deaths >= 3, "event {id} was condemned for {deaths} deaths");
        }
        // G7: an outage spends nothing and gives nothing up.
        for (id, attempts) in self.attempts() {
            let failed = model.failed.get(&id).copied().unwrap_or(0);
            assert!(attempts <= failed, "event {id}: {attempts} attempts, {failed} failures");
        }
        let twice = "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE state = 'retry' AND event_key IS NOT NULL \
                     GROUP BY event_key HAVING count(*) > 1)";
        assert_eq!(self.number(twice), 0, "two due rows of one key");
    }

    /// Lets the lane go on undisturbed until nothing is left to do.
    fn settle(&mut self) {
        {
            let mut model = self.model.lock().unwrap();
            model.outage = false;
            model.script.clear();
        }
        self.sql("UPDATE lanes SET held = 0");
        for _ in 0..LAST_STEPS {
            if !self.pass() {
                self.clock.advance(121_000);
                if self.serving {
                    self.lane.as_mut().unwrap().settle(None).unwrap();
                }
                if self.is_settled() {
                    return;
                }
            }
        }
        let rows = self.rows("SELECT outbox_id, state, event_key FROM deliveries", |row| {
            (row.get::<_, i64>(0).unwrap(), row.get::<_, String>(1).unwrap(), row.get::<_, Option<String>>(2).unwrap())
        });
        let spread = self.lane.as_ref().map(|lane| format!("{:?} {:?}", lane.spread, lane.progress));
        panic!("not settled: {rows:?} {:?} {spread:?}", self.model.lock().unwrap());
    }

    fn is_settled(&self) -> bool {
        let open = "SELECT count(*) FROM deliveries d WHERE state = 'retry' OR (state = 'waiting' AND NOT EXISTS \
                    (SELECT 1 FROM deliveries p WHERE p.state = 'parked' AND p.event_key = d.event_key))";
        let behind = "SELECT count(*) FROM event_outbox WHERE id > (SELECT coalesce(max(cursor), -1) FROM lanes)";
        self.serving && self.number(open) == 0 && self.number(behind) == 0
    }

    /// What holds when nothing is left to do.
    fn check_end(&self) {
        let model = self.model.lock().unwrap();
        for (id, key) in &model.keys {
            let state = state_of(&self.database, *id);
            let fine = match state.as_deref() {
                None | Some("done") => model.done.contains(id),
                Some("dead_letter") => !self.sizes.park,
                Some("parked" | "waiting") => self.sizes.park,
                Some(_) => false,
            };
            assert!(fine, "event {id} of {key:?} ended as {state:?}");
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Fail),
        2 => Just(Outcome::Poison),
        1 => Just(Outcome::Panic),
        3 => Just(Outcome::Die),
    ];
    let outcomes = prop::collection::vec(outcome, 1..6);
    // The same again: what is given up, or condemned.
    let stubborn = (prop_oneof![Just(Outcome::Fail), Just(Outcome::Die)], 3..6_usize)
        .prop_map(|(outcome, times)| vec![outcome; times]);
    let clock = prop_oneof![6 => Just(121_i64), 2 => Just(5), 1 => Just(-3_600), 1 => -200..200_i64];
    let newest = 0..6_usize;
    let step = prop_oneof![
        6 => (0..3_u8, 1..5_usize).prop_map(|(key, count)| Step::Commit(key, count)),
        8 => (newest.clone(), prop_oneof![outcomes, stubborn]).prop_map(|(which, all)| Step::Script(which, all)),
        16 => Just(Step::Pass),
        3 => Just(Step::Crash),
        1 => Just(Step::Restart),
        7 => clock.prop_map(Step::Clock),
        4 => (newest, any::<bool>()).prop_map(|(which, force)| Step::Replay(which, force)),
        1 => any::<bool>().prop_map(Step::Hold),
        2 => any::<bool>().prop_map(Step::Outage),
        1 => Just(Step::Prune),
    ];
    prop::collection::vec(step, 1..60)
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let small_or_large = |large: usize| prop_oneof![Just(1), Just(3), Just(large)];
    let threads = prop_oneof![Just(1), Just(1), Just(2), Just(3)];
    (small_or_large(512), small_or_large(2_048), any::<bool>(), small_or_large(100), any::<bool>(), threads).prop_map(
        |(batch_events, run_ahead, flush_at_once, handler_batch, park, threads)| Sizes {
            batch_events,
            run_ahead,
            flush_at_once,
            handler_batch,
            park,
            threads,
        },
    )
}

#[test]
fn a_stuck_writer_makes_no_busy_loop_and_no_unbounded_memory() {
    let sizes = Sizes { batch_events: 1, run_ahead: 3, flush_at_once: true, handler_batch: 1, park: false, threads: 1 };
    let mut world = World::new(sizes);
    world.take(&Step::Commit(1, 5));
    world.take(&Step::Pass);
    let (go, gone) = bounded::<()>(1);
    let stuck = world.database.writer().submit_internal(false, move |_| {
        let _ = gone.recv();
        Ok::<_, rusqlite::Error>(())
    });
    // The first outcome's flush is stuck; the second outcome is overdue, but can only wait.
    world.take(&Step::Pass);
    world.take(&Step::Pass);
    let lane = world.lane.as_mut().unwrap();
    assert!(lane.progress.is_flying() && lane.progress.oldest().is_some());
    assert!(lane.wait_time(std::time::Instant::now()) >= Duration::from_millis(1));
    // The third fills what may run ahead: the lane waits for the writer instead of going on.
    let waiting = std::thread::scope(|scope| {
        let pass = scope.spawn(|| (0..2).map(|_| lane.pass().unwrap()).collect::<Vec<_>>());
        while world.model.lock().unwrap().done.len() < 3 {
            std::thread::yield_now();
        }
        let waiting = !pass.is_finished() && world.model.lock().unwrap().done.len() == 3;
        go.send(()).unwrap();
        pass.join().unwrap();
        waiting
    });
    assert!(waiting);
    stuck.unwrap().wait().unwrap();
    world.settle();
    world.check_end();
}

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() };
    if asked { config } else { ProptestConfig { cases: 48, ..config } }
}

#[test]
fn g8_an_event_that_had_finished_is_not_blamed_for_a_death_after_it() {
    let sizes =
        Sizes { batch_events: 512, run_ahead: 2_048, flush_at_once: false, handler_batch: 1, park: false, threads: 1 };
    let mut world = World::new(sizes);
    let dies = || Step::Script(0, vec![Outcome::Die; 2]);
    // It runs well while the lane single-steps; then the process dies, idle. The script would kill twice more.
    let steps = [
        Step::Pass,
        Step::Crash,
        Step::Commit(1, 1),
        Step::Pass,
        Step::Pass,
        Step::Crash,
        dies(),
        Step::Pass,
        Step::Pass,
    ];
    for step in steps.into_iter().chain(vec![Step::Pass; 3]) {
        world.take(&step);
        world.check();
    }
    world.settle();
    world.check_end();
    assert_eq!(state_of(&world.database, 1), None, "finished and written: it does not even run again");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn g3_g5_g7_g8_hold_whatever_happens_in_whatever_order(sizes in sizes(), steps in steps()) {
        let mut world = World::new(sizes);
        for step in &steps {
            world.take(step);
            world.check();
        }
        world.settle();
        world.check();
        world.check_end();
    }
}
