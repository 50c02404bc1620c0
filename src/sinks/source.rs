//! What the sinks need to know of the articles.

use crate::article::Article;
use crate::outbox::DispatchError;

/// Read access to the articles' current state, and to what the log says about itself.
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
    fn stamps_after(&self, after: Option<&str>, limit: usize) -> Result<Vec<ArticleStamp>, DispatchError>;

    /// The event id at position `log_id` of the log; `None` when the log holds no such row (any more).
    ///
    /// # Errors
    /// As [`article`](Self::article).
    fn event_id_at(&self, log_id: i64) -> Result<Option<String>, DispatchError>;

    /// Identifies the state of all articles together.
    ///
    /// # Errors
    /// As [`article`](Self::article).
    fn site(&self) -> Result<SiteStamp, DispatchError>;
}

/// Identifies one state of one article. Version and time together, since after a restored backup an article may reach
/// the same version a second time with another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleStamp {
    /// Article id.
    pub id: String,
    /// The article's version.
    pub version: i64,
    /// When it changed last, milliseconds since the Unix epoch.
    pub updated_at: i64,
}

impl ArticleStamp {
    /// The stamp of `article`.
    pub fn of(article: &Article) -> Self {
        Self { id: article.id.clone(), version: article.version, updated_at: article.updated_at }
    }
}

/// Identifies one state of all articles together: changes with every change of any article.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SiteStamp {
    /// Counts changes; may fall back after a restored backup.
    pub version: i64,
    /// When the last change happened, milliseconds since the Unix epoch.
    pub changed_at: i64,
}
