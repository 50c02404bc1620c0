//! What hostile testers found: acts amid runs, rows from elsewhere, counts at the end of their range.

use std::sync::Arc;

use crossbeam_channel::{bounded, unbounded};
use vayu_articles::outbox::{
    DispatchError, Event, ExceptionState, Handler, HandlerFn, RelayOptions, RewindTo, StartAt, check, mend,
};

use crate::harness::{LONG, Scripted, Site, Step, drain, stop, wait_until};

const NO_TEXT: &str = "CAST(X'FF' AS TEXT)";
const OPEN: &str = "SELECT count(*) FROM deliveries WHERE state IN ('retry', 'waiting', 'parked')";

/// An edit of an event whose own payload cannot be decoded.
#[test]
fn an_edited_payload_replaces_one_that_cannot_be_decoded() {
    for bad in [NO_TEXT.to_owned(), "CAST(zeroblob(1048577) AS TEXT)".to_owned()] {
        let site = Site::new();
        let handler = Scripted::new();
        let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
        site.foreign(&format!("INSERT INTO event_outbox (event_type, event_key, payload) VALUES ('t', 'k', {bad})"))
            .unwrap();
        relay.notify();
        wait_until("dead", || site.ids_in_state(ExceptionState::DeadLetter).len() == 1);
        let id = site.ids_in_state(ExceptionState::DeadLetter)[0];
        site.operator().edit(id, "h", "{\"sound\":1}", false).unwrap();
        relay.notify();
        wait_until("no row open", || site.count(OPEN) == 0);
        drain(&relay);
        let calls = handler.calls();
        let state = site.count("SELECT count(*) FROM deliveries WHERE state = 'done'");
        let reason = site.in_state(ExceptionState::DeadLetter).first().and_then(|row| row.reason.clone());
        stop(&relay);
        assert_eq!((calls.len(), state), (1, 1), "the edited payload is never delivered: {reason:?}");
    }
}

struct Told {
    began: crossbeam_channel::Sender<Event>,
    answers: crossbeam_channel::Receiver<Result<(), DispatchError>>,
}
impl Handler for Told {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.began.send(event.clone()).unwrap();
        self.answers.recv_timeout(LONG).expect("an answer")
    }
}

/// Discard while it runs for the first time, after a rewind.
#[test]
fn a_discard_during_a_run_after_a_rewind_strands_no_later_event_of_the_key() {
    let site = Site::new();
    let (began, begins) = unbounded();
    let (answer, answers) = bounded(100);
    let relay = site.relay().shared_handler("h", Arc::new(Told { began, answers })).start().unwrap();
    let ids = site.insert_all(&["a", "a"]);
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, ids[0]);
    answer.send(Ok(())).unwrap();
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, ids[1]);
    answer.send(Err(DispatchError::retry("not yet"))).unwrap();
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[1]]);
    let lane = site.operator().hold_and_wait("h", LONG).unwrap();
    lane.rewind(&RewindTo::Start).unwrap();
    lane.give_back().unwrap();
    relay.notify();
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, ids[0]);
    site.operator().discard(ids[0], "h", "not this one").unwrap();
    answer.send(Err(DispatchError::retry("fails"))).unwrap();
    drain(&relay);
    let found = check(&site.database).unwrap();
    site.advance(&relay, 3_600);
    let ran = begins.recv_timeout(LONG);
    answer.send(Ok(())).unwrap();
    stop(&relay);
    assert!(ran.is_ok(), "event {} is never run again; check: {:?}", ids[1], found.findings);
    assert!(found.is_clean(), "{:?}", found.findings);
}

/// A forced replay while a later event of its key runs.
#[test]
fn a_forced_replay_is_not_undone_by_a_run_that_ends_meanwhile() {
    let site = Site::new();
    let (began, begins) = unbounded();
    let (answer, answers) = bounded(100);
    let relay = site.relay().shared_handler("h", Arc::new(Told { began, answers })).start().unwrap();
    let first = site.insert("a");
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, first);
    answer.send(Err(DispatchError::poison("bad"))).unwrap();
    wait_until("dead", || site.ids_in_state(ExceptionState::DeadLetter) == [first]);
    let later = site.insert("a");
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, later);
    site.operator().replay(first, "h", true).unwrap();
    answer.send(Ok(())).unwrap();
    let ran = begins.recv_timeout(LONG);
    answer.send(Ok(())).unwrap();
    drain(&relay);
    let rows = site.in_state(ExceptionState::DeadLetter);
    stop(&relay);
    assert!(ran.is_ok(), "the forced replay came to nothing: {rows:?}");
}

/// The same for an event that had gone well and is resent by force.
#[test]
fn a_forced_resend_is_not_undone_by_a_run_that_ends_meanwhile() {
    let site = Site::new();
    let (began, begins) = unbounded();
    let (answer, answers) = bounded(100);
    let relay = site.relay().shared_handler("h", Arc::new(Told { began, answers })).start().unwrap();
    let ids = site.insert_all(&["a", "a"]);
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, ids[0]);
    answer.send(Ok(())).unwrap();
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, ids[1]);
    answer.send(Err(DispatchError::poison("bad"))).unwrap();
    drain(&relay);
    let last = site.insert("a");
    assert_eq!(begins.recv_timeout(LONG).unwrap().id, last);
    site.operator().replay(ids[0], "h", true).unwrap();
    answer.send(Ok(())).unwrap();
    let ran = begins.recv_timeout(LONG);
    answer.send(Ok(())).unwrap();
    drain(&relay);
    let rows = site.in_state(ExceptionState::DeadLetter);
    stop(&relay);
    assert!(ran.is_ok(), "the forced resend came to nothing: {rows:#?}");
}

/// Dead letters from when the clock ran ahead.
#[test]
fn replay_all_finds_what_died_before_the_clock_was_set_back() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    stop(&relay);
    let id = site.insert("a");
    handler.script(id, [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::DeadLetter), [id]);
    site.clock.advance(-3_600_000);
    let (replayed, left) = site.operator().replay_all(Some("h")).unwrap();
    stop(&relay);
    assert_eq!((replayed, left), (1, 0));
}

/// A foreign waiting row whose key is no text.
#[test]
fn a_waiting_row_whose_key_is_no_text_does_not_stop_the_lane() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    site.foreign(&format!("INSERT INTO deliveries (outbox_id, handler, event_key, state, created_at, updated_at) VALUES ({id}, 'h', {NO_TEXT}, 'waiting', 0, 0)")).unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    let next = site.insert("b");
    wait_until("the next went well", || handler.done().contains(&next));
    stop(&relay);
    assert!(handler.done().contains(&id));
}

/// Foreign histories that are no text, and the operator.
fn with_bad_history(state: &str) -> (Site, i64) {
    let site = Site::new();
    let id = site.insert("a");
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    drain(&relay);
    stop(&relay);
    site.foreign(&format!("INSERT INTO deliveries (outbox_id, handler, event_key, state, history, created_at, updated_at) VALUES ({id}, 'h', 'a', '{state}', {NO_TEXT}, 0, 0)")).unwrap();
    (site, id)
}

#[test]
fn a_handler_is_retired_although_a_history_is_no_text() {
    let (site, _) = with_bad_history("dead_letter");
    let retired = site.operator().hold_and_wait("h", LONG).unwrap().retire("gone");
    assert!(retired.is_ok(), "{retired:?}");
}

#[test]
fn a_key_is_resumed_although_a_history_is_no_text() {
    let (site, _) = with_bad_history("parked");
    let resumed = site.operator().resume("h", "a");
    assert!(resumed.is_ok(), "{resumed:?}");
}

#[test]
fn a_row_without_event_is_closed_although_its_history_is_no_text() {
    let (site, _) = with_bad_history("dead_letter");
    site.foreign("UPDATE deliveries SET outbox_id = 999").unwrap();
    let report = check(&site.database).unwrap();
    let mended = mend(&site.database, &report);
    assert!(mended.is_ok(), "{mended:?}; {:?}", report.findings);
}

/// Numbers at the end of the range.
#[test]
fn a_row_with_the_lowest_id_is_mended_like_any() {
    let (site, _) = with_bad_history("dead_letter");
    site.foreign(&format!("UPDATE deliveries SET outbox_id = {} , history = '[]'", "-9223372036854775807 - 1"))
        .unwrap();
    let report = check(&site.database).unwrap();
    let mended = mend(&site.database, &report);
    assert!(mended.is_ok(), "{mended:?}; {:?}", report.findings);
}

#[test]
fn a_count_of_replays_at_its_end_stays_there() {
    let (site, id) = with_bad_history("dead_letter");
    site.foreign("UPDATE deliveries SET history = '[]', replays = 9223372036854775807").unwrap();
    site.operator().replay(id, "h", true).unwrap();
    site.foreign("UPDATE deliveries SET state = 'dead_letter', next_attempt_at = NULL").unwrap();
    site.operator().edit(id, "h", "{}", true).unwrap();
    assert_eq!(site.count("SELECT replays FROM deliveries"), i64::MAX);
}

/// Forced is forgotten after twenty entries of the history.
#[test]
fn a_forced_replay_stays_forced_through_all_its_attempts() {
    let site = Site::new();
    let (sent, calls) = unbounded();
    let mut options = RelayOptions::default();
    options.policy.max_calls = 40;
    let relay = site
        .relay()
        .options(options)
        .handler_fn("h", move |event: &Event| {
            sent.send(event.forced).unwrap();
            if event.replays > 0 { Err(DispatchError::retry("not yet")) } else { Ok(()) }
        })
        .start()
        .unwrap();
    let id = site.insert("a");
    drain(&relay);
    assert!(!calls.recv_timeout(LONG).unwrap());
    site.operator().replay(id, "h", true).unwrap();
    let mut forced = Vec::new();
    for n in 1..=30 {
        forced.push(calls.recv_timeout(LONG).unwrap());
        wait_until("written", || site.count("SELECT attempts FROM deliveries") == n);
        site.advance(&relay, 121);
    }
    stop(&relay);
    assert!(forced.iter().all(|forced| *forced), "{forced:?}");
}

#[test]
fn a_new_lane_of_a_retired_name_gets_what_the_old_one_had_delivered_late() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b"]);
    handler.script(ids[1], [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler).start().unwrap();
    drain(&relay);
    site.advance(&relay, 10);
    wait_until("done", || site.ids_in_state(ExceptionState::Done) == [ids[1]]);
    stop(&relay);
    assert_eq!(site.operator().hold_and_wait("h", LONG).unwrap().retire("rebuilt").unwrap(), 0);
    // The same program, later, with an empty index of its own.
    let fresh = Scripted::new();
    let relay = site.relay().shared_handler("h", fresh.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    assert_eq!(fresh.done(), ids);
}

#[test]
fn lanes_that_begin_at_the_end_get_what_is_committed_right_after_the_start() {
    let site = Site::new();
    site.insert("old");
    let (sent, calls) = unbounded();
    let mut builder = site.relay();
    for number in 0..64 {
        let sent = sent.clone();
        let handler = move |event: &Event| {
            sent.send((number, event.id)).unwrap();
            Ok(())
        };
        builder = builder.handler(format!("h{number}"), HandlerFn::new(handler).start_at(StartAt::End));
    }
    let relay = builder.start().unwrap();
    let new = site.insert("new");
    let mut got: Vec<_> = (0..64).map(|_| calls.recv_timeout(LONG).unwrap()).collect();
    got.sort_unstable();
    stop(&relay);
    assert_eq!(got, (0..64).map(|number| (number, new)).collect::<Vec<_>>());
}
