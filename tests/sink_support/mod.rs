//! A site whose articles change for real, and whose log a test delivers as it likes.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vayu_articles::article::{self, Article, ArticlePatch, ArticleRepository, Expected, NewArticle};
use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{self, Event, Handler, LaneStart, NewEvent};
use vayu_articles::queue::SqliteWriter;
use vayu_articles::service::{ArticleService, WriteContext};
use vayu_articles::storage::{Database, Options};

pub struct Site {
    pub folder: TempDir,
    pub clock: Arc<ManualClock>,
    pub database: Database,
    pub service: ArticleService,
}

impl Site {
    pub fn new() -> Self {
        Self::open_in(tempfile::tempdir().unwrap(), "articles.db")
    }

    pub fn open_in(folder: TempDir, name: &str) -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let mut options = Options::default();
        options.clock = clock.clone();
        let components = [outbox::COMPONENT, article::COMPONENT];
        let database = Database::open(folder.path().join(name), &components, options).unwrap();
        let writer = Arc::new(SqliteWriter::new(&database));
        let service = ArticleService::new(writer, ArticleRepository::new(database.clone()));
        Self { folder, clock, database, service }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn source(&self) -> Arc<ArticleRepository> {
        Arc::new(ArticleRepository::new(self.database.clone()))
    }

    pub fn create(&self, article: NewArticle) -> Article {
        self.clock.advance(1_000);
        self.service.create(article, &WriteContext::default()).unwrap()
    }

    pub fn post(&self, slug: &str, title: &str, content: &str, tags: &[&str]) -> Article {
        self.create(NewArticle::new(title, content).slug(slug).tags(tags.iter().copied()))
    }

    pub fn update(&self, slug: &str, patch: ArticlePatch) -> Article {
        self.clock.advance(1_000);
        self.service.update(slug, patch, Expected::any(), &WriteContext::default()).unwrap()
    }

    pub fn delete(&self, slug: &str) -> Article {
        self.clock.advance(1_000);
        self.service.delete(slug, Expected::any(), &WriteContext::default()).unwrap()
    }

    /// The whole log.
    pub fn events(&self) -> Vec<Event> {
        let read = self.database.read(|conn| {
            let mut statement = conn.prepare(
                "SELECT id, event_id, event_type, event_key, payload, occurred_at FROM event_outbox ORDER BY id",
            )?;
            let rows = statement.query_map([], |row| {
                let mut event = NewEvent::from_json(row.get::<_, String>(2)?, row.get::<_, String>(4)?);
                event.event_id = row.get(1)?;
                event.key = row.get(3)?;
                event.occurred_at = row.get(5)?;
                Ok(event.into_event(row.get(0)?))
            })?;
            rows.collect::<Result<Vec<_>, rusqlite::Error>>()
        });
        read.unwrap()
    }

    /// The newest event.
    pub fn last_event(&self) -> Event {
        self.events().pop().unwrap()
    }

    /// Delivers every event once, in order.
    pub fn deliver_all(&self, handler: &dyn Handler) {
        for event in self.events() {
            handler.handle(&event).unwrap();
        }
    }

    /// The lane of a handler that has delivered everything.
    pub fn lane(&self) -> LaneStart {
        let last = self.events().pop().map(|event| (event.id, event.event_id));
        LaneStart::new(last.as_ref().map_or(0, |last| last.0), last)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.database.close(Instant::now() + Duration::from_secs(10));
    }
}

use vayu_articles::rusqlite;
