//! Working the line off: group after group, the next one read while one commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::job::JobStatus;
use super::line::{self, Apply, Done, Due, GROUP_JOBS, GroupError};
use super::mode::Mode;
use crate::storage::{Database, Pending, ReadError, TaskOptions, TransactError};

/// Works on one database's line. Several may: each group's jobs are looked at once more in its transaction.
pub(super) struct Worker {
    pub database: Database,
    pub apply: Apply,
}

/// Why there is nothing more to do at present.
#[derive(Debug)]
pub(super) enum Rest {
    /// Nothing is due; the next scheduled job is due then (milliseconds since the Unix epoch).
    Idle { next_run_at: Option<i64> },
    /// The site is not open.
    Held,
    /// The caller asked to stop.
    Asked,
    /// The database failed: nothing is spent, and the line goes on where it is.
    Fault(String),
    /// There is no queue-writer any more.
    Stopped,
}

/// A group that was handed over.
struct Sent {
    group: Arc<[Due]>,
    pending: Pending<Done, GroupError>,
}

type Group = Result<Done, Rest>;

impl Worker {
    /// Applies what is due until nothing is, or `stop` says so. `report` hears of each group.
    pub(super) fn work(&self, stop: &dyn Fn() -> bool, report: &mut dyn FnMut(&Done)) -> Rest {
        let mut sent: Option<Sent> = None;
        loop {
            let in_hand: Vec<i64> = sent.iter().flat_map(|sent| sent.group.iter().map(|due| due.id)).collect();
            let now_ms = self.database.clock().now_ms();
            let look = self.database.read(|conn| line::look(conn, GROUP_JOBS, &in_hand, now_ms));
            if let Some(sent) = sent.take() {
                match self.settle(sent) {
                    Ok(done) => {
                        report(&done);
                        if done.held {
                            return Rest::Held;
                        }
                    }
                    Err(rest) => return rest,
                }
            }
            let look = match look {
                Ok(look) => look,
                Err(ReadError::Closed) => return Rest::Stopped,
                Err(error) => return Rest::Fault(error.to_string()),
            };
            if look.standing.mode != Mode::Open {
                return Rest::Held;
            }
            if look.group.is_empty() && !(look.standing.draining && in_hand.is_empty()) {
                if in_hand.is_empty() {
                    return Rest::Idle { next_run_at: look.next_run_at };
                }
                // What came while the last group committed shows at the next look.
                continue;
            }
            if stop() {
                return Rest::Asked;
            }
            match self.send(look.group.into(), BTreeMap::new()) {
                Ok(begun) => sent = Some(begun),
                Err(rest) => return rest,
            }
        }
    }

    fn send(&self, group: Arc<[Due]>, condemned: BTreeMap<i64, String>) -> Result<Sent, Rest> {
        let (apply, jobs) = (Arc::clone(&self.apply), Arc::clone(&group));
        let now_ms = self.database.clock().now_ms();
        let options = TaskOptions {
            rows: group.iter().map(Due::rows).sum(),
            bytes: group.iter().map(Due::bytes).sum(),
            ..TaskOptions::default()
        };
        let task = move |tx: &rusqlite::Transaction<'_>| line::apply_group(tx, &apply, &jobs, &condemned, now_ms);
        match self.database.writer().submit_internal_with(options, true, task) {
            Ok(pending) => Ok(Sent { group, pending }),
            Err(error) => Err(rest_of(error)),
        }
    }

    /// Waits for the group. Each run again condemns one more of its jobs, so there are at most as many as jobs and one.
    fn settle(&self, mut sent: Sent) -> Group {
        let mut condemned = BTreeMap::new();
        loop {
            let Sent { group, pending } = sent;
            match pending.wait() {
                Ok(done) => return Ok(done),
                Err(TransactError::Task(GroupError::Job { id, reason })) if !condemned.contains_key(&id) => {
                    condemned.insert(id, reason);
                }
                // Not a job's own doing, but that of one of them: only alone it shows whose.
                Err(error @ (TransactError::Panicked(_) | TransactError::Refused(_))) => match &*group {
                    [only] if !condemned.contains_key(&only.id) => {
                        condemned.insert(only.id, line::shortened(&error.to_string()));
                    }
                    [_] => return Err(rest_of(error)),
                    _ => return self.one_by_one(&group, &condemned),
                },
                Err(error) => return Err(rest_of(error)),
            }
            sent = self.send(group, condemned.clone())?;
        }
    }

    fn one_by_one(&self, group: &[Due], condemned: &BTreeMap<i64, String>) -> Group {
        let mut all = Done::default();
        for due in group {
            let done = self.send([due.clone()].into(), condemned.clone()).and_then(|sent| self.settle(sent))?;
            all.held |= done.held;
            all.applied += done.applied;
            all.failed.extend(done.failed);
        }
        Ok(all)
    }
}

fn rest_of(error: TransactError<GroupError>) -> Rest {
    match error {
        TransactError::Stopped | TransactError::WouldDeadlock => Rest::Stopped,
        error => Rest::Fault(error.to_string()),
    }
}

/// Says in the log what a group could not apply.
pub(super) fn log_failures(done: &Done) {
    for (id, status, reason) in &done.failed {
        let advice = if *status == JobStatus::Quarantined { " note=\"replayed too often\"" } else { "" };
        log::warn!("jobs job={id} status={status} reason={reason:?}{advice}");
    }
}
