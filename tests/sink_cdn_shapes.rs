//! The shapes of a purge besides JSON, and the second purge, against a real socket.
#![cfg(feature = "sinks")]

#[path = "sink_support/fake_cdn.rs"]
mod fake_cdn;
mod sink_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fake_cdn::{Answer, Call, FakeCdn};
use serde_json::json;
use sink_support::Site;
use vayu_articles::article::ArticlePatch;
use vayu_articles::clock::{Clock, ManualClock};
use vayu_articles::outbox::{DispatchError, Event, Handler, NewEvent, Relay, StartAt};
use vayu_articles::sinks::cdn::{CdnAgain, CdnOptions, CdnPurge, CdnShape};

const BASE: &str = "https://site.test";
const NOW_MS: i64 = 1_700_000_000_000;

fn options(cdn: &FakeCdn, shape: CdnShape) -> CdnOptions {
    // The address of the cache itself, without a path.
    let mut options = CdnOptions::new(cdn.endpoint().replace("/purge", ""), BASE);
    (options.shape, options.api) = (shape, false);
    options
}

fn purge(cdn: &FakeCdn, shape: CdnShape, change: impl FnOnce(&mut CdnOptions)) -> CdnPurge {
    let mut options = options(cdn, shape);
    change(&mut options);
    CdnPurge::new(options, Arc::new(ManualClock::new(NOW_MS))).unwrap()
}

fn renamed(tags: &[&str]) -> Event {
    let payload = json!({
        "id": "0190", "version": 2, "kind": "post", "slug": "new", "title": "T", "status": "published", "tags": tags,
        "previous": {"slug": "old", "status": "published", "tags": ["Gone & far"]},
    });
    let mut event = NewEvent::new("article.updated.v1", &payload).unwrap().key("0190");
    event.occurred_at = Some(NOW_MS);
    event.into_event(7)
}

fn status(code: u16) -> Answer {
    Answer::Status(code, "", "")
}

fn named(calls: &[Call]) -> Vec<&str> {
    calls.iter().flat_map(|call| call.urls.iter().map(String::as_str)).collect()
}

#[test]
fn each_address_is_a_request_of_its_own_to_the_cache_in_the_sites_name() {
    for (shape, method) in [(CdnShape::Purge, "PURGE"), (CdnShape::Ban, "BAN")] {
        let cdn = FakeCdn::start([]);
        purge(&cdn, shape, |options| options.token = Some("s3cret".to_owned())).handle(&renamed(&["a b"])).unwrap();
        let calls = cdn.calls();
        let expected = ["/articles/new", "/articles/old", "/", "/tags/a%20b", "/tags/gone%20%26%20far"];
        assert_eq!(named(&calls), expected.map(|path| format!("{BASE}{path}")));
        for (call, path) in calls.iter().zip(expected) {
            let head = call.head.to_lowercase();
            assert!(call.head.starts_with(&format!("{method} {path} HTTP/1.1\r\n")), "{}", call.head);
            assert!(
                head.contains("\r\nhost: site.test\r\n") && head.contains("authorization: bearer s3cret"),
                "{head}"
            );
        }
    }
}

#[test]
fn another_method_and_another_header_for_the_token() {
    let cdn = FakeCdn::start([]);
    let change = |options: &mut CdnOptions| {
        options.method = Some("DELETE".to_owned());
        (options.token, options.token_header) = (Some("s3cret".to_owned()), "X-Cache-Token".to_owned());
    };
    purge(&cdn, CdnShape::Purge, change).handle(&renamed(&[])).unwrap();
    let head = cdn.calls()[0].head.clone();
    assert!(head.starts_with("DELETE /articles/new "), "{head}");
    assert!(head.to_lowercase().contains("\r\nx-cache-token: s3cret\r\n"), "{head}");
}

#[test]
fn keys_go_out_in_one_header_each_once_and_safe() {
    let cdn = FakeCdn::start([]);
    let purge = purge(&cdn, CdnShape::Keys, |_| {});
    purge.handle(&renamed(&["Rust", "x\r\nEvil: 1, y", "日本"])).unwrap();
    let calls = cdn.calls();
    assert_eq!(calls.len(), 1);
    assert!(calls[0].head.starts_with("POST / HTTP/1.1\r\n"), "{}", calls[0].head);
    let expected = "article-0190 slug-new slug-old lists tag-rust tag-x_0d_0aevil_3a_201_2c_20y \
                    tag-_e6_97_a5_e6_9c_ac tag-gone_20_26_20far";
    assert_eq!(calls[0].urls.join(" "), expected);
    assert!(!calls[0].head.to_lowercase().contains("\r\nevil"));
    // Several changes share their keys.
    purge.handle_batch(&[renamed(&["a"]), renamed(&["b"])]).unwrap();
    assert_eq!(cdn.calls()[1].urls.len(), 7);
}

#[test]
fn case_c35_keys_beyond_the_cap_go_out_in_further_calls_and_only_the_failed_one_again() {
    let tags: Vec<String> = (0..20).map(|number| format!("{number:090}")).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let later = Answer::Status(429, "Retry-After: 3\r\n", "later");
    let cdn = FakeCdn::start([status(200), later, status(200), status(500), status(500)]);
    let purge = purge(&cdn, CdnShape::Keys, |options| options.max_key_bytes = 900);
    let event = renamed(&tags);
    match purge.handle(&event) {
        Err(DispatchError::Unavailable { retry_after, .. }) => assert_eq!(retry_after, Some(Duration::from_secs(3))),
        other => panic!("{other:?}"),
    }
    assert_eq!(cdn.calls().len(), 2, "the rest is not tried meanwhile");
    assert!(matches!(purge.handle(&event), Err(DispatchError::Retry { .. })));
    purge.handle(&event).unwrap();
    let calls = cdn.calls();
    let sent: Vec<&Vec<String>> = calls.iter().map(|call| &call.urls).collect();
    assert_eq!(sent.len(), 6);
    assert!(sent[1] == sent[2] && sent[3] == sent[4] && sent[4] == sent[5] && sent[0] != sent[1], "{sent:?}");
    assert!(sent.iter().all(|keys| keys.join(" ").len() <= 900));
    assert_eq!(cdn.purged().len(), 4 + 20 + 1, "all of them");
}

#[test]
fn case_c35_of_many_addresses_only_the_failed_one_is_asked_again() {
    // new, old, home, two tags; the home page fails, also at its repetition.
    let cdn = FakeCdn::start([status(200), status(404), status(500), status(500), status(200), status(410)]);
    let purge = purge(&cdn, CdnShape::Purge, |_| {});
    let event = renamed(&["a"]);
    assert!(matches!(purge.handle(&event), Err(DispatchError::Retry { .. })));
    assert_eq!(cdn.calls().len(), 6);
    purge.handle(&event).unwrap();
    let calls = cdn.calls();
    assert_eq!(named(&calls[6..]), [format!("{BASE}/")], "404 and 410 are done");
}

#[test]
fn what_an_answer_means_is_the_same_in_every_shape() {
    for shape in CdnShape::ALL {
        for (answer, expected) in [
            (status(204), "done"),
            (status(404), "done"),
            (status(301), "poison"),
            (status(403), "unavailable"),
            (status(405), "poison"),
            (Answer::Status(429, "Retry-After: 2\r\n", ""), "unavailable"),
            (status(503), "unavailable"),
            (Answer::Cut, "unavailable"),
        ] {
            let cdn = FakeCdn::start([answer.clone()]);
            let outcome = match purge(&cdn, *shape, |_| {}).handle(&renamed(&[])) {
                Ok(()) => "done",
                Err(DispatchError::Poison { .. }) => "poison",
                Err(DispatchError::Unavailable { .. }) => "unavailable",
                Err(_) => "other",
            };
            assert_eq!(outcome, expected, "{shape:?} {answer:?}");
        }
    }
}

#[test]
fn settings_of_the_shapes_that_cannot_work_are_refused() {
    let field = |shape: CdnShape, change: fn(&mut CdnOptions)| {
        let mut options = CdnOptions::new("http://cache.test", BASE);
        options.shape = shape;
        change(&mut options);
        CdnPurge::new(options, Arc::new(ManualClock::new(0))).map(drop).map_err(|error| error.field)
    };
    for shape in CdnShape::ALL {
        assert_eq!(field(*shape, |_| {}), Ok(()));
        assert_eq!(shape.as_str().parse(), Ok(*shape));
        assert_eq!(field(*shape, |options| options.key_header = "a b".to_owned()), Err("key_header"));
        assert_eq!(field(*shape, |options| options.key_header = "Host".to_owned()), Err("key_header"));
        assert_eq!(field(*shape, |options| options.method = Some("GET".to_owned())), Err("method"));
        assert_eq!(field(*shape, |options| options.method = Some("A B".to_owned())), Err("method"));
        assert_eq!(field(*shape, |options| options.token_header = "a\n".to_owned()), Ok(()), "there is no token");
    }
    assert!("xkey".parse::<CdnShape>().is_err());
    assert_eq!(field(CdnShape::Purge, |options| options.endpoint.push_str("/path")), Err("endpoint"));
    assert_eq!(field(CdnShape::Keys, |options| options.max_key_bytes = 99), Err("max_key_bytes"));
    let with_token = |options: &mut CdnOptions| {
        (options.token, options.token_header) = (Some("t".to_owned()), "a\n".to_owned());
    };
    assert_eq!(field(CdnShape::Keys, with_token), Err("token_header"));
}

#[test]
fn the_second_purge_comes_a_delay_after_the_commit_however_long_that_took() {
    let cdn = FakeCdn::start([]);
    // The change has waited for the write lock for longer than the delay: its commit may be just now.
    let clock = Arc::new(ManualClock::new(NOW_MS + 25_000));
    let again = CdnAgain::new(options(&cdn, CdnShape::Keys), Duration::from_secs(20), clock.clone()).unwrap();
    assert_eq!((again.start_at(), again.time_limit()), (StartAt::End, Duration::from_secs(50)));
    let (done, waits) = mpsc::channel();
    thread::scope(|scope| {
        let handler = again.clone();
        scope.spawn(move || done.send(handler.handle_batch(&[renamed(&[]), renamed(&["a"])])).unwrap());
        assert!(waits.recv_timeout(Duration::from_millis(500)).is_err(), "too early");
        clock.advance(19_999);
        assert!(waits.recv_timeout(Duration::from_millis(500)).is_err(), "too early");
        assert_eq!(cdn.calls().len(), 0);
        clock.advance(1);
        waits.recv_timeout(Duration::from_secs(15)).expect("the clock is looked at").unwrap();
        assert_eq!(cdn.calls().len(), 1);
        // What is old by any measure does not wait.
        clock.advance(40_000);
        let begun = Instant::now();
        again.handle(&renamed(&[])).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(cdn.calls().len(), 2);
    });
}

#[test]
fn a_clock_that_is_set_back_puts_the_second_purge_off_by_no_more_than_its_delay() {
    let cdn = FakeCdn::start([]);
    let clock = Arc::new(ManualClock::new(NOW_MS - 3_600_000));
    let delay = Duration::from_millis(300);
    let again = CdnAgain::new(options(&cdn, CdnShape::Keys), delay, clock).unwrap();
    let begun = Instant::now();
    again.handle(&renamed(&[])).unwrap();
    assert!(begun.elapsed() >= delay);
}

/// A wall clock that goes an hour ahead each time it is looked at.
#[derive(Debug, Default)]
struct Leaping(AtomicI64);

impl Clock for Leaping {
    fn now_ms(&self) -> i64 {
        NOW_MS + self.0.fetch_add(3_600_000, Ordering::SeqCst)
    }
}

#[test]
fn a_clock_that_is_set_ahead_does_not_bring_the_second_purge_before_its_delay() {
    let cdn = FakeCdn::start([]);
    let delay = Duration::from_millis(300);
    let again = CdnAgain::new(options(&cdn, CdnShape::Keys), delay, Arc::new(Leaping::default())).unwrap();
    for _ in 0..2 {
        let begun = Instant::now();
        again.handle(&renamed(&[])).unwrap();
        assert!(begun.elapsed() >= delay);
    }
}

#[test]
fn a_stop_does_not_wait_for_the_second_purge_and_loses_nothing() {
    let cdn = FakeCdn::start([]);
    let clock = Arc::new(ManualClock::new(NOW_MS));
    let again = CdnAgain::new(options(&cdn, CdnShape::Keys), Duration::from_secs(20), clock).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| again.handle(&renamed(&[])));
        again.close();
        assert!(matches!(waiting.join().unwrap(), Err(DispatchError::Unavailable { .. })));
    });
    assert_eq!(cdn.calls().len(), 0);
    for delay in [Duration::ZERO, Duration::from_secs(21)] {
        let clock = Arc::new(ManualClock::new(0));
        assert_eq!(CdnAgain::new(options(&cdn, CdnShape::Keys), delay, clock).unwrap_err().field, "delay");
    }
}

#[test]
fn a_second_purge_that_a_stop_cut_short_comes_after_the_next_start() {
    let (site, cdn) = (Site::new(), FakeCdn::start([]));
    let again = || {
        let clock: Arc<ManualClock> = site.clock.clone();
        CdnAgain::new(options(&cdn, CdnShape::Keys), Duration::from_secs(20), clock).unwrap()
    };
    let soon = || Instant::now() + Duration::from_secs(60);
    let first = again();
    let relay = Relay::builder(&site.database).handler("cdn-again", first.clone()).start().unwrap();
    // The lane is known: what comes now is its.
    assert!(relay.wait_drained(soon()));
    site.post("a", "Title", "text", &[]);
    site.update("a", ArticlePatch::default().content("other"));
    first.close();
    relay.stop(soon()).unwrap();
    assert_eq!(cdn.calls().len(), 0);

    // Later than any pause and any delay.
    site.clock.advance(600_000);
    let relay = Relay::builder(&site.database).handler("cdn-again", again()).start().unwrap();
    assert!(relay.wait_drained(soon()), "{:?}", relay.status());
    relay.stop(soon()).unwrap();
    assert!(cdn.purged().contains("slug-a"), "{:?}", cdn.purged());
}
