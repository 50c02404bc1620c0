//! A relay over a database that fails in ways that cannot be brought about from outside: it is full, or nobody knows what
//! became of a COMMIT. Writer and relay both live on, say so, and go on by themselves; nothing is lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::clock::ManualClock;
use crate::outbox::{self, DispatchError, Event, ExceptionState, Filter, LaneState, NewEvent, Operator, Policy, Relay};
use crate::storage::{Database, Options, TransactError};

const LONG: Duration = Duration::from_secs(30);
const START_MS: i64 = 1_767_225_600_000;

struct Stage {
    database: Database,
    clock: Arc<ManualClock>,
    relay: Relay,
    /// Calls and completions per event.
    seen: Arc<Mutex<BTreeMap<i64, (u32, u32)>>>,
    _folder: tempfile::TempDir,
}

impl Stage {
    /// A relay whose handler fails once on events of the type `fails`, with a reason that takes room.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let options = Options { clock: clock.clone(), ..Options::default() };
        let database = Database::open(folder.path().join("a.db"), &[outbox::COMPONENT], options).unwrap();
        let seen: Arc<Mutex<BTreeMap<i64, (u32, u32)>>> = Arc::default();
        let handler = {
            let seen = seen.clone();
            move |event: &Event| {
                let mut seen = seen.lock().unwrap();
                let (calls, done) = seen.entry(event.id).or_default();
                *calls += 1;
                if event.event_type == "fails" && event.attempts == 0 {
                    return Err(DispatchError::retry("x".repeat(1_500)));
                }
                *done += 1;
                Ok(())
            }
        };
        let relay = Relay::builder(&database).handler_fn("h", handler).start().unwrap();
        assert!(relay.wait_drained(Instant::now() + LONG));
        Self { database, clock, relay, seen, _folder: folder }
    }

    fn insert(&self, event_type: &str, count: usize) -> Result<Vec<i64>, TransactError<outbox::InsertError>> {
        let events: Vec<_> = (0..count).map(|_| NewEvent::from_json(event_type, "{}")).collect();
        self.database.writer().transact(move |tx| events.iter().map(|event| outbox::insert(tx, event)).collect())
    }

    fn open_exceptions(&self) -> usize {
        let retrying = Filter::states([ExceptionState::Retry]);
        Operator::new(&self.database).exceptions(&retrying, None, 1_000).unwrap().exceptions.len()
    }

    fn wait_for(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let until = Instant::now() + LONG;
        while !condition(self) {
            assert!(Instant::now() < until, "waited too long until {what}: {:?}", self.relay.status());
            self.relay.notify();
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Everything in the log is done, nothing is left open, and both threads live.
    fn assert_all_delivered(&self) {
        self.clock.advance(i64::try_from(Policy::default().backoff_max.as_millis()).unwrap());
        self.relay.notify();
        let ids = "SELECT coalesce(group_concat(id), '') FROM event_outbox";
        let log: String = self.database.read(|c| c.query_row(ids, [], |row| row.get(0))).unwrap();
        let done = |stage: &Self| {
            let seen = stage.seen.lock().unwrap();
            log.split(',')
                .filter_map(|id| id.parse().ok())
                .all(|id: i64| seen.get(&id).is_some_and(|(_, done)| *done > 0))
        };
        self.wait_for("everything is done", done);
        self.wait_for("nothing is open", |stage| stage.open_exceptions() == 0);
        assert!(self.relay.wait_drained(Instant::now() + LONG));
        self.wait_for("the lane runs", |stage| stage.relay.status()[0].state == LaneState::Running);
        self.insert("after", 1).unwrap();
        assert!(self.relay.wait_drained(Instant::now() + LONG));
        assert_eq!(self.database.writer().last_fault(), None);
        self.relay.stop(Instant::now() + LONG).unwrap();
    }
}

#[test]
fn a_full_database_stops_neither_relay_nor_writer_and_both_go_on_when_there_is_room() {
    let stage = Stage::new();
    let before = stage.insert("works", 10).unwrap();
    assert!(stage.relay.wait_drained(Instant::now() + LONG));
    // Room for the events themselves, not for what is to be written about their failures.
    let pages: u32 = stage.database.read(|c| c.query_row("PRAGMA page_count", [], |row| row.get(0))).unwrap();
    stage.insert("fails", 60).unwrap();
    stage.database.writer().limit_pages(pages);
    let refused = (0..100).find_map(|_| stage.insert("fails", 60).err()).expect("it fills up");
    assert!(matches!(&refused, TransactError::Database(fault) if fault.is_full()), "{refused:?}");
    stage.wait_for(
        "the lane says why it waits",
        |stage| matches!(&stage.relay.status()[0].state, LaneState::Waiting { reason } if reason.contains("full")),
    );
    let dead = Operator::new(&stage.database).exceptions(&Filter::default(), None, 1).unwrap();
    assert!(dead.exceptions.is_empty(), "a full disk is nobody's fault: {dead:?}");
    stage.database.writer().limit_pages(1_000_000);
    stage.assert_all_delivered();
    let seen = stage.seen.lock().unwrap();
    assert!(before.iter().all(|id| seen[id] == (1, 1)), "what was written down before does not come again");
}

#[test]
fn a_commit_of_unknown_outcome_is_looked_at_and_the_lane_goes_on_from_what_is_true() {
    for applied in [true, false] {
        let stage = Stage::new();
        for round in 0..5 {
            assert!(stage.relay.wait_drained(Instant::now() + LONG));
            // The first commit is the caller's, the second the lane's flush; or a late flush comes first.
            stage.database.writer().commit_fails_after(1, applied);
            let answer = stage.insert(if round % 2 == 0 { "works" } else { "fails" }, 3);
            assert!(matches!(answer, Ok(_) | Err(TransactError::OutcomeUnknown(_))), "{answer:?}");
            stage.wait_for("the flush was tried", |stage| stage.database.writer().injected_failures_left() == 0);
        }
        stage.assert_all_delivered();
        let calls = stage.seen.lock().unwrap();
        // A flush that was not applied is made again, or its events run once more; nothing runs without end.
        assert!(calls.values().all(|(calls, done)| *calls <= 8 && *done >= 1), "{calls:?}");
    }
}

#[test]
fn a_callers_commit_of_unknown_outcome_delivers_what_is_in_the_log_and_nothing_else() {
    for applied in [true, false] {
        let stage = Stage::new();
        stage.database.writer().commit_fails_after(0, applied);
        let answer = stage.insert("works", 3);
        assert!(matches!(answer, Err(TransactError::OutcomeUnknown(_))), "{answer:?}");
        stage.assert_all_delivered();
        let expected = if applied { 4 } else { 1 };
        assert_eq!(stage.seen.lock().unwrap().len(), expected, "applied={applied}");
    }
}
