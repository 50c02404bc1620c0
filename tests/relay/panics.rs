//! A lane's own thread panics, outside every call: the lane is neither lost nor owned for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use vayu_articles::clock::Clock;
use vayu_articles::outbox::{self, Event, HandlerFn, LaneState, NewEvent, Relay};
use vayu_articles::storage::{Database, Options};

use crate::harness::*;

/// Panics on the thread of lane `broke` so often.
#[derive(Debug)]
struct BrokenClock(AtomicUsize);

impl Clock for BrokenClock {
    fn now_ms(&self) -> i64 {
        let hit = std::thread::current().name() == Some("lane-broke");
        let left = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(usize::from(hit)));
        assert!(!hit || left.is_err(), "the clock is broken");
        START_MS
    }
}

fn open(folder: &tempfile::TempDir, panics: usize) -> Database {
    let mut options = Options::default();
    options.clock = Arc::new(BrokenClock(AtomicUsize::new(panics)));
    Database::open(folder.path().join("site.db"), &[outbox::COMPONENT], options).unwrap()
}

fn start(database: &Database, threads: usize) -> (Relay, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = HandlerFn::new(move |_: &Event| {
        counted.fetch_add(1, SeqCst);
        Ok(())
    });
    let relay = Relay::builder(database).handler("broke", handler.concurrency(threads)).start().unwrap();
    (relay, calls)
}

#[test]
fn case_c59_a_lane_whose_thread_panics_is_started_again() {
    for threads in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let database = open(&folder, 3);
        database.writer().transact(|tx| outbox::insert(tx, &NewEvent::from_json("t", "{}").key("a"))).unwrap();
        let (relay, calls) = start(&database, threads);
        wait_until("it delivers", || calls.load(SeqCst) == 1);
        wait_until("it runs", || relay.status()[0].state == LaneState::Running);
        stop(&relay);
        let owned = "SELECT count(*) FROM lanes WHERE owner IS NOT NULL";
        let count = database.read(|connection| connection.query_row(owned, [], |row| row.get::<_, i64>(0)));
        assert_eq!(count.unwrap(), 0);
    }
}

#[test]
fn case_c59_a_lane_that_panics_again_and_again_is_shown_failed_and_left_to_another_relay() {
    let folder = tempfile::tempdir().unwrap();
    // The first start and five more.
    let database = open(&folder, 6);
    database.writer().transact(|tx| outbox::insert(tx, &NewEvent::from_json("t", "{}").key("a"))).unwrap();
    let (relay, calls) = start(&database, 1);
    let failed = || matches!(&relay.status()[0].state, LaneState::Failed { reason } if reason.contains("is broken"));
    wait_until("it has failed for good", || {
        // The seventh look would go well, and nobody takes it.
        failed() && relay_has_ended(&relay)
    });
    assert_eq!(calls.load(SeqCst), 0);
    let (another, calls) = start(&database, 1);
    wait_until("the other relay delivers", || calls.load(SeqCst) == 1);
    stop(&another);
    stop(&relay);
}

/// Its thread is gone: the name that the clock knows is not there any more.
fn relay_has_ended(_: &Relay) -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return true };
    let name = |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
    !tasks.filter_map(name).any(|name| name.trim() == "lane-broke")
}
