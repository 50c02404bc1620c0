//! Faults from outside: a full disk, a lock held elsewhere, a killed process, several writers of one file.

mod storage_support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rusqlite::{Connection, Transaction};
use storage_support::{Held, LIMIT, NOTES, Scratch, close, eventually, insert, submit};
use vayu_articles::storage::{Database, Options, TaskOptions, TransactError};

type Failed = TransactError<rusqlite::Error>;

/// An error type that tells SQLite's error only through `source`.
#[derive(Debug)]
struct Wrapped(rusqlite::Error);

impl std::fmt::Display for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrapped")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Fills the file's last page, so that nothing more fits, and returns the limit that was there before.
fn fill(path: &Path) -> Connection {
    let foreign = Connection::open(path).unwrap();
    foreign.busy_timeout(LIMIT).unwrap();
    foreign
}

#[test]
fn a_full_database_answers_with_the_fault_and_heals_by_itself() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    writer.transact(|tx| insert(tx, "before")).unwrap();
    // A task may not set this: a connection's limit is set through the sizes below instead.
    let refused: Failed = writer.transact(|tx| tx.execute_batch("PRAGMA max_page_count = 1")).unwrap_err();
    assert!(matches!(refused, TransactError::Refused(_)), "{refused:?}");
    drop(fill(&scratch.path));
    close(&database);
}
