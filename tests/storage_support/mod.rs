//! What the storage tests share: a scratch database, a way to hold the queue-writer, waits with generous limits.

#![allow(dead_code)]

#[path = "../waiting/mod.rs"]
mod waiting;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rusqlite::Connection;
use tempfile::TempDir;
use vayu_articles::storage::{Component, Database, Options, Pending, QueueWriter, TaskOptions};
#[allow(unused_imports, reason = "each test program uses a part")]
pub use waiting::wait_until;

/// Longest wait for something that is to happen; only reached when a test fails.
pub const LIMIT: Duration = Duration::from_secs(30);

pub const NOTES: Component = Component {
    name: "notes",
    migrations: &[
        "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT",
        "CREATE TABLE links (note INTEGER NOT NULL REFERENCES notes(id) DEFERRABLE INITIALLY DEFERRED) STRICT;
         CREATE TRIGGER notes_ban BEFORE INSERT ON notes WHEN NEW.text = 'banned'
           BEGIN SELECT RAISE(ROLLBACK, 'banned'); END",
    ],
};

/// A directory that is gone with the value, and the path of a database in it.
pub struct Scratch {
    pub directory: TempDir,
    pub path: PathBuf,
}

impl Scratch {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.db");
        Self { directory, path }
    }

    pub fn open(&self) -> Database {
        self.open_with(Options::default())
    }

    pub fn open_with(&self, options: Options) -> Database {
        Database::open(&self.path, &[NOTES], options).unwrap()
    }

    /// A connection that is none of ours.
    pub fn foreign(&self) -> Connection {
        let connection = Connection::open(&self.path).unwrap();
        connection.busy_timeout(LIMIT).unwrap();
        connection
    }

    /// All texts, in order of id, as a foreign connection sees them.
    pub fn texts(&self) -> Vec<String> {
        let connection = self.foreign();
        let mut statement = connection.prepare("SELECT text FROM notes ORDER BY id").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

pub fn close(database: &Database) {
    database.close(Instant::now() + LIMIT).unwrap();
}

pub fn insert(tx: &Connection, text: &str) -> rusqlite::Result<i64> {
    tx.prepare_cached("INSERT INTO notes (text) VALUES (?1)")?.insert([text])
}

/// Hands over a task that inserts `text`.
pub fn submit(writer: &QueueWriter, text: &str) -> Pending<i64, rusqlite::Error> {
    let text = text.to_owned();
    writer.submit(TaskOptions::default(), move |tx| insert(tx, &text)).unwrap()
}

/// The queue-writer busy with a task of ours, so that what is handed over meanwhile becomes one group with it.
pub struct Held {
    release: Sender<()>,
    pending: Pending<(), rusqlite::Error>,
}

impl Held {
    pub fn new(writer: &QueueWriter) -> Self {
        let (entered, inside) = bounded(1);
        let (release, released): (Sender<()>, Receiver<()>) = bounded(1);
        let pending = writer
            .submit(TaskOptions::default(), move |_| {
                let _ = entered.try_send(());
                // When the group is run again, this returns at once: the other end is gone.
                let _ = released.recv_timeout(LIMIT);
                Ok(())
            })
            .unwrap();
        inside.recv_timeout(LIMIT).unwrap();
        Self { release, pending }
    }

    pub fn release(self) {
        drop(self.release);
        self.pending.wait().unwrap();
    }
}
