//! `adopt`: the database of a VayuPress site, with every awkward row that its faults leave behind.
#![cfg(all(feature = "server", feature = "cli"))]

mod queues;
#[path = "../waiting/mod.rs"]
mod waiting;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use vayu_articles::jobs::{JobOptions, Jobs};
use vayu_articles::rusqlite::{Connection, OpenFlags};

/// The tables of the original as far as they matter here.
const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE articles (id TEXT PRIMARY KEY, title TEXT NOT NULL, slug TEXT UNIQUE NOT NULL, content TEXT NOT NULL,
      tags TEXT DEFAULT '', created_at DATETIME NOT NULL, updated_at DATETIME NOT NULL,
      status TEXT NOT NULL DEFAULT 'published', is_page INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE article_tags (article_id TEXT NOT NULL, tag TEXT NOT NULL, tag_norm TEXT NOT NULL,
      created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP);
    CREATE TABLE scheduled_posts (id TEXT PRIMARY KEY, slug TEXT NOT NULL, title TEXT NOT NULL, content TEXT NOT NULL,
      tags TEXT NOT NULL DEFAULT '', publish_at DATETIME NOT NULL, status TEXT NOT NULL DEFAULT 'scheduled',
      error TEXT NOT NULL DEFAULT '', created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, published_at DATETIME);
    CREATE TABLE write_jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, article_json TEXT NOT NULL,
      op TEXT NOT NULL DEFAULT 'insert', status TEXT NOT NULL DEFAULT 'pending', retries INTEGER NOT NULL DEFAULT 0,
      retry_at DATETIME, created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
      replay_count INTEGER NOT NULL DEFAULT 0, dead_reason TEXT NOT NULL DEFAULT '', correlation_id TEXT NOT NULL DEFAULT '');
    CREATE TABLE event_outbox (id INTEGER PRIMARY KEY AUTOINCREMENT, event_type TEXT NOT NULL, payload TEXT NOT NULL,
      status TEXT NOT NULL DEFAULT 'pending', retry_at DATETIME, retries INTEGER NOT NULL DEFAULT 0, dead_reason TEXT,
      created_at DATETIME NOT NULL DEFAULT (datetime('now')), delivered_at DATETIME);
    CREATE TABLE delivered_events (event_id TEXT PRIMARY KEY, event_type TEXT NOT NULL,
      delivered_at DATETIME NOT NULL DEFAULT (datetime('now')));";

const ROWS: &str = r#"
    INSERT INTO articles (id, title, slug, content, tags, created_at, updated_at, status, is_page) VALUES
      ('a2', 'In another case', 'First', 'Two.', 'Tom Jones, Jr.,music', '2026-06-10T11:30:00Z', '2026-06-10T11:30:00.5Z', 'published', 0),
      ('a1', 'First', 'first', 'One.', 'rust,sql', '2026-06-10 11:30:00', '2026-06-10T12:30:00+02:00', 'published', 0),
      ('a3', 'A draft', 'a-draft', 'Three.', '', '2026-06-11 11:30:00.25+00:00', '2026-06-11 11:30:00', 'draft', 0),
      ('a4', 'About', 'about', 'Four.', NULL, '2026-06-12 11:30:00 +0000 UTC', '2026-06-12 11:30:00', 'published', 1),
      ('a5', 'Kept aside', 'kept-aside', 'Five.', '', '2026-06-12', '2026-06-12', 'archived', 0),
      ('a6', 'No time', 'no-time', 'Six.', '', 'soon', '2026-06-12', 'published', 0),
      ('a7', 'Empty', 'empty', '', '', '2026-06-12', '2026-06-12', 'published', 0);
    INSERT INTO article_tags (article_id, tag, tag_norm) VALUES ('a2', 'Tom Jones, Jr.', 'tom jones, jr.'), ('a2', 'music', 'music');
    INSERT INTO scheduled_posts (id, slug, title, content, tags, publish_at, status, error) VALUES
      ('s1', 'later', 'Later', 'Soon.', 'news', '2099-01-01T00:00:00Z', 'scheduled', ''),
      ('s2', 'gone', 'Gone', 'Past.', '', '2026-01-01T00:00:00Z', 'published', ''),
      ('s3', 'bad', 'Bad', 'Failed.', '', '2026-01-01T00:00:00Z', 'failed', 'slug taken');
    INSERT INTO write_jobs (id, op, article_json, status, retry_at, correlation_id, dead_reason) VALUES
      (1, 'insert', '{"id":"j1","title":"Waiting","slug":"waiting","content":"A job.","tags":null,"created_at":"2026-06-10T11:30:00Z","updated_at":"2026-06-10T11:30:00Z"}', 'pending', '2026-06-10T11:30:00Z', 'req-1', ''),
      (2, 'update', '{"title":"First, newer","slug":"first","content":"One, newer.","tags":["rust"]}', 'pending', NULL, '', ''),
      (3, 'insert', 'no json', 'pending', NULL, '', ''),
      (4, 'explode', '{"slug":"first"}', 'pending', NULL, '', ''),
      (5, 'insert', '{"id":"a1","title":"First","slug":"first","content":"One.","tags":[]}', 'processing', NULL, '', ''),
      (6, 'delete', '{"slug":"first-gone"}', 'processing', NULL, '', ''),
      (7, 'insert', '{"id":"j7","title":"Cut off","slug":"cut-off","content":"Not yet there.","tags":[]}', 'processing', NULL, '', ''),
      (8, 'insert', '{}', 'dead_letter', NULL, '', 'max_retries'),
      (9, 'insert', '{}', 'completed', NULL, '', '');
    INSERT INTO event_outbox (id, event_type, payload, status, retry_at, dead_reason) VALUES
      (1, 'article.created.v1', '{"event_id":"e1","event_type":"article.created.v1","event_version":"1","causation_id":"17","correlation_id":"req-9","occurred_at":"2026-06-10T11:30:00Z","payload":{"ID":"a1","Slug":"first","Tags":["rust"]}}', 'pending', '2026-06-10T11:30:00Z', NULL),
      (2, 'article.updated.v1', '{"event_id":"e2","payload":{"id":"a1","slug":"first","tags":[]}}', 'pending', NULL, NULL),
      (3, 'cache.invalidated.v1', '{"event_id":"e3","payload":{"slug":"first"}}', 'pending', NULL, NULL),
      (4, 'article.deleted.v1', '{"event_id":"e4","payload":{"ID":"x9","Slug":"x9","Tags":["old"]}}', 'dead_letter', NULL, 'no route'),
      (5, 'article.updated.v1', 'not json', 'pending', NULL, NULL),
      (6, 'article.created.v1', '{"event_id":"e6","payload":{"id":"a2","slug":"First","tags":[]}}', 'delivered', NULL, NULL);
    INSERT INTO delivered_events (event_id, event_type) VALUES ('e2', 'article.updated.v1');"#;

struct Old {
    folder: tempfile::TempDir,
}

struct Ran {
    code: i32,
    lines: Vec<Value>,
}

impl Ran {
    /// Of a row that did not simply come: how it fared, and why.
    fn fates(&self, table: &str, row: &str) -> Vec<(String, String)> {
        let word = |line: &Value, field: &str| line[field].as_str().unwrap_or_default().to_owned();
        let of_row = |line: &&Value| line["table"] == table && line["row"] == row;
        self.lines.iter().filter(of_row).map(|line| (word(line, "fate"), word(line, "reason"))).collect()
    }

    fn sum(&self, table: &str, what: &str) -> u64 {
        self.lines.last().unwrap()["tables"][table][what].as_u64().unwrap()
    }
}

impl Old {
    fn new() -> Self {
        Self::with(ROWS)
    }

    fn with(rows: &str) -> Self {
        let old = Self { folder: tempfile::tempdir().unwrap() };
        let conn = Connection::open(old.path()).unwrap();
        conn.execute_batch(SCHEMA).unwrap();
        conn.execute_batch(rows).unwrap();
        old
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("vayupress.db")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn adopt(&self, more: &[&str]) -> Ran {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
        command.arg("adopt").arg(self.path()).arg("--json").arg("--data").arg(self.data()).args(more);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Ran {
            code: output.status.code().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr))),
            lines,
        }
    }

    /// An article that the site here has of its own.
    fn own(&self, slug: &str, content: &str) {
        let post = self.folder.path().join(format!("{slug}.md"));
        std::fs::create_dir_all(self.data()).unwrap();
        std::fs::write(&post, content).unwrap();
        let mut import = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
        assert!(import.arg("import").arg(&post).arg("--data").arg(self.data()).status().unwrap().success());
    }

    /// A run that is killed as soon as `so_far` holds.
    fn killed_once(&self, so_far: &dyn Fn() -> bool) {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
        let mut run = command.arg("adopt").arg(self.path()).arg("--data").arg(self.data()).spawn().unwrap();
        waiting::wait_until("something is stored, or it has ended", || so_far() || run.try_wait().unwrap().is_some());
        assert!(so_far(), "it has stored nothing");
        run.kill().unwrap();
        run.wait().unwrap();
    }

    /// Applies what waits, as `serve` does when it starts.
    fn apply(&self) {
        let database = vayu_articles::storage::Database::open(
            self.data().join("articles.db"),
            &[vayu_articles::outbox::COMPONENT, vayu_articles::article::COMPONENT, vayu_articles::jobs::COMPONENT],
            vayu_articles::storage::Options::default(),
        )
        .unwrap();
        let soon = Instant::now() + Duration::from_secs(30);
        Jobs::new(&database, JobOptions::default()).run_due(soon).unwrap();
        database.close(soon).unwrap();
    }

    fn new_db(&self) -> Connection {
        Connection::open(self.data().join("articles.db")).unwrap()
    }
}

fn rows(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("vayupress.db"))
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).unwrap()))
        .collect();
    found.sort();
    found
}

#[test]
fn articles_come_with_ids_slugs_times_tags_kinds_and_states() {
    let old = Old::new();
    let ran = old.adopt(&[]);
    assert_eq!(ran.code, 1, "two rows cannot come, two jobs are dead");
    assert_eq!((ran.sum("articles", "adopted"), ran.sum("articles", "refused")), (5, 2));
    let articles = "SELECT id || ' ' || kind || ' ' || status || ' ' || slug || ' ' || created_at || ' ' || updated_at \
                    FROM articles WHERE id LIKE 'a%' ORDER BY id";
    let expected = [
        "a1 post published first 1781091000000 1781087400000",
        "a2 post published first-2 1781091000000 1781091000500",
        "a3 post draft a-draft 1781177400250 1781177400000",
        "a4 page published about 1781263800000 1781263800000",
        "a5 post draft kept-aside 1781222400000 1781222400000",
    ];
    assert_eq!(rows(&old.new_db(), articles), expected);
    let label = "SELECT label FROM article_tags WHERE article_id = 'a2' ORDER BY label";
    assert_eq!(rows(&old.new_db(), label), ["Tom Jones, Jr.", "music"], "a tag with a comma is one tag");
    assert_eq!(ran.fates("articles", "a6").len(), 1);
    assert!(ran.fates("articles", "a6")[0].1.contains("soon"), "{:?}", ran.fates("articles", "a6"));
    assert!(ran.fates("articles", "a2").iter().all(|(fate, _)| fate == "changed"));
    assert!(ran.fates("articles", "a5")[0].1.contains("archived"));
}

#[test]
fn a_scheduled_post_keeps_its_time_and_the_others_say_why_they_stay() {
    let old = Old::new();
    let ran = old.adopt(&[]);
    let sql = "SELECT publish_at || ' ' || status FROM articles WHERE id = 's1'";
    assert_eq!(rows(&old.new_db(), sql), ["4070908800000 draft"]);
    let job = "SELECT operation || ' ' || run_at FROM write_jobs WHERE article_id = 's1'";
    assert_eq!(rows(&old.new_db(), job), ["publish 4070908800000"]);
    assert_eq!(ran.sum("scheduled_posts", "finished"), 1);
    assert!(ran.fates("scheduled_posts", "s3")[0].1.contains("slug taken"));
}

#[test]
fn waiting_jobs_come_in_order_and_what_cannot_heal_comes_dead() {
    let old = Old::new();
    let ran = old.adopt(&[]);
    let sql = "SELECT operation || ' ' || status FROM write_jobs WHERE operation <> 'publish' ORDER BY id";
    let expected = ["create pending", "update pending", "insert dead_letter", "explode dead_letter", "create pending"];
    assert_eq!(rows(&old.new_db(), sql), expected);
    assert_eq!(ran.fates("write_jobs", "3")[0].0, "dead_letter");
    assert!(ran.fates("write_jobs", "4")[0].1.contains("explode"));
    assert!(ran.fates("write_jobs", "5")[0].1.contains("applied before"), "its article is there");
    assert!(ran.fates("write_jobs", "6")[0].1.contains("applied before"), "its article is gone");
    assert!(ran.fates("write_jobs", "8")[0].1.contains("--with-dead"));
    assert_eq!(ran.sum("write_jobs", "finished"), 1);
    let correlation = "SELECT correlation_id FROM write_jobs WHERE correlation_id IS NOT NULL";
    assert_eq!(rows(&old.new_db(), correlation), ["req-1"]);
}

#[test]
fn pending_events_come_with_their_ids_but_those_that_were_delivered() {
    let old = Old::new();
    let ran = old.adopt(&[]);
    let sql = "SELECT event_id || ' ' || event_type || ' ' || event_key || ' ' || correlation_id || ' ' || occurred_at \
               FROM event_outbox WHERE event_id LIKE 'e%'";
    assert_eq!(rows(&old.new_db(), sql), ["e1 article.created.v1 a1 req-9 1781091000000"]);
    assert!(ran.fates("event_outbox", "2")[0].1.contains("delivered_events"));
    assert!(ran.fates("event_outbox", "3")[0].1.contains("page cache"));
    assert!(ran.fates("event_outbox", "4")[0].1.contains("no route"));
    assert_eq!(ran.fates("event_outbox", "5")[0].0, "refused");
    assert_eq!(ran.sum("event_outbox", "finished"), 1);
}

#[test]
fn dead_rows_come_when_they_are_asked_for() {
    let old = Old::new();
    old.adopt(&["--with-dead"]);
    let event = "SELECT event_type || ' ' || payload FROM event_outbox WHERE event_id = 'e4'";
    let found = rows(&old.new_db(), event);
    assert!(found[0].starts_with("article.deleted.v1 ") && found[0].contains("\"old\""), "{found:?}");
    let dead = "SELECT last_error FROM write_jobs WHERE status = 'dead_letter' ORDER BY id";
    assert!(rows(&old.new_db(), dead).len() >= 3);
}

#[test]
fn case_c60_a_second_run_adds_nothing_and_an_interrupted_one_is_completed() {
    let old = Old::new();
    old.adopt(&[]);
    let all = "SELECT (SELECT count(*) FROM articles) || ' ' || (SELECT count(*) FROM event_outbox) || ' ' || \
               (SELECT count(*) FROM write_jobs)";
    let before = rows(&old.new_db(), all);
    let again = old.adopt(&[]);
    assert_eq!(rows(&old.new_db(), all), before);
    for table in ["articles", "scheduled_posts", "write_jobs", "event_outbox"] {
        assert_eq!(again.sum(table, "adopted"), 0, "{table}");
    }
    assert_eq!((again.sum("articles", "known"), again.sum("event_outbox", "known")), (5, 1));
    // As after a run that was cut off: what is missing comes, and nothing else.
    let conn = old.new_db();
    conn.execute_batch(
        "DELETE FROM write_jobs WHERE operation = 'update'; DELETE FROM adopted WHERE origin LIKE 'write_jobs/2/%'",
    )
    .unwrap();
    drop(conn);
    assert_eq!(old.adopt(&[]).sum("write_jobs", "adopted"), 1);
    assert_eq!(rows(&old.new_db(), all), before);
}

#[test]
fn the_source_does_not_change_also_beside_a_live_writer() {
    let old = Old::new();
    let at_rest = files(old.folder.path());
    old.adopt(&[]);
    assert_eq!(files(old.folder.path()), at_rest, "nothing is made beside a database at rest");
    // A writer that holds its log open, with rows in it that are in no page yet.
    let writer = Connection::open(old.path()).unwrap();
    writer.execute_batch("PRAGMA wal_autocheckpoint = 0; UPDATE articles SET title = title WHERE id = 'a1'").unwrap();
    writer
        .execute("INSERT INTO articles (id, title, slug, content, created_at, updated_at) VALUES ('a8', 'Late', 'late', 'In the log.', '2026-06-12', '2026-06-12')", [])
        .unwrap();
    let live: Vec<_> = files(old.folder.path()).into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect();
    assert!(live.len() >= 2, "there is a write-ahead log");
    assert_eq!(old.adopt(&[]).sum("articles", "adopted"), 1);
    let after: Vec<_> = files(old.folder.path()).into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect();
    assert!(live == after, "neither the database nor its log has changed");
    writer.execute("UPDATE articles SET title = 'On it goes' WHERE id = 'a8'", []).unwrap();
}

#[test]
fn a_dry_run_tells_the_same_and_stores_nothing() {
    let old = Old::new();
    let dry = old.adopt(&["--dry-run"]);
    assert!(!old.data().join("articles.db").exists());
    let real = old.adopt(&[]);
    assert_eq!(dry.lines[..dry.lines.len() - 1], real.lines[..real.lines.len() - 1]);
    assert_eq!(dry.lines.last().unwrap()["tables"], real.lines.last().unwrap()["tables"]);
    assert_eq!(dry.code, real.code);
}

#[test]
fn what_is_no_database_of_the_original_is_refused() {
    let old = Old::new();
    old.adopt(&[]);
    for path in [old.data().join("articles.db"), old.folder.path().join("nothing.db")] {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
        let output = command.arg("adopt").arg(&path).arg("--data").arg(old.data()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", path.display());
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn a_frozen_site_takes_nothing_over() {
    let old = Old::new();
    let freeze = |command: &str| {
        let mut run = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
        assert!(run.arg(command).arg("--data").arg(old.data()).status().unwrap().success(), "{command}");
    };
    old.adopt(&["--dry-run"]);
    old.own("post", "Text.");
    freeze("freeze");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
    let output = command.arg("adopt").arg(old.path()).arg("--data").arg(old.data()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("thaw"), "{output:?}");
    freeze("thaw");
    assert_eq!(old.adopt(&[]).sum("articles", "adopted"), 5);
}

#[test]
fn case_c60_a_run_that_was_killed_is_completed_by_the_next() {
    const ARTICLES: usize = 3_000;
    let old = Old::new();
    let source = Connection::open(old.path()).unwrap();
    source.execute_batch("DELETE FROM articles; DELETE FROM article_tags").unwrap();
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
                INSERT INTO articles (id, title, slug, content, created_at, updated_at) \
                SELECT 'm' || i, 'The same title', 'm-' || i, printf('%.2000c', 'x'), '2026-06-12', '2026-06-12' FROM n";
    source.execute(fill, [ARTICLES as i64]).unwrap();
    drop(source);
    let count = |sql: &str| -> usize {
        let Ok(conn) = Connection::open_with_flags(old.data().join("articles.db"), OpenFlags::SQLITE_OPEN_READ_ONLY)
        else {
            return 0;
        };
        conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_or(0, |count| count as usize)
    };
    let articles = || count("SELECT count(*) FROM articles WHERE id LIKE 'm%'");
    old.killed_once(&|| articles() > 0);
    let before = articles();
    let ran = old.adopt(&[]);
    assert_eq!((articles(), ran.sum("articles", "known")), (ARTICLES, before as u64));
    let events = "SELECT count(*) FROM event_outbox WHERE event_type = 'article.created.v1' AND event_key LIKE 'm%'";
    assert_eq!(count(events), ARTICLES, "one event for each, also of those before the kill");
}
