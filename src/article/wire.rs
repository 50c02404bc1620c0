//! A mutation written down: the name of an operation and a JSON body, and back.
//!
//! | operation | body |
//! |---|---|
//! | `create` | an article as the API takes it; besides `id`, `created_at`, `updated_at` |
//! | `update` | `{"slug", "patch": {…}, "expected": {"id", "version", "updated_at"}}`, the last part or all of it optional |
//! | `delete` | `{"slug", "expected": {…}}` |
//! | `publish` | `{"id", "publish_at"}` |
//! | `import` | `{"source", "hash", "article": {…}}` |
//!
//! Times are RFC 3339 with their offset, or whole milliseconds since the Unix epoch.

use serde_json::{Map, Value, json};

use super::mutation::{Change, Draft};
use super::validate::CheckedPatch;
use super::{ArticleError, ArticlePatch, Expected, Mutation, NewArticle, PreparedMutation, tags};
use crate::clock::{parse_rfc3339, rfc3339};

/// The names of all operations.
const OPERATIONS: [&str; 5] = ["create", "update", "delete", "publish", "import"];

impl Mutation {
    /// The mutation of this operation (`create`, `update`, `delete`, `publish`, `import`) and JSON body.
    ///
    /// # Errors
    /// [`ArticleError::Invalid`] with the field at fault; `operation` or `body` when that is wrong as a whole.
    pub fn from_parts(operation: &str, body: &str) -> Result<Self, ArticleError> {
        if !OPERATIONS.contains(&operation) {
            let shown: String = operation.chars().take(64).collect();
            let reason = format!("{shown:?} is unknown; there are {}", OPERATIONS.join(", "));
            return Err(ArticleError::invalid("operation", reason));
        }
        let json: Value = serde_json::from_str(body)
            .map_err(|error| ArticleError::invalid("body", format!("is not valid JSON: {error}")))?;
        let object = json.as_object().ok_or_else(|| ArticleError::invalid("body", "must be a JSON object"))?;
        Ok(match operation {
            "create" => Self::Create(new_article(&json, object)?),
            "update" => {
                refuse_others(object, &["slug", "patch", "expected"])?;
                let patch = object.get("patch").ok_or_else(|| ArticleError::invalid("patch", "is missing"))?;
                Self::Update {
                    slug: text(object, "slug")?,
                    patch: ArticlePatch::from_json(patch)?,
                    expected: expected(object)?,
                }
            }
            "delete" => {
                refuse_others(object, &["slug", "expected"])?;
                Self::Delete { slug: text(object, "slug")?, expected: expected(object)? }
            }
            "publish" => {
                refuse_others(object, &["id", "publish_at"])?;
                let at = time(object, "publish_at")?;
                let publish_at = at.ok_or_else(|| ArticleError::invalid("publish_at", "is missing"))?;
                Self::Publish { id: text(object, "id")?, publish_at }
            }
            _ => {
                refuse_others(object, &["source", "hash", "article"])?;
                let article = object.get("article").ok_or_else(|| ArticleError::invalid("article", "is missing"))?;
                let fields =
                    article.as_object().ok_or_else(|| ArticleError::invalid("article", "must be an object"))?;
                Self::Import {
                    source: text(object, "source")?,
                    hash: text(object, "hash")?,
                    article: new_article(article, fields)?,
                }
            }
        })
    }
}

impl PreparedMutation {
    /// The name of the operation, as [`Mutation::from_parts`] takes it.
    pub fn operation(&self) -> &'static str {
        match &self.change {
            Change::Create(_) => "create",
            Change::Update { .. } => "update",
            Change::Delete { .. } => "delete",
            Change::Publish { .. } => "publish",
            Change::Import { .. } => "import",
        }
    }

    /// What [`Mutation::from_parts`] makes the same mutation of. A creation keeps the id that was minted for it.
    pub fn body(&self) -> String {
        match &self.change {
            Change::Create(draft) => draft_json(draft),
            Change::Update { slug, patch, expected } => {
                json!({ "slug": slug, "patch": patch_json(patch), "expected": expected_json(expected) })
            }
            Change::Delete { slug, expected } => json!({ "slug": slug, "expected": expected_json(expected) }),
            Change::Publish { id, publish_at } => json!({ "id": id, "publish_at": rfc3339(*publish_at) }),
            Change::Import { source, hash, draft } => {
                json!({ "source": source, "hash": hash, "article": draft_json(draft) })
            }
        }
        .to_string()
    }
}

fn draft_json(draft: &Draft) -> Value {
    let article = &draft.article;
    let mut json = json!({
        "id": article.id,
        "title": article.title,
        "content": article.content,
        "tags": article.tags,
        "kind": article.kind,
        "status": article.status,
    });
    let (created_at, updated_at) = draft.times;
    let times = [("created_at", created_at), ("updated_at", updated_at), ("publish_at", article.publish_at)];
    for (field, at) in times {
        if let Some(at) = at {
            json[field] = json!(rfc3339(at));
        }
    }
    if draft.explicit_slug {
        json["slug"] = json!(article.slug);
    }
    json
}

fn patch_json(patch: &CheckedPatch) -> Value {
    let mut json = Map::new();
    let mut put = |field: &str, value: Option<Value>| {
        if let Some(value) = value {
            json.insert(field.to_owned(), value);
        }
    };
    put("title", patch.title.as_ref().map(|title| json!(title)));
    put("content", patch.content.as_ref().map(|content| json!(content)));
    put("slug", patch.slug.as_ref().map(|slug| json!(slug)));
    put("tags", patch.tags.as_deref().map(|tags| json!(tags::labels(tags))));
    put("kind", patch.kind.map(|kind| json!(kind)));
    put("status", patch.status.map(|status| json!(status)));
    put("publish_at", patch.publish_at.map(|at| json!(at.map(rfc3339))));
    Value::Object(json)
}

fn expected_json(expected: &Expected) -> Value {
    let Expected { id, version, updated_at } = expected;
    let fields = [("id", json!(id)), ("version", json!(version)), ("updated_at", json!(updated_at.map(rfc3339)))];
    fields.into_iter().filter(|(_, value)| !value.is_null()).map(|(field, value)| (field.to_owned(), value)).collect()
}

fn new_article(json: &Value, object: &Map<String, Value>) -> Result<NewArticle, ArticleError> {
    let mut article = NewArticle::from_json(json)?;
    article.id = object.get("id").map(|_| text(object, "id")).transpose()?;
    article.created_at = time(object, "created_at")?;
    article.updated_at = time(object, "updated_at")?;
    Ok(article)
}

fn expected(object: &Map<String, Value>) -> Result<Expected, ArticleError> {
    let Some(expected) = object.get("expected") else { return Ok(Expected::any()) };
    let object = expected.as_object().ok_or_else(|| ArticleError::invalid("expected", "must be an object"))?;
    refuse_others(object, &["id", "version", "updated_at"])?;
    let version = object.get("version").map(|version| {
        version.as_i64().ok_or_else(|| ArticleError::invalid("expected.version", "must be a whole number"))
    });
    Ok(Expected {
        id: object.get("id").map(|_| text(object, "id")).transpose()?,
        version: version.transpose()?,
        updated_at: time(object, "updated_at")?,
    })
}

fn refuse_others(object: &Map<String, Value>, known: &[&str]) -> Result<(), ArticleError> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let shown = name.chars().take(64).collect::<String>();
            Err(ArticleError::invalid(shown, format!("is not a field here; there are {}", known.join(", "))))
        }
    }
}

fn text(object: &Map<String, Value>, field: &'static str) -> Result<String, ArticleError> {
    match object.get(field) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(ArticleError::invalid(field, "must be a string")),
        None => Err(ArticleError::invalid(field, "is missing")),
    }
}

fn time(object: &Map<String, Value>, field: &'static str) -> Result<Option<i64>, ArticleError> {
    match object.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => {
            parse_rfc3339(text).map(Some).map_err(|reason| ArticleError::invalid(field, reason))
        }
        Some(number) => {
            let ms = number.as_i64().map(Some);
            ms.ok_or_else(|| ArticleError::invalid(field, "must be a time as RFC 3339 writes it, or milliseconds"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::article::{Kind, Status};

    /// Written down and read again, with nothing lost: preparing both gives the same change.
    fn survives(mutation: Mutation) -> Mutation {
        let prepared = mutation.prepare(1_000, None, None).unwrap();
        let read = Mutation::from_parts(prepared.operation(), &prepared.body()).unwrap();
        let again = read.clone().prepare(1_000, None, None).unwrap();
        assert_eq!((again.operation(), again.body()), (prepared.operation(), prepared.body()));
        read
    }

    #[test]
    fn every_mutation_survives_being_written_down() {
        let new = || NewArticle::new("A \"title\"", "Text\nwith \u{1F980}").tags(["a, b", "C"]).kind(Kind::Page);
        let Mutation::Create(read) = survives(Mutation::Create(new().publish_at(5_000))) else { panic!() };
        assert!(read.id.is_some() && read.slug.is_none() && read.publish_at == Some(5_000));
        let Mutation::Create(read) = survives(Mutation::Create(new().slug("s").id("i").times(3, 4))) else { panic!() };
        assert_eq!(read, new().slug("s").id("i").times(3, 4));
        let patch = ArticlePatch::default().title("x").tags(["y"]).status(Status::Draft).kind(Kind::Post);
        let expected = Expected { id: Some("i".into()), version: Some(3), updated_at: Some(-5) };
        let update = Mutation::Update { slug: "s".into(), patch: patch.publish_at(9_000), expected: expected.clone() };
        assert_eq!(survives(update.clone()), update);
        let cancel = ArticlePatch { publish_at: Some(None), ..ArticlePatch::default() };
        let cancel = Mutation::Update { slug: "s".into(), patch: cancel, expected: Expected::any() };
        assert_eq!(survives(cancel.clone()), cancel);
        let delete = Mutation::Delete { slug: "s".into(), expected };
        assert_eq!(survives(delete.clone()), delete);
        survives(Mutation::Publish { id: "i".into(), publish_at: 7 });
        survives(Mutation::Import { source: "a/b.md".into(), hash: "h".into(), article: new().times(1, 2) });
    }

    #[test]
    fn what_cannot_be_read_names_its_fault() {
        for (operation, body, field) in [
            ("explode", "{}", "operation"),
            ("create", "{", "body"),
            ("create", "[]", "body"),
            ("create", "{\"content\": \"x\"}", "title"),
            ("create", "{\"title\": \"x\", \"content\": \"y\", \"created_at\": \"2026-01-01 00:00:00\"}", "created_at"),
            ("update", "{\"slug\": \"a\"}", "patch"),
            ("update", "{\"slug\": \"a\", \"patch\": {\"titel\": \"x\"}}", "titel"),
            ("delete", "{\"slug\": 1}", "slug"),
            ("delete", "{\"slug\": \"a\", \"expected\": {\"version\": \"1\"}}", "expected.version"),
            ("publish", "{\"id\": \"a\"}", "publish_at"),
            ("import", "{\"source\": \"a\", \"hash\": \"b\"}", "article"),
        ] {
            let error = Mutation::from_parts(operation, body).unwrap_err();
            assert_eq!(error.field(), Some(field), "{operation} {body}: {error}");
        }
    }
}
