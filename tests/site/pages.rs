//! The reader's pages: what they show, and that they are never stale.

use serde_json::json;

use crate::harness::TestSite;

#[test]
fn pages_show_what_is_published_and_nothing_else() {
    let site = TestSite::new();
    site.post(json!({"title": "Open <b>", "content": "Some *Markdown*.", "tags": ["Rust & Co"]}));
    site.post(json!({"title": "Secret", "content": "x", "status": "draft", "tags": ["hidden"]}));
    site.drain();
    let page = site.get("/articles/open-b");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.body.contains("<em>Markdown</em>") && page.body.contains("Open &lt;b&gt;"), "{}", page.body);
    let index = site.get("/");
    assert!(index.body.contains("/articles/open-b") && !index.body.contains("Secret"), "{}", index.body);
    assert_eq!(site.get("/articles/secret").status, 404);
    assert_eq!(site.get("/tags/hidden").status, 404);
    assert_eq!(site.get("/tags/rust%20%26%20co").status, 200);
    let search = site.get("/search?q=markdown");
    assert!(search.body.contains("<mark>"), "{}", search.body);
    assert_eq!(site.get("/search").status, 200);
    assert_eq!(site.get("/nowhere/at/all").status, 404);
    assert_eq!(site.get("/assets/site.css").header("content-type"), Some("text/css; charset=utf-8"));
    assert_eq!(site.send("POST", "/", &[], Some("x")).status, 405);
    for header in ["content-security-policy", "x-content-type-options"] {
        assert!(page.header(header).is_some(), "{header}");
    }
}

#[test]
fn a_page_is_right_at_once_whether_or_not_its_event_was_delivered() {
    let site = TestSite::new();
    // No handler runs from here on.
    site.relay.stop(std::time::Instant::now() + crate::harness::LONG).unwrap();
    site.post(json!({"title": "A", "content": "first text", "tags": ["x"]}));
    assert!(site.get("/articles/a").body.contains("first text"));
    assert!(site.get("/tags/x").body.contains("/articles/a"));
    site.patch("a", json!({"content": "second text", "tags": ["y"], "title": "B"}));
    let page = site.get("/articles/a");
    assert!(page.body.contains("second text") && !page.body.contains("first text"));
    assert_eq!(site.get("/tags/x").status, 404);
    assert!(site.get("/tags/y").body.contains(">B<"));
    assert!(site.get("/").body.contains(">B<"));
    site.delete("a");
    assert_eq!(site.get("/articles/a").status, 404);
    assert!(!site.get("/").body.contains("/articles/a"));
}

#[test]
fn case_c37_after_a_rename_the_old_address_shows_no_old_text() {
    let site = TestSite::new();
    site.post(json!({"title": "A", "content": "of A", "slug": "a", "tags": ["x", "y"]}));
    for path in ["/articles/a", "/tags/x", "/tags/y", "/"] {
        assert_eq!(site.get(path).status, 200);
    }
    site.patch("a", json!({"slug": "b", "tags": ["y", "z"]}));
    assert_eq!(site.get("/articles/a").status, 404);
    assert!(site.get("/articles/b").body.contains("of A"));
    assert_eq!(site.get("/tags/x").status, 404);
    assert!(site.get("/tags/z").body.contains("/articles/b"));
    // A new article takes the old slug; late deliveries do it no harm.
    site.post(json!({"title": "New", "content": "of the newcomer", "slug": "a"}));
    site.drain();
    assert!(site.get("/articles/a").body.contains("of the newcomer"));
    site.delete("b");
    site.drain();
    assert_eq!(site.get("/articles/b").status, 404);
    assert_eq!(site.get("/tags/z").status, 404);
}

#[test]
fn a_slash_at_the_end_leads_to_the_page_and_a_list_ends_where_it_ends() {
    let site = TestSite::new();
    site.post(json!({"title": "A", "content": "heron", "tags": ["R & D"]}));
    site.drain();
    for (path, to) in [
        ("/articles/a/", "/articles/a"),
        ("/tags/r%20%26%20d/?page=1", "/tags/r%20%26%20d?page=1"),
        ("/articles/%2F%2Fevil.example/", "/articles/%2F%2Fevil.example"),
    ] {
        let answer = site.get(path);
        assert_eq!((answer.status, answer.header("location")), (308, Some(to)), "{path}");
    }
    assert_eq!(site.send("POST", "/articles/a/", &[], Some("x")).status, 405);
    for path in ["/articles/", "/articles//", "/tags//", "/articles/a//"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    for path in ["/", "/tags/r%20%26%20d", "/search?q=heron"] {
        let page = |number| format!("{path}{}page={number}", if path.contains('?') { '&' } else { '?' });
        assert_eq!(site.get(&page(1)).status, 200, "{path}");
        assert_eq!(site.get(&page(2)).status, 404, "{path}");
    }
    site.delete("a");
    assert_eq!(site.get("/").status, 200, "the first page is there also when it is empty");
}

#[test]
fn every_page_forbids_scripts_frames_and_guessing_of_types() {
    let site = TestSite::new();
    site.post(json!({"title": "A", "content": "x", "tags": ["t"]}));
    site.drain();
    for path in ["/", "/articles/a", "/tags/t", "/search", "/search?q=x", "/articles/nothing", "/nowhere"] {
        let page = site.get(path);
        let policy = page.header("content-security-policy").unwrap_or_else(|| panic!("{path}"));
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("script-src *"), "{path}: {policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"), "{path}");
    }
}
