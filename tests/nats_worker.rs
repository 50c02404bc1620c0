//! Workers against a real broker: killed, stopped, cut off, given what they cannot do.
#![cfg(feature = "nats")]

mod nats_support;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nats_support::{LONG, Server, runtime, wait_until};
use serde_json::{Value, json};
use vayu_articles::outbox::{
    DispatchError, Event, Handler, Ledger, LedgerOptions, LedgerQuery, LedgerState, NewEvent, Policy,
};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};
use vayu_articles::storage::{Database, Options};
use vayu_articles::worker::{COMPONENT, Worker, WorkerOptions};

const STREAM: &str = "VAYU_EVENTS";
const KEYS: usize = 10;

fn database(folder: &Path) -> Database {
    Database::open(folder.join("worker.db"), &[COMPONENT], Options::default()).unwrap()
}

fn nats(server: &Server, partitions: u32) -> NatsOptions {
    let mut options = NatsOptions::new([server.url()]);
    options.partitions = partitions;
    options
}

fn quick() -> Policy {
    let mut policy = Policy::default();
    policy.backoff_base = Duration::from_millis(30);
    policy.backoff_max = Duration::from_millis(100);
    policy.pause_base = Duration::from_millis(30);
    policy.pause_max = Duration::from_millis(100);
    policy
}

fn options(server: &Server, partitions: u32) -> WorkerOptions {
    let mut options = WorkerOptions::new(nats(server, partitions));
    options.policy = quick();
    options.poll = Duration::from_millis(20);
    options
}

fn event(number: usize) -> Event {
    let mut event = NewEvent::new("note.changed.v1", &number).unwrap().key(format!("key-{}", number % KEYS));
    event.event_id = format!("event-{number}");
    event.into_event(number as i64 + 1)
}

fn publish(server: &Server, partitions: u32, numbers: std::ops::Range<usize>) {
    let events: Vec<Event> = numbers.map(event).collect();
    NatsSink::new(nats(server, partitions)).unwrap().handle_batch(&events).unwrap();
}

/// What ran, in the order in which it ended: who, and the event's number.
#[derive(Clone, Default)]
struct Runs {
    ended: Arc<Mutex<Vec<(String, usize)>>>,
    running: Arc<Mutex<HashSet<usize>>>,
    overlaps: Arc<AtomicUsize>,
}

impl Runs {
    /// A handler that takes this long.
    fn handler(&self, who: &str, takes: Duration) -> impl Fn(&Event) -> Result<(), DispatchError> + use<> {
        let (runs, who) = (self.clone(), who.to_owned());
        move |event| {
            let number: usize = event.json()?;
            if !runs.running.lock().unwrap().insert(number) {
                runs.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::sleep(takes);
            runs.running.lock().unwrap().remove(&number);
            runs.ended.lock().unwrap().push((who.clone(), number));
            Ok(())
        }
    }

    fn len(&self) -> usize {
        self.ended.lock().unwrap().len()
    }

    fn by(&self, who: &str) -> usize {
        self.ended.lock().unwrap().iter().filter(|(by, _)| by == who).count()
    }

    /// Each of `count` events once, never two runs of one at once, and those of one key in their order.
    fn assert_once_and_in_order(&self, count: usize) {
        let ended = self.ended.lock().unwrap().clone();
        let all: HashSet<usize> = ended.iter().map(|(_, number)| *number).collect();
        assert_eq!((ended.len(), all.len()), (count, count), "each once");
        assert_eq!(self.overlaps.load(Ordering::SeqCst), 0, "never twice at once");
        let mut last = HashMap::new();
        for (_, number) in ended {
            if let Some(before) = last.insert(number % KEYS, number) {
                assert!(before < number, "{number} ran after {before}");
            }
        }
    }
}

fn consumer(server: &Server, name: &str) -> Value {
    server.api(&format!("CONSUMER.INFO.{STREAM}.{name}"), &Value::Null)
}

fn wait_acknowledged(server: &Server, name: &str, count: u64) {
    wait_until("all is acknowledged", || {
        let info = consumer(server, name);
        info["num_ack_pending"] == 0 && info["num_pending"] == 0 && info["ack_floor"]["stream_seq"] == count
    });
}

fn stop(worker: &Worker) {
    worker.stop(Instant::now() + LONG).unwrap();
}

#[test]
fn one_worker_runs_each_event_once_in_order_and_acknowledges_it() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let worker = Worker::new(&database(folder.path()), options(&server, 0)).unwrap();
    let worker = worker.handler("notes", runs.handler("one", Duration::ZERO));
    worker.start().unwrap();
    publish(&server, 0, 0..200);
    wait_until("all have run", || runs.len() == 200);
    wait_acknowledged(&server, "worker-notes", 200);
    stop(&worker);
    runs.assert_once_and_in_order(200);
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0);
}

#[test]
fn two_workers_share_the_load_and_a_clean_stop_of_one_loses_and_doubles_nothing() {
    const COUNT: usize = 400;
    let Some(server) = Server::start() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let runs = Runs::default();
    let start = |who: &str, folder: &Path| {
        let worker = Worker::new(&database(folder), options(&server, 4)).unwrap();
        let worker = worker.handler("notes", runs.handler(who, Duration::from_millis(5)));
        worker.start().unwrap();
        worker
    };
    let first = start("first", folders[0].path());
    let second = start("second", folders[1].path());
    publish(&server, 4, 0..COUNT);
    wait_until("both work", || runs.by("first") > 20 && runs.by("second") > 20);
    stop(&first);
    let by_first = runs.by("first");
    wait_until("all have run", || runs.len() == COUNT);
    stop(&second);
    assert_eq!(runs.by("first"), by_first, "stopped is stopped");
    runs.assert_once_and_in_order(COUNT);
    for partition in 0..4 {
        let info = consumer(&server, &format!("worker-notes-{partition}of4"));
        assert_eq!((&info["num_ack_pending"], &info["num_pending"]), (&json!(0), &json!(0)), "{info}");
    }
}

#[test]
fn workers_of_two_names_get_everything_each() {
    let Some(server) = Server::start() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let runs = [Runs::default(), Runs::default()];
    publish(&server, 0, 0..50);
    let workers: Vec<Worker> = (folders.iter().zip(&runs).enumerate())
        .map(|(number, (folder, runs))| {
            let mut options = options(&server, 0);
            options.name = format!("machine-{number}");
            let worker = Worker::new(&database(folder.path()), options).unwrap();
            let worker = worker.handler("notes", runs.handler("it", Duration::ZERO));
            worker.start().unwrap();
            worker
        })
        .collect();
    wait_until("both have run all", || runs.iter().all(|runs| runs.len() == 50));
    workers.iter().for_each(stop);
    runs.iter().for_each(|runs| runs.assert_once_and_in_order(50));
}

const CHILD: &str = "VAYU_TEST_WORKER_CHILD";

/// Not a test of its own: the worker that is killed in event 7.
#[test]
fn child_works_until_it_is_killed() {
    let Ok(settings) = std::env::var(CHILD) else { return };
    let (url, folder) = settings.split_once(' ').unwrap();
    let mut options = WorkerOptions::new(NatsOptions::new([url]));
    options.ack_wait = Duration::from_secs(1);
    let effects = Path::new(folder).join("effects");
    let worker = Worker::new(&database(Path::new(folder)), options).unwrap().handler("notes", move |event: &Event| {
        let number: usize = event.json()?;
        if number == 7 {
            println!("in the handler");
            std::io::stdout().flush().unwrap();
            std::thread::sleep(LONG);
        }
        append(&effects, number);
        Ok(())
    });
    worker.start().unwrap();
    std::thread::sleep(LONG);
}

fn append(file: &Path, number: usize) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{number}").unwrap();
}

#[test]
fn a_worker_killed_in_its_handler_has_each_effect_once_and_loses_no_order() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..40);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child_works_until_it_is_killed", "--exact", "--nocapture"])
        .env(CHILD, format!("{} {}", server.url(), folder.path().display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("in the handler")), "it came to event 7");
    child.kill().unwrap();
    child.wait().unwrap();

    let database = database(folder.path());
    let effects = folder.path().join("effects");
    let mut options = options(&server, 0);
    options.ack_wait = Duration::from_secs(1);
    let file = effects.clone();
    let worker = Worker::new(&database, options).unwrap().handler("notes", move |event: &Event| {
        append(&file, event.json()?);
        Ok(())
    });
    worker.start().unwrap();
    wait_acknowledged(&server, "worker-notes", 40);
    stop(&worker);
    let text = std::fs::read_to_string(&effects).unwrap();
    let done: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(done, (0..40).collect::<Vec<_>>(), "each once, in order, also what came after the one in hand");
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    let entry = &ledger.show("event-7").unwrap()[0];
    assert_eq!((entry.state, entry.attempts), (LedgerState::Done, 0), "{entry:?}");
    assert!(entry.history.iter().any(|entry| entry.what == "crash"), "the death stands in its history");
    assert!(ledger.entries(&LedgerQuery::default()).unwrap().is_empty(), "no dead letter");
}

#[test]
fn a_failing_event_is_a_dead_letter_here_acknowledged_there_and_replayed_by_the_running_worker() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let (bad, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let runs = Runs::default();
    let (fails, counted, rest) = (Arc::clone(&bad), Arc::clone(&calls), runs.handler("one", Duration::ZERO));
    let worker = Worker::new(&database, options(&server, 0)).unwrap().handler("notes", move |event: &Event| {
        if event.event_id == "event-3" {
            counted.fetch_add(1, Ordering::SeqCst);
            if fails.load(Ordering::SeqCst) {
                return Err(DispatchError::retry("no"));
            }
        }
        rest(event)
    });
    worker.start().unwrap();
    publish(&server, 0, 0..10);
    wait_acknowledged(&server, "worker-notes", 10);
    assert_eq!(calls.load(Ordering::SeqCst), 3, "as a local relay does");
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    let dead = ledger.entries(&LedgerQuery::default()).unwrap();
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].event_id.as_str(), dead[0].reason.as_deref()), ("event-3", Some("no")));
    bad.store(false, Ordering::SeqCst);
    ledger.replay("event-3", "notes", false).unwrap();
    wait_until("it has run", || runs.len() == 10);
    wait_until("and is done", || ledger.show("event-3").unwrap()[0].state == LedgerState::Done);
    stop(&worker);
}

#[test]
fn a_message_that_is_no_event_is_a_dead_letter_and_the_next_goes_on() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    publish(&server, 0, 0..1);
    let long = json!({ "specversion": "1.0", "id": "x".repeat(600), "type": "t" }).to_string();
    for body in ["junk", r#"{"specversion":"1.0","id":"","type":"t"}"#, &long] {
        let ack = runtime().block_on(async {
            let client = async_nats::connect(server.url()).await.unwrap();
            client.request("vayu.events.x", body.to_owned().into()).await.unwrap()
        });
        assert!(ack.payload.starts_with(b"{\"stream\""), "{ack:?}");
    }
    publish(&server, 0, 1..2);
    let runs = Runs::default();
    let worker = Worker::new(&database, options(&server, 0)).unwrap();
    let worker = worker.handler("notes", runs.handler("one", Duration::ZERO));
    worker.start().unwrap();
    wait_acknowledged(&server, "worker-notes", 5);
    stop(&worker);
    assert_eq!(runs.len(), 2);
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    let dead = ledger.entries(&LedgerQuery::default()).unwrap();
    let ids: Vec<&str> = dead.iter().map(|entry| entry.event_id.as_str()).collect();
    assert_eq!(ids, ["VAYU_EVENTS:2", "VAYU_EVENTS:3", "VAYU_EVENTS:4"]);
    assert!(dead[0].reason.as_deref().unwrap().contains("no CloudEvent"), "{dead:?}");
    assert_eq!(dead[0].event.as_ref().unwrap().payload, "junk", "kept");
}

#[test]
fn an_outage_however_long_spends_nothing_and_a_long_call_stays_with_its_worker() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let refused = Arc::new(AtomicUsize::new(0));
    let runs = Runs::default();
    let (asked, rest) = (Arc::clone(&refused), runs.handler("one", Duration::ZERO));
    let mut options = options(&server, 0);
    options.ack_wait = Duration::from_secs(1);
    let worker = Worker::new(&database, options).unwrap().handler("notes", move |event: &Event| {
        if asked.fetch_add(1, Ordering::SeqCst) < 40 {
            return Err(DispatchError::unavailable("down"));
        }
        if event.event_id == "event-1" {
            // Three times the wait after which a message without a sign of life is brought again.
            std::thread::sleep(Duration::from_secs(3));
        }
        rest(event)
    });
    worker.start().unwrap();
    publish(&server, 0, 0..20);
    wait_acknowledged(&server, "worker-notes", 20);
    stop(&worker);
    runs.assert_once_and_in_order(20);
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0, "signs of life were given");
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    assert_eq!(ledger.show("event-0").unwrap()[0].attempts, 0, "nothing was spent");
    assert!(ledger.entries(&LedgerQuery::default()).unwrap().is_empty());
}

#[test]
fn a_broker_killed_and_restarted_under_a_worker_loses_nothing() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let mut options = options(&server, 2);
    options.ack_wait = Duration::from_secs(2);
    let worker = Worker::new(&database(folder.path()), options).unwrap();
    let worker = worker.handler("notes", runs.handler("one", Duration::from_millis(2)));
    server.kill();
    worker.start().unwrap();
    server.up();
    publish(&server, 2, 0..300);
    for count in [50, 150] {
        wait_until("some have run", || runs.len() >= count);
        server.kill();
        server.up();
    }
    wait_until("all have run", || runs.len() >= 300);
    for partition in 0..2 {
        wait_until("all is acknowledged", || {
            let info = consumer(&server, &format!("worker-notes-{partition}of2"));
            info["num_ack_pending"] == 0 && info["num_pending"] == 0
        });
    }
    stop(&worker);
    // An acknowledgement may have died with the broker: the ledger then knows the event.
    runs.assert_once_and_in_order(300);
}

#[test]
fn what_another_worker_has_settled_does_not_hold_up_its_key_here() {
    let Some(server) = Server::start() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let asked = Arc::new(AtomicUsize::new(0));
    publish(&server, 0, 0..1);
    // The first meets an outage, so that its ledger holds the event open, and gives it back.
    let count = Arc::clone(&asked);
    let first = Worker::new(&database(folders[0].path()), options(&server, 0)).unwrap();
    let first = first.handler("notes", move |_: &Event| {
        count.fetch_add(1, Ordering::SeqCst);
        Err(DispatchError::unavailable("down"))
    });
    first.start().unwrap();
    wait_until("it was asked", || asked.load(Ordering::SeqCst) > 1);
    stop(&first);
    // The second does it.
    let second_runs = Runs::default();
    let second = Worker::new(&database(folders[1].path()), options(&server, 0)).unwrap();
    let second = second.handler("notes", second_runs.handler("second", Duration::ZERO));
    second.start().unwrap();
    wait_acknowledged(&server, "worker-notes", 1);
    stop(&second);
    // The first is back and gets the next of that key.
    publish(&server, 0, KEYS..KEYS + 1);
    let runs = Runs::default();
    let first = Worker::new(&database(folders[0].path()), options(&server, 0)).unwrap();
    let first = first.handler("notes", runs.handler("first", Duration::ZERO));
    first.start().unwrap();
    wait_acknowledged(&server, "worker-notes", 2);
    stop(&first);
    let ran: Vec<usize> = runs.ended.lock().unwrap().iter().map(|(_, number)| *number).collect();
    assert_eq!(ran, [0, KEYS], "at once, in order; the earlier one a second time in all");
}

#[test]
fn a_foreign_stream_and_consumer_are_adopted_three_fields_change_and_the_rest_stays() {
    let Some(server) = Server::start() else { return };
    let stream = json!({
        "name": STREAM, "description": "ours", "subjects": ["vayu.>"], "retention": "limits", "storage": "file",
        "max_age": 86_400_000_000_000_u64, "duplicate_window": 120_000_000_000_u64, "num_replicas": 1,
    });
    server.api(&format!("STREAM.CREATE.{STREAM}"), &stream);
    let config = json!({
        "durable_name": "worker-notes", "description": "ours too", "ack_policy": "explicit", "deliver_policy": "all",
        "ack_wait": 7_000_000_000_u64, "max_deliver": 5, "max_ack_pending": 1, "filter_subject": "vayu.events.>",
        "max_waiting": 99, "sample_freq": "13%", "replay_policy": "instant",
    });
    let create = format!("CONSUMER.DURABLE.CREATE.{STREAM}.worker-notes");
    let made = server.api(&create, &json!({ "stream_name": STREAM, "config": config }));
    assert!(made.get("error").is_none(), "{made}");
    let mut wanted_stream = server.api(&format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"].clone();
    wanted_stream["duplicate_window"] = json!(3_600_000_000_000_u64);
    let mut wanted = made["config"].clone();
    (wanted["max_deliver"], wanted["ack_wait"]) = (json!(-1), json!(30_000_000_000_u64));

    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let worker = Worker::new(&database(folder.path()), options(&server, 0)).unwrap();
    let worker = worker.handler("notes", runs.handler("one", Duration::ZERO));
    worker.start().unwrap();
    publish(&server, 0, 0..5);
    wait_until("all have run", || runs.len() == 5);
    stop(&worker);
    assert_eq!(consumer(&server, "worker-notes")["config"], wanted);
    assert_eq!(server.api(&format!("STREAM.INFO.{STREAM}"), &Value::Null)["config"], wanted_stream);
}
