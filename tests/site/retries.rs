//! Requests that are sent again.

use serde_json::json;

use crate::harness::{Answer, TestSite, WRITE_TOKEN};

const ARTICLES: &str = "/api/v1/articles";
const BODY: &str = r#"{"title": "Once", "content": "x", "tags": ["a"]}"#;

fn send(site: &TestSite, method: &str, path: &str, key: &str, body: &str) -> Answer {
    site.send(method, path, &[("idempotency-key", key)], (method != "DELETE").then_some(body))
}

/// All that makes an answer what it is.
fn essence(answer: &Answer) -> (u16, &str, [Option<&str>; 3]) {
    (answer.status, &answer.body, ["etag", "location", "content-type"].map(|name| answer.header(name)))
}

#[test]
fn case_c22_the_first_answer_is_given_again_as_it_was() {
    let site = TestSite::new();
    let first = send(&site, "POST", ARTICLES, "k", BODY);
    assert_eq!((first.status, first.header("location")), (201, Some("/api/v1/articles/once")));
    // What has become of the article since does not matter.
    site.patch("once", json!({"title": "Changed", "slug": "elsewhere"}));
    assert_eq!(essence(&send(&site, "POST", ARTICLES, "k", BODY)), essence(&first));
    site.delete("elsewhere");
    assert_eq!(essence(&send(&site, "POST", ARTICLES, "k", BODY)), essence(&first));
    assert_eq!(site.events(), 3);
    assert_eq!(site.get(ARTICLES).json()["total"], 0, "the repetition made nothing");
}

#[test]
fn case_c22_a_key_is_for_one_request_of_one_token() {
    let site = TestSite::new();
    send(&site, "POST", ARTICLES, "k", BODY);
    for (method, path, body) in [
        ("POST", ARTICLES, r#"{"title": "Other", "content": "x"}"#),
        ("POST", "/api/v1/articles/bulk", r#"[{"title": "Other", "content": "x"}]"#),
        ("PATCH", "/api/v1/articles/once", r#"{"title": "Other"}"#),
        ("PUT", "/api/v1/articles/once", r#"{"title": "Other"}"#),
        ("DELETE", "/api/v1/articles/once", ""),
    ] {
        let (status, code, field) = send(&site, method, path, "k", body).problem();
        let named = (status, code.as_str(), field.as_deref());
        assert_eq!(named, (422, "idempotency_key_reused", Some("idempotency_key")), "{method} {path}");
    }
    assert_eq!(site.events(), 1);
    let pen = format!("Bearer {WRITE_TOKEN}");
    let headers = [("authorization", pen.as_str()), ("idempotency-key", "k")];
    let other = site.send_as_is("POST", ARTICLES, &headers, Some(BODY));
    assert_eq!(
        (other.status, other.json()["slug"].as_str()),
        (201, Some("once-2")),
        "another token's keys are its own"
    );
}

#[test]
fn case_c22_a_refused_request_does_not_use_its_key_up_and_a_bad_key_is_refused() {
    let site = TestSite::new();
    assert_eq!(send(&site, "POST", ARTICLES, "k", r#"{"title": "", "content": "x"}"#).status, 422);
    assert_eq!(send(&site, "POST", ARTICLES, "k", "{").status, 400);
    assert_eq!(send(&site, "POST", ARTICLES, "k", BODY).status, 201);
    for bad in ["", " ", "a b", &"k".repeat(256), &"k".repeat(10_240)] {
        for (method, path) in
            [("POST", ARTICLES), ("POST", "/api/v1/articles/bulk"), ("DELETE", "/api/v1/articles/once")]
        {
            let (status, code, _) = send(&site, method, path, bad, BODY).problem();
            assert_eq!((status, code.as_str()), (400, "bad_idempotency_key"), "{method} {path} {bad:?}");
        }
    }
    let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
    assert_eq!(site.send("POST", ARTICLES, &twice, Some(BODY)).status, 400);
    assert_eq!(send(&site, "POST", ARTICLES, &"k".repeat(255), BODY).status, 201);
    assert_eq!(site.events(), 2);
}

#[test]
fn case_c22_sixteen_at_once_with_one_key_make_one_article_and_get_one_answer() {
    let site = TestSite::new();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let site = &site;
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(move || send(site, "POST", ARTICLES, "k", BODY))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers[0].status, 201, "{}", answers[0].body);
    assert!(answers.iter().all(|answer| essence(answer) == essence(&answers[0])));
    assert_eq!(site.events(), 1);
}

#[test]
fn case_c22_a_batch_is_one_key_and_one_transaction() {
    let site = TestSite::new();
    let batch = json!([
        {"title": "One", "content": "1", "slug": "same"},
        {"title": "Two", "content": "2", "slug": "same"},
        {"title": "Three", "content": 3},
        {"title": "", "content": "4"},
        {"title": "Five", "content": "5"},
    ])
    .to_string();
    let bulk = "/api/v1/articles/bulk";
    let first = send(&site, "POST", bulk, "k", &batch);
    assert_eq!((first.status, &first.json()["created"], &first.json()["failed"]), (200, &json!(2), &json!(3)));
    site.delete("five");
    assert_eq!(essence(&send(&site, "POST", bulk, "k", &batch)), essence(&first));
    assert_eq!(site.events(), 3);
}

#[test]
fn a_conditional_change_is_repeated_although_its_condition_no_longer_holds() {
    let site = TestSite::new();
    let tag = site.post(json!({"title": "A", "content": "x"})).header("etag").unwrap().to_owned();
    let headers = [("idempotency-key", "k1"), ("if-match", tag.as_str())];
    let patch = || site.send("PATCH", "/api/v1/articles/a", &headers, Some(r#"{"title": "B", "slug": "b"}"#));
    let first = patch();
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(essence(&patch()), essence(&first));
    let tag = first.header("etag").unwrap().to_owned();
    let headers = [("idempotency-key", "k2"), ("if-match", tag.as_str())];
    let delete = || site.send("DELETE", "/api/v1/articles/b", &headers, None);
    assert_eq!((delete().status, delete().status), (204, 204));
    assert_eq!(site.events(), 3);
}
