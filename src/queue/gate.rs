//! What may stand between a writer and the tables: asked inside the transaction, so that its answer holds for it.

use std::fmt;

use rusqlite::{Connection, Transaction};

use super::{Receipt, WriteError};
use crate::article::{Applied, ArticleError, PreparedMutation, apply};

/// Decides, inside each transaction, whether mutations are applied now.
///
/// Everything it reads and writes there commits together with the mutation, or not at all.
pub trait Gate: fmt::Debug + Send + Sync + 'static {
    /// What becomes of the mutations of this transaction. Asked once per call of a writer.
    ///
    /// # Errors
    /// They are refused.
    fn way(&self, tx: &Transaction<'_>) -> Result<Way, Refusal>;

    /// Keeps the mutation for later and says under which number.
    ///
    /// # Errors
    /// It is refused; nothing was written.
    fn defer(&self, tx: &Transaction<'_>, mutation: &PreparedMutation) -> Result<i64, Refusal>;

    /// Follows up what was applied, in the same transaction.
    ///
    /// # Errors
    /// Fails the transaction.
    fn applied(&self, tx: &Transaction<'_>, mutation: &PreparedMutation, applied: &Applied)
    -> Result<(), ArticleError>;

    /// Whether the mutation was kept for later: answers what became of a COMMIT whose outcome is unknown.
    ///
    /// # Errors
    /// As SQLite reports it.
    fn is_deferred(&self, conn: &Connection, mutation: &PreparedMutation) -> rusqlite::Result<bool>;
}

/// Where a mutation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Way {
    /// Into the tables.
    Apply,
    /// Into a queue, to be applied later.
    Defer,
}

/// Why a gate or an article refuses a mutation. Nothing of it was written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The article does not allow it, or the database failed.
    Article(ArticleError),
    /// Nothing is written at present.
    ReadOnly,
    /// As many mutations wait as may.
    Full {
        /// How many those are.
        limit: usize,
    },
}

impl Refusal {
    /// Whether it concerns this mutation alone, as against the database.
    pub(super) fn is_callers(&self) -> bool {
        match self {
            Self::Article(error) => error.is_callers(),
            Self::ReadOnly | Self::Full { .. } => true,
        }
    }
}

/// Applies the mutation or keeps it for later, as `way` says.
pub(super) fn pass(
    tx: &Transaction<'_>,
    gate: Option<&dyn Gate>,
    way: Way,
    mutation: &PreparedMutation,
) -> Result<Receipt, Refusal> {
    match (gate, way) {
        (Some(gate), Way::Defer) => Ok(Receipt::Deferred { job: gate.defer(tx, mutation)? }),
        (gate, _) => {
            let applied = apply(tx, mutation)?;
            gate.map_or(Ok(()), |gate| gate.applied(tx, mutation, &applied))?;
            Ok(Receipt::Applied(applied))
        }
    }
}

/// Without a gate everything is applied.
pub(super) fn way(tx: &Transaction<'_>, gate: Option<&dyn Gate>) -> Result<Way, Refusal> {
    gate.map_or(Ok(Way::Apply), |gate| gate.way(tx))
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Article(error) => error.fmt(f),
            Self::ReadOnly => f.write_str("the site is read-only at present"),
            Self::Full { limit } => write!(f, "{limit} writes wait already, which is as many as may"),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Article(error) => error.source(),
            Self::ReadOnly | Self::Full { .. } => None,
        }
    }
}

impl From<ArticleError> for Refusal {
    fn from(error: ArticleError) -> Self {
        Self::Article(error)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Article(error.into())
    }
}

impl From<Refusal> for WriteError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Article(error) => error.into(),
            Refusal::ReadOnly => Self::ReadOnly,
            Refusal::Full { limit } => Self::JournalFull { limit },
        }
    }
}
