//! What retention removes, and what it must never touch.

use std::time::Duration;

use vayu_articles::outbox::{ExceptionState, Retention, prune, reclaim};

use crate::harness::{Scripted, Site, Step, drain, stop};

const DAY: i64 = 86_400;

#[test]
fn original_12_delivered_events_are_removed_after_a_week_and_nothing_else() {
    let site = Site::new();
    let handler = Scripted::new();
    let old = |key: &str| {
        site.insert_event(
            vayu_articles::outbox::NewEvent::from_json("t.v1", "{}").key(key).occurred_at(crate::harness::START_MS),
        )
    };
    let delivered = old("a");
    let dead = old("dead");
    let healed = old("healed");
    handler.script(dead, [Step::Poison]);
    handler.script(healed, [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let retry = old("retrying");
    handler.script(retry, [Step::Fail, Step::Fail]);
    site.advance(&relay, 5);
    handler.wait_calls(5);
    drain(&relay);
    stop(&relay);
    let undelivered = old("late");
    site.clock.advance(8 * DAY * 1_000);
    let retention = Retention::default();
    let pruned = prune(&site.database, &retention, 0, || false).unwrap();
    assert_eq!(pruned.events, 2);
    let left: Vec<i64> = site
        .database
        .read(|connection| {
            connection
                .prepare("SELECT id FROM event_outbox ORDER BY id")?
                .query_map([], |row| row.get(0))?
                .collect::<Result<_, vayu_articles::rusqlite::Error>>()
        })
        .unwrap();
    assert_eq!(left, [dead, retry, undelivered], "dead, retrying and undelivered stay whatever their age");
    assert!(!left.contains(&delivered) && !left.contains(&healed));
    assert_eq!(site.ids_in_state(ExceptionState::Done), [] as [i64; 0], "a closed row goes with its event");
    // The next pass goes on where this one stopped.
    let again = prune(&site.database, &retention, pruned.resume_after, || false).unwrap();
    assert_eq!(again.events, 0);
}

#[test]
fn young_events_stay_and_a_pass_can_be_interrupted() {
    let site = Site::new();
    let handler = Scripted::new();
    for _ in 0..5 {
        let events: Vec<_> = (0..100)
            .map(|_| vayu_articles::outbox::NewEvent::from_json("t.v1", "{}").occurred_at(crate::harness::START_MS))
            .collect();
        site.database
            .writer()
            .transact(move |tx| events.iter().try_for_each(|event| vayu_articles::outbox::insert(tx, event).map(drop)))
            .unwrap();
    }
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let mut retention = Retention::default();
    assert_eq!(prune(&site.database, &retention, 0, || false).unwrap().events, 0, "too young");
    site.clock.advance(8 * DAY * 1_000);
    let steps = std::cell::Cell::new(0);
    let stop_after_two = || {
        steps.set(steps.get() + 1);
        steps.get() > 2
    };
    let pruned = prune(&site.database, &retention, 0, stop_after_two).unwrap();
    assert_eq!(pruned.events, 400, "200 rows a task");
    retention.keep = Duration::from_secs(3_600);
    assert_eq!(prune(&site.database, &retention, pruned.resume_after, || false).unwrap().events, 100);
}

#[test]
fn g11_an_idle_relay_writes_nothing() {
    let site = Site::new();
    let handler = Scripted::new();
    site.insert("a");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    let groups = || site.database.writer().stats().groups;
    let before = groups();
    // Ten looks at the database, each seen by its effect on the lane's clock of passes.
    for _ in 0..10 {
        relay.notify();
        crate::harness::wait_until("a pass", || {
            relay.status()[0].last_pass.is_some_and(|age| age < Duration::from_millis(150))
        });
        drain(&relay);
    }
    assert_eq!(groups(), before);
    stop(&relay);
}

#[test]
fn case_c46_only_what_was_delivered_long_ago_goes_whatever_the_age_of_the_rest() {
    let site = Site::new();
    let (up, down) = (Scripted::new(), Scripted::parking());
    let at = |key: &str, ms: i64| {
        site.insert_event(vayu_articles::outbox::NewEvent::from_json("t.v1", "{}").key(key).occurred_at(ms))
    };
    let year_ago = crate::harness::START_MS - 365 * DAY * 1_000;
    let old = |key: &str| at(key, year_ago);
    let (delivered, dead, parked) = (old("a"), old("dead"), old("parked"));
    let (retrying, waiting) = (old("retry"), old("retry"));
    let (discarded, fresh) = (old("discarded"), at("fresh", crate::harness::START_MS));
    up.script(dead, [Step::Poison]);
    up.script(discarded, [Step::Poison]);
    up.script(retrying, [Step::Fail]);
    down.script(parked, [Step::Poison]);
    let relay = site.relay().shared_handler("up", up.clone()).shared_handler("down", down.clone()).start().unwrap();
    drain(&relay);
    down.script(fresh + 1, vec![Step::Down(None); 1_000]);
    // The sink is down from here on.
    let pending = old("pending");
    up.wait_calls(7);
    crate::harness::wait_until("the lane pauses", || {
        site.count("SELECT count(*) FROM lanes WHERE paused_until > 0") == 1
    });
    stop(&relay);
    site.operator().discard(discarded, "up", "unwanted").unwrap();
    let pruned = prune(&site.database, &Retention::default(), 0, || false).unwrap();
    assert_eq!(ids(&site), [dead, parked, retrying, waiting, fresh, pending], "{pruned:?}");
    assert_eq!(pruned.events, 2, "{delivered} and {discarded}");
    // A year later nothing but the fresh one has become removable, and what is open is still delivered.
    site.clock.advance(365 * DAY * 1_000);
    prune(&site.database, &Retention::default(), 0, || false).unwrap();
    assert_eq!(ids(&site), [dead, parked, retrying, waiting, pending]);
    let (up, down) = (Scripted::new(), Scripted::new());
    let relay = site.relay().shared_handler("up", up.clone()).shared_handler("down", down.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(up.done(), [retrying, waiting]);
    assert_eq!(down.done(), [pending]);
    stop(&relay);
    // Dead ones only by command.
    site.operator().discard(dead, "up", "old").unwrap();
    site.operator().discard(parked, "down", "old").unwrap();
    prune(&site.database, &Retention::default(), 0, || false).unwrap();
    assert_eq!(ids(&site), [0; 0]);
}

fn ids(site: &Site) -> Vec<i64> {
    let read = site.database.read(|connection| {
        let mut statement = connection.prepare("SELECT id FROM event_outbox ORDER BY id")?;
        statement.query_map([], |row| row.get(0))?.collect::<Result<_, vayu_articles::rusqlite::Error>>()
    });
    read.unwrap()
}

/// So many events of long ago that every lane has passed.
fn delivered_log(site: &Site, events: i64) {
    site.foreign(&format!(
        "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) VALUES ('gone', '[]', 'continue', 0); \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events}) \
         INSERT INTO event_outbox (event_type, event_key, payload, occurred_at) \
         SELECT 't.v1', i % 1000, printf('{{\"text\":\"%.*c\"}}', 200, 'x'), 0 FROM n; \
         UPDATE lanes SET cursor = {events}"
    ))
    .unwrap();
}

#[test]
fn case_c46_four_writers_get_on_between_any_two_steps_of_a_large_removal() {
    const EVENTS: i64 = 200_000;
    let site = Site::new();
    delivered_log(&site, EVENTS);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let written = std::sync::atomic::AtomicU64::new(0);
    let (order, count) = (std::sync::atomic::Ordering::SeqCst, || written.load(std::sync::atomic::Ordering::SeqCst));
    let steps = std::cell::Cell::new(0_i64);
    let (wrote, writes) = crossbeam_channel::bounded(1);
    let pruned = std::thread::scope(|scope| {
        for writer in 0..4 {
            let (site, stop, written, wrote) = (&site, &stop, &written, wrote.clone());
            scope.spawn(move || {
                while !stop.load(order) {
                    site.insert(&writer.to_string());
                    written.fetch_add(1, order);
                    let _ = wrote.try_send(());
                }
            });
        }
        let between_two = || {
            // Nothing is held between two steps: the writers go on, however long the pruning takes.
            let _ = writes.try_recv();
            writes.recv_timeout(crate::harness::LONG).expect("the writers get on");
            let gone = site.count("SELECT min(id) FROM event_outbox") - 1;
            assert!(gone <= steps.get() * 200, "more than 200 rows in a step");
            steps.set(steps.get() + 1);
            false
        };
        let pruned = prune(&site.database, &Retention::default(), 0, between_two).unwrap();
        stop.store(true, order);
        pruned
    });
    assert_eq!(pruned.events, u64::try_from(EVENTS).unwrap());
    assert!(steps.get() >= 1_000);
    assert_eq!(ids(&site).len() as u64, count(), "what was written meanwhile is there");
}

#[test]
fn free_pages_are_given_back_in_small_steps_and_an_interrupted_vacuum_goes_on() {
    let site = Site::new();
    delivered_log(&site, 20_000);
    prune(&site.database, &Retention::default(), 0, || false).unwrap();
    let pages = |name: &str| site.count(&format!("SELECT * FROM pragma_{name}"));
    let (free, all) = (pages("freelist_count"), pages("page_count"));
    assert!(free > 1_000, "{free} of {all}");
    let steps = std::cell::Cell::new(0);
    let stop_after_three = || {
        steps.set(steps.get() + 1);
        steps.get() > 3
    };
    let retention = Retention::default();
    assert_eq!(reclaim(&site.database, &retention, stop_after_three).unwrap(), 3 * 64, "64 pages a task");
    assert_eq!(pages("freelist_count"), free - 3 * 64);
    // A relay's own pass takes up what is left, though it has nothing to remove.
    let relay = site.relay().shared_handler("gone", Scripted::new()).start().unwrap();
    crate::harness::wait_until("all is given back", || pages("freelist_count") == 0);
    assert!(pages("page_count") <= all - free);
    stop(&relay);
}
