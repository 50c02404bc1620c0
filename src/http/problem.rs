//! What went wrong, as the API says it: `{"error":{"code","message","field"}}` with the right status.

use std::borrow::Cow;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::json;

use super::engine::{Refusal, Response};
use crate::article::{ArticleError, RepositoryError};
use crate::outbox::InsertError;
use crate::queue::WriteError;
use crate::sinks::search::SearchError;
use crate::storage::ReadError;

/// What a client without a right token is asked for.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"vayu-articles\"");

/// An error answer of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The HTTP status, 400 or above.
    pub status: StatusCode,
    /// A stable name for programs, such as `slug_taken`.
    pub code: &'static str,
    /// For people: what happened and what to do.
    pub message: String,
    /// The field of the input at fault, if one is.
    pub field: Option<String>,
    /// Line and column of the input at which it went wrong, from 1.
    pub position: Option<(u32, u32)>,
    /// When another try makes sense; sent as `Retry-After` in whole seconds, at least 1.
    pub retry_after: Option<Duration>,
    /// The methods that the path does have; sent as `Allow`.
    pub allow: Option<Cow<'static, str>>,
}

impl Problem {
    /// A problem with this status, code and message.
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None, position: None, retry_after: None, allow: None }
    }

    /// The request is malformed: 400.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// A query parameter is wrong: 400.
    pub(super) fn bad_parameter(name: &str, reason: impl std::fmt::Display) -> Self {
        Self { field: Some(name.to_owned()), ..Self::bad_request(format!("query parameter {name} {reason}")) }
    }

    /// Nothing is there: 404.
    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The path exists, the method does not: 405.
    pub(super) fn method_not_allowed(allow: impl Into<Cow<'static, str>>) -> Self {
        let allow = allow.into();
        let message = format!("this path answers to {allow} only");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message) }
    }

    /// A token is missing or wrong: 401.
    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    /// The token does not allow it: 403.
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// The same as JSON.
    pub(super) fn to_json(&self) -> serde_json::Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(field) = &self.field {
            error["field"] = json!(field);
        }
        if let Some((line, column)) = self.position {
            error["line"] = json!(line);
            error["column"] = json!(column);
        }
        json!({ "error": error })
    }
}

impl From<Problem> for Response {
    fn from(problem: Problem) -> Self {
        let body = problem.to_json().to_string();
        let mut response =
            Response::new(problem.status, body).header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(wait) = problem.retry_after {
            response = response.header(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        if let Some(allow) = problem.allow.and_then(|allow| HeaderValue::from_str(&allow).ok()) {
            response = response.header(ALLOW, allow);
        }
        if problem.status == StatusCode::UNAUTHORIZED {
            response = response.header(WWW_AUTHENTICATE, CHALLENGE);
        }
        response
    }
}

/// The engine's own refusals, in the API's words.
pub(super) fn refusal(refusal: &Refusal) -> Response {
    let code = match refusal.status {
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::URI_TOO_LONG => "uri_too_long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "headers_too_large",
        StatusCode::NOT_IMPLEMENTED => "not_implemented",
        StatusCode::REQUEST_TIMEOUT => "request_timeout",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded",
        StatusCode::GATEWAY_TIMEOUT => "outcome_unknown",
        StatusCode::INTERNAL_SERVER_ERROR => "internal",
        _ => "bad_request",
    };
    let wait = refusal.retry_after.map(|seconds| Duration::from_secs(seconds.into()));
    Problem { retry_after: wait, ..Problem::new(refusal.status, code, refusal.message) }.into()
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        let status = match &error {
            WriteError::Article(error) => article_status(error),
            WriteError::Saturated { .. } | WriteError::JournalFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            // Where it was asked for, `jobs::or_accepted` has answered it already.
            WriteError::Deferred { .. } => StatusCode::ACCEPTED,
            WriteError::Unavailable(fault) if fault.is_full() => StatusCode::INSUFFICIENT_STORAGE,
            WriteError::ReadOnly
            | WriteError::Stopped
            | WriteError::DeadlineExceeded
            | WriteError::Unavailable(_)
            | WriteError::OutcomeUnknown(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            status,
            code: error.code(),
            message: error.to_string(),
            field: error.field().map(str::to_owned),
            position: None,
            retry_after: error.retry_after(),
            allow: None,
        }
    }
}

fn article_status(error: &ArticleError) -> StatusCode {
    match error {
        ArticleError::Invalid { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ArticleError::SlugTaken { .. } | ArticleError::IdTaken { .. } => StatusCode::CONFLICT,
        ArticleError::NotFound { .. } => StatusCode::NOT_FOUND,
        ArticleError::Stale { .. } => StatusCode::PRECONDITION_FAILED,
        ArticleError::KeyReused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ArticleError::TooMany { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        ArticleError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        ArticleError::Event(InsertError::Invalid { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<RepositoryError> for Problem {
    fn from(error: RepositoryError) -> Self {
        let message = error.to_string();
        let field = error.field().map(str::to_owned);
        let (status, code, wait) = match error.code() {
            "invalid" => (StatusCode::BAD_REQUEST, "bad_request", None),
            "internal" => (StatusCode::INTERNAL_SERVER_ERROR, "internal", None),
            code => (StatusCode::SERVICE_UNAVAILABLE, code, Some(Duration::from_secs(1))),
        };
        Self { field, retry_after: wait, ..Self::new(status, code, message) }
    }
}

/// Of the outbox's own tables.
impl From<ReadError<rusqlite::Error>> for Problem {
    fn from(error: ReadError<rusqlite::Error>) -> Self {
        RepositoryError::Read(error).into()
    }
}

impl From<SearchError> for Problem {
    fn from(error: SearchError) -> Self {
        let message = error.to_string();
        match error {
            SearchError::InvalidQuery { .. } => Self { field: Some("q".to_owned()), ..Self::bad_request(message) },
            _ => Self {
                retry_after: Some(Duration::from_secs(1)),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, "search_unavailable", message)
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c53_only_what_may_succeed_unchanged_says_when_to_try_again() {
        let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None);
        for (error, status, again) in [
            (WriteError::Saturated { retry_after: Duration::from_secs(2) }, 429, Some(2)),
            (WriteError::Stopped, 503, Some(5)),
            (WriteError::DeadlineExceeded, 503, Some(1)),
            (ArticleError::Sqlite(full).into(), 507, Some(10)),
            // Not safe without a look.
            (WriteError::OutcomeUnknown("disk".to_owned()), 503, None),
            (WriteError::Internal("x".to_owned()), 500, None),
            (ArticleError::SlugTaken { slug: "a".to_owned() }.into(), 409, None),
            (ArticleError::NotFound { slug: "a".to_owned() }.into(), 404, None),
            (ArticleError::KeyReused { key: "k".to_owned() }.into(), 422, None),
            (ArticleError::TooLarge { bytes: 2, limit: 1 }.into(), 413, None),
        ] {
            let response = Response::from(Problem::from(error));
            let after = response.headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap().parse::<u64>().unwrap());
            assert_eq!((response.status.as_u16(), after), (status, again));
        }
        let refused = Response::from(Problem::unauthorized("x"));
        assert!(refused.headers.contains_key(WWW_AUTHENTICATE) && !refused.headers.contains_key(RETRY_AFTER));
    }
}
