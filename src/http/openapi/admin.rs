//! The operator's routes, and the metrics.

use serde_json::{Value, json};

use super::document::{Document, named, object};
use super::operation::{NO_CONTROLS, Operation, Reply};

const TAG: &str = "admin";
/// No event of a fresh outbox.
const NO_EVENT: &str = "999999";
const NO_HANDLER: &str = "no-such-handler";

pub(super) fn describe(document: &mut Document) {
    schemas(document);
    looks(document);
    acts_on_events(document);
    acts_on_lanes(document);
    let metrics = Operation::new("metrics", "What a monitor asks for")
        .tag("health")
        .about("OpenMetrics text. Away from this machine, or through a proxy, it takes a token with the role `admin`.")
        .problem(401, "unauthorized")
        .problem(403, "forbidden");
    document.operation("GET", "/metrics", metrics.reply(200, Reply::text("The metrics.", OPEN_METRICS)));
}

const OPEN_METRICS: &str = "application/openmetrics-text";

fn schemas(document: &mut Document) {
    let (text, number) = (json!({ "type": ["string", "null"] }), json!({ "type": "integer", "minimum": 0 }));
    let optional = json!({ "type": ["integer", "null"] });
    let time = json!({ "type": "string", "format": "date-time" });
    let entry = object(&json!({ "at": time, "what": { "type": "string" }, "reason": { "type": "string" } }));
    let exception = object(&json!({
        "id": { "type": "integer", "description": "The event's place in the log." },
        "handler": { "type": "string" },
        "event_type": text,
        "key": text,
        "status": { "enum": STATES },
        "attempts": number,
        "crashes": number,
        "replays": number,
        "next_attempt_at": text,
        "superseded_by": optional,
        "reason": text,
        "edited": { "type": "boolean" },
        "history": { "type": "array", "items": entry },
        "created_at": time,
        "updated_at": time,
    }));
    document.schema("Exception", exception);
    let lane = json!({
        "type": "object",
        "required": ["handler", "state", "held", "cursor", "lag_events", "lag_ms", "dead_letters", "parked", "retrying", "waiting"],
        "properties": {
            "handler": { "type": "string" },
            "state": { "type": ["string", "null"], "description": "`null` if this process does not run it." },
            "held": { "type": "boolean" },
            "cursor": { "type": "integer" },
            "lag_events": number,
            "lag_ms": number,
            "dead_letters": number,
            "parked": number,
            "retrying": number,
            "waiting": number,
        },
    });
    document.schema("Lane", lane);
}

const STATES: [&str; 6] = ["dead_letter", "parked", "retry", "waiting", "discarded", "done"];

fn looks(document: &mut Document) {
    let lanes = json!({ "type": "array", "items": named("Lane") });
    let stats = json!({
        "type": "object",
        "required": ["last_id", "lanes", "types_without_lane", "queue"],
        "properties": {
            "last_id": { "type": "integer", "minimum": 0 },
            "lanes": lanes.clone(),
            "types_without_lane": { "type": "array", "items": { "type": "object" } },
            "queue": { "type": "object" },
        },
    });
    let operation = Operation::new("outboxStats", "How far each handler is, and what waits or failed").tag(TAG).reads();
    let reply = Reply::new("The outbox at this moment.", stats);
    document.operation("GET", "/api/v1/admin/outbox/stats", operation.reply(200, reply));

    let text = json!({ "type": "string", "pattern": NO_CONTROLS });
    let status = json!({ "enum": STATES.iter().chain(&["open", "all"]).collect::<Vec<_>>(), "default": "dead_letter" });
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 50 });
    let cursor = json!({ "type": "string", "pattern": "^-?[0-9]{1,18}@[A-Za-z0-9_.-]+$", "maxLength": 200 });
    let list = object(&json!({
        "items": { "type": "array", "items": named("Exception") }, "next_cursor": { "type": ["string", "null"] },
    }));
    let operation = Operation::new("listExceptions", "Events that failed, or wait behind one that did")
        .tag(TAG)
        .about("By handler and place in the log. A page may hold fewer than asked for and still have a next one.")
        .query("status", "Where they stand.", status)
        .query("handler", "Of this handler only.", text.clone())
        .query("event_type", "Of this type; `article.*` means all that begin so.", text.clone())
        .query("key", "Of this key only.", text.clone())
        .query("reason", "Whose last failure contains this.", text)
        .query("limit", "Most on a page.", limit)
        .query("cursor", "Where an earlier page ended: its `next_cursor`.", cursor)
        .reads();
    let none = json!({ "items": [], "next_cursor": null });
    document.operation(
        "GET",
        "/api/v1/admin/outbox/events",
        operation.reply(200, Reply::new("A page.", list).example(none)),
    );

    let story = object(&json!({
        "event": { "anyOf": [named("Event"), { "type": "null" }] },
        "undecodable": { "type": ["string", "null"] },
        "lanes": { "type": "array", "items": { "type": "object" } },
        "exceptions": { "type": "array", "items": named("Exception") },
    }));
    let operation = Operation::new("showEvent", "One event, and how it fared with every handler").tag(TAG);
    let operation = operation.segment("id", "Its number in the log, or its event id.", NO_EVENT).reads();
    let operation = operation.problem(404, "not_found").reply(200, Reply::new("Its story.", story));
    document.operation("GET", "/api/v1/admin/outbox/events/{id}", operation);

    let operation = Operation::new("listLanes", "Every handler the database knows").tag(TAG).reads();
    let reply = Reply::new("By name.", object(&json!({ "items": lanes })));
    document.operation("GET", "/api/v1/admin/lanes", operation.reply(200, reply));
    let services = object(&json!({
        "ready": { "type": "boolean" },
        "color": { "enum": ["green", "yellow", "red"] },
        "reasons": { "type": "array", "items": { "type": "string" } },
        "items": { "type": "array", "items": { "type": "object" } },
    }));
    let operation = Operation::new("listServices", "Every service with its state").tag(TAG);
    let reply = Reply::new("In the order of their start.", services);
    document.operation("GET", "/api/v1/admin/services", operation.reply(200, reply));
}

fn acts_on_events(document: &mut Document) {
    let handled = object(&json!({
        "id": { "type": "integer" }, "handlers": { "type": "array", "items": { "type": "string" } },
    }));
    let operation = act("replayEvent", "Deliver a dead letter once more, with fresh attempts")
        .about(
            "For one handler, or without `handler` for each that has given the event up. With `handler` and `force` also an event \
             that was delivered, as long as the log holds it: receivers get it under another id.",
        )
        .segment("id", "Its number in the log, or its event id.", NO_EVENT)
        .body(&fields(&[("handler", text()), ("force", flag())], &[]), &json!({ "handler": "search" }))
        .or_no_body()
        .problem(404, "not_found");
    let operation =
        ["not_dead", "superseded", "too_often", "event_missing", "delivered", "not_yet_delivered", "not_wanted"]
            .into_iter()
            .fold(operation, conflict);
    let reply = Reply::new("It is due again, or waits for an earlier one of its key.", handled.clone());
    document.operation("POST", "/api/v1/admin/outbox/events/{id}/replay", operation.reply(200, reply));

    let operation = act("discardEvent", "Give an event up for a handler, for good")
        .segment("id", "Its number in the log, or its event id.", NO_EVENT)
        .body(
            &shown(
                fields(&[("handler", text()), ("reason", text())], &["handler", "reason"]),
                json!({ "handler": "search", "reason": "no longer wanted" }),
            ),
            &Value::Null,
        )
        .problem(404, "not_found");
    let operation = ["delivered", "closed"].into_iter().fold(operation, conflict);
    let reply = Reply::new("It is discarded.", handled);
    document.operation("POST", "/api/v1/admin/outbox/events/{id}/discard", operation.reply(200, reply));

    let many = object(&json!({ "replayed": { "type": "integer" }, "left": { "type": "integer" } }));
    let filter = [("handler", text()), ("event_type", text()), ("key", text()), ("reason", text()), ("force", flag())];
    let operation = act("replayMatching", "Deliver every dead letter that fits once more")
        .about("In transactions of 200. `left` counts what fits and is refused: superseded, or replayed too often.")
        .body(&fields(&filter, &[]), &json!({ "handler": "search" }))
        .or_no_body()
        .problem(404, "not_found");
    let reply = Reply::new("How many.", many).example(json!({ "replayed": 0, "left": 0 }));
    document.operation("POST", "/api/v1/admin/outbox/replay", operation.reply(200, reply));
}

fn acts_on_lanes(document: &mut Document) {
    let held = object(&json!({ "handler": { "type": "string" }, "held": { "type": "boolean" } }));
    for (name, summary) in [("hold", "Deliver nothing to a handler until it is released"), ("release", "End a hold")] {
        let operation = act(&format!("{name}Lane"), summary)
            .segment("handler", "The handler's name.", NO_HANDLER)
            .body(&fields(&[], &[]), &json!({}))
            .or_no_body()
            .problem(404, "not_found");
        let operation = if name == "hold" { conflict(operation, "still_owned") } else { operation };
        let path = format!("/api/v1/admin/lanes/{{handler}}/{name}");
        document.operation("POST", &path, operation.reply(200, Reply::new("As asked.", held.clone())));
    }
    let passed = object(&json!({
        "handler": { "type": "string" },
        "key": { "type": "string" },
        "passed_over": { "type": "array", "items": { "type": "integer" } },
    }));
    let operation = act("resumeKey", "Pass over the parked events of a key")
        .segment("handler", "The handler's name.", NO_HANDLER)
        .body(&shown(fields(&[("key", text())], &["key"]), json!({ "key": "order-17" })), &Value::Null);
    let operation = conflict(operation, "not_parked").reply(200, Reply::new("They are dead letters now.", passed));
    document.operation("POST", "/api/v1/admin/lanes/{handler}/resume", operation);

    let number = json!({ "type": "integer", "minimum": 0 });
    let report = object(&json!({
        "finished": { "type": "boolean" }, "seen": number, "written": number, "removed": number,
    }));
    let operation = act("rebuildSearch", "Index every article again; searches go on meanwhile")
        .about("Works as long as a request may take. 202 means that more is to be done: send it again, and it goes on.")
        .body(&fields(&[], &[]), &json!({}))
        .or_no_body()
        .problem(503, "search_unavailable")
        .reply(200, Reply::new("Done.", report.clone()))
        .reply(202, Reply::new("Not done yet.", report));
    document.operation("POST", "/api/v1/admin/search/rebuild", operation);
}

/// The schema with an example of its own.
fn shown(mut schema: Value, example: Value) -> Value {
    schema["examples"] = json!([example]);
    schema
}

/// What every act may answer.
fn act(id: &str, summary: &str) -> Operation {
    let operation = Operation::new(id, summary).tag(TAG).reads();
    let write = [
        (422, "invalid"),
        (429, "saturated"),
        (500, "database_error"),
        (503, "deadline_exceeded"),
        (503, "database_busy"),
        (503, "database_unavailable"),
        (503, "outcome_unknown"),
        (507, "database_full"),
    ];
    write.into_iter().fold(operation, |operation, (status, code)| operation.problem(status, code))
}

fn conflict(operation: Operation, code: &'static str) -> Operation {
    operation.problem(409, code)
}

fn text() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 2000, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*[^\\s\\u0000-\\u001f\\u007f-\\u009f][^\\u0000-\\u001f\\u007f-\\u009f]*$" })
}

fn flag() -> Value {
    json!({ "type": "boolean" })
}

fn fields(properties: &[(&str, Value)], required: &[&str]) -> Value {
    let properties: Value = properties.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}
