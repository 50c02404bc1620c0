//! Purging a CDN: tells a cache in front of the site which addresses went stale, over HTTP.
//!
//! An event's addresses are the article's page under its new and its old slug, the home page, the same article and lists in the API, and
//! the pages of all its tags, new and old; they stand in the event, since what was before cannot be looked up. They
//! go out in calls of at most [`CdnOptions::max_urls`], the article and the home page in the first, and the event is
//! delivered once every call has succeeded. What has been purged is remembered in memory, so that after a failure only the rest is
//! sent; after a restart, or when an operator replays the event, all of it is sent again, which does no harm.
//!
//! Purging by address reaches exactly the addresses named: further pages of a list (`/?page=2`) stay until they
//! expire, so let the CDN keep those shortly or ignore queries.
//!
//! The call is `POST endpoint` with `Authorization: Bearer token` and the body `{"files": ["https://…", …]}`. Redirects are not followed. Which
//! answer means what:
//!
//! | answer | what happens |
//! |---|---|
//! | 2xx, whatever the body; 404, 410 | these addresses are purged |
//! | 400, 413, 422 to several addresses | they are sent again in halves, at once |
//! | 400, 413, 422 to a single address | `Poison`, after the others were tried; if nothing was purged before it, they are not tried |
//! | 401, 403, 407 | `Unavailable`: the token is wrong or has expired |
//! | 408, 429, 502, 503, 504 | `Unavailable`, for as long as `Retry-After` says (seconds or date, at most 120 s) |
//! | none: no connection, cut connection, silence beyond [`CdnOptions::timeout`] | `Unavailable` |
//! | 500 and every other 5xx | that call is repeated once at once; then `Retry`, after the others were tried |
//! | 3xx, every other 4xx, any other number | `Poison`; the rest is not tried |
//!
//! `Unavailable` spends nothing: the lane pauses, shows the reason (`outbox stats`), asks again by itself and goes on with
//! the same event. With a token that has expired it therefore waits, however long that takes, and loses nothing; start the
//! program again with the new token and the lane catches up. `Retry` spends one of the event's tries. `Poison` makes a dead
//! letter, which is kept: once the settings are mended, `outbox replay cdn --all` makes all of them due again (`cdn` being the handler's name).

mod answer;
mod urls;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::{HeaderValue, Uri};

use self::answer::Verdict;
use super::answer::excerpt;
use super::change::{Change, article_event_types};
use crate::clock::SharedClock;
use crate::outbox::{DispatchError, Event, EventFilter, Handler};

/// Events whose addresses go out together.
const BATCH: usize = 32;
/// One delivery, all its calls together, takes no longer; the relay's limit for a handler is 30 s.
const DELIVERY_TIME: Duration = Duration::from_secs(25);
/// Events whose progress is remembered.
const REMEMBERED: usize = 256;
/// An answer's body is read up to here, in bytes.
const BODY_MAX: u64 = 16 << 10;

/// Settings of a [`CdnPurge`]. Start from [`CdnOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct CdnOptions {
    /// Where to send purges: an `http` or `https` URL.
    pub endpoint: String,
    /// The site's public address, for example `https://example.org`.
    pub base_url: String,
    /// Sent as `Authorization: Bearer …`; never logged. None by default.
    pub token: Option<String>,
    /// Most addresses in one call (default 30).
    pub max_urls: usize,
    /// Longest time one call may take, above zero (default 10 s).
    pub timeout: Duration,
    /// Whether the API's answers are cached and must be purged, too (default true).
    pub api: bool,
    /// Further paths that show articles, purged at every change: a feed, a site map. Begin with `/`. None by default.
    pub further_paths: Vec<String>,
    /// An HTTP proxy to go through. None by default; the environment is not asked.
    pub proxy: Option<String>,
}

impl CdnOptions {
    /// The defaults, for these two addresses.
    pub fn new(endpoint: impl Into<String>, base_url: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            base_url: base_url.into(),
            token: None,
            max_urls: 30,
            timeout: Duration::from_secs(10),
            api: true,
            further_paths: Vec::new(),
            proxy: None,
        }
    }
}

impl fmt::Debug for CdnOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, base_url, token, max_urls, timeout, api, further_paths, proxy } = self;
        f.debug_struct("CdnOptions")
            .field("endpoint", endpoint)
            .field("base_url", base_url)
            .field("token", &token.as_ref().map(|_| "(hidden)"))
            .field("max_urls", max_urls)
            .field("timeout", timeout)
            .field("api", api)
            .field("further_paths", further_paths)
            .field("proxy", &proxy.as_ref().map(|_| "(hidden)"))
            .finish()
    }
}

/// A setting that cannot work: mend it as the reason says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CdnOptionsError {
    /// The field of [`CdnOptions`].
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl fmt::Display for CdnOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CDN setting {} {}", self.field, self.reason)
    }
}

impl std::error::Error for CdnOptionsError {}

/// The [`Handler`] that purges. Cheap to clone.
#[derive(Clone)]
pub struct CdnPurge {
    inner: Arc<Inner>,
}

struct Inner {
    options: CdnOptions,
    authorization: Option<HeaderValue>,
    agent: Agent,
    clock: SharedClock,
    unfinished: Mutex<VecDeque<Unfinished>>,
}

/// What is left to purge of an event whose delivery failed.
struct Unfinished {
    event_id: String,
    replays: u32,
    urls: Vec<String>,
}

impl CdnPurge {
    /// A handler with these settings. Nothing is sent before the first event.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn new(options: CdnOptions, clock: SharedClock) -> Result<Self, CdnOptionsError> {
        let wrong = |field, reason| CdnOptionsError { field, reason };
        check_url("endpoint", &options.endpoint)?;
        check_url("base_url", &options.base_url)?;
        if options.max_urls == 0 {
            return Err(wrong("max_urls", "must be at least 1"));
        }
        if options.timeout.is_zero() {
            return Err(wrong("timeout", "must be above zero"));
        }
        if options.further_paths.iter().any(|path| !path.starts_with('/')) {
            return Err(wrong("further_paths", "must each begin with /"));
        }
        let authorization = match &options.token {
            None => None,
            Some(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| wrong("token", "must be visible ASCII characters"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let proxy = options.proxy.as_deref().map(ureq::Proxy::new).transpose();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy.map_err(|_| wrong("proxy", "must be the URL of a proxy"))?)
            .user_agent(concat!("vayu-articles/", env!("CARGO_PKG_VERSION")))
            .build();
        let inner = Inner { authorization, agent: config.into(), clock, unfinished: Mutex::default(), options };
        Ok(Self { inner: Arc::new(inner) })
    }
}

fn check_url(field: &'static str, url: &str) -> Result<(), CdnOptionsError> {
    let uri: Uri = url.parse().map_err(|_| CdnOptionsError { field, reason: "must be a URL" })?;
    let reason = "must be an http or https URL with a host";
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    if known { Ok(()) } else { Err(CdnOptionsError { field, reason }) }
}

impl Handler for CdnPurge {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let change = Change::of(event)?;
        let inner = &*self.inner;
        let urls = inner.left_of(event).unwrap_or_else(|| urls::stale(&inner.options, std::slice::from_ref(&change)));
        inner.purge(urls).map_err(|failure| {
            inner.remember(event, failure.left);
            failure.error
        })
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        let changes = events.iter().map(Change::of).collect::<Result<Vec<_>, _>>()?;
        self.inner.purge(urls::stale(&self.inner.options, &changes)).map_err(|failure| failure.error)
    }

    fn batch_limit(&self) -> usize {
        BATCH
    }

    fn filter(&self) -> EventFilter {
        article_event_types()
    }
}

/// A delivery that did not come to its end.
struct Failure {
    error: DispatchError,
    left: Vec<String>,
}

impl Inner {
    /// Purges all of `urls`, call by call. What cannot be done now goes into the failure together with the rest.
    fn purge(&self, urls: Vec<String>) -> Result<(), Failure> {
        let deadline = Instant::now() + DELIVERY_TIME;
        let mut calls: VecDeque<Vec<String>> = urls.chunks(self.options.max_urls).map(<[String]>::to_vec).collect();
        let (mut left, mut worst, mut any_done) = (Vec::new(), None, false);
        while let Some(call) = calls.pop_front() {
            match self.call(&call, deadline) {
                Verdict::Done => any_done = true,
                Verdict::Split(_) if call.len() > 1 => {
                    let (first, second) = call.split_at(call.len() / 2);
                    calls.push_front(second.to_vec());
                    calls.push_front(first.to_vec());
                }
                Verdict::Split(error) if any_done => {
                    // This address alone is not liked: the others shall not suffer for it.
                    left.extend(call);
                    worst.get_or_insert(error);
                }
                Verdict::Failed(error @ DispatchError::Retry { .. }) => {
                    left.extend(call);
                    // A further try is worth more than the dead letter.
                    worst = Some(error);
                }
                Verdict::Split(error) | Verdict::Refused(error) | Verdict::Failed(error) => {
                    left.extend(call);
                    left.extend(calls.into_iter().flatten());
                    return Err(Failure { error, left });
                }
            }
        }
        worst.map_or(Ok(()), |error| Err(Failure { error, left }))
    }

    /// One call, repeated once if the service stumbles.
    fn call(&self, urls: &[String], deadline: Instant) -> Verdict {
        let verdict = self.send(urls, deadline);
        match verdict {
            Verdict::Failed(DispatchError::Retry { .. }) => self.send(urls, deadline),
            verdict => verdict,
        }
    }

    fn send(&self, urls: &[String], deadline: Instant) -> Verdict {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Verdict::Failed(DispatchError::unavailable("the CDN is slow: the rest is purged later"));
        }
        let body = serde_json::json!({ "files": urls }).to_string();
        let mut request = self.agent.post(&self.options.endpoint).header("Content-Type", "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let timeout = self.options.timeout.min(left);
        let mut response = match request.config().timeout_global(Some(timeout)).build().send(&body) {
            Ok(response) => response,
            Err(error) => return Verdict::Failed(DispatchError::from(error).context("the CDN cannot be reached")),
        };
        // Read to its end, so that the connection can be used again. The status has decided already.
        let body = response.body_mut().with_config().limit(BODY_MAX).read_to_vec().unwrap_or_default();
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        answer::judge(response.status().as_u16(), retry_after, &self.detail(&body), self.clock.now_ms())
    }

    /// The beginning of what the service said, in one line and without the token.
    fn detail(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        let text = match &self.options.token {
            Some(token) if !token.is_empty() => text.replace(token.as_str(), "(hidden)"),
            _ => text.into_owned(),
        };
        excerpt(&text)
    }

    fn left_of(&self, event: &Event) -> Option<Vec<String>> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let at = unfinished.iter().position(|it| it.event_id == event.event_id)?;
        // A replay is a wish to have all of it purged.
        unfinished.remove(at).filter(|it| it.replays == event.replays).map(|it| it.urls)
    }

    fn remember(&self, event: &Event, urls: Vec<String>) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if unfinished.len() == REMEMBERED {
            unfinished.pop_front();
        }
        unfinished.push_back(Unfinished { event_id: event.event_id.clone(), replays: event.replays, urls });
    }
}

impl fmt::Debug for CdnPurge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CdnPurge").field("options", &self.inner.options).finish_non_exhaustive()
    }
}
