//! One delivery: look, wait for the turn, claim, run, record.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use rusqlite::OptionalExtension;
use uuid::Uuid;

use super::claim::{self, Asker, Claim, Claimed, Ended, Entry, LOOK_AGAIN_MS, Subject};
use super::stored::StoredEvent;
use super::{Ledger, LedgerError, LedgerOutcome, lock, sql};
use crate::lifecycle::panic_text;
use crate::outbox::event::MAX_NAME_BYTES;
use crate::outbox::gate::{self, AlonePass, Entrance, Pass};
use crate::outbox::owner::{self, Liveness, OwnerState};
use crate::outbox::{DispatchError, Event};
use crate::storage::TransactError;

/// Ends that could not be written and are kept in memory, at most. Beyond that the lease has to do.
const MAX_UNRECORDED: usize = 10_000;
/// Owners whose missing file is being watched, at most.
const MAX_WATCHES: usize = 64;

/// Runs that ended and whose end is not written, by event and handler.
pub(super) type Unrecorded = HashMap<(String, String), (String, Ended)>;

/// What a look at the entry says.
enum Look {
    Answer(LedgerOutcome),
    /// A claim is worth trying.
    Try {
        suspect: bool,
        dead_claim: Option<String>,
    },
}

/// A place among the calls of this process, or alone in it.
enum Turn<'a> {
    Among(#[expect(dead_code, reason = "held")] Pass, #[expect(dead_code, reason = "held")] &'a Entrance),
    Alone(#[expect(dead_code, reason = "held")] AlonePass),
}

impl Ledger {
    pub(super) fn run_named(
        &self,
        event_id: &str,
        handler: &str,
        f: impl FnOnce() -> Result<(), DispatchError>,
    ) -> Result<LedgerOutcome, LedgerError> {
        check_name("event_id", event_id)?;
        check_name("handler", handler)?;
        let subject = Subject { event_id: event_id.to_owned(), handler: handler.to_owned(), order: None, event: None };
        self.run(&Arc::new(subject), |_| f())
    }

    pub(super) fn run_stored(
        &self,
        event: &Event,
        handler: &str,
        f: impl FnOnce(&Event) -> Result<(), DispatchError>,
    ) -> Result<LedgerOutcome, LedgerError> {
        check_name("event_id", &event.event_id)?;
        check_name("handler", handler)?;
        if let Some(key) = &event.key {
            check_name("event_key", key)?;
        }
        let subject = Subject {
            event_id: event.event_id.clone(),
            handler: handler.to_owned(),
            order: event.key.clone().map(|key| (key, event.id)),
            event: Some(StoredEvent::text(event)),
        };
        self.run(&Arc::new(subject), |claimed| {
            let Claimed { attempts, replays, stored } = claimed;
            let counted = match stored {
                Some(stored) => stored.into_event(attempts, replays),
                None => Event { attempts, replays, ..event.clone() },
            };
            f(&counted)
        })
    }

    /// Forgets an entry that waits and has spent nothing: no call failed, no process died, nobody replayed it. To be called
    /// before a delivery is given back. Whoever gets it next may have a ledger of its own; an entry left here would
    /// run again later, perhaps after newer events of its key. Returns whether there was one.
    ///
    /// Only for what the broker brings again: with the entry the ledger's copy of the event goes.
    ///
    /// # Errors
    /// [`LedgerError::Read`] and [`LedgerError::Write`]; the entry stays then.
    pub fn let_go(&self, event_id: &str, handler: &str) -> Result<bool, LedgerError> {
        let inner = &self.inner;
        let is_there = inner.database.read(|connection| claim::is_unspent(connection, event_id, handler));
        if !is_there.map_err(LedgerError::Read)? {
            return Ok(false);
        }
        let (event_id, handler) = (event_id.to_owned(), handler.to_owned());
        let gone = inner.database.writer().submit_internal(false, move |tx| claim::let_go(tx, &event_id, &handler));
        gone.and_then(crate::storage::Pending::wait).map_err(LedgerError::Write)
    }

    fn run(
        &self,
        subject: &Arc<Subject>,
        f: impl FnOnce(Claimed) -> Result<(), DispatchError>,
    ) -> Result<LedgerOutcome, LedgerError> {
        if let Err(error) = self.inner.lock.keep() {
            log::warn!("ledger owner_file=missing error={error}");
        }
        if let Some(outcome) = self.record_late(subject)? {
            return Ok(outcome);
        }
        let (mut suspect, dead_claim) = match self.look(subject)? {
            Look::Answer(outcome) => return Ok(outcome),
            Look::Try { suspect, dead_claim } => (suspect, dead_claim),
        };
        let entrance = Entrance::new();
        let limit = self.inner.options.turn_limit;
        // Twice at most: once among others, and once alone if the claim turns out to be a suspect's.
        for _ in 0..2 {
            let turn = match suspect {
                true => Turn::Alone(gate::enter_alone(limit)),
                false => Turn::Among(entrance.enter(limit), &entrance),
            };
            let token = Uuid::new_v4().to_string();
            match self.claim(subject, &token, suspect, dead_claim.clone())? {
                Claim::Yours(claimed) => {
                    let ended = caught(|| f(claimed));
                    // The turn ends with the record: what runs next shall not be blamed for this claim.
                    let recorded = self.record(subject, token, ended);
                    drop(turn);
                    return recorded;
                }
                Claim::Answer(outcome) => return Ok(outcome),
                Claim::Suspect => suspect = true,
            }
        }
        Ok(LedgerOutcome::Deferred { until: self.now().saturating_add(LOOK_AGAIN_MS) })
    }

    /// Reads and decides without writing: what is done, not due or claimed elsewhere costs no transaction.
    fn look(&self, subject: &Subject) -> Result<Look, LedgerError> {
        let inner = &self.inner;
        let found = inner.database.read(|connection| {
            connection
                .prepare_cached(sql::READ_ROW)?
                .query_row((&subject.event_id, &subject.handler), Entry::read)
                .optional()
        });
        let Some(entry) = found.map_err(LedgerError::Read)? else {
            return Ok(Look::Try { suspect: false, dead_claim: None });
        };
        let now = self.now();
        let owner = if entry.is_claimed() { self.liveness(entry.owner.as_deref()) } else { Owner::Lives };
        let dead = owner == Owner::Dead;
        match entry.answer(now, inner.options.lease, &inner.options.policy, dead) {
            // The claim itself corrects a start in the future.
            Some(_) if entry.is_ahead(now) => {}
            Some(LedgerOutcome::Deferred { until }) if owner == Owner::Missing => {
                let until = until.min(now.saturating_add(LOOK_AGAIN_MS / 2));
                return Ok(Look::Answer(LedgerOutcome::Deferred { until }));
            }
            Some(outcome) => return Ok(Look::Answer(outcome)),
            None => {}
        }
        let suspect = entry.crashes > 0 || entry.is_claimed();
        Ok(Look::Try { suspect, dead_claim: entry.token.filter(|_| dead) })
    }

    fn liveness(&self, owner: Option<&str>) -> Owner {
        let inner = &self.inner;
        let Some(owner) = owner else { return Owner::Lives };
        if owner == inner.lock.id() {
            return Owner::Lives;
        }
        match owner::look(&inner.path, owner).0 {
            OwnerState::Dead => Owner::Dead,
            OwnerState::Alive => Owner::Lives,
            OwnerState::NoOwner | OwnerState::Unknown => {
                let mut watches = lock(&inner.watches);
                if watches.len() >= MAX_WATCHES && !watches.contains_key(owner) {
                    watches.clear();
                }
                let watch = watches.entry(owner.to_owned()).or_default();
                match watch.check(&inner.path, owner, Instant::now()) {
                    Liveness::Dead => Owner::Dead,
                    Liveness::Alive => Owner::Missing,
                }
            }
        }
    }

    fn claim(
        &self,
        subject: &Arc<Subject>,
        token: &str,
        alone: bool,
        dead_claim: Option<String>,
    ) -> Result<Claim, LedgerError> {
        let inner = &self.inner;
        let asker = Asker {
            token: token.to_owned(),
            owner: inner.lock.id().to_owned(),
            now: self.now(),
            lease: inner.options.lease,
            policy: inner.options.policy.clone(),
            alone,
            dead_claim,
        };
        let asked = Arc::clone(subject);
        let claimed = inner.database.writer().transact(move |tx| claim::claim(tx, &asked, &asker));
        claimed.map_err(|error| {
            if matches!(error, TransactError::OutcomeUnknown(_)) {
                // It may be there after all. Nothing ran, so it is put back, now or when the event comes again.
                let ended = Ended::Unavailable { reason: "the claim's outcome is unknown".into(), retry_after: None };
                self.remember(subject, token.to_owned(), ended);
            }
            LedgerError::Claim(error)
        })
    }

    fn record(&self, subject: &Arc<Subject>, token: String, ended: Ended) -> Result<LedgerOutcome, LedgerError> {
        self.settle(subject, &token, ended.clone()).map_err(|error| {
            self.remember(subject, token, ended);
            LedgerError::NotRecorded(error)
        })
    }

    /// Writes the end of an earlier run that could not be written then. `None`: there is none, or it says nothing now.
    fn record_late(&self, subject: &Arc<Subject>) -> Result<Option<LedgerOutcome>, LedgerError> {
        let name = (subject.event_id.clone(), subject.handler.clone());
        let Some((token, ended)) = lock(&self.inner.unrecorded).get(&name).cloned() else { return Ok(None) };
        let outcome = self.settle(subject, &token, ended).map_err(LedgerError::NotRecorded)?;
        lock(&self.inner.unrecorded).remove(&name);
        // Lost or put back: whatever the entry says now counts.
        let over = matches!(outcome, LedgerOutcome::Lost | LedgerOutcome::Unavailable { .. });
        Ok((!over).then_some(outcome))
    }

    fn settle(
        &self,
        subject: &Arc<Subject>,
        token: &str,
        ended: Ended,
    ) -> Result<LedgerOutcome, TransactError<rusqlite::Error>> {
        let (subject, token, now) = (Arc::clone(subject), token.to_owned(), self.now());
        let policy = self.inner.options.policy.clone();
        let task = move |tx: &rusqlite::Transaction<'_>| claim::settle(tx, &subject, &token, &ended, &policy, now);
        // Not counted in the admission: what has run must not be turned away by those who wait to run.
        self.inner.database.writer().submit_internal(false, task)?.wait()
    }

    fn remember(&self, subject: &Subject, token: String, ended: Ended) {
        let mut unrecorded = lock(&self.inner.unrecorded);
        if unrecorded.len() < MAX_UNRECORDED {
            unrecorded.insert((subject.event_id.clone(), subject.handler.clone()), (token, ended));
        }
    }
}

/// What is known of a claim's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Or nothing speaks against it.
    Lives,
    /// Its proof of life is gone; not for long enough yet.
    Missing,
    Dead,
}

fn caught(run: impl FnOnce() -> Result<(), DispatchError>) -> Ended {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Ended::Done,
        Ok(Err(DispatchError::Retry { reason })) => Ended::Failed { reason },
        Ok(Err(DispatchError::Poison { reason })) => Ended::Poison { reason },
        Ok(Err(DispatchError::Unavailable { reason, retry_after })) => Ended::Unavailable { reason, retry_after },
        Err(panic) => Ended::Failed { reason: format!("panicked: {}", panic_text(panic.as_ref())) },
    }
}

fn check_name(field: &'static str, value: &str) -> Result<(), LedgerError> {
    if value.is_empty() || value.len() > MAX_NAME_BYTES || value.contains('\0') {
        return Err(LedgerError::Invalid { field });
    }
    Ok(())
}
