//! Articles as the API shows them: times in one form, RFC 3339 in UTC with milliseconds and `Z`.

use serde::Serialize;

use crate::article::{Article, ArticleSummary, Kind, Status};
pub use crate::clock::rfc3339;

/// An article in the API.
#[derive(Debug, Serialize)]
pub(super) struct ArticleView<'a> {
    id: &'a str,
    kind: Kind,
    status: Status,
    slug: &'a str,
    title: &'a str,
    /// Left out in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    tags: &'a [String],
    version: i64,
    created_at: String,
    updated_at: String,
    /// Of a scheduled article only.
    #[serde(skip_serializing_if = "Option::is_none")]
    publish_at: Option<String>,
}

impl<'a> From<&'a Article> for ArticleView<'a> {
    fn from(article: &'a Article) -> Self {
        Self {
            id: &article.id,
            kind: article.kind,
            status: article.status,
            slug: &article.slug,
            title: &article.title,
            content: Some(&article.content),
            tags: &article.tags,
            version: article.version,
            created_at: rfc3339(article.created_at),
            updated_at: rfc3339(article.updated_at),
            publish_at: article.publish_at.map(rfc3339),
        }
    }
}

impl<'a> From<&'a ArticleSummary> for ArticleView<'a> {
    fn from(article: &'a ArticleSummary) -> Self {
        Self {
            id: &article.id,
            kind: article.kind,
            status: article.status,
            slug: &article.slug,
            title: &article.title,
            content: None,
            tags: &article.tags,
            version: article.version,
            created_at: rfc3339(article.created_at),
            updated_at: rfc3339(article.updated_at),
            publish_at: article.publish_at.map(rfc3339),
        }
    }
}

/// A list: `{"items":[…],"page","limit","total"}`.
#[derive(Debug, Serialize)]
pub(super) struct ListView<T> {
    pub(super) items: Vec<T>,
    pub(super) page: u32,
    pub(super) limit: u32,
    pub(super) total: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_form() {
        let table = [
            (0, "1970-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
        ];
        for (ms, want) in table {
            assert_eq!(rfc3339(ms), want, "{ms}");
        }
    }
}
