//! The same work behind much history: a long log, dead letters, waiting rows, many articles.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{Event, Relay};
use vayu_articles::rusqlite::Connection;
use vayu_articles::service::WriteContext;

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, median, rates};
use crate::input;
use crate::place::{self, LONG, Site, soon};
use crate::sizes::Sizes;
use crate::write::at_once;

const NOW_MS: i64 = 1_767_225_600_000;
const LANE: &str = "lane";
const POLLS: usize = 200;
/// Live events of a read, taken in at once.
const LIVE: usize = 20_000;
const TURNS: usize = 4;

/// Articles with their tags and events, in one transaction.
const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
    INSERT INTO articles (id, kind, status, slug, title, version, created_at, updated_at, content) \
        SELECT printf('0199a3b2-0000-7000-8000-%012d', i), 'post', 'published', \
        printf('standing-%d', i), printf('Standing %d', i), 1, 1767225600000 + i, 1767225600000 + i, 'Short.' FROM n; \
    INSERT INTO article_tags SELECT id, 'topic-' || (rowid % 50), 0, 'topic-' || (rowid % 50) FROM articles; \
    INSERT INTO event_outbox (event_type, event_key, payload, occurred_at) \
        SELECT 'article.created.v1', id, json_object('id', id, 'version', 1, 'kind', kind, 'slug', slug, 'title', title, \
        'status', status, 'tags', json_array('topic-' || (rowid % 50)), 'previous', NULL), \
        CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM articles";
/// `?1` dead letters, and as many rows that wait behind one of 100 heads whose turn has not come.
const FAIL: &str = "INSERT INTO deliveries (outbox_id, handler, event_key, state, attempts, reason, created_at, updated_at) \
        SELECT id, 'lane', event_key, 'dead_letter', 3, 'told to', 1, 1 FROM event_outbox ORDER BY id LIMIT ?1; \
    INSERT INTO deliveries (outbox_id, handler, event_key, state, attempts, next_attempt_at, created_at, updated_at) \
        SELECT id, 'lane', 'key-' || (row_number() OVER () % 100), \
            CASE WHEN row_number() OVER () <= 100 THEN 'retry' ELSE 'waiting' END, 1, \
            CASE WHEN row_number() OVER () <= 100 THEN 1767225600000 + 60000 END, 1, 1 \
        FROM (SELECT id FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT ?1)";

/// An idle poll, and reading the same live events.
pub fn behind_a_log(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let (mut polls, mut reads, mut poll_us) = (Vec::new(), Vec::new(), Vec::new());
    let folder = place::folder()?;
    let empty = Lane::open(folder.path(), "empty.db", 0, 0)?;
    let full = Lane::open(folder.path(), "full.db", sizes.behind, sizes.exceptions)?;
    for _ in 0..RUNS {
        let (mut of_empty, mut of_full) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            of_empty.extend(empty.polls(POLLS / TURNS));
            of_full.extend(full.polls(POLLS / TURNS));
        }
        polls.push(median(&of_full) / median(&of_empty));
        poll_us.push(median(&of_full));
        let (mut of_empty, mut of_full) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..TURNS {
            of_empty += empty.read_live()?;
            of_full += full.read_live()?;
        }
        reads.push(of_full.as_secs_f64() / of_empty.as_secs_f64());
    }
    empty.close()?;
    full.close()?;
    let size = format!("{} events, {} dead letters, {1} waiting", sizes.behind, sizes.exceptions);
    let live = format!("{LIVE} live events behind {size}");
    Ok(vec![
        Figure::new("scale.poll.ratio", "ratio", "<= 1.5", size, polls).note("us", &poll_us),
        Figure::new("scale.read.ratio", "ratio", "<= 1.5", live, reads),
    ])
}

/// The write rate on many articles against an empty database; with the large sizes only.
pub fn write(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    if !sizes.full {
        return Ok(Vec::new());
    }
    let folder = place::folder()?;
    let empty = Site::open(folder.path(), "empty.db")?;
    let full = Site::open(folder.path(), "full.db")?;
    fill_articles(&full, sizes.behind)?;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let numbers = |turn: usize| {
            let first = (run * TURNS + turn) * sizes.callers64 / TURNS;
            first..first + sizes.callers64 / TURNS
        };
        let mut sides = Sides { items: sizes.callers64, ..Sides::default() };
        for turn in 0..TURNS {
            sides.baseline += write_by_64(&empty, numbers(turn))?;
            sides.product += write_by_64(&full, numbers(turn))?;
        }
        runs.push(sides);
    }
    empty.close()?;
    full.close()?;
    let size = format!("{} articles on {}", sizes.callers64, sizes.behind);
    Ok(vec![rates("scale.write.ratio", ">= 0.70", size, &runs)])
}

fn write_by_64(site: &Site, numbers: std::ops::Range<usize>) -> Outcome<Duration> {
    let step = numbers.len().div_ceil(64).max(1);
    let shares =
        numbers.clone().step_by(step).map(|start| input::articles("scale", start..(start + step).min(numbers.end)));
    at_once(shares.collect(), |share| {
        for article in share {
            site.service.create(article, &WriteContext::default())?;
        }
        Ok(())
    })
}

/// Short articles with their events; nothing when there are none to be.
pub fn fill_articles(site: &Site, articles: usize) -> Outcome<()> {
    run_on_all(site, FILL, articles)
}

/// Runs statements that have one number or none each, in one transaction.
fn run_on_all(site: &Site, statements: &str, number: usize) -> Outcome<()> {
    if number == 0 {
        return Ok(());
    }
    let connection = Connection::open(&site.path)?;
    connection.busy_timeout(LONG)?;
    let tx = connection.unchecked_transaction()?;
    for statement in statements.split("; ") {
        let mut statement = tx.prepare(statement)?;
        if statement.parameter_count() > 0 {
            statement.execute([number as i64])?;
        } else {
            statement.execute([])?;
        }
    }
    tx.commit()?;
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
    Ok(())
}

/// A database whose one lane stands behind the history.
struct Lane {
    site: Site,
    relay: Relay,
    seen: Receiver<()>,
}

impl Lane {
    fn open(folder: &std::path::Path, name: &str, events: usize, exceptions: usize) -> Outcome<Self> {
        let site = Site::with_clock(folder, name, Arc::new(ManualClock::new(NOW_MS)))?;
        fill_articles(&site, events)?;
        run_on_all(&site, FAIL, exceptions)?;
        run_on_all(
            &site,
            "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) SELECT 'lane', '[\"*\"]', 'continue', ?1",
            events,
        )?;
        let (live, seen) = bounded(1);
        let left = std::sync::atomic::AtomicUsize::new(LIVE);
        let relay = Relay::builder(&site.database)
            .handler_fn(LANE, move |_: &Event| {
                use std::sync::atomic::Ordering::Relaxed;
                if left.fetch_sub(1, Relaxed) == 1 {
                    left.store(LIVE, Relaxed);
                    let _ = live.try_send(());
                }
                Ok(())
            })
            .start()?;
        if !relay.wait_drained(soon()) {
            return Err("the lane did not come up".into());
        }
        Ok(Self { site, relay, seen })
    }

    /// Microseconds from a notice to the end of the look at the database that follows.
    fn polls(&self, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| {
                let began = Instant::now();
                self.relay.notify();
                loop {
                    let passed = self.relay.status().first().and_then(|lane| lane.last_pass);
                    let took = began.elapsed();
                    if passed.is_some_and(|ago| ago < took) {
                        return took.as_secs_f64() * 1e6;
                    }
                    std::thread::yield_now();
                }
            })
            .collect()
    }

    /// From a notice to the last of the live events in the handler.
    fn read_live(&self) -> Outcome<Duration> {
        let connection = Connection::open(&self.site.path)?;
        connection.busy_timeout(LONG)?;
        connection.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
             INSERT INTO event_outbox (event_type, event_key, payload) \
             SELECT 'article.updated.v1', 'live-' || i, '{}' FROM n",
            [LIVE as i64],
        )?;
        let began = Instant::now();
        self.relay.notify();
        self.seen.recv_timeout(LONG)?;
        Ok(began.elapsed())
    }

    fn close(self) -> Outcome<()> {
        self.relay.stop(soon())?;
        self.site.close()
    }
}
