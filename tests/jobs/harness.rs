//! A site with its gate, a clock that is moved by hand, and its jobs.

use std::sync::Arc;
use std::time::Instant;

use tempfile::TempDir;
use vayu_articles::article::{self, Article, ArticlePatch, ArticleRepository, Expected, Mutation, NewArticle};
use vayu_articles::clock::ManualClock;
use vayu_articles::jobs::{self, Job, JobOptions, JobRunner, JobStatus, Jobs, Journal};
use vayu_articles::outbox::{self, Operator};
use vayu_articles::queue::{Receipt, SqliteWriter, WriteError, WriteJob, Writer};
use vayu_articles::rusqlite::Connection;
use vayu_articles::service::ArticleService;
use vayu_articles::storage::{Component, Database, Options};

pub use crate::waiting::{LONG, wait_until};

/// 2026-01-01T00:00:00Z.
pub const NOW_MS: i64 = 1_767_225_600_000;
/// Only a hang reaches it.
pub const COMPONENTS: [Component; 3] = [outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT];

pub struct Site {
    pub database: Database,
    pub clock: Arc<ManualClock>,
    pub writer: Arc<SqliteWriter>,
    pub jobs: Jobs,
    pub folder: Arc<TempDir>,
}

/// An event of the log: its type, key, version, and cause.
pub type Logged = (String, String, i64, Option<String>);

impl Site {
    pub fn new() -> Self {
        Self::with(JobOptions::default())
    }

    pub fn with(options: JobOptions) -> Self {
        Self::in_folder(Arc::new(tempfile::tempdir().unwrap()), options)
    }

    /// Another process on the same files, as far as SQLite can tell.
    pub fn in_folder(folder: Arc<TempDir>, options: JobOptions) -> Self {
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let mut storage = Options::default();
        storage.clock = clock.clone();
        let database = Database::open(folder.path().join("site.db"), &COMPONENTS, storage).unwrap();
        let writer = Arc::new(SqliteWriter::with_gate(&database, Arc::new(Journal::new(&database, &options))));
        let jobs = Jobs::new(&database, options);
        Self { database, clock, writer, jobs, folder }
    }

    pub fn service(&self) -> ArticleService {
        ArticleService::new(self.writer.clone(), ArticleRepository::new(self.database.clone()))
    }

    pub fn runner(&self) -> JobRunner {
        let runner = JobRunner::new(&self.database, JobOptions::default());
        runner.start().unwrap();
        runner
    }

    pub fn run(&self) -> jobs::Ran {
        self.jobs.run_due(Instant::now() + LONG).unwrap()
    }

    pub fn look(&self) -> Connection {
        let conn = Connection::open(self.folder.path().join("site.db")).unwrap();
        conn.busy_timeout(LONG).unwrap();
        conn
    }

    pub fn write(&self, mutation: Mutation) -> Result<Receipt, WriteError> {
        self.writer.enqueue(WriteJob::new(mutation))
    }

    /// The number of the job that a write to a frozen site became.
    pub fn deferred(&self, mutation: Mutation) -> i64 {
        match self.write(mutation) {
            Ok(Receipt::Deferred { job }) => job,
            other => panic!("not deferred: {other:?}"),
        }
    }

    pub fn applied(&self, mutation: Mutation) -> Article {
        match self.write(mutation) {
            Ok(Receipt::Applied(applied)) => applied.into_article().unwrap(),
            other => panic!("not applied: {other:?}"),
        }
    }

    pub fn job(&self, id: i64) -> Job {
        self.jobs.show(id).unwrap().unwrap()
    }

    pub fn status(&self, id: i64) -> JobStatus {
        self.job(id).status
    }

    pub fn article(&self, slug: &str) -> Option<Article> {
        ArticleRepository::new(self.database.clone()).by_slug(slug).unwrap()
    }

    pub fn events(&self) -> Vec<Logged> {
        let conn = self.look();
        let sql = "SELECT event_type, event_key, json_extract(payload, '$.version'), causation_id FROM event_outbox ORDER BY id";
        let mut statement = conn.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Every row of the articles and of the outbox, as text.
    pub fn dump(&self) -> String {
        dump(&self.look())
    }

    pub fn operator(&self) -> Operator {
        Operator::new(&self.database)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let closed = self.database.close(Instant::now() + LONG);
        if !std::thread::panicking() {
            closed.unwrap();
        }
    }
}

pub fn dump(conn: &Connection) -> String {
    let mut text = String::new();
    for table in ["articles", "article_tags", "article_sources", "event_outbox", "lanes", "deliveries"] {
        let mut statement = conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> = (0..columns).map(|at| format!("{:?}", row.get_ref(at).unwrap())).collect();
            text.push_str(&format!("{table}: {}\n", cells.join(" | ")));
        }
    }
    text
}

pub fn create(title: &str) -> Mutation {
    Mutation::Create(NewArticle::new(title, format!("About {title}.")))
}

pub fn update(slug: &str, content: &str) -> Mutation {
    patch(slug, ArticlePatch::default().content(content))
}

pub fn patch(slug: &str, patch: ArticlePatch) -> Mutation {
    Mutation::Update { slug: slug.to_owned(), patch, expected: Expected::any() }
}

pub fn delete(slug: &str) -> Mutation {
    Mutation::Delete { slug: slug.to_owned(), expected: Expected::any() }
}
