//! A disk that takes nothing more, from the operating system itself: a limit on the size of files, its signal ignored. The
//! writes of callers and of the lane fail; both go on by themselves once there is room, and nothing is lost.
#![cfg(target_os = "linux")]

mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vayu_articles::outbox::{self, DispatchError, Event, Filter, LaneState, NewEvent, Operator, Relay};
use vayu_articles::storage::{Database, Options, TransactError};
use waiting::{LONG, wait_until};

const DATABASE: &str = "VAYU_RELAY_IO_DATABASE";

/// Files of this process may grow to so many bytes; `None` lifts the limit.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

fn largest_file(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap()
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let shut = self.changed.wait_timeout_while(self.open.lock().unwrap(), LONG, |open| !*open).unwrap();
        assert!(*shut.0, "the gate stays shut");
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

fn insert(database: &Database, count: usize) -> Result<Vec<i64>, TransactError<outbox::InsertError>> {
    let payload = format!("\"{}\"", "x".repeat(2_000));
    let events: Vec<_> = (0..count).map(|_| NewEvent::from_json("t.v1", &*payload)).collect();
    database.writer().transact(move |tx| events.iter().map(|event| outbox::insert(tx, event)).collect())
}

/// Not a test of its own: what runs under the limit.
#[test]
fn child_has_files_that_cannot_grow() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let path = Path::new(&path);
    let database = Database::open(path, &[outbox::COMPONENT], Options::default()).unwrap();
    let (gate, seen) = (Arc::new(Gate::default()), Arc::new(Mutex::new(BTreeMap::<i64, u32>::new())));
    let handler = {
        let (gate, seen) = (gate.clone(), seen.clone());
        move |event: &Event| {
            gate.pass();
            *seen.lock().unwrap().entry(event.id).or_default() += 1;
            // What is written about it takes room.
            if event.attempts == 0 && event.id % 2 == 0 { Err(DispatchError::retry("x".repeat(1_900))) } else { Ok(()) }
        }
    };
    let relay = Relay::builder(&database).handler_fn("h", handler).start().unwrap();
    assert!(relay.wait_drained(Instant::now() + LONG), "the lane is ours");
    let mut ids = insert(&database, 60).unwrap();
    limit_files(Some(largest_file(path.parent().unwrap())));
    gate.open();
    wait_until("the lane says that it cannot write", || matches!(relay.status()[0].state, LaneState::Waiting { .. }));
    let refused = insert(&database, 10).expect_err("no room");
    let known = matches!(&refused, TransactError::Database(fault) if fault.is_io() || fault.is_full());
    assert!(known || matches!(refused, TransactError::OutcomeUnknown(_)), "{refused:?}");
    let count = |sql: &str| database.read(|c| c.query_row(sql, [], |row| row.get::<_, i64>(0))).unwrap();
    assert_eq!(count("SELECT count(*) FROM event_outbox"), 60, "reading goes on, and nothing is half-written");
    limit_files(None);
    wait_until("there is room again", || insert(&database, 1).map(|more| ids.extend(more)).is_ok());
    wait_until("all is delivered", || {
        count("SELECT cursor FROM lanes") == count("SELECT max(id) FROM event_outbox")
            && count("SELECT count(*) FROM deliveries WHERE state = 'retry' OR state = 'waiting'") == 0
    });
    let seen = seen.lock().unwrap().clone();
    let expected = |id: i64| if id % 2 == 0 { 2 } else { 1 };
    assert!(ids.iter().all(|id| seen.get(id).is_some_and(|calls| *calls >= expected(*id))), "{seen:?}");
    let dead = Operator::new(&database).exceptions(&Filter::default(), None, 1).unwrap();
    assert!(dead.exceptions.is_empty(), "no dead letters");
    assert_eq!(count("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    assert_eq!(database.writer().last_fault(), None);
    relay.stop(Instant::now() + LONG).unwrap();
    database.close(Instant::now() + LONG).unwrap();
    println!("\nsurvived");
}

#[test]
fn an_io_error_stops_neither_relay_nor_writer_and_both_go_on_when_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_has_files_that_cannot_grow", "--nocapture"])
        .env(DATABASE, folder.path().join("a.db"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.lines().any(|line| line == "survived"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
