//! Articles published at a time.

use std::sync::Arc;
use std::time::Instant;

use vayu_articles::article::{ArticlePatch, ArticleRepository, ListQuery, Mutation, NewArticle, Status};
use vayu_articles::clock::SystemClock;
use vayu_articles::jobs::{JobError, JobOptions, JobQuery, JobRunner, JobStatus, Mode};
use vayu_articles::queue::SqliteWriter;
use vayu_articles::queue::{WriteJob, Writer};
use vayu_articles::storage::{Database, Options};

use crate::harness::{COMPONENTS, LONG, NOW_MS, Site, delete, patch, wait_until};

fn scheduled(title: &str, at: i64) -> Mutation {
    Mutation::Create(NewArticle::new(title, "x").tags(["soon"]).publish_at(at))
}

fn listed(site: &Site, status: Option<Status>) -> Vec<String> {
    let query = ListQuery { status, ..ListQuery::default() };
    let page = ArticleRepository::new(site.database.clone()).list(&query).unwrap();
    assert_eq!(page.total, page.items.len() as u64);
    page.items.into_iter().map(|item| item.slug).collect()
}

fn run_at(site: &Site) -> Vec<i64> {
    site.jobs.list(&JobQuery::default()).unwrap().into_iter().filter_map(|job| job.run_at).collect()
}

#[test]
fn a_scheduled_article_is_hidden_until_its_job_publishes_it_with_an_event() {
    let site = Site::new();
    let article = site.applied(scheduled("Soon", NOW_MS + 60_000));
    assert_eq!((article.status, article.publish_at), (Status::Scheduled, Some(NOW_MS + 60_000)));
    assert_eq!(site.article("soon"), Some(article.clone()));
    assert_eq!(listed(&site, Some(Status::Published)), [""; 0]);
    assert_eq!(listed(&site, Some(Status::Draft)), [""; 0]);
    assert_eq!(listed(&site, Some(Status::Scheduled)), ["soon"]);
    assert_eq!(listed(&site, None), ["soon"]);
    let repository = ArticleRepository::new(site.database.clone());
    assert_eq!(repository.tags(Some(Status::Published)).unwrap(), []);

    site.clock.advance(59_999);
    assert_eq!(site.run().applied, 0);
    site.clock.advance(1);
    assert_eq!(site.run().applied, 1);
    let article = site.article("soon").unwrap();
    assert_eq!((article.status, article.publish_at, article.version), (Status::Published, None, 2));
    assert_eq!(article.created_at, NOW_MS + 60_000, "it comes first in the lists");
    assert_eq!(listed(&site, Some(Status::Published)), ["soon"]);
    assert_eq!(listed(&site, Some(Status::Scheduled)), [""; 0]);
    let job = &site.jobs.list(&{
        let mut query = JobQuery::default();
        query.status = JobStatus::Applied;
        query
    });
    let job = &job.as_ref().unwrap()[0];
    let event = site.events().pop().unwrap();
    assert_eq!((event.0.as_str(), event.2, event.3), ("article.updated.v1", 2, Some(job.id.to_string())));
    let payloads: Vec<String> = {
        let conn = site.look();
        let mut all = conn.prepare("SELECT json_extract(payload, '$.status') FROM event_outbox ORDER BY id").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(payloads, ["draft", "published"], "consumers know no other status");
}

#[test]
fn a_time_that_has_passed_means_now() {
    let site = Site::new();
    let article = site.applied(scheduled("Past", NOW_MS));
    assert_eq!((article.status, article.publish_at), (Status::Published, None));
    site.applied(Mutation::Create(NewArticle::new("Draft", "x").status(Status::Draft)));
    let article = site.applied(patch("draft", ArticlePatch::default().publish_at(NOW_MS - 1)));
    assert_eq!((article.status, article.version), (Status::Published, 2));
    assert_eq!(run_at(&site), [0_i64; 0]);
}

#[test]
fn a_schedule_is_made_changed_and_cancelled_by_a_patch() {
    let site = Site::new();
    site.applied(Mutation::Create(NewArticle::new("Post", "x").status(Status::Draft)));
    let change = |patch_: ArticlePatch| site.applied(patch("post", patch_));
    let at = |at| ArticlePatch::default().publish_at(at);
    assert_eq!(change(at(NOW_MS + 10)).status, Status::Scheduled);
    assert_eq!(run_at(&site), [NOW_MS + 10]);
    assert_eq!(change(at(NOW_MS + 500)).publish_at, Some(NOW_MS + 500));
    assert_eq!(run_at(&site), [NOW_MS + 500], "the same job, moved");
    assert_eq!(change(ArticlePatch::default().content("y")).publish_at, Some(NOW_MS + 500), "other fields leave it");
    assert_eq!(change(ArticlePatch::default().status(Status::Scheduled)).publish_at, Some(NOW_MS + 500));
    site.clock.advance(100);
    assert_eq!(site.run().applied, 0, "the old time counts no more");

    assert_eq!(change(ArticlePatch::default().status(Status::Draft)).publish_at, None);
    assert_eq!(run_at(&site), [0_i64; 0]);
    change(at(NOW_MS + 700));
    assert_eq!(change(ArticlePatch::default().no_publish_at()).status, Status::Draft);
    change(at(NOW_MS + 900));
    assert_eq!(change(ArticlePatch::default().status(Status::Published)).status, Status::Published);
    site.clock.advance(10_000);
    assert_eq!(site.run().applied, 0, "every cancelled job stays cancelled");

    let error = site.write(patch("post", at(NOW_MS + 99_000))).unwrap_err();
    assert_eq!(error.field(), Some("publish_at"), "{error}");
    let withdrawn = change(at(NOW_MS + 99_000).status(Status::Scheduled));
    assert_eq!(withdrawn.status, Status::Scheduled);
    site.applied(delete("post"));
    assert_eq!(run_at(&site), [0_i64; 0]);
}

#[test]
fn a_scheduled_article_needs_its_time() {
    let site = Site::new();
    let create = Mutation::Create(NewArticle::new("Post", "x").status(Status::Scheduled));
    assert_eq!(site.write(create).unwrap_err().field(), Some("publish_at"));
    site.applied(Mutation::Create(NewArticle::new("Post", "x").status(Status::Draft)));
    let error = site.write(patch("post", ArticlePatch::default().status(Status::Scheduled))).unwrap_err();
    assert_eq!(error.field(), Some("publish_at"));
}

#[test]
fn the_job_of_a_publication_is_cancelled_through_its_article() {
    let site = Site::new();
    site.applied(scheduled("Post", NOW_MS + 10));
    let job = site.jobs.list(&JobQuery::default()).unwrap().remove(0);
    assert!(matches!(site.jobs.cancel(job.id, None), Err(JobError::Publication { .. })));
}

#[test]
fn a_publication_due_during_a_freeze_waits_for_the_thaw() {
    let site = Site::new();
    site.applied(scheduled("Post", NOW_MS + 10));
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let kept = site.deferred(scheduled("Other", NOW_MS + 20));
    let frozen = site.dump();
    site.clock.advance(50);
    assert_eq!(site.run().applied, 0);
    assert_eq!(site.dump(), frozen);
    site.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(site.run().applied, 2);
    assert_eq!(site.status(kept), JobStatus::Applied);
    let published = |slug| site.article(slug).unwrap().status == Status::Published;
    assert!(published("post") && published("other"), "the second one's time had passed when it was applied");
}

#[test]
fn a_post_is_published_within_a_second_of_its_time_also_after_downtime() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let path = folder.path().join("site.db");
    let open = || {
        let mut options = Options::default();
        options.clock = SystemClock::shared();
        Database::open(&path, &COMPONENTS, options).unwrap()
    };
    // Written by a writer that knows no jobs: the runner finds out by itself.
    let database = open();
    let now = database.clock().now_ms();
    let writer = SqliteWriter::new(&database);
    writer.enqueue(WriteJob::new(scheduled("Missed", now + 1))).unwrap();
    writer.enqueue(WriteJob::new(scheduled("Soon", now + 1_500))).unwrap();
    database.close(Instant::now() + LONG).unwrap();
    wait_until("the first one's time", || SystemClock::shared().now_ms() > now + 1);

    let database = open();
    let runner = JobRunner::new(&database, JobOptions::default());
    runner.start().unwrap();
    let repository = ArticleRepository::new(database.clone());
    let published = |slug: &str| repository.by_slug(slug).unwrap().unwrap().status == Status::Published;
    wait_until("the missed one", || published("missed"));
    wait_until("the other one", || published("soon"));
    let soon = repository.by_slug("soon").unwrap().unwrap();
    assert!(soon.updated_at >= now + 1_500, "not before its time");
    runner.stop(Instant::now() + LONG).unwrap();
    database.close(Instant::now() + LONG).unwrap();
}
