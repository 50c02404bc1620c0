//! A frozen site, its jobs, and scheduled articles, over HTTP.

use serde_json::{Value, json};
use vayu_articles::clock::rfc3339;
use vayu_articles::jobs::{JobStatus, Mode};

use crate::harness::{Answer, TestSite, WRITE_TOKEN, wait_until};

const MODE: &str = "/api/v1/admin/mode";

fn set_mode(site: &TestSite, body: Value) -> Answer {
    site.send("PUT", MODE, &[], Some(&body.to_string()))
}

/// The number of the job that a write became.
fn accepted(answer: &Answer) -> i64 {
    assert_eq!(answer.status, 202, "{}", answer.body);
    let id = answer.json()["job"]["id"].as_i64().unwrap();
    assert_eq!(answer.header("location"), Some(format!("/api/v1/jobs/{id}").as_str()));
    id
}

#[test]
fn a_frozen_site_accepts_writes_with_202_and_a_job_to_ask_for() {
    let site = TestSite::new();
    site.post(json!({"title": "Old", "content": "x"}));
    let frozen = set_mode(&site, json!({"mode": "journal", "reason": "backup"}));
    assert_eq!((frozen.status, frozen.json()["mode"].as_str()), (200, Some("journal")));

    let created = accepted(&site.post(json!({"title": "New", "content": "x"})));
    let changed = accepted(&site.patch("old", json!({"title": "Changed"})));
    let deleted = accepted(&site.delete("new"));
    let bulk =
        site.send("POST", "/api/v1/articles/bulk", &[], Some(r#"[{"title": "B", "content": "x"}, {"title": ""}]"#));
    let bulk = bulk.json();
    assert_eq!((bulk["accepted"].as_i64(), bulk["failed"].as_i64()), (Some(1), Some(1)));
    assert_eq!((bulk["items"][0]["status"].as_i64(), bulk["items"][1]["status"].as_i64()), (Some(202), Some(422)));
    assert_eq!(site.post(json!({"title": ""})).status, 422, "what is certainly wrong is said at once");
    assert_eq!(site.events(), 1);
    assert_eq!(site.get("/api/v1/articles/old").json()["title"], "Old", "reads go on");

    let job = site.get(&format!("/api/v1/jobs/{created}")).json();
    assert_eq!((job["status"].as_str(), job["operation"].as_str()), (Some("pending"), Some("create")));
    let ready = site.get("/health/ready").json();
    assert_eq!((ready["status"].as_str(), ready["writes"]["mode"].as_str()), (Some("ready"), Some("journal")));
    assert_eq!(ready["writes"]["pending_jobs"], 4);

    assert_eq!(set_mode(&site, json!({"mode": "open"})).status, 200);
    wait_until("the journal is worked off", || site.get(MODE).json()["draining"] == false);
    let job = site.get(&format!("/api/v1/jobs/{created}")).json();
    assert_eq!((job["status"].as_str(), job["slug"].as_str()), (Some("applied"), Some("new")));
    for id in [changed, deleted] {
        assert_eq!(site.jobs.show(id).unwrap().unwrap().status, JobStatus::Applied);
    }
    assert_eq!(site.get("/api/v1/articles/old").json()["title"], "Changed");
    assert_eq!(site.get("/api/v1/articles/new").status, 404);
    assert_eq!(site.post(json!({"title": "Direct", "content": "x"})).status, 201);
}

#[test]
fn a_read_only_site_answers_503_and_a_full_journal_429_each_with_retry_after() {
    let site = TestSite::new();
    set_mode(&site, json!({"mode": "read_only"}));
    let refused = site.post(json!({"title": "x", "content": "x"}));
    assert_eq!(refused.problem().0, 503);
    assert_eq!((refused.problem().1.as_str(), refused.header("retry-after")), ("read_only", Some("30")));
    set_mode(&site, json!({"mode": "journal"}));
    for number in 0..20 {
        accepted(&site.post(json!({"title": format!("Post {number}"), "content": "x"})));
    }
    let full = site.post(json!({"title": "x", "content": "x"}));
    assert_eq!((full.problem().0, full.problem().1.as_str()), (429, "journal_full"));
    assert!(full.header("retry-after").is_some());
}

#[test]
fn a_repeated_request_gets_its_job_again() {
    let site = TestSite::new();
    set_mode(&site, json!({"mode": "journal"}));
    let body = json!({"title": "Once", "content": "x"}).to_string();
    let send = || site.send("POST", "/api/v1/articles", &[("idempotency-key", "k")], Some(&body));
    let first = accepted(&send());
    assert_eq!(accepted(&send()), first);
    let other =
        site.send("POST", "/api/v1/articles", &[("idempotency-key", "k")], Some(r#"{"title": "O", "content": "x"}"#));
    assert_eq!(other.status, 422);
}

#[test]
fn an_operator_lists_replays_cancels_and_discards_jobs() {
    let site = TestSite::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let gone = accepted(&site.patch("gone", json!({"title": "x"})));
    let kept = accepted(&site.post(json!({"title": "Kept", "content": "x"})));
    let path = |id: i64, act: &str| format!("/api/v1/admin/jobs/{id}/{act}");
    let cancelled = site.send("POST", &path(kept, "cancel"), &[], Some(r#"{"reason": "no more"}"#));
    assert_eq!((cancelled.status, cancelled.json()["status"].as_str()), (200, Some("cancelled")));
    site.jobs.set_mode(Mode::Open, None).unwrap();
    site.runner.notify();
    let dead = || site.get("/api/v1/admin/jobs?status=dead_letter").json()["items"].as_array().unwrap().len();
    wait_until("the update is given up", || dead() == 1);
    let shown = site.get(&format!("/api/v1/admin/jobs/{gone}")).json();
    assert!(shown["error"].as_str().unwrap().starts_with("not_found"));
    assert_eq!(shown["body"]["patch"]["title"], "x");

    site.post(json!({"title": "Gone", "content": "x"}));
    assert_eq!(site.send("POST", &path(gone, "replay"), &[], None).status, 200);
    wait_until("it is applied", || site.get("/api/v1/articles/gone").json()["title"] == "x");
    assert_eq!(site.send("POST", &path(gone, "replay"), &[], None).problem().0, 409);
    assert_eq!(site.send("POST", &path(kept, "discard"), &[], Some(r#"{"reason": "x"}"#)).status, 204);
    for (method, path, status) in [
        ("GET", format!("/api/v1/jobs/{kept}"), 404),
        ("GET", "/api/v1/jobs/abc".to_owned(), 404),
        ("GET", "/api/v1/admin/jobs?status=lost".to_owned(), 400),
        ("GET", "/api/v1/admin/jobs?limit=5000".to_owned(), 400),
        ("GET", "/api/v1/admin/jobs?after=x".to_owned(), 400),
        ("POST", path(kept, "cancel"), 404),
    ] {
        assert_eq!(site.send(method, &path, &[], None).status, status, "{method} {path}");
    }
    for body in [json!({"mode": "shut"}), json!({}), json!({"mode": "open", "quiesce": true})] {
        assert_eq!(set_mode(&site, body.clone()).status, 422, "{body}");
    }
    assert_eq!(set_mode(&site, json!({"mode": "open", "force": 1})).status, 400);
}

#[test]
fn who_may_write_may_ask_for_a_job_but_not_operate() {
    let site = TestSite::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let job = accepted(&site.post(json!({"title": "x", "content": "x"})));
    let bearer = format!("Bearer {WRITE_TOKEN}");
    let with_pen = |method: &str, path: &str| site.send_as_is(method, path, &[("authorization", &bearer)], None).status;
    assert_eq!(with_pen("GET", &format!("/api/v1/jobs/{job}")), 200);
    assert_eq!(with_pen("GET", "/api/v1/admin/jobs"), 403);
    assert_eq!(with_pen("GET", MODE), 403);
    assert_eq!(site.send_as_is("GET", &format!("/api/v1/jobs/{job}"), &[], None).status, 401);
}

#[test]
fn a_quiesced_site_holds_its_lanes_and_goes_on_after_the_thaw() {
    let site = TestSite::new();
    site.post(json!({"title": "Old", "content": "wombat"}));
    let frozen = set_mode(&site, json!({"mode": "journal", "quiesce": true}));
    assert_eq!(frozen.status, 200, "{}", frozen.body);
    assert_eq!(frozen.json()["held"], json!(["cache", "search"]));
    assert_eq!(site.found("wombat"), ["old"], "what was committed is delivered");
    accepted(&site.post(json!({"title": "New", "content": "numbat"})));
    set_mode(&site, json!({"mode": "open"}));
    wait_until("the new one is found", || site.found("numbat") == ["new"]);
    assert_eq!(site.get(MODE).json()["held"], json!([]));
}

#[test]
fn case_c51_a_scheduled_post_shows_nowhere_before_its_time_and_everywhere_after() {
    let site = TestSite::new();
    let now = site.database.clock().now_ms();
    let later = rfc3339(now + 3_600_000).replace('Z', "+00:00");
    let post = json!({"title": "Soon", "content": "wombat", "tags": ["future"], "publish_at": later});
    let created = site.post(post);
    assert_eq!(created.status, 201, "{}", created.body);
    let article = created.json();
    assert_eq!(
        (article["status"].as_str(), article["publish_at"].as_str()),
        (Some("scheduled"), Some(rfc3339(now + 3_600_000).as_str()))
    );
    site.drain();
    let anonymous = |path: &str| site.send_as_is("GET", path, &[], None);
    let hidden = || {
        assert_eq!(site.found("wombat"), [""; 0]);
        assert_eq!(anonymous("/api/v1/articles/soon").status, 404);
        assert_eq!(anonymous("/articles/soon").status, 404);
        for path in ["/api/v1/articles", "/api/v1/tags", "/", "/tags/future", "/feed.xml", "/sitemap.xml"] {
            let body = anonymous(path).body;
            assert!(!body.contains("Soon") && !body.contains("/soon"), "{path}: {body}");
        }
    };
    hidden();
    assert_eq!(site.get("/api/v1/articles?status=scheduled").json()["total"], 1);
    assert_eq!(site.get("/api/v1/articles?status=draft").json()["total"], 0);
    assert_eq!(anonymous("/api/v1/articles?status=scheduled").status, 401);

    // What was read can be sent back, and changes nothing.
    let read = site.get("/api/v1/articles/soon").json();
    assert_eq!(site.patch("soon", read.clone()).json()["version"], read["version"]);
    for (at, field) in [("2026-01-01T00:00:00", "publish_at"), ("tomorrow", "publish_at")] {
        let refused = site.patch("soon", json!({"publish_at": at}));
        assert_eq!((refused.problem().0, refused.problem().2.as_deref()), (422, Some(field)), "{at}");
    }
    assert_eq!(site.patch("soon", json!({"publish_at": null})).json()["status"], "draft");
    let soon = site.database.clock().now_ms() + 700;
    assert_eq!(site.patch("soon", json!({"publish_at": rfc3339(soon)})).json()["status"], "scheduled");
    site.drain();
    wait_until("it is published", || site.get("/api/v1/articles/soon").json()["status"] == "published");
    let article = site.get("/api/v1/articles/soon").json();
    assert_eq!((article["created_at"].as_str(), article.get("publish_at")), (Some(rfc3339(soon).as_str()), None));
    site.drain();
    assert_eq!(site.found("wombat"), ["soon"]);
    assert_eq!(anonymous("/articles/soon").status, 200);
    assert!(anonymous("/").body.contains("Soon") && anonymous("/feed.xml").body.contains("/articles/soon"));
    let refused = site.patch("soon", json!({"publish_at": rfc3339(soon + 9_000_000)}));
    assert_eq!((refused.problem().0, refused.problem().2.as_deref()), (422, Some("publish_at")));
}

#[test]
fn metrics_tell_the_mode_and_the_jobs() {
    let site = TestSite::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    accepted(&site.post(json!({"title": "x", "content": "x"})));
    let text = site.get("/metrics").body;
    for line in ["write_mode{mode=\"journal\"} 1", "write_mode{mode=\"open\"} 0", "jobs{status=\"pending\"} 1"] {
        assert!(text.lines().any(|found| found.replace(".0", "").ends_with(line)), "{line}: {text}");
    }
}

#[test]
fn the_log_says_who_has_acted_on_the_mode_and_on_a_job() {
    crate::recorder::record();
    let site = TestSite::new();
    site.post(json!({"title": "Taken", "content": "x"}));
    assert_eq!(set_mode(&site, json!({"mode": "journal"})).status, 200);
    let job = accepted(&site.post(json!({"title": "Kept", "content": "x"})));
    let act =
        |what: &str| site.send("POST", &format!("/api/v1/admin/jobs/{job}/{what}"), &[], Some(r#"{"reason": "no"}"#));
    assert_eq!(act("cancel").status, 200);
    assert_eq!(site.send("POST", &format!("/api/v1/admin/jobs/{job}/replay"), &[], None).status, 200);
    assert_eq!((act("cancel").status, act("discard").status), (200, 204));
    for line in [
        "act=mode mode=journal by=test".to_owned(),
        format!("act=job_cancel job={job} by=test"),
        format!("act=job_replay job={job} force=false by=test"),
        format!("act=job_discard job={job} by=test"),
    ] {
        assert!(!crate::recorder::logged(&line).is_empty(), "{line}");
    }
    assert_eq!(set_mode(&site, json!({"mode": "open"})).status, 200);
}

#[test]
fn pages_of_jobs_follow_each_other_also_where_a_foreign_writer_stored_a_strange_time() {
    let site = TestSite::new();
    let database = site.database.clone();
    // What is cancelled goes after a day; these stay.
    let insert = "INSERT INTO write_jobs (status, operation, updated_at) VALUES ('dead_letter', 'x', ?1)";
    let insert = move |tx: &vayu_articles::rusqlite::Transaction<'_>| {
        [-5_000, -4_000, 7].iter().try_for_each(|at| tx.execute(insert, [at]).map(drop))
    };
    database.writer().transact(insert).unwrap();
    let mut times = Vec::new();
    let mut after = String::new();
    for _ in 0..3 {
        let page = site.get(&format!("/api/v1/admin/jobs?status=dead_letter&limit=1{after}")).json();
        times.push(page["items"][0]["updated_at"].as_str().unwrap_or_else(|| panic!("{page}")).to_owned());
        after = format!("&after={}", page["next"].as_str().unwrap_or_default());
    }
    assert_eq!(times, [-5_000, -4_000, 7].map(rfc3339));
}
