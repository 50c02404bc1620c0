//! `ArticleService` over the production writer: the faults of the original, public bug reports, lists and tags.

mod article_support;

use std::collections::HashSet;
use std::sync::{Arc, Barrier};

use article_support::{NOW_MS, Site, post};
use serde_json::json;
use vayu_articles::article::{
    Applied, Article, ArticlePatch, Expected, Kind, ListQuery, NewArticle, RepositoryError, Status, slug_from_title,
};
use vayu_articles::queue::{Receipt, WriteError, WriteJob, Writer};
use vayu_articles::service::{ArticleService, WriteContext};

fn none() -> WriteContext {
    WriteContext::default()
}

fn create(service: &ArticleService, article: NewArticle) -> Article {
    service.create(article, &none()).unwrap()
}

fn update(service: &ArticleService, slug: &str, patch: ArticlePatch) -> Result<Article, WriteError> {
    service.update(slug, patch, Expected::any(), &none())
}

#[test]
fn what_is_written_is_read_back_the_same() {
    let site = Site::new();
    let service = site.service();
    let article = create(&service, NewArticle::new("  “Title” ", "a\r\nb\u{1}\u{FFFF}").tags(["x;y", "a b"]));
    assert_eq!(article.title, "  “Title” ", "typography stays");
    assert_eq!(service.get("title").unwrap().unwrap(), article);
    assert_eq!(service.repository().by_id(&article.id).unwrap().unwrap(), article);
    assert_eq!(service.get("missing").unwrap(), None);
    assert_eq!(service.delete("title", Expected::any(), &none()).unwrap(), article);
    assert_eq!(service.get("title").unwrap(), None);
}

#[test]
fn original_06_two_editors_keep_both_fields() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("Draft"));
    let start = Arc::new(Barrier::new(2));
    let edit = |patch: fn(u32) -> ArticlePatch| {
        let (service, start) = (service.clone(), start.clone());
        std::thread::spawn(move || {
            start.wait();
            for round in 1..=200 {
                update(&service, "draft", patch(round)).unwrap();
            }
        })
    };
    let editors = [
        edit(|round| ArticlePatch::default().title(format!("Title {round}"))),
        edit(|round| ArticlePatch::default().content(format!("Content {round}"))),
    ];
    editors.into_iter().for_each(|editor| editor.join().unwrap());
    let article = service.get("draft").unwrap().unwrap();
    assert_eq!((article.title.as_str(), article.content.as_str()), ("Title 200", "Content 200"));
    assert_eq!(article.version, 401, "no update was lost");
    site.assert_log_explains_articles();
}

#[test]
fn original_07_a_missing_slug_emits_no_event() {
    let site = Site::new();
    let service = site.service();
    assert_eq!(update(&service, "gone", ArticlePatch::default().title("x")).unwrap_err().code(), "not_found");
    assert_eq!(service.delete("gone", Expected::any(), &none()).unwrap_err().code(), "not_found");
    assert_eq!(site.events(), []);
}

/// Refuses everything, as a queue does whose database is gone.
struct Refusing;

impl Writer for Refusing {
    fn enqueue(&self, _: WriteJob) -> Result<Receipt, WriteError> {
        Err(WriteError::Stopped)
    }

    fn enqueue_batch(&self, _: Vec<WriteJob>) -> Result<Vec<Result<Receipt, WriteError>>, WriteError> {
        Err(WriteError::Stopped)
    }
}

#[test]
fn original_08_bulk_reports_every_failure() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("Taken"));
    let bulk = vec![post("One"), post("x").slug("taken"), NewArticle::new("", "x"), post("Two")];
    let results = service.create_bulk(bulk, &WriteContext::correlated("bulk-1")).unwrap();
    let codes: Vec<_> = results.iter().map(|result| result.as_ref().map_or_else(WriteError::code, |_| "ok")).collect();
    assert_eq!(codes, ["ok", "slug_taken", "invalid", "ok"]);
    assert_eq!(site.articles().len(), 3);
    assert_eq!(site.events().iter().filter(|event| event.correlation_id.as_deref() == Some("bulk-1")).count(), 2);

    let refused = ArticleService::new(Arc::new(Refusing), site.repository());
    assert_eq!(refused.create_bulk(vec![post("Three")], &none()).unwrap_err().code(), "stopped");
    assert_eq!(service.create_bulk(Vec::new(), &none()).unwrap_err().field(), Some("articles"));
    assert_eq!(service.create_bulk(vec![post("x"); 1_001], &none()).unwrap_err().code(), "too_many");
}

#[test]
fn original_11_removed_tags_stand_in_the_event() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("One").tags(["kept", "removed"]));
    update(&service, "one", ArticlePatch::default().tags(["kept", "added"])).unwrap();
    let event = site.events().pop().unwrap().body;
    assert_eq!(event.tags, ["kept", "added"]);
    assert_eq!(event.previous.unwrap().tags, ["kept", "removed"]);
}

#[test]
fn original_15_titles_in_any_script_give_a_usable_slug() {
    let site = Site::new();
    let service = site.service();
    for title in ["Иван", "物語", "محمد", "ελληνικά", "?!", "\u{200b}", "🎉"] {
        let article = create(&service, post(title));
        assert!(!article.slug.is_empty());
        assert!(article.slug.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'), "{article:?}");
        assert_eq!(service.get(&article.slug).unwrap().unwrap().title, title);
    }
}

#[test]
fn case_c01_umlauts_follow_one_rule() {
    let site = Site::new();
    let service = site.service();
    for (title, slug) in [("Käse", "kase"), ("Öl", "ol"), ("Übergrößen-Träger", "ubergrossen-trager"), ("für", "fur")]
    {
        assert_eq!(create(&service, post(title)).slug, slug);
    }
    assert_eq!(create(&service, post("KA\u{308}SE")).slug, "kase-2", "the same base slug, decomposed and upper case");
}

#[test]
fn case_c03_titles_without_latin_letters_get_six_slugs() {
    let site = Site::new();
    let service = site.service();
    let titles = ["Иван", "Ольга", "物語", "日本語を学ぶ", "محمد", "یہ اردو ٹائیٹل ہے"];
    let slugs: HashSet<String> = titles.iter().map(|title| create(&service, post(title)).slug).collect();
    assert_eq!(slugs.len(), 6);
}

#[test]
fn case_c05_suffixes_do_not_collide_with_titles_that_look_like_them() {
    for titles in [["Foo", "Foo", "Foo 2"], ["Foo 2", "Foo", "Foo"], ["Foo", "Foo", "Foo 1"], ["Foo 1", "Foo", "Foo"]] {
        let site = Site::new();
        let slugs: HashSet<_> = titles.iter().map(|title| create(&site.service(), post(title)).slug).collect();
        assert_eq!(slugs.len(), 3, "{titles:?}: {slugs:?}");
    }
}

#[test]
fn case_c05_saving_does_not_move_the_slug() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("Foo"));
    create(&service, post("Foo"));
    for round in 0..3 {
        let same = ArticlePatch::default().title("Foo").slug("foo");
        assert_eq!(update(&service, "foo", same).unwrap().slug, "foo");
        let changed = ArticlePatch::default().title(format!("Foo {round}")).content(format!("{round}")).slug("foo");
        assert_eq!(update(&service, "foo", changed).unwrap().slug, "foo");
    }
    assert_eq!(update(&service, "foo", ArticlePatch::default().title("New")).unwrap().slug, "foo");
}

#[test]
fn case_c07_no_typography_in_slugs_and_no_twins() {
    let site = Site::new();
    let service = site.service();
    let stored = create(&service, post("GTA Online’s latest news: “huge map”"));
    assert_eq!(
        (stored.slug.as_str(), stored.title.as_str()),
        ("gta-onlines-latest-news-huge-map", "GTA Online’s latest news: “huge map”")
    );
    assert_eq!(create(&service, post("Paint\u{200b}Worklet")).slug, slug_from_title("PaintWorklet"));
    let twin = service.create(post("x").slug("paint\u{200b}worklet"), &none()).unwrap_err();
    assert_eq!((twin.code(), twin.field()), ("invalid", Some("slug")));
}

#[test]
fn case_c12_repeated_tags_are_stored_and_counted_once() {
    let site = Site::new();
    let service = site.service();
    assert_eq!(create(&service, post("One").tags(["Windows", "windows"])).tags, ["Windows"]);
    assert_eq!(create(&service, post("Two").tags(["rust", " rust ", "RUST"])).tags, ["rust"]);
    let article = update(&service, "two", ArticlePatch::default().tags(["rust", "Rust", "windows"])).unwrap();
    assert_eq!(article.tags, ["rust", "windows"]);
    assert_eq!(site.events().pop().unwrap().body.tags, ["rust", "windows"]);
    let tags: Vec<_> = service.tags().unwrap().into_iter().map(|tag| (tag.tag, tag.label, tag.count)).collect();
    assert_eq!(tags, [("rust".into(), "rust".into(), 1), ("windows".into(), "Windows".into(), 2)]);
}

#[test]
fn case_c14_a_tag_with_separators_is_one_tag() {
    let site = Site::new();
    let service = site.service();
    let tags = ["Tom Jones, Jr.", "WATFIV, WATFOR", "a b", "x;y"];
    create(&service, post("One").tags(tags));
    assert_eq!(service.get("one").unwrap().unwrap().tags, tags);
    for tag in tags {
        let query = ListQuery { tag: Some(tag.to_uppercase()), ..ListQuery::default() };
        assert_eq!(service.list(&query).unwrap().total, 1, "{tag}");
    }
    let part = ListQuery { tag: Some("a".into()), ..ListQuery::default() };
    assert_eq!(service.list(&part).unwrap().total, 0);
}

#[test]
fn case_c16_absent_fields_stay_and_wrong_ones_are_refused() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("One").tags(["a", "b"]));
    let put = |body| update(&service, "one", ArticlePatch::from_json(&body)?);
    assert_eq!(put(json!({"title": "Two"})).unwrap().tags, ["a", "b"]);
    for (body, field) in [
        (json!({"tags": null}), "tags"),
        (json!({"tags": "rust"}), "tags"),
        (json!({"tags": [1]}), "tags"),
        (json!({"title": null}), "title"),
    ] {
        let error = put(body).unwrap_err();
        assert_eq!((error.code(), error.field()), ("invalid", Some(field)));
    }
    assert_eq!(service.get("one").unwrap().unwrap().version, 2);
    assert_eq!(site.events().len(), 2);
    assert_eq!(put(json!({"tags": []})).unwrap().tags, [""; 0]);
}

#[test]
fn case_c17_nul_is_refused_and_nothing_is_cut() {
    let site = Site::new();
    let service = site.service();
    for (article, field) in [
        (NewArticle::new("x", "blabla \0 blabla END"), "content"),
        (NewArticle::new("a\0b", "x"), "title"),
        (post("x").tags(["a\0b"]), "tags"),
        (post("x").slug("a\0b"), "slug"),
    ] {
        assert_eq!(service.create(article, &none()).unwrap_err().field(), Some(field));
    }
    assert_eq!(site.articles(), []);
}

#[test]
fn g12_bad_input_costs_no_other_caller_a_write() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("Taken"));
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let service = service.clone();
            scope.spawn(move || {
                for round in 0..50 {
                    let bad = post("x").slug(if round % 2 == 0 { "taken" } else { "Not valid" });
                    service.create(bad, &none()).unwrap_err();
                    update(&service, "nowhere", ArticlePatch::default().title("x")).unwrap_err();
                    create(&service, post(&format!("Good {caller} {round}")));
                }
            });
        }
    });
    assert_eq!(site.articles().len(), 201);
    site.assert_log_explains_articles();
}

#[test]
fn a_list_is_newest_first_in_pages() {
    let site = Site::new();
    let service = site.service();
    for n in 0..7 {
        create(&service, post(&format!("P{n}")).times(NOW_MS + 10 * n, NOW_MS));
    }
    create(&service, post("Old page").kind(Kind::Page).times(NOW_MS + 35, NOW_MS));
    create(&service, post("Secret").status(Status::Draft).tags(["x"]).times(NOW_MS + 100, NOW_MS));
    let titles = |query: &ListQuery| -> Vec<String> {
        service.list(query).unwrap().items.into_iter().map(|item| item.title).collect()
    };
    let page = |page| ListQuery { page, limit: 3, ..ListQuery::default() };
    assert_eq!(titles(&page(1)), ["P6", "P5", "P4"]);
    assert_eq!(titles(&page(2)), ["Old page", "P3", "P2"]);
    assert_eq!(titles(&page(3)), ["P1", "P0"]);
    assert_eq!(titles(&page(4)), [""; 0]);
    assert_eq!(titles(&page(u32::MAX)), [""; 0]);
    assert_eq!(service.list(&page(3)).unwrap().total, 8);
    let all = ListQuery { status: None, limit: 100, ..ListQuery::default() };
    assert_eq!(titles(&all)[0], "Secret");
    assert_eq!(titles(&all).len(), 9);
    assert_eq!(titles(&ListQuery { kind: Some(Kind::Page), ..ListQuery::default() }), ["Old page"]);
    let drafts = ListQuery { status: Some(Status::Draft), tag: Some("X".into()), ..ListQuery::default() };
    assert_eq!(service.list(&drafts).unwrap().items[0].tags, ["x"]);
    assert_eq!(titles(&ListQuery { status: Some(Status::Published), ..drafts }), [""; 0]);
}

#[test]
fn a_list_out_of_range_is_refused_by_name() {
    let site = Site::new();
    let service = site.service();
    for (page, limit, wrong) in [(0, 20, "page"), (1, 0, "limit"), (1, 101, "limit")] {
        let error = service.list(&ListQuery { page, limit, ..ListQuery::default() }).unwrap_err();
        assert!(matches!(error, RepositoryError::Invalid { field, .. } if field == wrong), "{error}");
    }
}

#[test]
fn tags_count_published_articles_unless_asked() {
    let site = Site::new();
    let service = site.service();
    create(&service, post("One").tags(["Rust", "x"]));
    create(&service, post("Two").tags(["rust"]).status(Status::Draft));
    let counts = |tags: Vec<vayu_articles::article::TagCount>| -> Vec<(String, u64)> {
        tags.into_iter().map(|tag| (tag.label, tag.count)).collect()
    };
    assert_eq!(counts(service.tags().unwrap()), [("Rust".into(), 1), ("x".into(), 1)]);
    assert_eq!(counts(service.repository().tags(None).unwrap()), [("Rust".into(), 2), ("x".into(), 1)]);
    let drafts = service.repository().tags(Some(Status::Draft)).unwrap();
    assert_eq!(counts(drafts), [("rust".into(), 1)]);
}

#[test]
fn every_article_is_visited_once_in_bounded_pages() {
    let site = Site::new();
    let service = site.service();
    let bulk = (0..25).map(|n| post(&format!("P{n}")).tags([format!("t{n}")])).collect();
    service.create_bulk(bulk, &none()).unwrap();
    let repository = service.repository();
    let (mut visited, mut last) = (Vec::new(), None);
    loop {
        let page = repository.after(last.as_deref(), 10).unwrap();
        let Some(article) = page.last() else { break };
        assert!(page.len() <= 10);
        last = Some(article.id.clone());
        visited.extend(page);
    }
    assert_eq!(visited, site.articles());
    let large = "x".repeat(5 << 20);
    let bulk = (0..4).map(|n| NewArticle::new(format!("L{n}"), large.clone()).id(format!("zz{n}"))).collect();
    service.create_bulk(bulk, &none()).unwrap();
    assert_eq!(repository.after(Some("zz"), 100).unwrap().len(), 2, "a page ends at 8 MiB");
}

#[test]
fn the_site_version_moves_with_every_change_and_only_then() {
    let site = Site::new();
    let service = site.service();
    let version = || service.repository().site_version().unwrap();
    let mut seen = vec![version()];
    let mut moved = |what: &str| {
        let now = version();
        assert!(!seen.contains(&now), "{what}");
        assert!(now.to_string().bytes().all(|c| c.is_ascii_hexdigit() || c == b'-'));
        seen.push(now);
    };
    create(&service, post("One"));
    moved("creation");
    update(&service, "one", ArticlePatch::default().tags(["a"])).unwrap();
    moved("update");
    service.delete("one", Expected::any(), &none()).unwrap();
    moved("deletion");
    assert_eq!(version(), version());
    site.look().execute("DELETE FROM event_outbox", []).unwrap();
    assert!(version().to_string().starts_with("3-"), "retention does not set it back");
}

#[test]
fn bulk_import_completes_what_is_missing() {
    let site = Site::new();
    let service = site.service();
    let items = |range: std::ops::Range<u32>| -> Vec<(String, String, NewArticle)> {
        range.map(|n| (format!("{n}.md"), format!("h{n}"), post(&format!("Post {n}")))).collect()
    };
    service.import_bulk(items(0..60), &none()).unwrap();
    let mut all = items(0..100);
    all[99].2 = NewArticle::new("", "x");
    let results = service.import_bulk(all, &none()).unwrap();
    let count = |test: fn(&Result<Applied, WriteError>) -> bool| results.iter().filter(|result| test(result)).count();
    assert_eq!(count(|result| matches!(result, Ok(Applied::Kept { .. }))), 60);
    assert_eq!(count(|result| matches!(result, Ok(Applied::Created(_)))), 39);
    assert_eq!(count(Result::is_err), 1);
    assert_eq!(site.events().len(), 99);
    assert!(service.import("0.md", "h0", post("Post 0"), &none()).unwrap().article().is_some());
}
