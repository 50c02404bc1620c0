//! One suite for every sink: whatever the relay may do to a sequence of events, the end is the same as if each had been delivered
//! once, in order, as it happened.
#![cfg(feature = "sinks")]

#[path = "sink_support/fake_cdn.rs"]
mod fake_cdn;
mod sink_support;
mod webhook_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use fake_cdn::FakeCdn;
use sink_support::Site;
use vayu_articles::article::{ArticlePatch, NewArticle, Status};
use vayu_articles::clock::SystemClock;
use vayu_articles::outbox::{Event, Handler};
use vayu_articles::sinks::cache::{CacheOptions, PageCache, PageHandler};
use vayu_articles::sinks::cdn::{CdnOptions, CdnPurge};
use vayu_articles::sinks::render::Renderer;
use vayu_articles::sinks::search::{SearchIndex, SearchOptions};
use vayu_articles::sinks::webhook::{Webhook, WebhookOptions};
use webhook_support::{Endpoint, SECRET};

/// A sink under test. `name` keeps apart what several of them store beside one site.
trait Sink: Sized {
    /// Whether it reads what the events say of articles, and refuses what says nothing.
    const READS_ARTICLES: bool = true;

    fn new(site: &Site, name: &str) -> Self;
    fn handler(&self) -> &dyn Handler;
    /// Everything the outside can see of the sink.
    fn state(&self) -> BTreeSet<String>;
}

struct Search(SearchIndex);

impl Sink for Search {
    fn new(site: &Site, name: &str) -> Self {
        Self(SearchIndex::new(site.path(&format!("{name}.db")), site.source(), SearchOptions::default()))
    }
    fn handler(&self) -> &dyn Handler {
        &self.0
    }
    fn state(&self) -> BTreeSet<String> {
        self.0.check().unwrap();
        let mut state = BTreeSet::from([format!("{} documents", self.0.len().unwrap())]);
        for word in ["text", "first", "second", "third", "secret", "red", "green", "blue", "renamed", "public"] {
            let page = self.0.search(word, 1, 100).unwrap();
            assert_eq!(page.total as usize, page.items.len());
            state.extend(
                page.items.iter().map(|hit| format!("{word}: {} {} {} {:?}", hit.id, hit.slug, hit.title, hit.tags)),
            );
        }
        state
    }
}

struct Cache(PageHandler, std::path::PathBuf);

impl Sink for Cache {
    fn new(site: &Site, name: &str) -> Self {
        let renderer = Renderer::default();
        let cache = PageCache::open(site.path(name), &renderer.fingerprint(), CacheOptions::default()).unwrap();
        Self(PageHandler::new(cache, site.source(), renderer), site.path(name))
    }
    fn handler(&self) -> &dyn Handler {
        &self.0
    }
    fn state(&self) -> BTreeSet<String> {
        fn walk(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, root, found);
                } else {
                    let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                    found.insert(format!("{} {text}", path.strip_prefix(root).unwrap().display()));
                }
            }
        }
        let mut found = BTreeSet::new();
        walk(&self.1, &self.1, &mut found);
        found
    }
}

struct Cdn(CdnPurge, FakeCdn);

impl Sink for Cdn {
    fn new(_: &Site, _: &str) -> Self {
        let fake = FakeCdn::start([]);
        let options = CdnOptions::new(fake.endpoint(), "https://site.test");
        Self(CdnPurge::new(options, SystemClock::shared()).unwrap(), fake)
    }
    fn handler(&self) -> &dyn Handler {
        &self.0
    }
    fn state(&self) -> BTreeSet<String> {
        self.1.purged()
    }
}

/// Hands the events on as they are. What counts is what a receiver makes of them that keeps to the documents: it skips an id that
/// it knows, and of each article it keeps the newest version.
struct Hook(Webhook, Endpoint);

impl Sink for Hook {
    const READS_ARTICLES: bool = false;

    fn new(_: &Site, _: &str) -> Self {
        let endpoint = Endpoint::start([]);
        let mut options = WebhookOptions::new("hook", endpoint.url(), [SECRET.parse().unwrap()]);
        options.allow_private = true;
        Self(Webhook::new(options, SystemClock::shared()).unwrap(), endpoint)
    }
    fn handler(&self) -> &dyn Handler {
        &self.0
    }
    fn state(&self) -> BTreeSet<String> {
        let (mut known, mut newest) = (BTreeSet::new(), BTreeMap::new());
        for call in self.1.calls() {
            if !known.insert(call.id().to_owned()) {
                continue;
            }
            let event = call.event();
            let (subject, version) = (event["subject"].to_string(), event["data"]["version"].as_i64().unwrap());
            if newest.get(&subject).is_none_or(|(kept, _)| *kept < version) {
                newest.insert(subject, (version, format!("{} {}", event["type"], event["data"])));
            }
        }
        newest
            .into_iter()
            .map(|(subject, (version, said))| format!("{subject} {version} {said}"))
            .chain(known)
            .collect()
    }
}

/// Changes of every kind, each delivered to `sink` as it happens.
fn history(site: &Site, sink: &dyn Handler) {
    let steps: [&dyn Fn(); 16] = [
        &|| drop(site.post("a", "First", "first text", &["red", "green"])),
        &|| drop(site.post("b", "Other", "other text", &["Tom Jones, Jr."])),
        &|| drop(site.update("a", ArticlePatch::default().content("second text").tags(["green", "blue"]))),
        &|| drop(site.create(NewArticle::new("Draft", "secret text").slug("d").status(Status::Draft))),
        &|| drop(site.update("a", ArticlePatch::default().slug("a2").title("Renamed"))),
        &|| drop(site.post("a", "Squatter", "takes the old slug", &[])),
        &|| drop(site.update("d", ArticlePatch::default().content("still secret"))),
        &|| drop(site.update("b", ArticlePatch::default().content("third text"))),
        &|| drop(site.delete("b")),
        &|| drop(site.update("a2", ArticlePatch::default().content("third text"))),
        &|| drop(site.create(NewArticle::new("Soon", "public text").slug("p").status(Status::Draft))),
        &|| drop(site.update("p", ArticlePatch::default().status(Status::Published))),
        &|| drop(site.post("w", "Withdrawn", "first text", &["red"])),
        &|| drop(site.update("w", ArticlePatch::default().status(Status::Draft))),
        &|| drop(site.post("b", "Back", "public again", &["red"])),
        &|| drop(site.delete("a")),
    ];
    for step in steps {
        step();
        sink.handle(&site.last_event()).unwrap();
    }
}

fn conforms<S: Sink>() {
    let site = Site::new();
    let in_order = S::new(&site, "in-order");
    history(&site, in_order.handler());
    let (expected, events) = (in_order.state(), site.events());
    assert!(expected.len() > 1, "the history leaves something to see");
    assert_eq!(events.len(), 16);

    let check = |name: &str, deliver: &dyn Fn(&dyn Handler)| {
        let sink = S::new(&site, name);
        deliver(sink.handler());
        assert_eq!(sink.state(), expected, "{name}");
    };
    let one_by_one = |handler: &dyn Handler, events: &mut dyn Iterator<Item = &Event>| {
        events.for_each(|event| handler.handle(event).unwrap());
    };
    check("late", &|handler| one_by_one(handler, &mut events.iter()));
    check("each-twice", &|handler| one_by_one(handler, &mut events.iter().flat_map(|event| [event, event])));
    check("all-twice", &|handler| one_by_one(handler, &mut events.iter().chain(&events)));
    check("backwards", &|handler| one_by_one(handler, &mut events.iter().rev()));
    check("older-after-newer", &|handler| {
        one_by_one(handler, &mut events.chunks(2).flat_map(|pair| pair.iter().rev()));
        one_by_one(handler, &mut events.iter().take(5));
    });
    check("deletions-first", &|handler| {
        let (gone, rest): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.event_type == "article.deleted.v1");
        one_by_one(handler, &mut gone.into_iter().chain(rest));
    });
    check("one-batch", &|handler| handler.handle_batch(&events).unwrap());
    check("batches", &|handler| {
        for size in [1, 2, 3, 5, 7] {
            events.chunks(size).for_each(|batch| handler.handle_batch(batch).unwrap());
        }
    });
    check("batch-backwards", &|handler| {
        let backwards: Vec<Event> = events.iter().rev().cloned().collect();
        handler.handle_batch(&backwards).unwrap();
    });
    check("a-batch-that-fails-then-each-alone", &|handler| {
        let mut broken = events.clone();
        broken[9].payload = "{}".to_owned();
        if S::READS_ARTICLES {
            assert!(handler.handle_batch(&broken).is_err());
            assert!(handler.handle(&broken[9]).is_err());
        }
        one_by_one(handler, &mut events.iter());
    });
    check("begun-anew-in-between", &|handler| {
        one_by_one(handler, &mut events.iter().take(8));
        handler.begin(&site.lane()).unwrap();
        one_by_one(handler, &mut events.iter());
    });
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..8 {
        let mut shuffled: Vec<&Event> = events.iter().chain(&events).collect();
        random.shuffle(&mut shuffled);
        check(&format!("shuffled-{round}"), &|handler| one_by_one(handler, &mut shuffled.iter().copied()));
    }
    // And the sink that saw it all as it happened may see it again.
    one_by_one(in_order.handler(), &mut events.iter());
    assert_eq!(in_order.state(), expected, "again");
}

#[test]
fn search_conforms() {
    conforms::<Search>();
}

#[test]
fn the_page_cache_conforms() {
    conforms::<Cache>();
}

#[test]
fn the_cdn_purge_conforms() {
    conforms::<Cdn>();
}

#[test]
fn the_webhook_conforms() {
    conforms::<Hook>();
}

#[test]
fn nothing_of_a_draft_or_of_the_past_is_left_in_any_sink() {
    let site = Site::new();
    let (search, cache, cdn) = (Search::new(&site, "s.db"), Cache::new(&site, "c"), Cdn::new(&site, ""));
    let all: Arc<dyn Handler> = Arc::new(|_: &Event| Ok(()));
    history(&site, &*all);
    for handler in [search.handler(), cache.handler(), cdn.handler()] {
        site.deliver_all(handler);
    }
    for state in [search.state(), cache.state()] {
        let text = state.into_iter().collect::<Vec<_>>().join("\n");
        for gone in ["secret", "Squatter", "second text", "Withdrawn"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
    }
    let purged = cdn.state();
    for path in
        ["/articles/a", "/articles/a2", "/tags/red", "/tags/blue", "/tags/tom%20jones%2C%20jr.", "/articles/w", "/"]
    {
        assert!(purged.contains(&format!("https://site.test{path}")), "{path}");
    }
    assert!(!purged.contains("https://site.test/articles/d"), "a draft's address is nobody's business");
}
