//! The document as a whole.

use serde_json::{Map, Value, json};

use super::operation::Operation;
use crate::http::route;

const ABOUT: &str = "Articles whose every change commits together with a durable event.\n\n\
Reading what is published needs no token. Writing needs one with the role `write`, everything below `/api/v1/admin/` one \
with the role `admin`, sent as `Authorization: Bearer TOKEN`.\n\n\
A write is answered after its commit: what was answered is there after a power cut. `429` and `503` with `Retry-After` mean \
that nothing was done. A write with an `Idempotency-Key` may be sent again without harm; `If-Match` guards against \
overwriting what somebody else has changed.\n\n\
Every error is `{\"error\": {\"code\", \"message\"}}`, with `field` if a field is at fault and `line` and `column` if the JSON is. \
Codes are stable.";

/// What the areas have described so far.
#[derive(Debug, Default)]
pub(super) struct Document {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl Document {
    /// Adds the operation of a route.
    ///
    /// # Panics
    /// There is no such route, which a test finds.
    pub(super) fn operation(&mut self, method: &str, path: &str, operation: Operation) {
        let guard = route::AREAS.iter().copied().flatten().find(|route| route.method == method && route.path == path);
        let guard = guard.map(|route| route.guard).unwrap_or_else(|| panic!("no route {method} {path}"));
        let operations = self.paths.entry(path).or_insert_with(|| json!({}));
        operations[method.to_lowercase()] = operation.into_json(guard);
    }

    /// Adds a schema that others refer to by [`named`].
    pub(super) fn schema(&mut self, name: &str, schema: Value) {
        self.schemas.insert(name.to_owned(), schema);
    }

    pub(super) fn into_json(self) -> Value {
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "vayu-articles",
                "version": env!("CARGO_PKG_VERSION"),
                "description": ABOUT,
                "license": { "name": "MIT", "identifier": "MIT" },
            },
            "servers": [{ "url": "/" }],
            "paths": self.paths,
            "components": {
                "schemas": self.schemas,
                "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            },
        })
    }
}

/// A reference to a schema.
pub(super) fn named(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Which of several pages, and how long one is.
pub(super) fn paged(operation: Operation, limit: u32, default: u32) -> Operation {
    operation
        .query("page", "From 1.", json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX, "default": 1 }))
        .query(
            "limit",
            "Items on a page.",
            json!({ "type": "integer", "minimum": 1, "maximum": limit, "default": default }),
        )
}

/// The schema of a page of `items`.
pub(super) fn page_of(items: &Value) -> Value {
    let count = json!({ "type": "integer", "minimum": 0 });
    object(&json!({
        "items": { "type": "array", "items": items },
        "page": { "type": "integer", "minimum": 1 },
        "limit": { "type": "integer", "minimum": 1 },
        "total": count,
    }))
}

/// The schema of an object that always has exactly these properties.
pub(super) fn object(properties: &Value) -> Value {
    let required: Vec<&String> = properties.as_object().into_iter().flat_map(Map::keys).collect();
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}
