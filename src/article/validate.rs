//! What is a valid article. Sizes are checked here, never in SQL, whose `length` stops at U+0000.

use super::slug;
use super::tags::{self, Tag};
use super::{ArticleError, ArticlePatch, Kind, Status};

/// Longest title, in characters.
pub const MAX_TITLE_CHARS: usize = 500;
/// Longest content, in bytes (5 MB, counted as 5 × 1024 × 1024).
pub const MAX_CONTENT_BYTES: usize = 5 * 1024 * 1024;
/// Longest id that an import may give, in characters.
const MAX_ID_CHARS: usize = 64;
/// Longest correlation or causation id, in bytes.
const MAX_TRACE_BYTES: usize = 256;
/// 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z: what every date format can show.
const TIMES_MS: std::ops::RangeInclusive<i64> = -62_135_596_800_000..=253_402_300_799_999;

/// A patch whose every field is valid.
#[derive(Debug, Clone, Default)]
pub(super) struct CheckedPatch {
    pub title: Option<String>,
    pub content: Option<String>,
    pub slug: Option<String>,
    pub tags: Option<Vec<Tag>>,
    pub kind: Option<Kind>,
    pub status: Option<Status>,
    pub publish_at: Option<Option<i64>>,
    /// Only imports change it.
    pub created_at: Option<i64>,
}

pub(super) fn patch(patch: ArticlePatch) -> Result<CheckedPatch, ArticleError> {
    patch.title.as_deref().map_or(Ok(()), title)?;
    patch.content.as_deref().map_or(Ok(()), content)?;
    patch.slug.as_deref().map_or(Ok(()), slug::check)?;
    patch.publish_at.flatten().map_or(Ok(()), |at| time("publish_at", at))?;
    if patch.status == Some(Status::Scheduled) && patch.publish_at == Some(None) {
        return Err(unscheduled());
    }
    Ok(CheckedPatch {
        title: patch.title,
        content: patch.content,
        slug: patch.slug,
        tags: patch.tags.as_deref().map(tags::check).transpose()?,
        kind: patch.kind,
        status: patch.status,
        publish_at: patch.publish_at,
        created_at: None,
    })
}

pub(super) fn title(title: &str) -> Result<(), ArticleError> {
    let wrong = |reason: &str| Err(ArticleError::invalid("title", reason));
    if title.trim().is_empty() {
        return wrong("must not be empty");
    }
    // Four bytes a character at most: the length alone refuses a long text before its characters are counted.
    if title.len() > 4 * MAX_TITLE_CHARS || title.chars().count() > MAX_TITLE_CHARS {
        return wrong("must be at most 500 characters");
    }
    if title.chars().any(char::is_control) {
        return wrong("must be one line without control characters");
    }
    Ok(())
}

pub(super) fn content(content: &str) -> Result<(), ArticleError> {
    let wrong = |reason: &str| Err(ArticleError::invalid("content", reason));
    if content.is_empty() {
        return wrong("must not be empty");
    }
    if content.len() > MAX_CONTENT_BYTES {
        return wrong("must be at most 5 MB (5242880 bytes)");
    }
    if content.contains('\0') {
        return wrong("must not contain the character U+0000");
    }
    Ok(())
}

/// An id becomes an event key and part of file names, so it is plain.
pub(super) fn id(id: &str) -> Result<(), ArticleError> {
    let valid = id.len() <= MAX_ID_CHARS
        && id.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric())
        && id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_' || c == b'-');
    if valid {
        return Ok(());
    }
    let reason = "must be 1 to 64 of the characters A-Z, a-z, 0-9, '_' and '-', beginning with a letter or digit";
    Err(ArticleError::invalid("id", reason))
}

pub(super) fn time(field: &'static str, at_ms: i64) -> Result<(), ArticleError> {
    if TIMES_MS.contains(&at_ms) {
        return Ok(());
    }
    Err(ArticleError::invalid(field, "must lie in the years 1 to 9999"))
}

/// Scheduled for when?
pub(super) fn unscheduled() -> ArticleError {
    ArticleError::invalid("publish_at", "is missing: a scheduled article needs its time")
}

/// Correlation and causation ids go into logs and headers.
pub(super) fn trace(field: &'static str, id: Option<&str>) -> Result<(), ArticleError> {
    let valid = |id: &str| !id.is_empty() && id.len() <= MAX_TRACE_BYTES && !id.chars().any(char::is_control);
    if id.is_none_or(valid) {
        return Ok(());
    }
    Err(ArticleError::invalid(field, "must be 1 to 256 bytes without control characters"))
}

/// An import's name for a source, or the hash of its text.
pub(super) fn source(field: &'static str, text: &str) -> Result<(), ArticleError> {
    if !text.is_empty() && text.len() <= 4096 && !text.contains('\0') {
        return Ok(());
    }
    Err(ArticleError::invalid(field, "must be 1 to 4096 bytes without the character U+0000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_met_exactly() {
        title(&"ä".repeat(500)).unwrap();
        title("x").unwrap();
        content("x").unwrap();
        content(&"x".repeat(MAX_CONTENT_BYTES)).unwrap();
        for bad in ["", " \u{3000}", &"ä".repeat(501), &"x".repeat(2001)] {
            assert_eq!(title(bad).unwrap_err().field(), Some("title"));
        }
        for bad in ["", &"x".repeat(MAX_CONTENT_BYTES + 1)] {
            assert_eq!(content(bad).unwrap_err().field(), Some("content"));
        }
    }

    #[test]
    fn case_c17_the_nul_character_is_refused_everywhere() {
        assert_eq!(title("a\0b").unwrap_err().field(), Some("title"));
        assert_eq!(content("blabla \0 blabla END").unwrap_err().field(), Some("content"));
        assert_eq!(slug::check("a\0b").unwrap_err().field(), Some("slug"));
        assert_eq!(tags::check(&["a\0b".to_owned()]).unwrap_err().field(), Some("tags"));
        assert_eq!(source("source", "a\0b").unwrap_err().field(), Some("source"));
        assert_eq!(trace("correlation_id", Some("a\0b")).unwrap_err().field(), Some("correlation_id"));
    }

    #[test]
    fn ids_cannot_leave_a_folder_or_break_a_header() {
        id("0199a3b2-7c0f-7000-8000-000000000000").unwrap();
        for bad in ["", "..", "a/b", "-a", "a b", "a\n", "é", &"x".repeat(65)] {
            assert_eq!(id(bad).unwrap_err().field(), Some("id"), "{bad:?}");
        }
    }

    #[test]
    fn times_stay_where_calendars_can_show_them() {
        time("created_at", 0).unwrap();
        time("created_at", *TIMES_MS.start()).unwrap();
        assert_eq!(time("created_at", i64::MAX).unwrap_err().field(), Some("created_at"));
    }
}
