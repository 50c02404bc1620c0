//! Articles and tags.

use serde_json::{Value, json};

use super::document::{Document, named, object, page_of, paged};
use super::operation::{NO_CONTROLS, Operation, Reply};
use crate::article::{Kind, MAX_SLUG_CHARS, MAX_TAG_CHARS, MAX_TAGS, MAX_TITLE_CHARS, Status};
use crate::queue::MAX_BATCH_JOBS;

const TAG: &str = "articles";
const ONE: &str = "/api/v1/articles/{slug}";
const SLUG: &str = "my-first-post";

pub(super) fn describe(document: &mut Document) {
    schemas(document);
    document.operation("GET", "/api/v1/articles", list());
    document.operation("POST", "/api/v1/articles", create());
    document.operation("POST", "/api/v1/articles/bulk", create_bulk());
    document.operation("GET", ONE, get());
    document.operation("PATCH", ONE, update("updateArticle", "Change what the body names; the rest stays"));
    document.operation("PUT", ONE, update("putArticle", "The same as PATCH: what the body leaves out stays"));
    document.operation("DELETE", ONE, delete());
    document.operation("GET", "/api/v1/tags", tags());
}

fn list() -> Operation {
    let mut item = article(1, "Hello, *outbox*.");
    item.as_object_mut().map(|item| item.remove("content"));
    let answer = json!({ "items": [item], "page": 1, "limit": 20, "total": 1 });
    let mut statuses: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    statuses.push("all");
    paged(Operation::new("listArticles", "The articles, newest first, without their content"), 100, 20)
        .tag(TAG)
        .query("tag", "Only those with this tag, in any spelling.", json!({ "type": "string", "pattern": NO_CONTROLS }))
        .query("status", "Any but `published` needs a token.", json!({ "enum": statuses, "default": "published" }))
        .query("kind", "Only this kind.", json!({ "enum": kinds() }))
        .reads()
        .reply(200, Reply::new("One page.", page_of(&named("ArticleSummary"))).example(answer))
}

fn create() -> Operation {
    let body = json!({ "title": "My first post", "content": "Hello, *outbox*.", "tags": ["hello"] });
    let created = Reply::new("Created, committed and synced.", named("Article"))
        .example(article(1, "Hello, *outbox*."))
        .header("ETag", "Its state, for `If-Match`.")
        .header("Location", "Its path.");
    Operation::new("createArticle", "Create an article")
        .tag(TAG)
        .body(&named("NewArticle"), &body)
        .writes()
        .may_wait()
        .problem(409, "slug_taken")
        .problem(422, "invalid")
        .reply(201, created)
}

fn create_bulk() -> Operation {
    let body = json!([
        { "title": "One of many", "content": "The first.", "slug": "one-of-many" },
        { "title": "Another", "content": "Wants the same slug.", "slug": "one-of-many" },
    ]);
    let mut first = article(1, "The first.");
    first["slug"] = json!("one-of-many");
    first["title"] = json!("One of many");
    first["tags"] = json!([]);
    let message = "slug \"one-of-many\" belongs to another article; choose another or leave it out to have one derived";
    let refused = json!({ "code": "slug_taken", "message": message, "field": "slug" });
    let answer = json!({
        "items": [{ "status": 201, "article": first }, { "status": 409, "error": refused }], "created": 1, "failed": 1,
    });
    let outcome = json!({ "anyOf": [
        object(&json!({ "status": { "const": 201 }, "article": named("Article") })),
        object(&json!({ "status": { "const": 202 }, "job": { "type": "object", "required": ["id", "status", "location"] } })),
        object(&json!({ "status": { "enum": [409, 422, 500] }, "error": { "type": "object", "required": ["code", "message"] } })),
    ] });
    let count = json!({ "type": "integer", "minimum": 0 });
    let mut results =
        object(&json!({ "items": { "type": "array", "items": outcome }, "created": count, "failed": count }));
    results["properties"]["accepted"] =
        json!({ "type": "integer", "minimum": 1, "description": "Kept for later by a frozen site." });
    let about_item = "As for one article; what is none is refused in its place.";
    let item = json!({ "description": about_item, "anyOf": [named("NewArticle"), {}] });
    let articles = json!({ "type": "array", "minItems": 1, "maxItems": MAX_BATCH_JOBS, "items": item });
    let either = json!({ "anyOf": [articles, { "type": "object", "required": ["articles"], "properties": { "articles": articles } }] });
    Operation::new("createArticles", "Create many articles in one transaction")
        .tag(TAG)
        .about("Each is created or refused by itself; one result each, in order. One `Idempotency-Key` stands for the whole.")
        .body(&either, &body)
        .writes()
        .problem(422, "invalid")
        .problem(422, "too_many")
        .problem(429, "journal_full")
        .problem(503, "read_only")
        .reply(200, Reply::new("What became of each.", results).example(answer))
}

fn get() -> Operation {
    let found = Reply::new("The article.", named("Article"))
        .example(article(1, "Hello, *outbox*."))
        .header("ETag", "Its state, for `If-Match` and `If-None-Match`.");
    Operation::new("getArticle", "One article")
        .tag(TAG)
        .about("Without a token only what is published exists.")
        .segment("slug", "Its slug.", SLUG)
        .header("If-None-Match", "Entity tags that the client has.", tag_list())
        .reads()
        .problem(404, "not_found")
        .reply(200, found)
        .reply(304, Reply::empty("The client has it.").header("ETag", "Its state."))
}

fn update(id: &str, summary: &str) -> Operation {
    let (body, after) = match id {
        "updateArticle" => (json!({ "content": "Hello again." }), article(2, "Hello again.")),
        _ => (json!({ "content": "Hello for good." }), article(3, "Hello for good.")),
    };
    let changed = Reply::new("As it is now.", named("Article")).example(after).header("ETag", "Its new state.");
    guarded(Operation::new(id, summary))
        .about("Two who change different fields both keep their work. A change that changes nothing writes nothing.")
        .body(&named("ArticlePatch"), &body)
        .problem(409, "slug_taken")
        .problem(422, "invalid")
        .reply(200, changed)
}

fn delete() -> Operation {
    guarded(Operation::new("deleteArticle", "Delete an article")).reply(204, Reply::empty("It is gone."))
}

/// A write to one article that may name its state.
fn guarded(operation: Operation) -> Operation {
    operation
        .tag(TAG)
        .segment("slug", "Its present slug.", SLUG)
        .header("If-Match", "Only if the article is in one of these states: values of its `ETag` header.", tag_list())
        .reads()
        .writes()
        .may_wait()
        .problem(404, "not_found")
        .problem(412, "stale")
}

fn tags() -> Operation {
    let answer = json!({ "items": [{ "tag": "hello", "label": "hello", "count": 1 }] });
    let tag = object(&json!({
        "tag": { "type": "string", "description": "What all its spellings have in common." },
        "label": { "type": "string" },
        "count": { "type": "integer", "minimum": 1 },
    }));
    let all = object(&json!({ "items": { "type": "array", "items": tag } }));
    Operation::new("listTags", "The tags of what is published, with counts")
        .tag(TAG)
        .reads()
        .reply(200, Reply::new("All tags, by name.", all).example(answer))
}

/// Entity tags as a header has them.
fn tag_list() -> Value {
    let some = r#"^(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*$"#;
    json!({ "anyOf": [{ "const": "*" }, { "type": "string", "pattern": some }] })
}

fn kinds() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| kind.as_str()).collect()
}

/// The article of the examples.
fn article(version: u32, content: &str) -> Value {
    json!({
        "id": "0199a3b2-7c0f-7000-8000-000000000000",
        "kind": "post",
        "status": "published",
        "slug": SLUG,
        "title": "My first post",
        "content": content,
        "tags": ["hello"],
        "version": version,
        "created_at": "2026-06-10T11:30:00.120Z",
        "updated_at": "2026-06-10T11:30:00.120Z",
    })
}

fn schemas(document: &mut Document) {
    let time = json!({ "type": "string", "format": "date-time" });
    let mut stored = json!({
        "id": { "type": "string" },
        "kind": { "enum": kinds() },
        "status": { "enum": Status::ALL.iter().map(|status| status.as_str()).collect::<Vec<_>>() },
        "slug": { "type": "string" },
        "title": { "type": "string" },
        "tags": { "type": "array", "items": { "type": "string" }, "maxItems": MAX_TAGS },
        "version": { "type": "integer", "minimum": 1 },
        "created_at": time,
        "updated_at": time,
    });
    let with_time = |fields: &Value| {
        let mut schema = object(fields);
        schema["properties"]["publish_at"] =
            json!({ "type": "string", "format": "date-time", "description": "Of a scheduled article only." });
        schema
    };
    document.schema("ArticleSummary", with_time(&stored));
    stored["content"] = json!({ "type": "string", "contentMediaType": "text/markdown" });
    document.schema("Article", with_time(&stored));
    let mut new = patch_schema();
    document.schema("ArticlePatch", new.clone());
    new["required"] = json!(["title", "content"]);
    document.schema("NewArticle", new);
}

fn patch_schema() -> Value {
    // Not blank as a whole, and no control characters; Unicode's blanks are more than \s means everywhere.
    let title = format!("^[^{CONTROLS}]*[^{CONTROLS}{BLANKS}][^{CONTROLS}]*$");
    let visible = format!(
        "^(?!{SKIPPED}*\\.{SKIPPED}*(\\.{SKIPPED}*)?$)[^{CONTROLS}]*[^{CONTROLS}{BLANKS}{INVISIBLE}][^{CONTROLS}]*$"
    );
    let visible = visible.replace(SKIPPED, &format!("[{BLANKS}{INVISIBLE}]"));
    let passed_over = "Passed over, so that what was read can be sent back.";
    json!({
        "type": "object",
        "properties": {
            "title": { "type": "string", "minLength": 1, "maxLength": MAX_TITLE_CHARS, "pattern": title,
                "description": "One line. Stored as given." },
            "content": { "type": "string", "minLength": 1, "pattern": "^[^\\u0000]+$", "contentMediaType": "text/markdown",
                "description": "Markdown, at most 5 MB as UTF-8. Stored as given." },
            "slug": { "type": "string", "maxLength": MAX_SLUG_CHARS, "pattern": "^[a-z0-9][a-z0-9_-]*$",
                "description": "Derived from the title of a new article if left out." },
            "tags": { "type": "array", "description": "At most 20 different ones; case does not matter.",
                "items": { "type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARS, "pattern": visible } },
            "kind": { "enum": kinds() },
            "status": { "enum": Status::ALL.iter().map(|status| status.as_str()).collect::<Vec<_>>() },
            "publish_at": { "type": ["string", "null"], "format": "date-time",
                "description": "Publishes it then, by RFC 3339 with an offset; a time that has passed means now. null takes the time away." },
            "id": { "description": passed_over },
            "version": { "description": passed_over },
            "created_at": { "description": passed_over },
            "updated_at": { "description": passed_over },
        },
        "anyOf": [
            { "properties": { "status": { "enum": [Status::Draft.as_str(), Status::Published.as_str()] } } },
            { "properties": { "status": { "const": Status::Scheduled.as_str() }, "publish_at": { "type": "string" } },
                "required": ["status", "publish_at"] },
        ],
        "additionalProperties": false,
    })
}

/// Stands in a pattern for a character that a tag's key does not have.
const SKIPPED: &str = "SKIPPED";
const CONTROLS: &str = "\\u0000-\\u001f\\u007f-\\u009f";
const BLANKS: &str = " \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
/// The characters that `article::tag_key` drops, as far as patterns without the flag `u` can name them.
const INVISIBLE: &str = "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u206f\
    \\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff9-\\ufffb";
