//! Where the files lie: below `target/bench`, on the disk that holds the build, each in a directory that goes with its owner.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tempfile::TempDir;
use vayu_articles::article::{self, ArticleRepository};
use vayu_articles::clock::SharedClock;
use vayu_articles::jobs::{self, JobOptions, Journal};
use vayu_articles::outbox;
use vayu_articles::queue::SqliteWriter;
use vayu_articles::rusqlite::Connection;
use vayu_articles::service::ArticleService;
use vayu_articles::storage::{Component, Database, Options};

use crate::figures::Outcome;

/// What the product's tables are made of.
pub const COMPONENTS: [Component; 3] = [outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT];
/// Only a hang reaches it.
pub const LONG: Duration = Duration::from_secs(120);

/// `target/bench`.
fn root() -> PathBuf {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    tmp.parent().unwrap_or(tmp).join("bench")
}

pub fn report_path() -> PathBuf {
    root().join("report.json")
}

/// Removes what a run that was killed left behind.
pub fn clean_up() -> Outcome<()> {
    std::fs::create_dir_all(root())?;
    for entry in std::fs::read_dir(root())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("run-") {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// A directory that is removed when this is dropped.
pub fn folder() -> Outcome<TempDir> {
    std::fs::create_dir_all(root())?;
    Ok(tempfile::Builder::new().prefix("run-").tempdir_in(root())?)
}

/// The product on a database of its own.
pub struct Site {
    pub database: Database,
    pub service: ArticleService,
    pub path: PathBuf,
}

impl Site {
    pub fn open(folder: &Path, name: &str) -> Outcome<Self> {
        Self::open_with(folder, name, Options::default())
    }

    pub fn with_clock(folder: &Path, name: &str, clock: SharedClock) -> Outcome<Self> {
        let mut options = Options::default();
        options.clock = clock;
        Self::open_with(folder, name, options)
    }

    fn open_with(folder: &Path, name: &str, options: Options) -> Outcome<Self> {
        let path = folder.join(name);
        let database = Database::open(&path, &COMPONENTS, options)?;
        let gate = Arc::new(Journal::new(&database, &JobOptions::default()));
        let writer = Arc::new(SqliteWriter::with_gate(&database, gate));
        let service = ArticleService::new(writer, ArticleRepository::new(database.clone()));
        Ok(Self { database, service, path })
    }

    pub fn close(self) -> Outcome<()> {
        self.database.close(soon())
    }
}

/// A deadline that only a hang reaches.
pub fn soon() -> Instant {
    Instant::now() + LONG
}

/// The settings of the raw loop's connection and of the product's writer, as SQLite reports them.
pub fn pragmas() -> Outcome<Value> {
    const NAMES: [&str; 7] = [
        "journal_mode",
        "synchronous",
        "page_size",
        "auto_vacuum",
        "cache_size",
        "wal_autocheckpoint",
        "journal_size_limit",
    ];
    let folder = folder()?;
    let site = Site::open(folder.path(), "product.db")?;
    let product = {
        let read = |tx: &vayu_articles::rusqlite::Transaction<'_>| {
            // A task may look at no more settings than these; the others are the writer's own affair.
            read_pragmas(tx, &NAMES[..5])
        };
        site.database.writer().transact(read)?
    };
    site.close()?;
    let raw = crate::raw::RawDatabase::create(folder.path(), "raw.db")?;
    let raw = read_pragmas(&raw.connection, &NAMES)?;
    Ok(serde_json::json!({ "product": product, "raw": raw }))
}

fn read_pragmas(connection: &Connection, names: &[&str]) -> vayu_articles::rusqlite::Result<Map<String, Value>> {
    let mut found = Map::new();
    for name in names {
        let value = connection.pragma_query_value(None, name, |row| {
            row.get::<_, i64>(0).map(Value::from).or_else(|_| row.get::<_, String>(0).map(Value::from))
        })?;
        found.insert((*name).to_owned(), value);
    }
    Ok(found)
}
