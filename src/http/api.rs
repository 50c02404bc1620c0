//! The article API under `/api/v1`.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, LOCATION};
use serde::Serialize;
use serde_json::{Value, json};

use super::access::{Access, Role};
use super::conditional::{self, Condition};
use super::edge::keyed;
use super::engine::Response;
use super::idempotency;
use super::jobs;
use super::problem::Problem;
use super::request::{Query, json_body};
use super::route::{Answer, Call, Guard, Route};
use super::view::{ArticleView, ListView, rfc3339};
use crate::article::{
    Article, ArticleError, ArticlePatch, ArticleStamp, Expected, Kind, ListQuery, NewArticle, Status,
};
use crate::queue::WriteError;
use crate::service::ArticleService;
use crate::sinks::cdn::keys;
use crate::sinks::search::MAX_LIMIT;

const WRITER: Guard = Guard::Token(Role::Write);

/// `bulk` stands before `{slug}`; but an article may have that slug too, as only POST means the batch.
pub(super) const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/api/v1/articles", guard: Guard::Public, answer: list },
    Route { method: "POST", path: "/api/v1/articles", guard: WRITER, answer: create },
    Route { method: "POST", path: "/api/v1/articles/bulk", guard: WRITER, answer: create_bulk },
    Route { method: "GET", path: "/api/v1/articles/{slug}", guard: Guard::Public, answer: get },
    Route { method: "PATCH", path: "/api/v1/articles/{slug}", guard: WRITER, answer: update },
    Route { method: "PUT", path: "/api/v1/articles/{slug}", guard: WRITER, answer: update },
    Route { method: "DELETE", path: "/api/v1/articles/{slug}", guard: WRITER, answer: delete },
    Route { method: "GET", path: "/api/v1/tags", guard: Guard::Public, answer: tags },
    Route { method: "GET", path: "/api/v1/search", guard: Guard::Public, answer: search },
];

/// `POST /api/v1/articles`
fn create(call: &Call<'_>) -> Answer {
    let context = idempotency::context(call)?;
    let article = NewArticle::from_json(&json_body(call.request)?).map_err(WriteError::from)?;
    let article = match jobs::or_accepted(call.parts.articles.create(article, &context))? {
        Ok(article) => article,
        Err(accepted) => return Ok(accepted),
    };
    let location = HeaderValue::from_str(&format!("/api/v1/articles/{}", article.slug));
    let response = article_answer(StatusCode::CREATED, &article)?;
    Ok(match location {
        Ok(location) => response.header(LOCATION, location),
        Err(_) => response,
    })
}

/// `POST /api/v1/articles/bulk`: one result per article, in order; each is created or refused by itself.
fn create_bulk(call: &Call<'_>) -> Answer {
    let articles = &call.parts.articles;
    let context = idempotency::context(call)?;
    let body = json_body(call.request)?;
    let items = bulk_items(&body)?;
    // What cannot be read is refused in its place; the rest goes to the writer together.
    let read: Vec<Result<NewArticle, ArticleError>> = items.iter().map(NewArticle::from_json).collect();
    let good: Vec<NewArticle> = read.iter().filter_map(|item| item.as_ref().ok().cloned()).collect();
    let mut written = if good.is_empty() { Vec::new() } else { articles.create_bulk(good, &context)? }.into_iter();
    let (mut created, mut accepted) = (0_usize, 0_usize);
    let results: Vec<Value> = read
        .into_iter()
        .map(|item| match item {
            Ok(_) => written.next().unwrap_or_else(|| Err(WriteError::Internal("a result is missing".to_owned()))),
            Err(error) => Err(error.into()),
        })
        .map(|result| match result {
            Ok(article) => {
                created += 1;
                json!({ "status": 201, "article": ArticleView::from(&article) })
            }
            Err(WriteError::Deferred { job }) => {
                accepted += 1;
                json!({ "status": 202, "job": jobs::named(job) })
            }
            Err(error) => {
                let problem = Problem::from(error);
                json!({ "status": problem.status.as_u16(), "error": problem.to_json()["error"] })
            }
        })
        .collect();
    let failed = results.len() - created - accepted;
    let mut body = json!({ "items": results, "created": created, "failed": failed });
    if accepted > 0 {
        body["accepted"] = json!(accepted);
    }
    json_answer(StatusCode::OK, &body)
}

fn bulk_items(body: &Value) -> Result<&Vec<Value>, Problem> {
    let items = match body {
        Value::Array(items) => Some(items),
        Value::Object(object) => object.get("articles").and_then(Value::as_array),
        _ => None,
    };
    let invalid = |reason: &str| Problem::from(WriteError::from(ArticleError::invalid("articles", reason)));
    match items {
        None => Err(invalid("must be an array of articles, alone or as {\"articles\": […]}")),
        Some(items) if items.is_empty() => Err(invalid("must be at least one")),
        Some(items) if items.len() > crate::queue::MAX_BATCH_JOBS => {
            let error = ArticleError::TooMany { given: items.len(), limit: crate::queue::MAX_BATCH_JOBS };
            Err(WriteError::from(error).into())
        }
        Some(items) => Ok(items),
    }
}

/// `GET /api/v1/articles`
fn list(call: &Call<'_>) -> Answer {
    let query = list_query(&call.query()?)?;
    if query.status != Some(Status::Published) {
        Access::require(call.caller.clone(), Role::Write)?;
    }
    let page = call.parts.articles.list(&query)?;
    let items = page.items.iter().map(ArticleView::from).collect();
    let list = ListView { items, page: page.page, limit: page.limit, total: page.total };
    Ok(keyed(json_answer(StatusCode::OK, &list)?, [keys::LISTS]))
}

fn list_query(query: &Query) -> Result<ListQuery, Problem> {
    let defaults = ListQuery::default();
    let status = match query.get("status")? {
        None => defaults.status,
        Some("all") => None,
        Some(name) => Some(name.parse::<Status>().map_err(|_| {
            Problem::bad_parameter("status", "must be \"published\", \"draft\", \"scheduled\" or \"all\"")
        })?),
    };
    let kind = match query.get("kind")? {
        None => None,
        Some(name) => {
            Some(name.parse::<Kind>().map_err(|_| Problem::bad_parameter("kind", "must be \"post\" or \"page\""))?)
        }
    };
    Ok(ListQuery {
        page: query.number("page", defaults.page)?,
        limit: query.number("limit", defaults.limit)?,
        tag: query.get("tag")?.map(str::to_owned),
        status,
        kind,
    })
}

/// `GET /api/v1/articles/{slug}`: to who has no token, what is not published does not exist.
fn get(call: &Call<'_>) -> Answer {
    let condition = Condition::if_none_match(&call.request.headers)?;
    let article = call.parts.articles.get(call.segment())?;
    let visible = article.filter(|article| article.status == Status::Published || call.caller.is_some());
    let slug_key = keys::slug(call.segment());
    // That there is nothing may be kept too, until an article comes to this address.
    let Some(article) = visible else { return Ok(keyed(no_article(call.segment()).into(), [&*slug_key])) };
    let tag = tag_of(&article);
    let response = match condition.matches_weakly(&tag) {
        true => with_tag(Response::new(StatusCode::NOT_MODIFIED, ""), &tag),
        false => article_answer(StatusCode::OK, &article)?,
    };
    Ok(keyed(response, [&*keys::article(&article.id), &slug_key]))
}

/// `PATCH` and `PUT /api/v1/articles/{slug}`: what the body leaves out stays.
fn update(call: &Call<'_>) -> Answer {
    let (articles, slug) = (&call.parts.articles, call.segment());
    let context = idempotency::context(call)?;
    let condition = Condition::if_match(&call.request.headers)?;
    let patch = ArticlePatch::from_json(&json_body(call.request)?).map_err(WriteError::from)?;
    if let Some(before) = articles.repeated(&context)? {
        return updated(before);
    }
    let expected = expectation(articles, slug, &condition)?;
    updated(articles.update(slug, patch, expected, &context))
}

fn updated(written: Result<Article, WriteError>) -> Answer {
    match jobs::or_accepted(written)? {
        Ok(article) => article_answer(StatusCode::OK, &article),
        Err(accepted) => Ok(accepted),
    }
}

/// `DELETE /api/v1/articles/{slug}`
fn delete(call: &Call<'_>) -> Answer {
    let (articles, slug) = (&call.parts.articles, call.segment());
    let context = idempotency::context(call)?;
    let condition = Condition::if_match(&call.request.headers)?;
    if let Some(before) = articles.repeated(&context)? {
        return deleted(before);
    }
    let expected = expectation(articles, slug, &condition)?;
    deleted(articles.delete(slug, expected, &context))
}

fn deleted(written: Result<Article, WriteError>) -> Answer {
    Ok(jobs::or_accepted(written)?.map_or_else(|accepted| accepted, |_| Response::new(StatusCode::NO_CONTENT, "")))
}

/// Turns `If-Match` into what the transaction compares. The article may change between this look and the transaction;
/// then the comparison there fails.
fn expectation(articles: &ArticleService, slug: &str, condition: &Condition) -> Result<Expected, Problem> {
    match condition {
        Condition::None | Condition::Any => Ok(Expected::any()),
        Condition::Tags(_) => {
            let article = find(articles, slug)?;
            let tag = tag_of(&article);
            if condition.matches_strongly(&tag) {
                return Ok(Expected::exactly(&article));
            }
            let message = format!(
                "the article is another than If-Match names: its version is {}, changed at {}; read it again, and send the value \
                 of its ETag header, {tag} now",
                article.version,
                rfc3339(article.updated_at)
            );
            Err(Problem::new(StatusCode::PRECONDITION_FAILED, "stale", message))
        }
    }
}

/// `GET /api/v1/tags`
fn tags(call: &Call<'_>) -> Answer {
    Ok(keyed(json_answer(StatusCode::OK, &json!({ "items": call.parts.articles.tags()? }))?, [keys::LISTS]))
}

/// `GET /api/v1/search?q=`
fn search(call: &Call<'_>) -> Answer {
    let query = call.query()?;
    let words = query.get("q")?.ok_or_else(|| Problem::bad_parameter("q", "is missing: say what to look for"))?;
    let limit = query.number("limit", 20)?;
    if limit > MAX_LIMIT {
        return Err(Problem::bad_parameter("limit", format!("must be 1 to {MAX_LIMIT}")));
    }
    let found = call.parts.search.search(words, query.number("page", 1)?, limit)?;
    let items = found
        .items
        .iter()
        .map(|hit| {
            json!({
                "id": hit.id,
                "slug": hit.slug,
                "title": hit.title,
                "title_html": hit.title_html,
                "snippet_html": hit.snippet,
                "tags": hit.tags,
                "created_at": rfc3339(hit.created_at),
                "score": hit.score,
            })
        })
        .collect();
    json_answer(StatusCode::OK, &ListView { items, page: found.page, limit: found.limit, total: found.total })
}

fn find(articles: &ArticleService, slug: &str) -> Result<Article, Problem> {
    articles.get(slug)?.ok_or_else(|| no_article(slug))
}

fn no_article(slug: &str) -> Problem {
    Problem::not_found(format!("no article has the slug {slug:?}"))
}

fn tag_of(article: &Article) -> String {
    conditional::entity_tag(&ArticleStamp::of(article))
}

pub(super) fn article_answer(status: StatusCode, article: &Article) -> Answer {
    Ok(with_tag(json_answer(status, &ArticleView::from(article))?, &tag_of(article)))
}

fn with_tag(response: Response, tag: &str) -> Response {
    match conditional::header_value(tag) {
        Some(value) => response.header(ETAG, value),
        None => response,
    }
}

pub(super) fn json_answer(status: StatusCode, value: &impl Serialize) -> Answer {
    let body = serde_json::to_vec(value)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", error.to_string()))?;
    Ok(Response::new(status, body).header(CONTENT_TYPE, HeaderValue::from_static("application/json")))
}
