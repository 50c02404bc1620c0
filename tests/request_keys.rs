//! A job with a key is done once, whichever writer it goes through.

#[macro_use]
mod article_support;

use std::sync::mpsc;

use article_support::{NOW_MS, Site, create, post};
use vayu_articles::article::{
    Applied, ArticlePatch, Expected, Mutation, NewArticle, REQUEST_KEY_KEPT_MS, RequestKey, prune_request_keys,
};
use vayu_articles::queue::{Receipt, WriteError, WriteJob, Writer};
use vayu_articles::rusqlite;
use vayu_articles::service::{ArticleService, WriteContext};

fn key(key: &str, fingerprint: &str) -> RequestKey {
    RequestKey::new("editor", key, fingerprint).unwrap()
}

fn keys(site: &Site) -> i64 {
    site.look().query_row("SELECT count(*) FROM request_keys", [], |row| row.get(0)).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, WriteError>) -> &'static str {
    answer.unwrap_err().code()
}

fn a_repeated_job_changes_nothing_and_is_answered_as_the_first(writer: &dyn Writer, site: &Site) {
    let patch =
        |slug: &str, patch| WriteJob::new(Mutation::Update { slug: slug.into(), patch, expected: Expected::any() });
    let jobs = [
        create(post("One").tags(["a"])).key(key("k1", "create")),
        patch("one", ArticlePatch::default().title("Uno").slug("uno")).key(key("k2", "rename")),
        patch("uno", ArticlePatch::default()).key(key("k3", "nothing")),
        WriteJob::new(Mutation::Delete { slug: "uno".into(), expected: Expected::any() }).key(key("k4", "delete")),
    ];
    let first: Vec<Receipt> = jobs.iter().map(|job| writer.enqueue(job.clone()).unwrap()).collect();
    assert!(matches!(first[2], Receipt::Applied(Applied::Unchanged(_))));
    site.clock.advance(1_000);
    for (job, first) in jobs.iter().zip(&first) {
        assert_eq!(writer.enqueue(job.clone()).unwrap(), *first);
    }
    assert_eq!((site.events().len(), site.articles().len(), keys(site)), (3, 0, 4));
    site.assert_log_explains_articles();
}

fn a_key_belongs_to_one_request_and_one_scope(writer: &dyn Writer, site: &Site) {
    writer.enqueue(create(post("One")).key(key("k", "one"))).unwrap();
    let error = writer.enqueue(create(post("Two")).key(key("k", "two"))).unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("idempotency_key_reused", false));
    assert_eq!(code(writer.enqueue_batch(vec![create(post("Two")).key(key("k", "two"))])), "idempotency_key_reused");
    let other = RequestKey::new("somebody else", "k", "one").unwrap();
    writer.enqueue(create(post("One")).key(other)).unwrap();
    assert_eq!((site.events().len(), keys(site)), (2, 2));
    for bad in ["", "a b", "é", "a\n", &"x".repeat(256)] {
        assert_eq!(RequestKey::new("s", bad, "f").unwrap_err().field(), Some("idempotency_key"), "{bad}");
    }
}

fn a_refused_job_leaves_its_key_free(writer: &dyn Writer, site: &Site) {
    writer.enqueue(create(post("Taken"))).unwrap();
    assert_eq!(code(writer.enqueue(create(NewArticle::new("", "x")).key(key("k", "bad")))), "invalid");
    assert_eq!(code(writer.enqueue(create(post("x").slug("taken")).key(key("k", "taken")))), "slug_taken");
    let bad = vec![create(post("x").slug("taken")).key(key("k", "batch")), create(NewArticle::new("", "x"))];
    assert!(writer.enqueue_batch(bad).unwrap().iter().all(Result::is_err));
    assert_eq!(keys(site), 0);
    writer.enqueue(create(post("Mended")).key(key("k", "good"))).unwrap();
    assert_eq!((site.events().len(), keys(site)), (2, 1));
}

fn a_batch_has_one_key_and_is_answered_as_the_first_time(writer: &dyn Writer, site: &Site) {
    let batch = || {
        vec![
            create(post("One").slug("same")).key(key("k", "batch")),
            create(post("Two").slug("same")),
            create(NewArticle::new("", "x")),
            create(post("Four")),
        ]
    };
    let told = |answers: Vec<Result<Receipt, WriteError>>| -> Vec<String> {
        answers.into_iter().map(|answer| format!("{:?}", answer.map_err(|e| (e.code(), e.to_string())))).collect()
    };
    let first = told(writer.enqueue_batch(batch()).unwrap());
    site.clock.advance(5);
    assert_eq!(told(writer.enqueue_batch(batch()).unwrap()), first);
    assert!(first[1].contains("slug_taken") && first[2].contains("title") && first[3].contains("four"), "{first:?}");
    assert_eq!((site.events().len(), keys(site)), (2, 1));
    site.assert_log_explains_articles();
}

fn of_many_at_once_with_one_key_one_is_done(writer: &dyn Writer, site: &Site) {
    let answers: Vec<Receipt> = std::thread::scope(|scope| {
        let job = || create(post("Once")).key(key("k", "once"));
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(move || writer.enqueue(job()).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!((site.events().len(), site.articles().len()), (1, 1));
}

fn a_key_is_forgotten_after_a_day_and_old_ones_go_in_small_steps(writer: &dyn Writer, site: &Site) {
    for n in 0..30 {
        writer.enqueue(create(post("Old")).key(key(&format!("k{n}"), "f"))).unwrap();
    }
    site.clock.advance(REQUEST_KEY_KEPT_MS - 1);
    writer.enqueue(create(post("Old")).key(key("k0", "f"))).unwrap();
    assert_eq!((site.events().len(), keys(site)), (30, 30), "still known");
    site.clock.advance(1);
    let again = writer.enqueue(create(post("New")).key(key("k0", "other"))).unwrap();
    assert!(matches!(again, Receipt::Applied(Applied::Created(_))));
    assert_eq!(keys(site), 30 - 8, "the fresh one took the place of an old one, and eight old ones went");
    let mut conn = site.look();
    let tx = conn.transaction().unwrap();
    let now_ms = NOW_MS + REQUEST_KEY_KEPT_MS;
    assert_eq!(prune_request_keys(&tx, now_ms, 10).unwrap(), 10);
    assert_eq!(prune_request_keys(&tx, now_ms, 100).unwrap(), 11);
    tx.commit().unwrap();
    assert_eq!(keys(site), 1);
}

fn g1_when_the_event_fails_the_key_is_undone_too(writer: &dyn Writer, site: &Site) {
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON event_outbox BEGIN SELECT RAISE(ABORT, 'no'); END";
    site.look().execute_batch(refuse).unwrap();
    let job = create(post("One")).key(key("k", "one"));
    assert_eq!(code(writer.enqueue(job.clone())), "event_refused");
    assert_eq!((keys(site), site.articles().len()), (0, 0));
    site.look().execute_batch("DROP TRIGGER refuse").unwrap();
    writer.enqueue(job).unwrap();
    // And the other way round: without its key the article is not there either.
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON request_keys BEGIN SELECT RAISE(ABORT, 'no'); END";
    site.look().execute_batch(refuse).unwrap();
    assert_eq!(code(writer.enqueue(create(post("Two")).key(key("k2", "two")))), "database_error");
    assert_eq!((keys(site), site.articles().len(), site.events().len()), (1, 1, 1));
    site.assert_log_explains_articles();
}

conformance!(sqlite_writer: queued, direct_writer: direct; [
    a_repeated_job_changes_nothing_and_is_answered_as_the_first,
    a_key_belongs_to_one_request_and_one_scope,
    a_refused_job_leaves_its_key_free,
    a_batch_has_one_key_and_is_answered_as_the_first_time,
    of_many_at_once_with_one_key_one_is_done,
    a_key_is_forgotten_after_a_day_and_old_ones_go_in_small_steps,
    g1_when_the_event_fails_the_key_is_undone_too,
]);

#[test]
fn two_of_one_key_in_one_group_share_one_outcome_and_a_neighbour_that_fails_does_not_part_them() {
    let site = Site::new();
    let writer = site.queued();
    let (held, holding) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let outcomes: Vec<Receipt> = std::thread::scope(|scope| {
        let queue = site.database.writer().clone();
        scope.spawn(move || {
            queue.transact(move |_| {
                held.send(()).unwrap();
                let _ = released.recv();
                Ok::<_, rusqlite::Error>(())
            })
        });
        holding.recv().unwrap();
        let job = || create(post("Once")).key(key("k", "once"));
        let writer = &writer;
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(move || writer.enqueue(job()).unwrap())).collect();
        // This one errs after it wrote, so the whole group runs a second time.
        let queue = site.database.writer().clone();
        let spoil = scope.spawn(move || {
            queue.transact(|tx| {
                tx.execute("INSERT INTO article_sources VALUES ('s', 'a', 'h', 1, 1)", [])?;
                Err::<(), _>(rusqlite::Error::InvalidQuery)
            })
        });
        while site.database.writer().stats().waiting_jobs < 5 {
            std::thread::yield_now();
        }
        drop(release);
        assert!(spoil.join().unwrap().is_err());
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
    assert_eq!((site.events().len(), keys(&site)), (1, 1));
}

#[test]
fn a_service_tells_what_a_key_led_to_before_anything_else_is_checked() {
    let site = Site::new();
    let service: ArticleService = site.service();
    let mut context = WriteContext { key: Some(key("k", "create")), ..WriteContext::default() };
    assert!(service.repeated(&context).unwrap().is_none());
    let article = service.create(post("One"), &context).unwrap();
    assert_eq!(service.repeated(&context).unwrap().unwrap().unwrap(), article);
    context.key = Some(key("k", "another"));
    let error = service.repeated(&context).unwrap().unwrap().unwrap_err();
    assert_eq!(error.code(), "idempotency_key_reused");
    context.key = None;
    assert!(service.repeated(&context).unwrap().is_none());
}
