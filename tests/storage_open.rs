//! Opening: new files, other people's files, several at once, newer files, and what is left after closing.

mod storage_support;

use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use rusqlite::Connection;
use storage_support::{LIMIT, NOTES, Scratch, close, insert, wait_until};
use vayu_articles::lifecycle::{Manager, ManagerOptions, Service};
use vayu_articles::storage::{AutoVacuum, Component, Database, OpenError, Options, Synchronous};

fn pragma(connection: &Connection, name: &str) -> String {
    let value = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
    match connection.pragma_query_value(None, name, value).unwrap() {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    }
}

#[test]
fn a_new_file_gets_the_projects_settings() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let foreign = scratch.foreign();
    assert_eq!(pragma(&foreign, "journal_mode"), "wal");
    assert_eq!(pragma(&foreign, "page_size"), "4096");
    assert_eq!(pragma(&foreign, "auto_vacuum"), "2");
    assert_eq!(pragma(&foreign, "user_version"), "0");
    assert_eq!(pragma(&foreign, "application_id"), "0");
    assert_eq!(database.auto_vacuum(), Some(AutoVacuum::Incremental));
    drop(foreign);
    close(&database);
    assert!(!scratch.directory.path().join("notes.db-wal").exists(), "the log was not moved into the file");
}

#[test]
fn the_writer_syncs_each_commit_unless_told_otherwise() {
    for (synchronous, level) in [(Synchronous::Full, 2), (Synchronous::Normal, 1)] {
        let scratch = Scratch::new();
        let mut options = Options::default();
        options.synchronous = synchronous;
        let database = scratch.open_with(options);
        let found: i64 =
            database.writer().transact(|tx| tx.pragma_query_value(None, "synchronous", |row| row.get(0))).unwrap();
        assert_eq!(found, level);
        close(&database);
    }
    assert_eq!(Options::default().synchronous, Synchronous::Full);
}

#[test]
fn a_host_programs_file_is_left_as_it_is() {
    let scratch = Scratch::new();
    {
        let host = scratch.foreign();
        host.execute_batch(
            "PRAGMA page_size = 8192; PRAGMA user_version = 42; PRAGMA application_id = 4711;
             CREATE TABLE host (id INTEGER PRIMARY KEY, text TEXT); INSERT INTO host (text) VALUES ('mine')",
        )
        .unwrap();
    }
    let database = scratch.open();
    assert_eq!(database.auto_vacuum(), Some(AutoVacuum::None));
    let host = scratch.foreign();
    assert_eq!(pragma(&host, "page_size"), "8192");
    assert_eq!(pragma(&host, "user_version"), "42");
    assert_eq!(pragma(&host, "application_id"), "4711");
    assert_eq!(pragma(&host, "journal_mode"), "wal");
    let schema: String =
        host.query_row("SELECT sql FROM sqlite_schema WHERE name = 'host'", [], |row| row.get(0)).unwrap();
    assert_eq!(schema, "CREATE TABLE host (id INTEGER PRIMARY KEY, text TEXT)");
    assert_eq!(host.query_row("SELECT text FROM host", [], |row| row.get::<_, String>(0)).unwrap(), "mine");
    // And the host's tables can be written beside ours.
    database.writer().transact(|tx| tx.execute("INSERT INTO host (text) VALUES ('ours')", [])).unwrap();
    close(&database);
}

#[test]
fn paths_that_are_no_file_of_their_own_are_refused() {
    for path in [":memory:", "", "file::memory:", "file:notes.db?mode=memory", "FILE:x.db", "a\0b"] {
        let refused = Database::open(path, &[], Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::Path { .. }), "{path:?}: {refused:?}");
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let scratch = Scratch::new();
    let missing = scratch.directory.path().join("missing").join("notes.db");
    let refused = Database::open(missing, &[], Options::default()).unwrap_err();
    assert!(refused.to_string().contains("check that the directory exists"), "{refused}");

    std::fs::write(&scratch.path, "this is a text, not a database; ".repeat(200)).unwrap();
    let refused = Database::open(&scratch.path, &[], Options::default()).unwrap_err();
    assert!(refused.to_string().contains("not an SQLite database"), "{refused}");
}

#[test]
#[cfg(unix)]
fn the_canonical_path_is_that_of_the_real_file() {
    let scratch = Scratch::new();
    let link = scratch.directory.path().join("link");
    let real = scratch.directory.path().join("real");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let database = Database::open(link.join("notes.db"), &[], Options::default()).unwrap();
    assert_eq!(database.canonical_path().unwrap(), real.canonicalize().unwrap().join("notes.db"));
    close(&database);
}

#[test]
fn a_newer_database_is_refused_by_name_and_number() {
    let scratch = Scratch::new();
    close(&scratch.open());
    scratch.foreign().execute("UPDATE vayu_schema SET version = 9 WHERE component = 'notes'", []).unwrap();
    let refused = Database::open(&scratch.path, &[NOTES], Options::default()).unwrap_err();
    assert!(matches!(&refused, OpenError::Newer { component, found: 9, known: 2 } if component == "notes"));
    assert!(refused.to_string().contains("`notes` have version 9, this program knows up to 2"), "{refused}");
    // A program that does not use the component is not concerned.
    close(&Database::open(&scratch.path, &[], Options::default()).unwrap());
}

#[test]
fn a_failing_migration_is_rolled_back_and_named() {
    const BROKEN: Component = Component {
        name: "broken",
        migrations: &["CREATE TABLE good (x)", "CREATE TABLE half (x); INSERT INTO missing VALUES (1)"],
    };
    let scratch = Scratch::new();
    let refused = Database::open(&scratch.path, &[NOTES, BROKEN], Options::default()).unwrap_err();
    assert!(matches!(&refused, OpenError::Migration { component, version: 2, .. } if component == "broken"));
    let found: Vec<String> = {
        let foreign = scratch.foreign();
        let mut names = foreign.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
        names.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    assert_eq!(found, ["links", "notes", "vayu_recovery", "vayu_schema"]);
    close(&scratch.open());

    const ENDING: Component = Component { name: "ending", migrations: &["CREATE TABLE e (x); COMMIT"] };
    let refused = Database::open(&scratch.path, &[ENDING], Options::default()).unwrap_err();
    assert!(matches!(refused, OpenError::Component { .. }), "{refused:?}");
}

#[test]
fn component_names_are_checked() {
    let scratch = Scratch::new();
    for components in [
        &[NOTES, NOTES][..],
        &[Component { name: " ", migrations: &[] }],
        &[Component { name: "storage", migrations: &[] }],
    ] {
        let refused = Database::open(&scratch.path, components, Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::Component { .. }), "{refused:?}");
    }
}

#[test]
fn a_component_is_taken_from_its_version_on() {
    const OLDER: Component = Component { name: "notes", migrations: &[NOTES.migrations[0]] };
    let scratch = Scratch::new();
    let database = Database::open(&scratch.path, &[OLDER], Options::default()).unwrap();
    database.writer().transact(|tx| insert(tx, "kept")).unwrap();
    close(&database);
    let database = scratch.open();
    database.writer().transact(|tx| tx.execute("INSERT INTO links (note) SELECT id FROM notes", [])).unwrap();
    close(&database);
    assert_eq!(scratch.texts(), ["kept"]);
}

#[test]
fn many_open_and_migrate_one_new_file_at_once() {
    for _ in 0..5 {
        let scratch = Scratch::new();
        let together = Arc::new(Barrier::new(4));
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (scratch, together) = (&scratch, Arc::clone(&together));
                scope.spawn(move || {
                    together.wait();
                    let database = scratch.open();
                    database.writer().transact(move |tx| insert(tx, &n.to_string())).unwrap();
                    close(&database);
                });
            }
        });
        assert_eq!(scratch.texts().len(), 4);
    }
}

const CHILD_PATH: &str = "STORAGE_OPEN_CHILD_PATH";

/// Run by `processes_that_start_at_once_all_open` in processes of its own.
#[test]
fn child_opens() {
    let Ok(path) = std::env::var(CHILD_PATH) else {
        return;
    };
    let database = Database::open(path, &[NOTES], Options::default()).unwrap();
    let text = std::process::id().to_string();
    database.writer().transact(move |tx| insert(tx, &text)).unwrap();
    close(&database);
}

#[test]
fn processes_that_start_at_once_all_open() {
    let scratch = Scratch::new();
    let children: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_opens"])
                .env(CHILD_PATH, &scratch.path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(scratch.texts().len(), 3);
}

#[test]
fn a_lock_that_is_never_given_back_ends_the_start_with_a_clear_error() {
    let scratch = Scratch::new();
    close(&Database::open(&scratch.path, &[], Options::default()).unwrap());
    let winner = scratch.foreign();
    winner.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = Database::open(&scratch.path, &[NOTES], Options::default()).unwrap_err();
    assert!(matches!(&refused, OpenError::Busy { what } if what.contains("`notes`")), "{refused:?}");
    // Nothing to migrate, no lock needed.
    close(&Database::open(&scratch.path, &[], Options::default()).unwrap());
}

#[test]
fn services_are_named_and_may_be_stopped_before_their_start() {
    let scratch = Scratch::new();
    let database = Database::new(&scratch.path, &[NOTES], Options::default());
    assert_eq!((database.storage_service().name(), database.writer_service().name()), ("storage", "queue-writer"));
    for service in [&database.storage_service() as &dyn Service, &database.writer_service()] {
        service.stop(Instant::now() + LIMIT).unwrap();
        service.stop(Instant::now() + LIMIT).unwrap();
    }
    assert!(!scratch.path.exists());
}

#[test]
fn services_run_under_a_manager_and_stop_cleanly() {
    let scratch = Scratch::new();
    let database = Database::new(&scratch.path, &[NOTES], Options::default());
    let mut manager = Manager::new(ManagerOptions::default());
    manager.register(database.storage_service()).unwrap();
    manager.register(database.writer_service()).unwrap();
    manager.start().unwrap();
    database.writer().transact(|tx| insert(tx, "written")).unwrap();
    assert_eq!(manager.stop("the test ends").exit_code(), 0);
    assert_eq!(scratch.texts(), ["written"]);

    let mut again = Manager::new(ManagerOptions::default());
    again.register(database.storage_service()).unwrap();
    let refused = again.start().unwrap_err();
    assert!(refused.to_string().contains("make a new `Database`"), "{refused}");
}

/// Names of this process's threads.
#[cfg(target_os = "linux")]
fn threads_of_ours() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).filter(|name| name == "queue-writer" || name == "storage-pool").collect()
}

/// Run by `g10_no_thread_is_left_after_closing` in a process where no other test has threads.
#[test]
#[cfg(target_os = "linux")]
fn child_counts_threads() {
    let Ok(path) = std::env::var(CHILD_PATH) else {
        return;
    };
    for _ in 0..5 {
        let database = Database::open(&path, &[NOTES], Options::default()).unwrap();
        database.writer().transact(|tx| tx.execute("DELETE FROM notes", [])).unwrap();
        assert_eq!(threads_of_ours().len(), 2, "{:?}", threads_of_ours());
        close(&database);
        // A thread that was waited for may be listed for an instant longer.
        wait_until("no thread of ours", || threads_of_ours().is_empty());
    }
    let refused = Database::open(&path, &[Component { name: "storage", migrations: &[] }], Options::default());
    assert!(refused.is_err());
    wait_until("no thread of a failed start", || threads_of_ours().is_empty());
}

#[test]
#[cfg(target_os = "linux")]
fn g10_no_thread_is_left_after_closing() {
    let scratch = Scratch::new();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_counts_threads", "--nocapture"])
        .env(CHILD_PATH, &scratch.path)
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}
