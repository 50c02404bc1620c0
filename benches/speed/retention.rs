//! What callers feel while old events are removed and their pages given back, against the same callers undisturbed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use vayu_articles::article::Mutation;
use vayu_articles::outbox::{self, Retention};
use vayu_articles::queue::{SqliteWriter, WriteJob, Writer};

use crate::RUNS;
use crate::figures::{Figure, Outcome, quantile};
use crate::input;
use crate::place::{self, Site};
use crate::sizes::Sizes;

const CALLERS: usize = 4;
/// Writes of each caller in each half of the quiet time: before the removal, and after it.
const QUIET: usize = 400;
/// Rows that one statement puts into the log.
const CHUNK: usize = 50_000;

pub fn removal(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let rows = if sizes.full { 1_000_000 } else { 50_000 };
    let (mut ratios, mut busy_ms, mut quiet_ms, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let run = one_run(rows)?;
        let (busy, quiet) = (quantile(&run.busy, 0.99), quantile(&run.quiet, 0.99));
        ratios.push(busy / quiet);
        busy_ms.push(busy);
        quiet_ms.push(quiet);
        rates.push(run.rows_per_second);
    }
    let size = format!("{rows} rows, {CALLERS} callers");
    let figure = Figure::new("retention.p99.ratio", "ratio", "<= 3.0", size, ratios)
        .note("p99_ms", &busy_ms)
        .note("quiet_p99_ms", &quiet_ms)
        .note("rows_per_second", &rates);
    Ok(vec![figure])
}

/// Milliseconds of each write.
struct Run {
    quiet: Vec<f64>,
    busy: Vec<f64>,
    rows_per_second: f64,
}

fn one_run(rows: usize) -> Outcome<Run> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "product.db")?;
    delivered_log(&site, rows)?;
    let never = AtomicBool::new(false);
    let mut quiet = write(&site, "before", QUIET, &never)?;
    let over = AtomicBool::new(false);
    let (busy, took) = std::thread::scope(|scope| {
        let writers = scope.spawn(|| write(&site, "meanwhile", usize::MAX, &over));
        let began = Instant::now();
        let retention = Retention::default();
        let removed = outbox::prune(&site.database, &retention, 0, || false)
            .and_then(|pruned| outbox::reclaim(&site.database, &retention, || false).map(|_| pruned.events));
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        let busy = writers.join().map_err(|_| "a caller panicked")??;
        match removed? {
            events if events == rows as u64 => Ok((busy, took)),
            events => Err(format!("{events} of {rows} rows removed").into()),
        }
    })
    .map_err(|error: Box<dyn std::error::Error + Send + Sync>| error)?;
    quiet.extend(write(&site, "after", QUIET, &never)?);
    site.close()?;
    Ok(Run { quiet, busy, rows_per_second: rows as f64 / took.as_secs_f64() })
}

/// Each caller writes one article after the other, until it has written so many or `over` is set.
fn write(site: &Site, series: &str, each: usize, over: &AtomicBool) -> Outcome<Vec<f64>> {
    let writer = SqliteWriter::new(&site.database);
    let caller = |number: usize| -> Outcome<Vec<f64>> {
        let series = format!("{series}-{number}");
        let mut times = Vec::new();
        for article in (0..each).map(|article| input::article(&series, article)) {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let began = Instant::now();
            writer.enqueue(WriteJob::new(Mutation::Create(article)))?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|number| scope.spawn(move || caller(number))).collect();
        let mut all = Vec::new();
        for caller in callers {
            all.extend(caller.join().map_err(|_| "a caller panicked")??);
        }
        Ok(all)
    })
}

/// So many events of long ago, which every lane has passed.
fn delivered_log(site: &Site, rows: usize) -> Outcome<()> {
    const LANE: &str =
        "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) VALUES ('all', '[]', 'continue', 0)";
    const PASSED: &str = "UPDATE lanes SET cursor = (SELECT max(id) FROM event_outbox)";
    const EVENTS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
        INSERT INTO event_outbox (event_type, event_key, payload, occurred_at) \
        SELECT 'article.updated.v1', i % 5000, ?2, 0 FROM n";
    let writer = site.database.writer();
    writer.transact(|tx| tx.execute(LANE, []))?;
    let payload = input::payload(&input::uuid(), 1, "a-slug", "A title", &["one".into(), "two".into()], "null");
    let mut left = rows;
    while left > 0 {
        let (chunk, payload) = (left.min(CHUNK), payload.clone());
        writer.transact(move |tx| tx.execute(EVENTS, (chunk as i64, &payload)))?;
        left -= chunk;
    }
    writer.transact(|tx| tx.execute(PASSED, []))?;
    Ok(())
}
