//! What a ledger is told at its construction, and what it refuses.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::outbox::Policy;
use crate::outbox::policy::doubled_sum;
use crate::storage::ReadError;

/// The numbers a [`Ledger`](super::Ledger) works with. Start from `LedgerOptions::default()` and assign what differs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerOptions {
    /// A claim older than this is taken over, even if its owner may live; 1,800 s. A dead owner's claim is taken over at
    /// once where the dead can be told from the living.
    pub lease: Duration,
    /// How long a finished entry is remembered; 30 days. Dead letters stay until somebody discards them.
    pub retention: Duration,
    /// How long after its first delivery the other side may bring an event again (its own retention); 7 days.
    pub redelivery: Duration,
    /// Attempts, backoff and crash limit; as for a local relay.
    pub policy: Policy,
    /// How long an event that may have killed a process waits for its turn alone, and others for it; 30 s.
    pub turn_limit: Duration,
    /// Most entries removed in one task of the queue-writer; 200.
    pub rows_per_task: usize,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(1_800),
            retention: Duration::from_secs(30 * 86_400),
            redelivery: Duration::from_secs(7 * 86_400),
            policy: Policy::default(),
            turn_limit: Duration::from_secs(30),
            rows_per_task: 200,
        }
    }
}

impl LedgerOptions {
    /// The longest time between the end of an event and the last moment at which it may come once more: what the other
    /// side keeps, every backoff, a lease for each allowed crash and for the last claim, and the longest pause. A ledger
    /// that forgets earlier would let the event run twice.
    pub fn horizon(&self) -> Duration {
        let policy = &self.policy;
        let backoffs = doubled_sum(policy.backoff_base, policy.max_calls.saturating_sub(1), policy.backoff_max);
        let leases = self.lease.saturating_mul(policy.max_crashes.saturating_add(1));
        [backoffs, leases, policy.longest_wait()].into_iter().fold(self.redelivery, Duration::saturating_add)
    }

    pub(super) fn check(&self) -> Result<(), LedgerSetupError> {
        if self.lease.is_zero() {
            return Err(LedgerSetupError::Lease);
        }
        let horizon = self.horizon();
        if self.retention < horizon {
            return Err(LedgerSetupError::RetentionTooShort { retention: self.retention, horizon });
        }
        Ok(())
    }
}

/// Why there is no ledger.
#[derive(Debug)]
#[non_exhaustive]
pub enum LedgerSetupError {
    /// Entries would be forgotten while their events may still come again.
    RetentionTooShort {
        /// As in the options.
        retention: Duration,
        /// The longest time in which an event may come again; see [`LedgerOptions::horizon`].
        horizon: Duration,
    },
    /// A lease of no length would let everything run twice.
    Lease,
    /// The database was not opened with [`outbox::LEDGER_COMPONENT`](crate::outbox::LEDGER_COMPONENT).
    NoLedger,
    /// The database is not open.
    NotOpen,
    /// The proof of life beside the database could not be created.
    OwnerFile(io::Error),
    /// The database could not be read.
    Read(ReadError<rusqlite::Error>),
}

impl fmt::Display for LedgerSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RetentionTooShort { retention, horizon } => write!(
                f,
                "the ledger would forget after {} s what may come again for {} s (redelivery, retries and leases \
                 together): raise its retention, or lower those",
                retention.as_secs(),
                horizon.as_secs()
            ),
            Self::Lease => f.write_str("the ledger's lease must be above zero"),
            Self::NoLedger => {
                f.write_str("the database has no ledger: open it with outbox::LEDGER_COMPONENT among its components")
            }
            Self::NotOpen => f.write_str("the database is not open: open it before the ledger"),
            Self::OwnerFile(error) => {
                write!(f, "the ledger's owner file could not be created beside the database: {error}")
            }
            Self::Read(error) => write!(f, "the ledger could not be read: {error}"),
        }
    }
}

impl std::error::Error for LedgerSetupError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::OwnerFile(error) => Some(error),
            Self::Read(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c47_a_retention_shorter_than_the_longest_redelivery_is_refused() {
        let mut options = LedgerOptions::default();
        options.check().unwrap();
        let horizon = options.horizon();
        // 7 days, 5 s + 10 s of backoff, 4 leases, and a pause of 120 s.
        assert_eq!(horizon, Duration::from_secs(7 * 86_400 + 15 + 4 * 1_800 + 120));
        options.retention = horizon - Duration::from_millis(1);
        let refused = options.check().unwrap_err();
        assert!(matches!(refused, LedgerSetupError::RetentionTooShort { .. }), "{refused:?}");
        assert!(refused.to_string().contains("raise its retention"), "{refused}");
        options.retention = horizon;
        options.check().unwrap();
    }

    #[test]
    fn the_horizon_does_not_overflow() {
        let mut options = LedgerOptions::default();
        options.policy.max_calls = u32::MAX;
        options.policy.max_crashes = u32::MAX;
        options.policy.backoff_max = Duration::MAX;
        options.lease = Duration::MAX;
        assert_eq!(options.horizon(), Duration::MAX);
        assert!(matches!(options.check(), Err(LedgerSetupError::RetentionTooShort { .. })));
        options.lease = Duration::ZERO;
        assert!(matches!(options.check(), Err(LedgerSetupError::Lease)));
    }
}
