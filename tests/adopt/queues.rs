//! Jobs and events: each comes once, about the right article, and nothing of it is lost.

use super::*;

const ARTICLES: &str = "INSERT INTO articles (id, title, slug, content, created_at, updated_at) VALUES
      ('a1', 'One', 'shared', 'One.', '2026-06-10', '2026-06-10'),
      ('a2', 'Two', 'Shared', 'Two.', '2026-06-10', '2026-06-10'),
      ('a3', 'Three', 'Three!', 'Three.', '2026-06-10', '2026-06-10'),
      ('a4', 'Four', 'four', 'Four.', 'no time', '2026-06-10');";

fn with(rows: &str) -> Old {
    Old::with(&format!("{ARTICLES}{rows}"))
}

#[test]
fn a_text_that_is_not_utf_8_is_refused_and_named_and_never_comes_empty() {
    let old = with(
        "INSERT INTO write_jobs (id, op, article_json, status) VALUES
           (1, 'update', CAST(X'7B22736C7567223A22736861726564222C22636F6E74656E74223A22FF227D' AS TEXT), 'pending'),
           (2, CAST(X'FF' AS TEXT), '{}', 'pending'), (3, 'update', '{}', CAST(X'FF' AS TEXT)), (4, 'update', '{}', 'asleep');
         INSERT INTO event_outbox (id, event_type, payload, status) VALUES
           (1, 'article.updated.v1', CAST(X'7BFF7D' AS TEXT), 'pending'), (2, 'article.updated.v1', '{}', CAST(X'FF' AS TEXT)),
           (3, 'article.updated.v1', '{}', 'asleep');",
    );
    let ran = old.adopt(&["--with-dead"]);
    assert_eq!(ran.code, 1);
    for (table, row, about) in [
        ("write_jobs", "1", "article_json is not UTF-8"),
        ("write_jobs", "2", "op is not UTF-8"),
        ("write_jobs", "3", "status is not UTF-8"),
        ("write_jobs", "4", "asleep"),
        ("event_outbox", "1", "payload is not UTF-8"),
        ("event_outbox", "2", "status is not UTF-8"),
        ("event_outbox", "3", "asleep"),
    ] {
        let fates = ran.fates(table, row);
        assert!(matches!(&fates[..], [(fate, reason)] if fate == "refused" && reason.contains(about)), "{fates:?}");
    }
    assert_eq!(rows(&old.new_db(), "SELECT CAST(count(*) AS TEXT) FROM write_jobs"), ["0"]);
}

#[test]
fn a_job_changes_the_article_that_its_slug_meant_there() {
    let old = with(
        r#"INSERT INTO write_jobs (id, op, article_json) VALUES
           (1, 'update', '{"slug":"Shared","title":"Two","content":"Two, newer.","tags":[]}'),
           (2, 'delete', '{"slug":"Three!"}'),
           (3, 'update', '{"slug":"four","title":"Four","content":"Lost?","tags":[]}'),
           (4, 'update', '{"slug":"nowhere","title":"X","content":"X","tags":[]}');"#,
    );
    // Articles of the site's own, with the slugs that those jobs name.
    old.own("four", "Own four.");
    old.own("nowhere", "Own nowhere.");
    let ran = old.adopt(&[]);
    old.apply();
    let articles = "SELECT slug || ': ' || content FROM articles ORDER BY slug";
    let expected = ["four: Own four.", "nowhere: Own nowhere.", "shared: One.", "shared-2: Two, newer."];
    assert_eq!(rows(&old.new_db(), articles), expected);
    assert!(ran.fates("write_jobs", "1").iter().any(|(fate, note)| fate == "changed" && note.contains("shared-2")));
    let dead = ran.fates("write_jobs", "3");
    assert!(dead[0].0 == "dead_letter" && dead[0].1.contains("a4 is not here"), "{dead:?}");
    let nowhere = ran.fates("write_jobs", "4");
    assert!(nowhere[0].0 == "left_out" && nowhere[0].1.contains("change nothing"), "{nowhere:?}");
}

#[test]
fn an_article_with_an_id_that_is_no_text_stops_nothing_but_its_own_jobs() {
    let old = with(
        r#"INSERT INTO articles (id, title, slug, content, created_at, updated_at) VALUES
             (X'FF', 'Odd', 'odd', 'Odd.', '2026-06-10', '2026-06-10'), (NULL, 'None', 'none', 'None.', '2026-06-10', '2026-06-10');
           INSERT INTO write_jobs (id, op, article_json) VALUES
             (1, 'delete', '{"slug":"odd"}'), (2, 'delete', '{"slug":"none"}'), (3, 'delete', '{"slug":"shared"}');
           INSERT INTO event_outbox (id, event_type, payload) VALUES (1, 'article.updated.v1', '{"slug":"odd","tags":[]}');"#,
    );
    let ran = old.adopt(&[]);
    assert_eq!((ran.sum("write_jobs", "adopted"), ran.sum("write_jobs", "left_out")), (1, 2));
    assert!(ran.fates("event_outbox", "1")[0].1.contains("no article id"), "{:?}", ran.fates("event_outbox", "1"));
}

#[test]
fn jobs_that_wait_for_each_other_agree_on_the_slug() {
    let old = with(
        r#"INSERT INTO write_jobs (id, op, article_json) VALUES
           (1, 'insert', '{"id":"n1","slug":"New One!","title":"New","content":"First.","tags":[]}'),
           (2, 'update', '{"slug":"New One!","title":"New","content":"Second.","tags":[]}'),
           (3, 'insert', '{"id":"n3","slug":"new-one","title":"New, too","content":"Third.","tags":[]}'),
           (4, 'delete', '{"slug":"shared"}'),
           (5, 'insert', '{"id":"n5","slug":"shared","title":"Anew","content":"Fifth.","tags":[]}'),
           (6, 'update', '{"slug":"shared","title":"Anew","content":"Sixth.","tags":[]}'),
           (7, 'delete', '{"slug":"New One!"}'), (8, 'delete', '{"slug":"New One!"}');"#,
    );
    let ran = old.adopt(&[]);
    old.apply();
    let articles = "SELECT id || ' ' || slug || ': ' || content FROM articles WHERE id LIKE 'n%' ORDER BY id";
    assert_eq!(rows(&old.new_db(), articles), ["n3 new-one-2: Third.", "n5 shared: Sixth."]);
    assert_eq!((ran.sum("write_jobs", "adopted"), ran.sum("write_jobs", "left_out")), (7, 1));
    let states = "SELECT DISTINCT status FROM write_jobs";
    assert_eq!(rows(&old.new_db(), states), ["applied"]);
    // Once they are applied, a second run still knows them, and the articles that they made.
    let again = old.adopt(&[]);
    assert_eq!((again.sum("write_jobs", "known"), again.sum("write_jobs", "adopted")), (7, 0));
}

#[test]
fn an_article_that_came_as_a_job_is_known_once_the_source_has_applied_that_job() {
    let old = with(
        r#"INSERT INTO write_jobs (id, op, article_json) VALUES
           (1, 'insert', '{"id":"n1","slug":"new","title":"New","content":"First.","tags":[]}');"#,
    );
    old.adopt(&[]);
    old.apply();
    let source = Connection::open(old.path()).unwrap();
    source
        .execute_batch(
            "UPDATE write_jobs SET status = 'completed'; INSERT INTO articles (id, title, slug, content, created_at, updated_at)
             VALUES ('n1', 'New', 'new', 'First.', '2026-06-10', '2026-06-10')",
        )
        .unwrap();
    drop(source);
    let again = old.adopt(&[]);
    assert_eq!(again.fates("articles", "n1"), [], "it is no loss and no change");
    assert_eq!(rows(&old.new_db(), "SELECT id FROM articles WHERE slug LIKE 'new%'"), ["n1"]);
}

#[test]
fn dead_jobs_keep_whether_they_were_quarantined() {
    let old = with(
        r#"INSERT INTO write_jobs (id, op, article_json, status, replay_count, dead_reason) VALUES
           (1, 'delete', '{"slug":"shared"}', 'quarantined', 3, 'max_retries'),
           (2, 'delete', '{"slug":"shared"}', 'dead_letter', 1, 'max_retries'),
           (3, 'delete', 'no json', 'quarantined', 3, 'parse_error');"#,
    );
    old.adopt(&["--with-dead"]);
    let sql = "SELECT status || ' ' || replays FROM write_jobs ORDER BY id";
    assert_eq!(rows(&old.new_db(), sql), ["quarantined 3", "dead_letter 1", "quarantined 3"]);
}

#[test]
fn rows_are_known_by_what_the_source_holds_and_also_by_the_names_of_the_first_version() {
    let old = Old::new();
    old.adopt(&[]);
    let conn = old.new_db();
    let origins = rows(&conn, "SELECT origin FROM adopted");
    // SHA-256 over the operation and the JSON as they stand there.
    assert!(origins.contains(&"write_jobs/1/ed44d148a134f9178e44211cc8ba3ca0".to_owned()), "{origins:?}");
    assert!(origins.iter().any(|origin| origin.starts_with("event_outbox/1/")), "{origins:?}");
    // The first version took it over its own translation, and over the event's id.
    conn.execute_batch(
        "DELETE FROM adopted; DELETE FROM event_outbox WHERE event_id = 'e1'; DELETE FROM write_jobs WHERE operation <> 'publish';
         INSERT INTO adopted (origin, adopted_at) VALUES
           ('write_jobs/1/30756a20e46f26fb6690a8733d8cb871', 1), ('event_outbox/e1', 1);",
    )
    .unwrap();
    drop(conn);
    let again = old.adopt(&[]);
    assert_eq!((again.sum("write_jobs", "known"), again.sum("event_outbox", "known")), (1, 1));
    assert_eq!(rows(&old.new_db(), "SELECT body FROM write_jobs WHERE body LIKE '%\"j1\"%'"), [""; 0]);
}

#[test]
fn an_event_that_is_in_the_log_is_known_and_those_behind_it_come() {
    let old = with(
        r#"INSERT INTO event_outbox (id, event_type, payload) VALUES
           (1, 'article.updated.v1', '{"event_id":"e1","payload":{"id":"a1","slug":"shared","tags":[]}}'),
           (2, 'article.updated.v1', '{"event_id":"e1","payload":{"id":"a1","slug":"shared","tags":[]}}'),
           (3, 'article.updated.v1', '{"event_id":"e3","payload":{"id":"a2","slug":"Shared","tags":[]}}');"#,
    );
    old.own("own", "Own.");
    let into = "INSERT INTO event_outbox (event_id, event_type, payload) VALUES ('e1', 'other.v1', '{}')";
    old.new_db().execute(into, []).unwrap();
    let ran = old.adopt(&[]);
    assert_eq!((ran.sum("event_outbox", "known"), ran.sum("event_outbox", "adopted")), (2, 1));
    let slug = "SELECT json_extract(payload, '$.slug') FROM event_outbox WHERE event_id = 'e3'";
    assert_eq!(rows(&old.new_db(), slug), ["shared-2"], "it names the article's address here");
    assert_eq!(old.adopt(&[]).sum("event_outbox", "known"), 3);
}

#[test]
fn case_c60_jobs_and_events_of_a_run_that_was_killed_come_with_the_next_once() {
    const ROWS: i64 = 5_000;
    let old = with("");
    let source = Connection::open(old.path()).unwrap();
    let fill = |sql: &str| {
        let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) ";
        source.execute(&format!("{numbers}{sql}"), [ROWS]).unwrap();
    };
    fill(
        r#"INSERT INTO write_jobs (op, article_json)
           SELECT 'update', json_object('slug', 'shared', 'title', 'T', 'content', 'c' || i) FROM n"#,
    );
    fill(
        r#"INSERT INTO event_outbox (event_type, payload)
           SELECT 'article.updated.v1', json_object('event_id', 'k' || i, 'payload', json_object('id', 'a1')) FROM n"#,
    );
    drop(source);
    let count = |sql: &str| -> i64 {
        let conn = Connection::open_with_flags(old.data().join("articles.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
        conn.and_then(|conn| conn.query_row(sql, [], |row| row.get(0))).unwrap_or(0)
    };
    let jobs = || count("SELECT count(*) FROM write_jobs");
    let events = || count("SELECT count(*) FROM event_outbox WHERE event_id LIKE 'k%'");
    old.killed_once(&|| jobs() > 0);
    old.killed_once(&|| events() > 0);
    let ran = old.adopt(&[]);
    assert_eq!((jobs(), events()), (ROWS, ROWS));
    assert!(ran.sum("write_jobs", "known") > 0 && ran.sum("event_outbox", "known") > 0);
    let in_order = "SELECT count(*) FROM write_jobs a JOIN write_jobs b ON b.id = a.id + 1
        WHERE CAST(substr(json_extract(b.body, '$.patch.content'), 2) AS INTEGER)
            <> CAST(substr(json_extract(a.body, '$.patch.content'), 2) AS INTEGER) + 1";
    assert_eq!(count(in_order), 0, "their order is the source's");
}

#[test]
fn texts_as_long_as_any_that_are_read_come_in_one_run() {
    // Together more than the queue of writes takes at once, were they counted twice.
    let old = with(
        r#"INSERT INTO write_jobs (id, op, article_json) VALUES
           (1, 'update', '{"slug":"shared","title":"One","tags":[],"content":"' || hex(zeroblob(1500000)) || '"}'),
           (2, 'update', '{"slug":"shared","title":"One","tags":[],"content":"' || hex(zeroblob(16500000)) || '"}'),
           (3, 'update', '{"slug":"shared","title":"One","tags":[],"content":"Newest."}');"#,
    );
    let ran = old.adopt(&[]);
    assert_eq!(ran.sum("write_jobs", "adopted"), 3, "{:?}", ran.lines);
    assert_eq!(rows(&old.new_db(), "SELECT CAST(count(*) AS TEXT) FROM write_jobs"), ["3"]);
}
