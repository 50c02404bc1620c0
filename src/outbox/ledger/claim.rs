//! A claim and its end, inside a transaction.
//!
//! Every claim has a random token, and only whoever knows it may end the claim. A start time would do almost as well
//! until two claims fall into one millisecond, or the clock is set back and an old claim's time comes round again; then a
//! stale owner could end a claim that is not its own. A token cannot come round, and leaves the start time free to be
//! corrected.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::stored::{RawText, StoredEvent};
use super::{LedgerOutcome, sql};
use crate::outbox::history;
use crate::outbox::operator::{count, lossy};
use crate::outbox::policy::{Policy, millis};

/// When something that stands in the way is looked at again, if nothing better is known; milliseconds.
pub(super) const LOOK_AGAIN_MS: i64 = 1_000;

/// What one run of one handler over one event is about.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) event_id: String,
    pub(super) handler: String,
    /// Key and position, if there is an order to keep.
    pub(super) order: Option<(String, i64)>,
    /// The event as the ledger stores it.
    pub(super) event: Option<String>,
}

/// The entry as it stands.
#[derive(Debug)]
pub(super) struct Entry {
    state: String,
    pub(super) token: Option<String>,
    pub(super) owner: Option<String>,
    started_at: Option<i64>,
    attempts: u32,
    pub(super) crashes: u32,
    replays: u32,
    next_attempt_at: Option<i64>,
    reason: Option<String>,
    history: String,
    event: Option<String>,
}

/// Who asks, when, and under which rules.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) token: String,
    pub(super) owner: String,
    pub(super) now: i64,
    pub(super) lease: Duration,
    pub(super) policy: Policy,
    /// Nothing else runs in this process.
    pub(super) alone: bool,
    /// The claim whose owner is known to be dead.
    pub(super) dead_claim: Option<String>,
}

/// What became of the question for a claim.
#[derive(Debug)]
pub(super) enum Claim {
    Yours(Claimed),
    /// It may have killed a process before: ask again when nothing else runs.
    Suspect,
    Answer(LedgerOutcome),
}

/// A claim that was made.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) attempts: u32,
    pub(super) replays: u32,
    /// The event to run, where the ledger's own counts and not the delivered one.
    pub(super) stored: Option<StoredEvent>,
}

/// How a run ended, in the policy's words.
#[derive(Debug, Clone)]
pub(super) enum Ended {
    Done,
    Failed { reason: String },
    Poison { reason: String },
    Unavailable { reason: String, retry_after: Option<Duration> },
}

impl Entry {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            state: lossy(row, 0)?.unwrap_or_default(),
            token: lossy(row, 1)?,
            owner: lossy(row, 2)?,
            started_at: row.get(3)?,
            attempts: count(row, 4)?,
            crashes: count(row, 5)?,
            replays: count(row, 6)?,
            next_attempt_at: row.get(7)?,
            reason: lossy(row, 8)?,
            history: history::column(row, 9)?,
            // No event that can be read: the delivered one counts.
            event: row.get_ref(10)?.as_str_or_null().ok().flatten().map(str::to_owned),
        })
    }

    pub(super) fn is_claimed(&self) -> bool {
        self.state == "in_progress"
    }

    /// What can be answered without a claim; `dead` says that the claim's owner is.
    pub(super) fn answer(&self, now: i64, lease: Duration, policy: &Policy, dead: bool) -> Option<LedgerOutcome> {
        match self.state.as_str() {
            "done" => Some(LedgerOutcome::Skipped),
            "discarded" => Some(LedgerOutcome::Discarded),
            "dead_letter" => Some(LedgerOutcome::DeadLetter { reason: self.reason.clone().unwrap_or_default() }),
            "retry" => {
                let due = self.next_attempt_at.unwrap_or(now);
                // Further ahead than any wait: the clock was set back since.
                let stranded = due > now.saturating_add(millis(policy.longest_wait()));
                (due > now && !stranded).then_some(LedgerOutcome::Deferred { until: due })
            }
            _ => {
                let until = self.started_at.unwrap_or(now).saturating_add(millis(lease));
                (until > now && !dead).then_some(LedgerOutcome::Deferred { until })
            }
        }
    }

    /// A claim that seems to have been made in the future.
    pub(super) fn is_ahead(&self, now: i64) -> bool {
        self.is_claimed() && self.started_at.is_some_and(|at| at > now)
    }
}

/// Makes the claim, or says why not.
pub(super) fn claim(tx: &Transaction<'_>, subject: &Subject, asker: &Asker) -> rusqlite::Result<Claim> {
    let Asker { now, lease, .. } = *asker;
    let Some(entry) = read(tx, subject)? else {
        if let Some(until) = blocked_until(tx, subject, now, lease)? {
            return Ok(Claim::Answer(LedgerOutcome::Deferred { until }));
        }
        return new_claim(tx, subject, asker);
    };
    let dead = entry.token.is_some() && entry.token == asker.dead_claim;
    if let Some(outcome) = entry.answer(now, lease, &asker.policy, dead) {
        if !entry.is_ahead(now) {
            return Ok(Claim::Answer(outcome));
        }
        tx.prepare_cached(sql::REBASE_CLAIM)?.execute((&subject.event_id, &subject.handler, now))?;
        return Ok(Claim::Answer(LedgerOutcome::Deferred { until: now.saturating_add(millis(lease)) }));
    }
    if let Some(until) = blocked_until(tx, subject, now, lease)? {
        return Ok(Claim::Answer(LedgerOutcome::Deferred { until }));
    }
    claim_again(tx, subject, asker, entry)
}

fn read(tx: &Transaction<'_>, subject: &Subject) -> rusqlite::Result<Option<Entry>> {
    tx.prepare_cached(sql::READ_ROW)?.query_row((&subject.event_id, &subject.handler), Entry::read).optional()
}

/// When to ask again, if an earlier event of the key is still open.
fn blocked_until(tx: &Transaction<'_>, subject: &Subject, now: i64, lease: Duration) -> rusqlite::Result<Option<i64>> {
    let Some((key, position)) = &subject.order else { return Ok(None) };
    let head: Option<(RawText, i64)> = tx
        .prepare_cached(sql::OPEN_BELOW)?
        .query_row((&subject.handler, key, position), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(head.filter(|(event_id, _)| !event_id.is(&subject.event_id)).map(|(_, at)| {
        let soon = now.saturating_add(LOOK_AGAIN_MS);
        // Only a time ahead and within a lease says anything.
        if at > soon && at <= now.saturating_add(millis(lease)) { at } else { soon }
    }))
}

fn new_claim(tx: &Transaction<'_>, subject: &Subject, asker: &Asker) -> rusqlite::Result<Claim> {
    let (key, position) = subject.order.as_ref().map(|(key, position)| (key, position)).unzip();
    tx.prepare_cached(sql::NEW_CLAIM)?.execute((
        &subject.event_id,
        &subject.handler,
        &asker.token,
        &asker.owner,
        asker.now,
        key,
        position,
        &subject.event,
    ))?;
    Ok(Claim::Yours(Claimed { attempts: 0, replays: 0, stored: None }))
}

fn claim_again(tx: &Transaction<'_>, subject: &Subject, asker: &Asker, entry: Entry) -> rusqlite::Result<Claim> {
    let now = asker.now;
    let crashed = entry.is_claimed();
    let crashes = entry.crashes.saturating_add(u32::from(crashed));
    let mut history = entry.history;
    if crashed {
        history = history::append(&history, now, "crash", "the claim was left by an owner that died or went silent");
        if crashes >= asker.policy.max_crashes.max(1) {
            return give_up(tx, subject, entry.attempts, crashes, "crash_loop", &history, now).map(Claim::Answer);
        }
    }
    if crashes > 0 && !asker.alone {
        return Ok(Claim::Suspect);
    }
    tx.prepare_cached(sql::CLAIM_AGAIN)?.execute((
        &subject.event_id,
        &subject.handler,
        &asker.token,
        &asker.owner,
        now,
        crashes,
        history,
        &subject.event,
    ))?;
    let stored = entry.event.as_deref().filter(|_| entry.replays > 0).and_then(StoredEvent::parse);
    Ok(Claim::Yours(Claimed { attempts: entry.attempts, replays: entry.replays, stored }))
}

fn give_up(
    tx: &Transaction<'_>,
    subject: &Subject,
    attempts: u32,
    crashes: u32,
    reason: &str,
    history: &str,
    now: i64,
) -> rusqlite::Result<LedgerOutcome> {
    let reason = history::shorten(reason);
    let history = history::append(history, now, "dead_letter", &reason);
    tx.prepare_cached(sql::GIVE_UP)?.execute((
        &subject.event_id,
        &subject.handler,
        attempts,
        crashes,
        &reason,
        history,
        now,
        &subject.event,
    ))?;
    Ok(LedgerOutcome::DeadLetter { reason })
}

/// Ends the claim that has this token. Without it (taken over, discarded, forgotten) nothing is written.
pub(super) fn settle(
    tx: &Transaction<'_>,
    subject: &Subject,
    token: &str,
    ended: &Ended,
    policy: &Policy,
    now: i64,
) -> rusqlite::Result<LedgerOutcome> {
    let Some(entry) = read(tx, subject)?.filter(|entry| entry.token.as_deref() == Some(token)) else {
        return Ok(LedgerOutcome::Lost);
    };
    match ended {
        Ended::Done => finish(tx, subject, &entry, now),
        Ended::Failed { reason } => fail(tx, subject, &entry, reason, policy, now),
        Ended::Poison { reason } => {
            let reason = format!("poison: {reason}");
            give_up(tx, subject, entry.attempts.saturating_add(1), 0, &reason, &entry.history, now)
        }
        Ended::Unavailable { reason, retry_after } => {
            let wait = retry_after.unwrap_or_default().min(policy.pause_max);
            put_back(tx, subject, &entry, reason, now.saturating_add(millis(wait)), now)?;
            Ok(LedgerOutcome::Unavailable { reason: reason.clone(), retry_after: *retry_after })
        }
    }
}

fn finish(tx: &Transaction<'_>, subject: &Subject, entry: &Entry, now: i64) -> rusqlite::Result<LedgerOutcome> {
    let history = match entry.history.as_str() {
        "[]" => "[]".to_owned(),
        history => history::append(history, now, "done", ""),
    };
    tx.prepare_cached(sql::FINISH)?.execute((&subject.event_id, &subject.handler, history, now))?;
    if let Some((key, position)) = &subject.order {
        let below = (&subject.handler, key, position);
        if tx.prepare_cached(sql::DEAD_BELOW)?.query_row(below, |row| row.get(0))? {
            tx.prepare_cached(sql::SUPERSEDE_DEAD)?.execute((&subject.handler, key, position, now))?;
        }
    }
    Ok(LedgerOutcome::Done)
}

fn fail(
    tx: &Transaction<'_>,
    subject: &Subject,
    entry: &Entry,
    reason: &str,
    policy: &Policy,
    now: i64,
) -> rusqlite::Result<LedgerOutcome> {
    let attempts = entry.attempts.saturating_add(1);
    let reason = history::shorten(reason);
    let history = history::append(&entry.history, now, "retry", &reason);
    if attempts >= policy.max_calls {
        return give_up(tx, subject, attempts, 0, &reason, &history, now);
    }
    let until = now.saturating_add(millis(policy.retry_delay(attempts)));
    tx.prepare_cached(sql::RELEASE)?.execute((
        &subject.event_id,
        &subject.handler,
        until,
        attempts,
        0,
        &reason,
        history,
        now,
    ))?;
    Ok(LedgerOutcome::Retry { reason, attempts, until })
}

/// Nothing is spent. An entry that says nothing but "was begun" goes; one with an event stays, so that the order of its key
/// and the event itself are kept.
fn put_back(
    tx: &Transaction<'_>,
    subject: &Subject,
    entry: &Entry,
    reason: &str,
    until: i64,
    now: i64,
) -> rusqlite::Result<()> {
    let blank = entry.event.is_none() && entry.history == "[]" && entry.replays == 0;
    if blank {
        tx.prepare_cached(sql::FORGET)?.execute((&subject.event_id, &subject.handler))?;
        return Ok(());
    }
    tx.prepare_cached(sql::RELEASE)?.execute((
        &subject.event_id,
        &subject.handler,
        until,
        entry.attempts,
        0,
        history::shorten(reason),
        &entry.history,
        now,
    ))?;
    Ok(())
}

pub(super) fn is_unspent(connection: &Connection, event_id: &str, handler: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached(sql::UNSPENT)?.query_row((event_id, handler), |row| row.get(0))
}

/// Looks once more: somebody may have claimed or replayed it meanwhile.
pub(super) fn let_go(tx: &Transaction<'_>, event_id: &str, handler: &str) -> rusqlite::Result<bool> {
    Ok(is_unspent(tx, event_id, handler)? && tx.prepare_cached(sql::FORGET)?.execute((event_id, handler))? > 0)
}
