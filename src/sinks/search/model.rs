//! What goes into a search index and comes out of it.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Settings of a [`SearchIndex`](super::SearchIndex).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SearchOptions {
    /// Read connections, at most (default 4).
    pub readers: usize,
    /// Longest wait for a read connection (default 1 s).
    pub read_wait: Duration,
    /// Longest time one search may take (default 2 s).
    pub search_time: Duration,
    /// Longest time one delivery spends on rebuilding a file that was lost while the lane ran (default 20 s; below
    /// the handler's time limit). What is then left is done by the next deliveries.
    pub rebuild_slice: Duration,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self {
            readers: 4,
            read_wait: Duration::from_secs(1),
            search_time: Duration::from_secs(2),
            rebuild_slice: Duration::from_secs(20),
        }
    }
}

/// One page of hits, the best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SearchPage {
    /// The hits of this page.
    pub items: Vec<Hit>,
    /// Number of the page, from 1.
    pub page: u32,
    /// Most hits on a page.
    pub limit: u32,
    /// Hits on all pages.
    pub total: u64,
}

/// One article that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Hit {
    /// Article id.
    pub id: String,
    /// The article's name in URLs.
    pub slug: String,
    /// The title as plain text.
    pub title: String,
    /// The title as HTML, hits in `<mark>`.
    pub title_html: String,
    /// The best part of the content as HTML, hits in `<mark>`.
    pub snippet: String,
    /// The article's tags.
    pub tags: Vec<String>,
    /// When the article was made, milliseconds since the Unix epoch.
    pub created_at: i64,
    /// The higher the better; comparable within one search only.
    pub score: f64,
}

/// Why a search, or work on the index, did not succeed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SearchError {
    /// The query is too long: shorten it.
    InvalidQuery {
        /// Which limit it breaks.
        reason: String,
    },
    /// All read connections stayed in use: try again.
    Busy,
    /// The search took longer than allowed: ask for rarer words.
    TooSlow,
    /// The index cannot be read or written right now: try again later.
    Unavailable {
        /// What is the matter.
        reason: String,
    },
}

impl fmt::Display for SearchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidQuery { reason } => write!(f, "invalid query: {reason}"),
            Self::Busy => f.write_str("too many searches at once: try again"),
            Self::TooSlow => f.write_str("the search took too long: use rarer words"),
            Self::Unavailable { reason } => write!(f, "search is not available, try again later: {reason}"),
        }
    }
}

impl std::error::Error for SearchError {}
