//! Jobs that other programs insert, and rows that no program should have written.

use std::time::Instant;

use vayu_articles::jobs::{JobStatus, NewJob};

use crate::harness::{LONG, Site, create, wait_until};

#[test]
fn a_job_inserted_by_plain_sql_is_picked_up_within_the_poll_interval() {
    let site = Site::new();
    let runner = site.runner();
    let conn = site.look();
    let insert = "INSERT INTO write_jobs (operation, body) VALUES ('create', '{\"title\": \"From elsewhere\", \"content\": \"x\"}')";
    conn.execute_batch(insert).unwrap();
    wait_until("it is applied", || site.article("from-elsewhere").is_some());
    let id = conn.last_insert_rowid();
    wait_until("its status shows", || site.status(id) == JobStatus::Applied);
    let job = site.job(id);
    assert_eq!(job.slug.as_deref(), Some("from-elsewhere"));
    assert_eq!(site.events()[0].3, Some(id.to_string()));
    runner.stop(Instant::now() + LONG).unwrap();
}

#[test]
fn awkward_rows_end_as_dead_letters_with_reasons_alone() {
    let site = Site::new();
    let conn = site.look();
    let rows = [
        ("NULL, NULL", "operation"),
        ("NULL, '{}'", "operation"),
        ("'create', NULL", "body"),
        ("'create', ''", "body"),
        ("'create', 'null'", "body"),
        ("'create', '[1]'", "body"),
        ("'create', '{\"title\": \"x\", \"content\": \"y\", \"surprise\": 1}'", "surprise"),
        ("'create', CAST(x'7b22ff227d' AS TEXT)", "body"),
        ("CAST(x'ff' AS TEXT), '{}'", "operation"),
        ("'CREATE', '{}'", "operation"),
        ("'publish', '{\"id\": \"nobody\", \"publish_at\": 0}'", "nobody"),
    ];
    let mut ids = Vec::new();
    for (values, _) in rows {
        conn.execute_batch(&format!("INSERT INTO write_jobs (operation, body) VALUES ({values})")).unwrap();
        ids.push(conn.last_insert_rowid());
        let good = format!(r#"{{"title": "Good {}", "content": "x"}}"#, ids.len());
        conn.execute("INSERT INTO write_jobs (operation, body) VALUES ('create', ?1)", [good]).unwrap();
    }
    let bad_trace = "INSERT INTO write_jobs (operation, body, correlation_id) VALUES \
                     ('create', '{\"title\": \"x\", \"content\": \"y\"}', '')";
    conn.execute_batch(bad_trace).unwrap();
    ids.push(conn.last_insert_rowid());
    let ran = site.run();
    assert_eq!((ran.applied, ran.failed), (rows.len() as u64, rows.len() as u64 + 1));
    let words = rows.iter().map(|(_, word)| *word).chain(["correlation_id"]);
    for (id, word) in ids.into_iter().zip(words) {
        let dead = site.job(id);
        assert_eq!(dead.status, JobStatus::DeadLetter);
        assert!(dead.last_error.as_deref().is_some_and(|reason| reason.contains(word)), "{word}: {dead:?}");
    }
}

#[test]
fn an_event_id_that_the_log_has_already_condemns_the_job_and_undoes_it() {
    let site = Site::new();
    site.applied(create("One"));
    let taken: String = site.look().query_row("SELECT event_id FROM event_outbox", [], |row| row.get(0)).unwrap();
    let again = NewJob { event_id: Some(taken), ..NewJob::new("create", r#"{"title": "Two", "content": "x"}"#) };
    let id = site.jobs.enqueue(vec![again]).unwrap()[0].unwrap();
    assert_eq!(site.run().failed, 1);
    assert_eq!(site.status(id), JobStatus::DeadLetter);
    assert!(site.article("two").is_none());
}

#[test]
fn a_second_job_with_the_same_idempotency_key_is_not_inserted() {
    let site = Site::new();
    let keyed = |title: &str| NewJob {
        idempotency_key: Some("k".into()),
        ..NewJob::new("create", format!(r#"{{"title": "{title}", "content": "x"}}"#))
    };
    let ids = site.jobs.enqueue(vec![keyed("One"), keyed("Two")]).unwrap();
    assert!(ids[0].is_some() && ids[1].is_none(), "{ids:?}");
    assert_eq!(site.run().applied, 1);
    assert_eq!(site.jobs.enqueue(vec![keyed("Three")]).unwrap(), [None], "as long as the first is remembered");
}

#[test]
fn a_job_with_a_past_keeps_its_number_status_and_replays() {
    let site = Site::new();
    let old = NewJob {
        id: Some(4_711),
        status: JobStatus::DeadLetter,
        replays: 3,
        last_error: Some("from before".into()),
        ..NewJob::new("create", r#"{"title": "Old", "content": "x"}"#)
    };
    assert_eq!(site.jobs.enqueue(vec![old.clone(), old]).unwrap(), [Some(4_711), None]);
    assert_eq!(site.run().applied, 0);
    let job = site.job(4_711);
    assert_eq!((job.status, job.replays, job.last_error.as_deref()), (JobStatus::DeadLetter, 3, Some("from before")));
    site.jobs.replay(4_711, true).unwrap();
    assert_eq!(site.run().applied, 1);
}
