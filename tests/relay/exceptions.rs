//! What fails, what waits behind it, what an operator does about it.

use vayu_articles::outbox::{ExceptionState, NewEvent, ReplayError};
use vayu_articles::rusqlite;
use vayu_articles::storage::TransactError;

use crate::harness::{Scripted, Site, Step, drain, stop, wait_until};

#[test]
fn original_01_a_retry_is_due_when_its_seconds_are_over_not_when_the_date_changes() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.calls().len(), 1);
    site.advance(&relay, 4);
    drain(&relay);
    assert_eq!(handler.calls().len(), 1, "not due yet");
    site.advance(&relay, 1);
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(handler.done(), [id]);
    assert_eq!(site.ids_in_state(ExceptionState::Done), [id], "kept as history");
    stop(&relay);
}

#[test]
fn original_03_a_failing_event_is_called_three_times_five_and_ten_seconds_apart() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Fail, Step::Fail, Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(1);
    drain(&relay);
    let due = |site: &Site| site.in_state(ExceptionState::Retry)[0].next_attempt_at.unwrap();
    assert_eq!(due(&site), crate::harness::START_MS + 5_000);
    site.advance(&relay, 5);
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(due(&site), crate::harness::START_MS + 15_000);
    site.advance(&relay, 10);
    handler.wait_calls(3);
    drain(&relay);
    let dead = site.in_state(ExceptionState::DeadLetter);
    assert_eq!((dead[0].outbox_id, dead[0].attempts), (id, 3));
    assert_eq!(dead[0].reason.as_deref(), Some("told to fail"));
    assert_eq!(dead[0].history.len(), 3);
    assert_eq!(handler.calls().iter().map(|call| call.attempts).collect::<Vec<_>>(), [0, 1, 2]);
    site.advance(&relay, 100_000);
    drain(&relay);
    assert_eq!(handler.calls().len(), 3, "a dead letter is left alone");
    stop(&relay);
}

#[test]
fn original_05_a_retried_event_is_never_overtaken_by_a_later_one_of_its_key() {
    case_c42_a_failing_event_holds_back_its_key_and_nobody_else();
}

#[test]
fn case_c42_a_failing_event_holds_back_its_key_and_nobody_else() {
    let site = Site::new();
    let (failing, other) = (Scripted::new(), Scripted::new());
    let ids = site.insert_all(&["x", "x", "x", "y"]);
    failing.script(ids[0], [Step::Fail]);
    let build = |site: &Site| {
        site.relay().shared_handler("failing", failing.clone()).shared_handler("other", other.clone()).start().unwrap()
    };
    let relay = build(&site);
    drain(&relay);
    assert_eq!(failing.ids(), [ids[0], ids[3]], "Y is not held up by X");
    assert_eq!(other.ids(), ids, "another handler is not touched");
    // A restart in the middle of the backoff changes nothing.
    stop(&relay);
    let relay = build(&site);
    let later = site.insert("x");
    drain(&relay);
    assert_eq!(failing.calls().len(), 2);
    site.advance(&relay, 5);
    failing.wait_calls(6);
    drain(&relay);
    assert_eq!(failing.done(), [ids[3], ids[0], ids[1], ids[2], later]);
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
    stop(&relay);
}

#[test]
fn case_c44_each_bad_event_ends_in_the_dead_letters_alone() {
    let site = Site::new();
    let scripted = Scripted::new();
    let inner = scripted.clone();
    let not_json = "INSERT INTO event_outbox (event_type, event_key, payload) VALUES ('t.v1', 'n', 'not json')";
    site.foreign(not_json).unwrap();
    let bytes = "INSERT INTO event_outbox (event_type, event_key, payload) \
                 VALUES ('t.v1', 'u', CAST(x'ff7b7d' AS TEXT))";
    site.foreign(bytes).unwrap();
    let huge = "INSERT INTO event_outbox (event_type, payload) VALUES ('t.v1', '\"' || hex(zeroblob(1048576)) || '\"')";
    site.foreign(huge).unwrap();
    let rejected = site.insert("r");
    let panics = site.insert("p");
    scripted.script(rejected, [Step::Poison]);
    scripted.script(panics, [Step::Panic, Step::Panic, Step::Panic]);
    let good = site.insert_all(&["g"; 100]);
    let build = || {
        let inner = inner.clone();
        site.relay()
            .handler_fn("h", move |event| {
                event.json::<serde_json::Value>()?;
                vayu_articles::outbox::Handler::handle(inner.as_ref(), event)
            })
            .start()
            .unwrap()
    };
    let relay = build();
    drain(&relay);
    assert_eq!(scripted.done(), good, "good ones are delivered at once");
    stop(&relay);
    let relay = build();
    for seconds in [5, 10] {
        let calls = scripted.calls().len();
        site.advance(&relay, seconds);
        scripted.wait_calls(calls + 1);
        drain(&relay);
    }
    let dead = site.in_state(ExceptionState::DeadLetter);
    let reasons: Vec<_> = dead.iter().map(|dead| (dead.outbox_id, dead.reason.clone().unwrap())).collect();
    assert_eq!(dead.len(), 5, "{reasons:?}");
    let reason = |id: i64| &reasons.iter().find(|(dead, _)| *dead == id).unwrap().1;
    assert!(reason(1).starts_with("payload: "), "{reasons:?}");
    assert!(reason(2).contains("not UTF-8"), "{reasons:?}");
    assert!(reason(3).contains("larger than"), "{reasons:?}");
    assert_eq!(reason(rejected), "told to be poison");
    assert_eq!(reason(panics), "panicked: told to panic");
    stop(&relay);
}

#[test]
fn a_dead_letter_is_passed_over_and_superseded_and_replays_only_by_force() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b"]);
    handler.script(ids[0], [Step::Poison]);
    handler.script(ids[1], [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    // Nothing of b came later: replay is allowed, with all attempts.
    site.operator().replay(ids[1], "h", false).unwrap();
    handler.wait_calls(3);
    drain(&relay);
    assert_eq!(handler.calls()[2].replays, 1);
    assert_eq!(site.ids_in_state(ExceptionState::Done), [ids[1]]);
    // A later event of a went through: the dead letter is superseded.
    let later = site.insert("a");
    drain(&relay);
    let refused = site.operator().replay(ids[0], "h", false).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::Superseded { by }) if by == later), "{refused:?}");
    site.operator().replay(ids[0], "h", true).unwrap();
    handler.wait_calls(5);
    drain(&relay);
    assert_eq!(handler.done(), [ids[1], later, ids[0]]);
    stop(&relay);
}

#[test]
fn a_replayed_event_goes_before_what_waits_of_its_key() {
    let site = Site::new();
    let handler = Scripted::parking();
    let ids = site.insert_all(&["a", "a", "a"]);
    handler.script(ids[0], [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Parked), [ids[0]]);
    assert_eq!(site.ids_in_state(ExceptionState::Waiting), ids[1..], "a parked event holds its key");
    assert_eq!(handler.calls().len(), 1);
    site.operator().replay(ids[0], "h", false).unwrap();
    handler.wait_calls(4);
    drain(&relay);
    assert_eq!(handler.done(), ids);
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
    stop(&relay);
}

#[test]
fn a_fourth_replay_needs_force_and_a_live_row_cannot_be_replayed() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Poison, Step::Poison, Step::Poison, Step::Poison, Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    for replay in 1..=3 {
        site.operator().replay(id, "h", false).unwrap();
        handler.wait_calls(1 + replay);
        drain(&relay);
    }
    let refused = site.operator().replay(id, "h", false).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::TooOften)), "{refused:?}");
    site.operator().replay(id, "h", true).unwrap();
    handler.wait_calls(5);
    drain(&relay);
    let refused = site.operator().replay(id, "h", true).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::NotDead(ExceptionState::Retry))), "{refused:?}");
    let refused = site.operator().replay(id, "nobody", true).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::NoHandler)), "{refused:?}");
    stop(&relay);
}

#[test]
fn replay_all_takes_what_needs_no_force() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b", "c"]);
    for id in &ids {
        handler.script(*id, [Step::Poison]);
    }
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.insert("b");
    drain(&relay);
    assert_eq!(site.operator().replay_all(Some("h")).unwrap(), (2, 1));
    handler.wait_calls(6);
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::DeadLetter), [ids[1]]);
    stop(&relay);
}

#[test]
fn events_without_a_key_do_not_wait_for_each_other() {
    let site = Site::new();
    let handler = Scripted::new();
    let event = || NewEvent::from_json("t.v1", "{}");
    let ids = [site.insert_event(event()), site.insert_event(event())];
    handler.script(ids[0], [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), [ids[1]]);
    site.advance(&relay, 5);
    handler.wait_calls(3);
    stop(&relay);
}

#[test]
fn thousands_that_wait_behind_one_key_follow_in_order_once_it_heals() {
    let site = Site::new();
    let handler = Scripted::new();
    let first = site.insert("k");
    handler.script(first, [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    for _ in 0..6 {
        site.insert_all(&["k"; 1_000]);
    }
    drain(&relay);
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state = 'waiting'"), 6_000);
    site.advance(&relay, 5);
    handler.wait_calls(6_002);
    drain(&relay);
    assert_eq!(handler.done(), (first..=first + 6_000).collect::<Vec<_>>());
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 1, "what never failed leaves no row");
    stop(&relay);
}

#[test]
fn a_clock_set_back_does_not_strand_a_retry() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.advance(&relay, -86_400);
    handler.wait_calls(2);
    assert_eq!(handler.done(), [id]);
    stop(&relay);
}

#[test]
fn case_c50_the_next_try_counts_from_now_even_when_the_row_is_days_overdue() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Fail, Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.advance(&relay, 3 * 86_400);
    handler.wait_calls(2);
    drain(&relay);
    let now = crate::harness::START_MS + 3 * 86_400_000;
    assert_eq!(site.in_state(ExceptionState::Retry)[0].next_attempt_at, Some(now + 10_000));
    stop(&relay);
}

#[test]
fn case_c51_due_times_are_numbers_and_text_is_refused() {
    let site = Site::new();
    let text = "INSERT INTO deliveries (outbox_id, handler, state, next_attempt_at, created_at, updated_at) \
                VALUES (1, 'h', 'retry', '2026-06-10T11:30:00.5Z', 0, 0)";
    assert!(site.foreign(text).is_err(), "STRICT tables take no text for a time");
    let handler = Scripted::new();
    // Before 1970, and in the year 9999: past means now, and no time is out of range.
    let ids = site.insert_all(&["a", "b"]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    for (id, due) in [(ids[0], -86_400_000_i64), (ids[1], 253_402_300_799_000)] {
        site.foreign(&format!(
            "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at) \
             VALUES ({id}, 'h', 'k{id}', 'retry', {due}, 0, 0)"
        ))
        .unwrap();
    }
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(4);
    stop(&relay);
}

#[test]
fn case_c40_no_state_and_null_is_outside_every_query() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b", "c", "d", "e", "f"]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    // A retry without a time cannot be stored; every other row is found by a state.
    let insert = |id: i64, state: &str, due: &str| {
        site.foreign(&format!(
            "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at) \
             VALUES ({id}, 'h', 'own-{id}', '{state}', {due}, 0, 0)"
        ))
    };
    assert!(insert(ids[0], "retry", "NULL").is_err());
    assert!(insert(ids[0], "processing", "0").is_err());
    insert(ids[0], "retry", "0").unwrap();
    insert(ids[1], "parked", "NULL").unwrap();
    insert(ids[2], "dead_letter", "NULL").unwrap();
    insert(ids[3], "discarded", "NULL").unwrap();
    insert(ids[4], "done", "NULL").unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(7);
    drain(&relay);
    assert_eq!(handler.ids()[6], ids[0]);
    for (id, standing) in
        [(0, "done"), (1, "parked"), (2, "dead_letter"), (3, "discarded"), (4, "done"), (5, "delivered")]
    {
        let story = site.operator().show(&ids[id].to_string()).unwrap().unwrap();
        // The first one never failed before, so it leaves no row behind.
        let standing = if id == 0 { "delivered" } else { standing };
        assert_eq!(story.lanes, [("h".to_owned(), standing.to_owned())], "event {}", ids[id]);
    }
    stop(&relay);
}

#[test]
fn a_row_whose_event_is_gone_is_closed_visibly() {
    let site = Site::new();
    let handler = Scripted::new();
    site.foreign(
        "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at) \
         VALUES (77, 'h', 'k', 'retry', 0, 0, 0)",
    )
    .unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    wait_until("the row is closed", || !site.in_state(ExceptionState::Discarded).is_empty());
    assert_eq!(site.in_state(ExceptionState::Discarded)[0].reason.as_deref(), Some("event_missing"));
    stop(&relay);
}

#[test]
fn the_log_refuses_ids_it_may_have_passed_and_changes() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b"]);
    let error = |sql: &str| match site.foreign(sql) {
        Err(rusqlite::Error::SqliteFailure(_, Some(text))) => text,
        other => panic!("{sql}: {other:?}"),
    };
    let insert = |id: &str| format!("INSERT INTO event_outbox (id, event_type, payload) VALUES ({id}, 't', '{{}}')");
    assert!(error(&insert("1")).contains("constraint"));
    assert!(error(&insert("0")).contains("assigned by the outbox"));
    assert!(error(&insert("4611686018427387904")).contains("assigned by the outbox"));
    assert!(error("UPDATE event_outbox SET payload = '[]'").contains("immutable"));
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let last = site.insert("c");
    assert!(error(&format!("DELETE FROM event_outbox WHERE id = {last}")).contains("not delivered"));
    site.foreign(&format!("DELETE FROM event_outbox WHERE id = {}", ids[0])).unwrap();
    assert_eq!(site.count("SELECT count(*) FROM event_status WHERE status = 'pending'"), 1);
}

#[test]
fn bad_events_are_refused_at_insertion_with_the_field() {
    use vayu_articles::outbox::{self, InsertError, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES};
    let site = Site::new();
    let field = |event: NewEvent| match site.database.writer().transact(move |tx| outbox::insert(tx, &event)) {
        Err(TransactError::Task(InsertError::Invalid { field, .. })) => field,
        other => panic!("{other:?}"),
    };
    let ok = || NewEvent::from_json("t.v1", "{}");
    assert_eq!(field(NewEvent::from_json("", "{}")), "event_type");
    assert_eq!(field(NewEvent::from_json("t.v1", "{")), "payload");
    assert_eq!(field(NewEvent::from_json("t.v1", format!("\"{}\"", "x".repeat(MAX_PAYLOAD_BYTES)))), "payload");
    assert_eq!(field(ok().key("x".repeat(MAX_NAME_BYTES + 1))), "key");
    assert_eq!(field(ok().correlation_id("a\0b")), "correlation_id");
    let twice = ok();
    site.insert_event(twice.clone());
    let again = site.database.writer().transact(move |tx| outbox::insert(tx, &twice));
    assert!(matches!(again, Err(TransactError::Task(InsertError::Sqlite(_)))), "{again:?}");
    assert_eq!(site.count("SELECT count(*) FROM event_outbox"), 1);
}

#[test]
fn original_04_a_database_error_is_not_an_empty_queue() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.foreign("ALTER TABLE event_outbox RENAME TO away").unwrap();
    wait_until("the lane says that the database fails", || {
        matches!(&relay.status()[0].state, vayu_articles::outbox::LaneState::Waiting { reason }
            if reason.contains("event_outbox"))
    });
    site.foreign("ALTER TABLE away RENAME TO event_outbox").unwrap();
    let id = site.insert("a");
    handler.wait_calls(1);
    assert_eq!(handler.done(), [id], "and it goes on by itself");
    wait_until("the lane runs again", || relay.status()[0].state == vayu_articles::outbox::LaneState::Running);
    stop(&relay);
}

#[test]
fn g07_g08_a_handler_in_a_batch_spends_only_its_own_attempts() {
    let site = Site::new();
    let handler = Scripted::batching(64);
    let ids = site.insert_all(&["a", "b", "c", "d"]);
    handler.script(ids[2], [Step::Panic, Step::Panic]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let retry = site.in_state(ExceptionState::Retry);
    assert_eq!(retry.len(), 1);
    assert_eq!((retry[0].outbox_id, retry[0].attempts), (ids[2], 1), "the batch's own panic spends nothing");
    stop(&relay);
}
