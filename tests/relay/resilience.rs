//! What a relay meets besides failing handlers: rows that foreign hands left, refused flushes, a stuck gate, its own end.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{
    self, DispatchError, DispatchFn, Event, EventFilter, ExceptionState, Handler, HandlerFn, LaneState, NewEvent,
    Relay, RelayOptions, Retention,
};
use vayu_articles::rusqlite;
use vayu_articles::storage::{Database, Options};

use crate::harness::{LONG, START_MS, Scripted, Site, Step, drain, stop, wait_until};

const DEAD: &str = "44444444-4444-4444-8444-444444444444";

/// A lane as a relay leaves it that died: its owner's file can be locked.
fn leave_dead_lane(site: &Site, handler: &str, more: &str) {
    std::fs::write(site.folder.path().join(format!("site.db-owner-{DEAD}.lock")), "").unwrap();
    site.foreign(&format!(
        "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor, owner, owned_since) \
         VALUES ('{handler}', '[\"*\"]', 'continue', 0, '{DEAD}', 0); \
         UPDATE lanes SET {more} WHERE handler = '{handler}'"
    ))
    .unwrap();
}

#[test]
fn a_lane_whose_own_flush_was_refused_loads_itself_anew_instead_of_waiting_for_itself() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    let first = site.insert("a");
    drain(&relay);
    // Somebody moves the cursor under the running owner; its next flush finds another one than it left.
    site.foreign("UPDATE lanes SET cursor = 0").unwrap();
    let second = site.insert("a");
    handler.wait_calls(4);
    wait_until("the lane is written again", || site.count("SELECT cursor FROM lanes") == second);
    assert_eq!(handler.ids(), [first, second, first, second], "the moved cursor counts");
    stop(&relay);
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NULL"), 1);
}

#[test]
fn a_relay_that_is_dropped_without_a_stop_ends_its_lanes_and_frees_them() {
    let site = Site::new();
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    drain(&relay);
    drop(relay);
    wait_until("the lane is free", || site.count("SELECT count(*) FROM lanes WHERE owner IS NULL") == 1);
    wait_until("the owner's file is gone", || {
        std::fs::read_dir(site.folder.path())
            .unwrap()
            .all(|entry| !entry.unwrap().file_name().to_string_lossy().contains("-owner-"))
    });
}

/// Calls a closure for events of one type.
struct Of(&'static str, Box<DispatchFn>);

impl Handler for Of {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.1(event)
    }
    fn filter(&self) -> EventFilter {
        EventFilter::Types(vec![self.0.to_owned()])
    }
    fn time_limit(&self) -> Duration {
        Duration::MAX
    }
}

fn insert_of(database: &Database, event_type: &str) -> i64 {
    let event = NewEvent::from_json(event_type, "{}").key(event_type);
    database.writer().transact(move |tx| outbox::insert(tx, &event)).unwrap()
}

#[test]
fn g08_an_event_that_waits_for_a_suspect_is_not_named_and_so_not_blamed() {
    let site = Site::new();
    let suspect = insert_of(&site.database, "a");
    // Both lanes single-step after a death; an event of the first is a suspect.
    leave_dead_lane(&site, "first", "single_step_to = 1000");
    leave_dead_lane(&site, "second", "single_step_to = 1000");
    site.foreign(&format!(
        "INSERT INTO deliveries (outbox_id, handler, event_key, state, crashes, next_attempt_at, created_at, updated_at) \
         VALUES ({suspect}, 'first', 'a', 'retry', 1, 0, 0, 0)"
    ))
    .unwrap();
    let relay: Arc<OnceLock<Relay>> = Arc::default();
    let named = Arc::new(Mutex::new(None));
    let first = {
        let (relay, named, database) = (relay.clone(), named.clone(), site.database.clone());
        Of(
            "a",
            Box::new(move |_| {
                let relay = relay.wait();
                insert_of(&database, "b");
                // It polls every 200 ms: a pass that is older has come to the event and waits.
                wait_until("the other lane waits", || {
                    relay.status()[1].last_pass.is_some_and(|age| age > Duration::from_millis(700))
                });
                let running = database.read(|connection| {
                    connection.query_row("SELECT running_id FROM lanes WHERE handler = 'second'", [], |row| {
                        row.get::<_, Option<i64>>(0)
                    })
                });
                *named.lock().unwrap() = Some(running.unwrap());
                Ok(())
            }),
        )
    };
    let started =
        site.relay().handler("first", first).handler("second", Of("b", Box::new(|_| Ok(())))).start().unwrap();
    relay.set(started.clone()).unwrap();
    drain(&started);
    assert_eq!(*named.lock().unwrap(), Some(None), "named while it did not run");
    stop(&started);
}

#[test]
fn g05_a_killer_waits_behind_an_earlier_event_that_was_replayed_while_it_ran() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "a"]);
    leave_dead_lane(&site, "h", &format!("cursor = {0}, running_id = {1}", ids[0], ids[1]));
    site.foreign(&format!(
        "INSERT INTO deliveries (outbox_id, handler, event_key, state, replays, next_attempt_at, created_at, updated_at) \
         VALUES ({}, 'h', 'a', 'retry', 1, {}, 0, 0)",
        ids[0],
        START_MS + 5_000
    ))
    .unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.ids(), [0; 0], "the later one must not overtake");
    let waiting = site.in_state(ExceptionState::Waiting);
    assert_eq!((waiting[0].outbox_id, waiting[0].crashes), (ids[1], 1));
    site.advance(&relay, 5);
    handler.wait_calls(2);
    assert_eq!(handler.done(), ids);
    stop(&relay);
}

#[test]
fn an_edited_payload_that_is_no_text_ends_in_the_dead_letters() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    handler.script(id, [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.foreign("UPDATE deliveries SET payload = CAST(x'ff41' AS TEXT)").unwrap();
    site.advance(&relay, 5);
    wait_until("it is a dead letter", || site.ids_in_state(ExceptionState::DeadLetter) == [id]);
    assert!(site.in_state(ExceptionState::DeadLetter)[0].reason.as_deref().unwrap().contains("UTF-8"));
    assert_eq!(handler.ids(), [id]);
    stop(&relay);
}

#[test]
fn case_c40_no_state_of_a_row_is_outside_every_query() {
    let site = Site::new();
    let handler = Scripted::new();
    // Waiting with nothing before it, waiting without a key, waiting behind closed rows, due without a time that passed.
    let ids = site.insert_all(&["a", "a", "b", "c", "c", "d"]);
    let row = |id: i64, key: &str, state: &str, due: &str| {
        let row = "outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at";
        site.foreign(&format!("INSERT INTO deliveries ({row}) VALUES ({id}, 'h', {key}, '{state}', {due}, 0, 0)"))
    };
    row(ids[0], "'a'", "waiting", "NULL").unwrap();
    row(ids[1], "'a'", "waiting", "NULL").unwrap();
    row(ids[2], "NULL", "waiting", "NULL").unwrap();
    row(ids[3], "'c'", "discarded", "NULL").unwrap();
    row(ids[4], "'c'", "waiting", "NULL").unwrap();
    row(ids[5], "'d'", "retry", &i64::MAX.to_string()).unwrap();
    row(ids[5] + 1, "'d'", "retry", "NULL").unwrap_err();
    row(ids[5] + 1, "'d'", "claimed", "NULL").unwrap_err();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(5);
    drain(&relay);
    let mut done = handler.done();
    assert!(done.iter().position(|id| *id == ids[0]) < done.iter().position(|id| *id == ids[1]));
    done.sort_unstable();
    assert_eq!(done, [ids[0], ids[1], ids[2], ids[4], ids[5]]);
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE state IN ('retry', 'waiting', 'parked')"), 0);
    stop(&relay);
}

#[test]
fn a_short_batch_does_not_make_those_after_it_single() {
    let site = Site::new();
    let ids = site.insert_all(&["x"]);
    let handler = Scripted::batching(100);
    handler.script(ids[0], [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let calls = relay.status()[0].calls;
    // One event, then one that waits behind the failed one, then many.
    let mut keys = vec!["a", "x"];
    keys.extend(["b"; 50]);
    site.insert_all(&keys);
    drain(&relay);
    assert_eq!(relay.status()[0].calls - calls, 51);
    assert_eq!(handler.batches(), [50], "one batch for the rest");
    stop(&relay);
}

#[test]
fn an_event_from_the_future_does_not_keep_what_comes_after_it_for_ever() {
    let site = Site::new();
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    let future = site.insert_event(NewEvent::from_json("t", "{}").occurred_at(START_MS * 2));
    for _ in 0..5 {
        site.insert_event(NewEvent::from_json("t", "{}").occurred_at(START_MS));
    }
    drain(&relay);
    stop(&relay);
    site.clock.advance(8 * 86_400_000);
    let mut retention = Retention::default();
    retention.rows_per_task = 1;
    let pruned = outbox::prune(&site.database, &retention, 0, || false).unwrap();
    assert_eq!(pruned.events, 5);
    assert_eq!(site.count("SELECT min(id) FROM event_outbox"), future);
    assert_eq!(site.count("SELECT count(*) FROM event_outbox"), 1);
}

#[test]
fn a_log_that_was_emptied_by_hand_takes_events_again_and_skips_none() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    let ids = site.insert_all(&["a", "b", "c"]);
    drain(&relay);
    stop(&relay);
    site.foreign("DELETE FROM event_outbox; DELETE FROM sqlite_sequence").unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let next = site.insert("a");
    assert_eq!(next, ids[2] + 1);
    drain(&relay);
    assert_eq!(handler.done().last(), Some(&next));
    stop(&relay);
}

#[test]
fn a_key_that_healed_goes_back_to_being_delivered_without_rows() {
    const EVENTS: i64 = 40;
    let site = Site::new();
    let ids = site.insert_all(&["hot", "hot"]);
    site.foreign(
        "CREATE TABLE seen (id INTEGER); \
         CREATE TRIGGER new_exception AFTER INSERT ON deliveries BEGIN INSERT INTO seen VALUES (NEW.outbox_id); END",
    )
    .unwrap();
    // While an event runs, the next but one of its key is committed: there is always something new to read.
    let failed = Arc::new(OnceLock::new());
    let handler = {
        let (database, failed) = (site.database.clone(), failed.clone());
        move |event: &Event| {
            if failed.set(()).is_ok() {
                return Err(DispatchError::retry("once"));
            }
            if event.id <= EVENTS - 2 {
                let next = NewEvent::from_json("t", "{}").key("hot");
                database.writer().transact(move |tx| outbox::insert(tx, &next)).unwrap();
            }
            Ok(())
        }
    };
    let relay = site.relay().handler_fn("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    site.insert_all(&["hot", "hot"]);
    site.clock.advance(5_000);
    let relay = site.relay().handler_fn("h", handler).start().unwrap();
    wait_until("all are delivered", || site.count("SELECT min(cursor) FROM lanes") >= EVENTS);
    drain(&relay);
    assert_eq!(site.count("SELECT count(*) FROM seen"), ids.len() as i64, "only those that failed or waited at first");
    stop(&relay);
}

#[test]
fn extreme_options_and_a_handler_that_panics_outside_its_calls_stop_no_lane() {
    struct Touchy(Arc<Scripted>);
    impl Touchy {
        fn not_on_a_lane() {
            let thread = std::thread::current();
            assert!(!thread.name().unwrap_or_default().contains("lane-"), "asked on the lane's thread");
        }
    }
    impl Handler for Touchy {
        fn handle(&self, event: &Event) -> Result<(), DispatchError> {
            self.0.handle(event)
        }
        fn time_limit(&self) -> Duration {
            Self::not_on_a_lane();
            Duration::MAX
        }
        fn start_at(&self) -> outbox::StartAt {
            Self::not_on_a_lane();
            outbox::StartAt::Beginning
        }
    }
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    leave_dead_lane(&site, "h", &format!("running_id = {id}"));
    let mut options = RelayOptions::default();
    options.flush_after = Duration::MAX;
    options.poll = Duration::ZERO;
    options.policy.backoff_base = Duration::MAX;
    options.policy.backoff_max = Duration::MAX;
    options.policy.pause_base = Duration::MAX;
    options.policy.pause_max = Duration::MAX;
    let relay = site.relay().options(options).handler("h", Touchy(handler.clone())).start().unwrap();
    handler.wait_calls(1);
    let later = site.insert("b");
    handler.script(later + 1, [Step::Fail]);
    handler.script(later + 2, [Step::Down(Some(Duration::MAX))]);
    site.insert_all(&["c", "d"]);
    handler.wait_calls(4);
    assert_eq!(handler.ids(), [id, later, later + 1, later + 2]);
    relay.stop(std::time::Instant::now() + LONG).unwrap();
    assert_eq!(site.count("SELECT cursor FROM lanes"), later + 1);
}

#[test]
fn a_foreign_write_lock_stops_no_lane_repeats_no_call_and_is_said() {
    for threads in [1, 4] {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::new(START_MS));
        let mut options = Options::default();
        (options.clock, options.busy_deadline) = (clock.clone(), Duration::from_millis(20));
        let database = Database::open(folder.path().join("site.db"), &[outbox::COMPONENT], options).unwrap();
        let site = Site { clock, database, folder };
        let handler = Scripted::new();
        let inner = handler.clone();
        let (inside, entered) = crossbeam_channel::bounded(100);
        let (go_on, let_go) = crossbeam_channel::bounded::<()>(100);
        let handle = move |event: &Event| {
            inside.send(event.id).unwrap();
            let_go.recv_timeout(LONG).unwrap();
            inner.handle(event)
        };
        let relay = site.relay().handler("h", HandlerFn::new(handle).concurrency(threads)).start().unwrap();
        let ids = site.insert_all(&["a", "a", "b", "c"]);
        handler.script(ids[0], [Step::Fail]);
        entered.recv_timeout(LONG).unwrap();
        // Another program writes for longer than anybody here waits.
        let foreign = rusqlite::Connection::open(site.folder.path().join("site.db")).unwrap();
        foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
        ids.iter().for_each(|_| go_on.send(()).unwrap());
        wait_until(
            "the lane says so",
            || matches!(&relay.status()[0].state, LaneState::Waiting { reason } if reason.contains("flush failed")),
        );
        assert_eq!(site.count("SELECT cursor FROM lanes") + site.count("SELECT count(*) FROM deliveries"), 0);
        foreign.execute_batch("ROLLBACK").unwrap();
        (0..10).for_each(|_| go_on.send(()).unwrap());
        wait_until("it goes on by itself", || {
            site.advance(&relay, 5);
            site.count("SELECT cursor FROM lanes") == ids[3] && handler.done().len() == ids.len()
        });
        drain(&relay);
        assert_eq!(handler.calls().len(), ids.len() + 1, "{threads} threads: nothing is called again for it");
        let of_key: Vec<i64> = handler.done().into_iter().filter(|id| ids[..2].contains(id)).collect();
        assert_eq!(of_key, ids[..2]);
        stop(&relay);
    }
}
