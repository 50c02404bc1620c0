//! The reader pool: snapshots, limits, and what a reader must not do.

mod storage_support;

use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use rusqlite::Connection;
use storage_support::{LIMIT, Scratch, close, insert};
use vayu_articles::storage::{Database, Options, PoolState, ReadError};

const COUNT: &str = "SELECT count(*) FROM notes";
const ENDLESS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

fn count(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row(COUNT, [], |row| row.get(0))
}

fn one_reader() -> Options {
    let mut options = Options::default();
    options.readers = 1;
    options
}

#[test]
fn a_read_is_one_snapshot() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let (before, after) = database
        .read(|connection| {
            let before = count(connection)?;
            database.writer().transact(|tx| insert(tx, "meanwhile")).unwrap();
            Ok::<_, rusqlite::Error>((before, count(connection)?))
        })
        .unwrap();
    assert_eq!((before, after), (0, 0));
    assert_eq!(database.read(count).unwrap(), 1);
    close(&database);
}

#[test]
fn readers_cannot_write_nor_make_themselves_able_to() {
    let scratch = Scratch::new();
    let database = scratch.open_with(one_reader());
    let statements = [
        "INSERT INTO notes (text) VALUES ('sneaked')",
        "DELETE FROM notes",
        "CREATE TABLE sneaked (x)",
        "PRAGMA query_only = OFF",
        "PRAGMA user_version = 7",
        "COMMIT",
        "ROLLBACK",
        "ATTACH ':memory:' AS other",
    ];
    for sql in statements {
        let refused = database.read(|connection| connection.execute_batch(sql));
        assert!(matches!(refused, Err(ReadError::Read(_))), "{sql}: {refused:?}");
    }
    let refused = database.read(|connection| {
        let _ = connection.execute_batch("PRAGMA query_only = OFF; COMMIT");
        connection.execute_batch("INSERT INTO notes (text) VALUES ('sneaked')")
    });
    assert!(refused.is_err());
    assert!(scratch.texts().is_empty());
    close(&database);
}

#[test]
fn a_read_within_a_read_is_refused_but_not_on_another_database() {
    let scratch = Scratch::new();
    let database = scratch.open_with(one_reader());
    let other = Scratch::new();
    let other_database = other.open();
    let nested = database.read(|_| {
        assert_eq!(other_database.read(count).unwrap(), 0);
        Ok::<_, rusqlite::Error>(database.read(count))
    });
    assert!(matches!(nested, Ok(Err(ReadError::Nested))), "{nested:?}");
    assert_eq!(database.read(count).unwrap(), 0);
    close(&other_database);
    close(&database);
}

#[test]
fn a_pool_in_use_is_a_timeout_that_says_so() {
    let scratch = Scratch::new();
    let mut options = one_reader();
    options.read_wait = Duration::from_millis(20);
    let database = scratch.open_with(options);
    assert_eq!(database.pool_state().map(|PoolState { connections, idle, .. }| (connections, idle)), Some((1, 1)));
    let (entered, inside) = bounded(1);
    let (release, released) = bounded::<()>(0);
    std::thread::scope(|scope| {
        let database = &database;
        scope.spawn(move || {
            database.read(|_| {
                entered.send(()).unwrap();
                let _ = released.recv_timeout(LIMIT);
                Ok::<_, rusqlite::Error>(())
            })
        });
        inside.recv_timeout(LIMIT).unwrap();
        assert_eq!(database.pool_state().map(|state| state.idle), Some(0));
        assert!(matches!(database.read(count), Err(ReadError::PoolTimeout)));
        drop(release);
    });
    assert_eq!(database.read(count).unwrap(), 0);
    close(&database);
}

#[test]
fn a_long_read_is_interrupted_and_its_connection_used_again() {
    let scratch = Scratch::new();
    let mut options = one_reader();
    options.read_limit = Duration::from_millis(30);
    let database = scratch.open_with(options);
    let endless = database.read(|connection| connection.query_row(ENDLESS, [], |row| row.get::<_, i64>(0)));
    assert!(matches!(endless, Err(ReadError::TooLong)), "{endless:?}");
    // Also when the closure makes light of the interruption: what it has is incomplete.
    let endless = database.read(|connection| {
        Ok::<_, rusqlite::Error>(connection.query_row(ENDLESS, [], |row| row.get::<_, i64>(0)).unwrap_or(0))
    });
    assert!(matches!(endless, Err(ReadError::TooLong)), "{endless:?}");
    for _ in 0..3 {
        assert_eq!(database.read(count).unwrap(), 0);
    }
    assert_eq!(database.pool_state().map(|state| state.connections), Some(1));
    close(&database);
}

#[test]
fn a_panicking_read_gives_its_connection_back() {
    let scratch = Scratch::new();
    let database = scratch.open_with(one_reader());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = database.read(|connection| {
            count(connection)?;
            assert!(!connection.is_autocommit(), "not in a snapshot");
            if count(connection)? == 0 { panic!("on purpose") } else { Ok::<_, rusqlite::Error>(()) }
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(database.read(count).unwrap(), 0);
    assert!(matches!(database.read(|_| Err::<(), _>("own")), Err(ReadError::Read("own"))));
    close(&database);
}

#[test]
fn a_database_that_is_not_open_is_not_read() {
    let scratch = Scratch::new();
    let database = Database::new(&scratch.path, &[], Options::default());
    assert!(matches!(database.read(count), Err(ReadError::Closed)));
    assert!(database.pool_state().is_none());
    let database = scratch.open();
    close(&database);
    assert!(matches!(database.read(count), Err(ReadError::Closed)));
}

#[test]
fn g10_closing_waits_for_a_running_read_within_its_deadline() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let (entered, inside) = bounded(1);
    let (release, released) = bounded::<()>(0);
    std::thread::scope(|scope| {
        let reader = database.clone();
        scope.spawn(move || {
            let got = reader.read(|connection| {
                entered.send(()).unwrap();
                let _ = released.recv_timeout(LIMIT);
                count(connection)
            });
            assert_eq!(got.unwrap(), 0);
        });
        inside.recv_timeout(LIMIT).unwrap();
        let error = database.close(Instant::now() + Duration::from_millis(10)).unwrap_err();
        assert!(error.to_string().contains("still running"), "{error}");
        drop(release);
    });
    close(&database);
}
