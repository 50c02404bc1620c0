//! Search.

use serde_json::json;

use super::document::{Document, object, page_of, paged};
use super::operation::{Operation, Reply};
use crate::sinks::search::MAX_LIMIT;

pub(super) fn describe(document: &mut Document) {
    let hit = object(&json!({
        "id": { "type": "string" },
        "slug": { "type": "string" },
        "title": { "type": "string" },
        "title_html": { "type": "string", "description": "Escaped, with <mark> around what matched." },
        "snippet_html": { "type": "string", "description": "Escaped, with <mark> around what matched." },
        "tags": { "type": "array", "items": { "type": "string" } },
        "created_at": { "type": "string", "format": "date-time" },
        "score": { "type": "number", "description": "Higher is better; compares within one answer." },
    }));
    let answer = json!({
        "items": [{
            "id": "0199a3b2-7c0f-7000-8000-000000000000",
            "slug": "my-first-post",
            "title": "My first post",
            "title_html": "My first post",
            "snippet_html": "Hello, <mark>outbox</mark>.",
            "tags": ["hello"],
            "created_at": "2026-06-10T11:30:00.120Z",
            "score": 1.5,
        }],
        "page": 1, "limit": 20, "total": 1,
    });
    let about = "Words that must all occur; one that ends in * is a beginning. No character is syntax. At most 32 words. An \
                 article is found a moment after its answer, once its event was delivered.";
    // Control characters but tabs and line ends are refused; 32 words at most is more than a pattern should say.
    let words = json!({ "type": "string", "maxLength": 200, "pattern": "^[^\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f]*$" });
    let search = paged(Operation::new("searchArticles", "Full-text search over what is published"), MAX_LIMIT, 20)
        .tag("search")
        .about(about)
        .required_query("q", "What to look for.", words, "outbox")
        .problem(503, "search_unavailable")
        .reply(200, Reply::new("The hits, the best first.", page_of(&hit)).example(answer));
    document.operation("GET", "/api/v1/search", search);
}
