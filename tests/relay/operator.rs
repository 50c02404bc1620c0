//! What an operator does while the lanes run.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;
use vayu_articles::outbox::{
    DiscardError, DispatchError, Event, ExceptionState, HoldError, LaneState, OwnerState, Relay, RelayOptions,
};
use vayu_articles::storage::TransactError;

use crate::harness::{LONG, Scripted, Site, Step, drain, stop, wait_until};

/// No poll helps: what wakes the lane is the commit.
fn patient() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.poll = LONG;
    options
}

#[test]
fn a_discarded_event_is_closed_with_its_history_and_the_next_of_its_key_goes_on_at_once() {
    let site = Site::new();
    let handler = Scripted::parking();
    let ids = site.insert_all(&["a", "a"]);
    handler.script(ids[0], [Step::Poison]);
    let relay = site.relay().options(patient()).shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Parked), [ids[0]]);
    assert_eq!(site.in_state(ExceptionState::Parked)[0].attempts, 1, "a call that called it hopeless is a call");
    site.operator().discard(ids[0], "h", "the order was cancelled").unwrap();
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(handler.done(), [ids[1]]);
    let discarded = site.in_state(ExceptionState::Discarded);
    let last = discarded[0].history.last().unwrap();
    assert_eq!((last.what.as_str(), last.reason.as_str()), ("discard", "the order was cancelled"));
    assert_eq!(discarded[0].reason.as_deref(), Some("the order was cancelled"));
    let again = site.operator().discard(ids[0], "h", "again").unwrap_err();
    assert!(
        matches!(again, TransactError::Task(DiscardError::Closed(ExceptionState::Discarded))),
        "what is closed stays: {again:?}"
    );
    let unknown = site.operator().discard(ids[1], "nobody", "x").unwrap_err();
    assert!(matches!(unknown, TransactError::Task(DiscardError::NotFound)), "{unknown:?}");
    stop(&relay);
}

#[test]
fn a_discard_while_the_event_runs_wins_over_the_outcome_of_the_run() {
    for outcome in [Ok(()), Err(DispatchError::retry("late")), Err(DispatchError::poison("late"))] {
        let site = Site::new();
        let ids = site.insert_all(&["a", "a"]);
        let (began, begins) = bounded(10);
        let (go, gone) = bounded::<()>(1);
        let first = ids[0];
        let relay = site
            .relay()
            .handler_fn("h", move |event: &Event| {
                if event.id != first {
                    began.send(event.id).unwrap();
                    return Ok(());
                }
                if event.attempts == 0 {
                    return Err(DispatchError::retry("once more"));
                }
                began.send(event.id).unwrap();
                gone.recv_timeout(LONG).unwrap();
                outcome.clone()
            })
            .start()
            .unwrap();
        drain(&relay);
        assert_eq!(site.ids_in_state(ExceptionState::Waiting), [ids[1]]);
        site.advance(&relay, 5);
        assert_eq!(begins.recv_timeout(LONG).unwrap(), first);
        site.operator().discard(first, "h", "by hand").unwrap();
        go.send(()).unwrap();
        assert_eq!(begins.recv_timeout(LONG).unwrap(), ids[1]);
        drain(&relay);
        let discarded = site.in_state(ExceptionState::Discarded);
        assert_eq!(discarded.len(), 1, "the operator's word stands");
        assert_eq!(discarded[0].history.last().unwrap().reason, "by hand");
        assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'discarded'"), 0);
        stop(&relay);
    }
}

#[test]
fn a_held_handler_gets_nothing_until_it_is_released() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().options(patient()).shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.operator().hold("h").unwrap();
    site.operator().hold("h").unwrap();
    wait_until("the lane is held", || relay.status()[0].state == LaneState::Held);
    let lane = &site.operator().stats().unwrap().lanes[0];
    assert!(lane.held && lane.owner_state == OwnerState::NoOwner, "{lane:?}");
    let id = site.insert("a");
    site.operator().release("h").unwrap();
    handler.wait_calls(1);
    assert_eq!(handler.done(), [id]);
    let unknown = site.operator().hold("nobody").unwrap_err();
    assert!(matches!(unknown, TransactError::Task(HoldError::NotFound)), "{unknown:?}");
    stop(&relay);
}

#[test]
fn stats_tell_a_living_owner_with_its_process_from_a_dead_one_and_from_none() {
    let site = Site::new();
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    drain(&relay);
    let lane = || site.operator().stats().unwrap().lanes[0].clone();
    assert_eq!((lane().owner_state, lane().owner_pid), (OwnerState::Alive, Some(std::process::id())));
    stop(&relay);
    assert_eq!((lane().owner_state, lane().owner_pid), (OwnerState::NoOwner, None));
    let dead = "11111111-1111-4111-8111-111111111111";
    site.foreign(&format!("UPDATE lanes SET owner = '{dead}'")).unwrap();
    assert_eq!(lane().owner_state, OwnerState::Unknown, "its file may be put back");
    std::fs::write(site.folder.path().join(format!("site.db-owner-{dead}.lock")), "4711\n").unwrap();
    assert_eq!((lane().owner_state, lane().owner_pid), (OwnerState::Dead, Some(4711)));
}

#[test]
fn the_age_of_what_failed_shows_when_the_cursor_is_past_it() {
    let site = Site::new();
    let handler = Scripted::new();
    let mut event = vayu_articles::outbox::NewEvent::from_json("t", "{}").key("a");
    event.occurred_at = Some(crate::harness::START_MS);
    let id = site.insert_event(event);
    handler.script(id, [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let lane = || site.operator().stats().unwrap().lanes[0].clone();
    site.clock.advance(3_000);
    assert_eq!((lane().lag_ms, lane().open_ms), (0, 3_000));
    site.advance(&relay, 5);
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(lane().open_ms, 0);
    let history = &site.in_state(ExceptionState::Done)[0].history;
    let whats: Vec<_> = history.iter().map(|entry| entry.what.as_str()).collect();
    assert_eq!(whats, ["retry", "done"], "a history that is kept says how it ended");
    stop(&relay);
}

#[test]
fn an_event_that_was_never_called_shows_no_call() {
    let site = Site::new();
    site.foreign("INSERT INTO event_outbox (event_type, event_key, payload) VALUES ('t', 'a', CAST(x'ff' AS TEXT))")
        .unwrap();
    let handler: Arc<Scripted> = Scripted::new();
    let relay: Relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(site.in_state(ExceptionState::DeadLetter)[0].attempts, 0);
    assert!(handler.calls().is_empty());
    relay.stop(std::time::Instant::now() + Duration::from_secs(30)).unwrap();
}
