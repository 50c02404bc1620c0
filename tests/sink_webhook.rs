//! Webhooks against a real socket.
#![cfg(feature = "sinks")]

mod webhook_support;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{DispatchError, Event, EventFilter, Handler, NewEvent, StartAt};
use vayu_articles::sinks::webhook::{Received, Secret, VerifyError, Webhook, WebhookOptions, verify};
use webhook_support::{Answer, Call, Endpoint, OLD_SECRET, SECRET};

/// 14 November 2023, 22:13:20 UTC.
const NOW: i64 = 1_700_000_000_000;

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn options(url: String) -> WebhookOptions {
    let mut options = WebhookOptions::new("shop", url, secrets(&[SECRET]));
    options.allow_private = true;
    options
}

fn webhook(endpoint: &Endpoint, change: impl FnOnce(&mut WebhookOptions)) -> Webhook {
    let mut options = options(endpoint.url());
    change(&mut options);
    Webhook::new(options, Arc::new(ManualClock::new(NOW))).unwrap()
}

fn event() -> Event {
    let payload = json!({ "id": "0190", "slug": "heron", "title": "Of herons", "status": "published" });
    let mut event = NewEvent::new("article.updated.v1", &payload).unwrap().key("0190").occurred_at(NOW - 5_000);
    event.event_id = "0197c2f0-5c5e-7c4b-9d55-0f6d3c1c5e11".to_owned();
    event.correlation_id = Some("request-7".to_owned());
    event.into_event(7)
}

fn verified(call: &Call, texts: &[&str], now_ms: i64) -> Result<(), VerifyError> {
    let [id, timestamp, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|it| call.header(it));
    verify(&Received { id, timestamp, signature, body: call.body.as_bytes() }, &secrets(texts), now_ms)
}

fn outcome(done: Result<(), DispatchError>) -> String {
    match done {
        Ok(()) => "done".to_owned(),
        Err(DispatchError::Poison { .. }) => "poison".to_owned(),
        Err(DispatchError::Retry { .. }) => "retry".to_owned(),
        Err(DispatchError::Unavailable { retry_after: None, .. }) => "unavailable".to_owned(),
        Err(DispatchError::Unavailable { retry_after: Some(wait), .. }) => {
            format!("unavailable for {}", wait.as_secs())
        }
        Err(other) => format!("{other:?}"),
    }
}

#[test]
fn a_message_is_a_signed_cloud_event() {
    let endpoint = Endpoint::start([]);
    webhook(&endpoint, |options| options.source = "https://example.org/".to_owned()).handle(&event()).unwrap();
    let calls = endpoint.calls();
    let call = &calls[0];
    assert!(call.head.starts_with("POST /hooks?shop=1 HTTP/1.1\r\n"), "{}", call.head);
    assert_eq!(call.header("content-type"), "application/cloudevents+json");
    assert_eq!(call.id(), event().event_id);
    assert_eq!(call.header("webhook-timestamp"), "1700000000", "the attempt's time, not the event's");
    assert!(call.header("user-agent").starts_with("vayu-articles/"));
    let body = call.event();
    assert_eq!((&body["id"], &body["source"]), (&json!(event().event_id), &json!("https://example.org/")));
    assert_eq!((&body["subject"], &body["data"]["slug"]), (&json!("0190"), &json!("heron")));
    assert_eq!(body["time"], "2023-11-14T22:13:15.000Z");
    assert_eq!(verified(call, &[SECRET], NOW + 2_000), Ok(()));
    assert_eq!(verified(call, &[OLD_SECRET], NOW), Err(VerifyError::Signature));
    assert!(matches!(verified(call, &[SECRET], NOW + 301_000), Err(VerifyError::Time { .. })));
    let changed = Call { body: call.body.replace("heron", "eagle"), ..call.clone() };
    assert_eq!(verified(&changed, &[SECRET], NOW), Err(VerifyError::Signature));
}

#[test]
fn while_a_secret_is_changed_messages_fit_the_old_and_the_new_one() {
    let endpoint = Endpoint::start([]);
    webhook(&endpoint, |options| options.secrets = secrets(&[SECRET, OLD_SECRET])).handle(&event()).unwrap();
    let calls = endpoint.calls();
    assert_eq!(calls[0].header("webhook-signature").split(' ').count(), 2);
    for one in [SECRET, OLD_SECRET] {
        assert_eq!(verified(&calls[0], &[one], NOW), Ok(()));
    }
}

#[test]
fn a_message_keeps_its_id_until_an_operator_wants_its_effect_once_more() {
    let endpoint = Endpoint::start([Answer::Cut]);
    let clock = Arc::new(ManualClock::new(NOW));
    let webhook = Webhook::new(options(endpoint.url()), clock.clone()).unwrap();
    let mut event = event();
    webhook.handle(&event).unwrap_err();
    clock.advance(400_000);
    (event.attempts, event.replays) = (1, 1);
    webhook.handle(&event).unwrap();
    event.forced = true;
    webhook.handle(&event).unwrap();
    event.event_id = "order.17 é".to_owned();
    event.forced = false;
    webhook.handle(&event).unwrap();
    let calls = endpoint.calls();
    let ids: Vec<&str> = calls.iter().map(Call::id).collect();
    let id = "0197c2f0-5c5e-7c4b-9d55-0f6d3c1c5e11";
    assert_eq!(ids, [id, id, "0197c2f0-5c5e-7c4b-9d55-0f6d3c1c5e11:r1", "order%2E17%20%C3%A9"]);
    assert_eq!(calls[1].header("webhook-timestamp"), "1700000400", "each attempt has its own time");
    assert!(calls.iter().skip(1).all(|call| verified(call, &[SECRET], NOW + 400_000).is_ok()));
    assert_eq!(calls[3].event()["id"], "order.17 é");
}

#[test]
fn case_c53_answers_of_an_endpoint() {
    let status = |code| Answer::Status(code, "", "");
    for (answer, expected) in [
        (status(200), "done"),
        (status(204), "done"),
        (status(301), "poison"),
        (Answer::Status(307, "Location: /elsewhere\r\n", ""), "poison"),
        (status(400), "poison"),
        (status(401), "unavailable"),
        (status(403), "unavailable"),
        (status(404), "poison"),
        (status(405), "poison"),
        (status(407), "unavailable"),
        (status(408), "unavailable"),
        (status(409), "poison"),
        (status(410), "unavailable for 120"),
        (status(413), "poison"),
        (status(422), "poison"),
        (status(425), "unavailable"),
        (status(429), "unavailable"),
        (Answer::Status(429, "Retry-After: 2\r\n", ""), "unavailable for 2"),
        (Answer::Status(429, "Retry-After: 99999\r\n", ""), "unavailable for 120"),
        (Answer::Status(429, "Retry-After: Tue, 14 Nov 2023 22:13:50 GMT\r\n", ""), "unavailable for 30"),
        (Answer::Status(429, "Retry-After: soon\r\n", ""), "unavailable"),
        (status(500), "retry"),
        (status(501), "retry"),
        (status(502), "unavailable"),
        (Answer::Status(503, "Retry-After: 3\r\n", ""), "unavailable for 3"),
        (status(504), "unavailable"),
        (Answer::Cut, "unavailable"),
        (Answer::Garbage, "unavailable"),
        (Answer::Silence, "unavailable"),
        (Answer::HalfABody, "done"),
        (Answer::HeadOnly, "done"),
    ] {
        let endpoint = Endpoint::start([answer.clone()]);
        let webhook = webhook(&endpoint, |options| options.timeout = Duration::from_millis(400));
        assert_eq!(outcome(webhook.handle(&event())), expected, "{answer:?}");
        assert_eq!(endpoint.calls().len(), 1, "{answer:?}: asked once");
        assert_eq!(outcome(webhook.handle(&event())), "done", "after {answer:?} it goes on");
    }
}

#[test]
fn case_c53_nobody_listening_no_such_name_and_no_tls_are_outages() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let webhook = |url: &str| Webhook::new(options(url.to_owned()), Arc::new(ManualClock::new(NOW))).unwrap();
    assert_eq!(outcome(webhook(&format!("http://{address}/")).handle(&event())), "unavailable");
    let plain = Endpoint::start([]).url().replace("http:", "https:");
    assert_eq!(outcome(webhook(&plain).handle(&event())), "unavailable");
    let nowhere = Webhook::with_lookup(
        options("https://nowhere.test/".to_owned()),
        Arc::new(ManualClock::new(NOW)),
        Arc::new(|_, _| Ok(Vec::new())),
    );
    assert_eq!(outcome(nowhere.unwrap().handle(&event())), "unavailable");
}

#[test]
fn what_an_endpoint_says_stands_in_the_reason_in_one_line_and_without_secrets() {
    let endpoint = Endpoint::start([Answer::Status(422, "", "no such shop\r\nevent=forged \u{1b}[31m")]);
    let webhook = webhook(&endpoint, |_| {});
    let error = webhook.handle(&event()).unwrap_err();
    assert_eq!(error.to_string(), "will never work: the endpoint answered 422: no such shop event=forged [31m");
    let shown = format!("{webhook:?}");
    assert!(shown.contains("127.0.0.1") && !shown.contains("whsec") && !shown.contains("shop=1"), "{shown}");
}

#[test]
fn a_redirect_is_not_followed_wherever_it_leads() {
    let secret_place = Endpoint::start([]);
    let location: &'static str = format!("Location: {}\r\n", secret_place.url()).leak();
    for status in [301, 302, 303, 307, 308] {
        let endpoint = Endpoint::start([Answer::Status(status, location, "")]);
        assert_eq!(outcome(webhook(&endpoint, |_| {}).handle(&event())), "poison");
    }
    assert!(secret_place.calls().is_empty());
}

fn guarded(url: String, lookup: impl Fn(&str, u16) -> Vec<SocketAddr> + Send + Sync + 'static) -> Webhook {
    let mut options = options(url);
    options.allow_private = false;
    options.timeout = Duration::from_millis(500);
    let lookup = Arc::new(move |host: &str, port| Ok(lookup(host, port)));
    Webhook::with_lookup(options, Arc::new(ManualClock::new(NOW)), lookup).unwrap()
}

/// How a name is judged that changes its meaning in between is shown beside the guard, where nothing is sent to the internet.
#[test]
fn a_name_of_a_private_address_is_refused_when_it_is_connected_to() {
    let endpoint = Endpoint::start([]);
    let (inside, asked) = (endpoint.address(), Arc::new(AtomicUsize::new(0)));
    let counter = asked.clone();
    let webhook = guarded(format!("http://rebound.test:{}/", inside.port()), move |host, port| {
        assert_eq!((host, port), ("rebound.test", inside.port()));
        counter.fetch_add(1, Ordering::Relaxed);
        vec![inside]
    });
    let refused = DispatchError::unavailable(
        "rebound.test is at 127.0.0.1, an address that is loopback: nothing is sent there unless allow_private is true for this endpoint",
    );
    for times in 1..=2 {
        assert_eq!(webhook.handle(&event()), Err(refused.clone()));
        assert_eq!(asked.load(Ordering::Relaxed), times, "the name is asked for at each connection");
    }
    assert!(endpoint.calls().is_empty());
}

/// What the system makes of such a number is what counts.
#[test]
fn a_private_address_in_disguise_is_refused() {
    let endpoint = Endpoint::start([]);
    let port = endpoint.address().port();
    for host in ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "127.0.0.1.", "0"] {
        let mut options = options(format!("http://{host}:{port}/"));
        options.allow_private = false;
        if let Ok(webhook) = Webhook::new(options, Arc::new(ManualClock::new(NOW))) {
            assert_eq!(outcome(webhook.handle(&event())), "unavailable", "{host}");
        }
    }
    assert!(endpoint.calls().is_empty());
}

#[test]
fn what_is_allowed_to_be_private_is_sent_to() {
    let endpoint = Endpoint::start([]);
    let inside = endpoint.address();
    let options = options(format!("http://shop.internal:{}/", inside.port()));
    let lookup = Arc::new(move |_: &str, _| Ok(vec![inside]));
    let webhook = Webhook::with_lookup(options, Arc::new(ManualClock::new(NOW)), lookup).unwrap();
    webhook.handle(&event()).unwrap();
    assert_eq!(endpoint.calls()[0].header("host"), format!("shop.internal:{}", inside.port()));
}

#[test]
fn an_endpoint_is_a_handler_with_a_lane_a_filter_and_a_start_of_its_own() {
    let endpoint = Endpoint::start([]);
    let webhook = webhook(&endpoint, |options| {
        options.filter = EventFilter::Types(vec!["article.*".to_owned()]);
        options.concurrency = 7;
    });
    assert_eq!(webhook.lane(), "webhook:shop");
    assert_eq!((webhook.start_at(), webhook.concurrency()), (StartAt::End, 7));
    assert!(webhook.filter().matches("article.deleted.v1") && !webhook.filter().matches("order.placed.v1"));
    assert!(WebhookOptions::new("a", "https://e.org", []).timeout < webhook.time_limit());
}

#[test]
fn a_connection_is_used_again() {
    let endpoint = Endpoint::start([Answer::Status(200, "", "thanks"), Answer::Status(500, "", "oh")]);
    let webhook = webhook(&endpoint, |_| {});
    for _ in 0..3 {
        let _ = webhook.handle(&event());
    }
    assert_eq!(endpoint.calls().len(), 3);
    assert_eq!(endpoint.connections(), 1);
}

fn documentation() -> String {
    std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/webhooks.md")).unwrap()
}

/// The text between this opening line and the end of its block.
fn block<'a>(text: &'a str, opening: &str) -> &'a str {
    text.split_once(opening).and_then(|(_, rest)| rest.split_once("\n```")).expect(opening).0
}

#[test]
fn the_documentation_shows_a_message_byte_for_byte() {
    let endpoint = Endpoint::start([]);
    let webhook = webhook(&endpoint, |options| {
        options.secrets = secrets(&[OLD_SECRET]);
        options.user_agent = "vayu-articles/0.1.0".to_owned();
    });
    let payload = concat!(
        r#"{"id":"01a22fc7-7b33-7068-af86-ca641e009685","version":2,"kind":"post","slug":"herons","title":"Of herons","#,
        r#""status":"published","tags":["birds"],"previous":{"slug":"heron","status":"published","tags":["birds"]}}"#
    );
    let _: vayu_articles::article::ArticleEvent = serde_json::from_str(payload).expect("as they are");
    let mut event = NewEvent::from_json("article.updated.v1", payload).key("01a22fc7-7b33-7068-af86-ca641e009685");
    event.event_id = "01a22fc8-0b1c-7a52-8e0f-3f1f7c1d2a44".to_owned();
    event.correlation_id = Some("5b0c7d52-6a0e-4d4e-9b0b-0f6d3c1c5e11".to_owned());
    webhook.handle(&event.occurred_at(NOW - 250).into_event(7)).unwrap();
    let call = &endpoint.calls()[0];
    assert_eq!(verified(call, &[OLD_SECRET], NOW), Ok(()));
    let sent = format!("{}{}", call.head, call.body).replace("\r\n", "\n");
    let sent =
        sent.replace(&endpoint.address().to_string(), "shop.example").replace("/hooks?shop=1", "/hooks/articles");
    assert_eq!(block(&documentation(), "```http\n"), sent);
}

/// What the page shows of verifying is what the example does.
#[test]
fn the_documentation_shows_how_the_example_verifies() {
    let code = include_str!("../examples/webhook_receiver.rs");
    let code: Vec<&str> = code.lines().map(str::trim).collect();
    let documentation = documentation();
    let lines = block(&documentation, "```rust\n").lines().map(str::trim);
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with("//")) {
        assert!(code.contains(&line), "the example has no line {line:?}");
    }
}

#[test]
fn the_documentation_has_the_settings_and_the_table_of_answers() {
    let documentation = documentation();
    for field in ["name", "url", "secret", "secret_file", "types", "timeout", "allow_private", "concurrency", "source"]
    {
        assert!(documentation.contains(&format!("| `{field}`")), "{field}");
    }
    for answer in ["2xx", "408, 425, 429, 502, 503, 504", "401, 403, 407", "410", "500", "3xx"] {
        assert!(documentation.contains(&format!("| {answer}")), "{answer}");
    }
}
