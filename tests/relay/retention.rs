//! What retention removes, and what it must never touch.

use std::time::Duration;

use vayu_articles::outbox::{ExceptionState, Retention, prune};

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
