//! What both writers do alike with a batch.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::{Connection, Transaction};

use super::{MAX_BATCH_BYTES, MAX_BATCH_JOBS, Receipt, WriteError, WriteJob};
use crate::article::{Applied, ArticleError, Outcomes, PreparedMutation, RequestKey, apply, is_remembered, once};

/// A batch made ready: the valid jobs, and for each job of the caller what is wrong with it, if something is.
pub(super) struct Batch {
    pub mutations: Arc<[PreparedMutation]>,
    pub deadline: Option<Instant>,
    pub key: Option<Arc<RequestKey>>,
    pub now_ms: i64,
    /// `None` stands for the next of `mutations`.
    invalid: Vec<Option<ArticleError>>,
}

impl Batch {
    /// Checks the batch's limits and its jobs.
    pub(super) fn prepare(jobs: Vec<WriteJob>, now_ms: i64) -> Result<Self, WriteError> {
        if jobs.len() > MAX_BATCH_JOBS {
            return Err(ArticleError::TooMany { given: jobs.len(), limit: MAX_BATCH_JOBS }.into());
        }
        let deadline = jobs.iter().filter_map(|job| job.deadline).min();
        let key = jobs.first().and_then(|job| job.key.clone()).map(Arc::new);
        let mut invalid = Vec::with_capacity(jobs.len());
        let mut mutations = Vec::with_capacity(jobs.len());
        for job in jobs {
            let prepared = job.prepare(now_ms);
            invalid.push(prepared.map(|mutation| mutations.push(mutation)).err());
        }
        let batch = Self { mutations: mutations.into(), deadline, key, now_ms, invalid };
        let bytes = batch.bytes();
        if bytes > MAX_BATCH_BYTES {
            return Err(ArticleError::TooLarge { bytes, limit: MAX_BATCH_BYTES }.into());
        }
        Ok(batch)
    }

    pub(super) fn bytes(&self) -> usize {
        self.mutations.iter().map(PreparedMutation::bytes).sum()
    }

    pub(super) fn rows(&self) -> usize {
        self.mutations.iter().map(PreparedMutation::rows).sum()
    }

    /// The answers to the caller's jobs, from the outcomes of the valid ones.
    pub(super) fn answers(self, outcomes: Outcomes) -> Vec<Result<Receipt, WriteError>> {
        let mut outcomes = outcomes.into_iter();
        let answer = |invalid: Option<ArticleError>| match invalid {
            Some(error) => Err(error.into()),
            None => match outcomes.next() {
                Some(outcome) => outcome.map(Receipt::Applied).map_err(WriteError::from),
                None => Err(WriteError::Internal("a job of the batch was left without an outcome".to_owned())),
            },
        };
        self.invalid.into_iter().map(answer).collect()
    }
}

/// Applies a mutation, once if it has a key.
pub(super) fn apply_one(
    tx: &Transaction<'_>,
    key: Option<&RequestKey>,
    now_ms: i64,
    mutation: &PreparedMutation,
) -> Result<Applied, ArticleError> {
    let Some(key) = key else { return apply(tx, mutation) };
    let mut outcomes = once(tx, key, now_ms, || Ok(vec![Ok(apply(tx, mutation)?)]))?;
    // A batch has another fingerprint.
    outcomes.pop().unwrap_or_else(|| Err(ArticleError::KeyReused { key: key.as_str().to_owned() }))
}

/// Applies the mutations in order, once if they have a key.
pub(super) fn apply_batch(
    tx: &Transaction<'_>,
    key: Option<&RequestKey>,
    now_ms: i64,
    mutations: &[PreparedMutation],
) -> Result<Outcomes, ArticleError> {
    match key {
        Some(key) => once(tx, key, now_ms, || apply_all(tx, mutations)),
        None => apply_all(tx, mutations),
    }
}

/// Whether they are committed: all together, so one found speaks for all; one that was refused has no event.
pub(super) fn is_committed(
    conn: &Connection,
    key: Option<&RequestKey>,
    mutations: &[PreparedMutation],
) -> rusqlite::Result<bool> {
    if let Some(key) = key {
        return is_remembered(conn, key);
    }
    for mutation in mutations {
        if mutation.is_logged(conn)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Applies the mutations in order. What is wrong with one leaves the others alone as long as it wrote nothing; any other
/// failure is the batch's, and the transaction must be rolled back.
fn apply_all(tx: &Transaction<'_>, mutations: &[PreparedMutation]) -> Result<Outcomes, ArticleError> {
    let mut outcomes = Vec::with_capacity(mutations.len());
    for mutation in mutations {
        let changes_before = tx.total_changes();
        match apply(tx, mutation) {
            Err(error) if !error.is_callers() || tx.total_changes() != changes_before => return Err(error),
            outcome => outcomes.push(outcome),
        }
    }
    Ok(outcomes)
}
