//! What an article is, and what its events say.

use std::fmt;
use std::str::FromStr;

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use super::ArticleError;

/// Type of the event that a creation emits.
pub const CREATED: &str = "article.created.v1";
/// Type of the event that an update emits.
pub const UPDATED: &str = "article.updated.v1";
/// Type of the event that a deletion emits.
pub const DELETED: &str = "article.deleted.v1";

/// Post or page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Listed, tagged, in feeds.
    #[default]
    Post,
    /// A standing page.
    Page,
}

/// Whether the public sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Only its author sees it.
    Draft,
    /// Only its author sees it until the time at which a job publishes it. Stored as a draft with that time.
    Scheduled,
    /// Everybody sees it.
    #[default]
    Published,
}

/// An article as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Article {
    /// UUIDv7, unless an import gave another.
    pub id: String,
    /// Post or page.
    pub kind: Kind,
    /// Draft, scheduled or published.
    pub status: Status,
    /// Unique name in URLs.
    pub slug: String,
    /// 1 to 500 characters.
    pub title: String,
    /// Markdown, 1 byte to 5 MB.
    pub content: String,
    /// Labels in first-seen order.
    pub tags: Vec<String>,
    /// 1 at creation, one more at each change.
    pub version: i64,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub updated_at: i64,
    /// When it will be published, milliseconds since the Unix epoch; of a scheduled article only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_at: Option<i64>,
}

/// The payload of `article.created.v1`, `article.updated.v1` and `article.deleted.v1`; never the content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArticleEvent {
    /// Article id; also the event's key.
    pub id: String,
    /// Version after the change (of a deletion: one above the last).
    pub version: i64,
    /// Post or page.
    pub kind: Kind,
    /// Slug after the change (of a deletion: the last).
    pub slug: String,
    /// Title after the change.
    pub title: String,
    /// Status after the change; a scheduled article is a draft here.
    pub status: Status,
    /// Tags after the change (empty after a deletion).
    pub tags: Vec<String>,
    /// What was before; `None` for a creation.
    pub previous: Option<Previous>,
}

/// What an update or deletion replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// Slug before.
    pub slug: String,
    /// Status before; a scheduled article was a draft.
    pub status: Status,
    /// Tags before.
    pub tags: Vec<String>,
}

impl Article {
    /// The payload of an event that leaves this article as it is now.
    pub(super) fn event(&self, previous: Option<Previous>) -> ArticleEvent {
        ArticleEvent {
            id: self.id.clone(),
            version: self.version,
            kind: self.kind,
            slug: self.slug.clone(),
            title: self.title.clone(),
            status: self.status.stored(),
            tags: self.tags.clone(),
            previous,
        }
    }

    /// What the next event will name as having been before.
    pub(super) fn as_previous(&self) -> Previous {
        Previous { slug: self.slug.clone(), status: self.status.stored(), tags: self.tags.clone() }
    }
}

impl Kind {
    /// Every kind there is.
    pub const ALL: &'static [Kind] = &[Kind::Post, Kind::Page];

    /// The kind's name in JSON, SQL and URLs: `post`, `page`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Post => "post",
            Kind::Page => "page",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }
}

impl Status {
    /// Every status there is.
    pub const ALL: &'static [Status] = &[Status::Draft, Status::Scheduled, Status::Published];

    /// The status's name in JSON and URLs: `draft`, `scheduled`, `published`.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Draft => "draft",
            Status::Scheduled => "scheduled",
            Status::Published => "published",
        }
    }

    /// What stands in the table's column and in events.
    pub(super) fn stored(self) -> Self {
        if self == Status::Scheduled { Status::Draft } else { self }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.as_str() == name)
    }
}

impl FromStr for Kind {
    type Err = ArticleError;

    fn from_str(name: &str) -> Result<Self, ArticleError> {
        Self::from_name(name).ok_or_else(|| ArticleError::invalid("kind", "must be \"post\" or \"page\""))
    }
}

impl FromStr for Status {
    type Err = ArticleError;

    fn from_str(name: &str) -> Result<Self, ArticleError> {
        Self::from_name(name)
            .ok_or_else(|| ArticleError::invalid("status", "must be \"draft\", \"scheduled\" or \"published\""))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ToSql for Kind {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_str()))
    }
}

impl ToSql for Status {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.stored().as_str()))
    }
}

impl FromSql for Kind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::from_name(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

impl FromSql for Status {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::from_name(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_in_json_sql_and_text() {
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_string(kind).unwrap(), format!("\"{kind}\""));
            assert_eq!(kind.as_str().parse::<Kind>().unwrap(), *kind);
        }
        for status in Status::ALL {
            assert_eq!(serde_json::to_string(status).unwrap(), format!("\"{status}\""));
            assert_eq!(status.as_str().parse::<Status>().unwrap(), *status);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_right_ones() {
        let error = "essay".parse::<Kind>().unwrap_err();
        assert_eq!(error.field(), Some("kind"));
        assert!(error.to_string().contains("\"post\" or \"page\""), "{error}");
    }
}
