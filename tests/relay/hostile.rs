//! Rows that foreign hands left, as bad as SQLite stores them: each is visible, none is fatal, and good events go on.

use vayu_articles::outbox::{ExceptionState, Filter, HandlerFn, LaneState};

use crate::harness::{START_MS, Scripted, Site, drain, stop, wait_until};

/// A log row whose columns are given as SQL.
fn row(site: &Site, columns: &str, values: &str) {
    site.foreign(&format!("INSERT INTO event_outbox ({columns}) VALUES ({values})")).unwrap();
}

const NO_TEXT: &str = "CAST(x'ff00fe41' AS TEXT)";

#[test]
fn case_c44_rows_that_cannot_be_decoded_are_dead_letters_at_once_with_reason_and_time() {
    let site = Site::new();
    let handler = Scripted::new();
    let bad = [
        (format!("'x', {NO_TEXT}, 'k', '{{}}'"), "event_type is not UTF-8"),
        (format!("{NO_TEXT}, 't', 'k', '{{}}'"), "event_id is not UTF-8"),
        (format!("'y', 't', {NO_TEXT}, '{{}}'"), "event_key is not UTF-8"),
        (format!("'z', 't', 'k', {NO_TEXT}"), "payload is not UTF-8"),
        ("'h', 't', 'k', hex(zeroblob(600000))".to_owned(), "payload is larger than"),
        ("hex(zeroblob(600000)), 't', 'k', '{}'".to_owned(), "event_id is larger than"),
        ("'i', hex(zeroblob(600000)), 'k', '{}'".to_owned(), "event_type is larger than"),
        ("'j', 't', hex(zeroblob(600000)), '{}'".to_owned(), "event_key is larger than"),
    ];
    for (values, _) in &bad {
        row(&site, "event_id, event_type, event_key, payload", values);
    }
    let more = format!("'t', '{{}}', {NO_TEXT}");
    row(&site, "event_type, payload, correlation_id", &more);
    row(&site, "event_type, payload, causation_id", &more);
    let good = site.insert_all(&["k"; 100]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), good, "also those of the key that the bad ones have");
    assert_eq!(handler.calls().len(), 100, "nothing is called for what cannot be handed over");
    let dead = site.in_state(ExceptionState::DeadLetter);
    assert_eq!(dead.len(), 10, "{dead:?}");
    for (dead, expected) in
        dead.iter().zip(bad.iter().map(|(_, why)| *why).chain(["correlation_id is not", "causation_id is not"]))
    {
        let reason = dead.reason.as_deref().unwrap();
        assert!(reason.contains(expected), "{reason} instead of {expected}");
        assert!(dead.history.iter().any(|entry| entry.at == START_MS), "{dead:?}");
        // An operator sees what is there, and nothing of it breaks the view.
        let story = site.operator().show(&dead.outbox_id.to_string()).unwrap().unwrap();
        assert!(story.undecodable.as_deref().is_some_and(|why| why.contains(expected)), "{story:?}");
    }
    assert_eq!(relay.status()[0].state, LaneState::Running);
    stop(&relay);
}

#[test]
fn strange_but_readable_rows_are_delivered_as_they_are() {
    let site = Site::new();
    let handler = Scripted::new();
    for values in [
        "'', '', NULL, 0",
        "'t', '', '', 0",
        "'t' || char(0) || 'u', 'not json', char(0), 0",
        "'t', '{}', 'k', -9223372036854775808",
        "'t', '{}', 'k', 9223372036854775807",
    ] {
        row(&site, "event_type, payload, event_key, occurred_at", values);
    }
    // The least that a foreign writer may give, and a key that is longer than ours may be.
    row(&site, "event_type, payload", "'t', '{}'");
    row(&site, "event_type, payload, event_key", "'t', '{}', hex(zeroblob(100000))");
    let last = site.insert("good");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), (1..=last).collect::<Vec<_>>());
    // Ages are judged without overflow, also by retention and in the overview.
    let lanes = site.operator().lanes().unwrap();
    assert_eq!((lanes[0].lag_events, lanes[0].cursor), (0, last));
    stop(&relay);
    site.clock.advance(8 * 86_400_000);
    let retention = vayu_articles::outbox::Retention::default();
    vayu_articles::outbox::prune(&site.database, &retention, 0, || false).unwrap();
    let younger = site.count("SELECT count(*) FROM event_outbox WHERE occurred_at > 0");
    assert_eq!(site.count("SELECT count(*) FROM event_outbox"), younger, "what says it is old goes");
}

#[test]
fn what_strict_tables_refuse_never_gets_into_the_log() {
    let site = Site::new();
    for (columns, values) in [
        ("event_type, payload", "NULL, '{}'"),
        ("event_type, payload", "'t', NULL"),
        ("event_type, payload", "'t', x'00ff'"),
        ("event_type, payload, occurred_at", "'t', '{}', 'yesterday'"),
        ("event_type, payload, event_id", "'t', '{}', NULL"),
    ] {
        let refused = site.foreign(&format!("INSERT INTO event_outbox ({columns}) VALUES ({values})"));
        assert!(refused.is_err(), "{columns}: {values}");
    }
}

#[test]
fn an_unknown_type_is_counted_where_an_operator_looks_and_holds_nobody_up() {
    let site = Site::new();
    let handler = Scripted::new();
    let inner = handler.clone();
    let known = HandlerFn::new(move |event: &vayu_articles::outbox::Event| {
        vayu_articles::outbox::Handler::handle(inner.as_ref(), event)
    })
    .types(&["test.*"]);
    row(&site, "event_type, payload", "'nobody.knows.it', '{}'");
    row(&site, "event_type, payload", "'nobody.knows.it', '{}'");
    let good = site.insert("a");
    let relay = site.relay().handler("h", known).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), [good]);
    let stats = site.operator().stats().unwrap();
    assert_eq!(stats.types_without_lane, [("nobody.knows.it".to_owned(), 2)]);
    wait_until("the lane has counted them", || {
        relay.status()[0].skipped.get("nobody.knows.it").is_some_and(|count| *count == 2)
    });
    stop(&relay);
}

#[test]
fn exceptions_that_foreign_hands_wrote_end_and_can_be_listed() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b", "c", "d", "e", "f", "g"]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let insert = |id: i64, columns: &str, values: &str| {
        site.foreign(&format!(
            "INSERT INTO deliveries (outbox_id, handler, state, next_attempt_at, created_at, updated_at, {columns}) \
             VALUES ({id}, 'h', 'retry', 0, 0, 0, {values})"
        ))
        .unwrap();
    };
    insert(ids[0], "attempts, crashes, replays", "-5, -5, -5");
    insert(ids[1], "attempts", "9223372036854775807");
    insert(ids[2], "replays", "9223372036854775807");
    insert(ids[3], "reason, history", &format!("{NO_TEXT}, {NO_TEXT}"));
    insert(ids[4], "event_key, history", &format!("{NO_TEXT}, 'no list'"));
    insert(ids[5], "superseded_by", "-1");
    insert(ids[6], "crashes", "9223372036854775807");
    insert(i64::MAX, "event_key", "NULL");
    for state in ExceptionState::ALL {
        site.operator().exceptions(&Filter::states([state]), None, 100).unwrap();
    }
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    let open = "SELECT count(*) FROM deliveries WHERE state IN ('retry', 'waiting', 'parked')";
    wait_until("every row comes to an end", || site.count(open) == 0);
    drain(&relay);
    let calls = handler.calls().len();
    assert!(calls <= 2 * ids.len(), "{calls} calls: a row runs again and again");
    assert_eq!(relay.status()[0].state, LaneState::Running);
    let next = site.insert("a");
    drain(&relay);
    assert_eq!(handler.done().last(), Some(&next));
    for state in ExceptionState::ALL {
        site.operator().exceptions(&Filter::states([state]), None, 100).unwrap();
    }
    stop(&relay);
}

#[test]
fn lanes_that_foreign_hands_wrote_are_shown_and_delivered() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b"]);
    site.foreign(&format!(
        "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor, running_id, single_step_to, paused_until, \
         pause_reason, outage_since, owned_since) \
         VALUES ('h', {NO_TEXT}, 'continue', -9223372036854775808, 9223372036854775807, -1, 9223372036854775807, \
         {NO_TEXT}, -9223372036854775808, -9223372036854775808)"
    ))
    .unwrap();
    assert_eq!(site.operator().lanes().unwrap().len(), 1);
    site.operator().stats().unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(handler.done(), ids);
    stop(&relay);
}
