//! What answers tell shared caches in front of the site: what they were made from, and for how long they may be kept.
//!
//! A handler names the keys of what it answers ([`keyed`]); [`Edge::finish`] is the one place that decides what becomes of them.
//! An answer without keys, one to somebody with a token, and anything that is neither a page, nor its being absent, nor its being
//! unchanged is for no shared cache.

use std::time::Duration;

use hyper::header::{AUTHORIZATION, CACHE_CONTROL, HeaderName, HeaderValue, SET_COOKIE};
use hyper::{Method, StatusCode};

use super::engine::{Request, Response};
use crate::sinks::cdn::{CdnOptionsError, CdnShape, key_header, keys, named_path};

/// Within this program; what goes out has the name of the settings.
const KEYS: HeaderName = HeaderName::from_static("x-vayu-keys");
/// As RFC 9213 has it.
const CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");
/// Its older sister, which some services read instead.
const SURROGATE_CONTROL: HeaderName = HeaderName::from_static("surrogate-control");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const FOR_ONE: HeaderValue = HeaderValue::from_static("private, no-cache");

/// What the caches in front of a site are told. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Edge {
    key_header: HeaderName,
    /// `max-age=…`
    lifetime: Option<HeaderValue>,
    by_key: bool,
}

impl Edge {
    /// Answers carry what they depend on in `key_header`, separated by spaces. With a `lifetime` (whole seconds, at least one) they also
    /// allow shared caches, and these alone, to keep them so long: everything that has keys if purges have the shape
    /// [`CdnShape::Keys`], else only the addresses that purges name; the rest is `no-store` to them.
    ///
    /// # Errors
    /// The header cannot be that.
    pub fn new(shape: CdnShape, key_header_name: &str, lifetime: Option<Duration>) -> Result<Self, CdnOptionsError> {
        let max_age = |lifetime: Duration| format!("max-age={}", lifetime.as_secs().max(1));
        Ok(Self {
            key_header: key_header(key_header_name)?,
            lifetime: lifetime.and_then(|lifetime| HeaderValue::from_str(&max_age(lifetime)).ok()),
            by_key: shape == CdnShape::Keys,
        })
    }

    fn may_keep(&self, request: &Request, path: &[&str]) -> bool {
        self.by_key || (request.query.is_none() && named_path(path).as_deref() == Some(&*request.path))
    }
}

/// `response`, made from what `keys` name.
pub(super) fn keyed<'k>(response: Response, keys: impl IntoIterator<Item = &'k str>) -> Response {
    let list = keys.into_iter().fold(keys::ALL.to_owned(), |list, key| list + " " + key);
    match HeaderValue::from_str(&list) {
        Ok(list) => response.header(KEYS, list),
        // Cannot be: keys are letters, digits, hyphens and underscores.
        Err(_) => response,
    }
}

/// The answer as it goes out; `path` are the decoded segments of the request's.
pub(super) fn finish(mut response: Response, edge: Option<&Edge>, request: &Request, path: &[&str]) -> Response {
    let keys = response.headers.remove(KEYS);
    let Some(edge) = edge else { return response };
    let authorized = request.headers.contains_key(AUTHORIZATION);
    if authorized && !response.headers.contains_key(CACHE_CONTROL) {
        response.headers.insert(CACHE_CONTROL, FOR_ONE);
    }
    let keys = keys.filter(|_| !authorized && is_for_all(request, &response));
    let kept = keys.is_some() && edge.may_keep(request, path);
    if kept && !response.headers.contains_key(CACHE_CONTROL) {
        // What a browser keeps, no purge reaches.
        response.headers.insert(CACHE_CONTROL, REVALIDATE);
    }
    if let Some(keys) = keys {
        response.headers.insert(edge.key_header.clone(), keys);
    }
    if let Some(lifetime) = &edge.lifetime {
        let control = if kept { lifetime.clone() } else { NO_STORE };
        response.headers.insert(CDN_CACHE_CONTROL, control.clone());
        response.headers.insert(SURROGATE_CONTROL, control);
    }
    response
}

fn is_for_all(request: &Request, response: &Response) -> bool {
    let status = matches!(response.status, StatusCode::OK | StatusCode::NOT_MODIFIED | StatusCode::NOT_FOUND);
    let read = matches!(request.method, Method::GET | Method::HEAD);
    let control = response.headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    status
        && read
        && !control.contains("private")
        && !control.contains("no-store")
        && !response.headers.contains_key(SET_COOKIE)
}
