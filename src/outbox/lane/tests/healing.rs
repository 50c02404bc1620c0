//! 100,000 events behind one that fails: once it heals they are done at the lane's own speed. Counted, not timed: calls,
//! transactions and runs of statements, against the same events without a failure; nothing may wait for a timer, since the
//! one there is goes off after an hour.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, StatementStatus};

use crate::clock::ManualClock;
use crate::outbox::{self, DispatchError, Event, Handler, Relay, RelayOptions, sql};
use crate::storage::{Database, Options};

const LONG: Duration = Duration::from_secs(120);

/// Fails on the first event until it is mended; counts its calls and sees that events come in order.
#[derive(Default)]
struct Counting {
    mended: AtomicBool,
    calls: AtomicU64,
    last: AtomicI64,
    disordered: AtomicU64,
    done: Mutex<i64>,
    changed: Condvar,
    batch: usize,
    threads: usize,
}

impl Counting {
    fn handled(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !self.mended.load(Ordering::SeqCst) && events.iter().any(|event| event.id == 1) {
            return Err(DispatchError::retry("not mended"));
        }
        for event in events {
            if self.last.swap(event.id, Ordering::SeqCst) + 1 != event.id {
                self.disordered.fetch_add(1, Ordering::SeqCst);
            }
        }
        *self.done.lock().unwrap() += events.len() as i64;
        self.changed.notify_all();
        Ok(())
    }

    fn wait_done(&self, count: i64) {
        let done = self.done.lock().unwrap();
        let (done, timeout) = self.changed.wait_timeout_while(done, LONG, |done| *done < count).unwrap();
        assert!(!timeout.timed_out(), "{} of {count} are done", *done);
    }
}

impl Handler for Counting {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.handled(std::slice::from_ref(event))
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.handled(events)
    }

    fn batch_limit(&self) -> usize {
        self.batch
    }

    fn concurrency(&self) -> usize {
        self.threads
    }
}

/// What the lane did.
#[derive(Debug, Clone, Copy)]
struct Cost {
    calls: u64,
    /// Flushes: each is one task of the queue-writer.
    flushes: i64,
    /// Statements that were run, and steps of SQLite's machine.
    runs: i64,
    steps: i64,
}

struct Lanes {
    _folder: tempfile::TempDir,
    database: Database,
    clock: Arc<ManualClock>,
    handler: Arc<Counting>,
}

impl Lanes {
    /// So many events of one key, after the first.
    fn new(behind: i64, threads: usize, batch: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_767_225_600_000));
        // One reader, so that its statements can be asked what they have done.
        let options = Options { clock: clock.clone(), readers: 1, ..Options::default() };
        let database = Database::open(folder.path().join("a.db"), &[outbox::COMPONENT], options).unwrap();
        let fill = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i <= {behind}) \
             INSERT INTO event_outbox (event_type, event_key, payload, occurred_at) SELECT 't', 'one', '{{}}', 0 FROM n"
        );
        database.writer().transact(move |tx| tx.execute_batch(&fill)).unwrap();
        let handler = Arc::new(Counting { threads, batch, ..Counting::default() });
        Self { _folder: folder, database, clock, handler }
    }

    fn start(&self) -> Relay {
        let options =
            RelayOptions { flush_after: Duration::from_secs(3_600), retention: None, ..RelayOptions::default() };
        Relay::builder(&self.database).shared_handler("h", self.handler.clone()).options(options).start().unwrap()
    }

    /// What has been done so far by the writer's and the reader's statements.
    fn cost(&self) -> Cost {
        let (runs, steps, flushes) = self.database.writer().transact(|tx| Ok::<_, rusqlite::Error>(spent(tx))).unwrap();
        let (read_runs, read_steps, _) =
            self.database.read(|connection| Ok::<_, rusqlite::Error>(spent(connection))).unwrap();
        let calls = self.handler.calls.load(Ordering::SeqCst);
        Cost { calls, flushes, runs: runs + read_runs, steps: steps + read_steps }
    }

    fn count(&self, sql: &str) -> i64 {
        self.database.read(|connection| connection.query_row(sql, [], |row| row.get(0))).unwrap()
    }
}

/// Runs and steps of all statements of the outbox on this connection, and runs of the one that begins each flush.
fn spent(connection: &Connection) -> (i64, i64, i64) {
    let mut sum = (0, 0, 0);
    for (_, text) in sql::ALL {
        let statement = connection.prepare_cached(text).unwrap();
        let runs = i64::from(statement.get_status(StatementStatus::Run));
        sum.0 += runs;
        sum.1 += i64::from(statement.get_status(StatementStatus::VmStep));
        if *text == sql::MOVE_CURSOR {
            sum.2 += runs;
        }
    }
    sum
}

/// The same events with nothing wrong.
fn sound(behind: i64, threads: usize, batch: usize) -> Cost {
    let lanes = Lanes::new(behind, threads, batch);
    lanes.handler.mended.store(true, Ordering::SeqCst);
    let before = lanes.cost();
    let relay = lanes.start();
    lanes.handler.wait_done(behind + 1);
    relay.stop(Instant::now() + LONG).unwrap();
    less(lanes.cost(), before)
}

/// From the moment when the first event heals.
fn healed(behind: i64, threads: usize, batch: usize) -> Cost {
    let lanes = Lanes::new(behind, threads, batch);
    let relay = lanes.start();
    let until = Instant::now() + LONG;
    while lanes.count("SELECT coalesce(max(cursor), 0) FROM lanes") + 2_048 < behind {
        assert!(Instant::now() < until, "they do not come to wait");
        std::thread::park_timeout(Duration::from_millis(2));
    }
    // All of them, in the rows.
    relay.stop(Instant::now() + LONG).unwrap();
    assert_eq!(lanes.count("SELECT count(*) FROM deliveries WHERE state = 'waiting'"), behind);
    lanes.handler.mended.store(true, Ordering::SeqCst);
    lanes.handler.calls.store(0, Ordering::SeqCst);
    lanes.clock.advance(5_000);
    let before = lanes.cost();
    let relay = lanes.start();
    lanes.handler.wait_done(behind + 1);
    relay.stop(Instant::now() + LONG).unwrap();
    assert_eq!(lanes.handler.disordered.load(Ordering::SeqCst), 0, "out of order");
    assert_eq!(*lanes.handler.done.lock().unwrap(), behind + 1, "nothing twice");
    assert_eq!(lanes.count("SELECT count(*) FROM deliveries WHERE state <> 'done'"), 0);
    let cost = lanes.cost();
    Cost { calls: cost.calls, ..less(cost, before) }
}

fn less(after: Cost, before: Cost) -> Cost {
    Cost {
        calls: after.calls - before.calls.min(after.calls),
        flushes: after.flushes - before.flushes,
        runs: after.runs - before.runs,
        steps: after.steps - before.steps,
    }
}

/// What bounds the whole of it, whatever waits: each event is called as often as without the failure, and costs a fixed
/// number of statements more, for its row was written and is removed. `few` waited behind the first, `many` behind the
/// second.
fn check_costs(threads: usize, batch: usize, few: i64, many: i64) {
    let (sound, small, large) =
        (sound(many, threads, batch), healed(few, threads, batch), healed(many, threads, batch));
    println!("{threads} threads, batches of {batch}: sound {sound:?}, healed {large:?}, {few} of them {small:?}");
    let most_calls = if batch == 1 { sound.calls } else { 2 * sound.calls };
    assert!(large.calls <= most_calls, "calls: {large:?}, without a failure {sound:?}");
    assert!(large.flushes <= 3 * sound.flushes, "transactions: {large:?}, without a failure {sound:?}");
    // One for each row; what several threads do beside that depends on how often they have nothing to do.
    assert!(large.runs <= sound.runs + 2 * many, "statements: {large:?} for {many}, without a failure {sound:?}");
    let of_each = |cost: Cost, count: i64| cost.steps / count;
    let (small, large) = (of_each(small, few), of_each(large, many));
    assert!(large <= small + small / 4, "{large} steps an event among {many}, {small} among {few}");
}

#[test]
fn a_hundred_thousand_events_behind_one_that_fails_are_done_in_one_go_once_it_heals() {
    check_costs(1, 1, 5_000, 100_000);
}

#[test]
fn a_hundred_thousand_events_behind_one_that_fails_are_done_in_batches_by_several_threads_once_it_heals() {
    check_costs(4, 100, 5_000, 100_000);
}

#[test]
fn thousands_behind_one_that_fails_are_done_in_one_go_with_and_without_batches_and_threads() {
    check_costs(1, 100, 2_500, 10_000);
    check_costs(4, 1, 2_500, 10_000);
}
