//! What answers tell shared caches in front of the site.

use std::time::Duration;

use serde_json::json;
use vayu_articles::http::Edge;
use vayu_articles::sinks::cdn::CdnShape;

use super::harness::{Answer, TestSite};

const KEYS: &str = "surrogate-key";
const TTL: &str = "cdn-cache-control";

fn site(shape: CdnShape, ttl: Option<Duration>) -> TestSite {
    let site = TestSite::with_edge(Edge::new(shape, "Surrogate-Key", ttl).unwrap());
    let created =
        site.post(json!({"title": "Fox", "slug": "fox", "content": "red", "tags": ["Fur & more"], "id": "0190"}));
    assert_eq!(created.status, 201, "{}", created.body);
    let draft = json!({"title": "Secret", "slug": "secret", "content": "plan", "status": "draft"});
    assert_eq!(site.post(draft).status, 201);
    site.drain();
    site
}

fn told(answer: &Answer) -> (u16, Option<&str>, Option<&str>) {
    assert_eq!(answer.header(TTL), answer.header("surrogate-control"));
    (answer.status, answer.header(KEYS), answer.header(TTL))
}

#[test]
fn each_answer_names_what_it_was_made_from_and_how_long_it_may_be_kept() {
    let site = site(CdnShape::Keys, Some(Duration::from_secs(600)));
    let get = |path: &str| site.send_as_is("GET", path, &[], None);
    let id = get("/api/v1/articles/fox").json()["id"].as_str().unwrap().to_owned();
    let article = format!("all article-{id} slug-fox");
    let by_id = format!("all article-{id}");
    for (path, status, keys) in [
        ("/articles/fox", 200, &*article),
        ("/articles/secret", 404, "all slug-secret"),
        ("/articles/none", 404, "all slug-none"),
        ("/api/v1/articles/fox", 200, &article),
        ("/api/v1/articles/secret", 404, "all slug-secret"),
        ("/api/v1/articles/no%20%22ne", 404, "all slug-no_20_22ne"),
        (&*format!("/api/v1/articles/by-id/{id}"), 200, &by_id),
        ("/api/v1/articles/by-id/none", 404, "all article-none"),
        ("/tags/fur%20%26%20more", 200, "all tag-fur_20_26_20more"),
        ("/tags/FUR%20%26%20more?page=1", 200, "all tag-fur_20_26_20more"),
        ("/tags/none", 404, "all tag-none"),
        ("/tags/fur%20%26%20more?page=2", 404, "all tag-fur_20_26_20more"),
        ("/", 200, "all lists"),
        ("/?page=2", 404, "all lists"),
        ("/feed.xml", 200, "all lists"),
        ("/api/v1/articles", 200, "all lists"),
        ("/api/v1/articles?tag=none", 200, "all lists"),
        ("/api/v1/tags", 200, "all lists"),
        ("/assets/site.css", 200, "all"),
    ] {
        let answer = get(path);
        assert_eq!(told(&answer), (status, Some(keys), Some("max-age=600")), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"), "browsers ask each time: {path}");
    }
    let tag = get("/articles/fox").header("etag").unwrap().to_owned();
    let unchanged = site.send_as_is("GET", "/articles/fox", &[("If-None-Match", &tag)], None);
    assert_eq!(told(&unchanged), (304, Some(&*article), Some("max-age=600")));
    assert_eq!(told(&site.send_as_is("HEAD", "/articles/fox", &[], None)), (200, Some(&*article), Some("max-age=600")));
}

#[test]
fn what_is_for_somebody_or_for_now_is_for_no_shared_cache() {
    let site = site(CdnShape::Keys, Some(Duration::from_secs(600)));
    // Without an own address a site map is made for whoever asks.
    for path in [
        "/admin",
        "/health/ready",
        "/health/live",
        "/search?q=red",
        "/api/v1/search?q=red",
        "/sitemap.xml",
        "/robots.txt",
        "/nothing/here",
        "/articles/fox/",
        "/?page=0",
        "/api/v1/articles?limit=x",
        "/api/v1/openapi.json",
        "/api/v1/articles?status=all",
    ] {
        let answer = site.send_as_is("GET", path, &[], None);
        assert_eq!((answer.header(KEYS), answer.header(TTL)), (None, Some("no-store")), "{path} {}", answer.status);
    }
    for path in ["/api/v1/articles/secret", "/api/v1/articles/fox", "/api/v1/articles?status=all", "/articles/fox"] {
        let answer = site.get(path);
        assert_eq!(told(&answer), (200, None, Some("no-store")), "{path}");
        let control = answer.header("cache-control").unwrap();
        assert!(control == "private, no-cache" || path == "/articles/fox", "{path} {control}");
    }
    let written = site.patch("fox", json!({"title": "Other"}));
    assert_eq!(told(&written), (200, None, Some("no-store")));
}

#[test]
fn with_purges_by_address_only_what_they_name_may_be_kept() {
    let site = site(CdnShape::Json, Some(Duration::from_millis(1)));
    let kept = |path: &str| site.send_as_is("GET", path, &[], None).header(TTL) == Some("max-age=1");
    for path in ["/", "/articles/fox", "/articles/none", "/tags/fur%20%26%20more", "/feed.xml", "/api/v1/articles/fox"]
    {
        assert!(kept(path), "{path}");
    }
    for path in [
        "/?",
        "/?page=1",
        "/articles/%66ox",
        "/articles/fox?x",
        "/tags/Fur%20%26%20more",
        "/tags/fur%20&%20more",
        "/api/v1/articles?tag=x",
        "/api/v1/articles/by-id/0190",
        "/assets/site.css",
    ] {
        assert!(!kept(path), "{path}");
    }
}

#[test]
fn without_a_lifetime_pages_only_name_their_keys_and_without_an_edge_nothing() {
    let site = site(CdnShape::Keys, None);
    assert_eq!(told(&site.send_as_is("GET", "/tags/none", &[], None)), (404, Some("all tag-none"), None));
    let plain = TestSite::new();
    let answer = plain.send_as_is("GET", "/", &[], None);
    assert!(
        answer.headers.iter().all(|(name, _)| !name.contains("key") && !name.contains("cdn")),
        "{:?}",
        answer.headers
    );
    assert!(
        Edge::new(CdnShape::Keys, "Cache-Control", None).is_err() && Edge::new(CdnShape::Keys, "x y", None).is_err()
    );
}
