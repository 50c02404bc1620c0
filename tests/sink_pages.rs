//! Rendered pages and their cache: never stale, never unsafe, never in the way.
#![cfg(feature = "sinks")]

mod sink_support;

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use sink_support::Site;
use vayu_articles::article::{ArticlePatch, ArticleRepository, ArticleStamp, ListQuery, NewArticle, Status};
use vayu_articles::service::WriteContext;
use vayu_articles::sinks::cache::{CacheOptions, PageCache, PageHandler, PageKey};
use vayu_articles::sinks::render::{Renderer, SITE_CSS, SITE_CSS_PATH, SiteInfo};
use vayu_articles::sinks::search::{SearchIndex, SearchOptions};

struct Pages {
    cache: PageCache,
    handler: PageHandler,
    renderer: Renderer,
    articles: ArticleRepository,
}

impl Pages {
    fn new(site: &Site) -> Self {
        let renderer = Renderer::default();
        let cache = PageCache::open(site.path("cache"), &renderer.fingerprint(), CacheOptions::default()).unwrap();
        let handler = PageHandler::new(cache.clone(), site.source(), renderer.clone());
        Self { cache, handler, renderer, articles: ArticleRepository::new(site.database.clone()) }
    }

    /// As a server answers: the present state first, then the page of that state.
    fn get(&self, slug: &str) -> Option<String> {
        let article = self.articles.by_slug(slug).unwrap().filter(|article| article.status == Status::Published)?;
        let stamp = ArticleStamp::of(&article);
        let page = self
            .cache
            .get_or_render(&PageKey::Article(&stamp), || Ok::<_, Infallible>(self.renderer.article(&article)));
        Some(String::from_utf8(page.unwrap()).unwrap())
    }

    fn index(&self) -> String {
        let site = self.articles.site_version().unwrap().to_string();
        let key = PageKey::Listing { name: "/", site: &site };
        let page = self.cache.get_or_render(&key, || {
            let list = self.articles.list(&ListQuery::default()).unwrap();
            Ok::<_, Infallible>(self.renderer.index(&list, &[], &self.articles.tags(Some(Status::Published)).unwrap()))
        });
        String::from_utf8(page.unwrap()).unwrap()
    }
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files_under(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn case_c37_an_old_slug_is_gone_at_once_whenever_the_event_comes() {
    let site = Site::new();
    let pages = Pages::new(&site);
    let first = site.post("a", "Title", "old text", &["x", "y"]);
    site.deliver_all(&pages.handler);
    assert!(pages.get("a").unwrap().contains("old text"));
    assert!(pages.index().contains("/articles/a"));
    site.update("a", ArticlePatch::default().slug("b").tags(["y", "z"]));
    // Nothing was delivered yet.
    assert_eq!(pages.get("a"), None);
    assert!(pages.get("b").unwrap().contains("/tags/z"));
    assert!(!pages.index().contains("/articles/a\""));
    for _ in 0..2 {
        site.deliver_all(&pages.handler);
        assert_eq!(pages.cache.get(&PageKey::Article(&ArticleStamp::of(&first))), None, "the old file is deleted");
        assert_eq!(pages.get("a"), None);
    }
    // Another article takes the old slug, then the first event comes once more.
    site.post("a", "Another", "new owner", &[]);
    site.deliver_all(&pages.handler);
    assert!(pages.get("a").unwrap().contains("new owner"));
    site.delete("b");
    assert_eq!(pages.get("b"), None);
    site.deliver_all(&pages.handler);
    assert_eq!(files_under(&site.path("cache")).len(), 1, "one article is left, the lists of earlier states are gone");
}

/// A reader is held between its look at the database and its write to the cache.
fn case_c39(change: impl FnOnce(&Site), expected: Option<&str>) {
    let site = Site::new();
    let pages = Pages::new(&site);
    site.post("a", "Title", "old text", &[]);
    let (read, has_read) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let reader = &pages;
    thread::scope(|scope| {
        let slow = scope.spawn(move || {
            let article = reader.articles.by_slug("a").unwrap().unwrap();
            let stamp = ArticleStamp::of(&article);
            let page = reader.cache.get_or_render(&PageKey::Article(&stamp), || {
                read.send(()).unwrap();
                released.recv().unwrap();
                Ok::<_, Infallible>(reader.renderer.article(&article))
            });
            String::from_utf8(page.unwrap()).unwrap()
        });
        has_read.recv().unwrap();
        change(&site);
        site.deliver_all(&pages.handler);
        release.send(()).unwrap();
        assert!(slow.join().unwrap().contains("old text"));
    });
    for _ in 0..2 {
        match expected {
            Some(text) => assert!(pages.get("a").unwrap().contains(text)),
            None => assert_eq!(pages.get("a"), None),
        }
        site.deliver_all(&pages.handler);
    }
}

#[test]
fn case_c39_a_slow_reader_cannot_bring_back_old_text() {
    case_c39(|site| drop(site.update("a", ArticlePatch::default().content("new text"))), Some("new text"));
}

#[test]
fn case_c39_a_slow_reader_cannot_bring_back_a_deleted_article() {
    case_c39(|site| drop(site.delete("a")), None);
}

#[test]
fn a_restored_backup_serves_its_own_text_under_the_same_version() {
    let site = Site::new();
    let pages = Pages::new(&site);
    site.post("a", "Title", "one", &[]);
    let folder = tempfile::tempdir().unwrap();
    let conn = vayu_articles::rusqlite::Connection::open(site.path("articles.db")).unwrap();
    conn.execute("VACUUM INTO ?1", [folder.path().join("articles.db").to_str().unwrap()]).unwrap();
    site.update("a", ArticlePatch::default().content("lost future"));
    site.deliver_all(&pages.handler);
    let lost_index = pages.index();
    assert!(pages.get("a").unwrap().contains("lost future"));

    let restored = Site::open_in(folder, "articles.db");
    restored.clock.advance(60_000);
    restored.update("a", ArticlePatch::default().content("other present"));
    let articles = ArticleRepository::new(restored.database.clone());
    let after = Pages { articles, ..pages };
    assert!(after.get("a").unwrap().contains("other present"));
    assert_eq!(after.articles.by_slug("a").unwrap().unwrap().version, 2, "the version agrees with the lost one");
    assert!(lost_index.contains("/articles/a") && after.index().contains("/articles/a"));
}

#[test]
fn a_restored_backup_serves_its_own_text_under_the_same_version_and_time() {
    let site = Site::new();
    let pages = Pages::new(&site);
    // An import brings its times along.
    let import = |site: &Site, text: &str| {
        let article = NewArticle::new("Title", text).slug("a").times(1_000, 2_000);
        site.service.import("posts/a.md", text, article, &WriteContext::default()).unwrap();
    };
    import(&site, "one");
    let folder = tempfile::tempdir().unwrap();
    let conn = vayu_articles::rusqlite::Connection::open(site.path("articles.db")).unwrap();
    conn.execute("VACUUM INTO ?1", [folder.path().join("articles.db").to_str().unwrap()]).unwrap();
    import(&site, "lost future");
    site.deliver_all(&pages.handler);
    assert!(pages.get("a").unwrap().contains("lost future"));

    let restored = Site::open_in(folder, "articles.db");
    import(&restored, "other present");
    let articles = ArticleRepository::new(restored.database.clone());
    let after = Pages { articles, ..pages };
    let article = after.articles.by_slug("a").unwrap().unwrap();
    assert_eq!((article.version, article.updated_at), (2, 2_000), "as in the lost future");
    assert!(after.get("a").unwrap().contains("other present"));
}

#[test]
fn a_draft_has_no_page() {
    let site = Site::new();
    let pages = Pages::new(&site);
    site.create(NewArticle::new("Hidden", "secret").slug("d").status(Status::Draft));
    site.deliver_all(&pages.handler);
    assert!(files_under(&site.path("cache")).is_empty());
    site.update("d", ArticlePatch::default().status(Status::Published));
    site.deliver_all(&pages.handler);
    assert_eq!(files_under(&site.path("cache")).len(), 1);
    site.update("d", ArticlePatch::default().status(Status::Draft));
    site.deliver_all(&pages.handler);
    assert!(files_under(&site.path("cache")).is_empty());
    assert_eq!(pages.get("d"), None);
}

#[test]
fn the_handler_renders_ahead_and_the_reader_finds_it() {
    let site = Site::new();
    let pages = Pages::new(&site);
    let article = site.post("a", "Title", "text", &[]);
    site.deliver_all(&pages.handler);
    let key = ArticleStamp::of(&article);
    let page = pages.cache.get_or_render(&PageKey::Article(&key), || Err("not rendered again")).unwrap();
    assert_eq!(page, pages.renderer.article(&article).into_bytes());
}

#[test]
fn no_name_leads_out_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let cache = PageCache::open(folder.path().join("cache"), "../x", CacheOptions::default()).unwrap();
    for hostile in
        ["../../etc/passwd", "/etc/passwd", "a/b", "..", ".", "", "a\0b", "CON", "x.1.2", &"y".repeat(10_000)]
    {
        let stamp = |id: &str| ArticleStamp { id: id.to_owned(), version: 1, updated_at: -5, mark: None };
        assert!(cache.put(&PageKey::Article(&stamp(hostile)), hostile), "{hostile:?}");
        assert!(cache.put(&PageKey::Listing { name: hostile, site: hostile }, "list"), "{hostile:?}");
        assert_eq!(cache.get(&PageKey::Article(&stamp(hostile))).unwrap(), hostile.as_bytes());
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["cache"]);
    // What looks alike is not the same article.
    let (a, b) = ("x".to_owned(), "x.1".to_owned());
    for id in [&a, &b] {
        cache.put(&PageKey::Article(&ArticleStamp { id: id.clone(), version: 1, updated_at: 1, mark: None }), id);
    }
    assert_eq!(cache.remove_article(&a, None).unwrap(), 1);
    assert!(cache.get(&PageKey::Article(&ArticleStamp { id: b, version: 1, updated_at: 1, mark: None })).is_some());
}

#[test]
fn trouble_with_the_folder_fails_no_request_and_no_event() {
    let site = Site::new();
    let pages = Pages::new(&site);
    site.post("a", "Title", "text", &[]);
    fs::remove_dir_all(site.path("cache")).unwrap();
    fs::write(site.path("cache"), "a file in the folder's place").unwrap();
    assert!(pages.get("a").unwrap().contains("text"));
    site.deliver_all(&pages.handler);
    fs::remove_file(site.path("cache")).unwrap();
    assert!(pages.get("a").unwrap().contains("text"));
    assert_eq!(files_under(&site.path("cache")).len(), 1, "works again by itself");
}

#[test]
fn the_folder_stays_within_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = CacheOptions::default();
    (options.max_files, options.max_listings, options.max_page_bytes) = (256, 3, 1_000);
    let cache = PageCache::open(folder.path(), "f", options).unwrap();
    for number in 0..12_000 {
        let stamp = ArticleStamp { id: format!("id-{number}"), version: 1, updated_at: 1, mark: None };
        cache.put(&PageKey::Article(&stamp), "page");
    }
    let kept = files_under(&folder.path().join("pages-f/articles")).len();
    assert!(kept < 10_000, "256 wanted, up to 32 more in each of 256 folders allowed, {kept} found");
    for number in 0..10 {
        cache.put(&PageKey::Listing { name: &number.to_string(), site: "1" }, "list");
    }
    let lists = files_under(&folder.path().join("pages-f/lists"));
    assert_eq!(lists.len(), 3);
    let stamp = ArticleStamp { id: "long".to_owned(), version: 1, updated_at: 1, mark: None };
    assert!(!cache.put(&PageKey::Article(&stamp), &"x".repeat(1_001)));
    assert!(cache.put(&PageKey::Listing { name: "1", site: "2" }, "list"));
    assert_eq!(cache.remove_listings_but("2", 2).unwrap(), 2);
    assert_eq!(cache.remove_listings_but("2", 2).unwrap(), 1);
    assert!(cache.get(&PageKey::Listing { name: "1", site: "2" }).is_some());
}

#[test]
fn a_start_clears_away_what_earlier_runs_left() {
    let folder = tempfile::tempdir().unwrap();
    let old = PageCache::open(folder.path(), "old", CacheOptions::default()).unwrap();
    let stamp = ArticleStamp { id: "a".to_owned(), version: 1, updated_at: 1, mark: None };
    old.put(&PageKey::Article(&stamp), "old look");
    let cache = PageCache::open(folder.path(), "new", CacheOptions::default()).unwrap();
    assert_eq!(cache.get(&PageKey::Article(&stamp)), None, "a page of another look is not served");
    cache.put(&PageKey::Article(&stamp), "new look");
    fs::write(folder.path().join("pages-new/tmp/half"), "<!doc").unwrap();
    fs::write(folder.path().join("somebody-elses"), "stays").unwrap();
    cache.tidy().unwrap();
    assert_eq!(files_under(folder.path()).len(), 2);
    assert_eq!(cache.get(&PageKey::Article(&stamp)).unwrap(), b"new look");
}

#[test]
fn pages_are_whole_documents_in_which_nothing_runs() {
    let site = Site::new();
    let evil = "\"><script>alert('x')</script>&";
    site.create(NewArticle::new(evil, format!("# Heading\n\n{evil}")).slug("evil").tags([
        evil,
        "a/b c",
        "Tom Jones, Jr.",
    ]));
    for number in 0..25 {
        site.post(&format!("n{number}"), &format!("Number {number}"), "text", &["many"]);
    }
    let index = SearchIndex::new(site.path("search.db"), site.source(), SearchOptions::default());
    site.deliver_all(&index);
    let mut info = SiteInfo::default();
    (info.name, info.tagline, info.lang) = (evil.to_owned(), evil.to_owned(), "\"x".to_owned());
    let (renderer, articles) = (Renderer::new(info), ArticleRepository::new(site.database.clone()));
    let list = articles.list(&ListQuery { page: 2, ..ListQuery::default() }).unwrap();
    let tagged = articles.list(&ListQuery { tag: Some(evil.to_owned()), ..ListQuery::default() }).unwrap();
    let found = index.search("alert", 1, 10).unwrap();
    assert_eq!(found.total, 1);
    let pages = [
        renderer.article(&articles.by_slug("evil").unwrap().unwrap()),
        renderer.index(&list, &[], &articles.tags(None).unwrap()),
        renderer.tag(evil, &tagged, &[]),
        renderer.search(evil, Some(&found)),
        renderer.search(evil, None),
        renderer.error(evil, evil),
        renderer.not_found(),
    ];
    for page in &pages {
        assert!(page.starts_with("<!doctype html>\n<html lang=\"&quot;x\">") && page.ends_with("</html>\n"));
        for bad in ["<script", " style=", " onclick", "<style"] {
            assert!(!page.contains(bad), "{bad} in {page}");
        }
        assert_eq!(page.matches("<h1").count(), 1, "{page}");
        assert!(page.contains(&format!("<link rel=\"stylesheet\" href=\"{SITE_CSS_PATH}?v=")));
        assert!(page.contains("<main id=\"main\">") && page.contains("name=\"viewport\""));
    }
    assert!(pages[0].contains("/tags/a%2Fb%20c\"") && pages[0].contains("/tags/tom%20jones%2C%20jr.\""));
    assert!(pages[1].contains("href=\"/\">← Newer") && pages[1].contains("Page 2 of 2"));
    assert!(SITE_CSS.contains("prefers-color-scheme: dark"));
}
