//! "Please send me that one again": by force an event is delivered once more that the handler has behind it.

use std::sync::{Arc, Barrier};

use crossbeam_channel::unbounded;
use vayu_articles::outbox::{
    DispatchError, Event, ExceptionState, HandlerFn, NewEvent, Relay, ReplayError, Retention, RewindTo, check, prune,
};
use vayu_articles::storage::TransactError;

use crate::harness::{LONG, START_MS, Scripted, Site, Step, drain, stop};

/// What sinks let their receivers deduplicate by; they may be left out of the build.
fn message_id(event: &Event) -> String {
    if event.forced { format!("{}:r{}", event.event_id, event.replays) } else { event.event_id.clone() }
}

fn refused(site: &Site, id: i64, handler: &str, force: bool) -> ReplayError {
    match site.operator().replay(id, handler, force) {
        Err(TransactError::Task(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_delivered_event_is_sent_again_by_force_while_the_lane_runs_each_time_under_another_id() {
    let site = Site::new();
    let (sent, calls) = unbounded();
    let relay = site
        .relay()
        .handler_fn("h", move |event: &Event| {
            sent.send((event.id, message_id(event))).unwrap();
            Ok(())
        })
        .start()
        .unwrap();
    let ids = site.insert_all(&["a", "a", "b"]);
    drain(&relay);
    let first: Vec<(i64, String)> = calls.try_iter().collect();
    assert_eq!(first.iter().map(|call| call.0).collect::<Vec<_>>(), ids);
    let error = refused(&site, ids[0], "h", false);
    assert!(matches!(error, ReplayError::Delivered) && error.to_string().contains("force"), "{error}");
    for round in 1..=5 {
        site.operator().replay(ids[0], "h", true).unwrap();
        let call = calls.recv_timeout(LONG).unwrap();
        assert_eq!(call, (ids[0], format!("{}:r{round}", first[0].1)));
        drain(&relay);
        assert_eq!(site.ids_in_state(ExceptionState::Done), [ids[0]]);
        let error = refused(&site, ids[0], "h", false);
        assert!(matches!(error, ReplayError::NotDead(ExceptionState::Done)) && error.to_string().contains("force"));
    }
    assert_eq!(calls.try_iter().count(), 0, "nothing else was sent again");
    stop(&relay);
    assert!(check(&site.database).unwrap().is_clean());
}

#[test]
fn what_is_not_delivered_yet_not_wanted_or_not_there_is_refused_with_the_reason_and_leaves_no_row() {
    let site = Site::new();
    let relay = site.relay().handler("h", HandlerFn::new(|_: &Event| Ok(())).types(&["test.*"])).start().unwrap();
    let other = site.insert_event(NewEvent::from_json("other.happened.v1", "{}"));
    drain(&relay);
    stop(&relay);
    let ahead = site.insert("a");
    for (id, handler, expected) in [
        (ahead, "h", ReplayError::NotYetDelivered),
        (other, "h", ReplayError::NotWanted),
        (ahead + 1, "h", ReplayError::NotFound),
        (ahead, "hh", ReplayError::NoHandler),
    ] {
        for force in [false, true] {
            assert_eq!(refused(&site, id, handler, force).to_string(), expected.to_string());
        }
    }
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0);
}

#[test]
fn two_who_resend_an_event_at_once_send_it_once() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    let id = site.insert("a");
    drain(&relay);
    stop(&relay);
    let together = Arc::new(Barrier::new(2));
    let acts: Vec<_> = (0..2)
        .map(|_| {
            let (operator, together) = (site.operator(), together.clone());
            std::thread::spawn(move || {
                together.wait();
                operator.replay(id, "h", true).is_ok()
            })
        })
        .collect();
    let done: Vec<bool> = acts.into_iter().map(|act| act.join().unwrap()).collect();
    assert!(done[0] != done[1], "{done:?}");
    let error = refused(&site, id, "h", true);
    assert!(matches!(error, ReplayError::NotDead(ExceptionState::Retry)), "{error}");
    let relay: Relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.ids(), [id, id]);
    stop(&relay);
}

#[test]
fn a_resent_event_keeps_the_order_of_its_key() {
    let site = Site::new();
    let handler = Scripted::parking();
    let ids = site.insert_all(&["a", "a", "a", "a"]);
    handler.script(ids[1], [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Parked), [ids[1]]);
    // Behind the parked one nothing was delivered; before it something was, and that may go first.
    let error = refused(&site, ids[2], "h", true);
    assert!(matches!(error, ReplayError::NotDead(ExceptionState::Waiting)), "{error}");
    handler.script(ids[0], [Step::Fail]);
    site.operator().replay(ids[0], "h", true).unwrap();
    handler.wait_calls(3);
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[0]]);
    assert_eq!(
        site.ids_in_state(ExceptionState::Waiting),
        ids[1..],
        "the parked one, too: it is called again in its turn"
    );
    site.advance(&relay, 5);
    handler.wait_calls(7);
    drain(&relay);
    assert_eq!(handler.done(), [ids[0], ids[0], ids[1], ids[2], ids[3]]);
    // A done one waits behind an open one below it.
    handler.script(ids[1], [Step::Fail]);
    site.operator().replay(ids[1], "h", true).unwrap();
    handler.wait_calls(8);
    drain(&relay);
    site.operator().replay(ids[3], "h", true).unwrap();
    assert_eq!(site.ids_in_state(ExceptionState::Waiting), [ids[3]]);
    site.advance(&relay, 10);
    handler.wait_calls(10);
    drain(&relay);
    assert_eq!(handler.done()[5..], [ids[1], ids[3]]);
    stop(&relay);
}

#[test]
fn retention_keeps_a_resent_event_until_it_is_done() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert_event(NewEvent::from_json("t.v1", "{}").key("a").occurred_at(START_MS));
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    site.operator().replay(id, "h", true).unwrap();
    site.clock.advance(8 * 86_400_000);
    let prune = || prune(&site.database, &Retention::default(), 0, || false).unwrap().events;
    assert_eq!(prune(), 0, "it is not sent yet");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(2);
    drain(&relay);
    stop(&relay);
    assert_eq!(handler.ids(), [id, id]);
    prune();
    assert_eq!(site.count("SELECT count(*) FROM event_outbox"), 0);
    assert!(matches!(refused(&site, id, "h", true), ReplayError::NotFound));
}

#[test]
fn an_event_resent_while_a_later_one_of_its_key_runs_comes_next_and_goes_before_it_if_it_fails() {
    for fails in [false, true] {
        let site = Site::new();
        let (began, begins) = unbounded();
        let (go, gone) = unbounded::<Result<(), DispatchError>>();
        let relay = site
            .relay()
            .handler_fn("h", move |event: &Event| {
                began.send((event.id, event.forced)).unwrap();
                gone.recv_timeout(LONG).unwrap()
            })
            .start()
            .unwrap();
        let begun = || begins.recv_timeout(LONG).unwrap();
        let first = site.insert("a");
        assert_eq!(begun(), (first, false));
        go.send(Ok(())).unwrap();
        drain(&relay);
        let second = site.insert("a");
        assert_eq!(begun(), (second, false));
        site.operator().replay(first, "h", true).unwrap();
        go.send(if fails { Err(DispatchError::retry("not now")) } else { Ok(()) }).unwrap();
        assert_eq!(begun(), (first, true));
        go.send(Ok(())).unwrap();
        if fails {
            assert_eq!(begun(), (second, false));
            go.send(Ok(())).unwrap();
        }
        drain(&relay);
        assert!(begins.is_empty());
        assert!(site.ids_in_state(ExceptionState::Done).contains(&first));
        assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
        stop(&relay);
        assert!(check(&site.database).unwrap().is_clean());
    }
}

#[test]
fn an_event_that_a_rewind_put_before_the_lane_again_is_refused_until_it_is_delivered() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "a"]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let lane = site.operator().hold_and_wait("h", LONG).unwrap();
    lane.rewind(&RewindTo::Id(ids[1])).unwrap();
    assert!(matches!(refused(&site, ids[1], "h", true), ReplayError::NotYetDelivered));
    site.operator().replay(ids[0], "h", true).unwrap();
    lane.give_back().unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(4);
    drain(&relay);
    assert_eq!(handler.ids(), [ids[0], ids[1], ids[0], ids[1]], "in the order of the key");
    stop(&relay);
}

#[test]
fn with_several_threads_a_resent_event_does_not_run_beside_a_later_one_of_its_key() {
    let site = Site::new();
    let (began, begins) = unbounded();
    let (go, gone) = unbounded::<()>();
    let handler = HandlerFn::new(move |event: &Event| {
        began.send((event.id, event.forced)).unwrap();
        if event.key.as_deref() == Some("a") {
            gone.recv_timeout(LONG).unwrap();
        }
        Ok(())
    });
    let relay = site.relay().handler("h", handler.concurrency(4)).start().unwrap();
    let begun = || begins.recv_timeout(LONG).unwrap();
    let first = site.insert("a");
    assert_eq!(begun(), (first, false));
    go.send(()).unwrap();
    drain(&relay);
    let second = site.insert("a");
    assert_eq!(begun(), (second, false));
    site.operator().replay(first, "h", true).unwrap();
    // Other threads get on, so the lane has looked at what is due since.
    for key in ["b", "c", "d"] {
        let other = site.insert(key);
        assert_eq!(begun(), (other, false));
    }
    go.send(()).unwrap();
    assert_eq!(begun(), (first, true));
    go.send(()).unwrap();
    drain(&relay);
    stop(&relay);
    assert!(begins.is_empty() && check(&site.database).unwrap().is_clean());
}
