//! Faults from outside: a lock held elsewhere, a killed process, a file that cannot grow, several writers of one file.

mod storage_support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::{Connection, Transaction};
use storage_support::{LIMIT, NOTES, Scratch, close, insert, submit, wait_until};
use vayu_articles::storage::{Component, Database, Options, TaskOptions, TransactError};

type Failed = TransactError<rusqlite::Error>;

fn impatient(busy_deadline: Duration) -> Options {
    let mut options = Options::default();
    options.busy_deadline = busy_deadline;
    options
}

fn lock(scratch: &Scratch) -> Connection {
    let foreign = scratch.foreign();
    foreign.execute_batch("BEGIN IMMEDIATE; INSERT INTO notes (text) VALUES ('foreign')").unwrap();
    foreign
}

#[test]
fn a_lock_held_elsewhere_is_waited_for() {
    let scratch = Scratch::new();
    let database = scratch.open_with(impatient(LIMIT));
    let foreign = lock(&scratch);
    let waiting: Vec<_> = (0..3).map(|n| submit(database.writer(), &n.to_string())).collect();
    foreign.execute_batch("COMMIT").unwrap();
    waiting.into_iter().for_each(|task| {
        task.wait().unwrap();
    });
    assert_eq!(scratch.texts(), ["foreign", "0", "1", "2"]);
    close(&database);
}

#[test]
fn a_lock_held_too_long_is_a_fault_and_writing_heals_by_itself() {
    let scratch = Scratch::new();
    let database = scratch.open_with(impatient(Duration::from_millis(30)));
    let foreign = lock(&scratch);
    let refused: Failed = database.writer().transact(|tx| insert(tx, "refused")).unwrap_err();
    assert!(matches!(&refused, TransactError::Database(fault) if fault.is_busy()), "{refused:?}");
    assert!(database.writer().last_fault().is_some_and(|fault| fault.is_busy()));
    foreign.execute_batch("ROLLBACK").unwrap();
    database.writer().transact(|tx| insert(tx, "healed")).unwrap();
    assert_eq!(scratch.texts(), ["healed"]);
    close(&database);
    assert_eq!(database.writer().last_fault(), None);
}

#[test]
fn while_the_lock_is_held_elsewhere_deadlines_and_stops_are_kept() {
    let scratch = Scratch::new();
    let database = scratch.open_with(impatient(LIMIT));
    let writer = database.writer();
    let foreign = lock(&scratch);
    let deadline = Some(Instant::now() + Duration::from_millis(20));
    let late = writer.transact_with(TaskOptions { deadline, ..TaskOptions::default() }, |tx| insert(tx, "late"));
    assert!(matches!(late, Err(TransactError::DeadlineExceeded)), "{late:?}");
    let waiting = submit(writer, "never taken");
    database.close(Instant::now() + Duration::from_secs(2)).unwrap();
    let answer = waiting.wait();
    assert!(matches!(answer, Err(TransactError::Stopped)), "{answer:?}");
    foreign.execute_batch("COMMIT").unwrap();
    assert_eq!(scratch.texts(), ["foreign"]);
}

const CHILD_PATH: &str = "STORAGE_FAULTS_CHILD_PATH";

/// This test binary again, running one of the `child_…` tests below on `path`.
fn child(test: &str, path: &Path) -> Child {
    child_of(Command::new(std::env::current_exe().unwrap()), test, path)
}

fn child_of(mut command: Command, test: &str, path: &Path) -> Child {
    command
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_PATH, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Says something to the parent, in a line that counts only when it is complete.
fn say(word: &str) {
    let mut out = std::io::stdout().lock();
    // The parent may have hung up.
    let _ = writeln!(out, "say {word} .").and_then(|()| out.flush());
}

fn heard(line: std::io::Result<String>) -> Option<String> {
    let line = line.ok()?;
    Some(
        line.strip_prefix("say ").or_else(|| line.split_once("say ").map(|(_, said)| said))?.strip_suffix(" .")?.into(),
    )
}

#[test]
fn child_writes_until_killed() {
    let Ok(path) = std::env::var(CHILD_PATH) else {
        return;
    };
    let database = Database::open(path, &[NOTES], Options::default()).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..4 {
            let writer = database.writer();
            scope.spawn(move || {
                for n in 0.. {
                    let text = format!("{}/{caller}/{n}", std::process::id());
                    let task = text.clone();
                    writer.transact(move |tx| insert(tx, &task)).unwrap();
                    say(&text);
                }
            });
        }
    });
}

#[test]
fn g2_what_was_answered_survives_kill_9() {
    let scratch = Scratch::new();
    let mut answered = Vec::new();
    for round in 1..=4 {
        let mut process = child("child_writes_until_killed", &scratch.path);
        let out = BufReader::new(process.stdout.take().unwrap());
        for word in out.lines().filter_map(heard) {
            answered.push(word);
            if answered.len() == 60 * round {
                process.kill().unwrap();
            }
        }
        assert!(!process.wait().unwrap().success());
    }
    assert!(answered.len() >= 240);
    let written: BTreeSet<_> = scratch.texts().into_iter().collect();
    for text in answered {
        assert!(written.contains(&text), "{text} was answered and is gone");
    }
    let check: String = scratch.foreign().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

const JOBS: Component = Component {
    name: "test_jobs",
    migrations: &["CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL DEFAULT 'queued') STRICT;
         CREATE TABLE runs (job INTEGER NOT NULL, worker TEXT NOT NULL) STRICT"],
};

fn add_jobs(connection: &Connection, count: i64) {
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
               INSERT INTO jobs (id) SELECT i FROM n";
    connection.execute(sql, [count]).unwrap();
}

/// Takes a job the way the original does: SELECT, then UPDATE.
fn take_job(tx: &Transaction<'_>, worker: &str) -> rusqlite::Result<bool> {
    let next: Option<i64> = tx.query_row("SELECT min(id) FROM jobs WHERE state = 'queued'", [], |row| row.get(0))?;
    let Some(job) = next else {
        return Ok(false);
    };
    tx.execute("UPDATE jobs SET state = 'taken' WHERE id = ?1", [job])?;
    tx.execute("INSERT INTO runs (job, worker) VALUES (?1, ?2)", (job, worker))?;
    Ok(true)
}

#[test]
fn child_takes_jobs() {
    let Ok(path) = std::env::var(CHILD_PATH) else {
        return;
    };
    let database = Database::open(path, &[JOBS], impatient(LIMIT)).unwrap();
    say("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let writer = database.writer();
            scope.spawn(move || {
                let worker = format!("{}/{thread}", std::process::id());
                while writer
                    .transact({
                        let worker = worker.clone();
                        move |tx| take_job(tx, &worker)
                    })
                    .unwrap()
                {}
            });
        }
    });
    close(&database);
}

#[test]
fn original_09_a_job_is_taken_once() {
    const COUNT: i64 = 300;
    let scratch = Scratch::new();
    close(&Database::open(&scratch.path, &[JOBS], Options::default()).unwrap());
    let foreign = scratch.foreign();
    add_jobs(&foreign, COUNT);
    let mut workers = [child("child_takes_jobs", &scratch.path), child("child_takes_jobs", &scratch.path)];
    let outs = workers.each_mut().map(|worker| {
        let mut out = BufReader::new(worker.stdout.take().unwrap()).lines();
        assert!(out.by_ref().filter_map(heard).any(|word| word == "ready"));
        out
    });
    for worker in &mut workers {
        worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    outs.into_iter().for_each(|out| out.for_each(drop));
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    let one = |sql: &str| foreign.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(one("SELECT count(*) FROM runs"), COUNT);
    assert_eq!(one("SELECT count(DISTINCT job) FROM runs"), COUNT);
}

/// Two threads of one process, each with its own database handle and so its own write connection.
#[test]
fn original_09_also_with_two_writers_in_one_process() {
    let scratch = Scratch::new();
    let databases = [(); 2].map(|()| Database::open(&scratch.path, &[JOBS], impatient(LIMIT)).unwrap());
    add_jobs(&scratch.foreign(), 100);
    std::thread::scope(|scope| {
        for database in &databases {
            scope.spawn(|| while database.writer().transact(|tx| take_job(tx, "thread")).unwrap() {});
        }
    });
    databases.iter().for_each(close);
    let runs: (i64, i64) = scratch
        .foreign()
        .query_row("SELECT count(*), count(DISTINCT job) FROM runs", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!(runs, (100, 100));
}

/// Run by `an_io_error_at_commit_…` in a process whose files cannot grow beyond 512 KiB.
#[test]
fn child_cannot_grow_its_files() {
    let Ok(path) = std::env::var(CHILD_PATH) else {
        return;
    };
    let database = Database::open(&path, &[NOTES], Options::default()).unwrap();
    let writer = database.writer();
    writer.transact(|tx| insert(tx, "before")).unwrap();
    let large = |probe| {
        let options = TaskOptions { probe, ..TaskOptions::default() };
        writer.transact_with(options, |tx| insert(tx, &"x".repeat(1 << 20)))
    };
    let found = large(Some(Box::new(|connection| {
        connection.query_row("SELECT EXISTS (SELECT 1 FROM notes WHERE text LIKE 'xxx%')", [], |row| row.get(0))
    })));
    assert!(matches!(&found, Err(TransactError::Database(fault)) if fault.is_io()), "{found:?}");
    let unknown = large(None);
    assert!(matches!(&unknown, Err(TransactError::OutcomeUnknown(_))), "{unknown:?}");
    writer.transact(|tx| insert(tx, "after")).unwrap();
    let count =
        database.read(|connection| connection.query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0)));
    assert_eq!(count.unwrap(), 2);
    assert_eq!(writer.last_fault(), None);
    close(&database);
    say("done");
}

#[test]
#[cfg(target_os = "linux")]
fn an_io_error_at_commit_is_looked_up_and_writing_goes_on() {
    let scratch = Scratch::new();
    let mut shell = Command::new("sh");
    // 1,024 blocks of 512 bytes; without the trap, the signal would kill the process.
    shell.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let mut process = child_of(shell, "child_cannot_grow_its_files", &scratch.path);
    let out = BufReader::new(process.stdout.take().unwrap());
    // Read to the end: a child whose output nobody takes fails.
    let said: Vec<_> = out.lines().filter_map(heard).collect();
    assert_eq!(said, ["done"]);
    assert!(process.wait().unwrap().success());
    assert_eq!(scratch.texts(), ["before", "after"]);
}

#[test]
fn a_log_that_a_reader_keeps_from_shrinking_goes_on_being_written_and_shrinks_afterwards() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.wal_limit = 1 << 20;
    let database = scratch.open_with(options);
    let writer = database.writer();
    let large = || writer.transact(|tx| insert(tx, &format!("{}{}", tx.last_insert_rowid(), "x".repeat(1 << 20))));
    let foreign = scratch.foreign();
    foreign.execute_batch("BEGIN; SELECT count(*) FROM notes").unwrap();
    for _ in 0..12 {
        large().unwrap();
    }
    assert!(writer.stats().wal_pages > 2_000, "{:?}", writer.stats());
    foreign.execute_batch("COMMIT").unwrap();
    drop(foreign);
    wait_until("the log starts afresh", || {
        large().unwrap();
        writer.stats().wal_pages < 1_000
    });
    close(&database);
}
