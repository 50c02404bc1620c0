//! The operator's commands on the real executable: what they do, print and return.
#![cfg(feature = "cli")]

use std::path::Path;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use serde_json::Value;
use vayu_articles::outbox::{
    self, DispatchError, Event, HandlerFn, NewEvent, OnDeadLetter, Operator, Relay, RelayOptions,
};
use vayu_articles::rusqlite::Connection;
use vayu_articles::storage::{Database, Options};

/// A shop whose handler `mail` parks every event of key `bad` and delivers the rest.
fn shop(dir: &Path) {
    let database = Database::open(dir.join("shop.db"), &[outbox::COMPONENT], Options::default()).expect("opens");
    let refuse = |event: &Event| match event.key.as_deref() {
        Some("bad") => {
            Err(DispatchError::poison("a long reason that goes on and on, far beyond what fits a line ".repeat(3)))
        }
        _ => Ok(()),
    };
    let handler = HandlerFn::new(refuse).on_dead_letter(OnDeadLetter::ParkKey);
    let relay = Relay::builder(&database).handler("mail", handler).start().expect("starts");
    for key in ["good", "bad", "bad", "good"] {
        let event = NewEvent::from_json("order.placed.v1", "{}").key(key).correlation_id("request-1");
        database.writer().transact(move |tx| outbox::insert(tx, &event)).expect("committed");
    }
    let soon = Instant::now() + Duration::from_secs(30);
    assert!(relay.wait_drained(soon));
    relay.stop(soon).expect("stops");
    database.close(soon).expect("closes");
}

fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("vayu-articles").expect("the executable");
    let output = command.current_dir(dir).args(args).args(["--database", "shop.db"]).output().expect("runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("a code"), text(&output.stdout), text(&output.stderr))
}

fn json(dir: &Path, args: &[&str]) -> Value {
    let (code, out, err) = run(dir, &[args, &["--json"]].concat());
    assert_eq!(code, 0, "{args:?}: {err}");
    assert_eq!(out.lines().count(), 1);
    serde_json::from_str(&out).expect("one document")
}

#[test]
fn each_command_prints_one_document_with_the_fields_it_promises() {
    let dir = tempfile::tempdir().expect("tempdir");
    let dir = dir.path();
    shop(dir);
    let list = json(dir, &["outbox", "list", "--state", "parked", "--type", "order.*", "--newer-than", "1h"]);
    let parked = &list["exceptions"][0];
    assert_eq!(
        (&parked["id"], &parked["event_type"], &parked["edited"]),
        (&2.into(), &"order.placed.v1".into(), &false.into())
    );
    assert_eq!(list["next"], Value::Null);
    assert_eq!(json(dir, &["outbox", "list", "--limit", "1"])["next"], "2@mail");
    assert_eq!(json(dir, &["outbox", "list", "--after", "2@mail"])["exceptions"][0]["id"], 3);
    let story = json(dir, &["outbox", "show", "2"]);
    assert_eq!(
        (&story["event"]["key"], &story["exceptions"][0]["history"][0]["what"]),
        (&"bad".into(), &"poison".into())
    );
    assert_eq!(json(dir, &["outbox", "trace", "request-1"])["events"].as_array().map(Vec::len), Some(4));
    let resumed = json(dir, &["outbox", "resume", "mail", "bad"]);
    assert_eq!(resumed["passed_over"], serde_json::json!([2]));
    let edited = json(dir, &["outbox", "edit", "mail", "2", "--payload", "{\"a\": 1}"]);
    assert_eq!(edited["edited"], true);
    assert_eq!(json(dir, &["outbox", "show", "2"])["edited"][0]["payload"], "{\"a\": 1}");
    assert_eq!(json(dir, &["outbox", "discard", "mail", "2", "--reason", "no"])["discarded"], true);
    let many = json(dir, &["outbox", "replay", "mail", "--key", "bad"]);
    assert_eq!((&many["replayed"], &many["left"], &many["id"]), (&0.into(), &0.into(), &Value::Null));
    let rewound = json(dir, &["handler", "rewind", "mail", "--to", "4"]);
    assert_eq!((&rewound["from"], &rewound["to"], &rewound["held"]), (&4.into(), &3.into(), &false.into()));
    assert_eq!(json(dir, &["handler", "hold", "mail"])["held"], true);
    assert_eq!(json(dir, &["handler", "backfill", "mail", "--to-start"])["held"], true);
    assert_eq!(json(dir, &["handler", "release", "mail"])["held"], false);
    assert_eq!(json(dir, &["handler", "rename", "mail", "post"])["handler"], "post");
    assert_eq!(json(dir, &["outbox", "check"])["findings"], serde_json::json!([]));
    assert_eq!(json(dir, &["handler", "retire", "post"])["discarded"], 1);
    assert_eq!(json(dir, &["outbox", "stats"])["lanes"], serde_json::json!([]));
}

#[test]
fn a_pipe_gets_tables_that_nothing_is_cut_off_from() {
    let dir = tempfile::tempdir().expect("tempdir");
    shop(dir.path());
    let (_, out, err) = run(dir.path(), &["outbox", "list", "--limit", "1"]);
    let reason = "a long reason that goes on and on, far beyond what fits a line ".repeat(3);
    assert!(out.contains(reason.trim_end()) && !out.contains('…'), "{out}");
    assert!(err.contains("--after 2@mail"), "{err}");
    let (_, out, _) = run(dir.path(), &["outbox", "trace", "request-1"]);
    let times = out.lines().skip(1).filter(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with('Z')));
    assert_eq!(times.count(), 4, "{out}");
}

#[test]
fn stats_say_in_a_line_why_and_since_when_a_lane_is_paused_or_does_not_run() {
    let dir = tempfile::tempdir().expect("tempdir");
    let dir = dir.path();
    let database = Database::open(dir.join("shop.db"), &[outbox::COMPONENT], Options::default()).expect("opens");
    let reason = format!("the shop\u{1b}[2J answers 503\nagain and again{} END", ", and again".repeat(100));
    let down = move |_: &Event| {
        Err(DispatchError::Unavailable { reason: reason.clone(), retry_after: Some(Duration::from_secs(900)) })
    };
    let relay = Relay::builder(&database).handler_fn("hook", down).handler_fn("mail", |_: &Event| Ok(()));
    let relay = relay.start().expect("starts");
    let event = NewEvent::from_json("order.placed.v1", "{}");
    database.writer().transact(move |tx| outbox::insert(tx, &event)).expect("committed");
    let soon = Instant::now() + Duration::from_secs(30);
    let paused = |lane: &Value| lane["paused_until"].is_string() && lane["owner_state"] == "alive";
    let stats = loop {
        let stats = json(dir, &["outbox", "stats"]);
        if paused(&stats["lanes"][0]) {
            break stats;
        }
        assert!(Instant::now() < soon, "{stats}");
    };
    let moment = |field: &str| stats["lanes"][0][field].as_str().expect("a moment").to_owned();
    let (since, until) = (moment("outage_since"), moment("paused_until"));
    for args in [&["outbox", "stats"], &["handler", "list"]] {
        let (_, out, _) = run(dir, args);
        let said =
            format!("lane hook is paused since {since} until {until}: the shop [2J answers 503 again and again, ");
        let line = out.lines().find(|line| line.starts_with("lane hook")).unwrap_or_default();
        assert!(line.starts_with(&said) && line.ends_with('…') && line.chars().count() < 700, "{out}");
        assert!(!out.contains("lane mail"), "one that runs and keeps up needs no line: {out}");
    }
    relay.stop(soon).expect("stops");
    let (_, out, _) = run(dir, &["outbox", "stats"]);
    assert!(
        out.contains("lane hook has no owner: 1 events are kept for it; when it last ran it was paused since"),
        "{out}"
    );
    database.close(soon).expect("closes");
}

#[test]
fn a_delivered_event_is_due_again_by_force() {
    let dir = tempfile::tempdir().expect("tempdir");
    shop(dir.path());
    let (code, out, err) = run(dir.path(), &["outbox", "replay", "mail", "1", "--force"]);
    assert!(code == 0 && out.contains("event 1 is due again for mail"), "{out}{err}");
    let story = json(dir.path(), &["outbox", "show", "1"]);
    let row = &story["exceptions"][0];
    assert_eq!((&row["state"], &row["replays"]), (&"retry".into(), &1.into()));
    let (code, _, err) = run(dir.path(), &["outbox", "replay", "mail", "1", "--force"]);
    assert!(code == 1 && err.contains("its state is retry"), "{err}");
}

#[test]
fn rename_and_retire_are_refused_while_a_program_has_the_handler_and_retire_says_what_is_dropped() {
    let dir = tempfile::tempdir().expect("tempdir");
    let dir = dir.path();
    let database = Database::open(dir.join("shop.db"), &[outbox::COMPONENT], Options::default()).expect("opens");
    let down = |_: &Event| Err(DispatchError::unavailable("nobody answers"));
    let handler = || HandlerFn::new(down).types(&["order.*"]);
    let relay = Relay::builder(&database).handler("hook", handler()).start().expect("starts");
    for event_type in ["order.placed.v1", "article.created.v1", "order.paid.v1"] {
        let event = NewEvent::from_json(event_type, "{}");
        database.writer().transact(move |tx| outbox::insert(tx, &event)).expect("committed");
    }
    let soon = Instant::now() + Duration::from_secs(30);
    while json(dir, &["outbox", "stats"])["lanes"][0]["paused_until"].is_null() {
        assert!(Instant::now() < soon);
    }
    for refused in [&["handler", "retire", "hook"][..], &["handler", "rename", "hook", "post"]] {
        let (code, _, err) = run(dir, refused);
        assert!(code == 1 && err.contains(&format!("(pid {}) has that handler", std::process::id())), "{err}");
    }
    let lane = &json(dir, &["outbox", "stats"])["lanes"][0];
    assert_eq!((&lane["held"], &lane["owner_state"]), (&false.into(), &"alive".into()), "nothing was changed");
    relay.stop(soon).expect("stops");
    assert_eq!(json(dir, &["handler", "rename", "hook", "post"])["handler"], "post");
    let (code, out, _) = run(dir, &["handler", "retire", "post"]);
    assert_eq!(code, 0);
    assert!(out.contains("discarded with it: 0;") && out.trim_end().ends_with("gets no more: 2"), "{out}");
    database.close(soon).expect("closes");
}

#[test]
fn rename_and_retire_are_refused_while_a_program_has_the_handler_and_its_lane_is_nobodys_for_a_moment() {
    let dir = tempfile::tempdir().expect("tempdir");
    let dir = dir.path();
    let database = Database::open(dir.join("shop.db"), &[outbox::COMPONENT], Options::default()).expect("opens");
    // It looks at a lane that others let go of when it is told to, so the moment lasts as long as the test.
    let mut options = RelayOptions::default();
    options.poll = Duration::from_secs(3_600);
    let builder = Relay::builder(&database).options(options).handler_fn("post", |_: &Event| Ok(()));
    let relay = builder.handler_fn("mail", |_: &Event| Ok(())).start().expect("starts");
    let soon = Instant::now() + Duration::from_secs(30);
    assert!(relay.wait_drained(soon));
    let operator = Operator::new(&database);
    let held = operator.hold_and_wait("mail", Duration::from_secs(30)).expect("held");
    drop(held);
    assert_eq!(json(dir, &["handler", "release", "mail"])["held"], false);
    for refused in [&["handler", "retire", "mail"][..], &["handler", "rename", "mail", "letters"]] {
        let (code, _, err) = run(dir, refused);
        assert!(code == 1 && err.contains(&format!("(pid {}) has that handler", std::process::id())), "{err}");
    }
    let lane = &json(dir, &["handler", "list"])["lanes"][0];
    assert_eq!((&lane["handler"], &lane["owner_state"]), (&"mail".into(), &"no_owner".into()), "nothing was changed");
    relay.stop(soon).expect("stops");
    assert_eq!(json(dir, &["handler", "rename", "mail", "letters"])["handler"], "letters");
    database.close(soon).expect("closes");
}

#[test]
fn a_check_that_finds_something_ends_with_1_says_how_to_mend_it_and_does() {
    let dir = tempfile::tempdir().expect("tempdir");
    shop(dir.path());
    assert_eq!(run(dir.path(), &["outbox", "check"]).0, 0);
    let db = Connection::open(dir.path().join("shop.db")).expect("database");
    db.execute("DELETE FROM deliveries WHERE state = 'parked'", []).expect("a foreign hand");
    let (code, out, _) = run(dir.path(), &["outbox", "check"]);
    assert_eq!(code, 1);
    assert!(out.contains("waiting_without_head  handler mail  event 3") && out.contains("mend: "), "{out}");
    let (code, out, _) = run(dir.path(), &["outbox", "check", "--fix"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("mended: 1  findings: 0"), "{out}");
}

#[test]
fn a_crash_is_a_note_of_a_check_and_no_finding() {
    let dir = tempfile::tempdir().expect("tempdir");
    shop(dir.path());
    let dead = "11111111-1111-4111-8111-111111111111";
    let db = Connection::open(dir.path().join("shop.db")).expect("database");
    db.execute("UPDATE lanes SET owner = ?1, owned_since = 1", [dead]).expect("as a crash leaves it");
    std::fs::write(dir.path().join(format!("shop.db-owner-{dead}.lock")), "4711\n").expect("its file");
    let (code, out, _) = run(dir.path(), &["outbox", "check"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.starts_with("note: dead_owner  handler mail\n") && out.contains("(process 4711) died"), "{out}");
    assert!(out.ends_with("findings: 0  notes: 1\n"), "{out}");
    let report = json(dir.path(), &["outbox", "check"]);
    assert_eq!((&report["findings"], &report["notes"][0]["breach"]), (&serde_json::json!([]), &"dead_owner".into()));
}

#[test]
fn what_is_refused_says_why() {
    let dir = tempfile::tempdir().expect("tempdir");
    shop(dir.path());
    for (args, code, why) in [
        (&["outbox", "edit", "mail", "2", "--payload", "{"][..], 1, "is not JSON"),
        (&["outbox", "edit", "mial", "2", "--payload", "1"], 1, "knows no handler \"mial\"; known: mail"),
        (&["outbox", "resume", "mial", "bad"], 1, "knows no handler \"mial\"; known: mail"),
        (&["outbox", "resume", "mail", "good"], 1, "no event of that key is parked"),
        (&["outbox", "replay", "mail"], 2, "required"),
        (&["outbox", "replay", "mial", "1"], 1, "knows no handler \"mial\"; known: mail"),
        (&["outbox", "replay", "mial", "--all"], 1, "knows no handler \"mial\"; known: mail"),
        (&["outbox", "replay", "mial", "--key", "bad"], 1, "knows no handler \"mial\"; known: mail"),
        (&["outbox", "discard", "mial", "1", "--reason", "x"], 1, "knows no handler \"mial\"; known: mail"),
        (&["outbox", "discard", "mail", "9", "--reason", "x"], 1, "no such event"),
        (&["outbox", "replay", "mail", "1"], 1, "delivered once more (--force)"),
        (&["outbox", "replay", "mail", "9", "--force"], 1, "holds no such event"),
        (&["outbox", "replay", "mail", "--state", "retry"], 2, "dead_letter or parked"),
        (&["outbox", "list", "--older-than", "soon"], 2, "15m"),
        (&["outbox", "list", "--after", "soon"], 2, "4711@search"),
        (&["outbox", "discard", "mail", "1", "--reason", "x"], 1, "behind it"),
        (&["handler", "rewind", "mail", "--to", "99"], 1, "goes back only"),
        (&["handler", "rewind", "mail"], 2, "required"),
        (&["handler", "rename", "mail", "no name"], 1, "not allowed"),
        (&["handler", "retire", "nobody"], 1, "no handler of that name"),
    ] {
        let (found, _, err) = run(dir.path(), args);
        assert_eq!(found, code, "{args:?}: {err}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
    let (_, out, _) = run(dir.path(), &["handler", "list"]);
    assert!(!out.contains("held"), "a refused act leaves the handler as it was: {out}");
}
