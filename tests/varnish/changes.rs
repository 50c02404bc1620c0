//! One change after the other, each over pages that Varnish has, in every shape of a purge.

use std::time::{SystemTime, UNIX_EPOCH};

use vayu_articles::article::{ArticlePatch, Kind, NewArticle, Status};
use vayu_articles::service::WriteContext;
use vayu_articles::sinks::cdn::CdnShape;

use super::harness::{Fronted, SHAPES, wait_until};

/// What is kept whatever the shape.
const LISTS: [&str; 5] = ["/", "/feed.xml", "/sitemap.xml", "/api/v1/articles", "/api/v1/tags"];

fn in_each_shape(check: impl Fn(&Fronted)) {
    for shape in SHAPES {
        // The second purge would hide what the first one misses.
        let Some(site) = Fronted::start(shape, None) else { return };
        eprintln!("shape {}", shape.as_str());
        check(&site);
    }
}

fn text(text: &str) -> ArticlePatch {
    ArticlePatch::default().content(text)
}

#[test]
fn after_an_update_no_page_shows_the_old_text() {
    in_each_shape(|site| {
        site.post("fox", "old fur", &["red", "Größe & Maß, \"quoted\""]);
        site.drain();
        let of_article = [
            "/articles/fox",
            "/api/v1/articles/fox",
            "/tags/red",
            "/tags/gr%C3%B6%C3%9Fe%20%26%20ma%C3%9F%2C%20%22quoted%22",
        ];
        let paths: Vec<&str> = of_article.into_iter().chain(LISTS).collect();
        for path in &paths {
            assert_eq!(site.warm(path).status, 200, "{path}");
        }
        site.update("fox", text("new fur").title("A new title"));
        site.drain();
        site.assert_fresh(paths);
        assert!(site.warm("/articles/fox").body.contains("new fur"));
        assert!(site.warm("/tags/red").body.contains("A new title"));
    });
}

#[test]
fn case_c37_after_a_rename_the_old_address_is_gone_and_the_new_one_there() {
    in_each_shape(|site| {
        site.post("a", "text", &["x", "y"]);
        site.drain();
        let paths =
            ["/articles/a", "/articles/b", "/api/v1/articles/a", "/api/v1/articles/b", "/tags/x", "/tags/y", "/tags/z"];
        let before: Vec<u16> = paths.iter().map(|path| site.warm(path).status).collect();
        assert_eq!(before, [200, 404, 200, 404, 200, 200, 404]);
        site.update("a", ArticlePatch::default().slug("b").tags(["y", "z"]));
        site.drain();
        let after: Vec<u16> = paths.iter().map(|path| site.get(path).status).collect();
        assert_eq!(after, [404, 200, 404, 200, 404, 200, 200]);
        site.assert_fresh(paths.into_iter().chain(LISTS));

        for path in paths {
            site.warm(path);
        }
        site.delete("b");
        site.drain();
        assert!(paths.iter().all(|path| site.get(path).status == 404));
        site.assert_fresh(LISTS);

        // The old address again, over a 404 that is kept.
        assert_eq!(site.warm("/articles/a").status, 404);
        site.post("a", "another", &["x"]);
        site.drain();
        assert_eq!(site.get("/articles/a").status, 200);
        site.assert_fresh(paths.into_iter().chain(LISTS));
    });
}

#[test]
fn a_draft_is_hidden_again_and_comes_back_when_its_time_has_come() {
    in_each_shape(|site| {
        site.post("d", "shown", &["t"]);
        site.drain();
        let paths = ["/articles/d", "/api/v1/articles/d", "/tags/t", "/", "/feed.xml", "/sitemap.xml"];
        for path in paths {
            assert_eq!(site.warm(path).status, 200);
        }
        site.update("d", ArticlePatch::default().status(Status::Draft));
        site.drain();
        for path in &paths[..3] {
            assert_eq!(site.warm(path).status, 404, "{path}");
        }
        site.assert_fresh(paths);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        site.update("d", ArticlePatch::default().publish_at(i64::try_from(now).unwrap() + 300));
        wait_until("it is published", || site.origin("/articles/d").status == 200);
        site.drain();
        site.assert_fresh(paths);
        assert_eq!(site.get("/articles/d").status, 200);
    });
}

#[test]
fn a_page_of_another_kind_and_a_list_beyond_its_first_page_are_fresh_too() {
    in_each_shape(|site| {
        for number in 0..21 {
            site.post(&format!("p{number}"), "text", &["many"]);
        }
        let about = NewArticle::new("About", "us").slug("about").kind(Kind::Page).tags(["many"]);
        site.service.create(about, &WriteContext::default()).unwrap();
        site.drain();
        let paths = [
            "/?page=2",
            "/tags/many?page=2",
            "/api/v1/articles?page=2",
            "/api/v1/articles?tag=many",
            "/articles/about",
            "/",
        ];
        for path in paths {
            assert_eq!(site.get(path).status, 200);
        }
        site.delete("p20");
        site.update("about", text("them"));
        site.drain();
        site.assert_fresh(paths);
        assert_eq!(site.get("/tags/many?page=2").status, 200);
        site.delete("p19");
        site.delete("about");
        site.drain();
        site.assert_fresh(paths);
        assert_eq!(site.get("/?page=2").status, 404);
    });
}

#[test]
fn case_c35_an_article_with_more_tags_than_a_call_takes_leaves_no_tag_page_behind() {
    in_each_shape(|site| {
        let tags =
            |from: usize| (from..from + 20).map(|number| format!("{}{number}", "ä".repeat(97))).collect::<Vec<_>>();
        site.post("many", "text", &[]);
        site.update("many", ArticlePatch::default().tags(tags(0)));
        site.drain();
        let path = |tag: &String| format!("/tags/{}", vayu_articles::sinks::encode_segment(tag));
        let paths: Vec<String> = tags(0).iter().chain(&tags(20)).map(path).collect();
        let before = |page: usize| if page < 20 { 200 } else { 404 };
        for (number, path) in paths.iter().enumerate() {
            assert_eq!(site.warm(path).status, before(number));
        }
        site.update("many", ArticlePatch::default().tags(tags(20)));
        site.drain();
        for (number, path) in paths.iter().enumerate() {
            assert_eq!(site.get(path).status, before(39 - number), "{path}");
        }
    });
}

#[test]
fn with_purges_by_address_only_what_they_name_is_kept() {
    for shape in [CdnShape::Purge, CdnShape::Ban] {
        let Some(site) = Fronted::start(shape, None) else { return };
        site.post("a", "text", &["Rust"]);
        site.drain();
        site.warm("/articles/a");
        for path in ["/?page=1", "/tags/Rust", "/articles/%61", "/articles/a?x=1", "/api/v1/articles?limit=1"] {
            assert_eq!(site.get(path).status, 200, "{path}");
            assert!(!site.get(path).is_hit(), "{path} would stay when it goes stale");
        }
    }
}
