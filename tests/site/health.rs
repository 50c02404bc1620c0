//! `/health/ready` over a real socket: what it says of a lane that nobody runs, one whose transport is down, one that is stuck.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use serde_json::{Value, json};
use vayu_articles::outbox::{DispatchError, Event, Handler};

use crate::harness::{LONG, TestSite};

/// Runs until it is let go, long past its limit.
struct Stuck(Receiver<()>);

impl Handler for Stuck {
    fn handle(&self, _: &Event) -> Result<(), DispatchError> {
        let _ = self.0.recv_timeout(LONG);
        Ok(())
    }

    fn time_limit(&self) -> Duration {
        Duration::from_millis(1)
    }
}

fn lane(ready: &Value, handler: &str) -> Value {
    let lanes = ready["lanes"].as_array().unwrap();
    lanes.iter().find(|lane| lane["handler"] == handler).cloned().unwrap_or_default()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn readiness_names_lanes_that_are_absent_paused_or_stuck_and_says_why() {
    let (go, gone) = bounded::<()>(1);
    let site = TestSite::with_handlers(|relay| {
        relay.handler("stuck", Stuck(gone)).handler_fn("down", |_| Err(DispatchError::unavailable("mail server down")))
    });
    let ready = site.get("/health/ready");
    assert_eq!((ready.status, &ready.json()["status"]), (200, &json!("ready")));
    site.database
        .writer()
        .transact(|tx| {
            let lane = "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) VALUES ('gone', '[\"*\"]', 'continue', 0)";
            tx.execute(lane, [])
        })
        .unwrap();
    assert_eq!(site.post(json!({"title": "One", "content": "x"})).status, 201);

    let look = || {
        let answer = site.get("/health/ready");
        assert_eq!(answer.status, 200, "articles are served and written all the same: {}", answer.body);
        answer.json()
    };
    wait_until("both are in trouble", || {
        let ready = look();
        lane(&ready, "stuck")["state"] == "overdue" && lane(&ready, "down")["paused_until"].is_string()
    });
    let ready = look();
    assert_eq!(ready["color"], "yellow");
    let down = lane(&ready, "down");
    assert_eq!(
        (&down["state"], &down["healthy"], &down["reason"]),
        (&json!("paused"), &json!(false), &json!("mail server down"))
    );
    assert!(down["outage_since"].is_string() && down["lag_events"] == 1 && down["dead_letters"] == 0, "{down}");
    let stuck = lane(&ready, "stuck");
    assert_eq!((&stuck["healthy"], &stuck["lag_events"]), (&json!(false), &json!(1)));
    assert!(stuck["reason"].as_str().unwrap().contains("beyond its limit"), "{stuck}");
    let gone = lane(&ready, "gone");
    assert_eq!((&gone["state"], &gone["healthy"], &gone["held"]), (&json!("absent"), &json!(false), &json!(false)));
    assert!(gone["reason"].as_str().unwrap().contains("1 events are kept for it"), "{gone}");
    assert_eq!(lane(&ready, "search")["state"], "running", "the rest goes on: {ready}");
    let reasons: Vec<&str> = ready["reasons"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
    for begins in ["lane down is paused", "lane stuck is overdue", "lane gone is absent"] {
        assert!(reasons.iter().any(|why| why.starts_with(begins)), "{reasons:?}");
    }

    go.send(()).unwrap();
    wait_until("the stuck one is well again", || lane(&look(), "stuck")["healthy"] == true);
}
