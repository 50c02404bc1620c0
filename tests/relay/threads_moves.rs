//! A lane of several threads that is moved, restarted with other settings or taken over while its calls are inside: per
//! key no two run at once, first completions are in order, nothing is lost.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vayu_articles::outbox::{EventFilter, ExceptionState, LaneState, NewEvent, Relay, RewindTo, Rewound};

use crate::crowd::*;
use crate::harness::*;

/// Releases of time until all exceptions are through.
fn finish(site: &Site, relay: &Relay, crowd: &Crowd, done: impl Fn(&[i64]) -> bool) {
    wait_until("all are done", || {
        site.advance(relay, 11);
        done(&crowd.done())
    });
    drain(relay);
    crowd.judge(site);
}

/// The events of each key, in turns; the first key is alone on its thread.
fn in_turns(site: &Site, rounds: usize) -> Vec<i64> {
    let keys = keys_of_each_thread();
    site.insert_all(&(0..rounds).flat_map(|_| keys.iter().map(String::as_str)).collect::<Vec<_>>())
}

/// Asks for the lane while calls are inside, lets them end, and rewinds it once it is let go.
fn rewind_during_calls(site: &Site, crowd: &Crowd, inside: &[i64], to: &RewindTo) -> Rewound {
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| site.operator().hold_and_wait("h", LONG).unwrap());
        wait_until("the hold is there", || site.operator().lanes().unwrap()[0].held);
        assert!(!waits.is_finished(), "calls are inside");
        inside.iter().for_each(|id| crowd.open(*id));
        let lane = waits.join().unwrap();
        let rewound = lane.rewind(to).unwrap();
        lane.give_back().unwrap();
        rewound
    })
}

#[test]
fn a_rewind_asked_for_during_the_calls_of_several_threads_delivers_all_again_in_order() {
    for batch in [1, 8] {
        let site = Site::new();
        let crowd = Crowd::with(batch, false);
        let ids = in_turns(&site, 5);
        // The first key has failed; of each other key a call is inside while the lane is asked for.
        crowd.ends(ids[0], End::Fail);
        let inside = &ids[2 * THREADS + 1..3 * THREADS];
        inside.iter().for_each(|id| crowd.shut(*id));
        let relay = start(&site, &crowd);
        crowd.wait_inside(inside);
        wait_until("the failure is written", || site.ids_in_state(ExceptionState::Retry) == [ids[0]]);
        let done_before: HashSet<i64> = crowd.done().into_iter().collect();
        let calls_before = crowd.state().calls.len();
        let rewound = rewind_during_calls(&site, &crowd, inside, &RewindTo::Start);
        assert_eq!(rewound.to, 0);
        crowd.ends(ids[0], End::Well);
        relay.notify();
        finish(&site, &relay, &crowd, |done| first_of_each(done.to_vec()).len() == ids.len());
        crowd.check();
        // Each event that the lane had behind it came again, and of each key in order.
        let again: Vec<i64> = crowd.state().calls[calls_before..].iter().map(|call| call.id).collect();
        assert!(done_before.iter().all(|id| again.contains(id)), "batch {batch}: {done_before:?} not in {again:?}");
        for key in 1..THREADS {
            let of_key: Vec<i64> = ids.iter().copied().skip(key).step_by(THREADS).collect();
            let order: Vec<i64> = again.iter().copied().filter(|id| of_key.contains(id)).collect();
            let last = order.windows(of_key.len()).next_back().unwrap();
            assert_eq!(last, of_key, "batch {batch}: {again:?}");
        }
        assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
        stop(&relay);
    }
}

#[test]
fn after_a_rewind_of_several_threads_what_fails_now_goes_before_what_was_open() {
    let site = Site::new();
    let crowd = Crowd::with(1, true);
    let keys = keys_of_each_thread();
    let of_first = site.insert_all(&[keys[0].as_str(); 6]);
    let others = site.insert_all(&[keys[1].as_str(), keys[2].as_str(), keys[3].as_str()]);
    crowd.ends(of_first[3], End::Fail);
    let relay = start(&site, &crowd);
    wait_until("the fourth has failed and others wait", || {
        site.ids_in_state(ExceptionState::Retry) == [of_first[3]]
            && site.ids_in_state(ExceptionState::Waiting) == of_first[4..]
    });
    drain(&relay);
    // It is due, and inside, when the lane is asked for: it fails once more.
    crowd.shut(of_first[3]);
    site.advance(&relay, 5);
    crowd.wait_inside(&[of_first[3]]);
    crowd.ends(of_first[1], End::Fail);
    rewind_during_calls(&site, &crowd, &[of_first[3]], &RewindTo::Start);
    // All that waits is due by now; the second fails first.
    site.clock.advance(100_000);
    relay.notify();
    wait_until("the second is the head", || {
        relay.notify();
        site.ids_in_state(ExceptionState::Retry) == [of_first[1]]
    });
    let before = crowd.state().calls.len();
    wait_until("all behind it wait", || site.ids_in_state(ExceptionState::Waiting) == of_first[2..]);
    crowd.ends(of_first[1], End::Well);
    crowd.ends(of_first[3], End::Well);
    finish(&site, &relay, &crowd, |done| of_first.iter().chain(&others).all(|id| done.contains(id)));
    let then: Vec<i64> = crowd.state().calls[before..].iter().map(|call| call.id).collect();
    let of_key: Vec<i64> = then.into_iter().filter(|id| of_first.contains(id)).collect();
    assert_eq!(of_key, of_first[1..]);
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
    stop(&relay);
}

/// A relay of another program with the same handler, in so many threads, under other settings.
fn start_anew(site: &Site, crowd: &Arc<Crowd>, threads: usize, types: &[&str], parks: bool, max_calls: u32) -> Relay {
    let filter = EventFilter::Types(types.iter().map(|name| (*name).to_owned()).collect());
    let handler = Anew { crowd: crowd.clone(), filter, parks, threads };
    let mut options = vayu_articles::outbox::RelayOptions::default();
    options.policy.max_calls = max_calls;
    options.policy.backoff_base = Duration::from_secs(1);
    site.relay().handler("h", handler).options(options).start().unwrap()
}

/// Stops a relay whose calls are inside while another one stands by; ends the calls.
fn hand_over(first: &Relay, second: &Relay, crowd: &Crowd, inside: &[i64]) {
    wait_until("the second stands by", || matches!(second.status()[0].state, LaneState::Standby { .. }));
    std::thread::scope(|scope| {
        let stops = scope.spawn(|| stop(first));
        second.notify();
        assert!(matches!(second.status()[0].state, LaneState::Standby { .. }), "calls are inside");
        inside.iter().for_each(|id| crowd.open(*id));
        stops.join().unwrap();
    });
}

#[test]
fn a_change_of_filter_while_several_threads_run_leaves_what_is_open_in_order() {
    a_change_of_filter_while_the_lane_runs_leaves_what_is_open_in_order(THREADS);
}

#[test]
fn a_change_of_filter_while_one_thread_runs_leaves_what_is_open_in_order() {
    a_change_of_filter_while_the_lane_runs_leaves_what_is_open_in_order(1);
}

fn a_change_of_filter_while_the_lane_runs_leaves_what_is_open_in_order(threads: usize) {
    let site = Site::new();
    let crowd = Crowd::new();
    let keys = keys_of_each_thread();
    let insert = |event_type: &str, key: &str| site.insert_event(NewEvent::from_json(event_type, "{}").key(key));
    // One key whose events the old filter takes, and the new one does not, and the other way round.
    let old: Vec<i64> = (0..4).map(|_| insert("old.v1", &keys[0])).collect();
    let unseen: Vec<i64> = (0..2).map(|_| insert("new.v1", &keys[0])).collect();
    let inside: Vec<i64> = keys[1..threads.max(2)].iter().map(|key| insert("old.v1", key)).collect();
    crowd.ends(old[0], End::Fail);
    inside.iter().for_each(|id| crowd.shut(*id));
    let first = start_anew(&site, &crowd, threads, &["old.*"], false, 5);
    crowd.wait_inside(&inside);
    if threads > 1 {
        // A thread of its own writes while calls are inside.
        wait_until("the rows are there", || site.ids_in_state(ExceptionState::Waiting) == old[1..]);
    }
    let second = start_anew(&site, &crowd, threads, &["new.*"], false, 5);
    hand_over(&first, &second, &crowd, &inside);
    // From here on the new filter counts: later ones wait behind what is open, whatever its type.
    let new: Vec<i64> = (0..3).map(|_| insert("new.v1", &keys[0])).collect();
    let passed: Vec<i64> = (0..3).map(|_| insert("old.v1", &keys[0])).collect();
    wait_until("they wait", || site.ids_in_state(ExceptionState::Waiting) == [&old[1..], &new[..]].concat());
    crowd.ends(old[0], End::Well);
    wait_until("all are done", || {
        site.advance(&second, 11);
        crowd.done().len() == old.len() + inside.len() + new.len()
    });
    drain(&second);
    crowd.check_alone();
    let of_key: Vec<i64> = crowd.done().into_iter().filter(|id| !inside.contains(id)).collect();
    assert_eq!(of_key, [old, new].concat());
    assert!(
        unseen.iter().chain(&passed).all(|id| crowd.calls_of(*id).is_empty()),
        "the filter of its time leaves them out"
    );
    let stored = site.count("SELECT event_types = '[\"new.*\"]' FROM lanes");
    assert_eq!(stored, 1);
    stop(&second);
}

#[test]
fn a_change_of_policy_while_several_threads_run_counts_for_later_failures_and_keeps_the_order() {
    a_change_of_policy_while_the_lane_runs_counts_for_later_failures_and_keeps_the_order(THREADS);
}

#[test]
fn a_change_of_policy_while_one_thread_runs_counts_for_later_failures_and_keeps_the_order() {
    a_change_of_policy_while_the_lane_runs_counts_for_later_failures_and_keeps_the_order(1);
}

fn a_change_of_policy_while_the_lane_runs_counts_for_later_failures_and_keeps_the_order(threads: usize) {
    let site = Site::new();
    let crowd = Crowd::new();
    let keys = keys_of_each_thread();
    let of = |key: &str| site.insert_all(&[key; 4]);
    let (one, two, three) = (of(&keys[0]), of(&keys[1]), of(&keys[2]));
    // Once given up under the old policy; one that fails and goes on failing; one that is inside during the change.
    crowd.ends(one[0], End::Poison);
    crowd.ends(two[0], End::Fail);
    let inside = if threads > 1 { &three[..1] } else { &[] };
    inside.iter().for_each(|id| crowd.shut(*id));
    crowd.ends(three[0], End::Fail);
    let first = start_anew(&site, &crowd, threads, &["test.*"], false, 5);
    crowd.wait_inside(inside);
    let failed = |times: u32| {
        wait_until("it has failed so often", || {
            first.notify();
            site.in_state(ExceptionState::Retry).iter().any(|row| row.outbox_id == two[0] && row.attempts == times)
        });
    };
    failed(1);
    site.advance(&first, 1);
    failed(2);
    // From here on three calls are the most, and what is given up holds its key back.
    let second = start_anew(&site, &crowd, threads, &["test.*"], true, 3);
    hand_over(&first, &second, &crowd, inside);
    wait_until("both are parked after their third call", || {
        site.advance(&second, 11);
        site.ids_in_state(ExceptionState::Parked) == [two[0], three[0]]
    });
    drain(&second);
    crowd.check_alone();
    assert_eq!(
        site.ids_in_state(ExceptionState::DeadLetter),
        [one[0]],
        "given up under the old policy, and it stays so"
    );
    assert_eq!(site.ids_in_state(ExceptionState::Waiting), [&two[1..], &three[1..]].concat());
    assert_eq!((crowd.calls_of(two[0]).len(), crowd.calls_of(three[0]).len()), (3, 3));
    assert_eq!(crowd.done(), one[1..], "nothing overtakes what is parked");
    // Back again: what is parked stays parked until somebody resumes its key; then all follows in order.
    let third = start_anew(&site, &crowd, threads, &["test.*"], false, 5);
    hand_over(&second, &third, &crowd, &[]);
    drain(&third);
    assert_eq!(site.ids_in_state(ExceptionState::Parked), [two[0], three[0]]);
    crowd.ends(two[0], End::Well);
    site.operator().replay(two[0], "h", false).unwrap();
    site.operator().resume("h", &keys[2]).unwrap();
    finish(&site, &third, &crowd, |done| two.iter().chain(&three[1..]).all(|id| done.contains(id)));
    assert_eq!(site.ids_in_state(ExceptionState::DeadLetter), [one[0], three[0]]);
    stop(&third);
}

#[test]
fn beside_a_stuck_writer_several_threads_run_up_to_the_limit_and_go_on_with_it() {
    const RUN_AHEAD: usize = 20;
    let site = Site::new();
    let crowd = Crowd::new();
    let relay = start_with(&site, &crowd, |options| {
        options.run_ahead = RUN_AHEAD;
        options.flush_after = Duration::ZERO;
    });
    drain(&relay);
    (1..=50 * THREADS as i64).for_each(|id| crowd.shut(id));
    let ids = in_turns(&site, 50);
    relay.notify();
    crowd.wait_inside(&ids[..THREADS]);
    let (go, gone) = crossbeam_channel::bounded::<()>(0);
    let (entered, inside) = crossbeam_channel::bounded::<()>(1);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            site.database.writer().transact(move |_| {
                let _ = entered.send(());
                let _ = gone.recv();
                Ok::<_, vayu_articles::rusqlite::Error>(())
            })
        });
        inside.recv_timeout(LONG).unwrap();
        ids.iter().for_each(|id| crowd.open(*id));
        crowd.wait("the limit is reached", |state| state.done.len() >= RUN_AHEAD);
        // However often it is woken: nothing beyond the limit is called.
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            relay.notify();
            std::thread::park_timeout(Duration::from_millis(5));
        }
        assert_eq!(crowd.done().len(), RUN_AHEAD);
        assert_eq!(crowd.state().calls.len(), RUN_AHEAD);
        drop(go);
        stuck.join().unwrap().unwrap();
    });
    drain(&relay);
    crowd.check();
    crowd.judge(&site);
    assert_eq!(crowd.done().len(), ids.len(), "no event twice");
    stop(&relay);
}

#[test]
fn beside_a_stuck_writer_due_exceptions_of_several_threads_run_up_to_a_bound_and_each_once() {
    const RUN_AHEAD: usize = 20;
    const DUE: usize = 3_000;
    let site = Site::new();
    let relay = start(&site, &Crowd::new());
    drain(&relay);
    stop(&relay);
    site.foreign(&format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {DUE}) \
         INSERT INTO event_outbox (event_type, event_key, payload) SELECT 't', 'key-' || (i % 700), '{{}}' FROM n; \
         INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at) \
         SELECT id, 'h', event_key, iif(id <= 700, 'retry', 'waiting'), iif(id <= 700, 0, NULL), 0, 0 FROM event_outbox; \
         UPDATE lanes SET cursor = {DUE}"
    ))
    .unwrap();
    let crowd = Crowd::new();
    (1..=700).for_each(|id| crowd.shut(id));
    let relay = start_with(&site, &crowd, |options| {
        options.run_ahead = RUN_AHEAD;
        options.flush_after = Duration::ZERO;
    });
    crowd.wait("all threads are inside", |state| state.running.len() == THREADS);
    let (go, gone) = crossbeam_channel::bounded::<()>(0);
    let (entered, inside) = crossbeam_channel::bounded::<()>(1);
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            site.database.writer().transact(move |_| {
                let _ = entered.send(());
                let _ = gone.recv();
                Ok::<_, vayu_articles::rusqlite::Error>(())
            })
        });
        inside.recv_timeout(LONG).unwrap();
        (1..=700).for_each(|id| crowd.open(id));
        crowd.wait("the limit is reached", |state| state.done.len() >= RUN_AHEAD);
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            relay.notify();
            std::thread::park_timeout(Duration::from_millis(5));
        }
        // What the threads are given between two looks goes beyond the limit, and nothing more.
        let done = crowd.done().len();
        assert!(done <= RUN_AHEAD + 64 * 16 + THREADS * 16, "{done} are done");
        drop(go);
        stuck.join().unwrap().unwrap();
    });
    wait_until("all are done", || {
        relay.notify();
        crowd.done().len() == DUE
    });
    drain(&relay);
    crowd.check();
    crowd.judge(&site);
    assert_eq!(crowd.state().calls.len(), DUE, "no event twice");
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0);
    stop(&relay);
}
