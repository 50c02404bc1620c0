//! The whole path at once: 64 callers write while three lanes deliver.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use vayu_articles::article::NewArticle;
use vayu_articles::outbox::{Event, Relay};
use vayu_articles::service::WriteContext;

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input;
use crate::place::{self, LONG, Site, soon};
use crate::raw::RawDatabase;
use crate::sizes::Sizes;
use crate::write::at_once;

const CALLERS: usize = 64;
const LANES: usize = 3;
const TURNS: usize = 4;
/// Callers pause while this many of their events are not delivered to every lane.
const UNDELIVERED_MAX: usize = 2_000;

pub fn end_to_end(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let runs = (0..RUNS).map(|_| one_run(sizes.end_to_end)).collect::<Outcome<Vec<_>>>()?;
    Ok(vec![rates("e2e.ratio", ">= 0.60", format!("{} articles", sizes.end_to_end), &runs)])
}

fn one_run(count: usize) -> Outcome<Sides> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "product.db")?;
    let raw = RawDatabase::create(folder.path(), "raw.db")?;
    let delivery = Arc::new(Delivery::default());
    let mut builder = Relay::builder(&site.database);
    for lane in 0..LANES {
        let delivery = Arc::clone(&delivery);
        builder = builder.handler_fn(format!("lane-{lane}"), move |_: &Event| {
            delivery.count(lane);
            Ok(())
        });
    }
    let relay = builder.start()?;
    let mut sides = Sides { items: count, ..Sides::default() };
    for turn in 0..TURNS {
        let numbers = turn * count / TURNS..(turn + 1) * count / TURNS;
        sides.baseline += raw.write(&input::items("pipeline", numbers.clone()), 256)?;
        sides.product += write_and_deliver(&site, &delivery, input::articles("pipeline", numbers))?;
    }
    relay.stop(soon())?;
    site.close()?;
    Ok(sides)
}

fn write_and_deliver(site: &Site, delivery: &Delivery, articles: Vec<NewArticle>) -> Outcome<Duration> {
    let count = articles.len();
    let mut shares: Vec<Vec<NewArticle>> = (0..CALLERS).map(|_| Vec::new()).collect();
    for (number, article) in articles.into_iter().enumerate() {
        shares[number % CALLERS].push(article);
    }
    let before = delivery.to_all();
    let written = AtomicUsize::new(before);
    let context = WriteContext::default();
    let wrote = at_once(shares, |share| {
        for article in share {
            let number = written.fetch_add(1, Relaxed);
            delivery.wait_for(number.saturating_sub(UNDELIVERED_MAX))?;
            site.service.create(article, &context)?;
        }
        Ok(())
    })?;
    // Starting the callers is not counted; waiting for the last delivery is.
    let writing_ended = Instant::now();
    delivery.wait_for(before + count)?;
    Ok(wrote + writing_ended.elapsed())
}

/// How many events each lane has had.
#[derive(Debug, Default)]
struct Delivery {
    lanes: [AtomicUsize; LANES],
    awaited: AtomicUsize,
    lock: Mutex<()>,
    advanced: Condvar,
}

impl Delivery {
    fn count(&self, lane: usize) {
        let now = self.lanes[lane].fetch_add(1, Relaxed) + 1;
        // Somebody waits only when lanes lag or at the end, so the lock is rarely taken.
        if now >= self.awaited.load(Relaxed) && self.to_all() >= self.awaited.load(Relaxed) {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.awaited.store(usize::MAX, Relaxed);
            self.advanced.notify_all();
        }
    }

    /// Events that every lane has had.
    fn to_all(&self) -> usize {
        self.lanes.iter().map(|lane| lane.load(Relaxed)).min().unwrap_or(0)
    }

    fn wait_for(&self, events: usize) -> Outcome<()> {
        if self.to_all() >= events {
            return Ok(());
        }
        let until = Instant::now() + LONG;
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while self.to_all() < events {
            if Instant::now() > until {
                return Err("the lanes stand still".into());
            }
            self.awaited.fetch_min(events, Relaxed);
            // The look every millisecond makes up for a count that ran past the mark before it was set.
            guard =
                self.advanced.wait_timeout(guard, Duration::from_millis(1)).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }
}
