//! Which request gets which answer.

use std::sync::Arc;
use std::time::Instant;

use hyper::header::{HeaderName, HeaderValue, LOCATION};
use hyper::{Method, StatusCode};
use uuid::Uuid;

use super::api;
use super::engine::{Engine, EngineOptions, Request, Response};
use super::health::{self, Health};
use super::origin;
use super::pages::Pages;
use super::problem::{self, Problem};
use super::request::{Query, segments};
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
    /// Says how the program is.
    pub health: Box<dyn Fn() -> Health + Send + Sync>,
}

/// Answers requests for articles: the API, search, the pages and health. Cheap to clone.
#[derive(Clone)]
pub struct Site {
    parts: Arc<Parts>,
}

struct Parts {
    articles: ArticleService,
    search: Arc<SearchIndex>,
    pages: Pages,
    health: Box<dyn Fn() -> Health + Send + Sync>,
}

impl Site {
    /// A site made of these parts.
    pub fn new(parts: SiteParts) -> Self {
        let SiteParts { articles, search, cache, renderer, health } = parts;
        let pages = Pages::new(articles.clone(), Arc::clone(&search), cache, renderer);
        Self { parts: Arc::new(Parts { articles, search, pages, health }) }
    }

    /// A server for this site, to be started as a service.
    pub fn serve_on(&self, options: EngineOptions) -> Engine {
        let site = self.clone();
        let handler = move |request: Request| site.answer(&request);
        Engine::new(options, Arc::new(handler)).refuse_with(Arc::new(problem::refusal))
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub fn answer(&self, request: &Request) -> Response {
        let begun = Instant::now();
        let correlation = correlation_id(request);
        let context = WriteContext {
            correlation_id: Some(correlation.clone()),
            causation_id: None,
            deadline: Some(request.deadline),
        };
        let response = self.route(request, &context).unwrap_or_else(Response::from);
        let level = if response.status.is_server_error() { log::Level::Warn } else { log::Level::Info };
        log::log!(
            level,
            "request method={} path={:?} status={} ms={} correlation_id={correlation}",
            request.method,
            request.path,
            response.status.as_u16(),
            begun.elapsed().as_millis()
        );
        match HeaderValue::from_str(&correlation) {
            Ok(value) => response.header(CORRELATION_ID, value),
            Err(_) => response,
        }
    }

    fn route(&self, request: &Request, context: &WriteContext) -> Result<Response, Problem> {
        let segments = segments(&request.path)?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["health", which] => self.health(request, which),
            ["api", "v1", rest @ ..] => self.api(request, rest, context),
            ["api", ..] => Err(no_such_path()),
            page => self.pages(request, page),
        }
    }

    fn health(&self, request: &Request, which: &str) -> Result<Response, Problem> {
        let ready = match which {
            "live" => false,
            "ready" => true,
            _ => return Err(no_such_path()),
        };
        only_get(request)?;
        Ok(if ready { health::ready(&(self.parts.health)()) } else { health::live() })
    }

    fn api(&self, request: &Request, path: &[&str], context: &WriteContext) -> Result<Response, Problem> {
        let articles = &self.parts.articles;
        let query = || Query::parse(request.query.as_deref());
        if method(request) != "GET" {
            origin::may_write(&request.headers)?;
        }
        match (path, method(request)) {
            (["articles"], "GET") => api::list(articles, &query()?),
            (["articles"], "POST") => api::create(articles, request, context),
            (["articles"], _) => Err(Problem::method_not_allowed("GET, HEAD, POST")),
            // An article may have the slug "bulk": only POST means the batch.
            (["articles", "bulk"], "POST") => api::create_bulk(articles, request, context),
            (["articles", slug], "GET") => api::get(articles, slug, &request.headers),
            (["articles", slug], "PATCH" | "PUT") => api::update(articles, slug, request, context),
            (["articles", slug], "DELETE") => api::delete(articles, slug, &request.headers, context),
            (["articles", "bulk"], _) => Err(Problem::method_not_allowed("GET, HEAD, POST, PATCH, PUT, DELETE")),
            (["articles", _], _) => Err(Problem::method_not_allowed("GET, HEAD, PATCH, PUT, DELETE")),
            (["tags"], _) => only_get(request).and_then(|()| api::tags(articles)),
            (["search"], _) => only_get(request).and_then(|()| api::search(&self.parts.search, &query()?)),
            _ => Err(no_such_path()),
        }
    }

    fn pages(&self, request: &Request, path: &[&str]) -> Result<Response, Problem> {
        let pages = &self.parts.pages;
        let query = || Query::parse(request.query.as_deref());
        let known = matches!(
            path,
            [""] | ["articles", _] | ["tags", _] | ["articles" | "tags", _, ""] | ["search"] | ["assets", _]
        ) || is_for_programs(path);
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
            ["feed.xml"] => pages.feed(&request.headers),
            ["sitemap.xml"] => pages.sitemap(&request.headers),
            ["robots.txt"] => Ok(pages.robots()),
            [name] => match sitemap_number(name) {
                Some(number) => pages.sitemap_part(number, &request.headers),
                None => Ok(pages.not_found()),
            },
            _ => Ok(pages.not_found()),
        }
    }
}

/// Besides the pages.
fn is_for_programs(path: &[&str]) -> bool {
    let [name] = path else { return false };
    matches!(*name, "feed.xml" | "sitemap.xml" | "robots.txt") || sitemap_number(name).is_some()
}

/// The number in `sitemap-1.xml`, written without leading zeros.
fn sitemap_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("sitemap-")?.strip_suffix(".xml")?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (digits == u32::to_string(&number)).then_some(number)
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

fn no_such_path() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path")
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
