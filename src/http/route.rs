//! The routes of the API as data: what a request is matched against, what it takes to be let in, and who answers it.
//!
//! Each area of the API has its rows in a file of its own, and [`AREAS`] lists them; a new area needs a line there and
//! one in the description that `openapi` serves.

use super::access::{Caller, Role};
use super::engine::{Request, Response};
use super::problem::Problem;
use super::request::Query;
use super::site::Parts;
use super::{admin, api, by_id, health, jobs, metrics, openapi, trace};
use crate::service::WriteContext;

pub(super) type Answer = Result<Response, Problem>;

/// Every route that answers with JSON. Of two that match a request the earlier counts.
pub(super) const AREAS: &[&[Route]] = &[
    health::ROUTES,
    metrics::ROUTES,
    api::ROUTES,
    by_id::ROUTES,
    jobs::ROUTES,
    trace::ROUTES,
    admin::ROUTES,
    openapi::ROUTES,
];

/// In the order in which `Allow` names them. HEAD is answered as GET; the engine leaves the body out.
const METHODS: [&str; 5] = ["GET", "POST", "PATCH", "PUT", "DELETE"];

/// A method and a path, and what follows.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// Segments in braces match any segment that is not empty.
    pub(super) path: &'static str,
    pub(super) guard: Guard,
    pub(super) answer: fn(&Call<'_>) -> Answer,
}

/// Who is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Everybody; nobody is asked who they are.
    Open,
    /// Everybody; who has a token sees more, and a wrong one is refused.
    Public,
    /// Who has a token of at least this role.
    Token(Role),
}

/// A request that was let in.
pub(super) struct Call<'a> {
    pub(super) parts: &'a Parts,
    pub(super) route: &'static Route,
    pub(super) request: &'a Request,
    /// What the segments in braces are, in their order, decoded.
    pub(super) segments: Vec<&'a str>,
    pub(super) caller: Option<Caller>,
    pub(super) context: &'a WriteContext,
}

impl Route {
    /// What stands for the path's segments in braces, if it matches.
    fn matches<'a>(&self, path: &[&'a str]) -> Option<Vec<&'a str>> {
        let mut segments = Vec::new();
        let mut pattern = self.path.split('/').skip(1);
        for segment in path {
            match pattern.next()? {
                name if name.starts_with('{') && !segment.is_empty() => segments.push(*segment),
                name if name == *segment => {}
                _ => return None,
            }
        }
        pattern.next().is_none().then_some(segments)
    }
}

impl Call<'_> {
    /// Whose token the request has, for the log.
    pub(super) fn by(&self) -> &str {
        self.caller.as_ref().map_or("-", |caller| &caller.name)
    }

    /// The segment in braces, of a route that has one.
    pub(super) fn segment(&self) -> &str {
        self.segments.first().copied().unwrap_or_default()
    }

    /// # Errors
    /// 400: the query is malformed.
    pub(super) fn query(&self) -> Result<Query, Problem> {
        Query::parse(self.request.query.as_deref())
    }
}

/// The route for a request, and what its segments in braces stand for.
///
/// # Errors
/// 404, or 405 with the methods that the path does have.
pub(super) fn find<'a>(method: &str, path: &[&'a str]) -> Result<(&'static Route, Vec<&'a str>), Problem> {
    let mut methods = Vec::new();
    for route in AREAS.iter().copied().flatten() {
        let Some(segments) = route.matches(path) else { continue };
        if route.method == method {
            return Ok((route, segments));
        }
        methods.push(route.method);
    }
    if methods.is_empty() {
        return Err(Problem::not_found("there is nothing at this path"));
    }
    let allowed = METHODS.iter().filter(|method| methods.contains(method));
    let allow: Vec<&str> = allowed.map(|method| if *method == "GET" { "GET, HEAD" } else { method }).collect();
    Err(Problem::method_not_allowed(allow.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> Result<&'static str, (u16, Option<String>)> {
        let path: Vec<&str> = path.split('/').skip(1).collect();
        let found = find(method, &path).map(|(route, _)| route.path);
        found.map_err(|problem| (problem.status.as_u16(), problem.allow.map(Into::into)))
    }

    #[test]
    fn case_c09_a_slug_like_a_route_word_is_still_a_slug() {
        assert_eq!(found("POST", "/api/v1/articles/bulk"), Ok("/api/v1/articles/bulk"));
        assert_eq!(found("GET", "/api/v1/articles/bulk"), Ok("/api/v1/articles/{slug}"));
        let allow = Some("GET, HEAD, POST, PATCH, PUT, DELETE".to_owned());
        assert_eq!(found("TRACE", "/api/v1/articles/bulk"), Err((405, allow)));
        assert_eq!(found("POST", "/api/v1/articles/x"), Err((405, Some("GET, HEAD, PATCH, PUT, DELETE".to_owned()))));
        for path in ["/api/v1/articles/", "/api/v1/articles/a/b", "/api/v1", "/api", "/api/v2/articles", "/health/"] {
            assert_eq!(found("GET", path), Err((404, None)), "{path}");
        }
    }

    #[test]
    fn every_write_and_all_of_admin_need_a_token_and_no_two_routes_are_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        for route in AREAS.iter().copied().flatten() {
            assert!(seen.insert((route.method, route.path)), "{route:?}");
            assert!(METHODS.contains(&route.method), "{route:?}");
            if route.path.starts_with("/api/v1/admin/") {
                assert_eq!(route.guard, Guard::Token(Role::Admin), "{route:?}");
            } else if route.method != "GET" {
                assert!(matches!(route.guard, Guard::Token(_)), "{route:?}");
            }
        }
    }
}
