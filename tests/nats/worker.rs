//! A worker that lives: each event once, attempts by the ledger, dead letters durable here, and a death that loses nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use vayu_articles::outbox::{DispatchError, Event, Ledger, LedgerOptions, LedgerOutcome, LedgerState};
use vayu_articles::worker::Worker;

use crate::fixtures::{
    KEYS, Runs, consumer, database, dead_letters, entry, is_done, options, publish, start, stop, wait_acknowledged,
};
use crate::support::{Gate, Server, await_death, wait_until};

#[test]
fn one_worker_runs_each_event_once_in_order_and_acknowledges_it() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    publish(&server, 0, 0..200);
    wait_acknowledged(&server, "worker-notes", 200);
    stop(&worker);
    runs.assert_once_and_in_order(200);
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0);
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
            start(folder.path(), options, runs.handler("it"))
        })
        .collect();
    wait_until("both have run all", || runs.iter().all(|runs| runs.len() == 50));
    workers.iter().for_each(stop);
    runs.iter().for_each(|runs| runs.assert_once_and_in_order(50));
}

#[test]
fn two_handlers_that_would_share_a_consumer_are_refused() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    for second in ["a.b", "a_b"] {
        let worker = Worker::new(&database, options(&server, 0)).unwrap();
        let nothing = |_: &Event| Ok(());
        let worker = worker.handler("a.b", nothing).handler(second, nothing);
        let refused = worker.start().unwrap_err().to_string();
        assert!(refused.contains("share the consumer"), "{refused}");
    }
}

#[test]
fn a_failing_event_is_a_dead_letter_here_acknowledged_there_and_replayed_by_the_running_worker() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let (bad, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let runs = Runs::default();
    let (fails, counted, rest) = (Arc::clone(&bad), Arc::clone(&calls), runs.handler("one"));
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
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0, "held in hand, not sent back and forth");
    let dead = dead_letters(&database);
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].event_id.as_str(), dead[0].reason.as_deref()), ("event-3", Some("no")));
    bad.store(false, Ordering::SeqCst);
    Ledger::new(&database, LedgerOptions::default()).unwrap().replay("event-3", "notes", false).unwrap();
    wait_until("it has run", || runs.len() == 10);
    wait_until("and is done", || is_done(&database, "event-3"));
    stop(&worker);
}

#[test]
fn an_event_that_somebody_else_runs_is_waited_for_and_that_spends_nothing() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let gate = Gate::default();
    let elsewhere = Ledger::new(&database, LedgerOptions::default()).unwrap();
    let claimed = {
        let gate = gate.clone();
        std::thread::spawn(move || {
            elsewhere.run_event(&crate::fixtures::event(0), "notes", |_| {
                gate.pass();
                Ok(())
            })
        })
    };
    gate.wait_for(1);
    let runs = Runs::default();
    let mut options = options(&server, 0);
    options.ack_wait = Duration::from_secs(1);
    let worker = start(folder.path(), options, runs.handler("one"));
    publish(&server, 0, 0..2);
    publish(&server, 0, KEYS..KEYS + 1);
    wait_until("it is in the worker's hands", || consumer(&server, "worker-notes")["num_ack_pending"] == 1);
    server.wait_for_redeliveries("probe", 2);
    assert_eq!(runs.len(), 0, "nothing overtakes");
    gate.open();
    assert_eq!(claimed.join().unwrap().unwrap(), LedgerOutcome::Done);
    wait_acknowledged(&server, "worker-notes", 3);
    stop(&worker);
    assert_eq!(runs.numbers(), [1, KEYS], "the claimed one is done, and not by the worker");
    assert_eq!(entry(&database, "event-0").attempts, 0);
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0);
}

const CHILD: &str = "VAYU_TEST_WORKER_CHILD";

/// Not a test of its own: the worker that is killed in event 7, after it has failed as often as the settings say.
#[test]
fn child_works_until_it_is_killed() {
    let Ok(settings) = std::env::var(CHILD) else { return };
    let mut words = settings.split(' ');
    let mut word = || words.next().unwrap();
    let (url, folder, failures) = (word(), word(), word().parse().unwrap());
    let mut options = vayu_articles::worker::WorkerOptions::new(vayu_articles::sinks::nats::NatsOptions::new([url]));
    options.ack_wait = Duration::from_secs(1);
    options.policy = crate::fixtures::quick();
    let effects = Path::new(folder).join("effects");
    let _worker = start(Path::new(folder), options, move |event: &Event| {
        let number: usize = event.json()?;
        if number == 7 && event.attempts < failures {
            return Err(DispatchError::retry("not yet"));
        }
        if number == 7 {
            println!("in the handler");
            std::io::stdout().flush().unwrap();
            await_death();
        }
        append(&effects, number);
        Ok(())
    });
    await_death();
}

fn append(file: &Path, number: usize) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    writeln!(file, "{number}").unwrap();
}

fn kill_a_worker_in_event_7(server: &Server, folder: &Path, failures: u32) {
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args(["worker::child_works_until_it_is_killed", "--exact", "--nocapture"])
        .env(CHILD, format!("{} {} {failures}", server.url(), folder.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("in the handler")), "it came to event 7");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Event 7 among 40, its worker killed in it; another on the same ledger goes on.
fn after_a_kill(failures: u32) {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..40);
    kill_a_worker_in_event_7(&server, folder.path(), failures);
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
    let entry = entry(&database, "event-7");
    assert_eq!((entry.state, entry.attempts), (LedgerState::Done, failures), "{entry:?}");
    assert!(entry.history.iter().any(|entry| entry.what == "crash"), "the death stands in its history");
    assert!(dead_letters(&database).is_empty(), "no dead letter");
}

#[test]
fn a_worker_killed_in_its_handler_has_each_effect_once_and_loses_no_order() {
    after_a_kill(0);
}

#[test]
fn a_worker_killed_in_the_last_call_of_an_event_does_not_lose_it() {
    // Two failures are behind it; the third call is the last that the policy grants.
    after_a_kill(2);
}

#[test]
fn an_event_that_kills_its_worker_three_times_is_a_dead_letter_and_the_next_goes_on() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..10);
    for _ in 0..3 {
        kill_a_worker_in_event_7(&server, folder.path(), 0);
    }
    let database = database(folder.path());
    let runs = Runs::default();
    let mut options = options(&server, 0);
    options.ack_wait = Duration::from_secs(1);
    let worker = Worker::new(&database, options).unwrap().handler("notes", runs.handler("last"));
    worker.start().unwrap();
    wait_acknowledged(&server, "worker-notes", 10);
    stop(&worker);
    assert_eq!(runs.numbers(), [8, 9]);
    let dead = dead_letters(&database);
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!((dead[0].event_id.as_str(), dead[0].reason.as_deref()), ("event-7", Some("crash_loop")));
    assert_eq!(dead[0].event.as_ref().unwrap().json::<usize>().unwrap(), 7, "with the event itself");
}

/// The first worker is stopped with event 0 in hand, to whose calls it answered `answer`. The second runs that and the next of
/// its key, then the first is back for the one after. Returns what that ran.
fn after_giving_back(server: &Server, answer: fn() -> DispatchError) -> Vec<usize> {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let asked = Arc::new(AtomicUsize::new(0));
    let mut patient = options(server, 0);
    patient.policy.max_calls = 100_000;
    publish(server, 0, 0..1);
    let count = Arc::clone(&asked);
    let first = start(folders[0].path(), patient.clone(), move |_: &Event| {
        count.fetch_add(1, Ordering::SeqCst);
        Err(answer())
    });
    wait_until("it was asked", || asked.load(Ordering::SeqCst) > 1);
    stop(&first);
    publish(server, 0, KEYS..KEYS + 1);
    let second_runs = Runs::default();
    let second = start(folders[1].path(), patient.clone(), second_runs.handler("second"));
    wait_acknowledged(server, "worker-notes", 2);
    stop(&second);
    assert_eq!(second_runs.numbers(), [0, KEYS]);
    publish(server, 0, 2 * KEYS..2 * KEYS + 1);
    let runs = Runs::default();
    let first = start(folders[0].path(), patient, runs.handler("first"));
    wait_acknowledged(server, "worker-notes", 3);
    stop(&first);
    runs.numbers()
}

#[test]
fn what_was_given_back_in_an_outage_does_not_run_here_after_another_worker_ran_later_ones() {
    let Some(server) = Server::start() else { return };
    let ran = after_giving_back(&server, || DispatchError::unavailable("down"));
    assert_eq!(ran, [2 * KEYS], "event 0 is old by now");
}

#[test]
fn what_failed_here_and_another_worker_has_settled_does_not_hold_up_its_key_here() {
    let Some(server) = Server::start() else { return };
    let ran = after_giving_back(&server, || DispatchError::retry("not yet"));
    assert_eq!(ran, [0, 2 * KEYS], "at once; the earlier one a second time in all");
}

#[test]
fn a_plain_replay_at_the_server_is_skipped_by_the_ledger_and_a_forced_one_runs() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    publish(&server, 0, 0..0);
    let runs = Runs::default();
    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    let send = |id: &str| {
        let body = json!({ "specversion": "1.0", "id": id, "type": "t", "subject": "k", "data": 1 }).to_string();
        // Without a message id the stream takes it twice, as it would after its window.
        server.publish_raw("vayu.events.t", &[], body.as_bytes());
    };
    ["event-1", "event-1", "event-1:r1"].into_iter().for_each(send);
    wait_acknowledged(&server, "worker-notes", 3);
    stop(&worker);
    assert_eq!(runs.numbers(), [1, 1]);
}
