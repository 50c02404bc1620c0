//! Working off jobs that wait, against the raw loop of the same rows.

use std::time::{Duration, Instant};

use serde_json::json;
use vayu_articles::jobs::{JobOptions, Jobs, NewJob};
use vayu_articles::rusqlite::params;

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input::{self, Item};
use crate::place::{self, Site, soon};
use crate::raw::{Inserts, RawDatabase};
use crate::sizes::Sizes;

/// Turns between baseline and product within a run.
const TURNS: usize = 4;
/// Jobs of one transaction of the raw loop.
const PER_TRANSACTION: usize = 256;
const INSERT_JOB: &str = "INSERT INTO write_jobs (operation, body) VALUES ('create', ?1)";
const FINISH_JOB: &str = "UPDATE write_jobs SET status = 'applied', article_id = ?2, slug = ?3, event_id = ?4, \
    updated_at = ?5 WHERE id = ?1";

/// Reading, checking and applying jobs, against writing the rows that come of them: per job the article, two tags, the event
/// and the job's new status.
pub fn apply(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let folder = place::folder()?;
        let site = Site::open(folder.path(), "product.db")?;
        let jobs = Jobs::new(&site.database, JobOptions::default());
        let raw = RawDatabase::create(folder.path(), "raw.db")?;
        let mut sides = Sides { items: sizes.jobs, ..Sides::default() };
        for turn in 0..TURNS {
            let numbers = turn * sizes.jobs / TURNS..(turn + 1) * sizes.jobs / TURNS;
            sides.baseline += raw_loop(&raw, numbers.clone())?;
            jobs.enqueue(numbers.map(|number| NewJob::new("create", body(number))).collect())?;
            let began = Instant::now();
            let ran = jobs.run_due(soon())?;
            sides.product += began.elapsed();
            if ran.applied != (sizes.jobs / TURNS) as u64 {
                return Err(format!("not all were applied: {ran:?}").into());
            }
        }
        site.close()?;
        runs.push(sides);
    }
    Ok(vec![rates("jobs.apply.ratio", ">= 0.60", format!("{} jobs", sizes.jobs), &runs)])
}

fn body(number: usize) -> String {
    let (title, content, tags) = (input::title("jobs", number), input::content(number), input::tags(number));
    json!({ "title": title, "content": content, "tags": tags }).to_string()
}

fn raw_loop(raw: &RawDatabase, numbers: std::ops::Range<usize>) -> Outcome<Duration> {
    let waiting: Vec<(i64, Item)> = {
        let tx = raw.connection.unchecked_transaction()?;
        let mut insert = tx.prepare(INSERT_JOB)?;
        let mut waiting = Vec::new();
        for number in numbers {
            insert.execute([body(number)])?;
            waiting.push((tx.last_insert_rowid(), Item::new("jobs", number)));
        }
        drop(insert);
        tx.commit()?;
        waiting
    };
    let mut inserts = Inserts::prepare(&raw.connection)?;
    let mut finish = raw.connection.prepare(FINISH_JOB)?;
    let began = Instant::now();
    for group in waiting.chunks(PER_TRANSACTION) {
        let tx = raw.connection.unchecked_transaction()?;
        for (id, item) in group {
            inserts.create(item)?;
            finish.execute(params![id, item.id, item.slug, item.event_id, item.at])?;
        }
        tx.commit()?;
    }
    Ok(began.elapsed())
}
