//! One owner per lane: standby, takeover, and what a dead owner leaves behind.

use std::time::{Duration, Instant};

use vayu_articles::outbox::{ExceptionState, LaneState};

use crate::harness::{Scripted, Site, drain, stop, wait_until};

#[test]
fn a_second_relay_stands_by_and_goes_on_at_once_after_a_clean_stop() {
    let site = Site::new();
    let (first, second) = (Scripted::new(), Scripted::new());
    let owner = site.relay().shared_handler("h", first.clone()).start().unwrap();
    let id = site.insert("a");
    drain(&owner);
    let standby = site.relay().shared_handler("h", second.clone()).start().unwrap();
    wait_until("the second stands by", || matches!(standby.status()[0].state, LaneState::Standby { .. }));
    stop(&owner);
    let next = site.insert("a");
    second.wait_calls(1);
    assert_eq!((first.ids(), second.ids()), (vec![id], vec![next]));
    drain(&standby);
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE single_step_to IS NOT NULL"), 0, "nobody died");
    stop(&standby);
}

#[test]
fn a_dead_owners_lane_is_taken_over_and_single_stepped() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b", "c"]);
    // A relay that died: its row names an owner whose file can be locked.
    let dead = "11111111-1111-4111-8111-111111111111";
    let file = site.folder.path().join(format!("site.db-owner-{dead}.lock"));
    std::fs::write(&file, "").unwrap();
    site.foreign(&format!(
        "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor, owner, owned_since) \
         VALUES ('h', '[\"*\"]', 'continue', {}, '{dead}', 0)",
        ids[0]
    ))
    .unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(handler.ids(), ids[1..]);
    assert!(!file.exists(), "the dead owner's file is removed");
    let last = site.insert("d");
    drain(&relay);
    wait_until("the single steps are over", || {
        site.count("SELECT count(*) FROM lanes WHERE single_step_to IS NULL AND running_id IS NULL") == 1
    });
    assert_eq!(handler.ids().last(), Some(&last));
    stop(&relay);
}

#[test]
fn g08_an_event_that_kills_the_process_ends_as_crash_loop_and_its_neighbours_are_delivered() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "killer", "c"]);
    // Three deaths with the event named as running; the first death without a name is only the takeover itself.
    for death in 0..3_u32 {
        let dead = format!("22222222-2222-4222-8222-22222222222{death}");
        std::fs::write(site.folder.path().join(format!("site.db-owner-{dead}.lock")), "").unwrap();
        site.foreign(&format!(
            "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) VALUES ('h', '[]', 'continue', {0}) \
             ON CONFLICT DO NOTHING; \
             UPDATE lanes SET owner = '{dead}', running_id = {1}",
            ids[0], ids[1]
        ))
        .unwrap();
        if death < 2 {
            // The takeover counts the death; this handler never lets the event run.
            let relay = site.relay().handler("h", Refusing).start().unwrap();
            let crashes = i64::from(death) + 1;
            wait_until("counted", || site.count("SELECT coalesce(max(crashes), 0) FROM deliveries") == crashes);
            stop(&relay);
            assert_eq!(site.in_state(ExceptionState::Retry)[0].crashes, death + 1);
        }
    }
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(1);
    drain(&relay);
    let dead = site.in_state(ExceptionState::DeadLetter);
    assert_eq!((dead[0].outbox_id, dead[0].reason.as_deref()), (ids[1], Some("crash_loop")));
    assert_eq!(handler.done(), [ids[2]]);
    // A replayed crash loop keeps two crashes: one more death condemns it again. A clean run clears them.
    site.operator().replay(ids[1], "h", false).unwrap();
    handler.wait_calls(2);
    drain(&relay);
    assert_eq!(site.in_state(ExceptionState::Done)[0].crashes, 0);
    stop(&relay);
}

/// Never gets as far as a call.
struct Refusing;

impl vayu_articles::outbox::Handler for Refusing {
    fn handle(&self, _: &vayu_articles::outbox::Event) -> Result<(), vayu_articles::outbox::DispatchError> {
        unreachable!("begin refuses")
    }

    fn begin(&self, _: &vayu_articles::outbox::LaneStart) -> Result<(), vayu_articles::outbox::DispatchError> {
        Err(vayu_articles::outbox::DispatchError::unavailable("never begins"))
    }
}

#[test]
fn g04_two_relays_never_run_one_handler_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let site = Site::new();
    let (inside, overlaps, calls) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = || {
        let (inside, overlaps, calls) = (inside.clone(), overlaps.clone(), calls.clone());
        site.relay()
            .handler_fn("h", move |_| {
                if inside.swap(true, Ordering::SeqCst) {
                    overlaps.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::yield_now();
                calls.fetch_add(1, Ordering::SeqCst);
                inside.store(false, Ordering::SeqCst);
                Ok(())
            })
            .start()
            .unwrap()
    };
    let mut relays = vec![start(), start(), start()];
    for _ in 0..10 {
        site.insert_all(&["a"; 50]);
        stop(&relays.remove(0));
        relays.push(start());
    }
    wait_until("all are delivered", || site.count("SELECT max(id) - cursor FROM event_outbox, lanes") == 0);
    relays.iter().for_each(stop);
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(calls.load(Ordering::SeqCst), 500, "clean handovers repeat nothing");
}

#[test]
fn an_operators_hold_makes_the_owner_let_go() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.foreign("UPDATE lanes SET held = 1").unwrap();
    wait_until("the lane is held", || relay.status()[0].state == LaneState::Held);
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    let id = site.insert("a");
    site.foreign("UPDATE lanes SET held = 0").unwrap();
    handler.wait_calls(1);
    assert_eq!(handler.done(), [id]);
    stop(&relay);
}

#[test]
fn a_stolen_lane_is_noticed_and_nothing_of_the_loser_is_written() {
    let site = Site::new();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    let id = site.insert("a");
    drain(&relay);
    // Somebody who does not exist has stolen the lane; after two seconds without a file he counts as dead.
    site.foreign("UPDATE lanes SET owner = '33333333-3333-4333-8333-333333333333', cursor = 0").unwrap();
    handler.wait_calls(2);
    assert_eq!(handler.ids(), [id, id], "loaded anew: the thief's cursor counts");
    stop(&relay);
}

#[test]
fn a_slow_call_is_reported_by_name_while_it_runs() {
    struct Slow(crossbeam_channel::Receiver<()>);
    impl vayu_articles::outbox::Handler for Slow {
        fn handle(&self, _: &vayu_articles::outbox::Event) -> Result<(), vayu_articles::outbox::DispatchError> {
            self.0.recv_timeout(crate::harness::LONG).unwrap();
            Ok(())
        }
        fn time_limit(&self) -> Duration {
            Duration::from_millis(1)
        }
    }
    let site = Site::new();
    let (go, gone) = crossbeam_channel::bounded(1);
    let relay = site.relay().handler("slow", Slow(gone)).start().unwrap();
    site.insert("a");
    wait_until("the call is overdue", || relay.status()[0].is_overdue());
    assert!(!relay.wait_drained(Instant::now()));
    go.send(()).unwrap();
    drain(&relay);
    assert!(!relay.status()[0].is_overdue());
    stop(&relay);
}
