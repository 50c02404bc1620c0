//! What an operator takes away under running relays and workers: messages, a consumer, the stream.

use std::time::Instant;

use serde_json::{Value, json};
use vayu_articles::outbox::{self, NewEvent, Relay};
use vayu_articles::sinks::nats::NatsSink;
use vayu_articles::storage::{Database, Options};

use crate::fixtures::{Runs, STREAM, consumer, dead_letters, nats, options, publish, start, stop, wait_acknowledged};
use crate::support::{Gate, LONG, Server, logged, record_log, wait_until};

fn delete(server: &Server, call: &str) {
    let answer = server.api(call, &Value::Null);
    if answer["error"]["code"] == 500 {
        // The broker was writing a file into the folder that it removed: once more, unless it is gone all the same.
        let again = server.api(call, &Value::Null);
        assert!(again["success"] == true || again["error"]["code"] == 404, "{answer}, then {again}");
    } else {
        assert_eq!(answer["success"], true, "{answer}");
    }
}

#[test]
fn a_stream_purged_under_a_worker_is_gone_on_with_from_the_next_message() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (runs, gate) = (Runs::default(), Gate::default());
    let hold = gate.clone();
    let worker = start(folder.path(), options(&server, 0), runs.handler_with("one", move |_| hold.pass()));
    publish(&server, 0, 0..30);
    gate.wait_for(1);
    delete(&server, &format!("STREAM.PURGE.{STREAM}"));
    gate.open();
    publish(&server, 0, 30..40);
    wait_acknowledged(&server, "worker-notes", 40);
    stop(&worker);
    let wanted: Vec<usize> = std::iter::once(0).chain(30..40).collect();
    assert_eq!(runs.numbers(), wanted, "the one in hand, and what came after");
}

#[test]
fn a_consumer_deleted_under_a_worker_is_made_anew_and_nothing_runs_twice() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let gates = [Gate::default(), Gate::default()];
    let at = gates.clone();
    let handler = runs.handler_with("one", move |number| match number {
        10 => at[0].pass(),
        30 => at[1].pass(),
        _ => {}
    });
    record_log();
    let mut options = options(&server, 0);
    options.name = "deleted".into();
    let worker = start(folder.path(), options, handler);
    publish(&server, 0, 0..20);
    // With a message in hand, and while waiting for one.
    gates[0].wait_for(1);
    delete(&server, &format!("CONSUMER.DELETE.{STREAM}.deleted-notes"));
    gates[0].open();
    wait_acknowledged(&server, "deleted-notes", 20);
    wait_until("it asks for more", || consumer(&server, "deleted-notes")["num_waiting"] == json!(1));
    delete(&server, &format!("CONSUMER.DELETE.{STREAM}.deleted-notes"));
    publish(&server, 0, 20..40);
    gates[1].wait_for(1);
    gates[1].open();
    wait_acknowledged(&server, "deleted-notes", 40);
    assert_eq!(consumer(&server, "deleted-notes")["config"]["max_ack_pending"], 1, "as before");
    stop(&worker);
    runs.assert_once_and_in_order(40);
    let said = [logged("consumer=deleted-notes interrupted").len(), logged("consumer=deleted-notes resumed").len()];
    assert!(said[0] >= 1 && said[1] >= 1, "the log says when it was over, too: {said:?}");
}

#[test]
fn a_stream_deleted_under_a_relay_and_a_worker_is_made_anew_by_either() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    publish(&server, 0, 0..5);
    wait_acknowledged(&server, "worker-notes", 5);
    // By the worker, which has nothing to do and nobody to tell it but the broker.
    delete(&server, &format!("STREAM.DELETE.{STREAM}"));
    wait_until("it is there again", || consumer(&server, "worker-notes").get("config").is_some());
    stop(&worker);

    // By the relay, whose connection is as good as before.
    let site = Database::open(folder.path().join("site.db"), &[outbox::COMPONENT], Options::default()).unwrap();
    let mut quick = outbox::RelayOptions::default();
    quick.policy = crate::fixtures::quick();
    let sink = NatsSink::new(nats(&server, 0)).unwrap();
    let relay = Relay::builder(&site).handler("nats", sink).options(quick).start().unwrap();
    let send = |number: usize| {
        let mut event = NewEvent::new("note.changed.v1", &number).unwrap();
        event.event_id = format!("event-{number}");
        site.writer().transact(move |tx| outbox::insert(tx, &event)).unwrap();
        assert!(relay.wait_drained(Instant::now() + LONG), "{:?}", relay.status());
    };
    send(5);
    delete(&server, &format!("STREAM.DELETE.{STREAM}"));
    send(6);
    relay.stop(Instant::now() + LONG).unwrap();
    let ids: Vec<String> = server.read(STREAM).into_iter().map(|stored| stored.id).collect();
    assert_eq!(ids, ["event-6"]);

    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    wait_acknowledged(&server, "worker-notes", 1);
    stop(&worker);
    assert_eq!(runs.numbers(), [0, 1, 2, 3, 4, 6], "what was lost with the stream is lost until a rewind of the lane");
    assert!(dead_letters(&crate::fixtures::database(folder.path())).is_empty());
}

#[test]
fn a_bad_message_of_a_stream_made_anew_is_a_dead_letter_beside_the_one_of_its_number_before() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let worker = start(folder.path(), options(&server, 0), Runs::default().handler("one"));
    for body in ["before", "after"] {
        wait_until("there is a stream", || consumer(&server, "worker-notes").get("config").is_some());
        server.publish_raw("vayu.events.x", &[], body.as_bytes());
        wait_acknowledged(&server, "worker-notes", 1);
        delete(&server, &format!("STREAM.DELETE.{STREAM}"));
    }
    stop(&worker);
    let dead = dead_letters(&crate::fixtures::database(folder.path()));
    let mut payloads: Vec<&str> = dead.iter().map(|entry| entry.event.as_ref().unwrap().payload.as_str()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, ["after", "before"], "{dead:?}");
    assert!(dead.iter().all(|entry| entry.event_id.starts_with("VAYU_EVENTS:1:")), "{dead:?}");
}
