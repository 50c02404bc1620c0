//! Jobs in all states under the kills: a thread of each child freezes the site, lets writes be kept, thaws, schedules, cancels and
//! replays. The judge asks afterwards whether each accepted job was applied exactly once, and those of one article in order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use vayu_articles::article::{ArticlePatch, Expected, NewArticle};
use vayu_articles::jobs::{JobError, JobOptions, JobQuery, JobStatus, Jobs, Mode, NewJob};
use vayu_articles::queue::WriteError;
use vayu_articles::service::{ArticleService, WriteContext};
use vayu_articles::storage::Database;

use crate::child::book_of;
use crate::job_judge::{Emitted, Evidence, Job};
use crate::record::{self, Book};
use crate::site::{look, rows};

/// Articles that the kept writes change, all processes the same.
const PAGES: usize = 3;
/// Kept writes of one freeze.
const KEPT: usize = 12;

/// Freezes, writes, thaws, until told to stop; then leaves the site open. `works`: else it only opens the site.
pub fn live(database: &Database, service: &ArticleService, folder: &Path, works: bool, stop: &AtomicBool) {
    let jobs = Jobs::new(database, JobOptions::default());
    let book = Arc::new(Book::open(&book_of(folder, "jobs")).unwrap());
    let note = |id: i64| book.write(&id.to_string()).unwrap();
    let mut round = 0;
    while works && !stop.load(SeqCst) {
        round += 1;
        // Two processes on one file may keep each other waiting for too long: a typed error, and the next try.
        if let Err(error) = freeze_once(&jobs, service, &note, round) {
            eprintln!("jobs not worked on: {error}");
        }
        // So long the site is open for the writers, who get nothing answered in a frozen one.
        let until = Instant::now() + Duration::from_millis(300);
        while !stop.load(SeqCst) && Instant::now() < until {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
    while let Err(error) = jobs.set_mode(Mode::Open, None) {
        eprintln!("not opened yet: {error}");
    }
}

fn freeze_once(jobs: &Jobs, service: &ArticleService, note: &dyn Fn(i64), round: usize) -> Result<(), JobError> {
    let context = WriteContext::default();
    jobs.set_mode(Mode::Journal, Some("crash test"))?;
    for number in 0..KEPT {
        let page = format!("page-{}", number % PAGES);
        let text = format!("{} {round} {number}", std::process::id());
        let written = match number {
            // Fails once it is there: a dead letter.
            0..PAGES => service.create(NewArticle::new(&page, &text).slug(&page), &context),
            _ => service.update(&page, ArticlePatch::default().content(&text), Expected::any(), &context),
        };
        if let Err(WriteError::Deferred { job }) = written {
            note(job);
        }
    }
    let soon = jobs.database().clock().now_ms() + 40;
    let scheduled = service.create(NewArticle::new("Scheduled", "x").publish_at(soon), &context);
    if let Err(WriteError::Deferred { job }) = scheduled {
        note(job);
    }
    let gone = NewJob::new("update", r#"{"slug": "never-there", "patch": {"content": "x"}}"#);
    let taken_back = NewJob::new("create", r#"{"title": "Taken back", "content": "x"}"#);
    let later = NewJob { run_at: Some(soon), ..NewJob::new("create", r#"{"title": "Later", "content": "x"}"#) };
    let ids: Vec<i64> = jobs.enqueue(vec![gone, taken_back, later])?.into_iter().flatten().collect();
    ids.iter().for_each(|id| note(*id));
    // Somebody may have thawed meanwhile.
    let _ = jobs.cancel(ids[1], None);
    let mut dead = JobQuery::default();
    (dead.status, dead.limit) = (JobStatus::DeadLetter, 2);
    for job in jobs.list(&dead)? {
        let _ = jobs.replay(job.id, false);
    }
    jobs.set_mode(Mode::Open, None)?;
    Ok(())
}

/// Nothing that is due waits any more.
pub fn is_drained(folder: &Path) -> bool {
    let sql = "SELECT (SELECT draining FROM write_mode) + (SELECT count(*) FROM write_jobs WHERE status = 'pending')";
    look(folder).query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap() == 0
}

/// What the book and the database hold.
pub fn evidence(folder: &Path) -> Evidence {
    let accepted = record::read(&book_of(folder, "jobs"));
    let events =
        "SELECT causation_id, event_key, event_id FROM event_outbox WHERE causation_id IS NOT NULL ORDER BY id";
    let jobs = "SELECT id, status, event_id, replays = 0 AND run_at IS NULL FROM write_jobs";
    Evidence {
        accepted: accepted.iter().map(|words| words[0].parse().unwrap()).collect(),
        events: rows(folder, events, [], |row| Emitted {
            job: row.get::<_, String>(0).unwrap().parse().unwrap(),
            article: row.get(1).unwrap(),
            event: row.get(2).unwrap(),
        }),
        jobs: rows(folder, jobs, [], |row| Job {
            id: row.get(0).unwrap(),
            status: row.get(1).unwrap(),
            event: row.get(2).unwrap(),
            in_line: row.get(3).unwrap(),
        }),
    }
}
