//! Varnish on a free port, killed and started again by its id, and a site behind it that purges it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

pub use super::serve_support::waiting::wait_until;
use vayu_articles::article::{self, Article, ArticlePatch, ArticleRepository, Expected, NewArticle};
use vayu_articles::clock::{SharedClock, SystemClock};
use vayu_articles::http::engine::{Engine, EngineOptions, Request};
use vayu_articles::http::{Access, Edge, Health, Role, Site, SiteParts};
use vayu_articles::jobs::{self, JobOptions, JobRunner, Journal};
use vayu_articles::lifecycle::{Service, StartContext};
use vayu_articles::outbox::{self, Relay, RelayOptions};
use vayu_articles::queue::SqliteWriter;
use vayu_articles::service::{ArticleService, WriteContext};
use vayu_articles::sinks::cache::{CacheOptions, PageCache};
use vayu_articles::sinks::cdn::{CdnAgain, CdnOptions, CdnPurge, CdnShape, KEY_HEADER, SITE_PATHS};
use vayu_articles::sinks::render::{Renderer, SiteInfo};
use vayu_articles::sinks::search::{SearchIndex, SearchOptions};
use vayu_articles::storage::{Database, Options};

use crate::serve_support::wait_or;

/// No wait of these tests is longer; none is as long unless something is broken.
pub const LONG: Duration = Duration::from_secs(120);
/// Where readers believe to be.
pub const BASE: &str = "http://site.test";
pub const TOKEN: &str = "the-token-of-these-tests";
/// As `--cdn-again` is by default. The VCL gives up waiting for a page after 8 s.
pub const AGAIN: Duration = Duration::from_secs(10);
pub const SHAPES: [CdnShape; 3] = [CdnShape::Keys, CdnShape::Purge, CdnShape::Ban];

pub struct Varnish {
    pub port: u16,
    /// With one, only who has it may purge.
    pub token: Option<&'static str>,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Varnish {
    /// `None` where there is no varnishd, unless services are required. It is not started yet.
    pub fn find() -> Option<Self> {
        if Command::new("varnishd").arg("-V").stderr(Stdio::null()).stdout(Stdio::null()).status().is_err() {
            let required = std::env::var("REQUIRE_SERVICES").is_ok_and(|value| value == "1");
            assert!(!required, "varnishd is required and not installed");
            eprintln!("skipped: varnishd is not installed");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Self { port, token: None, folder: tempfile::tempdir().unwrap(), child: None })
    }

    /// In front of the server on this port, with the repository's VCL.
    pub fn up(&mut self, backend: u16) {
        let vcl = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/varnish.vcl")).unwrap();
        let here = vcl.replace(".port = \"8080\";", &format!(".port = \"{backend}\";"));
        assert_ne!(vcl, here, "the VCL names the backend's port");
        fs::write(self.path("site.vcl"), here).unwrap();
        let said = File::create(self.path("said")).unwrap();
        let mut command = Command::new("varnishd");
        command.arg("-n").arg(self.path("work")).arg("-f").arg(self.path("site.vcl"));
        // Not to be another user, who could not read the folder; no port for commands.
        command.args(["-F", "-j", "none", "-T", "none", "-s", "default,32m", "-l", "8m"]);
        command
            .arg("-a")
            .arg(format!("127.0.0.1:{}", self.port))
            .env_remove("VAYU_PURGE_TOKEN")
            .envs(self.token.map(|token| ("VAYU_PURGE_TOKEN", token)));
        command.stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
        let mut child = command.spawn().unwrap();
        let said = || fs::read_to_string(self.path("said")).unwrap();
        let is_there = || {
            assert!(child.try_wait().unwrap().is_none(), "{}", said());
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        };
        wait_or(is_there, said);
        self.child = Some(child);
    }

    /// SIGKILL, to it and to the process that holds the cache.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        let id = child.id();
        let workers = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        child.kill().unwrap();
        child.wait().unwrap();
        for worker in workers.split_whitespace() {
            let _ = Command::new("kill").args(["-9", worker]).stderr(Stdio::null()).status();
        }
        wait_until("Varnish is gone", || TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Varnish {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// Holds answers back that the server has made.
#[derive(Default)]
pub struct Barrier {
    state: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    paths: HashSet<String>,
    waiting: HashSet<String>,
}

impl Barrier {
    pub fn hold(&self, path: &str) {
        self.state.lock().unwrap().paths.insert(path.to_owned());
    }

    pub fn release(&self) {
        *self.state.lock().unwrap() = Held::default();
        self.changed.notify_all();
    }

    pub fn wait_for(&self, path: &str) {
        let state = self.state.lock().unwrap();
        let (_held, out) = self.changed.wait_timeout_while(state, LONG, |held| !held.waiting.contains(path)).unwrap();
        assert!(!out.timed_out(), "nobody asked for {path}");
    }

    fn pass(&self, path: &str) {
        let mut state = self.state.lock().unwrap();
        if state.paths.contains(path) {
            state.waiting.insert(path.to_owned());
            self.changed.notify_all();
            drop(self.changed.wait_timeout_while(state, LONG, |held| held.paths.contains(path)).unwrap());
        }
    }
}

/// A site behind Varnish.
pub struct Fronted {
    pub varnish: Varnish,
    pub service: ArticleService,
    pub relay: Relay,
    pub barrier: Arc<Barrier>,
    again: Option<CdnAgain>,
    database: Database,
    search: SearchIndex,
    runner: JobRunner,
    engine: Engine,
    agent: ureq::Agent,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub status: u16,
    pub body: String,
    pub headers: Vec<(String, String)>,
}

impl Page {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn is_hit(&self) -> bool {
        self.header("x-cache") == Some("HIT")
    }

    /// What a reader sees.
    pub fn seen(&self) -> (u16, &str) {
        (self.status, &self.body)
    }
}

impl Fronted {
    /// `None` where there is no varnishd.
    pub fn start(shape: CdnShape, again: Option<Duration>) -> Option<Self> {
        Self::start_by(shape, again, SystemClock::shared())
    }

    /// The second purge comes when this clock says so, and not later than its delay.
    pub fn start_by(shape: CdnShape, again: Option<Duration>, clock: SharedClock) -> Option<Self> {
        let mut varnish = Varnish::find()?;
        let folder = tempfile::tempdir().unwrap();
        let components = [outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT];
        let database = Database::open(folder.path().join("articles.db"), &components, Options::default()).unwrap();
        let articles = ArticleRepository::new(database.clone());
        let search =
            SearchIndex::new(folder.path().join("search.db"), Arc::new(articles.clone()), SearchOptions::default());
        let gate = Arc::new(Journal::new(&database, &JobOptions::default()));
        let service = ArticleService::new(Arc::new(SqliteWriter::with_gate(&database, gate)), articles);
        let runner = JobRunner::new(&database, JobOptions::default());
        runner.start().unwrap();

        let mut options = CdnOptions::new(format!("http://127.0.0.1:{}/", varnish.port), BASE);
        options.shape = shape;
        options.further_paths = SITE_PATHS.iter().map(|path| (*path).to_owned()).collect();
        let again = again.map(|delay| CdnAgain::new(options.clone(), delay, clock).unwrap());
        let mut pause = RelayOptions::default();
        pause.policy.pause_base = Duration::from_millis(200);
        pause.policy.pause_max = Duration::from_millis(400);
        let mut relay = Relay::builder(&database)
            .options(pause)
            .handler("search", search.clone())
            .handler("cdn", CdnPurge::new(options, SystemClock::shared()).unwrap());
        if let Some(again) = &again {
            relay = relay.handler("cdn-again", again.clone());
        }
        let relay = relay.start().unwrap();

        let barrier = Arc::new(Barrier::default());
        let engine = serve(site(&service, &search, &relay, folder.path(), shape), Arc::clone(&barrier));
        varnish.up(engine.local_addr().unwrap().port());
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .allow_non_standard_methods(true)
            .max_redirects(0)
            .timeout_global(Some(LONG));
        let agent = agent.build().into();
        Some(Self { varnish, service, relay, barrier, again, database, search, runner, engine, agent, _folder: folder })
    }

    /// As a reader gets it.
    pub fn get(&self, path: &str) -> Page {
        self.ask(self.varnish.port, "GET", path, &[]).expect("Varnish answers")
    }

    pub fn origin_port(&self) -> u16 {
        self.engine.local_addr().unwrap().port()
    }

    /// As the server makes it from the database.
    pub fn origin(&self, path: &str) -> Page {
        self.ask(self.origin_port(), "GET", path, &[]).expect("the server answers")
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Page {
        self.ask(self.varnish.port, method, path, headers).expect("Varnish answers")
    }

    pub fn ask(&self, port: u16, method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Page, ureq::Error> {
        let request = ureq::http::Request::builder().method(method).uri(format!("http://127.0.0.1:{port}{path}"));
        let all = headers
            .iter()
            .fold(request.header("Host", "site.test"), |request, (name, value)| request.header(*name, *value));
        let mut answer = self.agent.run(all.body(())?)?;
        let headers =
            answer.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        let (status, headers) = (answer.status().as_u16(), headers.collect());
        Ok(Page { status, headers, body: answer.body_mut().read_to_string()? })
    }

    /// The page twice: the second time from the cache.
    pub fn warm(&self, path: &str) -> Page {
        self.get(path);
        let page = self.get(path);
        assert!(page.is_hit(), "{path} is not kept, so this test would show nothing: {page:?}");
        let ids = page.header("x-varnish").unwrap_or_default();
        assert_eq!(ids.split_whitespace().count(), 2, "{path} {ids}");
        page
    }

    pub fn post(&self, slug: &str, content: &str, tags: &[&str]) -> Article {
        let article = NewArticle::new(format!("Title of {slug}"), content).slug(slug).tags(tags.iter().copied());
        self.service.create(article, &WriteContext::default()).unwrap()
    }

    pub fn update(&self, slug: &str, patch: ArticlePatch) -> Article {
        self.service.update(slug, patch, Expected::any(), &WriteContext::default()).unwrap()
    }

    pub fn delete(&self, slug: &str) -> Article {
        self.service.delete(slug, Expected::any(), &WriteContext::default()).unwrap()
    }

    /// Everything committed has gone through every handler.
    pub fn drain(&self) {
        assert!(self.relay.wait_drained(Instant::now() + LONG), "{:?}", self.relay.status());
    }

    /// The handler has an outcome for everything committed.
    pub fn wait_for_lane(&self, name: &str) {
        let last: i64 = self.count("SELECT coalesce(max(id), 0) FROM event_outbox");
        wait_until(name, || self.relay.status().iter().any(|lane| lane.handler == name && lane.cursor >= last));
    }

    pub fn count(&self, sql: &str) -> i64 {
        let found: Result<i64, vayu_articles::storage::ReadError<vayu_articles::rusqlite::Error>> =
            self.database.read(|connection| connection.query_row(sql, [], |row| row.get(0)));
        found.unwrap()
    }

    /// Every page as a reader gets it is what the server makes from the database.
    pub fn assert_fresh<'p>(&self, paths: impl IntoIterator<Item = &'p str>) {
        for path in paths {
            let (seen, made) = (self.get(path), self.origin(path));
            assert_eq!(seen.seen(), made.seen(), "{path} is stale");
        }
    }
}

impl Drop for Fronted {
    fn drop(&mut self) {
        let soon = Instant::now() + LONG;
        self.barrier.release();
        let _ = Service::stop(&self.engine, soon);
        self.search.close();
        if let Some(again) = &self.again {
            again.close();
        }
        let _ = self.relay.stop(soon);
        let _ = self.runner.stop(soon);
        let _ = self.database.close(soon);
    }
}

fn site(service: &ArticleService, search: &SearchIndex, relay: &Relay, folder: &Path, shape: CdnShape) -> Site {
    let mut info = SiteInfo::default();
    BASE.clone_into(&mut info.base_url);
    let renderer = Renderer::new(info);
    let site = Site::new(SiteParts {
        articles: service.clone(),
        search: Arc::new(search.clone()),
        cache: PageCache::open(folder.join("cache"), &renderer.fingerprint(), CacheOptions::default()).unwrap(),
        renderer,
        access: Access::fixed(&[("test", Role::Admin, TOKEN)]),
        relay: relay.clone(),
        health: Box::new(|| Health { ready: true, services: Vec::new(), lanes: Vec::new(), backlog_error: None }),
    });
    let edge = Edge::new(shape, KEY_HEADER, Some(Duration::from_secs(3_600))).unwrap();
    site.with_edge(Some(edge))
}

/// The server, whose answers go through the barrier once they are made.
fn serve(site: Site, barrier: Arc<Barrier>) -> Engine {
    let handler = move |request: Request| {
        let answer = site.answer(&request);
        barrier.pass(&request.path);
        answer
    };
    let options = EngineOptions { addr: "127.0.0.1:0".parse().unwrap(), ..EngineOptions::default() };
    let engine = Engine::new(options, Arc::new(handler));
    engine.start(&StartContext::standalone("http", LONG)).unwrap();
    engine
}
