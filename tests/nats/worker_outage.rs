//! What a worker does while something is down: the handler's other side, the broker, its own ledger.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use vayu_articles::outbox::{DispatchError, Event};
use vayu_articles::worker::Worker;

use crate::fixtures::{
    Runs, consumer, database, dead_letters, entry, options, publish, start, stop, wait_acknowledged,
};
use crate::support::{Gate, Server, logged, record_log, wait_until};

#[test]
fn an_outage_however_long_spends_nothing() {
    record_log();
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let refused = Arc::new(AtomicUsize::new(0));
    let runs = Runs::default();
    let (asked, rest) = (Arc::clone(&refused), runs.handler("one"));
    let worker = Worker::new(&database, options(&server, 0)).unwrap().handler("notes", move |event: &Event| {
        if asked.fetch_add(1, Ordering::SeqCst) < 40 {
            return Err(DispatchError::unavailable("down"));
        }
        rest(event)
    });
    worker.start().unwrap();
    publish(&server, 0, 0..20);
    wait_acknowledged(&server, "worker-notes", 20);
    stop(&worker);
    runs.assert_once_and_in_order(20);
    assert_eq!(entry(&database, "event-0").attempts, 0, "nothing was spent");
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0);
    assert!(dead_letters(&database).is_empty());
    assert!(!logged("handler=notes event_id=event-0 resumed pauses=40").is_empty(), "the log says that it is over");
}

#[test]
fn a_call_longer_than_ack_wait_gives_signs_of_life_and_stays_with_its_worker() {
    let Some(server) = Server::start() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut options = options(&server, 0);
    options.ack_wait = Duration::from_secs(1);
    let hold = gate.clone();
    let handler = move |number| {
        if number == 1 {
            hold.pass();
        }
    };
    let first = start(folders[0].path(), options.clone(), runs.handler_with("one", handler.clone()));
    let second = start(folders[1].path(), options, runs.handler_with("other", handler));
    publish(&server, 0, 0..20);
    gate.wait_for(1);
    // A consumer beside it that gives no sign gets its message again and again meanwhile.
    server.wait_for_redeliveries("probe", 3);
    gate.open();
    wait_acknowledged(&server, "worker-notes", 20);
    [&first, &second].into_iter().for_each(stop);
    runs.assert_once_and_in_order(20);
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0);
}

#[test]
fn a_broker_killed_and_restarted_under_a_worker_loses_nothing() {
    record_log();
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let gates = [Gate::default(), Gate::default()];
    let mut options = options(&server, 2);
    options.ack_wait = Duration::from_secs(2);
    server.kill();
    let at = gates.clone();
    let handler = runs.handler_with("one", move |number| match number {
        50 => at[0].pass(),
        150 => at[1].pass(),
        _ => {}
    });
    let worker = start(folder.path(), options, handler);
    server.up();
    publish(&server, 2, 0..300);
    // The call ends, and its word is spoken, while nobody listens.
    gates[0].wait_for(1);
    server.kill();
    gates[0].open();
    wait_until("it has run", || runs.numbers().contains(&50));
    server.up();
    // The call ends on another connection than it began on.
    gates[1].wait_for(1);
    server.kill();
    server.up();
    gates[1].open();
    for partition in 0..2 {
        wait_until("all is acknowledged", || {
            let info = consumer(&server, &format!("worker-notes-{partition}of2"));
            info["num_ack_pending"] == 0 && info["num_pending"] == 0
        });
    }
    stop(&worker);
    // An acknowledgement may have died with the broker: the ledger then knows the event.
    runs.assert_once_and_in_order(300);
    assert!(!logged("worker broker=connected").is_empty(), "it was not there at the start");
}

#[test]
fn a_worker_stops_at_once_while_the_broker_is_gone() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (runs, gate) = (Runs::default(), Gate::default());
    let hold = gate.clone();
    let mut options = options(&server, 0);
    options.nats.ack_timeout = Duration::from_secs(3_600);
    let worker = start(folder.path(), options, runs.handler_with("one", move |_| hold.pass()));
    publish(&server, 0, 0..2);
    gate.wait_for(1);
    server.kill();
    gate.open();
    wait_until("it has run", || runs.len() == 1);
    stop(&worker);
    runs.assert_once(1);
}

#[test]
fn a_ledger_that_cannot_be_written_is_waited_for_and_spends_nothing() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let runs = Runs::default();
    let worker = Worker::new(&database, options(&server, 0)).unwrap().handler("notes", runs.handler("one"));
    worker.start().unwrap();
    publish(&server, 0, 0..1);
    wait_acknowledged(&server, "worker-notes", 1);
    let foreign = Connection::open(folder.path().join("worker.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    publish(&server, 0, 1..20);
    wait_until("one is in hand", || consumer(&server, "worker-notes")["num_ack_pending"] == json!(1));
    assert_eq!(runs.len(), 1, "nothing runs that is not written down first");
    foreign.execute_batch("ROLLBACK").unwrap();
    wait_acknowledged(&server, "worker-notes", 20);
    stop(&worker);
    runs.assert_once_and_in_order(20);
    assert!(dead_letters(&database).is_empty());
}

#[test]
fn a_ledger_of_a_newer_version_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(database(folder.path()));
    let file = folder.path().join("worker.db");
    let change = "UPDATE vayu_schema SET version = version + 100 WHERE component = 'ledger'";
    assert!(Connection::open(&file).unwrap().execute(change, []).unwrap() > 0);
    let before = std::fs::read(&file).unwrap();
    let refused =
        vayu_articles::storage::Database::open(&file, &[vayu_articles::worker::COMPONENT], Default::default());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("ledger") && refused.contains("newer"), "{refused}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
}
