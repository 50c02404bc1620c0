//! Jobs and the mode of the site under `/api/v1`, and the answer of a write that waits.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{HeaderValue, LOCATION};
use serde::Serialize;
use serde_json::{Value, json};

use super::access::Role;
use super::api::json_answer;
use super::engine::Response;
use super::problem::Problem;
use super::request::json_body;
use super::route::{Answer, Call, Guard, Route};
use super::view::rfc3339;
use crate::article::Article;
use crate::jobs::{Job, JobError, JobQuery, JobRunner, JobStatus, Jobs, MAX_PAGE, Mode, ModeInfo};
use crate::queue::WriteError;

const ADMIN: Guard = Guard::Token(Role::Admin);
/// What is left of a request's time for its answer once a freeze has given up.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

pub(super) const ROUTES: &[Route] = &[
    Route { method: "GET", path: "/api/v1/jobs/{id}", guard: Guard::Token(Role::Write), answer: get },
    Route { method: "GET", path: "/api/v1/admin/jobs", guard: ADMIN, answer: list },
    Route { method: "GET", path: "/api/v1/admin/jobs/{id}", guard: ADMIN, answer: show },
    Route { method: "POST", path: "/api/v1/admin/jobs/{id}/replay", guard: ADMIN, answer: replay },
    Route { method: "POST", path: "/api/v1/admin/jobs/{id}/cancel", guard: ADMIN, answer: cancel },
    Route { method: "POST", path: "/api/v1/admin/jobs/{id}/discard", guard: ADMIN, answer: discard },
    Route { method: "GET", path: "/api/v1/admin/mode", guard: ADMIN, answer: mode },
    Route { method: "PUT", path: "/api/v1/admin/mode", guard: ADMIN, answer: set_mode },
];

/// The jobs of a site, and who works them off.
#[derive(Debug, Clone)]
pub(super) struct SiteJobs {
    pub(super) jobs: Jobs,
    pub(super) runner: JobRunner,
}

/// The article that was written, or the answer of a write that waits.
///
/// # Errors
/// The write was refused.
pub(super) fn or_accepted(written: Result<Article, WriteError>) -> Result<Result<Article, Response>, Problem> {
    match written {
        Ok(article) => Ok(Ok(article)),
        Err(WriteError::Deferred { job }) => accepted(job).map(Err),
        Err(error) => Err(error.into()),
    }
}

/// How an answer names a job that waits.
pub(super) fn named(job: i64) -> Value {
    json!({ "id": job, "status": JobStatus::Pending, "location": location(job) })
}

fn location(job: i64) -> String {
    format!("/api/v1/jobs/{job}")
}

/// 202: committed as a job.
fn accepted(job: i64) -> Answer {
    let response = json_answer(StatusCode::ACCEPTED, &json!({ "job": named(job) }))?;
    Ok(match HeaderValue::from_str(&location(job)) {
        Ok(location) => response.header(LOCATION, location),
        Err(_) => response,
    })
}

/// What becomes of writes, for `/health/ready`.
pub(super) fn health(jobs: &SiteJobs) -> Value {
    match jobs.jobs.mode().and_then(|info| Ok((info, jobs.jobs.stats()?))) {
        Ok((info, stats)) => json!({
            "mode": info.mode,
            "draining": info.draining,
            "since": info.since.map(rfc3339),
            "pending_jobs": stats.pending,
            "scheduled_jobs": stats.scheduled,
            "dead_jobs": stats.dead_letter + stats.quarantined,
            "fault": jobs.runner.status().fault,
        }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

/// A job as its sender sees it; an operator sees more.
#[derive(Debug, Serialize)]
struct JobView<'a> {
    id: i64,
    status: JobStatus,
    operation: Option<&'a str>,
    run_at: Option<String>,
    replays: u32,
    correlation_id: Option<&'a str>,
    event_id: Option<&'a str>,
    article_id: Option<&'a str>,
    /// Of the article, once the job is applied.
    slug: Option<&'a str>,
    error: Option<&'a str>,
    created_at: String,
    updated_at: String,
}

impl<'a> From<&'a Job> for JobView<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            id: job.id,
            status: job.status,
            operation: job.operation.as_deref(),
            run_at: job.run_at.map(rfc3339),
            replays: job.replays,
            correlation_id: job.correlation_id.as_deref(),
            event_id: job.event_id.as_deref(),
            article_id: job.article_id.as_deref(),
            slug: job.slug.as_deref(),
            error: job.last_error.as_deref(),
            created_at: rfc3339(job.created_at),
            updated_at: rfc3339(job.updated_at),
        }
    }
}

/// `GET /api/v1/jobs/{id}`
fn get(call: &Call<'_>) -> Answer {
    let job = find(call)?;
    json_answer(StatusCode::OK, &JobView::from(&job))
}

/// `GET /api/v1/admin/jobs/{id}`: with the body.
fn show(call: &Call<'_>) -> Answer {
    let job = find(call)?;
    let mut view = json!(JobView::from(&job));
    view["idempotency_key"] = json!(job.idempotency_key);
    view["body"] = job.body.map_or(Value::Null, |body| serde_json::from_str(&body).unwrap_or(json!(body)));
    json_answer(StatusCode::OK, &view)
}

/// `GET /api/v1/admin/jobs?status=&limit=&after=`: in the order in which they came to that status.
fn list(call: &Call<'_>) -> Answer {
    let parameters = call.query()?;
    let mut query = JobQuery::default();
    if let Some(status) = parameters.get("status")? {
        query.status = status.parse().map_err(|reason| Problem::bad_parameter("status", reason))?;
    }
    let limit = parameters.number("limit", 50)?;
    query.limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if query.limit > MAX_PAGE {
        return Err(Problem::bad_parameter("limit", format!("must be 1 to {MAX_PAGE}")));
    }
    if let Some(after) = parameters.get("after")? {
        let place = after.rsplit_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
        let invalid = || Problem::bad_parameter("after", "must be what an earlier answer gave as next");
        query.after = Some(place.ok_or_else(invalid)?);
    }
    let found = jobs(call)?.jobs.list(&query)?;
    let next =
        found.last().filter(|_| found.len() == query.limit).map(|last| format!("{}-{}", last.updated_at, last.id));
    let items: Vec<JobView<'_>> = found.iter().map(JobView::from).collect();
    json_answer(StatusCode::OK, &json!({ "items": items, "next": next }))
}

/// `POST /api/v1/admin/jobs/{id}/replay`
fn replay(call: &Call<'_>) -> Answer {
    let force = flag(&options(call, &["force"])?, "force")?;
    let (id, jobs) = (number(call)?, jobs(call)?);
    jobs.jobs.replay(id, force)?;
    log::info!("operator act=job_replay job={id} force={force} by={}", call.by());
    jobs.runner.notify();
    get(call)
}

/// `POST /api/v1/admin/jobs/{id}/cancel`
fn cancel(call: &Call<'_>) -> Answer {
    let reason = reason(&options(call, &["reason"])?)?;
    let id = number(call)?;
    jobs(call)?.jobs.cancel(id, reason.as_deref())?;
    log::info!("operator act=job_cancel job={id} by={}", call.by());
    get(call)
}

/// `POST /api/v1/admin/jobs/{id}/discard`: 204.
fn discard(call: &Call<'_>) -> Answer {
    let reason = reason(&options(call, &["reason"])?)?;
    let id = number(call)?;
    jobs(call)?.jobs.discard(id, reason.as_deref().unwrap_or("by the API"))?;
    log::info!("operator act=job_discard job={id} by={}", call.by());
    Ok(Response::new(StatusCode::NO_CONTENT, ""))
}

/// `GET /api/v1/admin/mode`
fn mode(call: &Call<'_>) -> Answer {
    let jobs = jobs(call)?;
    mode_answer(&jobs.jobs.mode()?, &jobs.jobs)
}

/// `PUT /api/v1/admin/mode` with `{"mode", "reason"?, "quiesce"?}`
fn set_mode(call: &Call<'_>) -> Answer {
    let options = options(call, &["mode", "reason", "quiesce"])?;
    let invalid = |field: &str, reason: String| {
        let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", format!("{field} {reason}"));
        problem.field = Some(field.to_owned());
        problem
    };
    let name = options["mode"].as_str().unwrap_or_default();
    let mode: Mode = name.parse().map_err(|reason| invalid("mode", reason))?;
    let (reason, quiesce) = (reason(&options)?, flag(&options, "quiesce")?);
    if quiesce && mode == Mode::Open {
        return Err(invalid("quiesce", "goes with journal or read_only".to_owned()));
    }
    let jobs = jobs(call)?;
    let info = if quiesce {
        let until = call.request.deadline.checked_sub(ANSWER_MARGIN).unwrap_or_else(Instant::now);
        jobs.jobs.quiesce(mode, reason.as_deref(), until)?
    } else {
        jobs.jobs.set_mode(mode, reason.as_deref())?
    };
    log::info!("operator act=mode mode={} by={}", info.mode, call.by());
    jobs.runner.notify();
    mode_answer(&info, &jobs.jobs)
}

fn mode_answer(info: &ModeInfo, jobs: &Jobs) -> Answer {
    let mut stats = json!(jobs.stats()?);
    stats["next_run_at"] = stats["next_run_at"].as_i64().map_or(Value::Null, |at| json!(rfc3339(at)));
    let body = json!({
        "mode": info.mode,
        "draining": info.draining,
        "since": info.since.map(rfc3339),
        "reason": info.reason,
        "held": info.held,
        "jobs": stats,
    });
    json_answer(StatusCode::OK, &body)
}

fn jobs<'a>(call: &Call<'a>) -> Result<&'a SiteJobs, Problem> {
    call.parts.jobs.get().ok_or_else(|| Problem::not_found("this site keeps no jobs"))
}

fn find(call: &Call<'_>) -> Result<Job, Problem> {
    let id = number(call)?;
    Ok(jobs(call)?.jobs.show(id)?.ok_or(JobError::NotFound { id })?)
}

/// A number that no job has is as good as none.
fn number(call: &Call<'_>) -> Result<i64, Problem> {
    let invalid = || Problem::not_found("a job is named by its number");
    call.segment().parse().ok().filter(|id| *id > 0).ok_or_else(invalid)
}

/// The body's object; without a body an empty one.
fn options(call: &Call<'_>, known: &[&str]) -> Result<Value, Problem> {
    if call.request.body.is_empty() {
        return Ok(json!({}));
    }
    let body = json_body(call.request)?;
    let object = body.as_object().ok_or_else(|| Problem::bad_request("the body must be a JSON object"))?;
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(body),
        Some(name) => {
            let shown: String = name.chars().take(64).collect();
            Err(Problem::bad_request(format!("{shown:?} is no field here; there are {}", known.join(", "))))
        }
    }
}

fn flag(options: &Value, field: &str) -> Result<bool, Problem> {
    match &options[field] {
        Value::Null => Ok(false),
        Value::Bool(yes) => Ok(*yes),
        _ => Err(Problem::bad_request(format!("{field} must be true or false"))),
    }
}

fn reason(options: &Value) -> Result<Option<String>, Problem> {
    match &options["reason"] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(Problem::bad_request("reason must be a string")),
    }
}

impl From<JobError> for Problem {
    fn from(error: JobError) -> Self {
        let status = match &error {
            JobError::NotFound { .. } => StatusCode::NOT_FOUND,
            JobError::Read(_) | JobError::Database(_) | JobError::Freeze { .. } => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        };
        let wait = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(Duration::from_secs(1));
        Self { retry_after: wait, ..Self::new(status, error.code(), error.to_string()) }
    }
}
