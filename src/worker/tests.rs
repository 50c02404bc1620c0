//! Lanes without a broker, for what cannot be brought about from outside: a ledger without room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::broker::Delivery;
use super::lane::{Calls, Lane, Subscriber};
use super::{COMPONENT, NatsOptions, WorkerOptions};
use crate::outbox::{DispatchError, Event, Ledger, LedgerQuery, LedgerState, NewEvent};
use crate::sinks::cloud_event;
use crate::storage::{Database, Options};

const LONG: Duration = Duration::from_secs(60);

struct Bench {
    database: Database,
    ledger: Ledger,
    hand: Sender<Delivery>,
    stop: Option<Sender<()>>,
    lane: Option<JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new(handler: impl Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(folder.path().join("worker.db"), &[COMPONENT], Options::default()).unwrap();
        let mut options = WorkerOptions::new(NatsOptions::new(["nats://nowhere"]));
        options.policy.pause_base = Duration::from_millis(5);
        options.policy.pause_max = Duration::from_millis(20);
        let ledger = Ledger::new(&database, options.ledger()).unwrap();
        let subscriber = Subscriber::new("notes", Arc::new(handler), ledger.clone(), &options).unwrap();
        let ((hand, deliveries), (stop, asked)) = (bounded(1), bounded(0));
        let lane = Lane::new(Arc::new(subscriber), deliveries, asked, Arc::new(Calls::new(LONG)), true);
        let lane = Some(std::thread::spawn(move || lane.run()));
        Self { database, ledger, hand, stop: Some(stop), lane, _folder: folder }
    }

    /// Hands an event over; the receiver hears its acknowledgement, or that it was given back.
    fn deliver(&self, number: u64, size: usize) -> Receiver<bool> {
        let mut event = NewEvent::new("note.changed.v1", &"x".repeat(size)).unwrap().key("key");
        event.event_id = format!("event-{number}");
        let body = cloud_event::encode(&event.into_event(1), "/");
        let (delivery, settled) = Delivery::of(body, number);
        self.hand.send(delivery).unwrap();
        let (tell, told) = bounded(1);
        std::thread::spawn(move || tell.send(settled.blocking_recv().is_ok()));
        told
    }

    /// Waits until a write was refused for want of room.
    fn wait_until_full(&self) {
        let begun = std::time::Instant::now();
        while !self.database.writer().last_fault().is_some_and(|fault| fault.is_full()) {
            assert!(begun.elapsed() < LONG, "it never fills up");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pages(&self) -> u32 {
        self.database.read(|connection| connection.query_row("PRAGMA page_count", [], |row| row.get(0))).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop = None;
        (self.hand, _) = bounded(0);
        let ended = self.lane.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

/// Counts calls and tells about them.
#[derive(Clone, Default)]
struct Seen(Arc<(Mutex<usize>, Condvar)>);

impl Seen {
    fn call(&self) {
        *self.0.0.lock().unwrap() += 1;
        self.0.1.notify_all();
    }

    fn count(&self) -> usize {
        *self.0.0.lock().unwrap()
    }

    fn wait_for(&self, count: usize) {
        let (calls, moved) = &*self.0;
        let waited = moved.wait_timeout_while(calls.lock().unwrap(), LONG, |calls| *calls < count).unwrap();
        assert!(!waited.1.timed_out(), "{} of {count} calls", waited.0);
    }
}

#[test]
fn a_ledger_on_a_full_disk_holds_the_message_runs_nothing_and_goes_on_when_there_is_room() {
    let seen = Seen::default();
    let calls = seen.clone();
    let bench = Bench::new(move |_| {
        calls.call();
        Ok(())
    });
    assert!(bench.deliver(1, 10).recv_timeout(LONG).unwrap());
    bench.database.writer().limit_pages(bench.pages());
    // Far more than the pages there are can take in: the claim cannot be written.
    let settled = bench.deliver(2, 200_000);
    bench.wait_until_full();
    assert_eq!((seen.count(), settled.try_recv().is_err()), (1, true), "not run, not acknowledged, not given back");
    bench.database.writer().limit_pages(1_000_000);
    assert!(settled.recv_timeout(LONG).unwrap());
    assert_eq!(seen.count(), 2);
    assert_eq!(bench.ledger.show("event-2").unwrap()[0].state, LedgerState::Done);
    assert!(bench.ledger.entries(&LedgerQuery::default()).unwrap().is_empty());
}

#[test]
fn a_failure_while_the_disk_fills_up_is_one_attempt() {
    let (seen, fill) = (Seen::default(), Arc::new(Mutex::new(None::<Box<dyn FnOnce() + Send>>)));
    let (calls, act) = (seen.clone(), Arc::clone(&fill));
    let failures = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failures);
    let bench = Bench::new(move |_| {
        calls.call();
        // The disk fills up while the handler runs.
        if let Some(fill) = act.lock().unwrap().take() {
            fill();
            count.fetch_add(1, Ordering::SeqCst);
            // What is to be written down needs a page more than there is.
            return Err(DispatchError::retry("x".repeat(100_000)));
        }
        Ok(())
    });
    let database = bench.database.clone();
    *fill.lock().unwrap() = Some(Box::new(move || {
        let pages = database.read(|c| c.query_row("PRAGMA page_count", [], |row| row.get::<_, u32>(0))).unwrap();
        database.writer().limit_pages(pages);
    }));
    let settled = bench.deliver(1, 10);
    bench.wait_until_full();
    assert_eq!(seen.count(), 1);
    bench.database.writer().limit_pages(1_000_000);
    assert!(settled.recv_timeout(LONG).unwrap());
    assert_eq!((failures.load(Ordering::SeqCst), seen.count()), (1, 2), "one failure is one attempt");
    let entry = bench.ledger.show("event-1").unwrap().remove(0);
    assert_eq!((entry.state, entry.attempts), (LedgerState::Done, 1), "{entry:?}");
}

#[test]
fn what_is_in_hand_at_a_stop_is_given_back() {
    let seen = Seen::default();
    let calls = seen.clone();
    let mut bench = Bench::new(move |_| {
        calls.call();
        Err(DispatchError::unavailable("down"))
    });
    let settled = bench.deliver(1, 10);
    seen.wait_for(2);
    bench.stop = None;
    assert!(!settled.recv_timeout(LONG).unwrap(), "not acknowledged");
    assert!(bench.ledger.show("event-1").unwrap().is_empty(), "it is somebody else's now, and nothing was spent on it");
}

#[test]
fn the_log_says_in_words_why_a_handler_cannot_begin() {
    let down = DispatchError::Unavailable { reason: "GET: refused".into(), retry_after: Some(Duration::from_secs(7)) };
    let said = super::lane::cannot_begin("search", &down, Duration::from_millis(250));
    let words = "\"unavailable for 7 s: GET: refused\"";
    assert_eq!(said, format!("worker handler=search cannot begin reason={words} again_in_ms=250"));
}
