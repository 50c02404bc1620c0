//! A system that has no thread left to give: the start says so, leaves nothing behind, and a later one goes well. The limit is one on
//! the address space, which holds for every user; a thread's stack does not fit under it.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vayu_articles::outbox::{self, NewEvent, Relay, RelayError};
use vayu_articles::storage::{Database, Options};

const DATABASE: &str = "VAYU_NO_THREADS_DATABASE";
/// Only a hang reaches it.
const LONG: Duration = Duration::from_secs(60);
/// More than stacks of ended threads may be lying about.
const HANDLERS: usize = 40;

/// What is mapped now, and a little for the heap; `None` lifts the limit.
fn limit_memory(on: bool) {
    const PAGE: u64 = 4_096;
    const LITTLE: u64 = 1 << 20;
    let maximum = getrlimit(Resource::As).maximum;
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let current = if on { Some(pages * PAGE + LITTLE) } else { maximum };
    setrlimit(Resource::As, Rlimit { current, maximum }).unwrap();
}

fn relay(database: &Database) -> Relay {
    let handlers = (0..HANDLERS).map(|number| format!("h{number}"));
    handlers.fold(Relay::builder(database), |builder, name| builder.handler_fn(name, |_| Ok(()))).build().unwrap()
}

/// Not a test of its own: what runs under the limit.
#[test]
fn child_gets_no_thread() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let database = Database::open(&path, &[outbox::COMPONENT], Options::default()).unwrap();
    database.writer().transact(|tx| outbox::insert(tx, &NewEvent::from_json("t.v1", "{}"))).unwrap();
    let (refused, heals) = (relay(&database), relay(&database));
    limit_memory(true);
    let started = refused.start();
    limit_memory(false);
    let error = started.expect_err("no room for so many stacks");
    assert!(matches!(error, RelayError::Thread(_)), "{error:?}");
    assert!(error.to_string().contains("thread"), "{error}");
    refused.stop(Instant::now() + LONG).unwrap();
    assert!(matches!(refused.start(), Err(RelayError::StartedBefore)));
    let count = |sql: &str| database.read(|c| c.query_row(sql, [], |row| row.get::<_, i64>(0))).unwrap();
    assert_eq!(count("SELECT count(owner) FROM lanes"), 0, "those that had begun have let go");
    heals.start().unwrap();
    assert!(heals.wait_drained(Instant::now() + LONG));
    assert_eq!(count("SELECT count(*) FROM lanes WHERE cursor = 1"), HANDLERS as i64);
    heals.stop(Instant::now() + LONG).unwrap();
    database.close(Instant::now() + LONG).unwrap();
    println!("\nsurvived");
}

#[test]
fn case_c59_a_thread_that_cannot_be_started_fails_the_start_in_order_and_a_later_start_goes_well() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_gets_no_thread", "--nocapture"])
        .env(DATABASE, folder.path().join("a.db"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.lines().any(|line| line == "survived"), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
