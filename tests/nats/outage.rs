//! Every way in which a broker can fail to take an event: which are outages, which are the message's own fault.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vayu_articles::outbox::{self, Event};
use vayu_articles::outbox::{
    DispatchError, ExceptionState, Filter, Handler as _, LaneState, NewEvent, Operator, Relay,
};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};

use crate::fixtures::{STREAM, nats};
use crate::sink::{assert_nothing_spent, assert_once_and_in_order, database, insert, quick};
use crate::support::{LONG, Server, wait_until};

fn event(size: usize) -> Event {
    NewEvent::new("a.v1", &"x".repeat(size)).unwrap().into_event(1)
}

fn outage(options: NatsOptions, what: &str) -> String {
    let answer = NatsSink::new(options).unwrap().handle(&event(10));
    let Err(DispatchError::Unavailable { reason, .. }) = answer else { panic!("{what}: {answer:?}") };
    reason
}

/// The options of a user whose password is its name.
fn as_user(server: &Server, user: &str) -> NatsOptions {
    let mut options = NatsOptions::new([server.url_as(&format!("{user}:{user}"))]);
    options.ack_timeout = Duration::from_millis(400);
    options.connect_timeout = Duration::from_millis(400);
    options
}

fn update(server: &Server, user: &str, change: &Value) {
    let mut config = server.api_as(user, &format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"].clone();
    config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let answer = server.api_as(user, &format!("STREAM.UPDATE.{STREAM}"), &config);
    assert!(answer.get("error").is_none(), "{answer}");
}

#[test]
fn case_c53_a_connection_that_cannot_be_made_or_is_not_ours_is_an_outage() {
    let Some(server) = Server::start_with("authorization { users: [ { user: all, password: all } ] }") else { return };
    let all = as_user(&server, "all");
    outage(as_user(&server, "nobody"), "wrong credentials");
    let with = |change: fn(&mut NatsOptions)| {
        let mut options = all.clone();
        change(&mut options);
        options
    };
    outage(with(|options| options.servers = vec!["nats://127.0.0.1:1".into()]), "no server");
    outage(with(|options| options.servers = vec!["nats://no-such-host.invalid:4222".into()]), "no name");
    outage(with(|options| options.tls_required = true), "a server without TLS");
    let missing = outage(with(|options| options.credentials = Some("/nowhere/at.all".into())), "no credentials file");
    assert!(missing.contains("/nowhere/at.all"), "{missing}");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut mute = all.clone();
    mute.servers = vec![format!("nats://{}", silent.local_addr().unwrap())];
    outage(mute, "a server that says nothing");
    NatsSink::new(all).unwrap().handle(&event(10)).unwrap();
}

#[test]
fn case_c53_every_way_a_broker_can_fail_is_an_outage_but_too_large_a_message() {
    let Some(server) = Server::start_with(
        "max_payload: 4096\nauthorization { users: [\n\
         { user: all, password: all }\n\
         { user: little, password: little, permissions: { publish: { deny: [\"vayu.>\", \"$JS.API.STREAM.UPDATE.>\"] } } }\n\
         ] }",
    ) else {
        return;
    };
    let change = |change: Value| update(&server, "all", &change);
    let sink = NatsSink::new(as_user(&server, "all")).unwrap();
    let too_large = |size| {
        let answer = sink.handle(&event(size));
        assert!(matches!(answer, Err(DispatchError::Poison { .. })), "{answer:?}");
    };
    too_large(5_000);
    sink.handle(&event(10)).unwrap();
    change(json!({ "max_msg_size": 1_000 }));
    too_large(2_000);
    sink.handle(&event(10)).unwrap();
    let all = || as_user(&server, "all");
    for (limit, says) in [("max_msgs", "maximum messages exceeded"), ("max_bytes", "maximum bytes exceeded")] {
        change(json!({ "max_msg_size": -1, limit: 1, "discard": "new" }));
        let full = outage(all(), "a full stream");
        assert!(full.contains(says), "{full}");
        change(json!({ limit: -1 }));
    }
    change(json!({ "discard": "old", "subjects": ["elsewhere"] }));
    outage(all(), "no stream takes the subject");
    change(json!({ "subjects": ["vayu.events.>"], "duplicate_window": 60_000_000_000_u64 }));
    // No permission to publish, nor to mend the stream: the second is a warning.
    let little = outage(as_user(&server, "little"), "no permission");
    assert!(little.contains("vayu.events.a.v1"), "past the refused update, and told why: {little}");
    change(json!({ "sealed": true }));
    outage(all(), "a sealed stream");
}

#[test]
fn too_large_an_event_is_a_dead_letter_alone_and_goes_through_once_there_is_room() {
    let Some(server) = Server::start_with("max_payload: 4096") else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    insert(&database, 0, 5);
    let large = NewEvent::new("note.changed.v1", &"x".repeat(9_000)).unwrap().key("key-0");
    let id = database.writer().transact(move |tx| outbox::insert(tx, &large)).unwrap();
    insert(&database, 5, 10);
    let relay = |server: &Server| {
        let sink = NatsSink::new(nats(server, 0)).unwrap();
        Relay::builder(&database).handler("nats", sink).options(quick()).start().unwrap()
    };
    let first = relay(&server);
    assert!(first.wait_drained(Instant::now() + LONG), "{:?}", first.status());
    first.stop(Instant::now() + LONG).unwrap();
    assert_once_and_in_order(&server, 10);
    let operator = Operator::new(&database);
    let dead = operator.exceptions(&Filter::default(), None, 10).unwrap().exceptions;
    assert_eq!((dead.len(), dead[0].outbox_id, dead[0].state), (1, id, ExceptionState::DeadLetter), "{dead:?}");
    assert!(dead[0].reason.as_deref().unwrap().contains("no message of this size"), "{dead:?}");

    let Some(roomy) = Server::start() else { return };
    operator.replay(id, "nats", true).unwrap();
    let second = relay(&roomy);
    wait_until("it is in the stream", || roomy.messages_in(STREAM) == 1);
    second.stop(Instant::now() + LONG).unwrap();
}

/// Ten events meet an outage that `mend` ends: nothing is spent, and each is stored once.
fn is_waited_for(options: NatsOptions, server: &mut Server, mend: impl FnOnce(&mut Server)) {
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    insert(&database, 0, 10);
    let sink = NatsSink::new(options).unwrap();
    let relay = Relay::builder(&database).handler("nats", sink).options(quick()).start().unwrap();
    wait_until("the lane pauses", || matches!(relay.status()[0].state, LaneState::Paused { .. }));
    mend(server);
    assert!(relay.wait_drained(Instant::now() + LONG), "{:?}", relay.status());
    relay.stop(Instant::now() + LONG).unwrap();
    assert_nothing_spent(&Operator::new(&database));
}

#[test]
fn a_broker_without_jetstream_is_an_outage_that_ends_when_it_has_some() {
    let Some(mut server) = Server::start_without_jetstream() else { return };
    is_waited_for(nats(&server, 0), &mut server, Server::restart_with_jetstream);
    assert_once_and_in_order(&server, 10);
}

#[test]
fn a_stream_that_takes_no_more_is_an_outage_that_ends_when_there_is_room() {
    let Some(mut server) = Server::start() else { return };
    NatsSink::new(nats(&server, 0)).unwrap().handle(&event(1)).unwrap();
    update(&server, "", &json!({ "max_msgs": 1, "discard": "new" }));
    is_waited_for(nats(&server, 0), &mut server, |server| update(server, "", &json!({ "max_msgs": -1 })));
    assert_eq!(server.messages_in(STREAM), 11);
}

#[test]
fn an_account_without_streams_or_at_its_limit_is_an_outage() {
    let Some(server) = Server::start_with(
        "accounts {\n\
         NONE: { users: [ { user: none, password: none } ] }\n\
         SOME: { jetstream: { max_mem: 0, max_file: 4K, max_streams: 1 }, users: [ { user: some, password: some } ] }\n\
         FEW: { jetstream: { max_mem: 0, max_file: 1M, max_streams: 1 }, users: [ { user: few, password: few } ] }\n\
         }",
    ) else {
        return;
    };
    outage(as_user(&server, "none"), "no JetStream in the account");
    let sink = NatsSink::new(as_user(&server, "some")).unwrap();
    let full = (0..100).find_map(|_| sink.handle(&event(500)).err()).expect("4 kB are little");
    assert!(matches!(&full, DispatchError::Unavailable { reason, .. } if reason.contains("resource")), "{full:?}");
    let other = server.api_as("few", "STREAM.CREATE.OTHER", &json!({ "name": "OTHER", "subjects": ["other"] }));
    assert!(other.get("error").is_none(), "{other}");
    let reason = outage(as_user(&server, "few"), "one stream too many");
    assert!(reason.contains("maximum number of streams"), "{reason}");
}

#[test]
fn a_broker_that_stands_still_is_an_outage_and_goes_on() {
    let Some(server) = Server::start() else { return };
    let mut options = nats(&server, 0);
    options.ack_timeout = Duration::from_millis(300);
    options.connect_timeout = Duration::from_millis(300);
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let sink = NatsSink::new(options).unwrap();
    let relay = Relay::builder(&database).handler("nats", sink).options(quick()).start().unwrap();
    insert(&database, 0, 100);
    assert!(relay.wait_drained(Instant::now() + LONG));
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    insert(&database, 100, 400);
    wait_until("the lane pauses", || matches!(relay.status()[0].state, LaneState::Paused { .. }));
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(relay.wait_drained(Instant::now() + LONG), "{:?}", relay.status());
    relay.stop(Instant::now() + LONG).unwrap();
    assert_once_and_in_order(&server, 400);
    assert_nothing_spent(&Operator::new(&database));
}
