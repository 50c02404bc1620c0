//! Why work on the index fails, and what that means for a delivery and for a search.

use std::time::Duration;

use super::SearchError;
use crate::outbox::DispatchError;

/// Why work on the index failed.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    /// The articles could not be read.
    Source(DispatchError),
    /// The file was damaged; a new one takes its place.
    Damaged(String),
}

impl Failure {
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Source(DispatchError::unavailable(reason))
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<DispatchError> for Failure {
    fn from(error: DispatchError) -> Self {
        Self::Source(error)
    }
}

impl From<Failure> for DispatchError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sqlite(error) => Self::from(error).context("the search index"),
            Failure::Source(error) => error,
            Failure::Damaged(error) => Self::Unavailable {
                reason: format!("the search index was damaged and is built anew: {error}"),
                retry_after: Some(Duration::ZERO),
            },
        }
    }
}

impl From<Failure> for SearchError {
    fn from(failure: Failure) -> Self {
        let reason = match DispatchError::from(failure) {
            DispatchError::Retry { reason } | DispatchError::Poison { reason } => reason,
            DispatchError::Unavailable { reason, .. } => reason,
        };
        Self::Unavailable { reason }
    }
}
