//! What can be brought about only from inside: a mutation that panics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::worker::{Rest, Worker};
use super::*;
use crate::article::{self, ArticleRepository, apply};
use crate::outbox;
use crate::storage::{Database, Options};

#[test]
fn a_job_that_panics_is_a_dead_letter_with_the_panics_text_and_its_neighbours_are_applied() {
    let folder = tempfile::tempdir().expect("a folder");
    let components = [outbox::COMPONENT, article::COMPONENT, COMPONENT];
    let database = Database::open(folder.path().join("site.db"), &components, Options::default()).expect("a database");
    let jobs = Jobs::new(&database, JobOptions::default());
    let new = |title: &str| NewJob::new("create", format!(r#"{{"title": "{title}", "content": "x"}}"#));
    let ids = jobs.enqueue(vec![new("One"), new("Bomb"), new("Two")]).expect("three jobs");
    let [one, bomb, two] = ids[..] else { panic!("three numbers") };
    let (Some(one), Some(bomb), Some(two)) = (one, bomb, two) else { panic!("three numbers") };

    // After it has written, as the worst case.
    let explosive: line::Apply = Arc::new(|tx, mutation| {
        let applied = apply(tx, mutation)?;
        assert!(applied.article().is_none_or(|article| article.title != "Bomb"), "boom");
        Ok(applied)
    });
    let worker = Worker { database: database.clone(), apply: explosive };
    let mut seen = (0, 0);
    let rest = worker.work(&|| false, &mut |done| {
        seen.0 += done.applied;
        seen.1 += done.failed.len();
    });
    assert!(matches!(rest, Rest::Idle { .. }), "{rest:?}");
    assert_eq!(seen, (2, 1));
    let show = |id| jobs.show(id).expect("readable").expect("there");
    assert_eq!([show(one).status, show(two).status], [JobStatus::Applied; 2]);
    let dead = show(bomb);
    assert_eq!(dead.status, JobStatus::DeadLetter);
    assert!(dead.last_error.is_some_and(|reason| reason.starts_with("panic: boom")));
    let articles = ArticleRepository::new(database.clone());
    assert!(articles.by_slug("bomb").expect("readable").is_none());
    database.close(Instant::now() + Duration::from_secs(30)).expect("a close");
}
