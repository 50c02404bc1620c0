//! A hold that comes while a lane is busy with exceptions or finds out about an outage: it is noticed within a bounded
//! number of calls, and no call is made twice for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use vayu_articles::outbox::{
    DispatchError, Event, ExceptionState, HandlerFn, LaneState, Operator, Relay, RelayOptions,
};

use crate::harness::*;

/// Calls of each event; at one of them an operator asks for the lane, while the call is inside.
struct Asking {
    operator: Operator,
    calls: Mutex<Vec<i64>>,
    /// The lane is asked for in this call, counted from 1.
    at_call: usize,
    /// How often an event's transport is down yet.
    down: Mutex<HashMap<i64, usize>>,
}

impl Asking {
    fn new(site: &Site, at_call: usize, down: &[(i64, usize)]) -> Arc<Self> {
        let down = Mutex::new(down.iter().copied().collect());
        Arc::new(Self { operator: site.operator(), calls: Mutex::default(), at_call, down })
    }

    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(event.id);
        if calls.len() == self.at_call {
            self.operator.hold("h").unwrap();
        }
        match self.down.lock().unwrap().get_mut(&event.id) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(DispatchError::unavailable("told to be down"))
            }
            _ => Ok(()),
        }
    }

    fn calls(&self) -> Vec<i64> {
        self.calls.lock().unwrap().clone()
    }

    fn start(self: &Arc<Self>, site: &Site, threads: usize, options: RelayOptions) -> Relay {
        let inner = self.clone();
        let handler = HandlerFn::new(move |event: &Event| inner.handle(event)).concurrency(threads);
        site.relay().handler("h", handler).options(options).start().unwrap()
    }
}

fn wait_held(relay: &Relay) {
    wait_until("the lane is held", || relay.status()[0].state == LaneState::Held);
}

/// That nothing depends on the flush's time.
fn untimed() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.flush_after = Duration::from_secs(3_600);
    options
}

#[test]
fn a_hold_is_noticed_among_thousands_of_due_exceptions_within_a_bounded_number_of_calls() {
    const DUE: usize = 5_000;
    for (threads, flush_events, run_ahead) in [(1, 32, 64), (1, 1_024, 2_048), (4, 32, 64), (4, 1_024, 2_048)] {
        let site = Site::new();
        let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
        drain(&relay);
        stop(&relay);
        site.foreign(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {DUE}) \
             INSERT INTO event_outbox (event_type, event_key, payload) SELECT 't', 'key-' || i, '{{}}' FROM n; \
             INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at) \
             SELECT id, 'h', event_key, 'retry', 0, 0, 0 FROM event_outbox; UPDATE lanes SET cursor = {DUE}"
        ))
        .unwrap();
        let handler = Asking::new(&site, 10, &[]);
        let mut options = untimed();
        (options.flush_events, options.run_ahead) = (flush_events, run_ahead);
        let relay = handler.start(&site, threads, options);
        wait_held(&relay);
        // What was unwritten when it came, what may come together until the writer has answered, and what the threads
        // have in their hands.
        let bound = 10 + flush_events + run_ahead + (threads - 1) * 1_024;
        let calls = handler.calls().len();
        assert!(calls <= bound.min(DUE), "{threads} threads: {calls} calls, {bound} at most");
        assert!(calls < DUE, "{threads} threads: the hold was not noticed");
        assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
        assert_eq!(site.count("SELECT count(*) FROM deliveries"), (DUE - calls) as i64, "all that was done is written");
        site.operator().release("h").unwrap();
        wait_until("the others are done", || {
            relay.notify();
            handler.calls().len() == DUE
        });
        stop(&relay);
        let mut calls = handler.calls();
        calls.sort_unstable();
        assert_eq!(calls, (1..=DUE as i64).collect::<Vec<_>>(), "each once");
    }
}

/// The lane's owner is dead, so that it single-steps: each call is preceded by a flush, which sees the hold.
fn with_dead_owner(site: &Site) {
    let dead = "33333333-3333-4333-8333-333333333333";
    std::fs::write(site.folder.path().join(format!("site.db-owner-{dead}.lock")), "").unwrap();
    site.foreign(&format!(
        "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor, owner, owned_since) \
         VALUES ('h', '[\"*\"]', 'continue', 0, '{dead}', 0)"
    ))
    .unwrap();
}

#[test]
fn a_hold_that_comes_while_an_outage_is_told_from_a_dead_address_repeats_no_probe() {
    for threads in [1, 4] {
        for single_steps in [false, true] {
            // At the first call, at the probe, and when the first is tried once more.
            for at_call in 1..=3 {
                let site = Site::new();
                let ids = site.insert_all(&["down", "fine", "fine"]);
                if single_steps {
                    with_dead_owner(&site);
                }
                // With several threads it is called once beside the others before.
                let handler = Asking::new(&site, at_call, &[(ids[0], 2 + usize::from(threads > 1 && !single_steps))]);
                let relay = handler.start(&site, threads, RelayOptions::default());
                wait_held(&relay);
                site.operator().release("h").unwrap();
                wait_until("all are done", || {
                    site.advance(&relay, 121);
                    let done = "SELECT count(*) FROM deliveries WHERE state NOT IN ('done')";
                    site.count(done) == 0 && site.count("SELECT cursor FROM lanes") == ids[2]
                });
                drain(&relay);
                stop(&relay);
                let calls = handler.calls();
                let case = format!("{threads} threads, single steps {single_steps}, asked at {at_call}: {calls:?}");
                for fine in &ids[1..] {
                    assert_eq!(calls.iter().filter(|id| *id == fine).count(), 1, "{case}");
                }
                let place = |id: i64| calls.iter().position(|call| *call == id);
                assert!(place(ids[1]) < place(ids[2]), "{case}");
                assert!(site.ids_in_state(ExceptionState::DeadLetter).is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn a_hold_during_the_probe_among_exceptions_repeats_none_of_them() {
    for at_call in 1..=3 {
        let site = Site::new();
        let ids = site.insert_all(&["a", "b", "c"]);
        let failing = Scripted::new();
        ids.iter().for_each(|id| failing.script(*id, [Step::Fail]));
        let relay = site.relay().shared_handler("h", failing).start().unwrap();
        drain(&relay);
        stop(&relay);
        assert_eq!(site.ids_in_state(ExceptionState::Retry), ids);
        site.clock.advance(5_000);
        let handler = Asking::new(&site, at_call, &[(ids[0], 1)]);
        // Each outcome is written at once, so that the hold is seen at the next opportunity.
        let mut options = RelayOptions::default();
        options.flush_after = Duration::ZERO;
        let relay = handler.start(&site, 1, options);
        wait_held(&relay);
        site.operator().release("h").unwrap();
        wait_until("all are done", || {
            site.advance(&relay, 1);
            site.ids_in_state(ExceptionState::Done) == ids
        });
        stop(&relay);
        let calls = handler.calls();
        assert_eq!(calls.iter().filter(|id| **id == ids[1]).count(), 1, "asked at {at_call}: {calls:?}");
        assert_eq!(calls.iter().filter(|id| **id == ids[2]).count(), 1, "asked at {at_call}: {calls:?}");
        assert_eq!(calls.iter().filter(|id| **id == ids[0]).count(), 2, "asked at {at_call}: {calls:?}");
    }
}
