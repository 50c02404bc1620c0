//! What programs read: feed, site map, robots.txt; and that the pages are valid.

use serde_json::json;
use vayu_articles::article::{ArticleRepository, Kind};

use crate::harness::TestSite;
use crate::markup::{assert_page, assert_xml, texts};

const RICH: &str = "# A & B\n\nOpening *words* & more, with <b>raw HTML</b> and `code <x>`.\n\n## Head\n\n## Head\n\n\
    | a | b |\n|:--|--:|\n| 1 | [2](/articles/other?a=1&b=2) |\n\n- [x] done\n- [ ] open\n\n> quoted\n\n\
    ![a picture](/p.png \"with \\\"title\\\"\")\n\n```rust\nlet x = 1 < 2 && true;\n```\n\nA note[^1].\n\n[^1]: Here.\n";

#[test]
fn every_kind_of_page_is_valid_html_and_needs_no_script() {
    let site = TestSite::new();
    site.post(json!({"title": "A & B", "content": RICH, "tags": ["R & D", "日本"]}));
    for number in 0..25 {
        let post = json!({"title": format!("Post <{number}> \"x\""), "content": "text of many", "tags": ["R & D"]});
        assert_eq!(site.post(post).status, 201);
    }
    site.drain();
    let paths = [
        "/",
        "/?page=2",
        "/articles/a-b",
        "/tags/r%20%26%20d",
        "/tags/r%20%26%20d?page=2",
        "/search",
        "/search?q=many",
        "/search?q=many&page=2",
        "/search?q=%3Cb%3E%22%26",
        "/nowhere",
        &format!("/search?q={}", "x".repeat(5_000)),
    ];
    for path in paths {
        let page = site.get(path);
        let tags = assert_page(&page.body);
        assert!(!tags.iter().any(|tag| tag.name == "script"), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}");
        assert!(!policy.contains("unsafe") && !policy.contains("script-src"), "{path}");
        let feed = "<link rel=\"alternate\" type=\"application/atom+xml\" title=\"Articles\" href=\"/feed.xml\">";
        assert!(page.body.contains(feed), "{path}");
    }
}

#[test]
fn a_list_shows_how_each_text_begins_and_a_search_marks_its_hits() {
    let site = TestSite::new();
    site.post(json!({"title": "A & B", "content": RICH, "tags": ["x"]}));
    site.post(json!({"title": "Long", "content": format!("{} end", "heron & more ".repeat(500))}));
    site.drain();
    for path in ["/", "/tags/x"] {
        let page = site.get(path).body;
        assert!(
            page.contains("<p class=\"snippet\">Opening words &amp; more, with raw HTML and code &lt;x&gt;."),
            "{page}"
        );
    }
    let page = site.get("/").body;
    let excerpt = texts(&page, "p").into_iter().find(|text| text.contains("heron")).unwrap();
    assert!(excerpt.len() < 400 && excerpt.ends_with('…') && !page.contains("end"), "{excerpt}");
    let found = site.get("/search?q=heron").body;
    assert!(found.contains("<mark>heron</mark>") && found.contains("value=\"heron\""), "{found}");
}

#[test]
fn the_feed_is_valid_atom_with_full_texts_and_no_drafts() {
    let site = TestSite::new();
    assert!(site.get("/feed.xml").body.contains("<updated>1970-01-01T00:00:00.000Z</updated>"), "also an empty one");
    let made = site.post(json!({"title": "A & B", "content": RICH, "tags": ["R & D"]})).json();
    site.post(json!({"title": "Secret", "content": "x", "status": "draft"}));
    site.post(json!({"title": "Standing", "content": "x", "kind": "page"}));
    site.post(json!({"title": "Huge", "content": "long ".repeat(30_000)}));
    let answer = site.get("/feed.xml");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/atom+xml; charset=utf-8")));
    let feed = answer.body.as_str();
    let tags = assert_xml(feed);
    assert_eq!((tags[0].name.as_str(), tags[0].attributes["xmlns"].as_str()), ("feed", "http://www.w3.org/2005/Atom"));
    let (head, entries) = feed.split_once("<entry>").unwrap();
    for needed in ["<id>urn:uuid:", "<title>Articles</title>", "<updated>20", "<author><name>", "rel=\"self\""] {
        assert_eq!(head.matches(needed).count(), 1, "{needed} in {head}");
    }
    let entries: Vec<&str> = entries.split("<entry>").collect();
    assert_eq!(entries.len(), 2, "{feed}");
    for entry in &entries {
        for name in ["id", "title", "updated", "published", "summary"] {
            assert_eq!(texts(entry, name).len(), 1, "{name} in {entry}");
        }
        assert!(texts(entry, "id")[0].starts_with("urn:uuid:"));
        assert!(texts(entry, "updated")[0].ends_with('Z'));
    }
    assert!(!feed.contains("Secret") && !feed.contains("Standing"));
    let full = entries.iter().find(|entry| entry.contains("A &amp; B")).unwrap();
    assert_eq!(texts(full, "id")[0], format!("urn:uuid:{}", made["id"].as_str().unwrap()));
    assert_eq!(texts(full, "published")[0], made["created_at"].as_str().unwrap());
    assert!(texts(full, "content")[0].contains("&lt;p&gt;Opening &lt;em&gt;words&lt;/em&gt; &amp;amp; more"), "{full}");
    assert!(full.contains("term=\"r &amp; d\" label=\"R &amp; D\""));
    let huge = entries.iter().find(|entry| entry.contains("Huge")).unwrap();
    assert!(texts(huge, "content").is_empty() && huge.len() < 2_000, "its summary alone");
}

#[test]
fn what_is_cached_is_served_from_disk_with_an_entity_tag_until_something_changes() {
    let site = TestSite::new();
    site.post(json!({"title": "A", "content": "first", "tags": ["x"]}));
    site.drain();
    for path in ["/", "/articles/a", "/tags/x", "/feed.xml", "/sitemap.xml"] {
        let first = site.get(path);
        let tag = first.header("etag").unwrap_or_else(|| panic!("{path}")).to_owned();
        let again = site.send("GET", path, &[("if-none-match", tag.as_str())], None);
        assert_eq!((again.status, again.body.as_str()), (304, ""), "{path}");
        assert_eq!(site.get(path).body, first.body, "{path}");
        site.patch("a", json!({"content": format!("another at {path}")}));
        let changed = site.send("GET", path, &[("if-none-match", tag.as_str())], None);
        assert_eq!(changed.status, 200, "{path}");
        assert_ne!(changed.header("etag"), Some(tag.as_str()), "{path}");
    }
}

#[test]
fn the_site_map_lists_what_readers_may_see_under_the_address_they_use() {
    let site = TestSite::new();
    for n in 0..30 {
        site.post(json!({"title": format!("Post {n}"), "content": "x", "tags": ["R & D"]}));
    }
    site.post(json!({"title": "Standing", "content": "x", "kind": "page"}));
    site.post(json!({"title": "Secret", "content": "x", "status": "draft", "tags": ["hidden"]}));
    let answer = site.get("/sitemap.xml");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/xml; charset=utf-8")));
    assert_xml(&answer.body);
    let base = format!("http://{}", site.addr());
    let mut found = texts(&answer.body, "loc");
    let mut expected: Vec<String> = (0..30).map(|n| format!("{base}/articles/post-{n}")).collect();
    expected.extend(["/", "/articles/standing", "/tags/r%20%26%20d"].map(|path| format!("{base}{path}")));
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(texts(&answer.body, "lastmod").len(), 31);
    // The same cached file under another name of this server, for that client alone.
    let other = site.send("GET", "/sitemap.xml", &[("host", "blog.example")], None);
    assert!(other.body.contains("<loc>http://blog.example/articles/post-3</loc>"), "{}", other.body);
    assert_eq!((other.header("vary"), other.header("cache-control")), (Some("host"), Some("private, no-cache")));
    assert_eq!(site.get("/sitemap-1.xml").body, answer.body);
    for path in ["/sitemap-2.xml", "/sitemap-0.xml", "/sitemap-01.xml", "/sitemap-x.xml"] {
        assert_eq!(site.get(path).status, 404, "{path}");
    }
    let robots = site.get("/robots.txt");
    assert!(robots.body.contains("Disallow: /admin") && !robots.body.contains("Sitemap:"), "{}", robots.body);
}

#[test]
fn a_site_that_knows_its_address_says_it_whatever_the_request_calls_it() {
    let site = TestSite::at("https://example.org/");
    site.post(json!({"title": "A", "content": "x", "tags": ["t"]}));
    let forged = [("host", "evil.example")];
    for path in ["/", "/articles/a", "/tags/t", "/feed.xml", "/sitemap.xml", "/robots.txt"] {
        let body = site.send("GET", path, &forged, None).body;
        assert!(body.contains("https://example.org/") && !body.contains("evil.example"), "{path}: {body}");
    }
    assert!(site.get("/articles/a").body.contains("<link rel=\"canonical\" href=\"https://example.org/articles/a\">"));
    let feed = site.get("/feed.xml").body;
    assert_xml(&feed);
    assert!(feed.contains("<id>https://example.org/feed.xml</id>"));
    assert!(feed.contains("xml:base=\"https://example.org/articles/a\""));
    assert!(site.get("/robots.txt").body.contains("Sitemap: https://example.org/sitemap.xml\n"));
}

#[test]
fn addresses_are_read_page_by_page_each_once_wherever_the_reading_begins() {
    let site = TestSite::new();
    for n in 0..20 {
        // Some of one moment, so that the id decides.
        let at = format!("2026-01-{:02}T00:00:00Z", 1 + n / 3);
        site.post(json!({"title": format!("Post {n}"), "content": "x", "created_at": at}));
    }
    let articles = ArticleRepository::new(site.database.clone());
    let all = articles.addresses(Kind::Post, None, 0, 100).unwrap();
    assert_eq!(all.len(), 20);
    for skip in [0, 1, 5, 19, 20, 21] {
        let mut walked = Vec::new();
        loop {
            let found = articles.addresses(Kind::Post, walked.last(), skip, 7).unwrap();
            let ends = found.len() < 7;
            walked.extend(found);
            if ends {
                break;
            }
        }
        assert_eq!(walked, all[(skip as usize).min(20)..], "skip {skip}");
    }
}
