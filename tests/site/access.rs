//! Who is let in, over real sockets.

use serde_json::json;

use crate::harness::{Answer, TOKEN, TestSite, WRITE_TOKEN};

const BODY: &str = r#"{"title": "T", "content": "x"}"#;
const WRITES: [(&str, &str); 5] = [
    ("POST", "/api/v1/articles"),
    ("POST", "/api/v1/articles/bulk"),
    ("PATCH", "/api/v1/articles/a"),
    ("PUT", "/api/v1/articles/a"),
    ("DELETE", "/api/v1/articles/a"),
];

fn with(site: &TestSite, authorization: &str, method: &str, path: &str) -> Answer {
    let body = (method != "GET" && method != "DELETE").then_some(BODY);
    site.send_as_is(method, path, &[("authorization", authorization)], body)
}

#[test]
fn every_write_needs_a_right_token_and_says_so() {
    let site = TestSite::new();
    site.post(json!({"title": "A", "content": "x"}));
    for (method, path) in WRITES {
        let without = site.send_as_is(method, path, &[], (method != "DELETE").then_some(BODY));
        assert_eq!(without.problem().1, "unauthorized", "{method} {path}");
        assert_eq!((without.status, without.header("www-authenticate").is_some()), (401, true), "{method} {path}");
        for wrong in ["Bearer wrong", "Basic dGVzdA==", &format!("Bearer {}", &TOKEN[..TOKEN.len() - 1])] {
            assert_eq!(with(&site, wrong, method, path).status, 401, "{method} {path} {wrong}");
        }
    }
    assert_eq!(site.events(), 1, "none of them did anything");
    let pen = format!("Bearer {WRITE_TOKEN}");
    assert_eq!(with(&site, &pen, "POST", "/api/v1/articles").status, 201);
    assert_eq!(with(&site, &pen, "DELETE", "/api/v1/articles/t").status, 204);
    assert_eq!(site.send_as_is("GET", "/api/v1/articles", &[], None).status, 200);
    assert_eq!(with(&site, "Bearer wrong", "GET", "/api/v1/articles").status, 401, "a wrong token is never ignored");
}

#[test]
fn the_admin_api_needs_a_token_with_that_role() {
    let site = TestSite::new();
    let path = "/api/v1/admin/trace/x";
    assert_eq!(site.send_as_is("GET", path, &[], None).status, 401);
    let pen = with(&site, &format!("Bearer {WRITE_TOKEN}"), "GET", path);
    assert_eq!(pen.problem().1, "forbidden");
    assert!(pen.status == 403 && pen.body.contains("admin"), "{}", pen.body);
    assert_eq!(with(&site, &format!("Bearer {TOKEN}"), "GET", path).status, 200);
}

#[test]
fn drafts_exist_for_holders_of_a_token_only() {
    let site = TestSite::new();
    site.post(json!({"title": "Secret", "content": "hidden heron", "status": "draft", "tags": ["hush"]}));
    site.post(json!({"title": "Open", "content": "x"}));
    site.drain();
    let get = |path: &str| site.send_as_is("GET", path, &[], None);
    let tag = site.get("/api/v1/articles/secret").header("etag").unwrap().to_owned();
    assert_eq!(get("/api/v1/articles/secret").problem().1, "not_found");
    let same = site.send_as_is("GET", "/api/v1/articles/secret", &[("if-none-match", &tag)], None);
    assert_eq!(same.status, 404, "no 304 either");
    assert_eq!(get("/api/v1/articles/secret").body, get("/api/v1/articles/secret").body);
    for path in ["/api/v1/articles?status=draft", "/api/v1/articles?status=all", "/api/v1/articles?status=all&tag=hush"]
    {
        assert_eq!(get(path).status, 401, "{path}");
        assert_eq!(with(&site, &format!("Bearer {WRITE_TOKEN}"), "GET", path).status, 200, "{path}");
    }
    for path in ["/api/v1/articles", "/api/v1/tags", "/api/v1/search?q=heron", "/", "/articles/secret", "/tags/hush"] {
        let body = get(path).body;
        assert!(!body.contains("ecret") || path.contains("secret"), "{path}: {body}");
        assert!(!body.contains("hidden heron"), "{path}: {body}");
    }
}

#[test]
fn a_foreign_page_cannot_write_since_no_browser_gives_it_a_token_or_lets_it_ask() {
    let site = TestSite::new();
    let origin = ("origin", "https://evil.example");
    for (method, path) in WRITES {
        let answer = site.send_as_is(method, path, &[origin, ("cookie", "a=b")], (method != "DELETE").then_some(BODY));
        assert_eq!(answer.status, 401, "{method} {path}");
        let asked = [origin, ("access-control-request-method", method)];
        let preflight = site.send_as_is("OPTIONS", path, &asked, None);
        assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (405, None), "{method} {path}");
    }
    assert_eq!(site.events(), 0);
}
