//! The API's description in OpenAPI 3.1, made in code beside the routes and served at `/api/v1/openapi.json`.
//!
//! Each area describes its routes in a file here: a function that adds operations and schemas to a [`Document`], and a
//! line in [`AREAS`]. Who is let in is taken from the route itself, and so are the answers that every route has. A test
//! fails for a route without a description, and another sends every example.

mod admin;
mod articles;
mod by_id;
mod document;
mod health;
mod jobs;
mod operation;
mod search;
mod trace;

use std::sync::OnceLock;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::json;

use super::engine::Response;
use super::route::{Answer, Call, Guard, Route};
use document::Document;
use operation::{Operation, Reply};

/// Each adds what it knows.
const AREAS: &[fn(&mut Document)] = &[
    articles::describe,
    by_id::describe,
    search::describe,
    trace::describe,
    admin::describe,
    health::describe,
    jobs::describe,
    describe,
];

const PATH: &str = "/api/v1/openapi.json";

pub(super) const ROUTES: &[Route] = &[Route { method: "GET", path: PATH, guard: Guard::Open, answer: serve }];

/// `GET /api/v1/openapi.json`
fn serve(_: &Call<'_>) -> Answer {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT.get_or_init(|| Bytes::from(document().into_json().to_string()));
    Ok(Response::new(StatusCode::OK, text.clone())
        .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
        .header(CACHE_CONTROL, HeaderValue::from_static("no-cache")))
}

fn document() -> Document {
    let mut document = Document::default();
    AREAS.iter().for_each(|describe| describe(&mut document));
    document
}

fn describe(document: &mut Document) {
    let about = Operation::new("describeApi", "This description").tag("description");
    document.operation("GET", PATH, about.reply(200, Reply::new("OpenAPI 3.1.", json!({ "type": "object" }))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route;

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let described = document().into_json();
        let paths = described["paths"].as_object().unwrap();
        let mut count = 0;
        for route in route::AREAS.iter().copied().flatten() {
            let operation = &paths[route.path][route.method.to_lowercase()];
            assert!(operation["operationId"].is_string(), "{} {} is not described", route.method, route.path);
            count += 1;
        }
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, count, "a description without a route");
    }

    #[test]
    fn references_lead_somewhere_and_names_are_unique() {
        let described = document().into_json();
        let text = described.to_string();
        for reference in text.split("\"$ref\":\"").skip(1) {
            let pointer = reference.split('"').next().unwrap().trim_start_matches('#');
            assert!(described.pointer(pointer).is_some(), "{pointer}");
        }
        let names: Vec<&str> = text.split("\"operationId\":\"").skip(1).map(|t| t.split('"').next().unwrap()).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "{names:?}");
    }
}
