//! The queue-writer: group commit, answers after the commit, and tasks that fail in the middle of a group.

mod storage_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Instant;

use rusqlite::Connection;
use storage_support::{Held, LIMIT, Scratch, close, insert, submit};
use vayu_articles::storage::{Options, TaskOptions, TransactError};

type Failed = TransactError<rusqlite::Error>;

#[test]
fn sixty_four_callers_share_commits_and_each_gets_its_own_answer() {
    const CALLERS: i64 = 64;
    const EACH: i64 = 20;
    let scratch = Scratch::new();
    let database = scratch.open();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let writer = database.writer().clone();
            scope.spawn(move || {
                for n in 0..EACH {
                    let text = format!("{caller}/{n}");
                    let expected = text.clone();
                    let read_back: String = writer
                        .transact(move |tx| {
                            let id = insert(tx, &text)?;
                            tx.query_row("SELECT text FROM notes WHERE id = ?1", [id], |row| row.get(0))
                        })
                        .unwrap();
                    assert_eq!(read_back, expected);
                }
            });
        }
    });
    let stats = database.writer().stats();
    assert_eq!(stats.tasks, (CALLERS * EACH) as u64);
    assert!(stats.groups < stats.tasks, "no two tasks shared a commit: {stats:?}");
    assert_eq!((stats.waiting_jobs, stats.waiting_bytes, stats.faults), (0, 0, 0));
    assert_eq!(scratch.texts().into_iter().collect::<BTreeSet<_>>().len() as i64, CALLERS * EACH);
    close(&database);
}

#[test]
fn g2_an_answer_comes_after_the_commit() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let foreign = scratch.foreign();
    for n in 0..50 {
        let text = n.to_string();
        let id = database.writer().transact(move |tx| insert(tx, &text)).unwrap();
        let seen: bool =
            foreign.query_row("SELECT EXISTS (SELECT 1 FROM notes WHERE id = ?1)", [id], |row| row.get(0)).unwrap();
        assert!(seen, "answered before it was committed");
    }
    close(&database);
}

#[test]
fn what_waits_is_written_in_one_transaction_in_order() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let before = writer.stats().groups;
    let held = Held::new(writer);
    let pending: Vec<_> = (0..10).map(|n| submit(writer, &n.to_string())).collect();
    held.release();
    let ids: Vec<_> = pending.into_iter().map(|pending| pending.wait().unwrap()).collect();
    assert!(ids.is_sorted());
    assert_eq!(writer.stats().groups, before + 1);
    assert_eq!(writer.stats().last_group, 11);
    close(&database);
}

#[test]
fn a_group_ends_at_its_row_and_byte_caps() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.group_rows = 4;
    options.group_bytes = 100;
    let database = scratch.open_with(options);
    let writer = database.writer();
    let held = Held::new(writer);
    // Groups: held + 3 rows | 60 bytes + 40 bytes | 1 byte, then 500 bytes alone | the last.
    let sizes = [(3, 0), (1, 60), (1, 40), (1, 1), (1, 500), (9, 1)];
    let pending: Vec<_> = (0..)
        .zip(sizes)
        .map(|(n, (rows, bytes))| {
            let options = TaskOptions { rows, bytes, ..TaskOptions::default() };
            writer.submit(options, move |tx| insert(tx, &format!("{n}"))).unwrap()
        })
        .collect();
    let before = writer.stats();
    held.release();
    pending.into_iter().for_each(|pending| {
        pending.wait().unwrap();
    });
    close(&database);
    let stats = database.writer().stats();
    assert_eq!((stats.groups - before.groups, stats.tasks - before.tasks), (5, 7));
    assert_eq!(scratch.texts(), ["0", "1", "2", "3", "4", "5"]);
}

/// A task in the middle of a group: the neighbours are written, once each and in order, whatever it does.
fn in_the_middle<F>(f: F) -> (Failed, u64)
where
    F: FnMut(&rusqlite::Transaction<'_>) -> rusqlite::Result<i64> + Send + 'static,
{
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let held = Held::new(writer);
    let (first, second) = (submit(writer, "first"), submit(writer, "second"));
    let bad = writer.submit(TaskOptions::default(), f).unwrap();
    let (third, fourth) = (submit(writer, "third"), submit(writer, "fourth"));
    held.release();
    let error = bad.wait().unwrap_err();
    let ids: Vec<_> = [first, second, third, fourth].into_iter().map(|task| task.wait().unwrap()).collect();
    assert!(ids.is_sorted());
    assert_eq!(scratch.texts(), ["first", "second", "third", "fourth"]);
    let after = writer.transact(|tx| insert(tx, "after")).unwrap();
    assert!(after > ids[3]);
    let reruns = writer.stats().reruns;
    close(&database);
    (error, reruns)
}

#[test]
fn a_task_that_fails_before_writing_costs_its_group_nothing() {
    let (error, reruns) = in_the_middle(|tx| insert(tx, "second"));
    assert!(matches!(error, TransactError::Task(_)), "{error:?}");
    assert_eq!(reruns, 0);
}

#[test]
fn g12_a_task_that_fails_after_writing_is_undone_alone() {
    let (error, reruns) = in_the_middle(|tx| {
        insert(tx, "half")?;
        insert(tx, "second")
    });
    assert!(matches!(error, TransactError::Task(_)), "{error:?}");
    assert_eq!(reruns, 1);
}

#[test]
fn g12_a_panicking_task_is_undone_alone() {
    let (error, _) = in_the_middle(|tx| {
        insert(tx, "half")?;
        panic!("on purpose: {}", 7)
    });
    assert!(matches!(&error, TransactError::Panicked(text) if text == "on purpose: 7"), "{error:?}");
    let (error, _) = in_the_middle(|_| std::panic::panic_any(7_u8));
    assert!(matches!(error, TransactError::Panicked(_)), "{error:?}");
}

#[test]
fn g12_a_task_that_ends_the_transaction_by_a_trigger_is_the_only_one_refused() {
    let (error, _) = in_the_middle(|tx| insert(tx, "banned"));
    assert!(matches!(&error, TransactError::Refused(text) if text.contains("RAISE(ROLLBACK)")), "{error:?}");
    let (error, _) = in_the_middle(|tx| {
        insert(tx, "half")?;
        // Whatever it returns: its transaction is gone.
        Ok(insert(tx, "banned").unwrap_or(0))
    });
    assert!(matches!(error, TransactError::Refused(_)), "{error:?}");
    let (error, _) = in_the_middle(|tx| {
        tx.execute("INSERT OR ROLLBACK INTO notes (text) VALUES ('second')", [])?;
        Ok(0)
    });
    assert!(matches!(error, TransactError::Refused(_)), "{error:?}");
}

#[test]
fn g12_what_belongs_to_the_writer_is_denied_to_tasks() {
    let statements = [
        "COMMIT",
        "END",
        "ROLLBACK",
        "BEGIN",
        "SAVEPOINT mine",
        "RELEASE task",
        "ROLLBACK TO task",
        "CREATE TABLE sneaked (x)",
        "CREATE TEMP TABLE sneaked (x)",
        "CREATE INDEX sneaked ON notes (text)",
        "DROP TABLE notes",
        "ALTER TABLE notes ADD COLUMN sneaked",
        "ATTACH 'other.db' AS other",
        "ATTACH ('other' || '.db') AS other",
        "PRAGMA user_version = 7",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA wal_checkpoint",
        "PRAGMA defer_foreign_keys = ON",
        "PRAGMA optimize",
        "REINDEX",
        "ANALYZE",
    ];
    for sql in statements {
        let (error, _) = in_the_middle(move |tx| {
            insert(tx, "half")?;
            tx.execute_batch(sql)?;
            Ok(0)
        });
        assert!(matches!(&error, TransactError::Refused(text) if text.contains("must not")), "{sql}: {error:?}");
    }
}

#[test]
fn ordinary_statements_are_not_denied_to_tasks() {
    let scratch = Scratch::new();
    scratch.open().close(Instant::now() + LIMIT).unwrap();
    scratch
        .foreign()
        .execute_batch(
            "CREATE VIRTUAL TABLE texts USING fts5(text);
             CREATE VIEW long_notes AS SELECT id, text FROM notes WHERE length(text) > 3;
             CREATE TRIGGER index_note AFTER INSERT ON notes
               BEGIN INSERT INTO texts (rowid, text) VALUES (NEW.id, NEW.text); END",
        )
        .unwrap();
    let database = scratch.open();
    let statements = [
        "INSERT INTO notes (text) VALUES ('one'), ('three')",
        "UPDATE notes SET text = upper(text) WHERE id IN (SELECT id FROM long_notes)",
        "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 5)
           INSERT INTO notes (text) SELECT 'n' || i FROM n",
        "INSERT INTO notes (text) VALUES ('one') ON CONFLICT (text) DO UPDATE SET text = text || '!'",
        "INSERT INTO texts (texts) VALUES ('optimize')",
        "SELECT count(*) FROM texts WHERE texts MATCH 'three'",
        "SELECT name FROM pragma_table_info('notes')",
        "SELECT json_extract('{\"a\": 1}', '$.a'), count(*) OVER () FROM notes",
        "PRAGMA table_info(notes)",
        "PRAGMA user_version",
        "PRAGMA incremental_vacuum(10)",
        "DELETE FROM notes WHERE text LIKE 'n%'",
    ];
    let ran = database.writer().transact(move |tx| statements.iter().try_for_each(|sql| tx.execute_batch(sql)));
    ran.unwrap();
    assert_eq!(scratch.texts(), ["one!", "THREE"]);
    close(&database);
}

#[test]
fn g12_a_constraint_that_is_checked_at_commit_refuses_only_its_violator() {
    let (error, _) = in_the_middle(|tx| {
        tx.execute("INSERT INTO links (note) VALUES (4711)", [])?;
        Ok(0)
    });
    assert!(matches!(&error, TransactError::Refused(text) if text.contains("COMMIT")), "{error:?}");
}

#[test]
fn a_task_that_failed_over_rows_which_are_not_committed_gets_another_run() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let held = Held::new(writer);
    let violator =
        writer.submit(TaskOptions::default(), |tx| tx.execute("INSERT INTO links (note) VALUES (4711)", [])).unwrap();
    let panicking = writer
        .submit(TaskOptions::default(), |tx| {
            let links: i64 = tx.query_row("SELECT count(*) FROM links", [], |row| row.get(0))?;
            assert_eq!(links, 0, "on purpose");
            insert(tx, "written after all")
        })
        .unwrap();
    held.release();
    let refused = violator.wait();
    assert!(matches!(refused, Err(TransactError::Refused(_))), "{refused:?}");
    panicking.wait().unwrap();
    assert_eq!(scratch.texts(), ["written after all"]);
    close(&database);
}

#[test]
fn several_bad_tasks_in_one_group_cost_only_themselves() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let held = Held::new(writer);
    let tasks: Vec<_> = (0..30)
        .map(|n| {
            let task = move |tx: &rusqlite::Transaction<'_>| match n % 6 {
                1 => insert(tx, "banned"),
                2 => insert(tx, "half").and_then(|_| tx.execute_batch("COMMIT")).map(|()| 0),
                3 => insert(tx, "half").map(|id| assert!(id < 0, "on purpose")).map(|()| 0),
                4 => insert(tx, "0"),
                _ => insert(tx, &n.to_string()),
            };
            writer.submit(TaskOptions::default(), task).unwrap()
        })
        .collect();
    held.release();
    for (n, task) in tasks.into_iter().enumerate() {
        match (n % 6, task.wait()) {
            (1 | 2, Err(TransactError::Refused(_))) => {}
            (3, Err(TransactError::Panicked(_))) => {}
            (4, Err(TransactError::Task(_))) => {}
            (0 | 5, Ok(_)) => {}
            (_, answer) => panic!("task {n}: {answer:?}"),
        }
    }
    let expected: Vec<_> = (0..30).filter(|n| matches!(n % 6, 0 | 5)).map(|n| n.to_string()).collect();
    assert_eq!(scratch.texts(), expected);
    close(&database);
}

#[test]
fn a_failing_task_alone_is_run_once() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let answer: Result<(), Failed> = database.writer().transact(move |tx| {
        counted.fetch_add(1, SeqCst);
        insert(tx, "half")?;
        Err(rusqlite::Error::QueryReturnedNoRows)
    });
    assert!(matches!(answer, Err(TransactError::Task(rusqlite::Error::QueryReturnedNoRows))));
    assert_eq!(runs.load(SeqCst), 1);
    assert!(scratch.texts().is_empty());
    close(&database);
}

#[test]
fn an_error_is_answered_only_after_the_commit_it_may_depend_on() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let held = Held::new(writer);
    let first = submit(writer, "taken");
    let path = scratch.path.clone();
    let second = writer.submit(TaskOptions::default(), |tx| insert(tx, "taken")).unwrap();
    let waiting = std::thread::spawn(move || {
        let error = second.wait().unwrap_err();
        let seen: i64 =
            Connection::open(path).unwrap().query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap();
        (error, seen)
    });
    held.release();
    first.wait().unwrap();
    let (error, seen) = waiting.join().unwrap();
    assert!(matches!(error, TransactError::Task(_)));
    assert_eq!(seen, 1, "the conflict was answered before the row that caused it was there");
    close(&database);
}

#[test]
fn subscribers_are_woken_by_commits_and_never_block_them() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let woken = writer.subscribe();
    drop(writer.subscribe());
    assert!(woken.try_recv().is_err());
    for n in 0..5 {
        writer.transact(move |tx| insert(tx, &n.to_string())).unwrap();
    }
    woken.recv_timeout(LIMIT).unwrap();
    // The writer may still be between an answer and its wake-up: a further commit puts an order on it.
    let failed: Result<(), Failed> = writer.transact(|_| Err(rusqlite::Error::InvalidQuery));
    assert!(failed.is_err());
    while woken.try_recv().is_ok() {}
    let failed: Result<(), Failed> = writer.transact(|_| Err(rusqlite::Error::InvalidQuery));
    assert!(failed.is_err());
    assert!(woken.try_recv().is_err(), "woken although nothing was committed");
    close(&database);
}

#[test]
fn a_dropped_pending_leaves_its_task_to_run() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let held = Held::new(writer);
    drop(submit(writer, "nobody waits"));
    let pending = submit(writer, "asked");
    let pending = pending.try_wait().unwrap_err();
    held.release();
    pending.wait().unwrap();
    assert_eq!(scratch.texts(), ["nobody waits", "asked"]);
    close(&database);
}

#[test]
fn values_that_panic_when_dropped_do_not_take_the_writer_down() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose, while dropped");
        }
    }
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let bomb = Bomb;
    let pending = writer
        .submit(TaskOptions::default(), move |tx| {
            let _captured = &bomb;
            insert(tx, "kept")
        })
        .unwrap();
    pending.wait().unwrap();
    writer.transact(|tx| insert(tx, "after")).unwrap();
    assert!(writer.is_running());
    close(&database);
}
