//! Requests and texts that somebody means ill with.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::harness::{LONG, TestSite};

/// Sends bytes as they are, and returns all of the answer.
fn raw(site: &TestSite, request: &str) -> String {
    let mut stream = TcpStream::connect(site.addr()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn case_c29_no_path_leads_out_of_the_site_and_none_is_an_internal_error() {
    let site = TestSite::new();
    site.post(json!({"title": "cafe", "content": "x", "tags": ["日本"]}));
    site.drain();
    for (path, want) in [
        ("/articles/caf%65", 200),
        ("/articles/%63afe", 200),
        ("/api/v1/articles/caf%65", 200),
        ("/articles/%2563afe", 404),
        ("/articles/CAFE", 404),
        ("/tags/%E6%97%A5%E6%9C%AC", 200),
        ("/tags/%e6%97%a5%e6%9c%ac", 200),
        ("/tags/日本", 200),
        ("/articles/%2", 400),
        ("/articles/%E0%A4%A", 400),
        ("/articles/%2e%2e%2f", 404),
        ("/../etc/passwd", 404),
        ("/articles/..%2f..%2fetc%2fpasswd", 404),
        ("/articles/../../../etc/passwd", 404),
        ("/assets/..%2fCargo.toml", 404),
        ("/assets/%2e%2e/Cargo.toml", 404),
        ("/assets/site.css%00.html", 400),
        ("/tags/%2e%2e", 404),
        ("//evil.example/", 404),
        ("/articles/%", 400),
        ("/articles/%zz", 400),
        ("/articles/%C0%80", 400),
        ("/articles/a%00b", 400),
        ("/articles/a%0d%0aSet-Cookie:%20x=1", 400),
        ("/api/v1/articles/%ff", 400),
        ("/api/v1/articles?limit=-1", 400),
        ("/api/v1/articles?limit=99999999999999999999", 400),
        ("/api/v1/articles?page=4294967295&limit=100", 200),
        ("/api/v1/articles?page=1&page=2", 400),
        ("/api/v1/search?q=%FF", 400),
        ("/api/v1/search?q=%", 400),
        ("/api/v1/search?q=a%09b%0Ac", 200),
        ("/api/v1/search?q=x&limit=101", 400),
        ("/?page=4294967295", 404),
    ] {
        let answer = raw(&site, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert_eq!(status(&answer), want, "{path}: {answer}");
        assert!(!answer.to_lowercase().contains("\r\nset-cookie"), "{answer}");
    }
    let long = "x".repeat(9_000);
    for path in [format!("/articles/{long}"), format!("/search?q={long}"), format!("/?{}", "a=b&".repeat(65))] {
        let answer = raw(&site, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert!((400..500).contains(&status(&answer)), "{answer}");
    }
}

#[test]
fn every_method_has_an_answer_and_only_the_right_ones_do_something() {
    let site = TestSite::new();
    site.post(json!({"title": "a", "content": "x"}));
    for method in ["OPTIONS", "TRACE", "FOO", "PROPFIND", "get"] {
        for path in ["/", "/api/v1/articles", "/api/v1/articles/a", "/api/v1/tags", "/health/live", "/search"] {
            let answer = raw(&site, &format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
            assert_eq!(status(&answer), 405, "{method} {path}: {answer}");
            assert!(answer.to_lowercase().contains("\r\nallow: get, head"), "{answer}");
        }
    }
    for path in ["/", "/articles/a", "/api/v1/articles/a", "/api/v1/search?q=x", "/health/ready"] {
        let answer = raw(&site, &format!("HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
        assert_eq!(status(&answer), 200, "{answer}");
        assert!(answer.ends_with("\r\n\r\n"), "a body: {answer}");
    }
    let star = raw(&site, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!((400..500).contains(&status(&star)), "{star}");
    assert_eq!(site.events(), 1);
}

#[test]
fn no_text_becomes_markup_script_or_a_header() {
    let site = TestSite::new();
    let evil = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let content =
        format!("{evil}\n\n<base href=//e><form action=//e><input type=text></form><svg onload=a()>\n\nneedle {evil}");
    let made = site.post(json!({"title": evil, "content": content, "tags": [evil, "a&b", "javascript:alert(1)"]}));
    assert_eq!(made.status, 201, "{}", made.body);
    let slug = made.json()["slug"].as_str().unwrap().to_owned();
    site.drain();
    let encoded: String = evil.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for path in [
        format!("/articles/{slug}"),
        "/".to_owned(),
        "/search?q=needle".to_owned(),
        format!("/search?q={encoded}"),
        format!("/tags/{}", encoded.to_lowercase()),
        format!("/articles/{encoded}"),
    ] {
        let page = site.get(&path);
        assert!(page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'")));
        let body = page.body.to_lowercase();
        for bad in [
            "<script",
            "<img src=x onerror",
            "<base",
            "<svg",
            "<form action=//e",
            "type=\"text\"",
            "javascript:alert(1)\"",
        ] {
            assert!(!body.contains(bad), "{path}: {bad} in {body}");
        }
    }
    for (title, want) in [("x".repeat(500), 201), ("\u{202e}abc".to_owned(), 201), ("x".repeat(501), 422)] {
        assert_eq!(site.post(json!({"title": title, "content": "c"})).status, want);
    }
    for id in ["a\tb", "<script>", &"x".repeat(129), "a b"] {
        let made =
            site.send("POST", "/api/v1/articles", &[("X-Correlation-Id", id)], Some(r#"{"title":"c","content":"c"}"#));
        assert_eq!(made.status, 201);
        assert_ne!(made.header("x-correlation-id"), Some(id), "a strange id is replaced");
    }
}

#[test]
fn bodies_that_are_no_article_are_refused_by_name() {
    let site = TestSite::new();
    let deep = "[".repeat(100_000);
    for (body, want) in [
        ("", 400),
        (deep.as_str(), 400),
        ("\u{feff}{}", 400),
        (r#"{"title":"a","content":"b"} x"#, 400),
        (r#"{"title":"\ud800","content":"b"}"#, 400),
        (r#"{"title":"a","content":"b","version":1e999}"#, 400),
        (r#"{"title":"a","content":"b","__proto__":{}}"#, 422),
        (r#"{"title":"a\nb","content":"b"}"#, 422),
        (r#"{"title":"a","content":"b","slug":"a\r\nSet-Cookie: x"}"#, 422),
        (r#"{"title":"a","content":"b","tags":[".."]}"#, 422),
        (r#"{"title":"a","content":""}"#, 422),
        ("title=a", 400),
        ("null", 422),
        ("[]", 422),
    ] {
        let answer = site.send("POST", "/api/v1/articles", &[], Some(body));
        let shown: String = body.chars().take(60).collect();
        assert_eq!(answer.problem().0, want, "{shown}: {}", answer.body);
    }
    assert_eq!(site.events(), 0);
}

#[test]
fn the_longest_article_is_taken_however_json_spells_it() {
    let site = TestSite::new();
    site.relay.stop(std::time::Instant::now() + LONG).unwrap();
    let bytes = vayu_articles::article::MAX_CONTENT_BYTES;
    for (unit, spelled) in [("ж", "\\u0436"), ("\n\"", "\\n\\\""), ("語", "\\u8a9e")] {
        let times = bytes / unit.len();
        let body = format!("{{\"title\":\"Long\",\"content\":\"{}\"}}", spelled.repeat(times));
        let made = site.send("POST", "/api/v1/articles", &[], Some(&body));
        assert_eq!(made.status, 201, "{unit:?}: {}", made.body.chars().take(200).collect::<String>());
        let more = format!("{{\"title\":\"Long\",\"content\":\"{}\"}}", spelled.repeat(times + 1));
        assert_eq!(site.send("POST", "/api/v1/articles", &[], Some(&more)).problem().2.as_deref(), Some("content"));
    }
}
