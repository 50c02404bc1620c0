//! A lane with several threads: one key on one thread and in order, the cursor at the lowest unfinished.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Instant;

use vayu_articles::outbox::{
    DispatchError, Event, ExceptionState, Handler, HandlerFn, LaneState, NewEvent, OnDeadLetter, Relay,
};

use crate::harness::*;

const THREADS: usize = 4;

/// Remembers each call; some wait until they are let go.
#[derive(Default)]
struct Crowd {
    state: Mutex<State>,
    changed: Condvar,
    batch: usize,
    parks: bool,
}

#[derive(Default)]
struct State {
    shut: HashSet<i64>,
    running: HashMap<i64, Option<String>>,
    most_at_once: usize,
    /// Completed, in order.
    done: Vec<i64>,
    threads: HashMap<String, HashSet<ThreadId>>,
    /// How often an event shall fail yet.
    failing: HashMap<i64, usize>,
    down: bool,
    breaches: Vec<String>,
}

impl Crowd {
    fn shut(&self, id: i64) {
        self.state.lock().unwrap().shut.insert(id);
    }

    fn open(&self, id: i64) {
        self.state.lock().unwrap().shut.remove(&id);
        self.changed.notify_all();
    }

    fn wait(&self, what: &str, mut holds: impl FnMut(&State) -> bool) {
        let state = self.state.lock().unwrap();
        let (state, timeout) = self.changed.wait_timeout_while(state, LONG, |state| !holds(state)).unwrap();
        assert!(!timeout.timed_out(), "waited too long until {what}: {:?} done, {:?} run", state.done, state.running);
    }

    fn done(&self) -> Vec<i64> {
        self.state.lock().unwrap().done.clone()
    }

    fn check(&self) {
        let state = self.state.lock().unwrap();
        assert!(state.breaches.is_empty(), "{:?}", state.breaches);
        for (key, threads) in &state.threads {
            assert_eq!(threads.len(), 1, "{key} ran on several threads");
        }
    }
}

impl Handler for Crowd {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let mut state = self.state.lock().unwrap();
        if let Some(key) = &event.key {
            if state.running.values().any(|other| other.as_ref() == Some(key)) {
                state.breaches.push(format!("two events of {key} run at once"));
            }
            state.threads.entry(key.clone()).or_default().insert(std::thread::current().id());
        }
        state.running.insert(event.id, event.key.clone());
        state.most_at_once = state.most_at_once.max(state.running.len());
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.shut.contains(&event.id)).unwrap();
        state.running.remove(&event.id);
        let failing = state.failing.get_mut(&event.id).filter(|left| **left > 0).map(|left| *left -= 1).is_some();
        let outcome = match (state.down, failing) {
            (true, _) => Err(DispatchError::unavailable("down")),
            (_, true) => Err(DispatchError::retry("told to fail")),
            _ => {
                state.done.push(event.id);
                Ok(())
            }
        };
        drop(state);
        self.changed.notify_all();
        outcome
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

fn start(site: &Site, crowd: &Arc<Crowd>) -> Relay {
    start_as("h", site, crowd)
}

fn start_as(name: &str, site: &Site, crowd: &Arc<Crowd>) -> Relay {
    site.relay().shared_handler(name, crowd.clone()).start().unwrap()
}

/// Keys that stand in different lines, as many as there are threads: each is the first of its line to run.
fn keys_of_each_thread() -> Vec<String> {
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    let keys: Vec<String> = (0..64).map(|n| format!("key-{n}")).collect();
    keys.iter().for_each(|key| {
        site.insert(key);
    });
    let relay = start(&site, &crowd);
    drain(&relay);
    stop(&relay);
    let mut of_thread: HashMap<ThreadId, String> = HashMap::new();
    for (key, threads) in &crowd.state.lock().unwrap().threads {
        let thread = threads.iter().next().unwrap();
        of_thread.entry(*thread).or_insert_with(|| key.clone());
    }
    assert_eq!(of_thread.len(), THREADS, "64 keys leave no thread without work");
    of_thread.into_values().collect()
}

#[test]
fn g05_a_slow_key_holds_up_nobody_on_another_thread_and_the_cursor_is_the_lowest_unfinished() {
    let keys = keys_of_each_thread();
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    let slow = site.insert(&keys[0]);
    crowd.shut(slow);
    let relay = start(&site, &crowd);
    crowd.wait("the slow one runs", |state| state.running.contains_key(&slow));
    let behind = site.insert(&keys[0]);
    let others: Vec<i64> = (0..50).map(|n| site.insert(&keys[1 + n % 3])).collect();
    // All of them, while the first still runs; in several reads, since they came one by one.
    crowd.wait("the others are done", |state| others.iter().all(|id| state.done.contains(id)));
    assert!(!crowd.done().contains(&behind), "the next of the slow key waits for it");
    assert!(relay.status()[0].cursor < slow, "nothing is behind the cursor that is not finished");
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0);
    crowd.open(slow);
    drain(&relay);
    crowd.check();
    assert_eq!(relay.status()[0].cursor, *others.last().unwrap());
    assert_eq!(crowd.done()[50..], [slow, behind]);
    stop(&relay);
}

#[test]
fn as_many_run_at_once_as_asked_for_and_events_without_key_anywhere() {
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    let ids: Vec<i64> = (0..64).map(|_| site.insert_event(NewEvent::from_json("test.happened.v1", "{}"))).collect();
    ids.iter().for_each(|id| crowd.shut(*id));
    let relay = start(&site, &crowd);
    crowd.wait("all threads are busy", |state| state.running.len() == THREADS);
    ids.iter().for_each(|id| crowd.open(*id));
    drain(&relay);
    assert_eq!(crowd.state.lock().unwrap().most_at_once, THREADS);
    assert_eq!(crowd.done().len(), 64);
    stop(&relay);
}

fn first_of_each(mut done: Vec<i64>) -> Vec<i64> {
    let mut seen = HashSet::new();
    done.retain(|id| seen.insert(*id));
    done
}

#[test]
fn case_c42_failures_keep_the_order_of_their_key_and_delay_no_other_thread() {
    for batch in [1, 8] {
        let site = Site::new();
        let crowd = Arc::new(Crowd { batch, ..Crowd::default() });
        let keys: Vec<String> = (0..8).map(|n| format!("key-{n}")).collect();
        let mut of_key: HashMap<usize, Vec<i64>> = HashMap::new();
        for round in 0..10 {
            for (n, key) in keys.iter().enumerate() {
                let id = site.insert(key);
                of_key.entry(n).or_default().push(id);
                if n < 3 && round % 4 == 1 {
                    crowd.state.lock().unwrap().failing.insert(id, 2);
                }
            }
        }
        let relay = start(&site, &crowd);
        let sound: Vec<i64> = (3..8).flat_map(|n| of_key[&n].clone()).collect();
        crowd.wait("the sound keys are done", |state| sound.iter().all(|id| state.done.contains(id)));
        wait_until("all are done", || {
            site.advance(&relay, 11);
            // A batch that fails is run again one by one: judged is the first completion.
            first_of_each(crowd.done()).len() == 80
        });
        drain(&relay);
        crowd.check();
        let done = first_of_each(crowd.done());
        for ids in of_key.values() {
            let order: Vec<i64> = done.iter().copied().filter(|id| ids.contains(id)).collect();
            assert_eq!(&order, ids, "batch {batch}");
        }
        assert!(site.ids_in_state(ExceptionState::Waiting).is_empty());
        stop(&relay);
    }
}

#[test]
fn g07_an_outage_of_all_pauses_a_lane_of_several_threads_and_one_dead_address_does_not() {
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    crowd.state.lock().unwrap().down = true;
    let ids: Vec<i64> = (0..20).map(|n| site.insert(&format!("key-{n}"))).collect();
    let relay = start(&site, &crowd);
    wait_until("the lane pauses", || matches!(relay.status()[0].state, LaneState::Paused { .. }));
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "an outage writes no rows");
    crowd.state.lock().unwrap().down = false;
    wait_until("it goes on", || {
        site.advance(&relay, 121);
        crowd.done().len() == ids.len()
    });
    drain(&relay);
    stop(&relay);

    let site = Site::new();
    let dead = site.insert("dead");
    let others: Vec<i64> = (0..20).map(|n| site.insert(&format!("key-{n}"))).collect();
    let handler = move |event: &Event| match event.id == dead {
        true => Err(DispatchError::unavailable("nobody there")),
        false => Ok(()),
    };
    let relay = site.relay().handler("h", HandlerFn::new(handler).concurrency(THREADS)).start().unwrap();
    drain(&relay);
    assert_eq!(relay.status()[0].cursor, *others.last().unwrap());
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [dead]);
    stop(&relay);
}

#[test]
fn a_clean_stop_waits_for_all_calls_writes_what_ran_ahead_and_leaves_no_thread() {
    let keys = keys_of_each_thread();
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    let slow = site.insert(&keys[0]);
    let quick = site.insert(&keys[1]);
    let later = site.insert(&keys[0]);
    crowd.shut(slow);
    let relay = start_as("stop-test", &site, &crowd);
    crowd.wait("the quick one is done", |state| state.done.contains(&quick) && state.running.contains_key(&slow));
    // The slow call does not end in time: it is named, its lane is not given up.
    let late = relay.stop(Instant::now()).unwrap_err();
    assert_eq!(late.handlers, ["stop-test"]);
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 1);
    crowd.open(slow);
    wait_until("the call has ended", || relay.stop(Instant::now() + LONG).is_ok());
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    assert_eq!(lane_threads(), 0, "threads are left");
    // What was done before the stop is not done again.
    let relay = start_as("stop-test", &site, &crowd);
    drain(&relay);
    assert_eq!(crowd.done(), [quick, slow, later]);
    stop(&relay);
}

/// Threads of this process whose name begins like those of this test's lanes. Other tests have theirs under other names.
fn lane_threads() -> usize {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    tasks.filter_map(name).filter(|name| name.starts_with("lane-stop-test")).count()
}

#[test]
fn a_hold_ends_the_running_calls_and_what_ran_ahead_is_not_run_again() {
    let keys = keys_of_each_thread();
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    let slow = site.insert(&keys[0]);
    let quick = site.insert(&keys[1]);
    crowd.shut(slow);
    crowd.state.lock().unwrap().failing.insert(slow, 1);
    let relay = start(&site, &crowd);
    crowd.wait("the quick one is done", |state| state.done.contains(&quick) && state.running.contains_key(&slow));
    site.operator().hold("h").unwrap();
    relay.notify();
    crowd.open(slow);
    wait_until("the lane is held", || relay.status()[0].state == LaneState::Held);
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    site.operator().release("h").unwrap();
    wait_until("it goes on", || {
        site.advance(&relay, 6);
        crowd.done().len() == 2
    });
    assert_eq!(crowd.done(), [quick, slow]);
    stop(&relay);
}

#[test]
fn operators_acts_while_several_threads_run_keep_the_order() {
    let site = Site::new();
    let crowd = Arc::new(Crowd { parks: true, ..Crowd::default() });
    let ids = site.insert_all(&["a", "b", "a", "b", "a", "b"]);
    crowd.state.lock().unwrap().failing.extend([(ids[0], 3), (ids[1], 3)]);
    let relay = start(&site, &crowd);
    wait_until("both are parked", || {
        site.advance(&relay, 11);
        site.ids_in_state(ExceptionState::Parked) == ids[..2]
    });
    site.operator().replay(ids[0], "h", false).unwrap();
    site.operator().discard(ids[1], "h", "not wanted").unwrap();
    relay.notify();
    wait_until("all are done", || {
        site.advance(&relay, 1);
        crowd.done().len() == 5
    });
    drain(&relay);
    crowd.check();
    let (of_a, of_b): (Vec<i64>, Vec<i64>) = crowd.done().into_iter().partition(|id| (id - ids[0]) % 2 == 0);
    assert_eq!((of_a, of_b), (vec![ids[0], ids[2], ids[4]], vec![ids[3], ids[5]]));
    stop(&relay);
}

#[test]
fn thousands_behind_one_key_follow_in_order_on_its_thread() {
    let site = Site::new();
    let crowd = Arc::new(Crowd::default());
    let first = site.insert("a");
    let rest = site.insert_all(&["a"; 3_000]);
    crowd.state.lock().unwrap().failing.insert(first, 1);
    let relay = start(&site, &crowd);
    drain(&relay);
    assert_eq!(site.in_state(ExceptionState::Waiting).len(), 1_000, "a page of them");
    site.advance(&relay, 6);
    wait_until("all are done", || {
        relay.notify();
        crowd.done().len() == 3_001
    });
    drain(&relay);
    crowd.check();
    assert_eq!(crowd.done(), [vec![first], rest].concat());
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
    stop(&relay);
}

#[test]
fn a_panic_on_one_thread_counts_for_its_event_alone() {
    let site = Site::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let ids: Vec<i64> = (0..10).map(|n| site.insert(&format!("key-{n}"))).collect();
    let (bad, counted) = (ids[4], calls.clone());
    let handler = move |event: &Event| {
        counted.fetch_add(1, Ordering::SeqCst);
        assert!(event.id != bad, "told to panic");
        Ok(())
    };
    let relay = site.relay().handler("h", HandlerFn::new(handler).concurrency(THREADS)).start().unwrap();
    drain(&relay);
    let retrying = site.in_state(ExceptionState::Retry);
    assert_eq!(retrying.len(), 1);
    assert!(retrying[0].outbox_id == bad && retrying[0].reason.as_deref().unwrap().contains("told to panic"));
    assert_eq!(calls.load(Ordering::SeqCst), 10);
    stop(&relay);
}
