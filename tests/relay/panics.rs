//! A lane's own thread panics, outside every call: the lane is neither lost nor owned for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use vayu_articles::clock::Clock;
use vayu_articles::outbox::{self, Event, Handler, HandlerFn, LaneState, NewEvent, Relay};
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

#[test]
fn g06_handlers_that_are_stuck_that_panic_and_that_always_fail_delay_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder, usize::MAX);
    let insert = |keys: std::ops::Range<i64>| {
        let events = keys.map(|key| NewEvent::from_json("t", "{}").key(key.to_string())).collect::<Vec<_>>();
        let writer = database.writer();
        writer.transact(move |tx| events.iter().try_for_each(|event| outbox::insert(tx, event).map(drop))).unwrap();
    };
    insert(0..50);
    let (stuck, failing, panicking) = (Scripted::new(), Scripted::new(), Scripted::new());
    for id in 1..=100 {
        failing.script(id, vec![Step::Fail; 100]);
        panicking.script(id, vec![Step::Panic; 100]);
    }
    let (entered, inside) = crossbeam_channel::unbounded();
    let (release, released) = crossbeam_channel::bounded::<()>(0);
    let gets_stuck = stuck.clone();
    let fine = Scripted::new();
    let relay = Relay::builder(&database)
        .handler_fn("stuck", move |event: &Event| {
            entered.send(event.id).unwrap();
            let _ = released.recv();
            gets_stuck.handle(event)
        })
        .shared_handler("broke", Scripted::new())
        .shared_handler("failing", failing.clone())
        .shared_handler("panicking", panicking.clone())
        .shared_handler("fine", fine.clone())
        .start()
        .unwrap();
    fine.wait_calls(50);
    assert_eq!(inside.recv_timeout(LONG), Ok(1));
    failing.wait_calls(50);
    panicking.wait_calls(50);
    let state = |name: &str| relay.status().into_iter().find(|lane| lane.handler == name).unwrap().state;
    wait_until("the broken lane is given up", || matches!(state("broke"), LaneState::Failed { .. }));
    // All four are in trouble by now, and stay so: what comes reaches the fifth none the less.
    insert(50..100);
    fine.wait_calls(100);
    assert_eq!(fine.done(), (1..=100).collect::<Vec<_>>());
    assert!(inside.is_empty() && stuck.calls().is_empty(), "its first call has not ended");
    assert!(matches!(state("broke"), LaneState::Failed { .. }));
    assert!(failing.done().is_empty() && panicking.done().is_empty());
    drop(release);
    stop(&relay);
}
