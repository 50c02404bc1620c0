//! From a caller's answer to the handler, in an idle system, against one raw commit.

use std::time::Instant;

use crossbeam_channel::bounded;
use vayu_articles::article::Mutation;
use vayu_articles::outbox::{Event, Relay};
use vayu_articles::queue::{SqliteWriter, WriteJob, Writer};

use crate::RUNS;
use crate::figures::{Figure, Outcome, median, quantile};
use crate::input;
use crate::place::{self, LONG, Site, soon};
use crate::raw::RawDatabase;
use crate::sizes::Sizes;

const TURNS: usize = 10;

pub fn latency(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let (mut ratios, mut commits, mut reaches, mut middles) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (commit, reach) = one_run(sizes.latency_samples)?;
        ratios.push(quantile(&reach, 0.99) / quantile(&commit, 0.99));
        commits.push(quantile(&commit, 0.99));
        reaches.push(quantile(&reach, 0.99));
        middles.push(median(&reach));
    }
    let size = format!("{} events", sizes.latency_samples);
    let figure = Figure::new("relay.latency.ratio", "ratio", "<= 1.0", size, ratios)
        .note("p99_us", &reaches)
        .note("median_us", &middles)
        .note("raw_commit_p99_us", &commits);
    Ok(vec![figure])
}

/// Microseconds of each raw commit, and from each answer to the handler's entry (0 when it was there first).
fn one_run(samples: usize) -> Outcome<(Vec<f64>, Vec<f64>)> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "product.db")?;
    let raw = RawDatabase::create(folder.path(), "raw.db")?;
    let (entered, entries) = bounded(1);
    let relay = Relay::builder(&site.database)
        .handler_fn("probe", move |_: &Event| {
            let _ = entered.try_send(Instant::now());
            Ok(())
        })
        .start()?;
    if !relay.wait_drained(soon()) {
        return Err("the lane did not come up".into());
    }
    let writer = SqliteWriter::new(&site.database);
    let (mut commits, mut reaches) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        let numbers = turn * samples / TURNS..(turn + 1) * samples / TURNS;
        commits.extend(raw.commit_times(&input::items("latency", numbers.clone()))?);
        for article in input::articles("latency", numbers) {
            writer.enqueue(WriteJob::new(Mutation::Create(article)))?;
            let answered = Instant::now();
            let entered = entries.recv_timeout(LONG)?;
            reaches.push(entered.saturating_duration_since(answered).as_secs_f64() * 1e6);
        }
    }
    relay.stop(soon())?;
    site.close()?;
    Ok((commits, reaches))
}
