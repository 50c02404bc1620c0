//! The line: order, dead letters, replays, faults, and the faults that the original had.

use std::time::{Duration, Instant};

use vayu_articles::article::{Expected, Mutation};
use vayu_articles::jobs::{JobError, JobOptions, JobQuery, JobStatus, MAX_REPLAYS, Mode, NewJob};
use vayu_articles::queue::{WriteJob, Writer};

use crate::harness::{LONG, NOW_MS, Site, create, delete, update, wait_until};

fn job(operation: &str, body: &str) -> NewJob {
    NewJob::new(operation, body)
}

fn enqueue(site: &Site, new: NewJob) -> i64 {
    site.jobs.enqueue(vec![new]).unwrap()[0].unwrap()
}

const GOOD: &str = r#"{"title": "Good", "content": "x"}"#;

#[test]
fn what_cannot_heal_is_a_dead_letter_at_once_with_its_reason_and_holds_nobody_up() {
    let site = Site::new();
    let taken = site.applied(create("Taken"));
    let stale = Mutation::Update { slug: "taken".into(), patch: Default::default(), expected: Expected::version(7) };
    let stale = stale.prepare(NOW_MS, None, None).unwrap();
    let jobs = [
        (job("create", r#"{"title": "x", "content": "y", "slug": "taken"}"#), "slug_taken: "),
        (job("create", &format!(r#"{{"id": "{}", "title": "x", "content": "y"}}"#, taken.id)), "id_taken: "),
        (job("update", r#"{"slug": "gone", "patch": {"title": "x"}}"#), "not_found: "),
        (job("delete", r#"{"slug": "gone"}"#), "not_found: "),
        (job("update", &stale.body()), "stale: "),
        (job("create", r#"{"title": "", "content": "y"}"#), "invalid: title "),
        (job("create", "{"), "invalid: body "),
        (job("explode", "{}"), "invalid: operation "),
    ];
    let ids: Vec<i64> = jobs.iter().map(|(new, _)| enqueue(&site, new.clone())).collect();
    let good = enqueue(&site, job("create", GOOD));
    let ran = site.run();
    assert_eq!((ran.applied, ran.failed), (1, 8));
    for ((_, reason), id) in jobs.iter().zip(ids) {
        let dead = site.job(id);
        assert_eq!(dead.status, JobStatus::DeadLetter);
        assert!(dead.last_error.as_deref().is_some_and(|text| text.starts_with(reason)), "{dead:?}");
    }
    assert_eq!(site.status(good), JobStatus::Applied);
    assert_eq!(site.events().len(), 2, "a dead letter emits nothing");
}

#[test]
fn a_job_that_fails_after_it_wrote_is_undone_alone() {
    let site = Site::new();
    // Refused by a trigger of the program's own, after the article's row is there.
    let trigger = "CREATE TRIGGER no_bad BEFORE INSERT ON article_tags WHEN NEW.tag = 'bad' \
                   BEGIN SELECT RAISE(ABORT, 'bad tags are not wanted'); END";
    site.look().execute_batch(trigger).unwrap();
    let first = enqueue(&site, job("create", r#"{"title": "First", "content": "x"}"#));
    let bad = enqueue(&site, job("create", r#"{"title": "Bad", "content": "x", "tags": ["bad"]}"#));
    let last = enqueue(&site, job("create", r#"{"title": "Last", "content": "x"}"#));
    let ran = site.run();
    assert_eq!((ran.applied, ran.failed), (2, 1));
    assert_eq!([site.status(first), site.status(last)], [JobStatus::Applied; 2]);
    assert!(site.job(bad).last_error.unwrap().contains("bad tags are not wanted"));
    assert!(site.article("bad").is_none());
    assert_eq!(site.events().len(), 2);
}

#[test]
fn a_violation_that_only_a_commit_shows_condemns_the_one_job_that_brings_it_about() {
    let site = Site::new();
    let deferred = "CREATE TABLE owners (slug TEXT PRIMARY KEY); \
        CREATE TABLE owned (article TEXT REFERENCES owners(slug) DEFERRABLE INITIALLY DEFERRED); \
        CREATE TRIGGER own AFTER INSERT ON articles WHEN NEW.title = 'Owned' \
        BEGIN INSERT INTO owned VALUES (NEW.slug); END";
    site.look().execute_batch(deferred).unwrap();
    let enforced: bool =
        site.database.read(|conn| conn.pragma_query_value(None, "foreign_keys", |row| row.get(0))).unwrap();
    assert!(enforced, "without enforcement there is nothing to violate");
    let first = enqueue(&site, job("create", GOOD));
    let bad = enqueue(&site, job("create", r#"{"title": "Owned", "content": "x"}"#));
    let last = enqueue(&site, job("create", GOOD));
    site.run();
    let expected = [JobStatus::Applied, JobStatus::DeadLetter, JobStatus::Applied];
    assert_eq!([site.status(first), site.status(bad), site.status(last)], expected);
}

#[test]
fn after_three_replays_a_job_is_quarantined_and_only_force_replays_it() {
    let site = Site::new();
    let id = enqueue(&site, job("update", r#"{"slug": "gone", "patch": {"content": "x"}}"#));
    site.run();
    for replays in 1..=MAX_REPLAYS {
        assert_eq!(site.status(id), JobStatus::DeadLetter);
        site.jobs.replay(id, false).unwrap();
        assert_eq!(site.job(id).replays, replays);
        site.run();
    }
    assert_eq!(site.status(id), JobStatus::Quarantined);
    assert!(matches!(site.jobs.replay(id, false), Err(JobError::Quarantined { .. })));
    site.applied(create("Gone"));
    site.jobs.replay(id, true).unwrap();
    site.run();
    assert_eq!(site.status(id), JobStatus::Applied);
    assert_eq!(site.article("gone").unwrap().content, "x");
}

#[test]
fn acts_that_a_status_does_not_allow_are_refused_and_change_nothing() {
    let site = Site::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let id = site.deferred(create("One"));
    assert!(matches!(site.jobs.replay(id, true), Err(JobError::Status { .. })));
    assert!(matches!(site.jobs.discard(id, "no"), Err(JobError::Status { .. })));
    assert!(matches!(site.jobs.cancel(99, None), Err(JobError::NotFound { id: 99 })));
    site.jobs.cancel(id, Some("changed my mind")).unwrap();
    assert!(matches!(site.jobs.cancel(id, None), Err(JobError::Status { .. })));
    site.jobs.set_mode(Mode::Open, None).unwrap();
    assert_eq!(site.run().applied, 0);
    assert_eq!(site.job(id).last_error.as_deref(), Some("changed my mind"));
    site.jobs.replay(id, false).unwrap();
    site.run();
    assert_eq!(site.status(id), JobStatus::Applied);
    assert!(matches!(site.jobs.cancel(id, None), Err(JobError::Status { .. })));
    assert!(matches!(site.jobs.replay(id, true), Err(JobError::Status { .. })));
}

#[test]
fn applied_jobs_go_after_a_day_and_dead_ones_only_by_command() {
    let site = Site::new();
    let good = enqueue(&site, job("create", GOOD));
    let dead = enqueue(&site, job("create", "{"));
    site.run();
    let day = JobOptions::default().keep;
    site.clock.advance(86_400_000);
    assert_eq!(site.jobs.prune(day).unwrap(), 0, "not older than a day yet");
    site.clock.advance(1);
    assert_eq!(site.jobs.prune(day).unwrap(), 1);
    assert!(site.jobs.show(good).unwrap().is_none());
    assert_eq!(site.status(dead), JobStatus::DeadLetter);
    site.jobs.discard(dead, "of no use").unwrap();
    assert!(site.jobs.show(dead).unwrap().is_none());
}

#[test]
fn lists_come_in_pages_and_counts_add_up() {
    let site = Site::new();
    let jobs: Vec<NewJob> = (0..7).map(|_| job("create", "{")).collect();
    let ids: Vec<i64> = site.jobs.enqueue(jobs).unwrap().into_iter().flatten().collect();
    site.run();
    let mut query = JobQuery::default();
    (query.status, query.limit) = (JobStatus::DeadLetter, 3);
    let mut seen = Vec::new();
    loop {
        let page = site.jobs.list(&query).unwrap();
        let Some(last) = page.last() else { break };
        query.after = Some((last.updated_at, last.id));
        seen.extend(page.iter().map(|job| job.id));
    }
    assert_eq!(seen, ids);
    let stats = site.jobs.stats().unwrap();
    assert_eq!((stats.pending, stats.dead_letter, stats.applied), (0, 7, 0));
}

#[test]
fn a_database_fault_spends_nothing_stops_the_line_and_ends_by_itself() {
    let site = Site::new();
    site.applied(create("Page"));
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let ids: Vec<i64> = (0..40).map(|n| site.deferred(update("page", &format!("{n}")))).collect();
    site.jobs.set_mode(Mode::Open, None).unwrap();
    // Whoever holds the lock longer than the queue-writer waits makes it busy.
    let holder = site.look();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = site.jobs.run_due(Instant::now() + LONG).unwrap_err();
    assert!(matches!(error, JobError::Database(_)), "{error}");
    assert!(ids.iter().all(|id| site.job(*id).status == JobStatus::Pending && site.job(*id).replays == 0));
    holder.execute_batch("ROLLBACK").unwrap();
    assert_eq!(site.run().applied, 40);
    assert_eq!(site.article("page").unwrap().version, 41);
}

#[test]
fn a_runner_says_why_its_line_stands_and_goes_on() {
    let site = Site::new();
    let runner = site.runner();
    let holder = site.look();
    holder.execute_batch("BEGIN IMMEDIATE; INSERT INTO write_jobs (operation, body) VALUES ('create', '{}')").unwrap();
    holder.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
    wait_until("the fault shows", || runner.status().fault.is_some());
    holder.execute_batch("ROLLBACK").unwrap();
    wait_until("the job is judged", || runner.status().failed == 1);
    wait_until("the fault is gone", || runner.status().fault.is_none());
    runner.stop(Instant::now() + LONG).unwrap();
    runner.stop(Instant::now() + LONG).unwrap();
    assert!(!runner.status().running);
    assert!(runner.start().is_err(), "a runner runs once");
}

#[test]
fn a_job_is_applied_by_its_number_and_a_scheduled_one_holds_nobody_up() {
    let site = Site::new();
    site.applied(create("Page"));
    let later =
        NewJob { run_at: Some(NOW_MS + 5_000), ..job("update", r#"{"slug": "page", "patch": {"content": "later"}}"#) };
    let later = enqueue(&site, later);
    let now = enqueue(&site, job("update", r#"{"slug": "page", "patch": {"content": "now"}}"#));
    assert_eq!(site.run().applied, 1);
    assert_eq!([site.status(later), site.status(now)], [JobStatus::Pending, JobStatus::Applied]);
    site.clock.advance(5_000);
    let last = enqueue(&site, job("update", r#"{"slug": "page", "patch": {"content": "last"}}"#));
    assert_eq!(site.run().applied, 2);
    let causes: Vec<_> = site.events().into_iter().skip(1).map(|event| event.3.unwrap()).collect();
    assert_eq!(causes, [now, later, last].map(|id| id.to_string()));
}

#[test]
fn original_07_a_job_for_an_article_that_is_gone_emits_no_event() {
    let site = Site::new();
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let jobs = [site.deferred(update("gone", "x")), site.deferred(delete("gone"))];
    site.jobs.set_mode(Mode::Open, None).unwrap();
    site.run();
    assert_eq!(jobs.map(|id| site.status(id)), [JobStatus::DeadLetter; 2]);
    assert_eq!(site.events(), []);
}

#[test]
fn original_08_a_batch_that_cannot_be_queued_is_never_counted_as_queued() {
    let mut options = JobOptions::default();
    options.waiting_max = 5;
    let site = Site::with(options);
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let batch = |count: usize| (0..count).map(|n| WriteJob::new(create(&format!("Post {n}")))).collect::<Vec<_>>();
    assert!(site.writer.enqueue_batch(batch(6)).is_err());
    assert_eq!(site.jobs.stats().unwrap().pending, 0);
    let answers = site.writer.enqueue_batch(batch(5)).unwrap();
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(site.jobs.stats().unwrap().pending, 5, "as many as were answered");
}

#[test]
fn original_09_two_runners_never_apply_one_job_twice_nor_out_of_order() {
    let site = Site::new();
    site.applied(create("Page"));
    site.jobs.set_mode(Mode::Journal, None).unwrap();
    let ids: Vec<i64> = (0..1_000).map(|n| site.deferred(update("page", &format!("{n}")))).collect();
    let others: Vec<Site> = (0..2).map(|_| Site::in_folder(site.folder.clone(), JobOptions::default())).collect();
    site.jobs.set_mode(Mode::Open, None).unwrap();
    let applied: u64 = std::thread::scope(|scope| {
        let runs: Vec<_> = [&site, &others[0], &others[1]].map(|each| scope.spawn(|| each.run().applied)).into();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    assert_eq!(applied, 1_000);
    let causes: Vec<_> = site.events().into_iter().skip(1).map(|event| event.3.unwrap()).collect();
    let expected: Vec<String> = ids.iter().map(i64::to_string).collect();
    assert_eq!(causes, expected, "each once, in the order of the line");
}

#[test]
fn original_10_the_change_its_event_and_the_status_commit_together() {
    let site = Site::new();
    // The status cannot be written: then there is no article and no event either.
    let trigger = "CREATE TRIGGER no_status BEFORE UPDATE OF status ON write_jobs WHEN NEW.status = 'applied' \
                   BEGIN SELECT RAISE(ABORT, 'not now'); END";
    site.look().execute_batch(trigger).unwrap();
    let id = enqueue(&site, job("create", GOOD));
    assert!(site.jobs.run_due(Instant::now() + Duration::from_secs(5)).is_err());
    assert_eq!(site.status(id), JobStatus::Pending);
    assert!(site.article("good").is_none() && site.events().is_empty());
    site.look().execute_batch("DROP TRIGGER no_status").unwrap();
    assert_eq!(site.run().applied, 1);
    assert_eq!(site.events().len(), 1);
}

#[test]
fn a_runner_whose_database_was_closed_does_not_say_that_it_runs() {
    let site = Site::new();
    let runner = site.runner();
    wait_until("it runs", || runner.status().running);
    site.database.close(Instant::now() + LONG).unwrap();
    wait_until("it has ended", || !runner.status().running);
    runner.stop(Instant::now() + LONG).unwrap();
}

#[test]
fn pruning_ends_where_something_keeps_the_rows() {
    let site = Site::new();
    site.jobs.enqueue(vec![job("delete", r#"{"slug": "nothing"}"#)]).unwrap();
    let keep = "UPDATE write_jobs SET status = 'applied', updated_at = 0;
        CREATE TRIGGER kept BEFORE DELETE ON write_jobs BEGIN SELECT RAISE(IGNORE); END";
    site.look().execute_batch(keep).unwrap();
    assert_eq!(site.jobs.prune(Duration::from_secs(1)).unwrap(), 0);
}
