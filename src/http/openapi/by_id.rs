//! Articles by id, for workers on other machines.

use serde_json::json;

use super::document::{Document, named, object};
use super::operation::{Operation, Reply};

pub(super) fn describe(document: &mut Document) {
    let get = Operation::new("getArticleById", "One article, by its id")
        .tag("articles")
        .about("An event names its article by id, and slugs change. Without a token only what is published exists.")
        .segment("id", "Its id.", "0199a3b2-7c0f-7000-8000-000000000000")
        .reads()
        .problem(404, "not_found")
        .reply(200, Reply::new("The article.", named("Article")).header("ETag", "Its state."));
    document.operation("GET", "/api/v1/articles/by-id/{id}", get);

    let stamp = object(&json!({
        "id": { "type": "string" },
        "version": { "type": "integer", "minimum": 1 },
        "updated_at": { "type": "string", "format": "date-time" },
    }));
    let stamps = object(&json!({ "items": { "type": "array", "items": stamp } }));
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 });
    let list = Operation::new("listStamps", "Ids and versions of all articles by id, drafts too")
        .tag("articles")
        .about("For a worker that brings its copies in step. Fewer items than `limit` is the end.")
        .query(
            "after",
            "Only ids above this one.",
            json!({ "type": "string", "pattern": super::operation::NO_CONTROLS }),
        )
        .query("limit", "Most items.", limit)
        .reads()
        .reply(200, Reply::new("The stamps.", stamps));
    document.operation("GET", "/api/v1/article-stamps", list);
}
