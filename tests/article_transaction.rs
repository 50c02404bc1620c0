//! `article::apply` in a program's own transactions: beside its own tables, run twice, and interrupted between the
//! article and its event.

mod article_support;

use std::error::Error;

use article_support::{NOW_MS, Site, created, post, prepare};
use vayu_articles::article::{Applied, ArticleError, ArticlePatch, Expected, Mutation, apply};
use vayu_articles::outbox::{self, NewEvent};
use vayu_articles::rusqlite::{Connection, TransactionBehavior};
use vayu_articles::storage::TransactError;

fn begin(conn: &mut Connection) -> vayu_articles::rusqlite::Transaction<'_> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

fn update(slug: &str, patch: ArticlePatch) -> Mutation {
    Mutation::Update { slug: slug.into(), patch, expected: Expected::any() }
}

#[test]
fn an_article_commits_with_a_programs_own_row() {
    let site = Site::new();
    site.look().execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, slug TEXT NOT NULL)").unwrap();
    let mutation = prepare(Mutation::Create(post("One")));
    let both = site.database.writer().transact(move |tx| -> Result<Applied, ArticleError> {
        tx.execute("INSERT INTO orders (slug) VALUES ('one')", [])?;
        apply(tx, &mutation)
    });
    assert!(both.unwrap().changed());
    assert_eq!(site.look().query_row("SELECT slug FROM orders", [], |row| row.get::<_, String>(0)).unwrap(), "one");
    site.assert_log_explains_articles();

    let mutation = prepare(Mutation::Create(post("x").slug("one")));
    let neither = site.database.writer().transact(move |tx| -> Result<Applied, ArticleError> {
        tx.execute("INSERT INTO orders (slug) VALUES ('again')", [])?;
        apply(tx, &mutation)
    });
    assert!(matches!(neither, Err(TransactError::Task(ArticleError::SlugTaken { .. }))));
    let rows = site.look().query_row("SELECT count(*) FROM orders", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows.unwrap(), 1);
}

#[test]
fn g1_an_event_id_that_is_there_already_undoes_the_mutation() {
    let site = Site::new();
    let kept = created(&site.queued(), post("Kept").tags(["a"]));
    for mutation in [
        Mutation::Create(post("New").tags(["x"])),
        update("kept", ArticlePatch::default().title("Changed").tags(["y"])),
        Mutation::Delete { slug: "kept".into(), expected: Expected::any() },
        Mutation::Import { source: "s".into(), hash: "h".into(), article: post("New") },
    ] {
        let mutation = prepare(mutation);
        let mut foreign = NewEvent::from_json("order.paid.v1", "{}");
        foreign.event_id = mutation.event_id().to_owned();
        let log = site.database.writer().transact(move |tx| outbox::insert(tx, &foreign));
        log.unwrap();
        let refused = site.database.writer().transact(move |tx| apply(tx, &mutation)).unwrap_err();
        let TransactError::Task(error) = refused else { panic!("{refused}") };
        assert_eq!((error.code(), error.is_callers()), ("event_refused", false));
        assert!(error.source().unwrap().source().is_some(), "SQLite's error is reachable");
        assert_eq!(site.articles(), std::slice::from_ref(&kept));
    }
    let sources = site.look().query_row("SELECT count(*) FROM article_sources", [], |row| row.get::<_, i64>(0));
    assert_eq!(sources.unwrap(), 0);
    let own = "SELECT count(*) FROM event_outbox WHERE event_type LIKE 'article.%'";
    assert_eq!(site.look().query_row(own, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn a_mutation_run_again_after_a_rollback_does_the_same() {
    let site = Site::new();
    let writer = site.direct();
    (0..9).for_each(|_| drop(created(&writer, post("Foo"))));
    let mut conn = site.look();
    for mutation in [
        Mutation::Create(post("Foo").tags(["a"])),
        update("foo", ArticlePatch::default().title("Bar").tags(["b"])),
        Mutation::Import { source: "s".into(), hash: "h".into(), article: post("Foo") },
        Mutation::Delete { slug: "foo-2".into(), expected: Expected::any() },
    ] {
        let mutation = mutation.prepare(NOW_MS + 1, Some("c".into()), None).unwrap();
        let run = |conn: &mut Connection| {
            let tx = begin(conn);
            let applied = apply(&tx, &mutation).unwrap();
            let event = article_support::events(&tx).pop().unwrap();
            drop(tx);
            (applied, event)
        };
        let first = run(&mut conn);
        assert_eq!(first, run(&mut conn));
        assert_eq!(first.1.event_id, mutation.event_id());
    }
    assert_eq!(site.events().len(), 9, "every run was rolled back");
}

#[test]
fn a_refused_mutation_leaves_the_transaction_untouched() {
    let site = Site::new();
    let writer = site.direct();
    created(&writer, post("One").id("a1"));
    created(&writer, post("Two"));
    let mut conn = site.look();
    for mutation in [
        Mutation::Create(post("x").slug("one").tags(["a"])),
        Mutation::Create(post("Fresh").id("a1")),
        update("two", ArticlePatch::default().slug("one").title("x").tags(["a"])),
        update("gone", ArticlePatch::default().title("x")),
        Mutation::Delete { slug: "gone".into(), expected: Expected::any() },
        Mutation::Delete { slug: "one".into(), expected: Expected::version(2) },
        Mutation::Import { source: "s".into(), hash: "h".into(), article: post("x").slug("one") },
    ] {
        let tx = begin(&mut conn);
        let before = tx.total_changes();
        let error = apply(&tx, &prepare(mutation)).unwrap_err();
        assert!(error.is_callers(), "{error}");
        assert_eq!(tx.total_changes(), before, "{error}");
    }
}

#[test]
fn a_fault_of_one_task_harms_no_other_in_its_group() {
    let site = Site::new();
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON event_outbox WHEN NEW.payload LIKE '%refused%' \
                   BEGIN SELECT RAISE(ABORT, 'refused by the test'); END";
    site.look().execute_batch(trigger).unwrap();
    let writer = site.queued();
    std::thread::scope(|scope| {
        for caller in 0..8 {
            let (writer, site) = (&writer, &site);
            scope.spawn(move || {
                for round in 0..20 {
                    created(writer, post(&format!("Good {caller} {round}")));
                    let refused = prepare(Mutation::Create(post(&format!("refused {caller} {round}"))));
                    let answer = site.database.writer().transact(move |tx| apply(tx, &refused));
                    assert!(matches!(answer, Err(TransactError::Task(ArticleError::Event(_)))));
                }
            });
        }
    });
    assert_eq!(site.articles().len(), 160);
    site.assert_log_explains_articles();
}

#[test]
fn an_import_that_only_noted_a_new_hash_is_found_by_that_note() {
    let site = Site::new();
    let mut conn = Connection::open(site.path()).unwrap();
    let import = |hash: &str| Mutation::Import { source: "a/b.md".into(), hash: hash.into(), article: post("Same") };
    for (hash, has_event) in [("one", true), ("two", false)] {
        let prepared = prepare(import(hash));
        assert!(!prepared.is_logged(&conn).unwrap(), "{hash}: not written yet");
        let tx = begin(&mut conn);
        let applied = apply(&tx, &prepared).unwrap();
        assert_eq!(matches!(applied, Applied::Created(_)), has_event, "{applied:?}");
        tx.commit().unwrap();
        assert!(prepared.is_logged(&conn).unwrap(), "{hash}: committed");
    }
    let events: i64 = conn.query_row("SELECT count(*) FROM event_outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(events, 1, "the second import changed no text");
}
