//! What an operator does: replay, discard, hold, release, resume, rebuild.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::no_such_event;
use super::problems::act_failed;
use crate::http::api::json_answer;
use crate::http::problem::Problem;
use crate::http::request::json_body;
use crate::http::route::{Answer, Call};
use crate::http::site::Parts;
use crate::outbox::{EventStory, ExceptionState, Filter};

/// How long before a request's deadline a rebuild stops working on it.
const MARGIN: Duration = Duration::from_secs(5);
/// Longest reason that is taken, in characters; it is kept whole.
const MAX_REASON: usize = 2_000;

/// `POST /api/v1/admin/outbox/events/{id}/replay`: for one handler, or for each that has given the event up.
pub(super) fn replay(call: &Call<'_>) -> Answer {
    let body = Body::of(call)?;
    body.only(&["handler", "force"])?;
    let (handler, force) = (body.text("handler")?, body.flag("force")?);
    let story = find(call.parts, call.segment())?;
    let handlers = match handler {
        Some(handler) => vec![handler.to_owned()],
        None => given_up(&story),
    };
    if handlers.is_empty() {
        return Err(Problem::new(StatusCode::CONFLICT, "not_dead", "no handler has given this event up"));
    }
    let id = position(&story).ok_or_else(|| no_such_event(call.segment()))?;
    for handler in &handlers {
        call.parts.operator.replay(id, handler, force).map_err(act_failed)?;
        log::info!("operator act=replay event={id} handler={handler} force={force} by={}", call.by());
    }
    json_answer(StatusCode::OK, &json!({ "id": id, "handlers": handlers }))
}

/// `POST /api/v1/admin/outbox/events/{id}/discard`
pub(super) fn discard(call: &Call<'_>) -> Answer {
    let body = Body::of(call)?;
    body.only(&["handler", "reason"])?;
    let (handler, reason) = (body.required("handler")?, body.required("reason")?);
    let story = find(call.parts, call.segment())?;
    let id = position(&story).ok_or_else(|| no_such_event(call.segment()))?;
    call.parts.operator.discard(id, handler, reason).map_err(act_failed)?;
    log::info!("operator act=discard event={id} handler={handler} reason={reason:?} by={}", call.by());
    json_answer(StatusCode::OK, &json!({ "id": id, "handlers": [handler] }))
}

/// `POST /api/v1/admin/outbox/replay`: every dead letter and parked event that fits.
pub(super) fn replay_matching(call: &Call<'_>) -> Answer {
    let body = Body::of(call)?;
    body.only(&["handler", "event_type", "key", "reason", "force"])?;
    let mut filter = Filter::states([ExceptionState::DeadLetter, ExceptionState::Parked]);
    filter.handler = body.text("handler")?.map(str::to_owned);
    filter.event_type = body.text("event_type")?.map(str::to_owned);
    filter.key = body.text("key")?.map(str::to_owned);
    filter.reason = body.text("reason")?.map(str::to_owned);
    let force = body.flag("force")?;
    let done = call.parts.operator.replay_matching(&filter, force).map_err(act_failed)?;
    log::info!("operator act=replay_matching replayed={} left={} by={}", done.replayed, done.left, call.by());
    json_answer(StatusCode::OK, &json!({ "replayed": done.replayed, "left": done.left }))
}

/// `POST /api/v1/admin/lanes/{handler}/hold`
pub(super) fn hold(call: &Call<'_>) -> Answer {
    Body::of(call)?.only(&[])?;
    call.parts.operator.hold(call.segment()).map_err(act_failed)?;
    log::info!("operator act=hold handler={} by={}", call.segment(), call.by());
    json_answer(StatusCode::OK, &json!({ "handler": call.segment(), "held": true }))
}

/// `POST /api/v1/admin/lanes/{handler}/release`
pub(super) fn release(call: &Call<'_>) -> Answer {
    Body::of(call)?.only(&[])?;
    call.parts.operator.release(call.segment()).map_err(act_failed)?;
    log::info!("operator act=release handler={} by={}", call.segment(), call.by());
    json_answer(StatusCode::OK, &json!({ "handler": call.segment(), "held": false }))
}

/// `POST /api/v1/admin/lanes/{handler}/resume`: passes over the parked events of a key.
pub(super) fn resume(call: &Call<'_>) -> Answer {
    let body = Body::of(call)?;
    body.only(&["key"])?;
    let key = body.required("key")?;
    let passed = call.parts.operator.resume(call.segment(), key).map_err(act_failed)?;
    log::info!("operator act=resume handler={} key={key:?} by={}", call.segment(), call.by());
    json_answer(StatusCode::OK, &json!({ "handler": call.segment(), "key": key, "passed_over": passed }))
}

/// `POST /api/v1/admin/search/rebuild`: works until it is done or the request's time is up; sent again, it goes on.
pub(super) fn rebuild(call: &Call<'_>) -> Answer {
    Body::of(call)?.only(&[])?;
    let until = call.request.deadline.checked_sub(MARGIN).unwrap_or_else(Instant::now);
    let (report, finished) = call.parts.search.rebuild_until(until)?;
    log::info!("operator act=search_rebuild finished={finished} seen={} by={}", report.seen, call.by());
    let status = if finished { StatusCode::OK } else { StatusCode::ACCEPTED };
    let (seen, written, removed) = (report.seen, report.written, report.removed);
    json_answer(status, &json!({ "finished": finished, "seen": seen, "written": written, "removed": removed }))
}

fn find(parts: &Parts, id: &str) -> Result<EventStory, Problem> {
    parts.operator.show(id)?.ok_or_else(|| no_such_event(id))
}

/// The event's place in the log, which an exception knows even when the event is gone.
fn position(story: &EventStory) -> Option<i64> {
    let of_event = story.event.as_ref().map(|event| event.id);
    of_event.or_else(|| story.exceptions.first().map(|exception| exception.outbox_id))
}

fn given_up(story: &EventStory) -> Vec<String> {
    let dead = |state| matches!(state, ExceptionState::DeadLetter | ExceptionState::Parked);
    story.exceptions.iter().filter(|row| dead(row.state)).map(|row| row.handler.clone()).collect()
}

/// A small JSON object; none at all counts as an empty one.
struct Body(Map<String, Value>);

impl Body {
    fn of(call: &Call<'_>) -> Result<Self, Problem> {
        if call.request.body.is_empty() {
            return Ok(Self(Map::new()));
        }
        match json_body(call.request)? {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Problem::bad_request("the body must be a JSON object, or empty")),
        }
    }

    /// No fields but these: a misspelt one must not widen what is meant.
    fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => Err(invalid(name, "is no field of this")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if is_plain(text) => Ok(Some(text)),
            Some(_) => Err(invalid(name, "must be a text of 1 to 2000 characters without control characters")),
        }
    }

    fn required(&self, name: &str) -> Result<&str, Problem> {
        self.text(name)?.ok_or_else(|| invalid(name, "must be given"))
    }

    fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.0.get(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(invalid(name, "must be true or false")),
        }
    }
}

fn is_plain(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MAX_REASON && !text.chars().any(char::is_control)
}

fn invalid(field: &str, reason: &str) -> Problem {
    let message = format!("{field} {reason}");
    Problem { field: Some(field.to_owned()), ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message) }
}
