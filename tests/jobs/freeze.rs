//! A site frozen down to the last row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vayu_articles::article::ArticlePatch;
use vayu_articles::jobs::{JobError, Mode};
use vayu_articles::outbox::{self, DispatchError, Event, Relay, Retention};
use vayu_articles::queue::{WriteJob, Writer};

use crate::harness::{LONG, Site, create, delete, patch, update, wait_until};

fn soon() -> Instant {
    Instant::now() + LONG
}

#[test]
fn a_quiesced_database_is_byte_stable_while_a_thousand_writes_are_accepted() {
    let site = Site::new();
    let relay = Relay::builder(&site.database)
        .handler_fn("one", |_: &Event| Ok(()))
        .handler_fn("two", |_: &Event| Ok(()))
        .start()
        .unwrap();
    let runner = site.runner();
    for number in 0..20 {
        site.applied(create(&format!("Old {number}")));
    }
    site.operator().hold("two").unwrap();
    let info = site.jobs.quiesce(Mode::Journal, Some("backup"), soon()).unwrap();
    assert_eq!(info.held, ["one"], "what an operator holds is not the freeze's");
    assert!(site.operator().lanes().unwrap().iter().all(|lane| lane.held && lane.owner.is_none()));
    let frozen = site.dump();

    let mut jobs = Vec::new();
    for number in 0..250 {
        jobs.push(site.deferred(create(&format!("New {number}"))));
        jobs.push(site.deferred(update(&format!("new-{number}"), "Changed.")));
        let old = format!("old-{}", number % 20);
        jobs.push(site.deferred(patch(&old, ArticlePatch::default().content(format!("Round {number}.")))));
        let last =
            if number % 2 == 0 { delete(&format!("new-{number}")) } else { update(&old, &format!("After {number}.")) };
        jobs.push(site.deferred(last));
    }
    assert_eq!(jobs.len(), 1_000);
    assert_eq!(site.dump(), frozen, "not one row of the articles and the outbox has changed");

    site.jobs.set_mode(Mode::Open, None).unwrap();
    runner.notify();
    wait_until("the journal is worked off", || !site.jobs.mode().unwrap().draining);
    let causes: Vec<String> = site.events().into_iter().skip(20).filter_map(|event| event.3).collect();
    let expected: Vec<String> = jobs.iter().map(i64::to_string).collect();
    assert_eq!(causes, expected, "one event for each write, in the order in which they were accepted");
    let lanes = site.operator().lanes().unwrap();
    let held: Vec<&str> = lanes.iter().filter(|lane| lane.held).map(|lane| lane.handler.as_str()).collect();
    assert_eq!(held, ["two"], "the operator's own hold stands");
    site.operator().release("two").unwrap();
    assert!(relay.wait_drained(soon()));
    runner.stop(soon()).unwrap();
    relay.stop(soon()).unwrap();
}

#[test]
fn a_freeze_that_cannot_drain_says_which_lane_is_in_the_way_and_keeps_writes_back() {
    let site = Site::new();
    let relay = Relay::builder(&site.database)
        .handler_fn("down", |_: &Event| Err(DispatchError::unavailable("the other side is down")))
        .start()
        .unwrap();
    site.applied(create("One"));
    let error = site.jobs.quiesce(Mode::Journal, None, Instant::now() + Duration::from_millis(300)).unwrap_err();
    assert!(matches!(&error, JobError::Freeze { what } if what.contains("down")), "{error}");
    assert_eq!(site.jobs.mode().unwrap().mode, Mode::Journal);
    site.deferred(create("Two"));
    site.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(site.run().applied, 1);
    relay.stop(soon()).unwrap();
}

#[test]
fn an_open_site_is_not_quiesced() {
    let site = Site::new();
    assert!(matches!(site.jobs.quiesce(Mode::Open, None, soon()), Err(JobError::Freeze { .. })));
}

#[test]
fn writers_that_never_stop_see_no_order_broken_by_freezes_and_thaws() {
    let site = Arc::new(Site::new());
    let runner = site.runner();
    for writer in 0..4 {
        site.applied(create(&format!("Writer {writer}")));
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|writer| {
                let site = site.clone();
                scope.spawn(move || {
                    for number in 0..100 {
                        let change = update(&format!("writer-{writer}"), &number.to_string());
                        site.writer.enqueue(WriteJob::new(change)).unwrap();
                    }
                })
            })
            .collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            site.jobs.set_mode(Mode::Journal, None).unwrap();
            std::thread::yield_now();
            site.jobs.set_mode(Mode::Open, None).unwrap();
            runner.notify();
        }
    });
    wait_until("the journal is worked off", || !site.jobs.mode().unwrap().draining);
    for writer in 0..4 {
        let article = site.article(&format!("writer-{writer}")).unwrap();
        assert_eq!((article.content.as_str(), article.version), ("99", 101), "the last write of each is the last");
    }
    runner.stop(soon()).unwrap();
}

#[test]
fn retention_rests_while_every_lane_is_held() {
    let site = Site::new();
    let relay = Relay::builder(&site.database).handler_fn("one", |_: &Event| Ok(())).start().unwrap();
    (0..5).for_each(|number| drop(site.applied(create(&format!("Old {number}")))));
    site.jobs.quiesce(Mode::Journal, None, soon()).unwrap();
    site.clock.advance(8 * 86_400_000);
    let prune = || outbox::prune(&site.database, &Retention::default(), 0, || false).unwrap().events;
    let frozen = site.dump();
    assert_eq!(prune(), 0);
    assert_eq!(site.dump(), frozen);
    site.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(prune(), 5);
    relay.stop(soon()).unwrap();
}
