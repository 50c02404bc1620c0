//! What can be brought about only from inside: a site that is frozen between two passes.

use rusqlite::Connection;

use super::*;
use crate::jobs::Mode;

const SOURCE: &str = r#"
    CREATE TABLE articles (id TEXT, title TEXT, slug TEXT, content TEXT, created_at TEXT);
    INSERT INTO articles VALUES ('a1', 'One', 'one', 'One.', '2026-06-10');
    CREATE TABLE write_jobs (id INTEGER PRIMARY KEY, op TEXT, article_json TEXT, status TEXT);
    INSERT INTO write_jobs VALUES (1, 'delete', '{"slug":"one"}', 'pending');
    CREATE TABLE event_outbox (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT, status TEXT);
    INSERT INTO event_outbox VALUES (1, 'other.v1', '{"event_id":"e1","payload":{}}', 'pending');"#;

#[test]
fn a_freeze_during_the_run_is_honoured_by_each_batch_behind_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vayupress.db");
    Connection::open(&path).and_then(|conn| conn.execute_batch(SOURCE)).expect("a source");
    let source = Source::open(&path).expect("a source");
    let settings = Settings::load(None, &[]).expect("the defaults");
    let dir = DataDir::for_articles(&folder.path().join("data")).expect("a folder");
    let app = App::open(&dir, &settings).expect("a database");
    let mut run = Adoption {
        source: &source,
        app: &app,
        with_dead: false,
        report: Report::new(true),
        bar: ProgressBar::hidden(),
    };
    let count = || {
        let sql = "SELECT (SELECT count(*) FROM write_jobs), (SELECT count(*) FROM event_outbox WHERE event_id = 'e1'), \
                   (SELECT count(*) FROM articles)";
        let read = |conn: &Connection| conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        app.database.read(read).expect("counts")
    };
    for mode in [Mode::Journal, Mode::ReadOnly] {
        app.jobs.set_mode(mode, None).expect("a freeze");
        for refused in [run.jobs(), run.events()] {
            assert!(refused.expect_err("frozen").to_string().contains("thaw"));
        }
        assert_eq!(count(), (0, 0, 0));
    }
    assert!(run.articles().expect_err("frozen").to_string().contains("read-only"));
    app.jobs.set_mode(Mode::Open, None).expect("an open site");
    run.articles().and_then(|()| run.jobs()).and_then(|()| run.events()).expect("an open site");
    assert_eq!(count(), (1, 1, 1));
    app.close().expect("a close");
}
