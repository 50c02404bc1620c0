//! A transport that is down costs nothing; one dead address does not stop a lane.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, unbounded};
use vayu_articles::clock::Clock;
use vayu_articles::outbox::{DispatchError, Event, ExceptionState, Handler, LaneState, NewEvent, RelayOptions};

use crate::harness::{LONG, Scripted, Site, Step, drain, stop, wait_until};

fn is_paused(relay: &vayu_articles::outbox::Relay) -> bool {
    matches!(relay.status()[0].state, LaneState::Paused { .. })
}

#[test]
fn g07_an_outage_pauses_the_lane_spends_nothing_and_ends_by_itself() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b", "c"]);
    const PROBES: usize = 6;
    for id in &ids[..2] {
        handler.script(*id, vec![Step::Down(None); PROBES]);
    }
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    // Each probe: the first event, then one of another key.
    for probe in 1..=PROBES {
        handler.wait_calls(2 * probe);
        wait_until("the lane pauses", || is_paused(&relay));
        // Counted from now: the pause before this one is over, but may still be shown.
        let written = format!("SELECT coalesce(paused_until, 0) > {} FROM lanes", site.clock.now_ms());
        wait_until("the pause is written", || site.count(&written) == 1);
        assert_eq!(handler.calls().len(), 2 * probe, "a single probe per pause");
        assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "no row per event");
        assert_eq!(site.count("SELECT cursor FROM lanes"), 0, "the cursor stands still");
        site.advance(&relay, 121);
    }
    drain(&relay);
    assert_eq!(handler.done(), ids);
    assert!(handler.calls().iter().all(|call| call.attempts == 0));
    assert_eq!(site.count("SELECT paused_until IS NULL AND outage_since IS NULL FROM lanes"), 1);
    assert_eq!(relay.status()[0].state, LaneState::Running);
    stop(&relay);
}

#[test]
fn one_dead_address_counts_as_a_failure_of_its_own_event() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["dead", "dead", "b", "c", "d"]);
    handler.script(ids[0], vec![Step::Down(None); 100]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), ids[2..], "the others are delivered");
    assert_eq!(handler.ids(), [ids[0], ids[2], ids[0], ids[3], ids[4]], "tried, probed, tried once more");
    let retry = site.in_state(ExceptionState::Retry);
    assert_eq!((retry[0].outbox_id, retry[0].attempts), (ids[0], 1));
    assert_eq!(site.ids_in_state(ExceptionState::Waiting), [ids[1]]);
    // With nothing else to try, nobody can tell: the lane pauses and asks again.
    site.advance(&relay, 5);
    wait_until("the lane pauses", || is_paused(&relay));
    assert_eq!(site.in_state(ExceptionState::Retry)[0].attempts, 1);
    // Work for another key arrives: the dead address is told apart again, and ends as a dead letter.
    for round in 0..8 {
        site.insert(&format!("other-{round}"));
        site.advance(&relay, 121);
        std::thread::park_timeout(Duration::from_millis(1));
        wait_until("the other key is delivered", || {
            site.count("SELECT max(id) - cursor FROM event_outbox, lanes") == 0
        });
    }
    wait_until("it is given up", || site.ids_in_state(ExceptionState::DeadLetter) == [ids[0]]);
    wait_until("what waited behind it follows", || handler.done().contains(&ids[1]));
    stop(&relay);
}

/// Thousands of events of one dead address in a row: what follows them is farther away than a pass reads, than may run
/// ahead, and than a page of the search.
fn holds_no_lane(events: usize, threads: usize, batch_events: usize) {
    struct OneDeadAddress {
        threads: usize,
        revived: AtomicBool,
        calls: Sender<(i64, bool)>,
    }
    impl Handler for OneDeadAddress {
        fn handle(&self, event: &Event) -> Result<(), DispatchError> {
            let down = event.key.as_deref() == Some("dead") && !self.revived.load(Ordering::SeqCst);
            self.calls.send((event.id, !down)).unwrap();
            if down { Err(DispatchError::unavailable("nobody answers")) } else { Ok(()) }
        }
        fn concurrency(&self) -> usize {
            self.threads
        }
    }
    let site = Site::new();
    let (sent, calls) = unbounded();
    let handler = Arc::new(OneDeadAddress { threads, revived: AtomicBool::new(false), calls: sent });
    let ids = site.insert_all(&vec!["dead"; events]);
    let last = site.insert_event(NewEvent::from_json("test.happened.v1", "{}"));
    let mut others = site.insert_all(&["b", "b", "c"]);
    let mut options = RelayOptions::default();
    options.batch_events = batch_events;
    options.policy.max_calls = 1_000;
    let relay = site.relay().shared_handler("h", handler.clone()).options(options).start().unwrap();
    let is_drained = || relay.wait_drained(Instant::now() + Duration::from_millis(5));
    while !is_drained() {
        wait_until("it is drained or paused", || is_paused(&relay) || is_drained());
        // Beside the first call other threads may have had all the rest before: then there is nothing left to try, but what
        // comes next.
        if threads > 1 && is_paused(&relay) {
            others.extend(site.insert_all(&["later"]));
            site.advance(&relay, 121);
        }
    }
    let seen: Vec<_> = calls.try_iter().collect();
    let done: Vec<i64> = seen.iter().filter(|(_, ok)| *ok).map(|(id, _)| *id).collect();
    assert_eq!(done.iter().collect::<BTreeSet<_>>(), others.iter().chain([&last]).collect());
    assert_eq!(done.len(), others.len() + 1, "each once");
    let failed: Vec<i64> = seen.iter().filter(|(_, ok)| !ok).map(|(id, _)| *id).collect();
    assert!(failed.iter().all(|id| *id == ids[0]), "only the first is tried: {failed:?}");
    assert!(threads > 1 || failed.len() == 2, "before the other and after it: {failed:?}");
    handler.revived.store(true, Ordering::SeqCst);
    site.advance(&relay, 121);
    let healed: Vec<i64> = (0..events).map(|_| calls.recv_timeout(LONG).unwrap().0).collect();
    assert_eq!(healed, ids, "in order");
    stop(&relay);
}

#[test]
fn thousands_of_events_of_one_dead_address_in_a_row_hold_no_lane() {
    holds_no_lane(5_000, 1, 512);
}

#[test]
fn nor_one_with_several_threads_nor_one_that_reads_a_single_event_at_a_time() {
    holds_no_lane(1_100, 3, 512);
    holds_no_lane(1_100, 1, 1);
}

#[test]
fn what_comes_after_the_end_of_the_log_tells_a_dead_address_too() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["dead"; 1_500]);
    handler.script(ids[0], vec![Step::Down(None); 100]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    wait_until("the lane pauses", || is_paused(&relay));
    for round in 1..4 {
        site.advance(&relay, 121);
        handler.wait_calls(round + 1);
        assert_eq!(handler.ids(), vec![ids[0]; round + 1], "nothing else to try");
        let written = format!("SELECT coalesce(paused_until, 0) > {} FROM lanes", site.clock.now_ms());
        wait_until("the pause is written", || site.count(&written) == 1);
    }
    // Put where an earlier search has been already: an operator gives one of the key up, which changes nothing.
    site.operator().discard(ids[700], "h", "not wanted").unwrap();
    let other = site.insert("other");
    site.advance(&relay, 121);
    wait_until("the other is delivered", || handler.done() == [other]);
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[0]]);
    stop(&relay);
}

#[test]
fn the_other_side_may_ask_to_be_left_alone_up_to_a_cap() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    let asked = |seconds| Step::Down(Some(Duration::from_secs(seconds)));
    handler.script(id, [asked(60), asked(99_999)]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(1);
    wait_until("the lane pauses", || is_paused(&relay));
    let LaneState::Paused { until, .. } = relay.status()[0].state.clone() else { panic!() };
    assert_eq!(until, crate::harness::START_MS + 60_000);
    site.advance(&relay, 60);
    handler.wait_calls(2);
    wait_until("the lane pauses for the cap", || {
        matches!(relay.status()[0].state, LaneState::Paused { until, .. }
            if until == crate::harness::START_MS + 60_000 + 120_000)
    });
    site.advance(&relay, 120);
    handler.wait_calls(3);
    drain(&relay);
    assert_eq!(handler.done(), [id]);
    stop(&relay);
}

#[test]
fn a_pause_does_not_outlast_a_clock_that_was_set_back() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Down(None)]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    wait_until("the lane pauses", || is_paused(&relay));
    site.advance(&relay, -365 * 86_400);
    handler.wait_calls(2);
    assert_eq!(handler.done(), [id]);
    stop(&relay);
}

#[test]
fn a_stop_during_a_pause_is_quick_and_the_next_start_tries_at_once() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert_event(NewEvent::from_json("t.v1", "{}"));
    handler.script(id, [Step::Down(None)]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    wait_until("the lane pauses", || is_paused(&relay));
    stop(&relay);
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), [id]);
    stop(&relay);
}

#[test]
fn g06_a_handler_that_is_down_delays_no_other() {
    let site = Site::new();
    let (down, fine) = (Scripted::new(), Scripted::new());
    let ids = site.insert_all(&["a", "b"]);
    for id in &ids {
        down.script(*id, vec![Step::Down(None); 50]);
    }
    let relay = site.relay().shared_handler("down", down.clone()).shared_handler("fine", fine.clone()).start().unwrap();
    fine.wait_calls(2);
    wait_until("the lane pauses", || is_paused(&relay));
    let more = site.insert("c");
    fine.wait_calls(3);
    assert_eq!(fine.done(), [ids[0], ids[1], more]);
    stop(&relay);
}
