//! Articles: what they are, what is a valid one, and how a transaction changes one together with its event.
//! SKELETON: the article helper fills this in; names and fields are the contract.

use serde::{Deserialize, Serialize};

/// Post or page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Status {
    /// Only its author sees it.
    Draft,
    /// Everybody sees it.
    #[default]
    Published,
}

/// An article as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Article {
    /// UUIDv7.
    pub id: String,
    /// Post or page.
    pub kind: Kind,
    /// Draft or published.
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
    /// Status after the change.
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
    /// Status before.
    pub status: Status,
    /// Tags before.
    pub tags: Vec<String>,
}
