//! What both writers do alike with a batch.

use std::sync::Arc;
use std::time::Instant;

use rusqlite::Transaction;

use super::gate::{self, Gate, Refusal};
use super::{MAX_BATCH_BYTES, MAX_BATCH_JOBS, Receipt, WriteError, WriteJob};
use crate::article::{ArticleError, PreparedMutation};

/// What became of each valid job, in order.
pub(super) type Outcomes = Vec<Result<Receipt, Refusal>>;

/// A batch made ready: the valid jobs, and for each job of the caller what is wrong with it, if something is.
pub(super) struct Batch {
    pub mutations: Arc<[PreparedMutation]>,
    pub deadline: Option<Instant>,
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
        let mut invalid = Vec::with_capacity(jobs.len());
        let mut mutations = Vec::with_capacity(jobs.len());
        for job in jobs {
            let prepared = job.prepare(now_ms);
            invalid.push(prepared.map(|mutation| mutations.push(mutation)).err());
        }
        let batch = Self { mutations: mutations.into(), deadline, invalid };
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
                Some(outcome) => outcome.map_err(WriteError::from),
                None => Err(WriteError::Internal("a job of the batch was left without an outcome".to_owned())),
            },
        };
        self.invalid.into_iter().map(answer).collect()
    }
}

/// Applies the mutations in order. What is wrong with one leaves the others alone as long as it wrote nothing; any other
/// failure is the batch's, and the transaction must be rolled back.
pub(super) fn apply_all(
    tx: &Transaction<'_>,
    gate: Option<&dyn Gate>,
    mutations: &[PreparedMutation],
) -> Result<Outcomes, Refusal> {
    let way = gate::way(tx, gate)?;
    let mut outcomes = Vec::with_capacity(mutations.len());
    for mutation in mutations {
        let changes_before = tx.total_changes();
        match gate::pass(tx, gate, way, mutation) {
            Err(error) if !error.is_callers() || tx.total_changes() != changes_before => return Err(error),
            outcome => outcomes.push(outcome),
        }
    }
    Ok(outcomes)
}
