//! The site while the parts below it fail in ways that cannot be brought about from outside.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use super::engine::{Engine, EngineOptions};
use super::{Access, Health, Role, Site, SiteParts};
use crate::article::{self, ArticleRepository};
use crate::lifecycle::{Cause, Manager, ManagerOptions};
use crate::outbox;
use crate::queue::SqliteWriter;
use crate::service::ArticleService;
use crate::sinks::cache::{CacheOptions, PageCache};
use crate::sinks::render::Renderer;
use crate::sinks::search::{SearchIndex, SearchOptions};
use crate::storage::{Database, Options};

const LONG: Duration = Duration::from_secs(30);
const TOKEN: &str = "the-token-of-these-tests";

struct Program {
    manager: Manager,
    database: Database,
    engine: Arc<Engine>,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let components = [outbox::COMPONENT, article::COMPONENT];
        let database = Database::new(folder.path().join("articles.db"), &components, Options::default());
        let repository = ArticleRepository::new(database.clone());
        let renderer = Renderer::default();
        let mut manager = Manager::new(ManagerOptions::default());
        let handle = manager.handle();
        let search =
            SearchIndex::new(folder.path().join("search.db"), Arc::new(repository.clone()), SearchOptions::default());
        let cache =
            PageCache::open(folder.path().join("cache"), &renderer.fingerprint(), CacheOptions::default()).unwrap();
        let site = Site::new(SiteParts {
            articles: ArticleService::new(Arc::new(SqliteWriter::new(&database)), repository),
            search: Arc::new(search),
            cache,
            renderer,
            access: Access::fixed(&[("test", Role::Write, TOKEN)]),
            relay: outbox::Relay::builder(&database).build().unwrap(),
            health: Box::new(move || Health {
                ready: handle.is_ready(),
                services: Vec::new(),
                lanes: Vec::new(),
                backlog_error: None,
            }),
        });
        let addr = "127.0.0.1:0".parse().unwrap();
        let engine = Arc::new(site.serve_on(EngineOptions { addr, ..EngineOptions::default() }));
        manager.register(database.storage_service()).unwrap();
        manager.register(database.writer_service()).unwrap();
        manager.register(engine.clone()).unwrap();
        manager.start().unwrap();
        Self { manager, database, engine, _folder: folder }
    }

    /// The status, and the whole answer.
    fn send(&self, request: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.engine.local_addr().unwrap()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let length = body.len();
        write!(
            stream,
            "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Authorization: Bearer {TOKEN}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        (status.unwrap_or_else(|| panic!("{answer:?}")), answer)
    }

    fn post(&self, title: &str) -> (u16, String) {
        self.send("POST /api/v1/articles", &format!(r#"{{"title":"{title}","content":"x"}}"#))
    }
}

#[test]
fn case_c59_a_dead_writer_turns_writes_away_with_503_and_readiness_off() {
    let program = Program::start();
    assert_eq!(program.post("First").0, 201);
    assert_eq!(program.send("GET /health/ready", "").0, 200);
    program.database.writer().die_at_the_next_commit();
    // Those that wait when it dies, and those that come later.
    std::thread::scope(|scope| {
        for n in 0..8 {
            let program = &program;
            scope.spawn(move || {
                let (status, answer) = program.post(&format!("Lost {n}"));
                assert_eq!(status, 503, "{answer}");
            });
        }
    });
    assert!(matches!(program.manager.wait(), Cause::Failed(_)));
    assert_eq!(program.post("Late").0, 503);
    assert_eq!(program.send("GET /health/ready", "").0, 503);
    assert_eq!(program.send("GET /health/live", "").0, 200);
    assert_eq!(program.send("GET /api/v1/articles/first", "").0, 200, "reading goes on until the stop");
    assert_eq!(program.send("GET /api/v1/articles/lost-0", "").0, 404);
    assert_ne!(program.manager.stop("the writer died").exit_code(), 0);
}

#[test]
fn case_c59_a_full_database_is_507_and_heals() {
    let program = Program::start();
    assert_eq!(program.post("First").0, 201);
    program.database.writer().limit_pages(1);
    let long = "x".repeat(200_000);
    let (status, answer) = program.send("POST /api/v1/articles", &format!(r#"{{"title":"Big","content":"{long}"}}"#));
    assert_eq!(status, 507, "{answer}");
    assert_eq!(program.send("GET /api/v1/articles/big", "").0, 404, "nothing half-written");
    assert_eq!(program.send("GET /health/ready", "").0, 200);
    program.database.writer().limit_pages(1_000_000);
    assert_eq!(program.post("Big").0, 201);
    assert_eq!(program.manager.stop("the test ends").exit_code(), 0);
}
