//! Messages that others publish under our subjects: whatever they hold, the next goes on.

use serde_json::json;

use crate::fixtures::{Runs, STREAM, database, dead_letters, options, publish, start, stop, wait_acknowledged};
use crate::support::{Server, logged, record_log};

#[test]
fn a_message_that_is_no_event_is_a_dead_letter_and_the_next_goes_on() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..1);
    let cloud_event = |rest: &str| format!(r#"{{"specversion":"1.0","id":"a","type":"t"{rest}}}"#).into_bytes();
    let long = json!({ "specversion": "1.0", "id": "x".repeat(600), "type": "t" }).to_string();
    let bad: [(Vec<u8>, &str); 11] = [
        (b"junk".to_vec(), "no CloudEvent"),
        (b"".to_vec(), "no CloudEvent"),
        (b"\xff\xfe{}".to_vec(), "no CloudEvent"),
        (b"{\"specversion\":\"1.0\",\"id\":\"a\",\"type\":\"\xff\"}".to_vec(), "no CloudEvent"),
        (br#"{"specversion":"1.0","id":"","type":"t"}"#.to_vec(), "event_id is empty"),
        (br#"{"specversion":"1.0","type":"t"}"#.to_vec(), "missing field `id`"),
        (br#"{"specversion":"0.3","id":"a","type":"t"}"#.to_vec(), "of version \"0.3\""),
        (long.into_bytes(), "too long"),
        (cloud_event(r#","subject":"""#), "event_key is empty"),
        (cloud_event(r#","subject":"a\u0000b""#), "holds a NUL"),
        (cloud_event(r#","data_base64":"AAE=""#), "data_base64"),
    ];
    for (body, _) in &bad {
        server.publish_raw("vayu.events.x", &[], body);
    }
    // Nor does a status of the publisher's own, which the broker uses for its answers, a deep payload or a wild time.
    server.publish_raw("vayu.events.x", &[("Status", "404"), ("Nats-Expected-Stream", STREAM)], b"{}");
    publish(&server, 0, 1..2);
    let runs = Runs::default();
    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    wait_acknowledged(&server, "worker-notes", bad.len() as u64 + 3);
    stop(&worker);
    assert_eq!(runs.numbers(), [0, 1]);
    let all = dead_letters(&database(folder.path()));
    for (number, (body, reason)) in bad.iter().enumerate() {
        let place = format!("VAYU_EVENTS:{}:", number + 2);
        let dead = all.iter().find(|entry| entry.event_id.starts_with(&place)).expect("it is kept");
        assert!(dead.reason.as_deref().is_some_and(|said| said.contains(reason)), "{reason}: {dead:?}");
        assert_eq!(dead.event.as_ref().unwrap().payload, String::from_utf8_lossy(body), "kept");
    }
    assert_eq!(all.len(), bad.len() + 1);
}

#[test]
fn a_status_line_of_the_publishers_own_is_not_taken_for_the_brokers() {
    use std::io::{BufRead as _, BufReader, Write as _};

    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..1);
    let body = json!({ "specversion": "1.0", "id": "event-1", "type": "t", "data": 1 }).to_string();
    let mut socket = std::net::TcpStream::connect(server.url().trim_start_matches("nats://")).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap()).lines();
    socket.write_all(b"CONNECT {\"verbose\":false,\"headers\":true}\r\n").unwrap();
    for status in ["404 No Messages", "409 Consumer Deleted", "100 Idle Heartbeat", "503"] {
        let head = format!("NATS/1.0 {status}\r\n\r\n");
        let size = (head.len(), head.len() + body.len());
        write!(socket, "HPUB vayu.events.t {} {}\r\n{head}{body}\r\n", size.0, size.1).unwrap();
    }
    socket.write_all(b"PING\r\n").unwrap();
    assert!(answers.any(|line| line.unwrap() == "PONG"), "the server has all of it");
    publish(&server, 0, 2..3);
    let runs = Runs::default();
    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    wait_acknowledged(&server, "worker-notes", 6);
    stop(&worker);
    assert_eq!(runs.numbers(), [0, 1, 2], "one event, four times in the stream");
}

#[test]
fn a_large_message_a_wild_time_and_a_deep_payload_are_events_like_any_other() {
    let Some(server) = Server::start_with("max_payload: 8MB") else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..0);
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let large = json!("x".repeat(6 << 20)).to_string();
    for (id, time, data) in [
        ("past", "0001-01-01T00:00:00Z", "1"),
        ("future", "9999-12-31T23:59:59Z", "1"),
        ("no-time", "the day before", "1"),
        ("deep", "2026-01-01T00:00:00Z", deep.as_str()),
        ("large", "2026-01-01T00:00:00Z", large.as_str()),
    ] {
        let body =
            format!(r#"{{"specversion":"1.0","id":"{id}","type":"t","subject":"k","time":"{time}","data":{data}}}"#);
        server.publish_raw("vayu.events.t", &[("Nats-Msg-Id", id)], body.as_bytes());
    }
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let list = std::sync::Arc::clone(&seen);
    let worker = start(folder.path(), options(&server, 0), move |event: &vayu_articles::outbox::Event| {
        list.lock().unwrap().push((event.event_id.clone(), event.payload.len()));
        Ok(())
    });
    wait_acknowledged(&server, "worker-notes", 5);
    stop(&worker);
    let wanted = [("past", 1), ("future", 1), ("no-time", 1), ("deep", deep.len()), ("large", large.len())];
    assert_eq!(*seen.lock().unwrap(), wanted.map(|(id, size)| (id.to_owned(), size)));
    assert!(dead_letters(&database(folder.path())).is_empty());
}

#[test]
fn messages_under_other_subjects_reach_nobody_and_the_worker_says_so() {
    let Some(server) = Server::start() else { return };
    record_log();
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 2, 0..10);
    let lost = serde_json::to_vec(&json!({ "specversion": "1.0", "id": "x", "type": "t" })).unwrap();
    server.publish_raw("vayu.events.t", &[], &lost);
    server.publish_raw("vayu.events.9.t", &[], &lost);
    let runs = Runs::default();
    let mut options = options(&server, 2);
    options.name = "elsewhere".into();
    let worker = start(folder.path(), options, runs.handler("one"));
    crate::support::wait_until("ours have run", || runs.len() == 10);
    stop(&worker);
    runs.assert_once_and_in_order(10);
    assert!(!logged("stream=VAYU_EVENTS subjects_of_other_partitions=2 partitions=2").is_empty());
}
