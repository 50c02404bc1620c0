//! What a purge is told: where the cache is, and how it likes to be asked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ureq::http::{HeaderName, HeaderValue, Method, Uri};

/// The header that names what a page depends on, unless told otherwise.
pub const KEY_HEADER: &str = "Surrogate-Key";

/// How a cache is asked to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CdnShape {
    /// `POST endpoint` with the body `{"files": ["https://…", …]}`, at most [`CdnOptions::max_urls`] addresses in one.
    #[default]
    Json,
    /// `PURGE` of each address: the endpoint's host is asked, with the path and the `Host` of the site.
    Purge,
    /// `BAN` of each address, otherwise as [`Purge`](Self::Purge).
    Ban,
    /// `POST endpoint` with keys in the header [`CdnOptions::key_header`], separated by spaces: what pages carry as
    /// [keys](super::keys) is forgotten, at whatever address.
    Keys,
}

impl CdnShape {
    /// Every shape there is.
    pub const ALL: &'static [Self] = &[Self::Json, Self::Purge, Self::Ban, Self::Keys];

    /// Its name in settings: `json`, `purge`, `ban`, `keys`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Purge => "purge",
            Self::Ban => "ban",
            Self::Keys => "keys",
        }
    }

    /// Whether one request names one address.
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::Purge | Self::Ban)
    }

    fn method(self) -> Method {
        match self {
            Self::Json | Self::Keys => Method::POST,
            Self::Purge | Self::Ban => {
                Method::from_bytes(self.as_str().to_ascii_uppercase().as_bytes()).unwrap_or_default()
            }
        }
    }
}

/// No shape has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownShape;

impl fmt::Display for UnknownShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write one of json, purge, ban, keys")
    }
}

impl std::error::Error for UnknownShape {}

impl FromStr for CdnShape {
    type Err = UnknownShape;

    fn from_str(name: &str) -> Result<Self, UnknownShape> {
        Self::ALL.iter().copied().find(|shape| shape.as_str() == name).ok_or(UnknownShape)
    }
}

/// Settings of a [`CdnPurge`](super::CdnPurge). Start from [`CdnOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct CdnOptions {
    /// Where to send purges: an `http` or `https` URL; for [`CdnShape::Purge`] and [`CdnShape::Ban`] without a path.
    pub endpoint: String,
    /// The site's public address, for example `https://example.org`.
    pub base_url: String,
    /// How the cache is asked ([`CdnShape::Json`] by default).
    pub shape: CdnShape,
    /// Another method than the shape's own. None by default.
    pub method: Option<String>,
    /// The header that carries keys to a cache that is asked by [`CdnShape::Keys`] (default [`KEY_HEADER`]).
    pub key_header: String,
    /// Sent to the endpoint; never logged. None by default.
    pub token: Option<String>,
    /// The header for it (default `Authorization`, whose value then begins with `Bearer `; in another one the token stands alone).
    pub token_header: String,
    /// Most addresses in one call of [`CdnShape::Json`] (default 30).
    pub max_urls: usize,
    /// Most bytes of keys in one call of [`CdnShape::Keys`] (default 4,000; a single key has at most 100).
    pub max_key_bytes: usize,
    /// Longest time one call may take, above zero (default 10 s).
    pub timeout: Duration,
    /// Whether the API's answers are cached and must be purged, too (default true). Keys always reach them.
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
            shape: CdnShape::default(),
            method: None,
            key_header: KEY_HEADER.to_owned(),
            token: None,
            token_header: "Authorization".to_owned(),
            max_urls: 30,
            max_key_bytes: 4_000,
            timeout: Duration::from_secs(10),
            api: true,
            further_paths: Vec::new(),
            proxy: None,
        }
    }
}

impl fmt::Debug for CdnOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, base_url, shape, method, key_header, token, token_header, max_urls, .. } = self;
        let Self { max_key_bytes, timeout, api, further_paths, proxy, .. } = self;
        f.debug_struct("CdnOptions")
            .field("endpoint", endpoint)
            .field("base_url", base_url)
            .field("shape", shape)
            .field("method", method)
            .field("key_header", key_header)
            .field("token", &token.as_ref().map(|_| "(hidden)"))
            .field("token_header", token_header)
            .field("max_urls", max_urls)
            .field("max_key_bytes", max_key_bytes)
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

/// Options that were checked, as requests need them.
pub(super) struct Checked {
    pub(super) method: Method,
    pub(super) key_header: HeaderName,
    pub(super) authorization: Option<(HeaderName, HeaderValue)>,
    pub(super) proxy: Option<ureq::Proxy>,
}

/// # Errors
/// A setting cannot work.
pub(super) fn check(options: &CdnOptions) -> Result<Checked, CdnOptionsError> {
    let endpoint = check_url("endpoint", &options.endpoint)?;
    if options.shape.is_single() && endpoint.path_and_query().is_some_and(|path| path.as_str() != "/") {
        return Err(wrong("endpoint", "must have no path: each address brings its own"));
    }
    check_url("base_url", &options.base_url)?;
    if options.max_urls == 0 {
        return Err(wrong("max_urls", "must be at least 1"));
    }
    if options.max_key_bytes < super::keys::LONGEST {
        return Err(wrong("max_key_bytes", "must be at least 100, the longest key"));
    }
    if options.timeout.is_zero() {
        return Err(wrong("timeout", "must be above zero"));
    }
    if options.further_paths.iter().any(|path| !path.starts_with('/')) {
        return Err(wrong("further_paths", "must each begin with /"));
    }
    let method = match &options.method {
        None => options.shape.method(),
        Some(name) => Method::from_bytes(name.as_bytes())
            .ok()
            .filter(|method| *method != Method::GET && *method != Method::HEAD)
            .ok_or(wrong("method", "must be the name of a method, other than GET and HEAD"))?,
    };
    let proxy = options.proxy.as_deref().map(ureq::Proxy::new).transpose();
    Ok(Checked {
        method,
        key_header: key_header(&options.key_header)?,
        authorization: options.token.as_deref().map(|token| authorization(&options.token_header, token)).transpose()?,
        proxy: proxy.map_err(|_| wrong("proxy", "must be the URL of a proxy"))?,
    })
}

/// The header for keys, on pages and in purges.
///
/// # Errors
/// It is no name of a header, or one that means something else.
pub fn key_header(name: &str) -> Result<HeaderName, CdnOptionsError> {
    const TAKEN: [&str; 8] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "authorization",
        "cache-control",
        "etag",
    ];
    let header = HeaderName::from_bytes(name.as_bytes()).ok().filter(|header| !TAKEN.contains(&header.as_str()));
    header.ok_or(wrong("key_header", "must be the name of a header of its own, such as Surrogate-Key or xkey"))
}

fn authorization(header: &str, token: &str) -> Result<(HeaderName, HeaderValue), CdnOptionsError> {
    let name = HeaderName::from_bytes(header.as_bytes());
    let name = name.map_err(|_| wrong("token_header", "must be the name of a header"))?;
    let text = if name == ureq::http::header::AUTHORIZATION { format!("Bearer {token}") } else { token.to_owned() };
    let mut value = HeaderValue::from_str(&text).map_err(|_| wrong("token", "must be visible ASCII characters"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn check_url(field: &'static str, url: &str) -> Result<Uri, CdnOptionsError> {
    let uri: Uri = url.parse().map_err(|_| wrong(field, "must be a URL"))?;
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    if known { Ok(uri) } else { Err(wrong(field, "must be an http or https URL with a host")) }
}

fn wrong(field: &'static str, reason: &'static str) -> CdnOptionsError {
    CdnOptionsError { field, reason }
}
