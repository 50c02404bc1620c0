//! The operator's page at `/admin`: rendered here, without scripts, for who signed in with an administrator's token.
//!
//! Each section is a function that writes HTML (`overview`, `jobs`, `events`); a new one is a file and a line in [`overview::page`].

mod events;
mod frame;
mod jobs;
mod overview;
mod session;

use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Method, StatusCode};

use super::admin::act_failed;
use super::engine::{Request, Response};
use super::problem::Problem;
use super::request::Query;
use super::site::Parts;
use crate::outbox::Filter;
use crate::sinks::encode_segment;
use session::Operator;
pub(super) use session::Sessions;

type Answer = Result<Response, Problem>;

const CSS: &str = include_str!("admin.css");
/// No script at all, nothing from elsewhere.
const POLICY: &str =
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Answers a request below `/admin`; `path` is what comes after.
pub(super) fn answer(parts: &Parts, request: &Request, path: &[&str]) -> Answer {
    if path == ["admin.css"] {
        let css = Response::new(StatusCode::OK, CSS);
        let css = css.header(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
        return Ok(css.header(CACHE_CONTROL, HeaderValue::from_static("no-cache")));
    }
    let get = matches!(request.method, Method::GET | Method::HEAD);
    let known = matches!(path, [] | ["event"] | ["confirm"] | ["sign-in" | "sign-out" | "act"]);
    match (path, get, request.method == Method::POST) {
        (["sign-in" | "sign-out" | "act"], _, true) => post(parts, request, path[0]),
        ([] | ["event"] | ["confirm"], true, _) => look(parts, request, path.first().copied()),
        _ if known => Err(Problem::method_not_allowed(if path.len() == 1 && !get { "GET, HEAD" } else { "POST" })),
        _ => Ok(html(StatusCode::NOT_FOUND, frame::message("Not found", "There is no such page."))),
    }
}

fn look(parts: &Parts, request: &Request, page: Option<&str>) -> Answer {
    let Some(operator) = parts.sessions.find(&request.headers, &parts.access) else {
        return Ok(html(StatusCode::OK, frame::sign_in(None)));
    };
    let query = Query::parse(request.query.as_deref())?;
    let text = match page {
        Some("event") => events::page(parts, &operator, query.get("q")?.unwrap_or_default().trim())?,
        Some(_) => events::confirm(&operator, &query)?,
        None => overview::page(parts, &operator, query.get("done")?, query.get("cursor")?)?,
    };
    Ok(html(StatusCode::OK, text))
}

fn post(parts: &Parts, request: &Request, what: &str) -> Answer {
    session::same_origin(&request.headers)?;
    let body = std::str::from_utf8(&request.body).map_err(|_| Problem::bad_request("the form is not UTF-8"))?;
    let form = Query::parse(Some(body))?;
    if what == "sign-in" {
        let token = form.get("token")?.unwrap_or_default();
        return Ok(match parts.sessions.open(token, &parts.access, &request.headers) {
            Ok(cookie) => to("/admin").header(SET_COOKIE, cookie),
            Err(problem) => html(problem.status, frame::sign_in(Some(&problem.message))),
        });
    }
    let Some(operator) = parts.sessions.find(&request.headers, &parts.access) else { return Ok(to("/admin")) };
    if form.get("key")? != Some(&*operator.form_key) {
        return Err(Problem::forbidden("the form is not of this session: load the page anew"));
    }
    if what == "sign-out" {
        return Ok(to("/admin").header(SET_COOKIE, parts.sessions.close(&request.headers)?));
    }
    Ok(match act(parts, &operator, &form) {
        Ok(done) => to(&format!("/admin?done={}", encode_segment(&done))),
        Err(problem) => html(problem.status, frame::message("That was refused", &problem.message)),
    })
}

/// Does what a form asks for; what to say of it.
fn act(parts: &Parts, operator: &Operator, form: &Query) -> Result<String, Problem> {
    let field = |name| Ok::<_, Problem>(form.get(name)?.unwrap_or_default().trim());
    let (what, handler) = (field("act")?, field("handler")?);
    let id = || field("id")?.parse::<i64>().map_err(|_| Problem::bad_parameter("id", "must be a number"));
    let outbox = &parts.operator;
    if let Some(done) = jobs::act(parts, what, form)? {
        log::info!("operator act={what} outcome={done:?} by={} through=page", operator.caller.name);
        return Ok(done);
    }
    let done = match what {
        "replay" => {
            outbox.replay(id()?, handler, field("force")? == "yes").map_err(act_failed)?;
            format!("Event {} is delivered to {handler} once more.", id()?)
        }
        "replay-all" => {
            let many = outbox.replay_matching(&Filter::default().of_handler(handler), false).map_err(act_failed)?;
            format!("{} events of {handler} are delivered once more, {} were left.", many.replayed, many.left)
        }
        "discard" => {
            let reason = field("reason")?;
            if reason.is_empty() {
                return Err(Problem::bad_parameter("reason", "must say why"));
            }
            outbox.discard(id()?, handler, reason).map_err(act_failed)?;
            format!("Event {} is given up for {handler}.", id()?)
        }
        "hold" => {
            outbox.hold(handler).map_err(act_failed)?;
            format!("{handler} is held: nothing is delivered to it.")
        }
        "release" => {
            outbox.release(handler).map_err(act_failed)?;
            format!("{handler} goes on.")
        }
        _ => return Err(Problem::bad_parameter("act", "is none of those known here")),
    };
    log::info!("operator act={what} outcome={done:?} by={} through=page", operator.caller.name);
    Ok(done)
}

fn to(path: &str) -> Response {
    let response = html(StatusCode::SEE_OTHER, String::new());
    match HeaderValue::from_str(path) {
        Ok(path) => response.header(LOCATION, path),
        Err(_) => response,
    }
}

fn html(status: StatusCode, page: String) -> Response {
    const HEADERS: [(HeaderName, &str); 6] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    HEADERS
        .into_iter()
        .fold(Response::new(status, page), |page, (name, value)| page.header(name, HeaderValue::from_static(value)))
}
