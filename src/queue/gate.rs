//! What may stand between a writer and the tables: asked inside the transaction, so that its answer holds for it.

use std::fmt;

use rusqlite::{Connection, Transaction};

use super::WriteError;
use crate::article::{
    Applied, ArticleError, Outcome, Outcomes, PreparedMutation, RequestKey, apply, is_remembered, once,
};

/// Decides, inside each transaction, whether mutations are applied now.
///
/// Everything it reads and writes there commits together with the mutation, or not at all.
pub trait Gate: fmt::Debug + Send + Sync + 'static {
    /// What becomes of that many mutations. Asked once per call of a writer, before any of them.
    ///
    /// # Errors
    /// All of them are refused.
    fn way(&self, tx: &Transaction<'_>, count: usize) -> Result<Way, Refusal>;

    /// Keeps the mutation for later and says under which number.
    ///
    /// # Errors
    /// Fails the transaction.
    fn defer(&self, tx: &Transaction<'_>, mutation: &PreparedMutation) -> Result<i64, ArticleError>;

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

/// How the mutations of one call come in.
pub(super) struct Door<'a> {
    pub gate: Option<&'a dyn Gate>,
    pub key: Option<&'a RequestKey>,
    pub now_ms: i64,
}

impl Door<'_> {
    /// Applies or defers the mutations in order, once if they have a key. What is wrong with one leaves the others alone as long as
    /// it wrote nothing; any other failure is the batch's, and the transaction must be rolled back.
    pub(super) fn pass(&self, tx: &Transaction<'_>, mutations: &[PreparedMutation]) -> Result<Outcomes, Refusal> {
        match self.key {
            Some(key) => once(tx, key, self.now_ms, || self.pass_now(tx, mutations)),
            None => self.pass_now(tx, mutations),
        }
    }

    /// [`pass`](Self::pass) for one mutation; a refusal leaves no trace of its key.
    pub(super) fn pass_one(&self, tx: &Transaction<'_>, mutation: &PreparedMutation) -> Result<Outcome, Refusal> {
        let work = || self.way(tx, 1).and_then(|way| Ok(self.one(tx, way, mutation)?));
        let Some(key) = self.key else { return work() };
        let mut outcomes = once(tx, key, self.now_ms, || Ok::<_, Refusal>(vec![Ok(work()?)]))?;
        // A batch has another fingerprint.
        let reused = || Err(ArticleError::KeyReused { key: key.as_str().to_owned() });
        Ok(outcomes.pop().unwrap_or_else(reused)?)
    }

    /// Whether they are committed: all together, so one found speaks for all; one that was refused has no event.
    pub(super) fn is_committed(&self, conn: &Connection, mutations: &[PreparedMutation]) -> rusqlite::Result<bool> {
        if let Some(key) = self.key {
            return is_remembered(conn, key);
        }
        for mutation in mutations {
            let deferred = || self.gate.map_or(Ok(false), |gate| gate.is_deferred(conn, mutation));
            if mutation.is_logged(conn)? || deferred()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn pass_now(&self, tx: &Transaction<'_>, mutations: &[PreparedMutation]) -> Result<Outcomes, Refusal> {
        let way = self.way(tx, mutations.len())?;
        let mut outcomes = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            let changes_before = tx.total_changes();
            match self.one(tx, way, mutation) {
                Err(error) if !error.is_callers() || tx.total_changes() != changes_before => return Err(error.into()),
                outcome => outcomes.push(outcome),
            }
        }
        Ok(outcomes)
    }

    /// Without a gate everything is applied.
    fn way(&self, tx: &Transaction<'_>, count: usize) -> Result<Way, Refusal> {
        self.gate.map_or(Ok(Way::Apply), |gate| gate.way(tx, count))
    }

    fn one(&self, tx: &Transaction<'_>, way: Way, mutation: &PreparedMutation) -> Result<Outcome, ArticleError> {
        match (self.gate, way) {
            (Some(gate), Way::Defer) => gate.defer(tx, mutation).map(Outcome::Deferred),
            (gate, _) => {
                let applied = apply(tx, mutation)?;
                gate.map_or(Ok(()), |gate| gate.applied(tx, mutation, &applied))?;
                Ok(Outcome::Applied(applied))
            }
        }
    }
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
