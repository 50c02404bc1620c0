//! Many changes while readers fetch.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use vayu_articles::article::{ArticlePatch, Expected, Kind, NewArticle, Status};
use vayu_articles::clock::ManualClock;
use vayu_articles::queue::WriteError;
use vayu_articles::service::WriteContext;
use vayu_articles::sinks::cdn::{CdnShape, DELAY_MAX};
use vayu_articles::sinks::encode_segment;

use super::harness::{Fronted, SHAPES};
use super::serve_support::wait_until;

const MUTATIONS: usize = 200;
/// After each of them every page is compared: what a later change purges anyway must not hide what an earlier one missed.
const ROUNDS: usize = 20;
const READERS: usize = 3;
const TAGS: [&str; 8] = ["red", "Green", "naïve café", "a/b?c#d", "日本語", "x, y", "_5f", "tag"];
const SLUGS: usize = 10;

#[test]
fn after_200_random_mutations_while_readers_fetch_no_page_differs_from_the_database() {
    // At once: each waits for its second purge.
    thread::scope(|scope| SHAPES.into_iter().for_each(|shape| drop(scope.spawn(move || storm(shape)))));
}

fn storm(shape: CdnShape) {
    let clock = Arc::new(ManualClock::new(0));
    let Some(site) = Fronted::start_by(shape, Some(DELAY_MAX), clock.clone()) else { return };
    let seed = std::env::var("VARNISH_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos().into());
    eprintln!("VARNISH_SEED={seed} shape {}", shape.as_str());
    let paths: Vec<String> = paths().into_iter().collect();
    site.post("s0", "text", &["red"]);
    site.wait_for_lane("cdn");
    site.warm("/articles/s0");

    let (done, fetched, hits) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let may_fetch = RwLock::new(());
    thread::scope(|scope| {
        for reader in 0..READERS {
            let (site, paths, done, fetched, hits, may_fetch) = (&site, &paths, &done, &fetched, &hits, &may_fetch);
            scope.spawn(move || {
                let _end = End(done);
                let mut random = fastrand::Rng::with_seed(seed ^ (reader as u64 + 1));
                while !done.load(Ordering::Relaxed) {
                    let _fetching = may_fetch.read().unwrap();
                    let page = site.get(&paths[random.usize(..paths.len())]);
                    assert!(page.status == 200 || page.status == 404, "{page:?}");
                    fetched.fetch_add(1, Ordering::Relaxed);
                    hits.fetch_add(u64::from(page.is_hit()), Ordering::Relaxed);
                }
            });
        }
        // Whoever panics, all end.
        let _end = End(&done);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..ROUNDS {
            for _ in 0..MUTATIONS / ROUNDS {
                while !mutate(&site, &mut random) {}
                // Some states are there for a while, some are gone at once.
                let seen = fetched.load(Ordering::Relaxed) + random.u64(..20);
                wait_until("the readers go on", || {
                    fetched.load(Ordering::Relaxed) >= seen || done.load(Ordering::Relaxed)
                });
            }
            // What was under way has come; now its second purge. Then every page is looked at, and is in the cache for the
            // next round.
            let _nobody_fetches = may_fetch.write().unwrap();
            clock.set(i64::MAX);
            site.drain();
            clock.set(0);
            site.assert_fresh(paths.iter().map(String::as_str));
        }
    });
    assert!(hits.into_inner() > 0, "the readers were served from the cache");
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0);
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn slug(random: &mut fastrand::Rng) -> String {
    format!("s{}", random.usize(..SLUGS))
}

fn tags(random: &mut fastrand::Rng) -> Vec<&'static str> {
    TAGS.into_iter().filter(|_| random.u8(..3) == 0).collect()
}

/// `false` if it was refused: no such article, or the slug is taken.
fn mutate(site: &Fronted, random: &mut fastrand::Rng) -> bool {
    let context = WriteContext::default();
    let (at, text) = (slug(random), format!("text {}", random.u32(..)));
    let update = |patch| site.service.update(&at, patch, Expected::any(), &context);
    let written = match random.u8(..10) {
        0..=2 => {
            let kind = if random.u8(..5) == 0 { Kind::Page } else { Kind::Post };
            let status = if random.u8(..4) == 0 { Status::Draft } else { Status::Published };
            let article = NewArticle::new(format!("Title {text}"), text).slug(at).tags(tags(random));
            site.service.create(article.kind(kind).status(status), &context)
        }
        3 => update(ArticlePatch::default().content(text)),
        4 => update(ArticlePatch::default().title(text)),
        5 => update(ArticlePatch::default().tags(tags(random))),
        6 => update(ArticlePatch::default().slug(slug(random))),
        7 => update(ArticlePatch::default().status(if random.bool() { Status::Draft } else { Status::Published })),
        8 => update(
            ArticlePatch::default().slug(slug(random)).tags(tags(random)).content(text).status(Status::Published),
        ),
        _ => site.service.delete(&at, Expected::any(), &context),
    };
    match written {
        Ok(_) => true,
        Err(WriteError::Article(error)) if matches!(error.code(), "not_found" | "slug_taken") => false,
        Err(error) => panic!("{error}"),
    }
}

fn paths() -> BTreeSet<String> {
    let fixed =
        ["/", "/?page=2", "/feed.xml", "/sitemap.xml", "/api/v1/articles", "/api/v1/articles?limit=5", "/api/v1/tags"];
    let slugs = (0..SLUGS).flat_map(|number| [format!("/articles/s{number}"), format!("/api/v1/articles/s{number}")]);
    let of_tag = |tag: &str| {
        let key = encode_segment(&vayu_articles::article::tag_key(tag));
        [format!("/tags/{key}"), format!("/tags/{}", encode_segment(tag)), format!("/api/v1/articles?tag={key}")]
    };
    fixed.map(str::to_owned).into_iter().chain(slugs).chain(TAGS.into_iter().flat_map(of_tag)).collect()
}
