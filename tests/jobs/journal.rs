//! What becomes of writes in each mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use vayu_articles::article::{ArticlePatch, NewArticle, RequestKey};
use vayu_articles::jobs::{JobOptions, JobStatus, Mode};
use vayu_articles::queue::{Receipt, WriteError, WriteJob, Writer};
use vayu_articles::service::WriteContext;

use crate::harness::{Site, create, delete, patch, update};

#[test]
fn an_open_site_applies_writes_and_makes_no_job() {
    let site = Site::new();
    assert_eq!(site.applied(create("One")).slug, "one");
    assert_eq!(site.jobs.stats().unwrap().pending, 0);
    assert_eq!(site.jobs.mode().unwrap().mode, Mode::Open);
}

#[test]
fn a_frozen_site_keeps_writes_and_thaw_applies_them_in_order_with_the_job_as_cause() {
    let site = Site::new();
    let before = site.applied(create("Old"));
    site.jobs.set_mode(Mode::Journal, Some("backup")).unwrap();
    let frozen = site.dump();
    let jobs = [
        site.deferred(create("New")),
        site.deferred(update("new", "Second.")),
        site.deferred(patch("old", ArticlePatch::default().slug("older").tags(["x"]))),
        site.deferred(update("older", "Later.")),
        site.deferred(delete("new")),
        site.deferred(create("New")),
    ];
    assert_eq!(site.dump(), frozen, "no row of the articles or the outbox has changed");
    assert_eq!((site.run().applied, site.run().finished), (0, false), "the line stands");
    assert!(site.article("old").is_some() && site.article("new").is_none());

    let info = site.jobs.set_mode(Mode::Open, None).unwrap();
    assert!(info.draining);
    let ran = site.run();
    assert_eq!((ran.applied, ran.failed, ran.finished), (6, 0, true));
    assert!(!site.jobs.mode().unwrap().draining);
    let causes: Vec<Option<String>> = site.events().into_iter().skip(1).map(|event| event.3).collect();
    assert_eq!(causes, jobs.map(|id| Some(id.to_string())));
    let older = site.article("older").unwrap();
    assert_eq!((older.id, older.content.as_str(), older.version), (before.id, "Later.", 3));
    let new = site.job(jobs[5]);
    assert_eq!((new.status, new.slug.as_deref()), (JobStatus::Applied, Some("new")));
    assert_eq!(new.article_id, site.article("new").map(|article| article.id), "the id was fixed when it was accepted");
    assert_eq!(site.applied(update("new", "Directly.")).version, 2);
}

#[test]
fn what_is_certainly_wrong_is_answered_at_once_in_every_mode() {
    let site = Site::new();
    for mode in [Mode::Open, Mode::Journal, Mode::ReadOnly] {
        site.jobs.set_mode(mode, None).unwrap();
        let refused = site.write(create("")).unwrap_err();
        assert_eq!((refused.code(), refused.field()), ("invalid", Some("title")), "{mode}");
    }
    assert_eq!(site.jobs.stats().unwrap().pending, 0);
}

#[test]
fn a_read_only_site_refuses_writes_and_says_when_to_come_back() {
    let site = Site::new();
    site.jobs.set_mode(Mode::ReadOnly, None).unwrap();
    let before = site.dump();
    for refused in [site.write(create("One")).unwrap_err(), {
        let jobs = vec![WriteJob::new(create("Two")), WriteJob::new(create("Three"))];
        site.writer.enqueue_batch(jobs).unwrap_err()
    }] {
        assert_eq!(refused.code(), "read_only");
        assert!(refused.retryable());
    }
    assert_eq!(site.dump(), before);
    site.jobs.set_mode(Mode::Open, None).unwrap();
    site.applied(create("One"));
}

#[test]
fn a_mode_set_by_another_process_holds_from_the_next_write_on_and_outlasts_restarts() {
    let site = Site::new();
    site.applied(create("One"));
    let other = Site::in_folder(site.folder.clone(), JobOptions::default());
    other.jobs.set_mode(Mode::Journal, Some("moving")).unwrap();
    site.deferred(create("Two"));
    drop(other);
    let again = Site::in_folder(site.folder.clone(), JobOptions::default());
    let info = again.jobs.mode().unwrap();
    assert_eq!((info.mode, info.reason.as_deref()), (Mode::Journal, Some("moving")));
    again.deferred(create("Three"));
    again.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(again.run().applied, 2);
    site.applied(create("Four"));
}

#[test]
fn writes_that_come_while_the_journal_is_worked_off_go_behind_it() {
    let site = Site::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    site.deferred(create("One"));
    site.deferred(update("one", "Kept."));
    site.jobs.set_mode(Mode::Open, None).unwrap();
    let behind = site.deferred(update("one", "Behind."));
    assert_eq!(site.run().applied, 3);
    assert_eq!(site.status(behind), JobStatus::Applied);
    assert_eq!(site.article("one").unwrap().content, "Behind.");
    assert_eq!(site.applied(update("one", "After.")).version, 4);
}

#[test]
fn readers_never_see_a_half_state_while_the_journal_is_worked_off() {
    let site = Site::new();
    site.applied(create("Page"));
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    for round in 0..300 {
        // Title, content and tags of one change belong together.
        let round = format!("round-{round}");
        let change = ArticlePatch::default().title(&round).content(&round).tags([&round]);
        site.deferred(patch("page", change));
    }
    site.jobs.set_mode(Mode::Open, None).unwrap();
    let (service, stop) = (site.service(), Arc::new(AtomicBool::new(false)));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 1;
            while !stop.load(SeqCst) {
                let article = service.get("page").unwrap().unwrap();
                if article.version > 1 {
                    assert_eq!(article.title, article.content);
                    assert_eq!(article.tags.concat(), article.title);
                }
                assert!(article.version >= last);
                last = article.version;
            }
        });
        assert_eq!(site.run().applied, 300);
        stop.store(true, SeqCst);
        reader.join().unwrap();
    });
    assert_eq!(site.article("page").unwrap().title, "round-299");
}

#[test]
fn a_full_journal_refuses_and_takes_writes_again_once_there_is_room() {
    let mut options = JobOptions::default();
    options.waiting_max = 10;
    let site = Site::with(options);
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let jobs: Vec<i64> = (0..8).map(|number| site.deferred(create(&format!("Post {number}")))).collect();
    let batch = |count: usize| (0..count).map(|n| WriteJob::new(create(&format!("Batch {n}")))).collect::<Vec<_>>();
    assert_eq!(site.writer.enqueue_batch(batch(3)).unwrap_err().code(), "journal_full", "all of a batch or nothing");
    assert_eq!(site.writer.enqueue_batch(batch(2)).unwrap().len(), 2);
    let full = site.write(create("More")).unwrap_err();
    assert!(matches!(full, WriteError::JournalFull { limit: 10 }), "{full}");
    assert!(full.retryable());
    // A hole in the middle is room, though the span of the numbers is as wide as before.
    site.jobs.cancel(jobs[4], None).unwrap();
    site.deferred(create("More"));
    assert_eq!(site.write(create("Too much")).unwrap_err().code(), "journal_full");
    site.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(site.run().applied, 10);
    site.applied(create("Open"));
}

#[test]
fn a_request_key_gets_the_same_job_again_also_after_it_was_applied() {
    let site = Site::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let key = RequestKey::new("alice", "k-1", "print").unwrap();
    let again = || site.writer.enqueue(WriteJob::new(create("Once")).key(key.clone())).unwrap();
    let Receipt::Deferred { job } = again() else { panic!() };
    assert_eq!(again(), Receipt::Deferred { job });
    site.jobs.set_mode(Mode::ReadOnly, None).unwrap();
    assert_eq!(again(), Receipt::Deferred { job });
    site.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(site.run().applied, 1);
    assert_eq!(again(), Receipt::Deferred { job });
    assert_eq!(site.events().len(), 1);
}

#[test]
fn the_service_names_the_job_where_an_article_was_asked_for() {
    let site = Site::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let (service, context) = (site.service(), WriteContext::correlated("request-9"));
    let error = service.create(NewArticle::new("One", "x"), &context).unwrap_err();
    let WriteError::Deferred { job } = error else { panic!("{error}") };
    assert_eq!(site.job(job).correlation_id.as_deref(), Some("request-9"));
    let bulk = service.create_bulk(vec![NewArticle::new("Two", "x"), NewArticle::new("", "x")], &context).unwrap();
    let codes: Vec<&str> = bulk.iter().map(|answer| answer.as_ref().unwrap_err().code()).collect();
    assert_eq!(codes, ["deferred", "invalid"]);
}
