//! What the queue-writer says about the database's health: in its counters, and in the log without flooding it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::lock;
use super::task::Verdict;
use super::thread::Writer;
use crate::storage::Fault;

/// A fault that goes on is logged this often.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What was logged last, so that a full disk does not fill the log as well.
#[derive(Debug, Default)]
pub(super) struct Health {
    ailing: bool,
    logged: Option<(i32, Instant)>,
}

impl Writer {
    /// A group was answered with `fault`.
    pub(super) fn note_fault(&mut self, fault: &Fault) {
        self.inbox.shared.counters.faults.fetch_add(1, Relaxed);
        let Fault { extended, message, .. } = fault;
        let now = Instant::now();
        let told = self.health.logged.is_some_and(|(code, at)| code == *extended && now - at < LOG_EVERY);
        if !told {
            self.health.logged = Some((*extended, now));
            log::warn!("event=group_failed tasks={} code={extended} error=\"{message}\"", self.group.len());
        }
        self.health.ailing = true;
        *lock(&self.inbox.shared.fault) = Some(fault.clone());
    }

    /// A group was committed.
    pub(super) fn note_health(&mut self) {
        if !self.note_own_fault() && self.health.ailing {
            self.health = Health::default();
            *lock(&self.inbox.shared.fault) = None;
            log::info!("event=writing_works_again");
        }
    }

    /// A member of the group may have met a fault alone. Says whether one did.
    pub(super) fn note_own_fault(&mut self) -> bool {
        let fault = self.group.iter().find_map(|member| match &member.verdict {
            Some(Verdict::Database(fault)) => Some(fault.clone()),
            _ => None,
        });
        if let Some(fault) = &fault {
            self.note_fault(fault);
        }
        fault.is_some()
    }
}
