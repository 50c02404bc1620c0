//! The JSON API, as its clients see it.

use serde_json::{Value, json};
use vayu_articles::outbox;

use crate::harness::TestSite;

#[test]
fn a_posts_life() {
    let site = TestSite::new();
    let created = site.post(json!({"title": "Hello", "content": "A *first* post.", "tags": ["News", "news"]}));
    assert_eq!(created.status, 201);
    assert_eq!(created.header("location"), Some("/api/v1/articles/hello"));
    assert_eq!(created.header("content-type"), Some("application/json"));
    let article = created.json();
    assert_eq!(article["version"], 1);
    assert_eq!(article["tags"], json!(["News"]));
    assert!(article["created_at"].as_str().unwrap().ends_with('Z'), "{article}");
    // Readable at once: the answer came after the commit.
    let read = site.get("/api/v1/articles/hello");
    assert_eq!((read.status, read.json()), (200, article.clone()));
    assert_eq!(read.header("etag"), created.header("etag"));
    site.drain();
    assert_eq!(site.found("first"), ["hello"]);
    let patched = site.patch("hello", json!({"content": "Changed."}));
    assert_eq!((patched.status, patched.json()["title"].as_str()), (200, Some("Hello")));
    // PUT means the same as PATCH: what is absent stays.
    let put = site.send("PUT", "/api/v1/articles/hello", &[], Some(r#"{"slug":"hallo"}"#));
    assert_eq!((put.status, put.json()["content"].as_str()), (200, Some("Changed.")));
    assert_eq!(site.get("/api/v1/articles/hello").status, 404);
    let gone = site.delete("hallo");
    assert_eq!((gone.status, gone.body.as_str()), (204, ""));
    assert_eq!(site.get("/api/v1/articles/hallo").problem().1, "not_found");
    assert_eq!(site.delete("hallo").status, 404);
    site.drain();
    assert!(site.found("changed").is_empty());
    assert_eq!(site.events(), 4);
}

#[test]
fn lists_have_pages_tags_and_filters() {
    let site = TestSite::new();
    for n in 1..=5 {
        let tags = if n % 2 == 0 { json!(["even", "All"]) } else { json!(["odd", "all"]) };
        let status = if n == 5 { "draft" } else { "published" };
        let kind = if n == 1 { "page" } else { "post" };
        let body = json!({"title": format!("Post {n}"), "content": "x", "tags": tags, "status": status, "kind": kind});
        assert_eq!(site.post(body).status, 201);
    }
    let slugs = |path: &str| -> Vec<String> {
        let answer = site.get(path);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let list = answer.json();
        list["items"].as_array().unwrap().iter().map(|item| item["slug"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(slugs("/api/v1/articles"), ["post-4", "post-3", "post-2", "post-1"]);
    assert_eq!(slugs("/api/v1/articles?page=2&limit=3"), ["post-1"]);
    assert_eq!(slugs("/api/v1/articles?tag=EVEN"), ["post-4", "post-2"]);
    assert_eq!(slugs("/api/v1/articles?status=draft"), ["post-5"]);
    assert_eq!(slugs("/api/v1/articles?status=all&kind=page"), ["post-1"]);
    let list = site.get("/api/v1/articles?limit=2").json();
    assert_eq!((&list["page"], &list["limit"], &list["total"]), (&json!(1), &json!(2), &json!(4)));
    assert!(list["items"][0].get("content").is_none(), "lists leave the content out");
    let tags = site.get("/api/v1/tags").json();
    let all = tags["items"].as_array().unwrap().iter().find(|tag| tag["tag"] == "all").unwrap().clone();
    assert_eq!((all["count"].as_u64(), all["label"].as_str()), (Some(4), Some("all")));
}

#[test]
fn a_batch_has_one_result_per_item() {
    let site = TestSite::new();
    let items = json!([
        {"title": "One", "content": "1", "slug": "same"},
        {"title": "Two", "content": "2", "slug": "same"},
        {"title": "", "content": "3"},
        {"title": "Four", "content": "4", "tags": "rust"},
        {"title": "Five", "content": "5"},
    ]);
    for body in [items.clone(), json!({"articles": items})] {
        let answer = site.send("POST", "/api/v1/articles/bulk", &[], Some(&body.to_string()));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer = answer.json();
        let statuses: Vec<_> = answer["items"].as_array().unwrap().iter().map(|item| item["status"].clone()).collect();
        let first = if site.events() == 2 { 201 } else { 409 };
        assert_eq!(statuses, [json!(first), json!(409), json!(422), json!(422), json!(201)]);
        assert_eq!(answer["items"][2]["error"]["field"], "title");
        assert_eq!(answer["items"][3]["error"]["field"], "tags");
    }
    assert_eq!(site.events(), 3, "one event per created article");
    let bulk = |body: &Value| site.send("POST", "/api/v1/articles/bulk", &[], Some(&body.to_string())).problem();
    assert_eq!(bulk(&json!([])).0, 422);
    assert_eq!(bulk(&json!("x")).2.as_deref(), Some("articles"));
    let many: Vec<_> = (0..1_001).map(|n| json!({"title": format!("{n}"), "content": "x"})).collect();
    assert_eq!(bulk(&json!(many)).1, "too_many");
}

#[test]
fn case_c09_an_article_may_be_named_like_a_route_by_slug_title_or_rename() {
    let site = TestSite::new();
    for slug in [
        "bulk",
        "search",
        "health",
        "tags",
        "articles",
        "api",
        "assets",
        "admin",
        "metrics",
        "new",
        "replay",
        "by-id",
        "trace",
        "openapi",
        "live",
        "ready",
        "dead-letters",
        "batch",
        "feed",
        "sitemap",
        "article-stamps",
        "all",
    ] {
        assert_eq!(site.post(json!({"title": slug, "content": "x", "slug": slug})).status, 201);
        assert_eq!(site.get(&format!("/api/v1/articles/{slug}")).status, 200, "{slug}");
        assert_eq!(site.get(&format!("/articles/{slug}")).status, 200, "{slug}");
        assert_eq!(site.patch(slug, json!({"title": "Changed"})).status, 200, "{slug}");
        let put = site.send("PUT", &format!("/api/v1/articles/{slug}"), &[], Some(r#"{"content": "changed"}"#));
        assert_eq!(put.status, 200, "{slug}");
        assert_eq!(site.patch(slug, json!({"slug": "renamed"})).status, 200, "{slug}");
        assert_eq!(site.patch("renamed", json!({"slug": slug})).json()["slug"], slug);
        assert_eq!(site.delete(slug).status, 204, "{slug}");
        assert_eq!(site.post(json!({"title": slug, "content": "x"})).json()["slug"], slug, "derived from the title");
        assert_eq!(site.get(&format!("/api/v1/articles/{slug}")).status, 200, "{slug}");
    }
}

#[test]
fn every_error_has_a_code_and_names_its_field() {
    let site = TestSite::new();
    site.post(json!({"title": "Taken", "content": "x", "slug": "taken"}));
    let post = |body: Value| site.post(body).problem();
    let named = |status, code: &str, field: &str| (status, code.to_owned(), Some(field.to_owned()));
    assert_eq!(post(json!({"title": "A", "content": "x", "slug": "taken"})), named(409, "slug_taken", "slug"));
    assert_eq!(post(json!({"title": "A", "content": "x", "slug": "Not OK"})), named(422, "invalid", "slug"));
    assert_eq!(post(json!({"content": "x"})), named(422, "invalid", "title"));
    assert_eq!(post(json!({"title": "A", "content": "x", "tags": [1]})).2.as_deref(), Some("tags"));
    assert_eq!(post(json!([1])).0, 422);
    let raw = |body: &str| site.send("POST", "/api/v1/articles", &[], Some(body));
    let (status, code, _) = raw("{\"title\": \n nonsense}").problem();
    assert_eq!((status, code.as_str()), (400, "bad_json"));
    let said = raw("{\"title\": \n nonsense}").json();
    assert_eq!((&said["error"]["line"], &said["error"]["column"]), (&json!(2), &json!(3)), "says where: {said}");
    assert_eq!(raw(&"[".repeat(100_000)).problem().0, 400, "depth is bounded");
    assert_eq!(site.get("/api/v1/nothing").problem().1, "not_found");
    assert_eq!(site.get("/api/v1/articles?page=0").problem(), named(400, "bad_request", "page"));
    assert_eq!(site.get("/api/v1/articles?limit=101").problem().0, 400);
    assert_eq!(site.get("/api/v1/articles?status=secret").problem().2.as_deref(), Some("status"));
    assert_eq!(site.get("/api/v1/search").problem().2.as_deref(), Some("q"));
    assert_eq!(site.get("/api/v1/search?q=%FF").problem().0, 400);
    assert_eq!(site.get("/api/v1/articles/%zz").problem().0, 400);
    let not_allowed = site.send("POST", "/api/v1/tags", &[], Some("{}"));
    assert_eq!(not_allowed.problem().1, "method_not_allowed");
    assert_eq!(not_allowed.header("allow"), Some("GET, HEAD"));
    assert_eq!(site.send("DELETE", "/api/v1/articles", &[], None).header("allow"), Some("GET, HEAD, POST"));
    let large = json!({"title": "A", "content": "x".repeat(17 << 20)});
    assert_eq!(post(large).0, 413);
    assert_eq!(site.events(), 1, "nothing refused leaves an event");
}

#[test]
fn case_c16_an_update_changes_what_it_names_and_nothing_else() {
    let site = TestSite::new();
    site.post(json!({"title": "A", "content": "x", "tags": ["one", "two"]}));
    assert_eq!(site.patch("a", json!({"title": "B"})).json()["tags"], json!(["one", "two"]));
    assert_eq!(site.patch("a", json!({"tags": []})).json()["tags"], json!([]));
    let events = site.events();
    for (body, field) in [
        (json!({"tags": null}), "tags"),
        (json!({"tags": "rust"}), "tags"),
        (json!({"tags": [1]}), "tags"),
        (json!({"title": null}), "title"),
    ] {
        for method in ["PATCH", "PUT"] {
            let (status, _, named) = site.send(method, "/api/v1/articles/a", &[], Some(&body.to_string())).problem();
            assert_eq!((status, named.as_deref()), (422, Some(field)), "{method} {body}");
        }
    }
    assert_eq!(site.events(), events);
    assert_eq!(site.get("/api/v1/articles/a").json()["version"], 3);
}

#[test]
fn case_c17_a_nul_is_refused_by_field() {
    let site = TestSite::new();
    for (field, body) in [
        ("content", json!({"title": "A", "content": "blabla \u{0} blabla END"})),
        ("title", json!({"title": "A\u{0}B", "content": "x"})),
        ("tags", json!({"title": "A", "content": "x", "tags": ["a\u{0}b"]})),
        ("slug", json!({"title": "A", "content": "x", "slug": "a\u{0}b"})),
    ] {
        let (status, _, named) = site.post(body).problem();
        assert_eq!((status, named.as_deref()), (422, Some(field)));
    }
}

#[test]
fn case_c21_if_match_guards_against_lost_updates() {
    let site = TestSite::new();
    let first = site.post(json!({"title": "A", "content": "x"}));
    let tag = first.header("etag").unwrap().to_owned();
    let put = |value: &str, body: &str| site.send("PUT", "/api/v1/articles/a", &[("If-Match", value)], Some(body));
    assert_eq!(put(&tag, r#"{"content":"by A"}"#).status, 200);
    let stale = put(&tag, r#"{"content":"by B"}"#);
    assert_eq!((stale.status, stale.problem().1.as_str()), (412, "stale"));
    assert!(stale.body.contains("version is 2"), "{}", stale.body);
    let by_hand = put("\"2\"", r#"{"content":"by hand"}"#);
    let now = site.get("/api/v1/articles/a").header("etag").unwrap().replace('"', "\\\"");
    assert!(by_hand.status == 412 && by_hand.body.contains(&format!("ETag header, {now} now")), "{}", by_hand.body);
    assert_eq!(site.get("/api/v1/articles/a").json()["content"], "by A");
    assert_eq!(put("*", r#"{"content":"any"}"#).status, 200);
    let now = site.get("/api/v1/articles/a").header("etag").unwrap().to_owned();
    assert_eq!(put(&format!("W/{now}"), "{}").status, 412, "a weak tag never matches");
    assert_eq!(put(&format!("\"x\", {now}"), r#"{"content":"listed"}"#).status, 200);
    for bad in ["1", "garbage", "\"open"] {
        assert_eq!(put(bad, "{}").status, 400, "{bad}");
    }
    // Of many with one version exactly one wins, and exactly one event appears.
    let events = site.events();
    let tag = site.get("/api/v1/articles/a").header("etag").unwrap().to_owned();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let (site, tag) = (&site, &tag);
        let threads: Vec<_> = (0..20)
            .map(|n| {
                scope.spawn(move || {
                    let body = json!({"content": format!("thread {n}")}).to_string();
                    site.send("PUT", "/api/v1/articles/a", &[("If-Match", tag)], Some(&body)).status
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 412).count(), 19, "{statuses:?}");
    assert_eq!(site.events(), events + 1);
    // A slug that was created anew matches no old tag.
    site.delete("a");
    site.post(json!({"title": "A", "content": "x"}));
    assert_eq!(site.send("DELETE", "/api/v1/articles/a", &[("If-Match", &tag)], None).status, 412);
}

#[test]
fn an_unchanged_article_is_not_sent_again() {
    let site = TestSite::new();
    let tag = site.post(json!({"title": "A", "content": "x"})).header("etag").unwrap().to_owned();
    let asked = |path: &str, tag: &str| site.send("GET", path, &[("If-None-Match", tag)], None);
    let same = asked("/api/v1/articles/a", &tag);
    assert_eq!((same.status, same.body.as_str(), same.header("etag")), (304, "", Some(tag.as_str())));
    assert_eq!(asked("/api/v1/articles/a", &format!("W/{tag}")).status, 304);
    site.patch("a", json!({"content": "y"}));
    assert_eq!(asked("/api/v1/articles/a", &tag).status, 200);
    for page in ["/articles/a", "/", "/assets/site.css"] {
        let tag = site.get(page).header("etag").unwrap().to_owned();
        assert_eq!(asked(page, &tag).status, 304, "{page}");
    }
    let head = site.send("HEAD", "/api/v1/articles/a", &[], None);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn a_correlation_id_comes_in_goes_out_and_stands_on_the_event() {
    let site = TestSite::new();
    let body = json!({"title": "A", "content": "x"}).to_string();
    let answer = site.send("POST", "/api/v1/articles", &[("X-Correlation-ID", "req-42")], Some(&body));
    assert_eq!(answer.header("x-correlation-id"), Some("req-42"));
    let events = outbox::Operator::new(&site.database).trace("req-42", 10).unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].event_type, "article.created.v1");
    let trace = site.get("/api/v1/admin/trace/req-42");
    assert_eq!(trace.status, 200, "{}", trace.body);
    let items = trace.json()["items"].clone();
    assert_eq!((items.as_array().unwrap().len(), &items[0]["event_type"]), (1, &json!("article.created.v1")));
    assert_eq!(items[0]["payload"]["slug"], "a");
    assert_eq!(site.get("/api/v1/admin/trace/nobody").json()["items"], json!([]));
    assert_eq!(site.get("/api/v1/admin/trace/req-42?limit=1001").status, 400);
    let strange = site.send("GET", "/health/live", &[("X-Correlation-ID", "a b")], None);
    assert_eq!(strange.header("x-correlation-id").map(str::len), Some(36), "a strange one is replaced");
}

#[test]
fn case_c30_ordinary_search_text_is_no_syntax() {
    let site = TestSite::new();
    let words = [
        "multi-agent",
        "a'b",
        "don't",
        "ubuntu 20.04",
        "Downloads/transcripts",
        "park.",
        "--error-on-warnings",
        "\"--error-on-warnings\"",
        "C++",
        "100%",
        "foo,bar",
        "#tag",
        "$5",
        "-rust",
        "{x",
    ];
    for (n, word) in words.iter().enumerate() {
        site.post(json!({"title": format!("Post {n}"), "content": format!("Before {word} after.")}));
    }
    site.drain();
    for (n, word) in words.iter().enumerate() {
        assert!(site.found(word).contains(&format!("post-{n}")), "{word}");
    }
    assert!(site.found("\\").is_empty());
}

#[test]
fn health_tells_alive_from_ready() {
    let site = TestSite::new();
    let live = site.get("/health/live");
    assert_eq!((live.status, live.json()), (200, json!({"status": "live"})));
    let ready = site.get("/health/ready");
    assert_eq!((ready.status, ready.json()["status"].as_str()), (200, Some("ready")));
    assert_eq!(ready.header("cache-control"), Some("no-store"));
    assert_eq!(site.get("/health/other").status, 404);
}
