//! Many clients at once on the same few articles: nothing fails, and in the end everything agrees.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use vayu_articles::rusqlite;
use vayu_articles::storage::ReadError;

use crate::article_support::{articles, assert_log_explains_articles};
use crate::harness::TestSite;

const CLIENTS: usize = 50;
const STEPS: usize = 24;
const SLUGS: usize = 5;
const TAGS: [&str; 4] = ["red", "Green", "a/b", "日本"];

/// One client: every second one only reads.
fn live(site: &TestSite, client: usize, texts: &AtomicUsize) {
    let mut random = fastrand::Rng::with_seed(client as u64);
    for _ in 0..STEPS {
        let slug = format!("storm-{}", random.usize(..SLUGS));
        let answer = if client.is_multiple_of(2) {
            let tag = TAGS[random.usize(..TAGS.len())];
            let content = format!("Tempest text{}x", texts.fetch_add(1, Ordering::Relaxed));
            match random.u8(..8) {
                0 | 1 => site.post(json!({"title": "T", "content": content, "slug": slug, "tags": [tag]})),
                2 => site.post(json!({"title": "Storm 1", "content": content})),
                3 => site.patch(&slug, json!({"slug": format!("storm-{}", random.usize(..SLUGS))})),
                4 => site.patch(&slug, json!({"status": if random.bool() { "draft" } else { "published" }})),
                5 => site.patch(&slug, json!({"tags": [tag], "title": format!("Title {client}")})),
                6 => site.patch(&slug, json!({"content": content})),
                _ => site.delete(&slug),
            }
        } else {
            match random.u8(..5) {
                0 => site.get("/?page=1"),
                1 => site.get("/tags/a%2Fb"),
                2 => site.get("/search?q=tempest"),
                3 => site.get(&format!("/api/v1/articles/{slug}")),
                _ => site.get(&format!("/articles/{slug}")),
            }
        };
        assert!(matches!(answer.status, 200 | 201 | 204 | 404 | 409), "{}: {}", answer.status, answer.body);
    }
}

#[test]
fn many_clients_on_few_articles_leave_tables_log_pages_and_search_in_agreement() {
    let site = TestSite::new();
    let texts = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (site, texts) = (&site, &texts);
            scope.spawn(move || live(site, client, texts));
        }
    });
    site.drain();

    let stored = site
        .database
        .read(|conn| {
            assert_log_explains_articles(conn);
            Ok(articles(conn))
        })
        .map_err(|error: ReadError<rusqlite::Error>| error)
        .unwrap();
    let public: Vec<_> = stored.iter().filter(|article| article.status.as_str() == "published").collect();
    for article in &stored {
        let page = site.get(&format!("/articles/{}", article.slug));
        assert_eq!(page.status, if article.status.as_str() == "published" { 200 } else { 404 });
        assert!(page.status == 404 || page.body.contains(&article.content), "{article:?}\n{}", page.body);
    }
    let mut listed = BTreeSet::new();
    for number in 1..=stored.len().div_ceil(100).max(1) {
        let items = site.get(&format!("/api/v1/articles?limit=100&page={number}")).json()["items"].clone();
        listed.extend(items.as_array().unwrap().iter().map(|item| item["slug"].as_str().unwrap().to_owned()));
    }
    assert_eq!(listed, public.iter().map(|article| article.slug.clone()).collect());

    site.search.check().unwrap();
    assert_eq!(site.search.len().unwrap() as usize, public.len());
    for number in 0..texts.into_inner() {
        let text = format!("text{number}x");
        let now: Vec<_> = public.iter().filter(|article| article.content.contains(&text)).collect();
        assert_eq!(site.found(&text), now.iter().map(|article| article.slug.clone()).collect::<Vec<_>>(), "{text}");
    }
    let dead = "SELECT count(*) FROM deliveries";
    let dead = site.database.read(|conn| conn.query_row(dead, [], |row| row.get::<_, i64>(0)));
    assert_eq!(dead.map_err(|error: ReadError<rusqlite::Error>| error).unwrap(), 0);
    let counts: Value = site.get("/api/v1/tags").json()["items"].clone();
    for tag in counts.as_array().unwrap() {
        let key = tag["tag"].as_str().unwrap();
        let with = public.iter().filter(|article| article.tags.iter().any(|label| label.to_lowercase() == key));
        assert_eq!(tag["count"].as_u64().unwrap() as usize, with.count(), "{key}");
    }
}
