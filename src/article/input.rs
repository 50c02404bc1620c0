//! What callers hand in: new articles, patches, expectations; and how JSON becomes one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Article, ArticleError, Kind, Status};
use crate::clock::parse_rfc3339;

/// An article to be created.
///
/// ```
/// use vayu_articles::article::{NewArticle, Status};
///
/// let article = NewArticle::new("A title", "Some *Markdown*.").tags(["Rust", "SQLite"]).status(Status::Draft);
/// assert_eq!(article.slug, None, "derived from the title when it is stored");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct NewArticle {
    /// 1 to 500 characters, none a control character, not all blank. Stored as given.
    pub title: String,
    /// Markdown, 1 byte to 5 MB, without U+0000. Stored as given.
    pub content: String,
    /// `[a-z0-9][a-z0-9_-]*`, at most 200 characters; derived from the title when absent.
    pub slug: Option<String>,
    /// At most 20 of at most 100 characters; trimmed, repetitions (in any case) dropped.
    pub tags: Vec<String>,
    /// Post by default.
    pub kind: Kind,
    /// Published by default.
    pub status: Status,
    /// When to publish it, milliseconds since the Unix epoch. It is scheduled until then, whatever `status` says; a time that
    /// has passed means now.
    pub publish_at: Option<i64>,
    /// For imports: 1 to 64 of `[A-Za-z0-9_-]`, beginning with a letter or digit. A fresh UUIDv7 when absent.
    pub id: Option<String>,
    /// For imports: milliseconds since the Unix epoch. Now when absent.
    pub created_at: Option<i64>,
    /// For imports: milliseconds since the Unix epoch. `created_at` when absent.
    pub updated_at: Option<i64>,
}

/// A partial change: what is `None` stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArticlePatch {
    /// A new title; the slug stays.
    pub title: Option<String>,
    /// New content.
    pub content: Option<String>,
    /// A new slug; the article's own is fine.
    pub slug: Option<String>,
    /// All tags from now on; an empty list removes them.
    pub tags: Option<Vec<String>>,
    /// A new kind.
    pub kind: Option<Kind>,
    /// A new status. `draft` and `published` end a schedule.
    pub status: Option<Status>,
    /// When to publish it, as in [`NewArticle::publish_at`]; `Some(None)` takes the time away and leaves a draft. An article that
    /// is published already is withdrawn until then only if `status` is [`Status::Scheduled`].
    pub publish_at: Option<Option<i64>>,
}

/// What the caller believes the article to be; what is `None` is not compared. Makes a change compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Expected {
    /// The article's id: tells a recreated slug from the article it once named.
    pub id: Option<String>,
    /// The article's version.
    pub version: Option<i64>,
    /// The article's last change, milliseconds since the Unix epoch: tells versions apart across a restored backup.
    pub updated_at: Option<i64>,
}

impl NewArticle {
    /// A published post without tags.
    pub fn new(title: impl Into<String>, content: impl Into<String>) -> Self {
        Self { title: title.into(), content: content.into(), ..Self::default() }
    }

    /// Sets an explicit slug.
    #[must_use]
    pub fn slug(mut self, slug: impl Into<String>) -> Self {
        self.slug = Some(slug.into());
        self
    }

    /// Sets the tags.
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the kind.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// Schedules it (milliseconds since the Unix epoch).
    #[must_use]
    pub fn publish_at(mut self, at_ms: i64) -> Self {
        self.publish_at = Some(at_ms);
        self
    }

    /// Sets the id, for an article that has one already.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets both times (milliseconds since the Unix epoch), for an article that is older than its import.
    #[must_use]
    pub fn times(mut self, created_at: i64, updated_at: i64) -> Self {
        self.created_at = Some(created_at);
        self.updated_at = Some(updated_at);
        self
    }

    /// An article from a JSON object with `title`, `content` and optionally `slug`, `tags`, `kind`, `status`, `publish_at` (RFC 3339
    /// with its offset).
    ///
    /// `null` is never taken for an absent field. `id`, `version`, `created_at` and `updated_at`, which a stored article
    /// has besides, are passed over, so that what was read can be sent back; any other field is refused. Lengths are
    /// checked when the article is stored.
    ///
    /// # Errors
    /// [`ArticleError::Invalid`] with the field's name and what it must be; `body` if `json` is not an object.
    pub fn from_json(json: &Value) -> Result<Self, ArticleError> {
        let patch = ArticlePatch::from_json(json)?;
        Ok(Self {
            title: patch.title.ok_or_else(|| ArticleError::invalid("title", "is missing"))?,
            content: patch.content.ok_or_else(|| ArticleError::invalid("content", "is missing"))?,
            slug: patch.slug,
            tags: patch.tags.unwrap_or_default(),
            kind: patch.kind.unwrap_or_default(),
            status: patch.status.unwrap_or_default(),
            publish_at: patch.publish_at.flatten(),
            ..Self::default()
        })
    }
}

impl ArticlePatch {
    /// A new title.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// New content.
    #[must_use]
    pub fn content(mut self, content: impl Into<String>) -> Self {
        self.content = Some(content.into());
        self
    }

    /// A new slug.
    #[must_use]
    pub fn slug(mut self, slug: impl Into<String>) -> Self {
        self.slug = Some(slug.into());
        self
    }

    /// All tags from now on.
    #[must_use]
    pub fn tags<T: Into<String>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.tags = Some(tags.into_iter().map(Into::into).collect());
        self
    }

    /// A new kind.
    #[must_use]
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// A new status.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Publishes it at that time (milliseconds since the Unix epoch).
    #[must_use]
    pub fn publish_at(mut self, at_ms: i64) -> Self {
        self.publish_at = Some(Some(at_ms));
        self
    }

    /// Takes the time of publication away.
    #[must_use]
    pub fn no_publish_at(mut self) -> Self {
        self.publish_at = Some(None);
        self
    }

    /// A patch from a JSON object: an absent field stays as it is, `null` is refused, except that it takes `publish_at` away.
    /// Otherwise as [`NewArticle::from_json`].
    ///
    /// # Errors
    /// [`ArticleError::Invalid`] with the field's name and what it must be; `body` if `json` is not an object.
    pub fn from_json(json: &Value) -> Result<Self, ArticleError> {
        let object = json.as_object().ok_or_else(|| ArticleError::invalid("body", "must be a JSON object"))?;
        refuse_unknown(object)?;
        Ok(Self {
            title: text(object, "title")?,
            content: text(object, "content")?,
            slug: text(object, "slug")?,
            tags: list(object, "tags")?,
            kind: text(object, "kind")?.map(|name| name.parse()).transpose()?,
            status: text(object, "status")?.map(|name| name.parse()).transpose()?,
            publish_at: publish_at(object)?,
        })
    }
}

impl Expected {
    /// Whatever it is: only its slug must exist.
    pub fn any() -> Self {
        Self::default()
    }

    /// Exactly this article in this state.
    pub fn exactly(article: &Article) -> Self {
        Self { id: Some(article.id.clone()), version: Some(article.version), updated_at: Some(article.updated_at) }
    }

    /// This version of whatever article has the slug.
    pub fn version(version: i64) -> Self {
        Self { version: Some(version), ..Self::default() }
    }

    pub(super) fn check(&self, current: &Article) -> Result<(), ArticleError> {
        let met = self.id.as_ref().is_none_or(|id| *id == current.id)
            && self.version.is_none_or(|version| version == current.version)
            && self.updated_at.is_none_or(|at| at == current.updated_at);
        if met {
            return Ok(());
        }
        Err(ArticleError::Stale {
            expected: self.clone(),
            id: current.id.clone(),
            version: current.version,
            updated_at: current.updated_at,
        })
    }
}

const KNOWN: [&str; 7] = ["title", "content", "slug", "tags", "kind", "status", "publish_at"];
const PASSED_OVER: [&str; 4] = ["id", "version", "created_at", "updated_at"];

fn refuse_unknown(object: &Map<String, Value>) -> Result<(), ArticleError> {
    let known = |name: &str| KNOWN.contains(&name) || PASSED_OVER.contains(&name);
    match object.keys().find(|name| !known(name)) {
        None => Ok(()),
        Some(name) => Err(ArticleError::invalid(
            name.chars().take(64).collect::<String>(),
            format!("is not a field of an article; its fields are {}", KNOWN.join(", ")),
        )),
    }
}

fn text(object: &Map<String, Value>, field: &'static str) -> Result<Option<String>, ArticleError> {
    match object.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(ArticleError::invalid(field, format!("must be a string, not {}", name_of(other)))),
    }
}

fn publish_at(object: &Map<String, Value>) -> Result<Option<Option<i64>>, ArticleError> {
    if object.get("publish_at").is_some_and(Value::is_null) {
        return Ok(Some(None));
    }
    let Some(text) = text(object, "publish_at")? else { return Ok(None) };
    match parse_rfc3339(&text) {
        Ok(at) => Ok(Some(Some(at))),
        Err(reason) => Err(ArticleError::invalid("publish_at", reason)),
    }
}

fn list(object: &Map<String, Value>, field: &'static str) -> Result<Option<Vec<String>>, ArticleError> {
    let items = match object.get(field) {
        None => return Ok(None),
        Some(Value::Array(items)) => items,
        Some(other) => {
            let reason = format!("must be an array of strings, not {}", name_of(other));
            return Err(ArticleError::invalid(field, reason));
        }
    };
    let item = |(index, item): (usize, &Value)| match item {
        Value::String(text) => Ok(text.clone()),
        other => Err(ArticleError::invalid(field, format!("[{index}] must be a string, not {}", name_of(other)))),
    };
    items.iter().enumerate().map(item).collect::<Result<_, _>>().map(Some)
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null (leave the field out instead)",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn case_c16_absent_null_and_wrongly_typed_fields_are_told_apart() {
        assert_eq!(ArticlePatch::from_json(&json!({})).unwrap(), ArticlePatch::default());
        assert_eq!(ArticlePatch::from_json(&json!({"tags": []})).unwrap().tags, Some(vec![]));
        for (body, field) in [
            (json!({"tags": null}), "tags"),
            (json!({"tags": "rust"}), "tags"),
            (json!({"tags": [1]}), "tags"),
            (json!({"tags": ["a", null]}), "tags"),
            (json!({"title": null}), "title"),
            (json!({"content": 7}), "content"),
            (json!({"slug": null}), "slug"),
            (json!({"kind": "essay"}), "kind"),
            (json!({"status": true}), "status"),
            (json!({"titel": "x"}), "titel"),
            (json!([]), "body"),
            (json!(null), "body"),
        ] {
            let error = ArticlePatch::from_json(&body).unwrap_err();
            assert_eq!(error.field(), Some(field), "{body}: {error}");
            assert!(matches!(error, ArticleError::Invalid { .. }));
        }
    }

    #[test]
    fn a_creation_needs_title_and_content() {
        let error = NewArticle::from_json(&json!({"content": "x"})).unwrap_err();
        assert_eq!(error.to_string(), "title is missing");
        let error = NewArticle::from_json(&json!({"title": "x"})).unwrap_err();
        assert_eq!(error.to_string(), "content is missing");
        let article = NewArticle::from_json(&json!({"title": "x", "content": "y", "kind": "page", "status": "draft"}));
        assert_eq!(article.unwrap(), NewArticle::new("x", "y").kind(Kind::Page).status(Status::Draft));
    }

    #[test]
    fn what_was_read_can_be_sent_back() {
        let read = json!({"id": "i", "kind": "post", "status": "draft", "slug": "s", "title": "t", "content": "c",
            "tags": ["a"], "version": 3, "created_at": 1, "updated_at": 2});
        let patch = ArticlePatch::from_json(&read).unwrap();
        assert_eq!((patch.slug.as_deref(), patch.status), (Some("s"), Some(Status::Draft)));
        assert_eq!(NewArticle::from_json(&read).unwrap().id, None);
    }
}
