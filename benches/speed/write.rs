//! The write path against the raw loop.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use vayu_articles::article::NewArticle;
use vayu_articles::service::WriteContext;

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input;
use crate::place::{self, Site};
use crate::raw::RawDatabase;
use crate::sizes::Sizes;

/// Turns between baseline and product within a run.
const TURNS: usize = 4;

/// 64 threads, each waiting for its commit, against 64 per transaction.
pub fn callers64(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let runs = in_turns(sizes.callers64, 64, |site, articles| by_callers(site, articles, 64))?;
    Ok(vec![rates("write.callers64.ratio", ">= 0.85", format!("{} articles", sizes.callers64), &runs)])
}

/// One thread against one per transaction.
pub fn caller1(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let runs = in_turns(sizes.caller1, 1, |site, articles| by_callers(site, articles, 1))?;
    Ok(vec![rates("write.caller1.ratio", ">= 0.70", format!("{} articles", sizes.caller1), &runs)])
}

/// Batches of 1,000 against 256 per transaction.
pub fn bulk1000(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let runs = in_turns(sizes.bulk, 256, in_bulk)?;
    Ok(vec![rates("write.bulk1000.ratio", ">= 0.95", format!("{} articles", sizes.bulk), &runs)])
}

fn in_turns(
    count: usize,
    per_transaction: usize,
    product: impl Fn(&Site, Vec<NewArticle>) -> Outcome<Duration>,
) -> Outcome<Vec<Sides>> {
    (0..RUNS)
        .map(|_| {
            let folder = place::folder()?;
            let site = Site::open(folder.path(), "product.db")?;
            let raw = RawDatabase::create(folder.path(), "raw.db")?;
            let mut sides = Sides { items: count, ..Sides::default() };
            for turn in 0..TURNS {
                let numbers = turn * count / TURNS..(turn + 1) * count / TURNS;
                sides.baseline += raw.write(&input::items("writing", numbers.clone()), per_transaction)?;
                sides.product += product(&site, input::articles("writing", numbers))?;
            }
            site.close()?;
            Ok(sides)
        })
        .collect()
}

fn by_callers(site: &Site, articles: Vec<NewArticle>, callers: usize) -> Outcome<Duration> {
    let context = WriteContext::default();
    let mut shares: Vec<Vec<NewArticle>> = (0..callers).map(|_| Vec::new()).collect();
    for (number, article) in articles.into_iter().enumerate() {
        shares[number % callers].push(article);
    }
    at_once(shares, |share| {
        for article in share {
            site.service.create(article, &context)?;
        }
        Ok(())
    })
}

fn in_bulk(site: &Site, articles: Vec<NewArticle>) -> Outcome<Duration> {
    let mut batches: Vec<Vec<NewArticle>> = Vec::new();
    for article in articles {
        match batches.last_mut() {
            Some(batch) if batch.len() < 1_000 => batch.push(article),
            _ => batches.push(vec![article]),
        }
    }
    let began = Instant::now();
    for batch in batches {
        for answer in site.service.create_bulk(batch, &WriteContext::default())? {
            answer?;
        }
    }
    Ok(began.elapsed())
}

/// One thread per share, started together; the time from the first one's start to the last one's end.
pub fn at_once<W: Send>(shares: Vec<W>, work: impl Fn(W) -> Outcome<()> + Sync) -> Outcome<Duration> {
    let start = Barrier::new(shares.len());
    let times = std::thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let timed = |share| {
            start.wait();
            let began = Instant::now();
            work(share).map(|()| (began, Instant::now()))
        };
        let threads: Vec<_> = shares.into_iter().map(|share| scope.spawn(move || timed(share))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a caller panicked")?)
            .collect::<Outcome<Vec<(Instant, Instant)>>>()
    })?;
    let first = times.iter().map(|(began, _)| *began).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    Ok(first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first))
}
