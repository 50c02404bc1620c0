//! The operator's API below `/api/v1/admin/`: what the outbox holds, and what can be done about it.

mod acts;
mod problems;
mod view;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::access::Role;
use super::api::json_answer;
use super::problem::Problem;
use super::route::{Answer, Call, Guard, Route};
use crate::outbox::{ExceptionCursor, ExceptionState, Filter, MAX_PAGE};
pub(super) use problems::act_failed;
use view::{ExceptionView, LaneView, StoryView, stats_json};

const ADMIN: Guard = Guard::Token(Role::Admin);
/// Rows on a page, unless asked otherwise.
const ROWS_BY_DEFAULT: u32 = 50;

/// What is about the outbox, the services and the search index.
pub(super) const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/api/v1/admin/outbox/stats", guard: ADMIN, answer: stats },
    Route { method: "GET", path: "/api/v1/admin/outbox/events", guard: ADMIN, answer: events },
    Route { method: "GET", path: "/api/v1/admin/outbox/events/{id}", guard: ADMIN, answer: event },
    Route { method: "POST", path: "/api/v1/admin/outbox/events/{id}/replay", guard: ADMIN, answer: acts::replay },
    Route { method: "POST", path: "/api/v1/admin/outbox/events/{id}/discard", guard: ADMIN, answer: acts::discard },
    Route { method: "POST", path: "/api/v1/admin/outbox/replay", guard: ADMIN, answer: acts::replay_matching },
    Route { method: "GET", path: "/api/v1/admin/lanes", guard: ADMIN, answer: lanes },
    Route { method: "POST", path: "/api/v1/admin/lanes/{handler}/hold", guard: ADMIN, answer: acts::hold },
    Route { method: "POST", path: "/api/v1/admin/lanes/{handler}/release", guard: ADMIN, answer: acts::release },
    Route { method: "POST", path: "/api/v1/admin/lanes/{handler}/resume", guard: ADMIN, answer: acts::resume },
    Route { method: "GET", path: "/api/v1/admin/services", guard: ADMIN, answer: services },
    Route { method: "POST", path: "/api/v1/admin/search/rebuild", guard: ADMIN, answer: acts::rebuild },
];

/// `GET /api/v1/admin/outbox/stats`
fn stats(call: &Call<'_>) -> Answer {
    let stats = call.parts.operator.stats()?;
    let writer = call.parts.articles.repository().database().writer().stats();
    json_answer(StatusCode::OK, &stats_json(&stats, &writer, &call.parts.relay.status()))
}

/// `GET /api/v1/admin/outbox/events`: exceptions, page by page.
fn events(call: &Call<'_>) -> Answer {
    let query = call.query()?;
    let mut filter = Filter::states(states(query.get("status")?)?);
    filter.handler = query.get("handler")?.map(str::to_owned);
    filter.event_type = query.get("event_type")?.map(str::to_owned);
    filter.key = query.get("key")?.map(str::to_owned);
    filter.reason = query.get("reason")?.map(str::to_owned);
    let limit = query.number("limit", ROWS_BY_DEFAULT)?;
    if limit as usize > MAX_PAGE {
        return Err(Problem::bad_parameter("limit", format!("must be 1 to {MAX_PAGE}")));
    }
    let cursor = match query.get("cursor")? {
        None => None,
        Some(text) => Some(
            text.parse::<ExceptionCursor>()
                .map_err(|_| Problem::bad_parameter("cursor", "must be what an earlier answer gave as next_cursor"))?,
        ),
    };
    let page = call.parts.operator.exceptions(&filter, cursor.as_ref(), limit as usize)?;
    let items: Vec<ExceptionView<'_>> = page.exceptions.iter().map(ExceptionView::from).collect();
    let next = page.next.map(|next| next.to_string());
    json_answer(StatusCode::OK, &json!({ "items": items, "next_cursor": next }))
}

/// Which states a list shows: one by its name, `open`, or `all`.
pub(super) fn states(name: Option<&str>) -> Result<Vec<ExceptionState>, Problem> {
    match name {
        None => Ok(vec![ExceptionState::DeadLetter]),
        Some("all") => Ok(ExceptionState::ALL.to_vec()),
        Some("open") => Ok(vec![ExceptionState::Parked, ExceptionState::Retry, ExceptionState::Waiting]),
        Some(name) => match name.parse() {
            Ok(state) => Ok(vec![state]),
            Err(_) => {
                let known = ExceptionState::ALL.map(ExceptionState::stored).join(", ");
                Err(Problem::bad_parameter("status", format!("must be one of {known}, open, all")))
            }
        },
    }
}

/// `GET /api/v1/admin/outbox/events/{id}`: a number in the log, or an event id.
fn event(call: &Call<'_>) -> Answer {
    let story = call.parts.operator.show(call.segment())?;
    let story = story.ok_or_else(|| no_such_event(call.segment()))?;
    json_answer(StatusCode::OK, &StoryView::from(&story))
}

pub(super) fn no_such_event(id: &str) -> Problem {
    Problem::not_found(format!("no event has the number or id {id:?}; delivered ones are removed in time"))
}

/// `GET /api/v1/admin/lanes`
fn lanes(call: &Call<'_>) -> Answer {
    let (stored, running) = (call.parts.operator.lanes()?, call.parts.relay.status());
    let view = |lane| LaneView::new(lane, running.iter().find(|status| status.handler == lane.handler));
    let items: Vec<LaneView<'_>> = stored.iter().map(view).collect();
    json_answer(StatusCode::OK, &json!({ "items": items }))
}

/// `GET /api/v1/admin/services`
fn services(call: &Call<'_>) -> Answer {
    let health = (call.parts.health)();
    let body: Value = json!({
        "ready": health.ready, "color": health.color(), "reasons": health.reasons(), "items": health.services,
    });
    json_answer(StatusCode::OK, &body)
}
