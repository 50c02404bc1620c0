//! The raw loop: rusqlite alone, the product's tables and pragmas, statements prepared once, nothing else.
//!
//! Per article four rows in three tables: the article of 2 KB with its unique slug, two tags, one event.

use std::path::Path;
use std::time::{Duration, Instant};

use vayu_articles::rusqlite::{Connection, Statement, params};

use crate::figures::Outcome;
use crate::input::Item;
use crate::place::COMPONENTS;

pub const INSERT_ARTICLE: &str = "INSERT INTO articles \
    (id, kind, status, slug, title, version, created_at, updated_at, content) \
    VALUES (?1, 'post', 'published', ?2, ?3, 1, ?4, ?4, ?5)";
pub const INSERT_TAG: &str = "INSERT INTO article_tags (article_id, tag, position, label) VALUES (?1, ?2, ?3, ?2)";
pub const INSERT_EVENT: &str = "INSERT INTO event_outbox (event_id, event_type, event_key, payload, occurred_at) \
    VALUES (?1, ?2, ?3, ?4, ?5)";

pub struct RawDatabase {
    pub connection: Connection,
}

impl RawDatabase {
    /// A new file with the product's tables and pragmas.
    pub fn create(folder: &Path, name: &str) -> Outcome<Self> {
        let connection = Connection::open(folder.join(name))?;
        connection.pragma_update(None, "page_size", 4096)?;
        connection.pragma_update(None, "auto_vacuum", 2)?;
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        for migration in COMPONENTS.iter().flat_map(|component| component.migrations) {
            connection.execute_batch(migration)?;
        }
        Ok(Self { connection })
    }

    /// Writes the items, so many per transaction.
    pub fn write(&self, items: &[Item], per_transaction: usize) -> Outcome<Duration> {
        let mut statements = Inserts::prepare(&self.connection)?;
        let began = Instant::now();
        for group in items.chunks(per_transaction) {
            let tx = self.connection.unchecked_transaction()?;
            for item in group {
                statements.create(item)?;
            }
            tx.commit()?;
        }
        Ok(began.elapsed())
    }

    /// Writes the items one per transaction; how long each took, in microseconds.
    pub fn commit_times(&self, items: &[Item]) -> Outcome<Vec<f64>> {
        let mut statements = Inserts::prepare(&self.connection)?;
        let mut times = Vec::with_capacity(items.len());
        for item in items {
            let began = Instant::now();
            let tx = self.connection.unchecked_transaction()?;
            statements.create(item)?;
            tx.commit()?;
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    }
}

/// The statements that create an article.
pub struct Inserts<'c> {
    article: Statement<'c>,
    tag: Statement<'c>,
    event: Statement<'c>,
}

impl<'c> Inserts<'c> {
    pub fn prepare(connection: &'c Connection) -> Outcome<Self> {
        Ok(Self {
            article: connection.prepare(INSERT_ARTICLE)?,
            tag: connection.prepare(INSERT_TAG)?,
            event: connection.prepare(INSERT_EVENT)?,
        })
    }

    pub fn create(&mut self, item: &Item) -> Outcome<()> {
        self.article.execute(params![item.id, item.slug, item.title, item.at, item.content])?;
        for (position, tag) in item.tags.iter().enumerate() {
            self.tag.execute(params![item.id, tag, position as i64])?;
        }
        self.event.execute(params![item.event_id, "article.created.v1", item.id, item.payload, item.at])?;
        Ok(())
    }

    pub fn event(&mut self, event_id: &str, event_type: &str, key: &str, payload: &str, at: i64) -> Outcome<()> {
        self.event.execute(params![event_id, event_type, key, payload, at])?;
        Ok(())
    }
}
