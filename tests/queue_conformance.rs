//! What every `queue::Writer` promises, checked for the one with a queue and the one without.

#[macro_use]
mod article_support;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use article_support::{NOW_MS, Site, applied, create, created, post};
use vayu_articles::article::{
    Applied, Article, ArticleError, ArticlePatch, Expected, Kept, Kind, MAX_CONTENT_BYTES, Mutation, NewArticle, Status,
};
use vayu_articles::queue::{MAX_BATCH_BYTES, MAX_BATCH_JOBS, Receipt, WriteError, WriteJob, Writer};

fn update(slug: &str, patch: ArticlePatch) -> WriteJob {
    update_expecting(slug, patch, Expected::any())
}

fn update_expecting(slug: &str, patch: ArticlePatch, expected: Expected) -> WriteJob {
    WriteJob::new(Mutation::Update { slug: slug.into(), patch, expected })
}

fn delete(slug: &str) -> WriteJob {
    WriteJob::new(Mutation::Delete { slug: slug.into(), expected: Expected::any() })
}

fn import(source: &str, hash: &str, article: NewArticle) -> WriteJob {
    WriteJob::new(Mutation::Import { source: source.into(), hash: hash.into(), article })
}

fn code<T: std::fmt::Debug>(answer: Result<T, WriteError>) -> &'static str {
    answer.unwrap_err().code()
}

fn creation_commits_article_tags_and_event(writer: &dyn Writer, site: &Site) {
    let new = post("A Title").tags(["Rust", "SQLite"]).kind(Kind::Page).status(Status::Draft);
    let job = create(new).correlation_id("request-1").causation_id("job-7");
    let Receipt::Applied(Applied::Created(article)) = writer.enqueue(job).unwrap() else { panic!("not created") };
    assert_eq!((article.slug.as_str(), article.version), ("a-title", 1));
    assert_eq!((article.created_at, article.updated_at), (NOW_MS, NOW_MS));
    assert_eq!(site.articles(), std::slice::from_ref(&article));
    let events = site.events();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].event_type, "article.created.v1");
    assert_eq!(events[0].key.as_deref(), Some(article.id.as_str()));
    assert_eq!(events[0].correlation_id.as_deref(), Some("request-1"));
    assert_eq!(events[0].causation_id.as_deref(), Some("job-7"));
    assert_eq!(events[0].occurred_at, NOW_MS);
    assert_eq!(events[0].body.tags, ["Rust", "SQLite"]);
    assert_eq!(events[0].body.previous, None);
}

fn update_changes_what_it_names_and_tells_what_was(writer: &dyn Writer, site: &Site) {
    let before = created(writer, post("One").tags(["a", "b"]));
    site.clock.advance(5);
    let patch = ArticlePatch::default().slug("two").tags(["b", "c"]).status(Status::Draft);
    let Receipt::Applied(Applied::Updated(after)) = writer.enqueue(update("one", patch)).unwrap() else {
        panic!("not updated")
    };
    assert_eq!((after.title.as_str(), after.content.as_str()), ("One", "About One."));
    assert_eq!((after.version, after.created_at, after.updated_at), (2, NOW_MS, NOW_MS + 5));
    assert_eq!(site.articles(), std::slice::from_ref(&after));
    let event = site.events().pop().unwrap();
    let previous = event.body.previous.clone().unwrap();
    assert_eq!((event.event_type.as_str(), event.body.version), ("article.updated.v1", 2));
    assert_eq!((event.body.slug.as_str(), event.body.tags.as_slice()), ("two", after.tags.as_slice()));
    assert_eq!((previous.slug, previous.status, previous.tags), (before.slug, Status::Published, before.tags));
}

fn update_of_text_alone_keeps_the_rest(writer: &dyn Writer, site: &Site) {
    created(writer, post("One").tags(["a"]).kind(Kind::Page).status(Status::Draft));
    let patch = ArticlePatch::default().title("Two").content("Changed.");
    let article = applied(writer.enqueue(update("one", patch)));
    assert_eq!((article.slug.as_str(), article.kind, article.status), ("one", Kind::Page, Status::Draft));
    assert_eq!(site.articles(), [article]);
}

fn update_that_changes_nothing_writes_nothing(writer: &dyn Writer, site: &Site) {
    let before = created(writer, post("One").tags(["Rust"]));
    site.clock.advance(5);
    let same = ArticlePatch::default().title("One").content("About One.").slug("one").tags([" Rust "]);
    for patch in [ArticlePatch::default(), same] {
        let receipt = writer.enqueue(update("one", patch)).unwrap();
        assert_eq!(receipt, Receipt::Applied(Applied::Unchanged(before.clone())));
    }
    assert_eq!(site.articles(), [before]);
    assert_eq!(site.events().len(), 1);
}

fn deletion_leaves_nothing_but_its_event(writer: &dyn Writer, site: &Site) {
    let article = created(writer, post("One").tags(["a"]));
    let receipt = writer.enqueue(delete("one").correlation_id("r")).unwrap();
    assert_eq!(receipt, Receipt::Applied(Applied::Deleted(article.clone())));
    assert_eq!(site.articles(), []);
    let event = site.events().pop().unwrap();
    assert_eq!((event.event_type.as_str(), event.body.version), ("article.deleted.v1", article.version + 1));
    assert_eq!((event.body.slug.as_str(), event.body.tags.len()), ("one", 0));
    assert_eq!(event.body.previous.unwrap().tags, article.tags);
    assert_eq!(event.correlation_id.as_deref(), Some("r"));
}

fn a_missing_slug_is_not_found_and_emits_nothing(writer: &dyn Writer, site: &Site) {
    assert_eq!(code(writer.enqueue(update("gone", ArticlePatch::default().title("x")))), "not_found");
    assert_eq!(code(writer.enqueue(delete("gone"))), "not_found");
    assert_eq!(code(writer.enqueue(delete("no such slug"))), "not_found");
    assert_eq!(site.events(), []);
}

fn an_explicit_slug_that_is_taken_is_a_conflict(writer: &dyn Writer, site: &Site) {
    created(writer, post("One"));
    created(writer, post("Two"));
    let error = writer.enqueue(create(post("Other").slug("one"))).unwrap_err();
    assert_eq!((error.code(), error.field(), error.retryable()), ("slug_taken", Some("slug"), false));
    assert_eq!(code(writer.enqueue(update("two", ArticlePatch::default().slug("one")))), "slug_taken");
    assert_eq!(site.events().len(), 2);
    site.assert_log_explains_articles();
}

fn a_given_id_that_is_taken_is_a_conflict(writer: &dyn Writer, site: &Site) {
    created(writer, post("One").id("a1").times(5, 7));
    let error = writer.enqueue(create(post("Two").id("a1"))).unwrap_err();
    assert_eq!((error.code(), error.field()), ("id_taken", Some("id")));
    assert_eq!(site.articles()[0].created_at, 5);
    assert_eq!(site.articles()[0].updated_at, 7);
    site.assert_log_explains_articles();
}

fn derived_slugs_never_conflict(writer: &dyn Writer, site: &Site) {
    let slugs: Vec<String> = (0..14).map(|_| created(writer, post("Foo")).slug).collect();
    assert_eq!(slugs[..3], ["foo", "foo-2", "foo-3"]);
    assert_eq!(slugs[8], "foo-9");
    assert!(slugs[9..].iter().all(|slug| slug.starts_with("foo-") && slug.len() == 12), "{slugs:?}");
    assert_eq!(slugs.iter().collect::<HashSet<_>>().len(), 14);
    site.assert_log_explains_articles();
}

fn expectations_are_compared_inside_the_transaction(writer: &dyn Writer, site: &Site) {
    let first = created(writer, post("One"));
    let title = |title: &str| ArticlePatch::default().title(title);
    let second = applied(writer.enqueue(update_expecting("one", title("1"), Expected::exactly(&first))));
    for expected in [Expected::exactly(&first), Expected::version(1), Expected::version(3)] {
        let error = writer.enqueue(update_expecting("one", title("2"), expected.clone())).unwrap_err();
        let WriteError::Article(ArticleError::Stale { expected: named, id, version, .. }) = error else {
            panic!("{error}")
        };
        assert_eq!((named, id, version), (expected, first.id.clone(), 2));
    }
    let mut other_id = Expected::version(2);
    other_id.id = Some("someone-else".into());
    let job = WriteJob::new(Mutation::Delete { slug: "one".into(), expected: other_id });
    assert_eq!(code(writer.enqueue(job)), "stale");
    let job = WriteJob::new(Mutation::Delete { slug: "one".into(), expected: Expected::exactly(&second) });
    writer.enqueue(job).unwrap();
    assert_eq!(site.events().len(), 3);
}

fn invalid_input_is_named_and_costs_nothing(writer: &dyn Writer, site: &Site) {
    let long = "x".repeat(MAX_CONTENT_BYTES + 1);
    for (job, field) in [
        (create(NewArticle::new("", "x")), "title"),
        (create(NewArticle::new("x".repeat(501), "x")), "title"),
        (create(NewArticle::new("a\0b", "x")), "title"),
        (create(NewArticle::new("x", "")), "content"),
        (create(NewArticle::new("x", long)), "content"),
        (create(NewArticle::new("x", "blabla \0 END")), "content"),
        (create(post("x").slug("Not A Slug")), "slug"),
        (create(post("x").slug("paint\u{200b}worklet")), "slug"),
        (create(post("x").tags(["a", ""])), "tags"),
        (create(post("x").id("../x")), "id"),
        (create(post("x").times(i64::MIN, 0)), "created_at"),
        (create(post("x")).correlation_id("a\nb"), "correlation_id"),
        (create(post("x")).causation_id("x".repeat(257)), "causation_id"),
        (update("x", ArticlePatch::default().content("")), "content"),
        (import("", "h", post("x")), "source"),
        (import("s", "", post("x")), "hash"),
    ] {
        let error = writer.enqueue(job).unwrap_err();
        assert_eq!((error.code(), error.field()), ("invalid", Some(field)), "{error}");
    }
    assert_eq!(site.events(), []);
    assert_eq!(site.articles(), []);
}

fn the_largest_article_fits(writer: &dyn Writer, site: &Site) {
    let tags: Vec<String> = (0..20).map(|n| format!("{n:0>2}{}", "ü".repeat(98))).collect();
    let new = NewArticle::new("語".repeat(500), "x".repeat(MAX_CONTENT_BYTES)).tags(tags);
    let article = created(writer, new);
    assert_eq!(site.repository().by_id(&article.id).unwrap().unwrap(), article);
    site.assert_log_explains_articles();
}

fn a_batch_answers_each_job_and_commits_the_good_ones(writer: &dyn Writer, site: &Site) {
    created(writer, post("Taken"));
    let batch = vec![
        create(post("One")).correlation_id("c1"),
        create(post("x").slug("taken")),
        create(NewArticle::new("", "x")),
        update("one", ArticlePatch::default().title("Uno")).correlation_id("c2"),
        delete("missing"),
        create(post("One")),
        delete("taken"),
        create(post("x").slug("taken")),
    ];
    let answers = writer.enqueue_batch(batch).unwrap();
    let codes: Vec<_> = answers.iter().map(|answer| answer.as_ref().map_or_else(WriteError::code, |_| "ok")).collect();
    assert_eq!(codes, ["ok", "slug_taken", "invalid", "ok", "not_found", "ok", "ok", "ok"]);
    let slugs: HashSet<String> = site.articles().into_iter().map(|article| article.slug).collect();
    assert_eq!(slugs, ["one", "one-2", "taken"].map(String::from).into());
    let events = site.events();
    assert_eq!(events.len(), 6);
    assert_eq!(events[1].correlation_id.as_deref(), Some("c1"));
    assert_eq!(events[2].correlation_id.as_deref(), Some("c2"));
    site.assert_log_explains_articles();
}

fn a_batch_has_limits(writer: &dyn Writer, site: &Site) {
    assert_eq!(writer.enqueue_batch(Vec::new()).unwrap().len(), 0);
    let jobs = |n: usize| (0..n).map(|n| create(post(&format!("Post {n}")))).collect::<Vec<_>>();
    let error = writer.enqueue_batch(jobs(MAX_BATCH_JOBS + 1)).unwrap_err();
    assert_eq!(error.code(), "too_many");
    let large = MAX_BATCH_BYTES / MAX_CONTENT_BYTES + 1;
    let jobs_too_large = (0..large).map(|n| create(NewArticle::new(format!("{n}"), "x".repeat(MAX_CONTENT_BYTES))));
    assert_eq!(code(writer.enqueue_batch(jobs_too_large.collect())), "too_large");
    assert_eq!(site.events(), []);
    let answers = writer.enqueue_batch(jobs(MAX_BATCH_JOBS)).unwrap();
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(site.events().len(), MAX_BATCH_JOBS);
}

fn a_batch_of_refused_jobs_alone_is_answered(writer: &dyn Writer, site: &Site) {
    let answers = writer.enqueue_batch(vec![create(NewArticle::new("", "")), create(post("x").slug("?"))]).unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 2);
    let answers = writer.enqueue_batch(vec![delete("a"), delete("b")]).unwrap();
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 2);
    assert_eq!(site.events(), []);
}

fn a_passed_deadline_cancels_before_anything_is_written(writer: &dyn Writer, site: &Site) {
    let past = Instant::now();
    assert_eq!(code(writer.enqueue(create(post("One")).deadline(past))), "deadline_exceeded");
    let batch = vec![create(post("One")), create(post("Two")).deadline(past)];
    assert_eq!(code(writer.enqueue_batch(batch)), "deadline_exceeded");
    assert_eq!(site.events(), []);
    created_with_deadline(writer, Instant::now() + Duration::from_secs(600));
    assert_eq!(site.events().len(), 1);
}

fn created_with_deadline(writer: &dyn Writer, at: Instant) -> Article {
    applied(writer.enqueue(create(post("In time")).deadline(at)))
}

/// Stands in for a full disk and the like: the log refuses events of articles called `refused`.
fn refuse_marked_events(site: &Site) {
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON event_outbox WHEN NEW.payload LIKE '%refused%' \
                   BEGIN SELECT RAISE(ABORT, 'refused by the test'); END";
    site.look().execute_batch(trigger).unwrap();
}

fn g1_when_the_event_fails_the_mutation_is_undone(writer: &dyn Writer, site: &Site) {
    let kept = created(writer, post("Kept").tags(["a"]));
    refuse_marked_events(site);
    assert_eq!(code(writer.enqueue(create(post("refused").tags(["x"])))), "event_refused");
    let patch = ArticlePatch::default().slug("refused").tags(["y"]);
    assert_eq!(code(writer.enqueue(update("kept", patch))), "event_refused");
    assert_eq!(code(writer.enqueue(import("s", "h", post("refused")))), "event_refused");
    assert_eq!(site.articles(), [kept]);
    let sources = site.look().query_row("SELECT count(*) FROM article_sources", [], |row| row.get::<_, i64>(0));
    assert_eq!(sources.unwrap(), 0);
    site.assert_log_explains_articles();
    created(writer, post("Goes on"));
}

fn g1_a_fault_after_a_write_fails_the_whole_batch(writer: &dyn Writer, site: &Site) {
    refuse_marked_events(site);
    let batch = vec![create(post("One")), create(post("refused")), create(post("Two"))];
    assert_eq!(code(writer.enqueue_batch(batch)), "event_refused");
    assert_eq!(site.articles(), []);
    assert_eq!(site.events(), []);
    let answers = writer.enqueue_batch(vec![create(post("One")), create(post("Two"))]).unwrap();
    assert!(answers.iter().all(Result::is_ok));
    site.assert_log_explains_articles();
}

fn an_import_follows_its_source_and_spares_edits(writer: &dyn Writer, site: &Site) {
    let run = |hash: &str, title: &str| {
        writer.enqueue(import("posts/a.md", hash, post(title).times(1_000, 2_000))).unwrap().into_applied().unwrap()
    };
    let Applied::Created(first) = run("h1", "One") else { panic!("not created") };
    assert_eq!((first.slug.as_str(), first.created_at, first.updated_at), ("one", 1_000, 2_000));
    assert_eq!(run("h1", "One"), Applied::Kept { reason: Kept::SameSource, article: Some(first.clone()) });
    let Applied::Updated(second) = run("h2", "Two") else { panic!("not updated") };
    assert_eq!((second.id.as_str(), second.slug.as_str(), second.title.as_str()), (first.id.as_str(), "one", "Two"));
    assert_eq!(run("h3", "Two"), Applied::Unchanged(second.clone()));
    assert_eq!(run("h3", "Two"), Applied::Kept { reason: Kept::SameSource, article: Some(second) });

    let edited = applied(writer.enqueue(update("one", ArticlePatch::default().title("By hand"))));
    assert_eq!(run("h4", "Four"), Applied::Kept { reason: Kept::Edited, article: Some(edited) });
    writer.enqueue(delete("one")).unwrap();
    assert_eq!(run("h5", "Five"), Applied::Kept { reason: Kept::Deleted, article: None });
    assert_eq!(run("h3", "Two"), Applied::Kept { reason: Kept::SameSource, article: None });
    assert_eq!(site.articles(), []);
    assert_eq!(site.events().len(), 4, "created, updated, edited, deleted");
    site.assert_log_explains_articles();
}

fn imports_of_one_title_are_two_articles(writer: &dyn Writer, site: &Site) {
    let jobs = vec![import("a.md", "h", post("Same")), import("b.md", "h", post("Same"))];
    assert!(writer.enqueue_batch(jobs.clone()).unwrap().iter().all(Result::is_ok));
    assert!(writer.enqueue_batch(jobs).unwrap().iter().all(Result::is_ok));
    let slugs: HashSet<String> = site.articles().into_iter().map(|article| article.slug).collect();
    assert_eq!(slugs, ["same", "same-2"].map(String::from).into());
    assert_eq!(site.events().len(), 2);
}

conformance!(sqlite_writer: queued, gated_writer: gated, direct_writer: direct; [
    creation_commits_article_tags_and_event,
    update_changes_what_it_names_and_tells_what_was,
    update_of_text_alone_keeps_the_rest,
    update_that_changes_nothing_writes_nothing,
    deletion_leaves_nothing_but_its_event,
    a_missing_slug_is_not_found_and_emits_nothing,
    an_explicit_slug_that_is_taken_is_a_conflict,
    a_given_id_that_is_taken_is_a_conflict,
    derived_slugs_never_conflict,
    expectations_are_compared_inside_the_transaction,
    invalid_input_is_named_and_costs_nothing,
    the_largest_article_fits,
    a_batch_answers_each_job_and_commits_the_good_ones,
    a_batch_has_limits,
    a_batch_of_refused_jobs_alone_is_answered,
    a_passed_deadline_cancels_before_anything_is_written,
    g1_when_the_event_fails_the_mutation_is_undone,
    g1_a_fault_after_a_write_fails_the_whole_batch,
    an_import_follows_its_source_and_spares_edits,
    imports_of_one_title_are_two_articles,
]);
