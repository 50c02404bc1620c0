//! Requests as handlers get them, responses as they give them, and the refusals the engine gives by itself.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};

/// Answers a request. Called on the handler threads, several at once; may block until the request's deadline.
pub type Handler = dyn Fn(Request) -> Response + Send + Sync;

/// Words a refusal; see [`Engine::refuse_with`](super::Engine::refuse_with).
pub type RefusalFn = dyn Fn(&Refusal) -> Response + Send + Sync;

/// A complete request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The method. HEAD is to be answered as GET would be; its body is left out in sending.
    pub method: Method,
    /// The path as it was sent: not decoded, begins with `/` (or is `*`).
    pub path: String,
    /// What came after `?`, not decoded.
    pub query: Option<String>,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body, at most [`EngineOptions::max_body`](super::EngineOptions::max_body) bytes.
    pub body: Bytes,
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// When an answer should be there. What has not been begun by then should not be.
    pub deadline: Instant,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status; 1xx becomes a 500.
    pub status: StatusCode,
    /// The header fields. Those of framing (`Connection`, `Content-Length`, `Transfer-Encoding`, `Date`) are the
    /// engine's; a `Content-Length` stays when the request was HEAD and the body is empty.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Response {
    /// An answer without header fields.
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { status, headers: HeaderMap::new(), body: body.into() }
    }

    /// An answer in plain text.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
        Self::new(status, text.into()).header(CONTENT_TYPE, content_type)
    }

    /// Sets a header field.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }
}

/// An answer that the engine gives without a handler.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// 400, 408, 413, 414, 431, 500, 501, 503 or 504.
    pub status: StatusCode,
    /// What is wrong and what to do, in a sentence.
    pub message: &'static str,
    /// Seconds after which another try makes sense; sent as `Retry-After`.
    pub retry_after: Option<u32>,
    /// Whether the connection is closed afterwards.
    pub close: bool,
}

impl Refusal {
    /// A refusal of a request that was not read to its end.
    pub(super) fn closing(status: StatusCode, message: &'static str) -> Self {
        Self { status, message, retry_after: None, close: true }
    }

    /// A refusal for now.
    pub(super) fn busy(message: &'static str, close: bool) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message, retry_after: Some(1), close }
    }

    pub(super) fn as_text(&self) -> Response {
        Response::text(self.status, format!("{}\n", self.message))
    }
}
