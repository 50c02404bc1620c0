//! Health.

use serde_json::json;

use super::document::Document;
use super::operation::{Operation, Reply};

pub(super) fn describe(document: &mut Document) {
    let state =
        |name: &str| json!({ "type": "object", "required": ["status"], "properties": { "status": { "const": name } } });
    let live = Operation::new("live", "Whether the process answers").tag("health");
    let live = live.reply(200, Reply::new("It does.", state("live")).example(json!({ "status": "live" })));
    document.operation("GET", "/health/live", live);

    let list = json!({ "type": "array", "items": { "type": "object" } });
    let mut ready = state("ready");
    ready["required"] = json!(["status", "color", "reasons", "services", "lanes"]);
    ready["properties"]["color"] = json!({ "enum": ["green", "yellow", "red"] });
    ready["properties"]["reasons"] = json!({ "type": "array", "items": { "type": "string" } });
    ready["properties"]["services"] = list.clone();
    ready["properties"]["lanes"] = list;
    let about = "Every service with its state, every handler with what it has left to do. A handler that is not well does not \
                 make the program unready. Not ready is 503 with the same document and the status `not_ready`.";
    let operation = Operation::new("ready", "Whether the program can do its work").tag("health").about(about);
    document.operation(
        "GET",
        "/health/ready",
        operation.reply(200, Reply::new("It can.", ready)).unchecked(503, "Not ready, or overloaded."),
    );
}
