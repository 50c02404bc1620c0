//! One operation: its parameters, its body, its answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::http::route::Guard;

/// The description of one route.
#[derive(Debug)]
pub(super) struct Operation {
    operation: Map<String, Value>,
    parameters: Vec<Value>,
    replies: Map<String, Value>,
    /// The codes of each error status.
    problems: BTreeMap<u16, Vec<&'static str>>,
}

/// An answer that is no error.
#[derive(Debug)]
pub(super) struct Reply {
    reply: Value,
}

impl Reply {
    /// JSON of this schema.
    pub(super) fn new(description: &str, schema: Value) -> Self {
        Self { reply: json!({ "description": description, "content": { "application/json": { "schema": schema } } }) }
    }

    /// Text of this type.
    pub(super) fn text(description: &str, content_type: &str) -> Self {
        let schema = json!({ "schema": { "type": "string" } });
        Self { reply: json!({ "description": description, "content": { content_type: schema } }) }
    }

    /// No body.
    pub(super) fn empty(description: &str) -> Self {
        Self { reply: json!({ "description": description }) }
    }

    /// What a server answers to the operation's examples; a test compares.
    pub(super) fn example(mut self, example: Value) -> Self {
        self.reply["content"]["application/json"]["example"] = example;
        self
    }

    /// A header field that the answer has.
    pub(super) fn header(mut self, name: &str, description: &str) -> Self {
        self.reply["headers"][name] =
            json!({ "description": description, "required": true, "schema": { "type": "string" } });
        self
    }
}

impl Operation {
    pub(super) fn new(id: &str, summary: &str) -> Self {
        let mut operation = Map::new();
        operation.insert("operationId".to_owned(), json!(id));
        operation.insert("summary".to_owned(), json!(summary));
        let mut new = Self { operation, parameters: Vec::new(), replies: Map::new(), problems: BTreeMap::new() };
        new = new.problem(400, "bad_request").problem(500, "internal").problem(504, "outcome_unknown");
        new.problem(503, "overloaded")
    }

    pub(super) fn tag(mut self, tag: &str) -> Self {
        self.operation.insert("tags".to_owned(), json!([tag]));
        self
    }

    pub(super) fn about(mut self, description: &str) -> Self {
        self.operation.insert("description".to_owned(), json!(description));
        self
    }

    /// A parameter of the query, which may be left out.
    pub(super) fn query(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter("query", name, description, false, schema)
    }

    /// A parameter of the query that must be there, with an example.
    pub(super) fn required_query(self, name: &str, description: &str, mut schema: Value, example: &str) -> Self {
        schema["examples"] = json!([example]);
        self.parameter("query", name, description, true, schema)
    }

    /// A segment of the path, with an example.
    pub(super) fn segment(self, name: &str, description: &str, example: &str) -> Self {
        // Control characters are refused in any path.
        let schema = json!({ "type": "string", "minLength": 1, "pattern": NO_CONTROLS,
            "examples": [example] });
        self.parameter("path", name, description, true, schema)
    }

    /// A header field, which may be left out.
    pub(super) fn header(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter("header", name, description, false, schema)
    }

    /// A body of JSON.
    pub(super) fn body(mut self, schema: &Value, example: &Value) -> Self {
        let mut content = json!({ "application/json": { "schema": schema } });
        // Without one (`null`), the schema has its own: what is done depends on what is there.
        if !example.is_null() {
            content["application/json"]["example"] = example.clone();
        }
        self.operation.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
        self.problem(400, "bad_json").problem(408, "request_timeout").problem(413, "too_large")
    }

    /// The body may be left out: that means `{}`.
    pub(super) fn or_no_body(mut self) -> Self {
        if let Some(body) = self.operation.get_mut("requestBody") {
            body["required"] = json!(false);
        }
        self
    }

    pub(super) fn reply(mut self, status: u16, reply: Reply) -> Self {
        let mut reply = reply.reply;
        reply["headers"]["X-Correlation-ID"] = json!({
            "description": "As sent, or a fresh one.", "required": true, "schema": { "type": "string" },
        });
        self.replies.insert(status.to_string(), reply);
        self
    }

    /// An error that the operation may answer with.
    pub(super) fn problem(mut self, status: u16, code: &'static str) -> Self {
        let codes = self.problems.entry(status).or_default();
        if !codes.contains(&code) {
            codes.push(code);
        }
        self
    }

    /// A status whose body takes several forms.
    pub(super) fn unchecked(mut self, status: u16, description: &str) -> Self {
        self.problems.remove(&status);
        let content = json!({ "application/json": { "schema": { "type": "object" } } });
        self.replies.insert(status.to_string(), json!({ "description": description, "content": content }));
        self
    }

    /// What every read of the database may answer.
    pub(super) fn reads(self) -> Self {
        self.problem(503, "saturated").problem(503, "stopped").problem(503, "too_long").problem(503, "database_error")
    }

    /// What a write to a frozen or a read-only site is answered.
    pub(super) fn may_wait(self) -> Self {
        let accepted = Reply::new(
            "The site is frozen: committed as a job, to be applied once it is open.",
            json!({ "$ref": "#/components/schemas/Accepted" }),
        );
        self.reply(202, accepted.header("Location", "Where to ask what became of it."))
            .problem(429, "journal_full")
            .problem(503, "read_only")
    }

    /// What every write may answer, and that it may be sent again.
    pub(super) fn writes(self) -> Self {
        let key = json!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$" });
        let about = "Makes a repetition harmless. The first answer is given again for 24 hours, to the same token; the same \
                     key for another request is refused. A refused request does not use its key up.";
        self.header("Idempotency-Key", about, key)
            .problem(400, "bad_idempotency_key")
            .problem(422, "idempotency_key_reused")
            .problem(429, "saturated")
            .problem(500, "database_error")
            .problem(500, "event_refused")
            .problem(503, "stopped")
            .problem(503, "deadline_exceeded")
            .problem(503, "database_busy")
            .problem(503, "database_unavailable")
            .problem(503, "outcome_unknown")
            .problem(507, "database_full")
    }

    /// The operation, with what follows from who is let in.
    pub(super) fn into_json(mut self, guard: Guard) -> Value {
        let security = match guard {
            Guard::Open => json!([]),
            Guard::Public => json!([{}, { "token": [] }]),
            Guard::Token(_) => json!([{ "token": [] }]),
        };
        if guard != Guard::Open {
            self = self.problem(401, "unauthorized");
        }
        if let Guard::Token(role) = guard {
            self = self.problem(403, "forbidden");
            self.operation.insert("x-role".to_owned(), json!(role));
        }
        self.operation.insert("security".to_owned(), security);
        if !self.parameters.is_empty() {
            self.operation.insert("parameters".to_owned(), json!(self.parameters));
        }
        let mut replies = self.replies;
        for (status, codes) in &self.problems {
            replies.insert(status.to_string(), problem(*status, codes));
        }
        self.operation.insert("responses".to_owned(), json!(replies));
        Value::Object(self.operation)
    }

    fn parameter(mut self, place: &str, name: &str, description: &str, required: bool, schema: Value) -> Self {
        self.parameters.push(json!({
            "name": name, "in": place, "description": description, "required": required, "schema": schema,
        }));
        self
    }
}

/// Text without the control characters U+0000 to U+001F and U+007F to U+009F.
pub(super) const NO_CONTROLS: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";

/// An error answer with one of these codes.
fn problem(status: u16, codes: &[&str]) -> Value {
    let description = match status {
        400 => "The request is malformed.",
        401 => "A token is missing or wrong.",
        403 => "The token's role is too small.",
        404 => "There is no such thing.",
        408 => "The body took too long to arrive.",
        409 => "It belongs to another article, or is not in the state for this.",
        412 => "The article is another than `If-Match` names.",
        413 => "The body is too large.",
        422 => "The content is wrong.",
        429 => "Too many writes are waiting; nothing was done.",
        504 => "No answer in time; whether anything was done is not known.",
        507 => "The disk is full; nothing was done.",
        500 => "A defect of the program or the database.",
        _ => "Not now; but for `outcome_unknown` nothing was done.",
    };
    let error = json!({
        "type": "object",
        "required": ["code", "message"],
        "properties": {
            "code": { "enum": codes },
            "message": { "type": "string", "minLength": 1 },
            "field": { "type": "string" },
            "line": { "type": "integer", "minimum": 1 },
            "column": { "type": "integer", "minimum": 0 },
        },
        "additionalProperties": false,
    });
    let schema = json!({
        "type": "object", "required": ["error"], "properties": { "error": error }, "additionalProperties": false,
    });
    let mut answer = json!({ "description": description, "content": { "application/json": { "schema": schema } } });
    let seconds = json!({ "type": "string", "pattern": "^[0-9]+$" });
    match status {
        401 => {
            answer["headers"]["WWW-Authenticate"] = json!({ "required": true, "schema": { "type": "string" } });
        }
        429 => answer["headers"]["Retry-After"] = json!({ "required": true, "schema": seconds }),
        503 => answer["headers"]["Retry-After"] = json!({ "schema": seconds }),
        _ => {}
    }
    answer
}
