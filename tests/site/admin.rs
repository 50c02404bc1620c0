//! What an operator sees and does over the API.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use vayu_articles::outbox::{DispatchError, Event};

use crate::harness::{Answer, TestSite, WRITE_TOKEN, wait_or};

const ADMIN: &str = "/api/v1/admin";

/// A site with a handler that finds every event bad until it is mended.
pub struct Failing {
    pub site: TestSite,
    pub mended: Arc<AtomicBool>,
}

impl Failing {
    pub fn new() -> Self {
        let mended = Arc::new(AtomicBool::new(false));
        let works = Arc::clone(&mended);
        let mail = move |event: &Event| {
            if works.load(Ordering::SeqCst) {
                return Ok(());
            }
            Err(DispatchError::poison(format!("no <address> & co for {}", event.event_type)))
        };
        Self { site: TestSite::with_handlers(|relay| relay.handler_fn("mail", mail)), mended }
    }

    fn act(&self, path: &str, body: Value) -> Answer {
        self.site.send("POST", &format!("{ADMIN}{path}"), &[], Some(&body.to_string()))
    }

    /// Asks until the answer is as wanted: a replay is taken up by the lane's next look.
    fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) {
        wait_or(|| wanted(&self.look(path)), || format!("{path}: {}", self.look(path)));
    }

    fn look(&self, path: &str) -> Value {
        let answer = self.site.get(&format!("{ADMIN}{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }
}

fn code(answer: &Answer) -> (u16, String) {
    let (status, code, _) = answer.problem();
    (status, code)
}

#[test]
fn a_dead_letter_is_listed_with_its_reason_replayed_and_gone() {
    let at = Failing::new();
    at.site.post(json!({"title": "A", "content": "x"}));
    at.site.drain();
    let list = at.look("/outbox/events?status=dead_letter&handler=mail");
    let [dead] = list["items"].as_array().unwrap().as_slice() else { panic!("{list}") };
    assert_eq!((dead["handler"].as_str(), dead["status"].as_str()), (Some("mail"), Some("dead_letter")));
    assert_eq!(dead["reason"], "no <address> & co for article.created.v1");
    assert_eq!(dead["history"].as_array().unwrap().len(), 1, "{dead}");
    let id = dead["id"].as_i64().unwrap();
    let story = at.look(&format!("/outbox/events/{id}"));
    assert_eq!(story["event"]["event_type"], "article.created.v1");
    assert!(story["lanes"].as_array().unwrap().contains(&json!({"handler": "search", "status": "delivered"})));
    assert!(story["lanes"].as_array().unwrap().contains(&json!({"handler": "mail", "status": "dead_letter"})));
    let by_event_id = at.look(&format!("/outbox/events/{}", story["event"]["event_id"].as_str().unwrap()));
    assert_eq!(by_event_id, story);
    assert_eq!(at.look("/lanes")["items"].as_array().unwrap().len(), 3);
    let stats = at.look("/outbox/stats");
    let mail = stats["lanes"].as_array().unwrap().iter().find(|lane| lane["handler"] == "mail").unwrap();
    assert_eq!((mail["dead_letters"].as_u64(), mail["lag_events"].as_u64()), (Some(1), Some(0)));

    at.mended.store(true, Ordering::SeqCst);
    let answer = at.act(&format!("/outbox/events/{id}/replay"), json!({}));
    assert_eq!((answer.status, answer.json()["handlers"].clone()), (200, json!(["mail"])), "{}", answer.body);
    let done = json!({"handler": "mail", "status": "done"});
    at.until(&format!("/outbox/events/{id}"), |story| story["lanes"].as_array().unwrap().contains(&done));
    assert_eq!(at.look("/outbox/events")["items"], json!([]));
    assert_eq!(code(&at.act(&format!("/outbox/events/{id}/replay"), json!({}))), (409, "not_dead".to_owned()));
    assert_eq!(code(&at.act("/outbox/events/4711/replay", json!({}))), (404, "not_found".to_owned()));
}

#[test]
fn lists_have_pages_and_many_are_replayed_by_a_filter() {
    let at = Failing::new();
    for n in 0..7 {
        at.site.post(json!({"title": format!("Post {n}"), "content": "x"}));
    }
    at.site.drain();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = at.look(&format!("/outbox/events?limit=3{cursor}"));
        seen.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", next.replace('@', "%40")),
            None => break,
        }
    }
    assert_eq!(seen, (1..=7).collect::<Vec<_>>());
    for (query, field) in
        [("status=new", "status"), ("limit=0", "limit"), ("limit=1001", "limit"), ("cursor=x", "cursor")]
    {
        let (status, _, named) = at.site.get(&format!("{ADMIN}/outbox/events?{query}")).problem();
        assert_eq!((status, named.as_deref()), (400, Some(field)));
    }
    assert_eq!(at.act("/outbox/replay", json!({"handler": "cache"})).json(), json!({"replayed": 0, "left": 0}));
    assert_eq!(code(&at.act("/outbox/replay", json!({"handler": "cahce"}))), (404, "not_found".to_owned()));
    let misspelt = at.act("/outbox/replay", json!({"handlers": "cache"})).problem();
    assert_eq!((misspelt.0, misspelt.2.as_deref()), (422, Some("handlers")));
    at.mended.store(true, Ordering::SeqCst);
    let answer = at.act("/outbox/replay", json!({"handler": "mail", "reason": "ADDRESS"}));
    assert_eq!(answer.json(), json!({"replayed": 7, "left": 0}), "{}", answer.body);
    at.until("/outbox/events?status=open", |list| list["items"] == json!([]));
}

#[test]
fn an_event_is_discarded_with_a_reason_and_a_lane_is_held_and_released() {
    let at = Failing::new();
    at.site.post(json!({"title": "A", "content": "x"}));
    at.site.drain();
    let no_reason = at.act("/outbox/events/1/discard", json!({"handler": "mail"})).problem();
    assert_eq!((no_reason.0, no_reason.2.as_deref()), (422, Some("reason")));
    let answer = at.act("/outbox/events/1/discard", json!({"handler": "mail", "reason": "nobody waits for it"}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(at.look("/outbox/events?status=discarded")["items"][0]["reason"], "nobody waits for it");
    let again = at.act("/outbox/events/1/discard", json!({"handler": "mail", "reason": "x"}));
    assert_eq!(code(&again), (409, "closed".to_owned()));

    assert_eq!(at.act("/lanes/mail/hold", json!({})).json(), json!({"handler": "mail", "held": true}));
    at.site.post(json!({"title": "B", "content": "x"}));
    let lanes = at.look("/lanes");
    let mail = lanes["items"].as_array().unwrap().iter().find(|lane| lane["handler"] == "mail").unwrap();
    assert_eq!(mail["held"], true);
    assert_eq!(at.act("/lanes/mail/release", json!({})).status, 200);
    at.site.drain();
    assert_eq!(at.look("/outbox/events")["items"].as_array().unwrap().len(), 1);
    for path in ["/lanes/none/hold", "/lanes/none/release"] {
        assert_eq!(code(&at.act(path, json!({}))), (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(code(&at.act("/lanes/mail/resume", json!({"key": "k"}))), (409, "not_parked".to_owned()));
}

#[test]
fn services_are_shown_and_the_search_index_is_rebuilt() {
    let at = Failing::new();
    at.site.post(json!({"title": "Heron", "content": "x"}));
    at.site.drain();
    let services = at.look("/services");
    assert_eq!((services["ready"].as_bool(), services["color"].as_str()), (Some(true), Some("green")));
    assert_eq!(services["items"][0]["name"], "relay");
    let answer = at.act("/search/rebuild", json!({}));
    assert_eq!(answer.json(), json!({"finished": true, "seen": 1, "written": 1, "removed": 0}), "{}", answer.body);
    assert_eq!(at.site.found("heron"), ["heron"]);
}

#[test]
fn nothing_of_the_operator_is_open_to_others() {
    let at = Failing::new();
    at.site.post(json!({"title": "A", "content": "x"}));
    at.site.drain();
    let pen = format!("Bearer {WRITE_TOKEN}");
    for (method, path) in [
        ("GET", "/outbox/stats"),
        ("GET", "/outbox/events"),
        ("GET", "/outbox/events/1"),
        ("POST", "/outbox/events/1/replay"),
        ("POST", "/outbox/events/1/discard"),
        ("POST", "/outbox/replay"),
        ("GET", "/lanes"),
        ("POST", "/lanes/mail/hold"),
        ("GET", "/services"),
        ("POST", "/search/rebuild"),
    ] {
        let path = format!("{ADMIN}{path}");
        let body = (method == "POST").then_some("{}");
        assert_eq!(at.site.send_as_is(method, &path, &[], body).status, 401, "{path}");
        let forbidden = at.site.send_as_is(method, &path, &[("authorization", &pen)], body);
        assert_eq!(forbidden.status, 403, "{path}");
    }
}
