//! Which request gets which answer.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::{Method, StatusCode};
use uuid::Uuid;

use super::access::{Access, Caller};
use super::admin_page::{self, Sessions};
use super::edge::{self, Edge};
use super::engine::{Engine, EngineCounters, EngineOptions, Refusal, Request, Response};
use super::feeds;
use super::health::Health;
use super::jobs::SiteJobs;
use super::metrics::{self, Metrics};
use super::pages::Pages;
use super::problem::{self, Problem};
use super::request::{Query, segments};
use super::route::{self, Call, Guard};
use crate::jobs::{JobRunner, Jobs};
use crate::outbox::{Operator, Relay};
use crate::service::{ArticleService, WriteContext};
use crate::sinks::cache::PageCache;
use crate::sinks::encode_segment;
use crate::sinks::render::Renderer;
use crate::sinks::search::SearchIndex;

/// Comes in, goes out, stands in the log and on the event.
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-correlation-id");
/// Longest correlation id taken from a request; a longer or strange one is replaced.
const MAX_CORRELATION_BYTES: usize = 128;

/// What a [`Site`] is made of.
pub struct SiteParts {
    /// The articles.
    pub articles: ArticleService,
    /// The search index.
    pub search: Arc<SearchIndex>,
    /// Where rendered pages are kept.
    pub cache: PageCache,
    /// Renders them.
    pub renderer: Renderer,
    /// Who may write, and see drafts.
    pub access: Access,
    /// Delivers the events.
    pub relay: Relay,
    /// Says how the program is; see [`Health::look`].
    pub health: Box<dyn Fn() -> Health + Send + Sync>,
}

/// Answers requests for articles: the API, search, the pages and health. Cheap to clone.
#[derive(Clone)]
pub struct Site {
    parts: Arc<Parts>,
}

/// What answers are made from.
pub(super) struct Parts {
    pub(super) articles: ArticleService,
    pub(super) search: Arc<SearchIndex>,
    pub(super) operator: Operator,
    pub(super) access: Access,
    /// None in a site that keeps no jobs.
    pub(super) jobs: OnceLock<SiteJobs>,
    pub(super) relay: Relay,
    pub(super) metrics: Metrics,
    pub(super) engine: Arc<EngineCounters>,
    pub(super) sessions: Sessions,
    pub(super) health: Box<dyn Fn() -> Health + Send + Sync>,
    edge: OnceLock<Edge>,
    pages: Pages,
}

impl Site {
    /// A site made of these parts.
    pub fn new(parts: SiteParts) -> Self {
        let SiteParts { articles, search, cache, renderer, access, relay, health } = parts;
        let pages = Pages::new(articles.clone(), Arc::clone(&search), cache, renderer);
        let operator = Operator::new(articles.repository().database());
        let (metrics, jobs) = (Metrics::new(), OnceLock::new());
        Self {
            parts: Arc::new(Parts {
                articles,
                search,
                operator,
                access,
                jobs,
                relay,
                metrics,
                engine: Arc::default(),
                sessions: Sessions::default(),
                health,
                edge: OnceLock::new(),
                pages,
            }),
        }
    }

    /// Gives the site its jobs and who works them off, for their routes and for health. Once: a second call does nothing.
    #[must_use]
    pub fn with_jobs(self, jobs: Jobs, runner: JobRunner) -> Self {
        let _ = self.parts.jobs.set(SiteJobs { jobs, runner });
        self
    }

    /// Lets answers tell shared caches in front of the site what they depend on, and how long to keep them. Once: a second call
    /// with some does nothing.
    #[must_use]
    pub fn with_edge(self, edge: Option<Edge>) -> Self {
        if let Some(edge) = edge {
            let _ = self.parts.edge.set(edge);
        }
        self
    }

    /// A server for this site, to be started as a service.
    pub fn serve_on(&self, options: EngineOptions) -> Engine {
        let site = self.clone();
        let handler = move |request: Request| site.answer(&request);
        let parts = Arc::clone(&self.parts);
        let refuse = move |refusal: &Refusal| {
            parts.metrics.refused(refusal.status);
            problem::refusal(refusal)
        };
        let engine = Engine::new(options, Arc::new(handler)).refuse_with(Arc::new(refuse));
        engine.counted_by(Arc::clone(&self.parts.engine))
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub fn answer(&self, request: &Request) -> Response {
        let begun = Instant::now();
        let correlation = correlation_id(request);
        let context = WriteContext {
            correlation_id: Some(correlation.clone()),
            causation_id: None,
            deadline: Some(request.deadline),
            key: None,
        };
        let mut caller = None;
        let path = segments(&request.path);
        let class = path.as_ref().map_or("other", |path| metrics::class_of(path));
        let path: Result<Vec<&str>, Problem> =
            path.as_ref().map(|path| path.iter().map(String::as_str).collect()).map_err(Clone::clone);
        let answer =
            path.as_ref().map_err(Clone::clone).and_then(|path| self.route(request, path, &context, &mut caller));
        let response = answer.unwrap_or_else(Response::from);
        let response = edge::finish(response, self.parts.edge.get(), request, path.as_deref().unwrap_or_default());
        self.parts.metrics.answered(class, response.status, begun.elapsed());
        let level = match response.status {
            status if status.is_server_error() => log::Level::Warn,
            // A probe asks every few seconds.
            _ if request.path == "/health/live" => log::Level::Debug,
            _ => log::Level::Info,
        };
        log::log!(
            level,
            "request method={} path={:?} status={} ms={} caller={} correlation_id={correlation}",
            request.method,
            request.path,
            response.status.as_u16(),
            begun.elapsed().as_millis(),
            caller.as_deref().unwrap_or("-")
        );
        match HeaderValue::from_str(&correlation) {
            Ok(value) => response.header(CORRELATION_ID, value),
            Err(_) => response,
        }
    }

    /// `name` becomes that of the caller's token, for the log.
    fn route(
        &self,
        request: &Request,
        path: &[&str],
        context: &WriteContext,
        name: &mut Option<Arc<str>>,
    ) -> Result<Response, Problem> {
        if let ["admin", rest @ ..] = path {
            return admin_page::answer(&self.parts, request, rest);
        }
        if !matches!(path, ["api" | "health", ..] | ["metrics"]) {
            return self.pages(request, path);
        }
        let (route, segments) = route::find(method(request), path)?;
        let caller = self.let_in(request, route.guard)?;
        *name = caller.as_ref().map(|caller| Arc::clone(&caller.name));
        (route.answer)(&Call { parts: &self.parts, route, request, segments, caller, context })
    }

    /// The one place where a request of the API is let in or turned away.
    fn let_in(&self, request: &Request, guard: Guard) -> Result<Option<Caller>, Problem> {
        let access = &self.parts.access;
        match guard {
            Guard::Open => Ok(None),
            Guard::Public => access.caller(&request.headers),
            Guard::Token(role) => access.authorize(&request.headers, role).map(Some),
        }
    }

    fn pages(&self, request: &Request, path: &[&str]) -> Result<Response, Problem> {
        let pages = &self.parts.pages;
        let query = || Query::parse(request.query.as_deref());
        let known = matches!(
            path,
            [""] | ["articles", _] | ["tags", _] | ["articles" | "tags", _, ""] | ["search"] | ["assets", _]
        ) || feeds::is_known(path);
        if known {
            only_get(request)?;
        }
        match path {
            [""] => pages.index(&query()?, &request.headers),
            ["articles", slug] => pages.article(slug, &request.headers),
            ["tags", tag] => pages.tag(tag, &query()?, &request.headers),
            ["articles" | "tags", name, ""] if !name.is_empty() => Ok(without_slash(path[0], name, request)),
            ["search"] => pages.search(&query()?),
            ["assets", name] => pages.asset(name, &request.headers),
            [name] => pages.for_programs(name, &request.headers),
            _ => Ok(pages.not_found()),
        }
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("articles", &self.parts.articles).finish_non_exhaustive()
    }
}

/// HEAD is answered as GET; the engine leaves the body out.
fn method(request: &Request) -> &str {
    if request.method == Method::HEAD { "GET" } else { request.method.as_str() }
}

fn only_get(request: &Request) -> Result<(), Problem> {
    if method(request) == "GET" { Ok(()) } else { Err(Problem::method_not_allowed("GET, HEAD")) }
}

/// One address for each page: where it is without the slash at its end.
fn without_slash(folder: &str, name: &str, request: &Request) -> Response {
    let mut to = format!("/{folder}/{}", encode_segment(name));
    if let Some(query) = &request.query {
        to.push('?');
        to.push_str(query);
    }
    let response = Response::new(StatusCode::PERMANENT_REDIRECT, "");
    match HeaderValue::from_str(&to) {
        Ok(to) => response.header(LOCATION, to),
        Err(_) => response,
    }
}

fn correlation_id(request: &Request) -> String {
    let given = request.headers.get(CORRELATION_ID).and_then(|value| value.to_str().ok());
    match given {
        Some(id) if is_correlation_id(id) => id.to_owned(),
        _ => Uuid::now_v7().to_string(),
    }
}

fn is_correlation_id(id: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:/+=@".contains(c);
    !id.is_empty() && id.len() <= MAX_CORRELATION_BYTES && id.chars().all(allowed)
}
