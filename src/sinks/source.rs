//! What the sinks need to know of the articles.

use rusqlite::OptionalExtension as _;

use crate::article::{Article, ArticleRepository, ArticleStamp, RepositoryError};
use crate::outbox::DispatchError;
use crate::storage::ReadError;

/// Read access to the articles' current state, and to what the log says about itself. The [`ArticleRepository`] is one.
///
/// Every answer is a committed state, at least as new as the event that made a sink ask.
pub trait ArticleSource: Send + Sync + 'static {
    /// The article as it is now, whatever its status; `None` when there is none of that id.
    ///
    /// # Errors
    /// [`DispatchError::Unavailable`] when the database cannot be read right now.
    fn article(&self, id: &str) -> Result<Option<Article>, DispatchError>;

    /// The first `limit` articles whose id is greater than `after` (bytewise; `None` is the beginning), by ascending
    /// id, whatever their status. Fewer than `limit` means that there are no more.
    ///
    /// # Errors
    /// As [`article`](Self::article).
    fn stamps_after(&self, after: Option<&str>, limit: u32) -> Result<Vec<ArticleStamp>, DispatchError>;

    /// The event id at position `log_id` of the log; `None` when the log holds no such row (any more).
    ///
    /// # Errors
    /// As [`article`](Self::article).
    fn event_id_at(&self, log_id: i64) -> Result<Option<String>, DispatchError>;

    /// A text that names the present state of all articles together: another one after each change of any.
    ///
    /// # Errors
    /// As [`article`](Self::article).
    fn site_version(&self) -> Result<String, DispatchError>;
}

const EVENT_ID_AT: &str = "SELECT CAST(event_id AS TEXT) FROM event_outbox WHERE id = ?1";

impl ArticleSource for ArticleRepository {
    fn article(&self, id: &str) -> Result<Option<Article>, DispatchError> {
        self.by_id(id).map_err(unreadable)
    }

    fn stamps_after(&self, after: Option<&str>, limit: u32) -> Result<Vec<ArticleStamp>, DispatchError> {
        ArticleRepository::stamps_after(self, after, limit).map_err(unreadable)
    }

    fn event_id_at(&self, log_id: i64) -> Result<Option<String>, DispatchError> {
        self.database()
            .read(|conn| conn.prepare_cached(EVENT_ID_AT)?.query_row([log_id], |row| row.get(0)).optional())
            .map_err(|error| unreadable(RepositoryError::Read(error)))
    }

    fn site_version(&self) -> Result<String, DispatchError> {
        ArticleRepository::site_version(self).map(|version| version.to_string()).map_err(unreadable)
    }
}

/// A row that cannot be decoded is this event's own trouble; everything else is the database's.
fn unreadable(error: RepositoryError) -> DispatchError {
    let reason = format!("the articles cannot be read: {error}");
    match error {
        RepositoryError::Read(ReadError::Read(error)) if error.sqlite_error_code().is_none() => {
            DispatchError::retry(reason)
        }
        RepositoryError::Invalid { .. } => DispatchError::retry(reason),
        RepositoryError::Read(_) => DispatchError::unavailable(reason),
    }
}
