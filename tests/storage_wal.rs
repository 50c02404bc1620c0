//! The write-ahead log stays bounded, in bytes, although there is never a moment without a reader: what has an end of its
//! own is waited for. A foreign reader that does not end is not; see `a_log_that_a_reader_keeps_from_shrinking_…`.

mod storage_support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;
use std::time::{Duration, Instant};

use storage_support::{Scratch, close, insert};
use vayu_articles::storage::{Database, Options};

const MIB: u64 = 1 << 20;

fn wal_bytes(scratch: &Scratch) -> u64 {
    let mut path = scratch.path.clone().into_os_string();
    path.push("-wal");
    std::fs::metadata(PathBuf::from(path)).map_or(0, |found| found.len())
}

/// Reads in one snapshot until two more groups are committed, or for a while.
fn read_over_commits(database: &Database) {
    const WHILE: Duration = Duration::from_millis(20);
    let groups = || database.writer().stats().groups;
    let (began, before) = (Instant::now(), groups());
    let read = database.read(|connection| {
        let count = || connection.query_row("SELECT count(*) FROM notes", [], |row| row.get::<_, i64>(0));
        let first = count()?;
        while groups() < before + 2 && began.elapsed() < WHILE {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert_eq!(count()?, first, "one snapshot");
        Ok::<_, rusqlite::Error>(())
    });
    read.unwrap();
}

#[test]
fn four_readers_whose_snapshots_overlap_do_not_let_the_log_grow() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.wal_limit = 4 * MIB;
    let database = scratch.open_with(options);
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let largest = scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    read_over_commits(&database);
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let mut largest = 0;
        for number in 0..96 {
            let text = format!("{number}{}", "x".repeat(1 << 20));
            database.writer().transact(move |tx| insert(tx, &text)).unwrap();
            largest = largest.max(wal_bytes(&scratch));
        }
        stop.store(true, Ordering::SeqCst);
        largest
    });
    assert!(reads.into_inner() > 96, "the readers did read");
    // The limit, and 1,000 pages for each pause that may have been too short.
    assert!(largest <= 4 * MIB + 8 * 4 * MIB, "{largest} bytes");
    close(&database);
}
