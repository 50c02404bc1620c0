//! Running exceptions: what is due.

use std::collections::HashSet;
use std::time::Instant;

use super::call::Called;
use super::{Interrupt, Lane};
use crate::outbox::flush::{Change, SUPERSEDED, Verdict};
use crate::outbox::log::{Body, Exception, LogRow};

impl Lane {
    /// Runs what is due; `false` when the lane paused.
    pub(super) fn run_exceptions(&mut self, due: Vec<Exception>, log: &[LogRow]) -> Result<bool, Interrupt> {
        let mut finished = HashSet::new();
        for (index, exception) in due.iter().enumerate() {
            if !finished.insert(exception.id) {
                continue;
            }
            let rest = &due[index + 1..];
            let Some(verdict) = self.run_exception(exception, rest, log, &mut finished)? else { return Ok(false) };
            let done = matches!(verdict, Verdict::Done);
            self.conclude_exception(exception, verdict);
            self.flush_if_due(Instant::now())?;
            if let (true, Some(key)) = (done, &exception.key)
                && !self.run_waiting(key, exception, rest, log, &mut finished)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `None` when the lane paused.
    pub(super) fn run_exception(
        &mut self,
        exception: &Exception,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<Option<Verdict>, Interrupt> {
        if let Some(verdict) = self.verdict_without_call(exception) {
            return Ok(Some(verdict));
        }
        let Body::Event(event) = &exception.body else { return Ok(None) };
        let Some(called) = self.attempt(event, exception.crashes > 0, due, log, finished)? else { return Ok(None) };
        Ok(Some(self.verdict(called, exception.attempts)))
    }

    /// What is clear of an exception before anything is called.
    pub(super) fn verdict_without_call(&self, exception: &Exception) -> Option<Verdict> {
        if exception.superseded {
            let reason = "a later event of its key is done; replay it with force if it must run".to_owned();
            return Some(Verdict::Final { attempts: exception.attempts, what: SUPERSEDED, reason });
        }
        match &exception.body {
            Body::Event(_) => None,
            Body::Bad(undecodable) => {
                Some(self.verdict(Called::Undecodable { reason: undecodable.reason.clone() }, exception.attempts))
            }
            Body::Missing | Body::Skip => Some(Verdict::Discarded { reason: "event_missing".to_owned() }),
        }
    }

    pub(super) fn conclude_exception(&mut self, exception: &Exception, verdict: Verdict) {
        if let Some(key) = &exception.key {
            match verdict {
                Verdict::Done | Verdict::Discarded { .. } => {}
                _ if self.passes_over(&verdict) => self.progress.mark_dead(key),
                _ => self.progress.block(key),
            }
        }
        let change =
            Change::Ran { id: exception.id, key: exception.key.clone(), began: exception.began.clone(), verdict };
        self.progress.record(change, Instant::now());
    }
}
