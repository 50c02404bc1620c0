//! Articles by id, for workers on other machines: an event names its article by id, and slugs change.

use hyper::StatusCode;
use serde::Serialize;

use super::access::Role;
use super::api::{article_answer, json_answer};
use super::edge::keyed;
use super::problem::Problem;
use super::route::{Answer, Call, Guard, Route};
use crate::article::Status;
use crate::clock::rfc3339;
use crate::sinks::cdn::keys;

/// Most stamps in one answer.
const MAX_STAMPS: u32 = 1_000;

pub(super) const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/api/v1/articles/by-id/{id}", guard: Guard::Public, answer: get },
    Route { method: "GET", path: "/api/v1/article-stamps", guard: Guard::Token(Role::Write), answer: stamps },
];

/// `GET /api/v1/articles/by-id/{id}`: to who has no token, what is not published does not exist.
fn get(call: &Call<'_>) -> Answer {
    let id = call.segment();
    let article = call.parts.articles.repository().by_id(id)?;
    let answer = match article.filter(|article| article.status == Status::Published || call.caller.is_some()) {
        Some(article) => article_answer(StatusCode::OK, &article)?,
        // The field tells this 404 from one of a wrong path: only this one means that the article is gone.
        None => Problem { field: Some("id".to_owned()), ..Problem::not_found(format!("no article has the id {id:?}")) }
            .into(),
    };
    Ok(keyed(answer, [&*keys::article(id)]))
}

#[derive(Debug, Serialize)]
struct StampView {
    id: String,
    version: i64,
    updated_at: String,
}

/// `GET /api/v1/article-stamps?after=ID&limit=N`: ids and versions of all articles by id, drafts too.
fn stamps(call: &Call<'_>) -> Answer {
    let query = call.query()?;
    let limit = query.number("limit", 100)?;
    if !(1..=MAX_STAMPS).contains(&limit) {
        return Err(Problem::bad_parameter("limit", format!("must be 1 to {MAX_STAMPS}")));
    }
    let stamps = call.parts.articles.repository().stamps_after(query.get("after")?, limit)?;
    let view = |stamp: crate::article::ArticleStamp| StampView {
        id: stamp.id,
        version: stamp.version,
        updated_at: rfc3339(stamp.updated_at),
    };
    let items: Vec<StampView> = stamps.into_iter().map(view).collect();
    json_answer(StatusCode::OK, &serde_json::json!({ "items": items }))
}
