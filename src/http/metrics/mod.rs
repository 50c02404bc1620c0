//! `GET /metrics`: what a monitor asks for, as OpenMetrics text.
//!
//! Numbers are counted where the thing happens, with plain atomics; a scrape reads those, and the database for what only it
//! knows, each within a bounded time. So a scrape costs the same however much there is.

mod collect;
mod jobs;
mod names;

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::access::Role;
use super::engine::Response;
use super::local::is_local;
use super::problem::Problem;
use super::route::{Answer, Call, Guard, Route};
use collect::Snapshot;

/// `/metrics`.
pub(super) const ROUTES: &[Route] = &[Route { method: "GET", path: "/metrics", guard: Guard::Open, answer: scrape }];

const CONTENT: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// Seconds.
const TIMES: [f64; 9] = [0.000_5, 0.001, 0.002_5, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0];

/// What the site counts of its own.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<Request, Counter>,
    seconds: Family<Class, Histogram, fn() -> Histogram>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Class {
    route: &'static str,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("vayu");
        let requests = Family::default();
        let seconds = Family::new_with_constructor((|| Histogram::new(TIMES)) as fn() -> Histogram);
        registry.register("http_requests", "Requests answered, by class of route and status", requests.clone());
        registry.register_with_unit(
            "http_request",
            "Time from a request, read whole, to its answer, by class of route",
            Unit::Seconds,
            seconds.clone(),
        );
        Self { registry, requests, seconds }
    }

    /// Counts an answer. `route` is one of a few classes, so that no stranger can make the list of counters grow.
    pub(super) fn answered(&self, route: &'static str, status: StatusCode, took: Duration) {
        self.requests.get_or_create(&Request { route, status: status.as_u16() }).inc();
        self.seconds.get_or_create(&Class { route }).observe(took.as_secs_f64());
    }

    /// Counts a request that was refused before anybody answered it.
    pub(super) fn refused(&self, status: StatusCode) {
        self.requests.get_or_create(&Request { route: "refused", status: status.as_u16() }).inc();
    }
}

/// The class of a route, from its decoded path.
pub(super) fn class_of(path: &[String]) -> &'static str {
    let first: Vec<&str> = path.iter().take(4).map(String::as_str).collect();
    match first[..] {
        ["api", "v1", "admin", ..] | ["admin", ..] => "admin",
        ["api", ..] => "api",
        ["health", ..] => "health",
        ["metrics"] => "metrics",
        ["assets", ..] => "asset",
        ["articles" | "tags", ..] | ["" | "search"] => "page",
        ["feed.xml" | "robots.txt"] => "feed",
        [name] if name.starts_with("sitemap") => "feed",
        _ => "other",
    }
}

/// Answers a scrape: of this machine itself without a token, of others with an administrator's.
fn scrape(call: &Call<'_>) -> Answer {
    if !is_local(call.request) {
        call.parts.access.authorize(&call.request.headers, Role::Admin)?;
    }
    let failed = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the metrics could not be written");
    let mut text = String::with_capacity(16 << 10);
    let mut once = Registry::with_prefix("vayu");
    once.register_collector(Box::new(Snapshot::take(call.parts)));
    encode_registry(&mut text, &once).map_err(failed)?;
    encode_registry(&mut text, &call.parts.metrics.registry).map_err(failed)?;
    encode_eof(&mut text).map_err(failed)?;
    Ok(Response::new(StatusCode::OK, text)
        .header(CONTENT_TYPE, CONTENT)
        .header(CACHE_CONTROL, HeaderValue::from_static("no-store")))
}
