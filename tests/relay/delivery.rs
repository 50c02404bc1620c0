//! The happy path, and what surrounds it: order, filters, wake-up, stop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{bounded, unbounded};
use vayu_articles::outbox::{
    self, EventFilter, ExceptionState, Handler, LaneState, NewEvent, Relay, RelayError, StartAt,
};
use vayu_articles::storage::{Database, Options};

use crate::harness::{LONG, Scripted, Site, drain, stop, wait_until};

#[test]
fn every_handler_gets_every_event_in_order() {
    let site = Site::new();
    let before = site.insert_all(&["a", "b", "a"]);
    let (one, two) = (Scripted::new(), Scripted::new());
    let relay = site.relay().shared_handler("one", one.clone()).shared_handler("two", two.clone()).start().unwrap();
    let after = site.insert_all(&["b", "a"]);
    drain(&relay);
    let all: Vec<i64> = before.into_iter().chain(after).collect();
    assert_eq!(one.ids(), all);
    assert_eq!(two.ids(), all);
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "the happy path writes no row per event");
    stop(&relay);
}

#[test]
fn a_lane_goes_on_where_it_stopped() {
    let site = Site::new();
    let handler = Scripted::new();
    let first = site.insert("a");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let second = site.insert("a");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    assert_eq!(handler.ids(), [first, second]);
}

#[test]
fn a_commit_wakes_the_lane_without_a_poll() {
    let site = Site::new();
    let (seen, sees) = unbounded();
    let mut options = vayu_articles::outbox::RelayOptions::default();
    options.poll = Duration::from_secs(3_600);
    let relay = site
        .relay()
        .handler_fn("h", move |event| {
            let _ = seen.send(event.id);
            Ok(())
        })
        .options(options)
        .start()
        .unwrap();
    drain(&relay);
    let id = site.insert("a");
    assert_eq!(sees.recv_timeout(LONG).unwrap(), id);
    // A foreign connection's event is found by a notice, long before the poll.
    site.foreign("INSERT INTO event_outbox (event_type, payload) VALUES ('foreign.v1', '{}')").unwrap();
    relay.notify();
    assert_eq!(sees.recv_timeout(LONG).unwrap(), id + 1);
    stop(&relay);
}

#[test]
fn the_poll_finds_an_event_of_a_foreign_writer_with_defaults_filled_in() {
    let site = Site::new();
    let (seen, sees) = unbounded();
    let relay = site
        .relay()
        .handler_fn("h", move |event| {
            let _ = seen.send(event.clone());
            Ok(())
        })
        .start()
        .unwrap();
    site.foreign("INSERT INTO event_outbox (event_type, payload) VALUES ('foreign.v1', '{\"a\":1}')").unwrap();
    let event = sees.recv_timeout(LONG).unwrap();
    assert_eq!(event.event_type, "foreign.v1");
    assert_eq!(event.event_id.len(), 32);
    assert!(event.occurred_at > 1_600_000_000_000, "milliseconds: {}", event.occurred_at);
    stop(&relay);
}

#[test]
fn a_filter_passes_events_by_and_they_are_counted() {
    let site = Site::new();
    let (seen, sees) = unbounded();
    let relay = site
        .relay()
        .handler_for("orders", &["order.*"], move |event| {
            let _ = seen.send(event.event_type.clone());
            Ok(())
        })
        .start()
        .unwrap();
    for event_type in ["article.created.v1", "order.placed.v1", "mail.sent.v1", "article.created.v1"] {
        site.insert_event(NewEvent::from_json(event_type, "{}"));
    }
    drain(&relay);
    assert_eq!(sees.try_iter().collect::<Vec<_>>(), ["order.placed.v1"]);
    assert_eq!(relay.status()[0].skipped["article.created.v1"], 2);
    let stats = site.operator().stats().unwrap();
    assert_eq!(stats.types_without_lane, [("article.created.v1".to_owned(), 2), ("mail.sent.v1".to_owned(), 1)]);
    assert_eq!(stats.lanes[0].lag_events, 0, "what passes by is no lag");
    stop(&relay);
}

#[test]
fn a_lane_that_starts_at_the_end_sees_only_what_comes() {
    struct FromNow(Mutex<Vec<i64>>);
    impl Handler for FromNow {
        fn handle(&self, event: &vayu_articles::outbox::Event) -> Result<(), vayu_articles::outbox::DispatchError> {
            self.0.lock().unwrap().push(event.id);
            Ok(())
        }
        fn start_at(&self) -> StartAt {
            StartAt::End
        }
        fn filter(&self) -> EventFilter {
            EventFilter::All
        }
    }
    let site = Site::new();
    site.insert_all(&["a", "b"]);
    let handler = Arc::new(FromNow(Mutex::default()));
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let id = site.insert("c");
    drain(&relay);
    stop(&relay);
    assert_eq!(*handler.0.lock().unwrap(), [id]);
}

#[test]
fn a_stop_delivers_what_is_committed_and_frees_the_lane() {
    let site = Site::new();
    let (enter, entered) = bounded(1);
    let (leave, left) = bounded::<()>(1);
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let relay = site
        .relay()
        .handler_fn("h", move |_| {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                enter.send(()).unwrap();
                left.recv_timeout(LONG).unwrap();
            }
            Ok(())
        })
        .start()
        .unwrap();
    site.insert_all(&["a", "b", "c"]);
    entered.recv_timeout(LONG).unwrap();
    site.insert_all(&["d", "e"]);
    let stopping = {
        let relay = relay.clone();
        std::thread::spawn(move || relay.stop(Instant::now() + LONG))
    };
    leave.send(()).unwrap();
    stopping.join().unwrap().unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 5, "drained");
    let lane = &site.operator().stats().unwrap().lanes[0];
    assert_eq!((lane.owner.clone(), lane.lag_events), (None, 0), "written and given up");
    assert_eq!(relay.status()[0].state, LaneState::Stopped);
    let left_over = std::fs::read_dir(site.folder.path())
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains("owner"))
        .count();
    assert_eq!(left_over, 0, "no owner file stays behind");
}

#[test]
fn a_stuck_handler_is_named_and_its_lane_is_not_given_up() {
    let site = Site::new();
    let (enter, entered) = bounded(1);
    let (leave, left) = bounded::<()>(1);
    let relay = site
        .relay()
        .handler_fn("stuck", move |_| {
            enter.send(()).unwrap();
            left.recv_timeout(LONG).unwrap();
            Ok(())
        })
        .handler_fn("free", |_| Ok(()))
        .start()
        .unwrap();
    site.insert("a");
    entered.recv_timeout(LONG).unwrap();
    let error = relay.stop(Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.handlers, ["stuck"]);
    let owned = |handler: &str| {
        let stats = site.operator().stats().unwrap();
        stats.lanes.iter().find(|lane| lane.handler == handler).unwrap().owner.is_some()
    };
    assert!(owned("stuck") && !owned("free"));
    leave.send(()).unwrap();
    stop(&relay);
    assert!(!owned("stuck"));
}

#[test]
fn g09_no_lock_is_held_while_a_handler_runs() {
    let site = Site::new();
    let (enter, entered) = bounded(1);
    let (leave, left) = bounded::<()>(1);
    let relay = site
        .relay()
        .handler_fn("h", move |_| {
            enter.send(()).unwrap();
            left.recv_timeout(LONG).unwrap();
            Ok(())
        })
        .start()
        .unwrap();
    site.insert("a");
    entered.recv_timeout(LONG).unwrap();
    // A foreign writer needs the write lock at once, and a truncating checkpoint needs every reader gone.
    let connection = rusqlite::Connection::open(site.folder.path().join("site.db")).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    wait_until("the lane's earlier flushes are through", || {
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
    });
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0, "a read snapshot is open during the call");
    leave.send(()).unwrap();
    stop(&relay);
}

#[test]
fn names_are_checked() {
    let site = Site::new();
    let build = |names: &[&str]| {
        names.iter().fold(site.relay(), |builder, name| builder.handler_fn(*name, |_| Ok(()))).build().map(|_| ())
    };
    assert!(matches!(build(&["a", "a"]), Err(RelayError::DuplicateName(name)) if name == "a"));
    assert!(matches!(build(&["../x"]), Err(RelayError::InvalidName(_))));
    assert!(matches!(build(&[""]), Err(RelayError::InvalidName(_))));
    assert!(build(&["webhook:a.b-c_d"]).is_ok());
}

#[test]
fn a_relay_runs_once_and_stops_twice() {
    let site = Site::new();
    let relay = site.relay().handler_fn("h", |_| Ok(())).build().unwrap();
    stop(&relay);
    assert!(matches!(relay.start(), Err(RelayError::StartedBefore)));
    stop(&relay);
}

#[test]
fn a_batch_handler_gets_batches_and_a_failing_batch_is_run_one_by_one() {
    struct Batches {
        sizes: Mutex<Vec<usize>>,
        alone: Mutex<Vec<i64>>,
        bad: i64,
    }
    impl Handler for Batches {
        fn handle(&self, event: &vayu_articles::outbox::Event) -> Result<(), vayu_articles::outbox::DispatchError> {
            self.alone.lock().unwrap().push(event.id);
            if event.id == self.bad {
                return Err(vayu_articles::outbox::DispatchError::poison("bad"));
            }
            Ok(())
        }
        fn handle_batch(
            &self,
            events: &[vayu_articles::outbox::Event],
        ) -> Result<(), vayu_articles::outbox::DispatchError> {
            self.sizes.lock().unwrap().push(events.len());
            assert!(events.iter().all(|event| event.id != self.bad), "a panic in a batch is no outcome of its events");
            Ok(())
        }
        fn batch_limit(&self) -> usize {
            4
        }
    }
    let site = Site::new();
    let ids = site.insert_all(&["a", "b", "c", "d", "e", "f"]);
    let handler = Arc::new(Batches { sizes: Mutex::default(), alone: Mutex::default(), bad: ids[1] });
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    assert_eq!(handler.sizes.lock().unwrap()[0], 4);
    assert_eq!(handler.alone.lock().unwrap()[..4], ids[..4]);
    assert_eq!(site.ids_in_state(ExceptionState::DeadLetter), [ids[1]]);
}

#[test]
fn original_02_events_do_not_wait_for_a_tick_each() {
    // One event per tick of 200 ms would need hours; a lane reads on while there is something to read.
    let site = Site::new();
    let mut options = vayu_articles::outbox::RelayOptions::default();
    options.poll = Duration::from_secs(3_600);
    let handler = Scripted::new();
    for _ in 0..20 {
        site.insert_all(&["k"; 100]);
    }
    let relay = site.relay().shared_handler("h", handler.clone()).options(options).start().unwrap();
    handler.wait_calls(2_000);
    stop(&relay);
}

#[test]
fn original_14_a_trace_uses_an_index() {
    let site = Site::new();
    for n in 0..3 {
        site.insert_event(NewEvent::from_json("t.v1", "{}").correlation_id(format!("request-{}", n % 2)));
    }
    let found = site.operator().trace("request-0", 10).unwrap();
    assert_eq!(found.iter().map(|event| event.id).collect::<Vec<_>>(), [1, 3]);
    let plan: String = site
        .database
        .read(|connection| {
            connection.query_row(
                "EXPLAIN QUERY PLAN SELECT id FROM event_outbox WHERE correlation_id = 'x' ORDER BY id LIMIT 10",
                [],
                |row| row.get(3),
            )
        })
        .unwrap();
    assert!(plan.contains("USING COVERING INDEX event_outbox_correlation"), "{plan}");
}

use vayu_articles::rusqlite;

#[test]
fn a_database_without_the_outbox_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.db");
    let database = Database::open(&path, &[], Options::default()).unwrap();
    let refused = Relay::builder(&database).handler_fn("mail", |_: &outbox::Event| Ok(())).start().unwrap_err();
    assert!(matches!(refused, RelayError::NoOutbox), "{refused:?}");
    assert!(refused.to_string().contains("outbox::COMPONENT"), "{refused}");
}
