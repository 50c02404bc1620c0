//! A site in a temporary directory, and what its tables say when they are looked at from outside.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vayu_articles::article::{self, Article, ArticleEvent, ArticleRepository, Mutation, NewArticle, PreparedMutation};
use vayu_articles::clock::{ManualClock, SystemClock};
use vayu_articles::jobs::{self, JobOptions, Journal};
use vayu_articles::outbox;
use vayu_articles::queue::{DirectWriter, Receipt, SqliteWriter, WriteError, WriteJob, Writer};
use vayu_articles::rusqlite::{self, Connection, OpenFlags};
use vayu_articles::service::ArticleService;
use vayu_articles::storage::{Database, Options};

/// Runs each of the tests (a function of a writer and its site) with each kind of writer, as `module: method of Site`.
#[allow(unused_macros, reason = "each test file uses a part")]
macro_rules! conformance {
    ($($writers:ident: $site:ident),+; $tests:tt) => {
        $(conformance!(@one $writers $site $tests);)+
    };
    (@one $writers:ident $writer:ident [$($test:ident),* $(,)?]) => {
        mod $writers {
            $(#[test]
            fn $test() {
                let site = super::Site::new();
                super::$test(&site.$writer(), &site);
            })*
        }
    };
}

/// The time that every site's clock shows until it is moved: 2026-01-01T00:00:00Z.
pub const NOW_MS: i64 = 1_767_225_600_000;

pub struct Site {
    pub database: Database,
    pub clock: Arc<ManualClock>,
    path: PathBuf,
    _directory: TempDir,
}

/// One row of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    pub event_id: String,
    pub event_type: String,
    pub key: Option<String>,
    pub body: ArticleEvent,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub occurred_at: i64,
}

impl Site {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("site.db");
        let clock = Arc::new(ManualClock::new(NOW_MS));
        let database = open(&path, clock.clone());
        Self { database, clock, path, _directory: directory }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn queued(&self) -> SqliteWriter {
        SqliteWriter::new(&self.database)
    }

    /// The writer of the program: it asks for the site's mode, which is open.
    pub fn gated(&self) -> SqliteWriter {
        SqliteWriter::with_gate(&self.database, Arc::new(Journal::new(&self.database, &JobOptions::default())))
    }

    pub fn direct(&self) -> DirectWriter {
        DirectWriter::open(&self.path, self.clock.clone()).unwrap()
    }

    pub fn repository(&self) -> ArticleRepository {
        ArticleRepository::new(self.database.clone())
    }

    pub fn service(&self) -> ArticleService {
        ArticleService::new(Arc::new(self.queued()), self.repository())
    }

    /// A connection of the test's own.
    pub fn look(&self) -> Connection {
        look(&self.path)
    }

    pub fn events(&self) -> Vec<Logged> {
        events(&self.look())
    }

    pub fn articles(&self) -> Vec<Article> {
        articles(&self.look())
    }

    /// Fails unless folding the log gives exactly the articles there are.
    pub fn assert_log_explains_articles(&self) {
        assert_log_explains_articles(&self.look());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let closed = self.database.close(Instant::now() + Duration::from_secs(30));
        if !std::thread::panicking() {
            closed.unwrap();
        }
    }
}

pub fn open(path: &Path, clock: Arc<ManualClock>) -> Database {
    let mut options = Options::default();
    options.clock = clock;
    Database::open(path, &[outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT], options).unwrap()
}

pub fn open_with_system_clock(path: &Path) -> Database {
    let mut options = Options::default();
    options.clock = SystemClock::shared();
    Database::open(path, &[outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT], options).unwrap()
}

pub fn look(path: &Path) -> Connection {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    conn.busy_timeout(Duration::from_secs(30)).unwrap();
    conn
}

pub fn events(conn: &Connection) -> Vec<Logged> {
    let sql = "SELECT event_id, event_type, event_key, payload, correlation_id, causation_id, occurred_at \
               FROM event_outbox ORDER BY id";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        Ok(Logged {
            event_id: row.get(0)?,
            event_type: row.get(1)?,
            key: row.get(2)?,
            body: serde_json::from_str(&row.get::<_, String>(3)?).unwrap(),
            correlation_id: row.get(4)?,
            causation_id: row.get(5)?,
            occurred_at: row.get(6)?,
        })
    });
    rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
}

pub fn articles(conn: &Connection) -> Vec<Article> {
    let sql = "SELECT json_object('id', id, 'kind', kind, 'status', status, 'slug', slug, 'title', title, \
               'content', content, 'version', version, 'created_at', created_at, 'updated_at', updated_at, \
               'tags', json((SELECT json_group_array(label ORDER BY position) FROM article_tags WHERE article_id = id))) \
               FROM articles ORDER BY id";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|json| serde_json::from_str(&json.unwrap()).unwrap()).collect()
}

pub fn assert_log_explains_articles(conn: &Connection) {
    let mut state: BTreeMap<String, ArticleEvent> = BTreeMap::new();
    for event in events(conn) {
        let body = event.body;
        assert_eq!(event.key.as_ref(), Some(&body.id));
        let before = state.remove(&body.id);
        assert_eq!(body.version, before.as_ref().map_or(1, |before| before.version + 1), "{body:?}");
        let previous = body.previous.as_ref().map(|p| (p.slug.as_str(), p.status, p.tags.as_slice()));
        assert_eq!(previous, before.as_ref().map(|b| (b.slug.as_str(), b.status, b.tags.as_slice())), "{body:?}");
        let expected_type = match (&before, event.event_type.as_str()) {
            (None, _) => "article.created.v1",
            (Some(_), "article.deleted.v1") => "article.deleted.v1",
            (Some(_), _) => "article.updated.v1",
        };
        assert_eq!(event.event_type, expected_type);
        if expected_type == "article.deleted.v1" {
            assert!(body.tags.is_empty());
        } else {
            state.insert(body.id.clone(), body);
        }
    }
    let told: Vec<_> =
        state.into_values().map(|b| (b.id, b.version, b.kind, b.slug, b.title, b.status, b.tags)).collect();
    let stored: Vec<_> =
        articles(conn).into_iter().map(|a| (a.id, a.version, a.kind, a.slug, a.title, a.status, a.tags)).collect();
    assert_eq!(told, stored, "what the log tells, and what is stored");
    let orphans = "SELECT count(*) FROM article_tags WHERE article_id NOT IN (SELECT id FROM articles)";
    assert_eq!(conn.query_row(orphans, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "tags without an article");
}

pub fn post(title: &str) -> NewArticle {
    NewArticle::new(title, format!("About {title}."))
}

pub fn create(article: NewArticle) -> WriteJob {
    WriteJob::new(Mutation::Create(article))
}

pub fn prepare(mutation: Mutation) -> PreparedMutation {
    mutation.prepare(NOW_MS, None, None).unwrap()
}

pub fn applied(answer: Result<Receipt, WriteError>) -> Article {
    answer.unwrap().into_applied().unwrap().into_article().unwrap()
}

pub fn created(writer: &dyn Writer, article: NewArticle) -> Article {
    applied(writer.enqueue(create(article)))
}
