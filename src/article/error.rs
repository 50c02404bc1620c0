//! Why a mutation was refused.

use std::borrow::Cow;
use std::fmt;

use super::Expected;
use crate::outbox::InsertError;

/// Why a mutation was not applied. Nothing of it was written, and no event exists.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArticleError {
    /// The input is wrong. Mend `field` as `reason` says.
    Invalid {
        /// The field's name as in JSON (`title`, `tags`, …); `body` when the input as a whole is wrong.
        field: Cow<'static, str>,
        /// What is wrong with it and what would be right.
        reason: String,
    },
    /// Another article has this slug, which was asked for explicitly. Choose another or leave it out.
    SlugTaken {
        /// The slug.
        slug: String,
    },
    /// Another article has this id, which was given explicitly.
    IdTaken {
        /// The id.
        id: String,
    },
    /// No article has this slug.
    NotFound {
        /// The slug.
        slug: String,
    },
    /// The article is not the one, or not in the version, that the caller expected. Read it again, then decide.
    Stale {
        /// What the caller expected.
        expected: Expected,
        /// The id of the article that has the slug now.
        id: String,
        /// Its version now.
        version: i64,
        /// Its last change, milliseconds since the Unix epoch.
        updated_at: i64,
    },
    /// The request's key was used for another request. Choose a fresh key for each.
    KeyReused {
        /// The key.
        key: String,
    },
    /// More items than one batch may have. Split it.
    TooMany {
        /// Items in the batch.
        given: usize,
        /// Items it may have.
        limit: usize,
    },
    /// More bytes than one batch may carry. Split it.
    TooLarge {
        /// Bytes in the batch.
        bytes: usize,
        /// Bytes it may carry.
        limit: usize,
    },
    /// The mutation's event was refused, so the mutation was too.
    Event(InsertError),
    /// SQLite failed.
    Sqlite(rusqlite::Error),
}

impl ArticleError {
    pub(crate) fn invalid(field: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), reason: reason.into() }
    }

    /// A stable name for programs: `invalid`, `slug_taken`, `id_taken`, `not_found`, `stale`, `idempotency_key_reused`,
    /// `too_many`, `too_large`, `event_refused`, `database_error`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "invalid",
            Self::SlugTaken { .. } => "slug_taken",
            Self::IdTaken { .. } => "id_taken",
            Self::NotFound { .. } => "not_found",
            Self::Stale { .. } => "stale",
            Self::KeyReused { .. } => "idempotency_key_reused",
            Self::TooMany { .. } => "too_many",
            Self::TooLarge { .. } => "too_large",
            Self::Event(_) => "event_refused",
            Self::Sqlite(_) => "database_error",
        }
    }

    /// The field at fault, if one is.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Invalid { field, .. } => Some(field),
            Self::SlugTaken { .. } => Some("slug"),
            Self::IdTaken { .. } => Some("id"),
            Self::KeyReused { .. } => Some("idempotency_key"),
            _ => None,
        }
    }

    /// SQLite's error, if one stands behind this: of the article's own statements or of the event's insertion.
    pub fn sqlite(&self) -> Option<&rusqlite::Error> {
        match self {
            Self::Sqlite(error) | Self::Event(InsertError::Sqlite(error)) => Some(error),
            _ => None,
        }
    }

    /// Whether the fault lies with the request, as against the database: `true` leaves a batch's other items alone.
    pub fn is_callers(&self) -> bool {
        !matches!(self, Self::Event(_) | Self::Sqlite(_))
    }
}

impl fmt::Display for ArticleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, reason } => write!(f, "{field} {reason}"),
            Self::SlugTaken { slug } => {
                write!(
                    f,
                    "slug {slug:?} belongs to another article; choose another or leave it out to have one derived"
                )
            }
            Self::IdTaken { id } => write!(f, "id {id:?} belongs to another article"),
            Self::NotFound { slug } => write!(f, "no article has the slug {slug:?}"),
            Self::Stale { id, version, .. } => write!(
                f,
                "the article has changed: it is now version {version} of {id}; read it again and repeat the change"
            ),
            Self::KeyReused { key } => {
                write!(f, "the key {key:?} was used for another request; choose a fresh one for each")
            }
            Self::TooMany { given, limit } => {
                write!(f, "a batch of {given} items; at most {limit} are allowed, split it")
            }
            Self::TooLarge { bytes, limit } => {
                write!(f, "a batch of {bytes} bytes; at most {limit} are allowed, split it")
            }
            Self::Event(error) => write!(f, "the event was refused, so the change was not made: {error}"),
            Self::Sqlite(error) => write!(f, "the database failed, the change was not made: {error}"),
        }
    }
}

impl std::error::Error for ArticleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Event(error) => Some(error),
            Self::Sqlite(error) => Some(error),
            _ => None,
        }
    }
}

impl From<rusqlite::Error> for ArticleError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<InsertError> for ArticleError {
    fn from(error: InsertError) -> Self {
        Self::Event(error)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn sqlites_error_is_found_wherever_it_arose() {
        let busy = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None);
        for error in [ArticleError::from(busy()), ArticleError::from(InsertError::Sqlite(busy()))] {
            assert_eq!(error.sqlite(), Some(&busy()));
            assert!(error.source().is_some() && !error.is_callers());
        }
        let invalid = InsertError::Invalid { field: "payload", reason: "is not JSON".into() };
        assert!(ArticleError::from(invalid).sqlite().is_none());
    }

    #[test]
    fn messages_name_the_field_and_the_way_out() {
        let error = ArticleError::invalid("title", "must not be empty");
        assert_eq!((error.to_string().as_str(), error.field()), ("title must not be empty", Some("title")));
        let error = ArticleError::SlugTaken { slug: "a".into() };
        assert!(error.to_string().contains("choose another"), "{error}");
    }
}
