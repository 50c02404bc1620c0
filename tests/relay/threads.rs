//! A lane with several threads: one key on one thread and in order, the cursor at the lowest unfinished.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use vayu_articles::outbox::{DispatchError, Event, ExceptionState, HandlerFn, LaneState, NewEvent};

use crate::crowd::*;
use crate::harness::*;

#[test]
fn g05_a_slow_key_holds_up_nobody_on_another_thread_and_the_cursor_is_the_lowest_unfinished() {
    let keys = keys_of_each_thread();
    let site = Site::new();
    let crowd = Crowd::new();
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
    let crowd = Crowd::new();
    let ids: Vec<i64> = (0..64).map(|_| site.insert_event(NewEvent::from_json("test.happened.v1", "{}"))).collect();
    ids.iter().for_each(|id| crowd.shut(*id));
    let relay = start(&site, &crowd);
    crowd.wait("all threads are busy", |state| state.running.len() == THREADS);
    ids.iter().for_each(|id| crowd.open(*id));
    drain(&relay);
    assert_eq!(crowd.state().most_at_once, THREADS);
    assert_eq!(crowd.done().len(), 64);
    stop(&relay);
}

#[test]
fn case_c42_failures_keep_the_order_of_their_key_and_delay_no_other_thread() {
    for batch in [1, 8] {
        let site = Site::new();
        let crowd = Crowd::with(batch, false);
        let keys: Vec<String> = (0..8).map(|n| format!("key-{n}")).collect();
        let mut of_key: HashMap<usize, Vec<i64>> = HashMap::new();
        for round in 0..10 {
            for (n, key) in keys.iter().enumerate() {
                let id = site.insert(key);
                of_key.entry(n).or_default().push(id);
                if n < 3 && round % 4 == 1 {
                    crowd.state().failing.insert(id, 2);
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
    let crowd = Crowd::new();
    crowd.state().down = true;
    let ids: Vec<i64> = (0..20).map(|n| site.insert(&format!("key-{n}"))).collect();
    let relay = start(&site, &crowd);
    wait_until("the lane pauses", || matches!(relay.status()[0].state, LaneState::Paused { .. }));
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "an outage writes no rows");
    crowd.state().down = false;
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
    let crowd = Crowd::new();
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
    let crowd = Crowd::new();
    let slow = site.insert(&keys[0]);
    let quick = site.insert(&keys[1]);
    crowd.shut(slow);
    crowd.state().failing.insert(slow, 1);
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
    let crowd = Crowd::with(1, true);
    let ids = site.insert_all(&["a", "b", "a", "b", "a", "b"]);
    crowd.state().failing.extend([(ids[0], 3), (ids[1], 3)]);
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
    let crowd = Crowd::new();
    let first = site.insert("a");
    let rest = site.insert_all(&["a"; 3_000]);
    crowd.state().failing.insert(first, 1);
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
