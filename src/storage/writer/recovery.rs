//! After a COMMIT of unknown outcome: open the file anew, look, and trust the look only after a commit of our own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::Connection;

use super::group::Attempt;
use super::task::Verdict;
use super::thread::Writer;
use crate::storage::Fault;

const BUMP: &str = "UPDATE vayu_recovery SET commits = commits + 1 WHERE id = 1";

impl Writer {
    /// Finds out what became of the group. The verdict is for every member without one of its own: one transaction,
    /// one fate.
    ///
    /// A frame whose sync failed may still be in the log, invisible, and come back when the log is recovered after a
    /// crash. Only a further commit, which takes its place, makes what a look shows final.
    pub(super) fn recover(&mut self, fault: &Fault) -> Verdict {
        let text = &fault.message;
        let verdict = match self.look_again() {
            Ok(Some(true)) => Verdict::Own,
            Ok(Some(false)) => Verdict::Database(fault.clone()),
            Ok(None) => Verdict::OutcomeUnknown(format!("COMMIT failed and no task says how to look it up: {text}")),
            Err(second) => {
                Verdict::OutcomeUnknown(format!("COMMIT failed: {text}; looking it up failed too: {}", second.message))
            }
        };
        if !matches!(verdict, Verdict::Own) {
            self.void_verdicts(fault);
        }
        log::error!("event=commit_in_doubt tasks={} error=\"{text}\" verdict={verdict:?}", self.group.len());
        verdict
    }

    fn look_again(&mut self) -> Result<Option<bool>, Fault> {
        #[cfg(test)]
        self.inbox.shared.injected.reopen()?;
        let writable = self.settings.connect().map_err(crate::storage::OpenError::into_fault)?;
        let connection = &writable.connection;
        let tx = self.begin(connection).map_err(|end| match end {
            Attempt::Failed(fault) => fault,
            _ => Fault::from(rusqlite::Error::InvalidQuery),
        })?;
        let found = writable.guard.lend(|| self.probe(connection));
        tx.execute_batch(BUMP)?;
        self.commit_now(connection, &writable.guard)?;
        drop(tx);
        self.connection = Some(writable);
        Ok(found)
    }

    /// One probe that finds its task's effect speaks for all; else one that misses it does. Only tasks that wrote are
    /// asked: of another nothing can be found, whatever became of the group. `None` when nobody can tell.
    fn probe(&self, connection: &Connection) -> Option<bool> {
        let written = self.group.iter().filter(|member| member.verdict.is_none() && !member.erred && member.wrote);
        let answers =
            written.filter_map(|member| member.ticket.probe.as_ref()).filter_map(|probe| {
                match catch_unwind(AssertUnwindSafe(|| probe(connection))) {
                    Ok(Ok(found)) => Some(found),
                    Ok(Err(error)) => {
                        log::warn!("event=probe_failed error=\"{error}\"");
                        None
                    }
                    Err(_) => {
                        log::warn!("event=probe_panicked");
                        None
                    }
                }
            });
        let mut missed = None;
        for found in answers {
            if found {
                return Some(true);
            }
            missed = Some(false);
        }
        missed
    }
}
