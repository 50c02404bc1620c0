//! What both writers do alike with a batch.

use std::sync::Arc;
use std::time::Instant;

use super::{MAX_BATCH_BYTES, MAX_BATCH_JOBS, Receipt, WriteError, WriteJob};
use crate::article::{ArticleError, Outcomes, PreparedMutation, RequestKey};

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
                Some(outcome) => outcome.map(Receipt::from).map_err(WriteError::from),
                None => Err(WriteError::Internal("a job of the batch was left without an outcome".to_owned())),
            },
        };
        self.invalid.into_iter().map(answer).collect()
    }
}
