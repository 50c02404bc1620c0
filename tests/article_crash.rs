//! The process is killed in the middle of writing. Afterwards every article has its events, every event its article,
//! and everything that was answered is there. The child is this very test program, started again.

mod article_support;

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use article_support::{assert_log_explains_articles, events, look, open_with_system_clock, post};
use vayu_articles::article::{Article, ArticlePatch, ArticleRepository, Expected};
use vayu_articles::queue::SqliteWriter;
use vayu_articles::service::{ArticleService, WriteContext};

const DATABASE: &str = "ARTICLE_CRASH_DATABASE";
/// A child whose parent is gone ends by itself.
const ROUNDS_MAX: usize = 2_000;

#[test]
fn g1_g2_a_kill_leaves_whole_mutations_and_all_that_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("site.db");
    open_with_system_clock(&path).close(Instant::now() + Duration::from_secs(30)).unwrap();
    for answers_before_kill in [1, 30, 100, 250] {
        let answered = run_and_kill(&path, answers_before_kill);
        let database = open_with_system_clock(&path);
        let conn = look(&path);
        assert_log_explains_articles(&conn);
        let mut logged: HashMap<String, i64> = HashMap::new();
        for event in events(&conn) {
            logged.insert(event.body.id, event.body.version);
        }
        for (id, version) in answered {
            assert!(logged.get(&id).is_some_and(|last| *last >= version), "{id} {version} was answered and is gone");
        }
        drop(conn);
        database.close(Instant::now() + Duration::from_secs(30)).unwrap();
    }
}

/// Not a test of its own: what the killed process does.
#[test]
fn child_writes_until_it_is_killed() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let database = open_with_system_clock(Path::new(&path));
    let writer = Arc::new(SqliteWriter::new(&database));
    let service = ArticleService::new(writer, ArticleRepository::new(database));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let service = service.clone();
            scope.spawn(move || (0..ROUNDS_MAX).for_each(|round| live_once(&service, thread, round)));
        }
    });
}

/// How many imports the child makes, and after which commit it dies: before it has told anybody.
const IMPORTS: usize = 12;
const DIES_AFTER: &str = "ARTICLE_CRASH_DIES_AFTER";

#[test]
fn original_10_a_crash_between_commit_and_answer_applies_nothing_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("site.db");
    open_with_system_clock(&path).close(Instant::now() + Duration::from_secs(30)).unwrap();
    // What was not answered is asked for again, from the beginning, by a client that cannot know.
    for dies_after in [1, 2, 7, IMPORTS, usize::MAX] {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["child_imports_until_it_dies", "--exact"])
            .env(DATABASE, &path)
            .env(DIES_AFTER, dies_after.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.success(), dies_after == usize::MAX, "{status}");
        // The start after the crash finds no job to do over.
        let done = dies_after.min(IMPORTS);
        for _ in 0..2 {
            let database = open_with_system_clock(&path);
            let conn = look(&path);
            assert_log_explains_articles(&conn);
            let events = events(&conn);
            assert_eq!(events.len(), done, "each committed once");
            assert!(events.iter().all(|event| event.body.version == 1));
            drop(conn);
            database.close(Instant::now() + Duration::from_secs(30)).unwrap();
        }
    }
}

/// Not a test of its own: what the dying process does.
#[test]
fn child_imports_until_it_dies() {
    let (Ok(path), Ok(dies_after)) = (std::env::var(DATABASE), std::env::var(DIES_AFTER)) else { return };
    let dies_after: usize = dies_after.parse().unwrap();
    let database = open_with_system_clock(Path::new(&path));
    let writer = Arc::new(SqliteWriter::new(&database));
    let service = ArticleService::new(writer, ArticleRepository::new(database));
    for n in 0..IMPORTS {
        let article = post(&format!("Post {n}"));
        let applied = service.import(&format!("posts/{n}.md"), "hash", article, &WriteContext::default()).unwrap();
        assert!(applied.article().is_some());
        if n + 1 == dies_after {
            // Committed; the answer has reached nobody outside this process.
            std::process::abort();
        }
    }
}

fn live_once(service: &ArticleService, thread: usize, round: usize) {
    let context = WriteContext::default();
    let answer = |article: &Article, version: i64| println!("\nanswered {} {version}", article.id);
    let article = service.create(post(&format!("Post {thread} {round}")).tags(["a", "b"]), &context).unwrap();
    answer(&article, 1);
    let patch = ArticlePatch::default().content("Changed.").tags(["b", "c"]);
    let article = service.update(&article.slug, patch, Expected::any(), &context).unwrap();
    answer(&article, 2);
    if round.is_multiple_of(2) {
        let article = service.delete(&article.slug, Expected::exactly(&article), &context).unwrap();
        answer(&article, 3);
    }
}

/// Kills the child after so many answers and returns all answers that it gave (id, version).
fn run_and_kill(path: &Path, answers_before_kill: usize) -> Vec<(String, i64)> {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["child_writes_until_it_is_killed", "--exact", "--nocapture"])
        .env(DATABASE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = Killed(child.unwrap());
    let mut answered = Vec::new();
    for line in BufReader::new(child.0.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        // A line that the kill cut short has no version.
        if let (Some("answered"), Some(id), Some(Ok(version))) =
            (words.next(), words.next(), words.next().map(str::parse))
        {
            answered.push((id.to_owned(), version));
        }
        if answered.len() == answers_before_kill {
            child.0.kill().unwrap();
        }
    }
    assert!(answered.len() >= answers_before_kill, "the child ended by itself");
    answered
}

/// No child outlives its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
