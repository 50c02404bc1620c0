//! Several that find nothing and make the same stream or consumer at once: whom the broker refuses goes on with what the
//! first has made.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};
use vayu_articles::outbox::{DispatchError, Handler as _, LaneStart};
use vayu_articles::sinks::nats::NatsSink;

use crate::fixtures::{Runs, STREAM, consumer, deliver, event, nats, options, start, stop, wait_acknowledged};
use crate::support::{Gate, Server, logged, record_log};

const HOUR: u64 = 3_600_000_000_000;

/// A way to the broker on which whatever holds `what` waits at the gate. Ends with the test's process.
fn way_through(server: &Server, what: &'static str, gate: &Gate) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let way = format!("nats://{}", listener.local_addr().unwrap());
    let (gate, broker) = (gate.clone(), server.url().trim_start_matches("nats://").to_owned());
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, broker) = (client.unwrap(), TcpStream::connect(&broker).unwrap());
            let back = (broker.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || pass_on(back.0, back.1, |_| {}));
            let gate = gate.clone();
            let hold = move |sent: &[u8]| {
                if sent.windows(what.len()).any(|window| window == what.as_bytes()) {
                    gate.pass();
                }
            };
            thread::spawn(move || pass_on(client, broker, hold));
        }
    });
    way
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut before: impl FnMut(&[u8])) {
    let mut buffer = [0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        before(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

fn make(server: &Server, call: &str, config: &Value) {
    let made = server.api(call, config);
    assert!(made.get("error").is_none(), "{made}");
}

#[test]
fn a_stream_made_by_another_in_the_meantime_is_adopted_like_one_that_was_there() {
    let Some(server) = Server::start() else { return };
    let gate = Gate::default();
    let mut options = nats(&server, 0);
    options.servers = vec![way_through(&server, "$JS.API.STREAM.CREATE.", &gate)];
    let sink = NatsSink::new(options).unwrap();
    thread::scope(|scope| {
        let delivered = scope.spawn(|| sink.handle(&event(0)));
        gate.wait_for(1);
        let theirs = json!({ "name": STREAM, "description": "theirs", "subjects": ["vayu.>"],
            "duplicate_window": HOUR / 60 });
        make(&server, &format!("STREAM.CREATE.{STREAM}"), &theirs);
        gate.open();
        delivered.join().unwrap().unwrap();
    });
    let config = &server.api(&format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"];
    assert_eq!(config["description"], "theirs", "{config}");
    assert_eq!(config["duplicate_window"], HOUR, "and looked after: {config}");
    assert_eq!(server.messages_in(STREAM), 1);
}

#[test]
fn a_consumer_made_by_another_in_the_meantime_is_adopted_like_one_that_was_there() {
    let Some(server) = Server::start() else { return };
    let (folder, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let mut options = options(&server, 0);
    options.nats.servers = vec![way_through(&server, "$JS.API.CONSUMER.DURABLE.CREATE.", &gate)];
    options.name = "meantime".into();
    record_log();
    let runs = Runs::default();
    let worker = start(folder.path(), options, runs.handler("one"));
    gate.wait_for(1);
    // A consumer never changes what it brings first, so that the broker refuses ours.
    let theirs = json!({ "stream_name": STREAM, "config": {
        "durable_name": "meantime-notes", "description": "theirs", "deliver_policy": "new", "ack_policy": "explicit",
        "ack_wait": 9_000_000_000_u64, "max_deliver": 4, "max_ack_pending": 1, "filter_subject": "vayu.events.>",
        "replay_policy": "instant",
    }});
    make(&server, &format!("CONSUMER.DURABLE.CREATE.{STREAM}.meantime-notes"), &theirs);
    gate.open();
    crate::fixtures::publish(&server, 0, 0..3);
    wait_acknowledged(&server, "meantime-notes", 3);
    stop(&worker);
    runs.assert_once_and_in_order(3);
    let config = consumer(&server, "meantime-notes")["config"].clone();
    assert_eq!((&config["description"], &config["deliver_policy"]), (&json!("theirs"), &json!("new")), "{config}");
    assert_eq!((&config["max_deliver"], &config["ack_wait"]), (&json!(-1), &json!(30_000_000_000_u64)), "{config}");
    assert!(logged("consumer=meantime-notes interrupted").is_empty(), "without a pause");
}

#[test]
fn many_that_start_at_once_on_a_new_broker_all_find_its_stream_at_the_first_look() {
    const SINKS: usize = 8;
    let Some(server) = Server::start() else { return };
    for round in 0..50 {
        let (stream, prefix) = (format!("ROUND_{round}"), format!("round{round}"));
        let together = Barrier::new(SINKS);
        thread::scope(|scope| {
            for number in 0..SINKS {
                let mut options = nats(&server, 0);
                (options.stream, options.prefix) = (stream.clone(), prefix.clone());
                let (sink, together) = (NatsSink::new(options).unwrap(), &together);
                scope.spawn(move || {
                    together.wait();
                    sink.begin(&LaneStart::new(0, None)).unwrap();
                    deliver(&sink, &[event(number)]);
                });
            }
        });
        assert_eq!(server.messages_in(&stream), SINKS as u64);
    }
}

#[test]
fn a_stream_of_another_name_with_our_subjects_stays_a_refusal() {
    let Some(server) = Server::start() else { return };
    make(&server, "STREAM.CREATE.THEIRS", &json!({ "name": "THEIRS", "subjects": ["vayu.>"] }));
    let refused = NatsSink::new(nats(&server, 0)).unwrap().handle(&event(0)).unwrap_err();
    assert!(matches!(refused, DispatchError::Unavailable { .. }), "it may be put right: {refused:?}");
    assert!(refused.to_string().contains("(10065)"), "{refused}");
    assert_eq!(server.messages_in("THEIRS"), 0);
}
