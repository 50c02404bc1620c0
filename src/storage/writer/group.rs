//! One group, one transaction: run the tasks, commit, answer. What goes wrong is sorted here so that it costs the fewest.

use std::hint;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::{Connection, DropBehavior, ErrorCode, Transaction, TransactionBehavior};

use super::connection::Writable;
use super::task::{Ran, Ticket, Verdict};
use super::thread::{Caps, Member, Writer};
use crate::storage::Fault;
use crate::storage::guard::Guard;

/// Longest pause between two tries to get the write lock; each is a random part of it, at least a tenth.
const LOCK_PAUSE_US_MAX: u64 = 8_000;
/// The part of a COMMIT's time, and the longest time, that a group waits for one more caller.
const PATIENCE_PART: u32 = 8;
const PATIENCE_MAX: Duration = Duration::from_micros(200);
const SAVEPOINT: &str = "SAVEPOINT task";
const KEEP: &str = "RELEASE task";
const UNDO: &str = "ROLLBACK TO task; RELEASE task";

/// How the tasks of a group are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Not at all: the fast way, when no task fails after writing.
    Plain,
    /// A savepoint around each.
    Savepoints,
}

/// How one try to write the group ended.
#[derive(Debug)]
pub(super) enum Attempt {
    Committed,
    /// Nothing to commit: every member has its verdict.
    Settled,
    /// Rolled back; a member got its final verdict or the mode has to change.
    Again(Mode),
    /// Rolled back; the database failed, nothing of the group is written.
    Failed(Fault),
    /// COMMIT failed in a way that leaves its outcome open.
    InDoubt(Fault),
    /// Rolled back: a constraint that is checked at COMMIT is violated by one of the group.
    Violated(Fault),
    /// All callers gave up, or the stop's time is over, before the lock was there.
    NotTaken,
}

impl Writer {
    /// Writes the group and answers every member. Says whether subscribers are to be woken.
    pub(super) fn write_group(&mut self) -> bool {
        self.write(true)
    }

    /// `may_grow`: whether what comes meanwhile may join.
    fn write(&mut self, may_grow: bool) -> bool {
        match self.try_until_settled(may_grow) {
            Attempt::Committed => {
                self.note_health();
                self.settle(&Verdict::Own)
            }
            Attempt::Settled => {
                self.note_own_fault();
                self.settle(&Verdict::Own)
            }
            Attempt::Violated(fault) => self.find_violator(&fault),
            Attempt::InDoubt(fault) => {
                let verdict = self.recover(&fault);
                self.note_fault(&fault);
                self.settle(&verdict)
            }
            Attempt::Failed(fault) => {
                self.note_fault(&fault);
                self.void_verdicts(&fault);
                self.settle(&Verdict::Database(fault))
            }
            Attempt::NotTaken | Attempt::Again(_) => self.settle(&Verdict::Stopped),
        }
    }

    /// Each run again either settles a member for good or is the one change of mode, so there are at most as many as
    /// members and one more.
    fn try_until_settled(&mut self, may_grow: bool) -> Attempt {
        let mut mode = Mode::Plain;
        let mut runs = 0;
        loop {
            let end = self.attempt(mode, may_grow && runs == 0);
            let Attempt::Again(next) = end else {
                return end;
            };
            if self.group.iter().all(|member| member.verdict.is_some()) {
                return Attempt::Settled;
            }
            runs += 1;
            if runs > self.group.len() + 1 {
                return Attempt::Failed(Fault::from(rusqlite::Error::InvalidQuery));
            }
            self.inbox.shared.counters.reruns.fetch_add(1, Relaxed);
            mode = next;
        }
    }

    fn attempt(&mut self, mode: Mode, may_grow: bool) -> Attempt {
        let writable = match self.connection.take().map_or_else(|| self.settings.connect(), Ok) {
            Ok(writable) => writable,
            Err(error) => return Attempt::Failed(error.into_fault()),
        };
        let end = self.attempt_on(&writable, mode, may_grow);
        if !writable.connection.is_autocommit() {
            roll_back(&writable.connection);
        }
        // A connection that met damage, or cannot get out of its transaction, is opened anew for the next group.
        let damaged = match &end {
            Attempt::InDoubt(_) => true,
            Attempt::Failed(fault) => !fault.is_busy() && !fault.is_full(),
            _ => false,
        };
        if !damaged && writable.connection.is_autocommit() {
            self.connection = Some(writable);
        }
        end
    }

    fn attempt_on(&mut self, writable: &Writable, mode: Mode, may_grow: bool) -> Attempt {
        let Writable { connection, guard } = writable;
        #[cfg(test)]
        self.inbox.shared.injected.set_up(connection);
        let tx = match self.begin(connection) {
            Ok(tx) => tx,
            Err(end) => return end,
        };
        let mut next = 0;
        let mut room = self.room();
        loop {
            while next < self.group.len() {
                if let Some(end) = self.step(next, &tx, guard, mode) {
                    return end;
                }
                next += 1;
            }
            // What came while the tasks ran joins them, so that it need not wait for two commits.
            let more = if may_grow { self.next_fitting(&mut room).or_else(|| self.straggler(&mut room)) } else { None };
            match more {
                Some(ticket) => self.group.push(Member::new(ticket)),
                None => {
                    self.inbox.sleepers().wake_all();
                    return self.commit(connection, guard);
                }
            }
        }
    }

    /// Callers of the last group are awake or about to be, and many of them come again at once. A COMMIT costs so much that it
    /// is worth a small part of its time to have them in this group and not in one of their own.
    fn straggler(&mut self, room: &mut Caps) -> Option<Ticket> {
        let mut until = None;
        while self.group.len() < self.answered && self.has_room(room) && self.inbox.is_running() {
            if let Some(ticket) = self.next_fitting(room) {
                return Some(ticket);
            }
            if self.inbox.sleepers().wake_one() {
                continue;
            }
            let now = Instant::now();
            if now >= *until.get_or_insert(now + self.patience) {
                break;
            }
            // Not given to other threads: on a busy machine it would come back after milliseconds, in the middle of a transaction.
            hint::spin_loop();
        }
        None
    }

    /// Gets the write lock. Short tries, so that callers who give up and a stop are seen in between.
    pub(super) fn begin<'c>(&mut self, connection: &'c Connection) -> Result<Transaction<'c>, Attempt> {
        let mut give_up = None;
        loop {
            let fault = match Transaction::new_unchecked(connection, TransactionBehavior::Immediate) {
                Ok(mut tx) => {
                    tx.set_drop_behavior(DropBehavior::Ignore);
                    return Ok(tx);
                }
                Err(error) => Fault::from(error),
            };
            let now = Instant::now();
            if !fault.is_busy() || now >= *give_up.get_or_insert(now + self.busy_deadline) {
                return Err(Attempt::Failed(fault));
            }
            if self.inbox.stop_is_overdue() {
                let taken = self.group.iter().any(|member| member.taken);
                return Err(if taken { Attempt::Failed(fault) } else { Attempt::NotTaken });
            }
            self.group.retain(|member| !member.ticket.is_cancelled());
            if self.group.is_empty() {
                return Err(Attempt::NotTaken);
            }
            // Another process may hold it for long.
            self.inbox.sleepers().wake_all();
            thread::sleep(Duration::from_micros(fastrand::u64(LOCK_PAUSE_US_MAX / 10..=LOCK_PAUSE_US_MAX)));
        }
    }

    /// Takes and runs one member. `None`: go on with the next.
    fn step(&mut self, index: usize, tx: &Transaction<'_>, guard: &Guard, mode: Mode) -> Option<Attempt> {
        let alone = self.group.len() == 1;
        let member = &mut self.group[index];
        let first_run = !member.taken;
        if member.verdict.is_some() || !member.take() {
            return None;
        }
        if first_run {
            self.inbox.shared.counters.taken(member.ticket.queued_at);
        }
        if mode == Mode::Savepoints
            && let Err(error) = tx.execute_batch(SAVEPOINT)
        {
            return Some(Attempt::Failed(Fault::from(error)));
        }
        let before = tx.total_changes();
        let ran = guard.lend(|| member.ticket.run(tx));
        let denied = guard.take_denied();
        member.erred = !matches!(ran, Ran::Done);
        member.wrote = tx.total_changes() != before;
        if tx.is_autocommit() {
            return Some(member.lost_the_transaction(ran, denied, mode));
        }
        if mode == Mode::Savepoints {
            let end = if member.erred { UNDO } else { KEEP };
            member.judge(ran, denied);
            return tx.execute_batch(end).err().map(|error| Attempt::Failed(Fault::from(error)));
        }
        if !member.erred {
            return None;
        }
        let unwritten = matches!(ran, Ran::Erred(_)) && !member.wrote;
        if unwritten || alone {
            member.judge(ran, denied);
        }
        if unwritten {
            return None;
        }
        if alone {
            // No other run can end differently for it.
            member.verdict.get_or_insert(Verdict::Own);
        }
        Some(Attempt::Again(Mode::Savepoints))
    }

    fn commit(&mut self, connection: &Connection, guard: &Guard) -> Attempt {
        let began = Instant::now();
        let Err(error) = self.commit_now(connection, guard) else {
            let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.inbox.shared.counters.committed(self.group.len(), took);
            self.patience = (began.elapsed() / PATIENCE_PART).min(PATIENCE_MAX);
            return Attempt::Committed;
        };
        let fault = Fault::from(error);
        match fault.code {
            ErrorCode::ConstraintViolation => Attempt::Violated(fault),
            // The commit record did not fit, or was not begun.
            ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Attempt::Failed(fault),
            _ => Attempt::InDoubt(fault),
        }
    }

    pub(super) fn commit_now(&self, connection: &Connection, guard: &Guard) -> rusqlite::Result<()> {
        let commit = || guard.committing(|| connection.execute_batch("COMMIT"));
        #[cfg(test)]
        return self.inbox.shared.injected.commit(connection, commit);
        #[cfg(not(test))]
        commit()
    }

    /// Gives each member a transaction of its own, since only COMMIT shows whose writes violate the constraint.
    fn find_violator(&mut self, fault: &Fault) -> bool {
        if let [only] = self.group.as_mut_slice() {
            let text = format!("a constraint that is checked at COMMIT is violated: {}", fault.message);
            only.verdict.get_or_insert(Verdict::Refused(text));
            return self.settle(&Verdict::Own);
        }
        let mut wake = false;
        for mut member in std::mem::take(&mut self.group) {
            if member.taken {
                // It may have failed over rows that will not be committed.
                member.verdict = None;
            }
            self.group.push(member);
            wake |= self.write(false);
        }
        wake
    }

    /// The group is not committed. Of members that failed, nothing was written in any case; but what they failed over
    /// may be rows that are not there now.
    pub(super) fn void_verdicts(&mut self, fault: &Fault) {
        for member in self.group.iter_mut().filter(|member| member.taken && (member.erred || member.verdict.is_some()))
        {
            member.verdict = Some(Verdict::Database(fault.clone()));
        }
    }

    /// Answers every member that has no verdict of its own with `common`. Says whether one was applied that wakes.
    fn settle(&mut self, common: &Verdict) -> bool {
        let committed = matches!(common, Verdict::Own);
        let mut wake = false;
        let mut callers = Vec::with_capacity(self.group.len());
        for Member { ticket, verdict, erred, .. } in &mut self.group {
            wake |= committed && ticket.wake && verdict.is_none() && !*erred;
            callers.extend(ticket.answer(verdict.take().unwrap_or_else(|| common.clone())));
        }
        self.answered = callers.len();
        self.inbox.sleepers().add(&mut callers);
        // Foreign code runs only now.
        self.group.drain(..).for_each(|member| member.ticket.free());
        wake
    }
}

impl Member {
    /// Takes the task unless it was taken before; `false` when its caller gave up or its deadline has passed.
    fn take(&mut self) -> bool {
        if self.taken {
            return true;
        }
        let late = self.ticket.deadline.is_some_and(|deadline| deadline <= Instant::now());
        if late {
            self.verdict = Some(Verdict::DeadlineExceeded);
        } else if self.ticket.take() {
            self.taken = true;
        } else {
            // Its caller has left; nobody reads this.
            self.verdict = Some(Verdict::Stopped);
        }
        self.taken
    }

    /// The final verdict of a member that failed, unless that is its own error.
    fn judge(&mut self, ran: Ran, denied: Option<&'static str>) {
        self.verdict = match (ran, denied) {
            (Ran::Done, _) => None,
            (Ran::Panicked(text), _) => Some(Verdict::Panicked(text)),
            (Ran::Erred(Some(fault)), Some(what)) if fault.code == ErrorCode::AuthorizationForStatementDenied => {
                Some(Verdict::Refused(format!("a task must not run {what}")))
            }
            (Ran::Erred(Some(fault)), _) if fault.is_of_the_database() => Some(Verdict::Database(fault)),
            (Ran::Erred(_), _) => None,
        };
    }

    /// SQLite rolls back by itself when the database fails; otherwise the member brought it about.
    fn lost_the_transaction(&mut self, ran: Ran, denied: Option<&'static str>, mode: Mode) -> Attempt {
        if let Ran::Erred(Some(fault)) = &ran
            && fault.is_of_the_database()
        {
            return Attempt::Failed(fault.clone());
        }
        self.judge(ran, denied);
        self.verdict.get_or_insert_with(|| Verdict::Refused(LOST.to_owned()));
        Attempt::Again(mode)
    }
}

const LOST: &str = "it ended the transaction of its group (RAISE(ROLLBACK), OR ROLLBACK or an interrupt); use ABORT";

fn roll_back(connection: &Connection) {
    if let Err(error) = connection.execute_batch("ROLLBACK") {
        log::warn!("event=rollback_failed error=\"{error}\"");
    }
}
