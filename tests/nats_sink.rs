//! The sink against a real broker that is killed, full, foreign, or unwilling.
#![cfg(feature = "nats")]

mod nats_support;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nats_support::{LONG, Server, wait_until};
use serde_json::{Value, json};
use vayu_articles::outbox::{
    self, DispatchError, Event, ExceptionState, Filter, Handler, LaneStart, LaneState, NewEvent, Operator, Relay,
    RelayOptions,
};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};
use vayu_articles::storage::{Database, Options};

const STREAM: &str = "VAYU_EVENTS";
const KEYS: usize = 100;

fn database(folder: &Path) -> Database {
    Database::open(folder.join("site.db"), &[outbox::COMPONENT], Options::default()).unwrap()
}

/// Events number `from..to`, of keys in turn; the payload is the event's number.
fn insert(database: &Database, from: usize, to: usize) {
    let numbers: Vec<usize> = (from..to).collect();
    for chunk in numbers.chunks(500) {
        let events: Vec<NewEvent> = (chunk.iter())
            .map(|number| {
                let mut event = NewEvent::new("note.changed.v1", number).unwrap().key(format!("key-{}", number % KEYS));
                event.event_id = format!("event-{number}");
                event
            })
            .collect();
        database
            .writer()
            .transact(move |tx| events.iter().try_for_each(|event| outbox::insert(tx, event).map(drop)))
            .unwrap();
    }
}

fn quick() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.policy.pause_base = Duration::from_millis(50);
    options.policy.pause_max = Duration::from_millis(200);
    options
}

fn options(server: &Server) -> NatsOptions {
    NatsOptions::new([server.url()])
}

fn sink(server: &Server) -> NatsSink {
    NatsSink::new(options(server)).unwrap()
}

/// Each of `count` events once, and those of one key in their order.
fn assert_once_and_in_order(server: &Server, count: usize) {
    let stored = server.read(STREAM);
    assert_eq!(stored.len(), count);
    let mut last: HashMap<String, u64> = HashMap::new();
    for message in &stored {
        let number = message.body["data"].as_u64().unwrap();
        assert_eq!(message.id, format!("event-{number}"));
        let key = message.body["subject"].as_str().unwrap().to_owned();
        if let Some(before) = last.insert(key, number) {
            assert!(before < number, "{number} lies behind {before}");
        }
    }
}

fn assert_nothing_spent(operator: &Operator) {
    let states = [ExceptionState::DeadLetter, ExceptionState::Retry, ExceptionState::Waiting, ExceptionState::Parked];
    let page = operator.exceptions(&Filter::states(states), None, 10).unwrap();
    assert!(page.exceptions.is_empty(), "{page:?}");
}

#[test]
fn a_broker_killed_amid_10_000_events_has_each_once_in_order_and_no_attempt_is_spent() {
    const COUNT: usize = 10_000;
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    insert(&database, 0, COUNT / 2);
    let relay = Relay::builder(&database).handler("nats", sink(&server)).options(quick()).start().unwrap();
    wait_until("some are stored", || server.messages_in(STREAM) > 500);
    server.kill();
    insert(&database, COUNT / 2, COUNT);
    wait_until("the lane pauses", || matches!(relay.status()[0].state, LaneState::Paused { .. }));
    server.up();
    assert!(relay.wait_drained(Instant::now() + LONG), "{:?}", relay.status());
    // And once more while idle, with the sink's connection lost.
    server.kill();
    server.up();
    insert(&database, COUNT, COUNT + 100);
    assert!(relay.wait_drained(Instant::now() + LONG), "{:?}", relay.status());
    relay.stop(Instant::now() + LONG).unwrap();
    assert_once_and_in_order(&server, COUNT + 100);
    assert_nothing_spent(&Operator::new(&database));
}

/// Publishes, tells its parent, and never comes back.
struct PublishAndHang(NatsSink);

impl Handler for PublishAndHang {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.handle_batch(std::slice::from_ref(event))
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.0.handle_batch(events)?;
        println!("published");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    }

    fn batch_limit(&self) -> usize {
        self.0.batch_limit()
    }
}

const CHILD: &str = "VAYU_TEST_NATS_CHILD";

/// Not a test of its own: the process that is killed.
#[test]
fn child_publishes_and_hangs() {
    let Ok(settings) = std::env::var(CHILD) else { return };
    let (url, folder) = settings.split_once(' ').unwrap();
    let database = database(Path::new(folder));
    let sink = PublishAndHang(NatsSink::new(NatsOptions::new([url])).unwrap());
    let _relay = Relay::builder(&database).handler("nats", sink).start().unwrap();
    std::thread::sleep(LONG);
}

#[test]
fn a_relay_killed_between_publish_and_flush_leaves_no_duplicate() {
    const COUNT: usize = 300;
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    insert(&database, 0, COUNT);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_publishes_and_hangs", "--exact", "--nocapture"])
        .env(CHILD, format!("{} {}", server.url(), folder.path().display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("published")), "it published");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(server.messages_in(STREAM), COUNT as u64, "all of it, and none of it flushed");
    let relay = Relay::builder(&database).handler("nats", sink(&server)).options(quick()).start().unwrap();
    wait_until("everything is delivered again", || {
        relay.status()[0].cursor >= COUNT as i64 && relay.wait_drained(Instant::now() + LONG)
    });
    relay.stop(Instant::now() + LONG).unwrap();
    assert_once_and_in_order(&server, COUNT);
}

#[test]
fn the_message_is_a_cloud_event_under_a_subject_of_its_type_and_partition() {
    let Some(server) = Server::start() else { return };
    let mut event = NewEvent::from_json("odd type.*", r#"{"n": 1}"#).key("k").correlation_id("c").causation_id("d");
    event.event_id = "e-1".to_owned();
    let mut options = options(&server);
    options.partitions = 4;
    let sink = NatsSink::new(options).unwrap();
    sink.handle(&event.clone().into_event(1)).unwrap();
    sink.handle(&event.clone().into_event(1)).unwrap();
    let mut forced = event.clone().into_event(1);
    (forced.forced, forced.replays) = (true, 1);
    sink.handle(&forced).unwrap();
    let mut edited = event.into_event(1);
    (edited.edited, edited.replays, edited.payload) = (true, 2, r#"{"n": 2}"#.to_owned());
    sink.handle(&edited).unwrap();
    let stored = server.read(STREAM);
    let ids: Vec<&str> = stored.iter().map(|message| message.id.as_str()).collect();
    assert_eq!(ids, ["e-1", "e-1:r1", "e-1:r2"], "a plain repeat is a duplicate, and delivered");
    let partition = vayu_articles::sinks::nats::partition_of("k", 4);
    assert_eq!(stored[0].subject, format!("vayu.events.{partition}.odd%20type.%2A"));
    let body = &stored[0].body;
    assert_eq!(body["specversion"], "1.0");
    assert_eq!((&body["id"], &body["type"], &body["subject"]), (&json!("e-1"), &json!("odd type.*"), &json!("k")));
    assert_eq!((&body["correlationid"], &body["causationid"]), (&json!("c"), &json!("d")));
    assert_eq!(stored[2].body["data"], json!({ "n": 2 }));
}

#[test]
fn a_forced_and_an_edited_replay_reach_the_stream_though_it_has_the_event() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let sink = Arc::new(sink(&server));
    let poison = Arc::new(std::sync::atomic::AtomicBool::new(true));
    // Published, and then given up all the same.
    let (inner, bad) = (Arc::clone(&sink), Arc::clone(&poison));
    let handler = move |event: &Event| {
        inner.handle(event)?;
        match bad.load(std::sync::atomic::Ordering::SeqCst) {
            true => Err(DispatchError::poison("after the fact")),
            false => Ok(()),
        }
    };
    insert(&database, 0, 1);
    let relay = Relay::builder(&database).handler("nats", handler).options(quick()).start().unwrap();
    let operator = Operator::new(&database);
    let dead = || operator.exceptions(&Filter::default(), None, 10).unwrap().exceptions.len() == 1;
    wait_until("it is a dead letter", dead);
    operator.replay(1, "nats", false).unwrap();
    wait_until("it is one again", dead);
    assert_eq!(server.messages_in(STREAM), 1, "a plain replay of what is there adds nothing");
    operator.replay(1, "nats", true).unwrap();
    wait_until("the forced one is there", || server.messages_in(STREAM) == 2);
    wait_until("and a dead letter as before", dead);
    poison.store(false, std::sync::atomic::Ordering::SeqCst);
    operator.edit(1, "nats", "[42]", true).unwrap();
    wait_until("the edited one is there", || server.messages_in(STREAM) == 3);
    let stored = server.read(STREAM);
    assert_eq!([&stored[1].id, &stored[2].id], ["event-0:r2", "event-0:r3"]);
    assert_eq!(stored[2].body["data"], json!([42]));
    relay.stop(Instant::now() + LONG).unwrap();
}

#[test]
fn a_foreign_stream_is_adopted_one_field_changes_and_the_rest_stays() {
    let Some(server) = Server::start() else { return };
    let made = json!({
        "name": STREAM, "description": "ours since 2019", "subjects": ["vayu.>", "other"], "retention": "limits",
        "storage": "file", "max_age": 86_400_000_000_000_u64, "max_msgs_per_subject": 77, "duplicate_window":
        120_000_000_000_u64, "num_replicas": 1, "max_msg_size": 1_000_000, "allow_rollup_hdrs": true,
    });
    let before = server.api(&format!("STREAM.CREATE.{STREAM}"), &made)["config"].clone();
    assert_eq!(before["description"], "ours since 2019");
    sink(&server).begin(&LaneStart::new(0, None)).unwrap();
    let after = server.api(&format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"].clone();
    let mut wanted = before;
    wanted["duplicate_window"] = json!(3_600_000_000_000_u64);
    assert_eq!(after, wanted);
    // What is right is left alone.
    sink(&server).begin(&LaneStart::new(0, None)).unwrap();
    assert_eq!(server.api(&format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"], wanted);
}

#[test]
fn a_stream_that_is_absent_is_made_with_a_window_of_an_hour() {
    let Some(server) = Server::start() else { return };
    sink(&server).begin(&LaneStart::new(0, None)).unwrap();
    let config = server.api(&format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"].clone();
    assert_eq!(config["duplicate_window"], json!(3_600_000_000_000_u64), "{config}");
    assert_eq!((&config["subjects"], &config["storage"]), (&json!(["vayu.events.>"]), &json!("file")), "{config}");
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
    let as_user = |user: &str| {
        let mut options = NatsOptions::new([server.url().replace("nats://", &format!("nats://{user}:{user}@"))]);
        options.ack_timeout = Duration::from_millis(400);
        options.connect_timeout = Duration::from_millis(400);
        options
    };
    let event = |size: usize| NewEvent::new("a.v1", &"x".repeat(size)).unwrap().into_event(1);
    let outage = |options: NatsOptions, what: &str| {
        let answer = NatsSink::new(options).unwrap().handle(&event(10));
        let Err(DispatchError::Unavailable { reason, .. }) = answer else { panic!("{what}: {answer:?}") };
        reason
    };

    // The connection.
    outage(as_user("nobody"), "wrong credentials");
    let mut nowhere = as_user("all");
    nowhere.servers = vec!["nats://127.0.0.1:1".into()];
    outage(nowhere, "no server");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut mute = as_user("all");
    mute.servers = vec![format!("nats://{}", silent.local_addr().unwrap())];
    outage(mute, "a server that says nothing");
    let mut missing = as_user("all");
    missing.credentials = Some("/nowhere/at.all".into());
    assert!(outage(missing, "no credentials file").contains("/nowhere/at.all"));
    let mut secure = as_user("all");
    secure.tls_required = true;
    outage(secure, "a server without TLS");

    // One server of several is enough.
    let mut several = as_user("all");
    several.servers.insert(0, "nats://127.0.0.1:1".into());
    NatsSink::new(several).unwrap().handle(&event(10)).unwrap();

    // The server's and the stream's limits, and what the message alone is to blame for.
    let sink = NatsSink::new(as_user("all")).unwrap();
    let too_large = |size| {
        let answer = sink.handle(&event(size));
        assert!(matches!(answer, Err(DispatchError::Poison { .. })), "{answer:?}");
    };
    too_large(5_000);
    let update = |change: Value| {
        let mut config = server.api_as("all", &format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"].clone();
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = server.api_as("all", &format!("STREAM.UPDATE.{STREAM}"), &config);
        assert!(answer.get("error").is_none(), "{answer}");
    };
    update(json!({ "max_msg_size": 1_000 }));
    too_large(2_000);
    sink.handle(&event(10)).unwrap();
    update(json!({ "max_msg_size": -1, "max_msgs": 1, "discard": "new" }));
    let full = outage(as_user("all"), "a full stream");
    assert!(full.contains("maximum messages exceeded"), "{full}");
    update(json!({ "max_msgs": -1, "discard": "old", "subjects": ["elsewhere"] }));
    outage(as_user("all"), "no stream takes the subject");
    update(json!({ "subjects": ["vayu.events.>"], "duplicate_window": 60_000_000_000_u64 }));

    // No permission to publish, nor to mend the stream: the second is a warning.
    let little = outage(as_user("little"), "no permission");
    assert!(little.contains("vayu.events.a.v1"), "past the refused update, and told why: {little}");
}

#[test]
fn a_broker_that_stands_still_is_an_outage_and_goes_on() {
    let Some(server) = Server::start() else { return };
    let mut options = options(&server);
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

#[test]
fn tls_with_an_authority_of_ones_own_and_a_client_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let openssl = |arguments: &[&str]| Command::new("openssl").args(arguments).stderr(Stdio::null()).status();
    let (ca, ca_key) = (file("ca.pem"), file("ca.key"));
    let made = openssl(&[
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ours", "-keyout", &ca_key, "-out",
        &ca,
    ]);
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    let names = file("names");
    std::fs::write(&names, "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n").unwrap();
    let signed = |name: &str| {
        let [key, request, certificate] = ["key", "csr", "pem"].map(|kind| file(&format!("{name}.{kind}")));
        let subject = format!("/CN={name}");
        openssl(&["req", "-newkey", "rsa:2048", "-nodes", "-subj", &subject, "-keyout", &key, "-out", &request])
            .unwrap();
        openssl(&[
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            &request,
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-CAcreateserial",
            "-extfile",
            &names,
            "-out",
            &certificate,
        ])
        .unwrap();
        (certificate, key)
    };
    let (certificate, key) = signed("server");
    let tls =
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true, timeout: 5 }}");
    let Some(server) = Server::start_with(&tls) else { return };
    let event = NewEvent::new("a.v1", &1).unwrap().into_event(1);
    let mut options = options(&server);
    options.ack_timeout = Duration::from_secs(20);
    options.connect_timeout = Duration::from_secs(20);
    let publish = |options: &NatsOptions| NatsSink::new(options.clone()).unwrap().handle(&event);
    assert!(matches!(publish(&options), Err(DispatchError::Unavailable { .. })), "an authority nobody knows");
    options.tls_ca = Some(ca.clone().into());
    options.tls_required = true;
    assert!(matches!(publish(&options), Err(DispatchError::Unavailable { .. })), "no certificate to show");
    let (certificate, key) = signed("client");
    options.tls_client = Some((certificate.into(), key.into()));
    publish(&options).unwrap();
}
