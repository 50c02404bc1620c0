//! The search index: what it finds, and that nothing makes it lie.

mod sink_support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sink_support::Site;
use vayu_articles::article::{Article, ArticlePatch, ArticleRepository, ArticleStamp, NewArticle, Status};
use vayu_articles::outbox::{DispatchError, Handler, LaneStart};
use vayu_articles::rusqlite::Connection;
use vayu_articles::sinks::ArticleSource;
use vayu_articles::sinks::search::{MAX_QUERY_CHARS, SearchError, SearchIndex, SearchOptions};

fn index(site: &Site) -> SearchIndex {
    SearchIndex::new(site.path("search.db"), site.source(), SearchOptions::default())
}

fn found(index: &SearchIndex, query: &str) -> Vec<String> {
    let page = index.search(query, 1, 100).unwrap_or_else(|error| panic!("{query:?}: {error}"));
    assert_eq!(page.total as usize, page.items.len(), "{query:?}");
    page.items.into_iter().map(|hit| hit.slug).collect()
}

#[test]
fn case_c30_any_text_is_searched_literally_and_never_an_error() {
    let site = Site::new();
    let texts = [
        "multi-agent",
        "a'b",
        "don't",
        "ubuntu 20.04",
        "Downloads/transcripts",
        "park.",
        "--error-on-warnings",
        "\"--error-on-warnings\"",
        "C++",
        "100%",
        "foo,bar",
        "#tag",
        "$5",
        "-rust",
        "{x",
    ];
    for (number, text) in texts.iter().enumerate() {
        site.post(&format!("text-{number}"), "A title", &format!("Before {text} after."), &[]);
    }
    let index = index(&site);
    site.deliver_all(&index);
    for (number, text) in texts.iter().enumerate() {
        assert!(found(&index, text).contains(&format!("text-{number}")), "{text:?}");
    }
    for nothing in ["\\", "\"", "*", "(", "NEAR(", "", " ", "\0", "'", "-", "^", ":", "\u{fdd0}"] {
        let nothing_found = found(&index, nothing);
        assert!(nothing_found.is_empty(), "{nothing:?} found {nothing_found:?}");
    }
    for syntax in ["title:x", "a OR", "NOT a", "a AND", "NEAR(a b, 2)", "a* b*", "^a", "a + b", "x\" OR \"after"] {
        found(&index, syntax);
    }
    assert!(matches!(index.search(&"é".repeat(MAX_QUERY_CHARS + 1), 1, 10), Err(SearchError::InvalidQuery { .. })));
}

#[test]
fn case_c32_text_without_spaces_is_found_by_any_part_of_it() {
    let site = Site::new();
    site.post("sandbox", "サンドボックス修正テスト", "サンドボックス修正テスト", &[]);
    site.post("step", "步2", "步2 重跑gen-itgc后50条悬空引用清零", &[]);
    site.post("thai", "ภาษา", "ฉันเรียนภาษาไทยทุกวัน", &[]);
    let index = index(&site);
    site.deliver_all(&index);
    assert_eq!(found(&index, "サンドボックス"), ["sandbox"]);
    for query in ["悬空", "悬空引用", "itgc", "gen-itgc", "50", "后50条", "重跑gen"] {
        assert_eq!(found(&index, query), ["step"], "{query}");
    }
    assert_eq!(found(&index, "ภาษาไทย"), ["thai"]);
    assert!(found(&index, "空悬").is_empty());
    let page = index.search("悬空引用", 1, 10).unwrap();
    assert_eq!(page.items[0].snippet, "步2 重跑gen-itgc后50条<mark>悬空引用</mark>清零");
    assert_eq!(page.items[0].title, "步2");
}

#[test]
fn case_c33_the_index_stays_in_step_whatever_is_repeated() {
    let site = Site::new();
    let index = index(&site);
    let twice = |index: &SearchIndex| {
        let event = site.last_event();
        for _ in 0..2 {
            index.handle(&event).unwrap();
            index.check().unwrap();
        }
    };
    site.post("one", "The one", "alpha beta", &["t1"]);
    twice(&index);
    assert_eq!((found(&index, "alpha"), found(&index, "t1")), (vec!["one".to_owned()], vec!["one".to_owned()]));
    site.update("one", ArticlePatch::default().content("gamma").tags(["t2"]));
    twice(&index);
    for gone in ["alpha", "t1"] {
        assert!(found(&index, gone).is_empty(), "{gone}");
    }
    assert_eq!((found(&index, "gamma"), found(&index, "t2")), (vec!["one".to_owned()], vec!["one".to_owned()]));
    for round in 0..3 {
        site.update("one", ArticlePatch::default().content(format!("gamma {round}")));
        twice(&index);
        assert_eq!(found(&index, "gamma"), ["one"]);
    }
    // Once more, out of order.
    for event in site.events().iter().rev() {
        index.handle(event).unwrap();
        index.check().unwrap();
        assert_eq!(found(&index, "gamma"), ["one"]);
        assert!(found(&index, "alpha").is_empty());
    }
    site.delete("one");
    twice(&index);
    for event in site.events() {
        index.handle(&event).unwrap();
        index.check().unwrap();
        for gone in ["alpha", "gamma", "t1", "t2", "one"] {
            assert!(found(&index, gone).is_empty(), "{gone} after {}", event.event_type);
        }
    }
}

#[test]
fn case_c42_late_older_event_does_not_bring_a_deleted_article_back() {
    let site = Site::new();
    site.post("x", "Exes", "first", &[]);
    site.update("x", ArticlePatch::default().content("second"));
    site.delete("x");
    site.post("y", "Ypsilon", "other", &[]);
    let (index, events) = (index(&site), site.events());
    for late in [3, 1, 2, 0, 1] {
        index.handle(&events[late]).unwrap();
        assert!(found(&index, "first").is_empty() && found(&index, "second").is_empty());
    }
    assert_eq!(found(&index, "other"), ["y"]);
}

#[test]
fn hits_are_ranked_paged_and_marked() {
    let site = Site::new();
    site.post("content", "Something else", "A word about `<crabs>` & shells", &[]);
    site.post("title", "On crabs", "Nothing `<b>here</b>`", &["Sea, shore"]);
    site.post("tag", "Third", "Nothing here", &["crabs"]);
    let index = index(&site);
    site.deliver_all(&index);
    let page = index.search("CRÀBS", 1, 2).unwrap();
    assert_eq!((page.total, page.page, page.limit, page.items.len()), (3, 1, 2, 2));
    assert_eq!(page.items[0].slug, "title");
    assert_eq!(page.items[0].title_html, "On <mark>crabs</mark>");
    assert_eq!(page.items[0].snippet, "Nothing &lt;b&gt;here&lt;/b&gt;");
    assert_eq!(page.items[0].tags, ["Sea, shore"]);
    assert!(page.items[0].score > page.items[1].score);
    let rest = index.search("crabs", 2, 2).unwrap();
    assert_eq!(rest.items[0].slug, "content");
    assert_eq!(rest.items[0].snippet, "A word about &lt;<mark>crabs</mark>&gt; &amp; shells");
    assert!(index.search("crabs", u32::MAX, 100).unwrap().items.is_empty());
    assert_eq!(found(&index, "\"Sea, shore\""), ["title"]);
    assert_eq!(found(&index, "crab*").len(), 3);
    assert!(found(&index, "crab").is_empty());
}

#[test]
#[cfg(feature = "sinks")]
fn snippets_show_what_a_reader_sees_and_no_markdown() {
    let site = Site::new();
    let content = "# Guide\n\nIt is *your* **choice**[^1].\n\n## Setup\n\n```toml\n[dependencies]\nvayu-articles = \"0.1\"\n```\n\n\
        - [ ] todo `list`\n\n| It | means |\n|----|-------|\n| Do | it    |\n\n\
        See [the *manual*](https://secret.test/address) ![a picture](/secret.png) <b class=\"secret\">bold</b>.\n\n[^1]: A note.\n";
    site.post("guide", "Guide", content, &[]);
    let index = index(&site);
    site.deliver_all(&index);
    let snippet = |query: &str| index.search(query, 1, 1).unwrap().items.remove(0).snippet;
    assert_eq!(
        snippet("vayu-articles"),
        "It is your choice. Setup [dependencies] <mark>vayu-articles</mark> = &quot;0.1&quot; todo list It means Do it \
         See the manual a picture bold. A note."
    );
    for seen in ["your choice", "vayu-articles = \"0.1\"", "[dependencies]", "manual", "picture", "bold.", "Guide"] {
        assert_eq!(found(&index, seen), ["guide"], "{seen}");
    }
    for unseen in ["secret", "toml", "https"] {
        assert!(found(&index, unseen).is_empty(), "{unseen}");
    }
}

#[test]
fn an_older_or_repeated_event_changes_nothing() {
    let site = Site::new();
    let watched = Arc::new(Watched::new(site.source()));
    let index = SearchIndex::new(site.path("search.db"), watched.clone(), SearchOptions::default());
    site.post("a", "Alpha", "one", &[]);
    index.handle(&site.last_event()).unwrap();
    site.update("a", ArticlePatch::default().content("two"));
    index.handle(&site.last_event()).unwrap();
    watched.reads.store(0, Ordering::SeqCst);
    for event in site.events().iter().rev() {
        index.handle(event).unwrap();
    }
    index.handle_batch(&site.events()).unwrap();
    assert_eq!(watched.reads.load(Ordering::SeqCst), 0, "the index holds that version already");
    assert_eq!(found(&index, "two"), ["a"]);
}

#[test]
fn a_draft_is_never_found() {
    let site = Site::new();
    let index = index(&site);
    site.create(NewArticle::new("Hidden", "secret text").slug("d").status(Status::Draft));
    site.deliver_all(&index);
    assert!(found(&index, "secret").is_empty());
    site.update("d", ArticlePatch::default().status(Status::Published));
    site.deliver_all(&index);
    assert_eq!(found(&index, "secret"), ["d"]);
    site.update("d", ArticlePatch::default().status(Status::Draft));
    site.deliver_all(&index);
    assert!(found(&index, "secret").is_empty());
    assert!(index.is_empty().unwrap());
}

#[test]
fn an_id_that_is_used_again_is_found_again() {
    let site = Site::new();
    let index = index(&site);
    let old = site.post("again", "Old", "alpha", &[]);
    site.update("again", ArticlePatch::default().content("beta"));
    site.delete("again");
    site.deliver_all(&index);
    site.create(NewArticle::new("New", "gamma").slug("again").id(old.id));
    index.handle(&site.last_event()).unwrap();
    assert_eq!(found(&index, "gamma"), ["again"]);
}

#[test]
fn a_missing_file_finds_nothing_and_is_built_when_the_lane_begins() {
    let site = Site::new();
    site.post("a", "Alpha", "text", &[]);
    let index = index(&site);
    assert!(found(&index, "alpha").is_empty());
    assert!(!site.path("search.db").exists());
    index.begin(&site.lane()).unwrap();
    assert_eq!(found(&index, "alpha"), ["a"]);
}

#[test]
fn a_file_that_is_behind_is_mended_and_one_in_step_is_left_alone() {
    let site = Site::new();
    for number in 0..300 {
        site.post(&format!("n{number}"), &format!("Number {number}"), "common text", &[]);
    }
    let index = index(&site);
    index.begin(&site.lane()).unwrap();
    let copy = site.path("copy.db");
    Connection::open(site.path("search.db")).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    site.update("n7", ArticlePatch::default().content("changed seven"));
    site.delete("n8");
    site.post("late", "Late", "newcomer", &[]);

    let watched = Arc::new(Watched::new(site.source()));
    let behind = SearchIndex::new(&copy, watched.clone(), SearchOptions::default());
    behind.begin(&site.lane()).unwrap();
    assert_eq!(watched.reads.load(Ordering::SeqCst), 2, "only what differs is read");
    assert_eq!(found(&behind, "changed"), ["n7"]);
    assert_eq!(found(&behind, "newcomer"), ["late"]);
    assert!(found(&behind, "\"Number 8\"").iter().all(|slug| slug != "n8"));
    assert_eq!(behind.len().unwrap(), 300);
    behind.check().unwrap();

    watched.reads.store(0, Ordering::SeqCst);
    watched.pages.store(0, Ordering::SeqCst);
    behind.begin(&site.lane()).unwrap();
    assert_eq!((watched.reads.load(Ordering::SeqCst), watched.pages.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_file_ahead_of_the_cursor_is_in_step_when_the_log_knows_its_event() {
    let site = Site::new();
    site.post("a", "Alpha", "text", &[]);
    let before = site.lane();
    let watched = Arc::new(Watched::new(site.source()));
    let index = SearchIndex::new(site.path("search.db"), watched.clone(), SearchOptions::default());
    index.begin(&before).unwrap();
    site.post("b", "Beta", "text", &[]);
    index.handle(&site.last_event()).unwrap();
    watched.pages.store(0, Ordering::SeqCst);
    // A crash came before the cursor was stored.
    index.begin(&before).unwrap();
    assert_eq!(watched.pages.load(Ordering::SeqCst), 0);
}

#[test]
fn a_file_of_another_database_is_built_anew_though_the_versions_agree() {
    let (site, other) = (Site::new(), Site::new());
    let article = site.post("a", "Alpha", "mine", &[]);
    other.create(NewArticle::new("Alpha", "theirs").slug("a").id(article.id));
    other.post("b", "Beta", "stranger", &[]);
    site.post("c", "Gamma", "neighbour", &[]);
    assert_eq!(site.last_event().id, other.last_event().id, "only the event's own id tells the logs apart");
    let theirs = SearchIndex::new(site.path("search.db"), other.source(), SearchOptions::default());
    theirs.begin(&other.lane()).unwrap();
    assert_eq!(found(&theirs, "theirs"), ["a"]);
    drop(theirs);

    let index = index(&site);
    index.begin(&site.lane()).unwrap();
    assert_eq!(found(&index, "mine"), ["a"]);
    assert!(found(&index, "theirs").is_empty() && found(&index, "stranger").is_empty());
    index.check().unwrap();
}

#[test]
fn an_index_of_texts_extracted_otherwise_is_built_anew_once() {
    let site = Site::new();
    site.post("a", "Alpha", "the words", &[]);
    site.post("b", "Beta", "more words", &[]);
    let watched = Arc::new(Watched::new(site.source()));
    let open = || SearchIndex::new(site.path("search.db"), watched.clone(), SearchOptions::default());
    let as_if_of_another_build = |more: &str| {
        let conn = Connection::open(site.path("search.db")).unwrap();
        conn.execute_batch(&format!("UPDATE fts SET content = 'strange'; UPDATE state SET revision = 99{more}"))
            .unwrap();
    };
    let built_anew_once = |index: &SearchIndex| {
        assert_eq!(found(index, "words").len(), 2);
        assert!(found(index, "strange").is_empty());
        index.check().unwrap();
        watched.pages.store(0, Ordering::SeqCst);
        index.begin(&site.lane()).unwrap();
        assert_eq!(watched.pages.load(Ordering::SeqCst), 0, "once is enough");
    };
    open().begin(&site.lane()).unwrap();

    as_if_of_another_build("");
    let index = open();
    assert_eq!(found(&index, "strange").len(), 2, "searches go on with the old texts");
    index.begin(&site.lane()).unwrap();
    built_anew_once(&index);

    // A rebuild that the other build could not end is begun again, not gone on with.
    let last = site.lane().last_event.unwrap();
    as_if_of_another_build(&format!(
        ", rebuild = 2, rebuild_after = '~', rebuild_id = {}, rebuild_event = '{}'",
        last.0, last.1
    ));
    index.begin(&site.lane()).unwrap();
    built_anew_once(&index);

    // Without a beginning: before the first event.
    as_if_of_another_build("");
    site.update("a", ArticlePatch::default().content("other words"));
    index.handle(&site.last_event()).unwrap();
    built_anew_once(&index);
}

#[test]
fn a_restored_backup_undoes_what_the_index_had_seen() {
    let site = Site::new();
    site.post("a", "Alpha", "before the backup", &[]);
    let backup = site.path("backup.db");
    let conn = Connection::open(site.path("articles.db")).unwrap();
    conn.execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
    let first = index(&site);
    site.update("a", ArticlePatch::default().content("the lost future"));
    site.post("b", "Beta", "never was", &[]);
    first.begin(&site.lane()).unwrap();
    assert_eq!(found(&first, "future"), ["a"]);

    let folder = tempfile::tempdir().unwrap();
    fs::copy(&backup, folder.path().join("articles.db")).unwrap();
    let restored = Site::open_in(folder, "articles.db");
    restored.update("a", ArticlePatch::default().content("another present"));
    let second = SearchIndex::new(site.path("search.db"), restored.source(), SearchOptions::default());
    second.begin(&restored.lane()).unwrap();
    assert_eq!(found(&second, "present"), ["a"]);
    assert!(found(&second, "future").is_empty() && found(&second, "\"never was\"").is_empty());
}

#[test]
fn an_interrupted_rebuild_goes_on_where_it_was_and_searches_go_on_meanwhile() {
    let site = Site::new();
    for number in 0..400 {
        site.post(&format!("n{number}"), "Number", "common", &[]);
    }
    let watched = Arc::new(Watched::new(site.source()));
    let index = SearchIndex::new(site.path("search.db"), watched.clone(), SearchOptions::default());
    watched.fail_after.store(200, Ordering::SeqCst);
    assert!(matches!(index.begin(&site.lane()), Err(DispatchError::Unavailable { .. })));
    let partial = found_total(&index, "common");
    assert!(partial > 0 && partial < 400, "{partial}");
    watched.fail_after.store(usize::MAX, Ordering::SeqCst);
    watched.reads.store(0, Ordering::SeqCst);
    index.begin(&site.lane()).unwrap();
    assert_eq!(found_total(&index, "common"), 400);
    assert_eq!(watched.reads.load(Ordering::SeqCst) as u64, 400 - partial, "goes on, does not begin again");
    // And an operator may have all of it again.
    let report = index.rebuild().unwrap();
    assert_eq!((report.seen, report.written, report.removed), (400, 400, 0));
    index.close();
    assert!(matches!(index.rebuild(), Err(SearchError::Unavailable { .. })));
}

#[test]
fn searches_during_a_rebuild_see_every_article_all_the_time() {
    let site = Site::new();
    for number in 0..300 {
        site.post(&format!("n{number}"), "Number", "common", &[]);
    }
    let index = index(&site);
    index.begin(&site.lane()).unwrap();
    std::thread::scope(|scope| {
        let rebuilding = scope.spawn(|| (0..3).map(|_| index.rebuild().unwrap().written).sum::<u64>());
        let mut searches = 0;
        while !rebuilding.is_finished() || searches == 0 {
            assert_eq!(found_total(&index, "common"), 300);
            searches += 1;
        }
        assert_eq!(rebuilding.join().unwrap(), 900);
    });
    index.check().unwrap();
}

#[test]
fn a_search_has_a_time_limit_of_its_own() {
    let site = Site::new();
    for number in 0..400 {
        site.post(&format!("n{number}"), "Number", "common", &[]);
    }
    let mut options = SearchOptions::default();
    (options.search_time, options.readers) = (std::time::Duration::ZERO, 1);
    let hurried = SearchIndex::new(site.path("search.db"), site.source(), options);
    hurried.begin(&site.lane()).unwrap();
    assert!(matches!(hurried.search("common", 1, 100), Err(SearchError::TooSlow)));
    // The limit of one search does not end the next use of its connection.
    let index = index(&site);
    assert_eq!((found_total(&index, "common"), index.len().unwrap()), (400, 400));
}

#[test]
fn a_damaged_file_is_set_aside_and_built_anew() {
    let site = Site::new();
    site.post("a", "Alpha", "text", &[]);
    fs::write(site.path("search.db"), "this is no database, only a long enough line of text").unwrap();
    let index = index(&site);
    assert!(matches!(index.search("alpha", 1, 10), Err(SearchError::Unavailable { .. })));
    index.begin(&site.lane()).unwrap();
    assert_eq!(found(&index, "alpha"), ["a"]);
    assert!(fs::read_to_string(site.path("search.db.damaged")).unwrap().starts_with("this is no database"));
}

#[test]
fn a_file_damaged_while_the_lane_runs_is_built_anew_by_the_next_deliveries() {
    let site = Site::new();
    for number in 0..50 {
        site.post(&format!("n{number}"), "Number", &"common words ".repeat(200), &[]);
    }
    let index = index(&site);
    index.begin(&site.lane()).unwrap();
    let path = site.path("search.db");
    Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // Everything but the first page.
    bytes[4096..].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    site.post("new", "Newcomer", "fresh", &[]);
    let event = site.last_event();
    let outcome = (0..3).map(|_| index.handle(&event)).find(Result::is_ok);
    assert!(outcome.is_some(), "healed within three deliveries");
    assert_eq!(found_total(&index, "common"), 50);
    assert_eq!(found(&index, "fresh"), ["new"]);
    index.check().unwrap();
}

#[test]
fn a_database_of_something_else_is_left_alone() {
    let site = Site::new();
    site.post("a", "Alpha", "text", &[]);
    let index = SearchIndex::new(site.path("articles.db"), site.source(), SearchOptions::default());
    assert!(matches!(index.begin(&site.lane()), Err(DispatchError::Unavailable { .. })));
    assert!(found(&index, "alpha").is_empty());
    assert!(site.service.get("a").unwrap().is_some());
}

#[test]
fn a_busy_or_full_index_is_unavailable_and_recovers() {
    let site = Site::new();
    site.post("a", "Alpha", "text", &[]);
    let index = index(&site);
    index.begin(&site.lane()).unwrap();
    site.post("b", "Beta", "text", &[]);
    let event = site.last_event();
    let blocker = Connection::open(site.path("search.db")).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(index.handle(&event), Err(DispatchError::Unavailable { .. })));
    assert_eq!(found(&index, "alpha"), ["a"], "readers do not wait for the writer");
    blocker.execute_batch("ROLLBACK").unwrap();
    index.handle(&event).unwrap();
    assert_eq!(found(&index, "beta"), ["b"]);
}

#[test]
fn what_is_no_article_event_is_poison() {
    let site = Site::new();
    site.post("a", "Alpha", "text", &[]);
    let mut event = site.last_event();
    event.payload = "{}".to_owned();
    assert!(matches!(index(&site).handle(&event), Err(DispatchError::Poison { .. })));
}

fn found_total(index: &SearchIndex, query: &str) -> u64 {
    index.search(query, 1, 1).unwrap().total
}

/// Counts what is asked, and fails after so many articles.
struct Watched {
    articles: Arc<ArticleRepository>,
    reads: AtomicUsize,
    pages: AtomicUsize,
    fail_after: AtomicUsize,
}

impl Watched {
    fn new(articles: Arc<ArticleRepository>) -> Self {
        Self { articles, reads: 0.into(), pages: 0.into(), fail_after: usize::MAX.into() }
    }
}

impl ArticleSource for Watched {
    fn article(&self, id: &str) -> Result<Option<Article>, DispatchError> {
        if self.reads.fetch_add(1, Ordering::SeqCst) >= self.fail_after.load(Ordering::SeqCst) {
            return Err(DispatchError::unavailable("as the test wants it"));
        }
        self.articles.article(id)
    }
    fn stamps_after(&self, after: Option<&str>, limit: u32) -> Result<Vec<ArticleStamp>, DispatchError> {
        self.pages.fetch_add(1, Ordering::SeqCst);
        ArticleSource::stamps_after(&*self.articles, after, limit)
    }
    fn event_id_at(&self, log_id: i64) -> Result<Option<String>, DispatchError> {
        self.articles.event_id_at(log_id)
    }
    fn site_version(&self) -> Result<String, DispatchError> {
        ArticleSource::site_version(&*self.articles)
    }
}

#[test]
fn a_lane_without_a_past_is_in_step_with_an_empty_log() {
    let site = Site::new();
    let index = index(&site);
    index.begin(&LaneStart::new(0, None)).unwrap();
    index.begin(&LaneStart::new(0, None)).unwrap();
    assert!(index.is_empty().unwrap());
}

#[test]
fn one_long_article_that_repeats_a_word_does_not_keep_searches_busy() {
    let site = Site::new();
    let longest = "x ".repeat(vayu_articles::article::MAX_CONTENT_BYTES / 2);
    site.post("long", "X x", &longest, &[]);
    site.post("short", "Short", "One x here", &[]);
    let index = index(&site);
    site.deliver_all(&index);
    for query in ["x", &"x ".repeat(32), "x x-x x*"] {
        let page = index.search(query, 1, 100).unwrap();
        assert!(page.items.iter().any(|hit| hit.slug == "long"), "{query}");
        for hit in &page.items {
            assert!(hit.snippet.contains("<mark>x") && hit.snippet.len() < 2_000, "{query}: {}", hit.snippet);
        }
    }
}
