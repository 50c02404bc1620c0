//! The CDN purge against a real socket.
#![cfg(feature = "sinks")]

#[path = "sink_support/fake_cdn.rs"]
mod fake_cdn;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use fake_cdn::{Answer, FakeCdn};
use serde_json::json;
use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{DispatchError, Event, Handler, NewEvent};
use vayu_articles::sinks::cdn::{CdnOptions, CdnPurge};

const BASE: &str = "https://site.test";

fn purge(cdn: &FakeCdn, change: impl FnOnce(&mut CdnOptions)) -> CdnPurge {
    let mut options = CdnOptions::new(cdn.endpoint(), BASE);
    options.api = false;
    change(&mut options);
    CdnPurge::new(options, Arc::new(ManualClock::new(1_700_000_000_000))).unwrap()
}

fn event(tags: &[String]) -> Event {
    let payload = json!({
        "id": "0190", "version": 2, "kind": "post", "slug": "new", "title": "T", "status": "published", "tags": tags,
        "previous": {"slug": "old", "status": "published", "tags": []},
    });
    NewEvent::new("article.updated.v1", &payload).unwrap().key("0190").into_event(7)
}

fn tags(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("tag-{number}")).collect()
}

fn status(code: u16) -> Answer {
    Answer::Status(code, "", "")
}

#[test]
fn case_c35_more_addresses_than_one_call_takes() {
    let cdn = FakeCdn::start([status(200), status(500)]).at_most(30);
    purge(&cdn, |_| {}).handle(&event(&tags(45))).unwrap();
    let calls = cdn.calls();
    assert_eq!(calls.iter().map(|call| call.urls.len()).collect::<Vec<_>>(), [30, 18, 18]);
    for path in ["/articles/new", "/articles/old", "/"] {
        assert!(calls[0].urls.contains(&format!("{BASE}{path}")), "{path} is in the first call");
    }
    assert_eq!(calls[1].urls, calls[2].urls, "only the failed call is repeated");
    assert_eq!(cdn.purged().len(), 48);
}

#[test]
fn case_c35_the_service_asks_for_patience() {
    let cdn = FakeCdn::start([status(200), Answer::Status(429, "Retry-After: 2\r\n", "slow down")]).at_most(30);
    let (purge, event) = (purge(&cdn, |_| {}), event(&tags(45)));
    match purge.handle(&event) {
        Err(DispatchError::Unavailable { retry_after, reason }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(2)));
            assert!(reason.contains("429: slow down"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(cdn.calls().len(), 2);
    purge.handle(&event).unwrap();
    assert_eq!(cdn.calls().len(), 3, "what was purged is not sent again");
    assert_eq!(cdn.purged().len(), 48);
    // A repeat is a fresh delivery.
    purge.handle(&event).unwrap();
    assert_eq!(cdn.calls().len(), 5);
}

#[test]
fn case_c35_a_replay_purges_everything_again() {
    let cdn = FakeCdn::start([status(200), status(409)]).at_most(30);
    let (purge, mut event) = (purge(&cdn, |_| {}), event(&tags(45)));
    assert!(matches!(purge.handle(&event), Err(DispatchError::Poison { .. })));
    event.replays = 1;
    purge.handle(&event).unwrap();
    assert_eq!(cdn.calls().len(), 4);
}

#[test]
fn case_c35_a_call_that_is_too_large_is_split_and_never_retried_for_ever() {
    let cdn = FakeCdn::start([]).at_most(10);
    purge(&cdn, |_| {}).handle(&event(&tags(45))).unwrap();
    assert_eq!(cdn.purged().len(), 48);
    assert!(cdn.calls().len() < 16, "{}", cdn.calls().len());
    let hostile = FakeCdn::start([]).at_most(0);
    assert!(matches!(purge(&hostile, |_| {}).handle(&event(&tags(45))), Err(DispatchError::Poison { .. })));
    assert!(hostile.calls().len() < 8, "gives up once a single address is refused");
}

#[test]
fn one_address_that_is_refused_does_not_keep_the_others_from_being_purged() {
    // 3 addresses: all, then the first half (one), then the second half (two), refused down to the last.
    let cdn = FakeCdn::start([status(400), status(200), status(400), status(400), status(200)]);
    let (purge, event) = (purge(&cdn, |_| {}), event(&[]));
    assert!(matches!(purge.handle(&event), Err(DispatchError::Poison { .. })));
    assert_eq!(cdn.purged().len(), 2);
}

#[test]
fn case_c53_answers_of_the_service() {
    for (answer, expected) in [
        (status(200), "done"),
        (status(204), "done"),
        (status(301), "poison"),
        (Answer::Status(307, "Location: /elsewhere\r\n", ""), "poison"),
        (Answer::Status(302, "Location: http://127.0.0.1:9/\r\n", ""), "poison"),
        (status(400), "poison"),
        (status(401), "unavailable"),
        (status(403), "unavailable"),
        (status(404), "done"),
        (status(407), "unavailable"),
        (status(405), "poison"),
        (status(408), "unavailable"),
        (status(409), "poison"),
        (status(410), "done"),
        (status(413), "poison"),
        (status(422), "poison"),
        (Answer::Status(429, "Retry-After: 2\r\n", ""), "unavailable for 2"),
        (Answer::Status(429, "Retry-After: 99999\r\n", ""), "unavailable for 120"),
        (Answer::Status(429, "Retry-After: Tue, 14 Nov 2023 22:13:50 GMT\r\n", ""), "unavailable for 30"),
        (Answer::Status(429, "Retry-After: soon\r\n", ""), "unavailable"),
        (Answer::Status(503, "Retry-After: 3\r\n", ""), "unavailable for 3"),
        (status(502), "unavailable"),
        (status(504), "unavailable"),
        (Answer::Cut, "unavailable"),
        (Answer::Silence, "unavailable"),
        (Answer::HalfABody, "done"),
    ] {
        let cdn = FakeCdn::start([answer.clone()]);
        let purge = purge(&cdn, |options| (options.timeout, options.max_urls) = (Duration::from_millis(300), 1));
        let outcome = match purge.handle(&event(&[])) {
            Ok(()) => "done".to_owned(),
            Err(DispatchError::Poison { .. }) => "poison".to_owned(),
            Err(DispatchError::Unavailable { retry_after: None, .. }) => "unavailable".to_owned(),
            Err(DispatchError::Unavailable { retry_after: Some(wait), .. }) => {
                format!("unavailable for {}", wait.as_secs())
            }
            Err(other) => format!("{other:?}"),
        };
        assert_eq!(outcome, expected, "{answer:?}");
    }
    let failing = FakeCdn::start([500, 500].map(status));
    assert!(matches!(purge(&failing, |_| {}).handle(&event(&[])), Err(DispatchError::Retry { .. })));
}

#[test]
fn case_c53_an_expired_token_is_an_outage_and_no_event_pays_for_it() {
    let cdn = FakeCdn::start([status(200), status(401), status(403)]).at_most(30);
    let (purge, event) = (purge(&cdn, |options| options.token = Some("old".to_owned())), event(&tags(45)));
    for _ in 0..2 {
        match purge.handle(&event) {
            Err(DispatchError::Unavailable { reason, retry_after: None }) => {
                assert!(reason.contains("token"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    // Accepted again: what was left is purged, nothing is missing.
    purge.handle(&event).unwrap();
    assert_eq!((cdn.calls().len(), cdn.purged().len()), (4, 48));
}

#[test]
fn nobody_listening_is_an_outage() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = CdnOptions::new(format!("http://{address}/"), BASE);
    let purge = CdnPurge::new(options, Arc::new(ManualClock::new(0))).unwrap();
    assert!(matches!(purge.handle(&event(&[])), Err(DispatchError::Unavailable { .. })));
}

#[test]
fn the_token_is_sent_and_never_shown() {
    let cdn = FakeCdn::start([Answer::Status(403, "", "bad token s3cret!")]);
    let purge = purge(&cdn, |options| options.token = Some("s3cret!".to_owned()));
    let error = purge.handle(&event(&[])).unwrap_err();
    assert!(cdn.calls()[0].head.to_lowercase().contains("authorization: bearer s3cret!"));
    assert!(!format!("{error:?} {purge:?}").contains("s3cret"), "{error:?} {purge:?}");
}

#[test]
fn a_batch_shares_its_calls() {
    let cdn = FakeCdn::start([]);
    let purge = purge(&cdn, |_| {});
    let events: Vec<Event> = (0..5).map(|_| event(&tags(2))).collect();
    purge.handle_batch(&events).unwrap();
    let calls = cdn.calls();
    assert_eq!((calls.len(), calls[0].urls.len()), (1, 5));
    assert!(purge.batch_limit() > 1);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let field = |change: fn(&mut CdnOptions)| {
        let mut options = CdnOptions::new("http://cdn.test/", BASE);
        change(&mut options);
        CdnPurge::new(options, Arc::new(ManualClock::new(0))).map(drop).map_err(|error| error.field)
    };
    assert_eq!(field(|_| {}), Ok(()));
    assert_eq!(field(|options| options.endpoint = "ftp://x/".to_owned()), Err("endpoint"));
    assert_eq!(field(|options| options.endpoint = "not a url".to_owned()), Err("endpoint"));
    assert_eq!(field(|options| options.base_url = "/".to_owned()), Err("base_url"));
    assert_eq!(field(|options| options.token = Some("a\nb".to_owned())), Err("token"));
    assert_eq!(field(|options| options.max_urls = 0), Err("max_urls"));
    assert_eq!(field(|options| options.timeout = Duration::ZERO), Err("timeout"));
    assert_eq!(field(|options| options.further_paths = vec!["feed.xml".to_owned()]), Err("further_paths"));
    assert_eq!(field(|options| options.proxy = Some("::::".to_owned())), Err("proxy"));
}
