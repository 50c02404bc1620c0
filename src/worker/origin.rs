//! The articles as a worker sees them: over HTTP, by id, from the server that has them.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use ureq::Agent;
use ureq::http::{HeaderValue, Uri};

use crate::article::{Article, ArticleStamp, Kind, Status};
use crate::outbox::DispatchError;
use crate::sinks::cloud_event::milliseconds;
use crate::sinks::{ArticleSource, encode_segment};

/// Longest answer that is read: an article's content may have 5 MB, and JSON may write a byte as six.
const BODY_MAX: u64 = 32 << 20;
/// Longest `Retry-After` that is passed on; the pause itself is capped by the policy.
const RETRY_AFTER_MAX: u64 = 3_600;

/// Where the articles are, and how to ask.
#[derive(Clone)]
#[non_exhaustive]
pub struct OriginOptions {
    /// The server's address: `http` or `https`, a host, and perhaps a path before `/api`.
    pub url: String,
    /// A token that the server knows, with the role `write`: without one, drafts do not exist and search cannot be built.
    pub token: Option<String>,
    /// Longest time for one answer; 10 s.
    pub timeout: Duration,
}

impl OriginOptions {
    /// The defaults, for this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), token: None, timeout: Duration::from_secs(10) }
    }
}

impl fmt::Debug for OriginOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "(hidden)");
        f.debug_struct("OriginOptions").field("url", &self.url).field("token", &token).finish_non_exhaustive()
    }
}

/// An [`ArticleSource`] over HTTP.
///
/// | answer | means |
/// |---|---|
/// | 404 with `"field": "id"` | the article is deleted |
/// | 200 that can be read | its present state |
/// | 400, 413, 414, 422, or the request cannot even be made | `Poison`: the event names no article |
/// | everything else, and none | `Unavailable`: down, too busy, a wrong token, or not that server |
pub struct Origin {
    options: OriginOptions,
    base: String,
    authorization: Option<HeaderValue>,
    agent: Agent,
}

impl Origin {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// A sentence: the address or the token cannot work.
    pub fn new(options: OriginOptions) -> Result<Self, String> {
        let uri: Uri = options.url.parse().map_err(|_| "the origin must be a URL".to_owned())?;
        let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|h| !h.is_empty());
        if !known || uri.query().is_some() {
            return Err("the origin must be an http or https URL with a host and no query".to_owned());
        }
        if options.timeout.is_zero() {
            return Err("the origin's timeout must be above zero".to_owned());
        }
        let bearer = |token: &String| HeaderValue::from_str(&format!("Bearer {token}"));
        let authorization = options.token.as_ref().map(bearer).transpose();
        let mut authorization = authorization.map_err(|_| "the origin's token must be visible ASCII".to_owned())?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(options.timeout))
            .user_agent(concat!("vayu-articles/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        Ok(Self { base: options.url.trim_end_matches('/').to_owned(), options, authorization, agent })
    }

    /// `None`: a 404 that is about the id asked for.
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, DispatchError> {
        let mut request = self.agent.get(format!("{}/api/v1/{path}", self.base));
        if let Some(authorization) = &self.authorization {
            request = request.header("Authorization", authorization);
        }
        let mut response = request.call().map_err(|error| unanswered(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.parse().ok());
        let body = response.body_mut().with_config().limit(BODY_MAX).read_to_vec().map_err(|error| down(&error))?;
        match status {
            200 => match serde_json::from_slice(&body) {
                Ok(read) => Ok(Some(read)),
                Err(error) => Err(down(&format!("its answer cannot be read: {error}"))),
            },
            // Another server's 404, or a wrong path before /api, must not look like a deletion.
            404 if is_about_the_id(&body) => Ok(None),
            404 => Err(down(&"404, and not about an article: is it that server, and as new as this one?")),
            401 | 403 => {
                let token = if self.authorization.is_some() { "the token is refused" } else { "there is no token" };
                Err(down(&format!(
                    "{status}, since {token}: set VAYU_ORIGIN_TOKEN to one with the role `write` (`tokens add` beside the origin)"
                )))
            }
            400 | 413 | 414 | 422 => Err(DispatchError::poison(format!("the origin knows no such id: {status}"))),
            _ => Err(DispatchError::Unavailable {
                reason: format!("the origin answers {status}"),
                retry_after: retry_after.map(|seconds: u64| Duration::from_secs(seconds.min(RETRY_AFTER_MAX))),
            }),
        }
    }
}

fn down(error: &dyn fmt::Display) -> DispatchError {
    DispatchError::unavailable(format!("the origin cannot be asked: {error}"))
}

/// What it means that there is no answer. The address is known to be good, so a URL that is none is one because of the id. Whatever
/// else `ureq` says is about the origin, the way to it, or the settings: no other id would fare better.
fn unanswered(error: &ureq::Error) -> DispatchError {
    match error {
        ureq::Error::Http(_) | ureq::Error::BadUri(_) => {
            DispatchError::poison(format!("the origin can be asked for no such id: {error}"))
        }
        other => down(other),
    }
}

fn is_about_the_id(body: &[u8]) -> bool {
    let read: Result<Value, _> = serde_json::from_slice(body);
    read.is_ok_and(|body| body["error"]["code"] == "not_found" && body["error"]["field"] == "id")
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("options", &self.options).finish_non_exhaustive()
    }
}

/// An article as the API writes it.
#[derive(Deserialize)]
struct Answer {
    id: String,
    kind: Kind,
    status: Status,
    slug: String,
    title: String,
    content: String,
    tags: Vec<String>,
    version: i64,
    created_at: String,
    updated_at: String,
    /// Of a scheduled article only.
    publish_at: Option<String>,
}

#[derive(Deserialize)]
struct Stamps {
    items: Vec<Stamp>,
}

#[derive(Deserialize)]
struct Stamp {
    id: String,
    version: i64,
    updated_at: String,
}

fn instant(text: &str) -> Result<i64, DispatchError> {
    milliseconds(text).ok_or_else(|| DispatchError::unavailable(format!("the origin's time {text:?} cannot be read")))
}

impl ArticleSource for Origin {
    fn article(&self, id: &str) -> Result<Option<Article>, DispatchError> {
        // Segments that a path does not keep: a proxy, or the server, would hear another question.
        if matches!(id, "" | "." | "..") {
            return Err(DispatchError::poison(format!("no article has the id {id:?}")));
        }
        let path = format!("articles/by-id/{}", encode_segment(id));
        let Some(answer) = self.get::<Answer>(&path)? else { return Ok(None) };
        if answer.id != id {
            return Err(DispatchError::unavailable("the origin answers with another article".to_owned()));
        }
        Ok(Some(Article {
            created_at: instant(&answer.created_at)?,
            updated_at: instant(&answer.updated_at)?,
            id: answer.id,
            kind: answer.kind,
            status: answer.status,
            slug: answer.slug,
            title: answer.title,
            content: answer.content,
            tags: answer.tags,
            version: answer.version,
            publish_at: answer.publish_at.as_deref().map(instant).transpose()?,
        }))
    }

    fn stamps_after(&self, after: Option<&str>, limit: u32) -> Result<Vec<ArticleStamp>, DispatchError> {
        let after = after.map(|id| format!("&after={}", encode_segment(id))).unwrap_or_default();
        let stamps = self.get::<Stamps>(&format!("article-stamps?limit={limit}{after}"))?;
        let stamps = stamps.ok_or_else(|| DispatchError::unavailable("the origin lists no articles"))?;
        let stamp = |stamp: Stamp| {
            let updated_at = instant(&stamp.updated_at)?;
            Ok(ArticleStamp { id: stamp.id, version: stamp.version, updated_at, mark: None })
        };
        stamps.items.into_iter().map(stamp).collect()
    }

    /// The origin's log is not ours to compare with: whoever asks compares versions.
    fn event_id_at(&self, _log_id: i64) -> Result<Option<String>, DispatchError> {
        Ok(None)
    }

    /// A worker renders no lists.
    fn site_version(&self) -> Result<String, DispatchError> {
        Ok("origin".to_owned())
    }
}
