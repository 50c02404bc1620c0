//! The sink against a real broker that is killed: what comes to lie in the stream.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use serde_json::json;
use vayu_articles::outbox::{
    self, DispatchError, Event, ExceptionState, Filter, Handler, LaneState, NewEvent, Operator, Relay, RelayOptions,
};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};
use vayu_articles::storage::{Database, Options};

use crate::fixtures::{STREAM, nats};
use crate::support::{Gate, LONG, Server, await_death, wait_until};

const KEYS: usize = 100;

pub fn database(folder: &Path) -> Database {
    Database::open(folder.join("site.db"), &[outbox::COMPONENT], Options::default()).unwrap()
}

/// Events number `from..to`, of keys in turn; the payload is the event's number.
pub fn insert(database: &Database, from: usize, to: usize) {
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

pub fn quick() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.policy.pause_base = Duration::from_millis(50);
    options.policy.pause_max = Duration::from_millis(200);
    options
}

fn sink(server: &Server) -> NatsSink {
    NatsSink::new(nats(server, 0)).unwrap()
}

/// Each of `count` events once, and those of one key in their order.
pub fn assert_once_and_in_order(server: &Server, count: usize) {
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

pub fn assert_nothing_spent(operator: &Operator) {
    let states = [ExceptionState::DeadLetter, ExceptionState::Retry, ExceptionState::Waiting, ExceptionState::Parked];
    let page = operator.exceptions(&Filter::states(states), None, 10).unwrap();
    assert!(page.exceptions.is_empty(), "{page:?}");
}

/// Says when its third batch begins, and holds the fifth until the broker has been killed.
struct KilledAmid {
    sink: NatsSink,
    batches: AtomicUsize,
    third: Sender<()>,
    killed: Gate,
}

impl Handler for KilledAmid {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.sink.handle(event)
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        match self.batches.fetch_add(1, Ordering::SeqCst) + 1 {
            3 => self.third.send(()).unwrap(),
            5 => self.killed.pass(),
            _ => {}
        }
        self.sink.handle_batch(events)
    }

    fn batch_limit(&self) -> usize {
        self.sink.batch_limit()
    }
}

#[test]
fn a_broker_killed_amid_10_000_events_has_each_once_in_order_and_no_attempt_is_spent() {
    const COUNT: usize = 10_000;
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    insert(&database, 0, COUNT / 2);
    let ((third, begun), killed) = (std::sync::mpsc::channel(), Gate::default());
    let handler = KilledAmid { sink: sink(&server), batches: AtomicUsize::new(0), third, killed: killed.clone() };
    let relay = Relay::builder(&database).handler("nats", handler).options(quick()).start().unwrap();
    begun.recv_timeout(LONG).unwrap();
    server.kill();
    killed.open();
    insert(&database, COUNT / 2, COUNT);
    wait_until("the lane pauses", || matches!(relay.status()[0].state, LaneState::Paused { .. }));
    server.up();
    assert!(server.messages_in(STREAM) < (COUNT / 2) as u64, "it was killed amid them");
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
        await_death()
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
    await_death();
}

#[test]
fn a_relay_killed_between_publish_and_flush_leaves_no_duplicate() {
    const COUNT: usize = 300;
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    insert(&database, 0, COUNT);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["sink::child_publishes_and_hangs", "--exact", "--nocapture"])
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
    let sink = NatsSink::new(nats(&server, 4)).unwrap();
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
fn an_id_that_would_share_anothers_header_value_is_refused_and_not_dropped_as_a_duplicate() {
    let Some(server) = Server::start() else { return };
    let sink = sink(&server);
    let send = |id: &str| {
        let mut event = NewEvent::new("note.changed.v1", &1).unwrap();
        event.event_id = id.to_owned();
        sink.handle(&event.into_event(1))
    };
    let carried = ["a", "a b", "\u{a0}a", "a\u{3000}"];
    carried.into_iter().for_each(|id| send(id).unwrap());
    for id in [" a", "a ", "\ta", "a\t", "\u{b}a", " ", "a\nb", "a\r"] {
        let refused = send(id);
        assert!(matches!(refused, Err(DispatchError::Poison { .. })), "{id:?}: {refused:?}");
    }
    assert_eq!(server.messages_in(STREAM), carried.len() as u64, "none is taken for another");
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
