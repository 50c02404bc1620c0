//! Jobs, and the mode of the site.

use serde_json::{Value, json};

use super::document::{Document, named, object};
use super::operation::{Operation, Reply};
use crate::jobs::{JobStatus, MAX_PAGE, Mode};

const ADMIN: &str = "/api/v1/admin/jobs";
const ONE: &str = "/api/v1/admin/jobs/{id}";
const MODE: &str = "/api/v1/admin/mode";

pub(super) fn describe(document: &mut Document) {
    schemas(document);
    let found = || Reply::new("The job.", named("Job"));
    let get = one("getJob", "What became of a write that was accepted for later", "jobs").reply(200, found());
    document.operation("GET", "/api/v1/jobs/{id}", get);
    document.operation("GET", ADMIN, list());
    let body = Reply::new("The job with its body.", json!({ "type": "object" }));
    document.operation("GET", ONE, one("showJob", "A job with its body", "admin").reply(200, body));
    let force = json!({ "force": { "type": "boolean", "description": "Also after three replays." } });
    let replay = act("replayJob", "Have a job applied once more that was given up or cancelled", &force)
        .problem(409, "job_quarantined")
        .reply(200, found());
    document.operation("POST", "/api/v1/admin/jobs/{id}/replay", replay);
    let reason = json!({ "reason": { "type": "string" } });
    let cancel = act("cancelJob", "Take back a job before its turn", &reason)
        .problem(409, "job_publication")
        .reply(200, found());
    document.operation("POST", "/api/v1/admin/jobs/{id}/cancel", cancel);
    let discard = act("discardJob", "Remove a job that was given up or cancelled, for good", &reason);
    document.operation("POST", "/api/v1/admin/jobs/{id}/discard", discard.reply(204, Reply::empty("It is gone.")));
    let mode = || Reply::new("The mode, and how many jobs there are.", named("Mode"));
    let get = Operation::new("getMode", "What becomes of writes").tag("admin");
    document.operation("GET", MODE, get.problem(503, "database_unavailable").reply(200, mode()));
    document.operation("PUT", MODE, set_mode().reply(200, mode()));
}

fn one(id: &str, summary: &str, tag: &str) -> Operation {
    Operation::new(id, summary)
        .tag(tag)
        .segment("id", "Its number.", "4711")
        .problem(404, "not_found")
        .problem(404, "job_not_found")
        .problem(503, "database_unavailable")
}

/// The body may be left out, and each of its fields.
fn act(id: &str, summary: &str, fields: &Value) -> Operation {
    let schema = json!({ "type": "object", "properties": fields, "additionalProperties": false });
    one(id, summary, "admin").body(&schema, &json!({})).problem(409, "job_status")
}

fn list() -> Operation {
    let page = object(&json!({
        "items": { "type": "array", "items": named("Job") },
        "next": { "type": ["string", "null"], "description": "What to give as `after` for the next page." },
    }));
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 50 });
    Operation::new("listJobs", "The jobs of one status, in the order in which they came to it")
        .tag("admin")
        .query("status", "Which.", json!({ "enum": statuses(), "default": "pending" }))
        .query("limit", "Most jobs.", limit)
        .query(
            "after",
            "The `next` of an earlier answer.",
            json!({ "type": "string", "pattern": "^[0-9]{1,15}-[0-9]{1,15}$" }),
        )
        .problem(503, "database_unavailable")
        .reply(200, Reply::new("One page.", page))
}

fn set_mode() -> Operation {
    let schema = json!({
        "type": "object",
        "required": ["mode"],
        "properties": {
            "mode": { "enum": modes() },
            "reason": { "type": ["string", "null"] },
            "quiesce": { "type": "boolean", "description": "With journal or read_only: deliver what is committed, then hold every \
                handler, so that no row of the articles and the outbox changes." },
        },
        "anyOf": [
            { "properties": { "mode": { "enum": [Mode::Journal.as_str(), Mode::ReadOnly.as_str()] } } },
            { "properties": { "quiesce": { "const": false } } },
        ],
        "additionalProperties": false,
    });
    Operation::new("setMode", "Freeze the site, or open it again")
        .tag("admin")
        .about("Holds from the next transaction on, in every process, and outlasts restarts. Once the site is open, what was kept is \
                applied in order, and new writes go behind it.")
        .body(&schema, &json!({ "mode": "open" }))
        .problem(422, "invalid")
        .problem(503, "freeze_incomplete")
        .problem(503, "database_unavailable")
}

fn statuses() -> Vec<&'static str> {
    JobStatus::ALL.iter().map(|status| status.as_str()).collect()
}

fn modes() -> Vec<&'static str> {
    Mode::ALL.iter().map(|mode| mode.as_str()).collect()
}

fn schemas(document: &mut Document) {
    let (number, text) = (json!({ "type": "integer", "minimum": 1 }), json!({ "type": ["string", "null"] }));
    let time = json!({ "type": "string", "format": "date-time" });
    let later = json!({ "type": ["string", "null"], "format": "date-time" });
    let count = json!({ "type": "integer", "minimum": 0 });
    let job = object(&json!({
        "id": number,
        "status": { "enum": statuses() },
        "operation": text,
        "run_at": later,
        "replays": count,
        "correlation_id": text,
        "event_id": text,
        "article_id": text,
        "slug": { "type": ["string", "null"], "description": "Of the article, once the job is applied." },
        "error": { "type": ["string", "null"], "description": "Why it could not be applied: a code, a colon, and words." },
        "created_at": time,
        "updated_at": time,
    }));
    document.schema("Job", job);
    let named_job =
        object(&json!({ "id": number, "status": { "const": "pending" }, "location": { "type": "string" } }));
    document.schema("Accepted", object(&json!({ "job": named_job })));
    let stats = object(&json!({
        "pending": count, "scheduled": count, "dead_letter": count, "quarantined": count, "cancelled": count, "applied": count,
        "waiting_max": count, "oldest_ms": count, "next_run_at": later,
    }));
    let mode = object(&json!({
        "mode": { "enum": modes() },
        "draining": { "type": "boolean", "description": "Open again, but what was kept is still being applied." },
        "since": later,
        "reason": text,
        "held": { "type": "array", "items": { "type": "string" }, "description": "The handlers that the freeze holds." },
        "jobs": stats,
    }));
    document.schema("Mode", mode);
}
