//! A site on a free loopback port, with every part that `serve` has, and a client for it.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use vayu_articles::article::{self, ArticleRepository};
use vayu_articles::http::engine::{Engine, EngineOptions};
use vayu_articles::http::{Access, Edge, Health, Role, ServiceHealth, Site, SiteParts};
use vayu_articles::jobs::{self, JobOptions, JobRunner, Jobs, Journal};
use vayu_articles::lifecycle::{Manager, ManagerOptions, Service, StartContext};
use vayu_articles::outbox::{self, Operator, Relay, RelayBuilder};
use vayu_articles::queue::SqliteWriter;
use vayu_articles::service::ArticleService;
use vayu_articles::sinks::cache::{CacheOptions, PageCache, PageHandler};
use vayu_articles::sinks::render::{Renderer, SiteInfo};
use vayu_articles::sinks::search::{SearchIndex, SearchOptions};
use vayu_articles::storage::{Database, Options};

pub use crate::waiting::{LONG, wait_or, wait_until};

/// The token with which requests are sent.
pub const TOKEN: &str = "the-token-of-these-tests";
/// One that may write, but not operate.
pub const WRITE_TOKEN: &str = "another-token-of-these-tests";

pub struct TestSite {
    pub database: Database,
    pub relay: Relay,
    pub jobs: Jobs,
    pub runner: JobRunner,
    pub search: SearchIndex,
    engine: Engine,
    client: ureq::Agent,
    _folder: tempfile::TempDir,
}

pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The error's code and field.
    pub fn problem(&self) -> (u16, String, Option<String>) {
        let error = &self.json()["error"];
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{}", self.body);
        (self.status, error["code"].as_str().unwrap().to_owned(), error["field"].as_str().map(str::to_owned))
    }
}

impl TestSite {
    pub fn new() -> Self {
        Self::with(Options::default(), EngineOptions::default())
    }

    pub fn with(storage: Options, engine: EngineOptions) -> Self {
        Self::made(storage, engine, SiteInfo::default(), |relay| relay)
    }

    /// A site whose settings say that readers reach it there.
    pub fn at(base_url: &str) -> Self {
        let mut info = SiteInfo::default();
        base_url.clone_into(&mut info.base_url);
        Self::made(Options::default(), EngineOptions::default(), info, |relay| relay)
    }

    /// A site with further handlers.
    pub fn with_handlers(more: impl FnOnce(RelayBuilder) -> RelayBuilder) -> Self {
        Self::made(Options::default(), EngineOptions::default(), SiteInfo::default(), more)
    }

    /// A site that tells caches in front of it what its pages depend on.
    pub fn with_edge(edge: Edge) -> Self {
        Self::built(Options::default(), EngineOptions::default(), SiteInfo::default(), |relay| relay, Some(edge))
    }

    fn made(
        storage: Options,
        engine: EngineOptions,
        info: SiteInfo,
        more: impl FnOnce(RelayBuilder) -> RelayBuilder,
    ) -> Self {
        Self::built(storage, engine, info, more, None)
    }

    fn built(
        storage: Options,
        engine: EngineOptions,
        info: SiteInfo,
        more: impl FnOnce(RelayBuilder) -> RelayBuilder,
        edge: Option<Edge>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let components = [outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT];
        let database = Database::open(folder.path().join("articles.db"), &components, storage).unwrap();
        let repository = ArticleRepository::new(database.clone());
        let source = Arc::new(repository.clone());
        let search = SearchIndex::new(folder.path().join("search.db"), source.clone(), SearchOptions::default());
        let renderer = Renderer::new(info);
        let folder_of_pages = folder.path().join("cache");
        let cache = PageCache::open(folder_of_pages, &renderer.fingerprint(), CacheOptions::default()).unwrap();
        let relay = Relay::builder(&database)
            .handler("search", search.clone())
            .handler("cache", PageHandler::new(cache.clone(), source, renderer.clone()));
        let relay = more(relay).start().unwrap();
        let mut job_options = JobOptions::default();
        job_options.waiting_max = 20;
        let gate = Arc::new(Journal::new(&database, &job_options));
        let articles = ArticleService::new(Arc::new(SqliteWriter::with_gate(&database, gate)), repository);
        let runner = JobRunner::new(&database, job_options.clone());
        runner.start().unwrap();
        let jobs = Jobs::new(&database, job_options);
        let site = Site::new(SiteParts {
            articles,
            search: Arc::new(search.clone()),
            cache,
            renderer,
            access: Access::fixed(&[("test", Role::Admin, TOKEN), ("pen", Role::Write, WRITE_TOKEN)]),
            relay: relay.clone(),
            health: {
                // The lanes as they are; a site of these tests has no manager whose services could be asked for.
                let (operator, relay) = (Operator::new(&database), relay.clone());
                let nobody = Manager::new(ManagerOptions::default()).handle();
                Box::new(move || {
                    let mut health = Health::look(&nobody, &relay, &operator);
                    let (name, state) = ("relay".to_owned(), "running".to_owned());
                    health.services = vec![ServiceHealth { name, state, ..Default::default() }];
                    health.ready = true;
                    health
                })
            },
        });
        let site = site.with_jobs(jobs.clone(), runner.clone()).with_edge(edge);
        let addr = "127.0.0.1:0".parse().unwrap();
        let engine = site.serve_on(EngineOptions { addr, ..engine });
        engine.start(&StartContext::standalone("http", LONG)).unwrap();
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(LONG))
            .allow_non_standard_methods(true);
        Self { database, relay, runner, jobs, search, engine, client: config.build().into(), _folder: folder }
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], None)
    }

    pub fn post(&self, body: Value) -> Answer {
        self.send("POST", "/api/v1/articles", &[], Some(&body.to_string()))
    }

    pub fn patch(&self, slug: &str, body: Value) -> Answer {
        self.send("PATCH", &format!("/api/v1/articles/{slug}"), &[], Some(&body.to_string()))
    }

    pub fn delete(&self, slug: &str) -> Answer {
        self.send("DELETE", &format!("/api/v1/articles/{slug}"), &[], None)
    }

    /// Sends it with the token.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let headers: Vec<_> = headers.iter().copied().chain([("authorization", bearer.as_str())]).collect();
        self.send_as_is(method, path, &headers, body)
    }

    /// Sends it without a token, unless `headers` have one.
    pub fn send_as_is(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        let url = format!("http://{}{path}", self.addr());
        let mut request = ureq::http::Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = match body {
            Some(body) => self.client.run(request.body(body).unwrap()),
            None => self.client.run(request.body(()).unwrap()),
        };
        let mut response = sent.unwrap();
        let text = |value: &ureq::http::HeaderValue| value.to_str().unwrap().to_owned();
        Answer {
            status: response.status().as_u16(),
            headers: response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: response.body_mut().with_config().limit(64 << 20).read_to_string().unwrap(),
        }
    }

    /// Everything committed has gone through every handler.
    pub fn drain(&self) {
        assert!(self.relay.wait_drained(Instant::now() + LONG), "{:?}", self.relay.status());
    }

    /// The address that it serves on.
    pub fn addr(&self) -> std::net::SocketAddr {
        self.engine.local_addr().unwrap()
    }

    pub fn events(&self) -> i64 {
        self.database
            .read(|connection| connection.query_row("SELECT count(*) FROM event_outbox", [], |row| row.get(0)))
            .map_err(|error: vayu_articles::storage::ReadError<vayu_articles::rusqlite::Error>| error)
            .unwrap()
    }

    /// Slugs that a search finds.
    pub fn found(&self, words: &str) -> Vec<String> {
        let words: String = words.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/search?q={words}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let items = answer.json()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["slug"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for TestSite {
    fn drop(&mut self) {
        let soon = Instant::now() + LONG;
        let _ = Service::stop(&self.engine, soon);
        let _ = self.relay.stop(soon);
        let _ = self.runner.stop(soon);
        let _ = self.database.close(soon);
    }
}
