//! Replay: one event, those that fit a filter, or all.

use rusqlite::{OptionalExtension, Transaction};

use super::Operator;
use super::error::{ReplayError, reading};
use super::exception::{ExceptionInfo, ExceptionState, exception_info};
use super::handlers::filter_of;
use super::hold::Standing;
use super::list::{ExceptionCursor, Filter, Walk};
use crate::outbox::log::{self, Body};
use crate::outbox::{history, sql};
use crate::storage::TransactError;

/// Replays of one exception before only force works on it.
pub const MAX_REPLAYS: u32 = 3;
/// Rows replayed in one transaction, and rows that it looks at, at most.
const BATCH: usize = 200;
const BATCH_LOOKS: usize = 2_000;

/// What a replay of many came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Replayed {
    /// Are due again, or wait behind an earlier one of their key.
    pub replayed: u64,
    /// Fit the filter and were refused: superseded, replayed too often, or their event is gone.
    pub left: u64,
}

impl Operator {
    /// Has a dead letter or parked event delivered again, with all its attempts. Later events of its key wait for it.
    ///
    /// `force` overrides [`ReplayError::Superseded`] and [`ReplayError::TooOften`], and has an event delivered once more
    /// that the handler has behind it, as long as the log holds it, also after newer ones of its key. Whoever deduplicates gets it under
    /// [another id](crate::outbox::Event::forced).
    ///
    /// # Errors
    /// A [`ReplayError`]; nothing was changed then.
    pub fn replay(&self, outbox_id: i64, handler: &str, force: bool) -> Result<(), TransactError<ReplayError>> {
        let handler = handler.to_owned();
        let now = self.database.clock().now_ms();
        self.database.writer().transact(move |tx| replay(tx, outbox_id, &handler, force, now))
    }

    /// Replays what fits the filter, in order, up to 200 in a transaction. Of its states only dead letters and parked
    /// ones count. What fails again meanwhile is not taken twice.
    ///
    /// # Errors
    /// [`ReplayError::NoHandler`] if the filter names a handler that has neither a lane nor anything that fits; as the database
    /// reports them, and the transactions before stay then.
    pub fn replay_matching(&self, filter: &Filter, force: bool) -> Result<Replayed, TransactError<ReplayError>> {
        let mut filter = filter.clone();
        filter.states.retain(|state| matches!(state, ExceptionState::DeadLetter | ExceptionState::Parked));
        let last: i64 = self.database.writer().transact(|tx| {
            Ok::<_, ReplayError>(tx.prepare_cached(sql::LAST_ROW_OF_ALL)?.query_row([], |row| row.get(0))?)
        })?;
        let mut total = Replayed::default();
        let mut after = None;
        loop {
            let (filter, from) = (filter.clone(), after.take());
            let now = self.database.clock().now_ms();
            let (batch, next) = self.database.writer().transact(move |tx| {
                let walk = Walk::new(&filter, now, BATCH, BATCH_LOOKS).up_to(last);
                replay_batch(tx, walk, from.as_ref(), force, now)
            })?;
            total.replayed += batch.replayed;
            total.left += batch.left;
            if next.is_none() {
                break;
            }
            after = next;
        }
        match filter.handler {
            Some(handler) if total == Replayed::default() => self.must_be_known(&handler).map(|()| total),
            _ => Ok(total),
        }
    }

    /// A name with a slip in it has no dead letters either, and must not look like success.
    fn must_be_known(&self, handler: &str) -> Result<(), TransactError<ReplayError>> {
        let lane = self.database.read(|connection| Standing::read(connection, handler)).map_err(reading)?;
        lane.map(drop).ok_or(TransactError::Task(ReplayError::NoHandler))
    }

    /// Replays every dead letter (of one handler, if named) that may be replayed without force, in order; returns how
    /// many were replayed and how many were left.
    ///
    /// # Errors
    /// As [`replay_matching`](Self::replay_matching).
    pub fn replay_all(&self, handler: Option<&str>) -> Result<(u64, u64), TransactError<ReplayError>> {
        let filter = Filter { handler: handler.map(str::to_owned), ..Filter::default() };
        let Replayed { replayed, left } = self.replay_matching(&filter, false)?;
        Ok((replayed, left))
    }
}

fn replay_batch(
    tx: &Transaction<'_>,
    walk: Walk<'_>,
    after: Option<&ExceptionCursor>,
    force: bool,
    now: i64,
) -> Result<(Replayed, Option<ExceptionCursor>), ReplayError> {
    let page = walk.page(tx, after)?;
    let mut batch = Replayed::default();
    for exception in page.exceptions {
        match replay_row(tx, &exception, force, now) {
            Ok(()) => batch.replayed += 1,
            Err(ReplayError::Sqlite(error)) => return Err(error.into()),
            Err(_) => batch.left += 1,
        }
    }
    Ok((batch, page.next))
}

fn replay(tx: &Transaction<'_>, id: i64, handler: &str, force: bool, now: i64) -> Result<(), ReplayError> {
    let row = match read_row(tx, id, handler)? {
        Some(row) => row,
        None => {
            must_be_delivered(tx, id, handler)?;
            if !force {
                return Err(ReplayError::Delivered);
            }
            tx.prepare_cached(sql::NEW_DELIVERED)?.execute((id, handler, now))?;
            read_row(tx, id, handler)?.ok_or(ReplayError::NotFound)?
        }
    };
    replay_row(tx, &row, force, now)
}

fn read_row(tx: &Transaction<'_>, id: i64, handler: &str) -> rusqlite::Result<Option<ExceptionInfo>> {
    tx.prepare_cached(sql::READ_EXCEPTION)?.query_row((id, handler), exception_info).optional()
}

/// An event without a row is behind the handler if the lane has passed it, and was delivered if its filter takes it.
fn must_be_delivered(tx: &Transaction<'_>, id: i64, handler: &str) -> Result<(), ReplayError> {
    let Some(lane) = Standing::read(tx, handler)? else { return Err(ReplayError::NoHandler) };
    let body = log::read_event(tx, id)?;
    let wanted = match &body {
        Body::Missing => return Err(ReplayError::NotFound),
        Body::Event(event) => filter_of(tx, handler)?.matches(&event.event_type),
        Body::Skip | Body::Bad(_) => true,
    };
    match (wanted, id > lane.cursor) {
        (false, _) => Err(ReplayError::NotWanted),
        (true, true) => Err(ReplayError::NotYetDelivered),
        (true, false) => Ok(()),
    }
}

fn replay_row(tx: &Transaction<'_>, row: &ExceptionInfo, force: bool, now: i64) -> Result<(), ReplayError> {
    match row.state {
        ExceptionState::DeadLetter | ExceptionState::Parked => {}
        ExceptionState::Done if force => {}
        state => return Err(ReplayError::NotDead(state)),
    }
    if !force {
        if let Some(by) = row.superseded_by {
            return Err(ReplayError::Superseded { by });
        }
        if row.replays >= MAX_REPLAYS {
            return Err(ReplayError::TooOften);
        }
    }
    if matches!(log::read_event(tx, row.outbox_id)?, Body::Missing) {
        return Err(ReplayError::EventMissing);
    }
    let what = if force { history::FORCED_REPLAY } else { "replay" };
    Ok(run_again(tx, row, what, "by an operator", now)?)
}

/// Puts the row back in line with fresh attempts: due at once if nothing open of its key is below it, else waiting.
pub(super) fn run_again(
    tx: &Transaction<'_>,
    row: &ExceptionInfo,
    what: &str,
    words: &str,
    now: i64,
) -> rusqlite::Result<()> {
    let (id, handler) = (row.outbox_id, row.handler.as_str());
    // A crash loop keeps two of its three crashes: one more condemns it again.
    let crashes = row.crashes.min(2);
    let history: String =
        tx.prepare_cached(sql::READ_HISTORY)?.query_row((id, handler), |row| history::column(row, 0))?;
    let history = history::append(&history, now, what, words);
    let (state, due) = if goes_first(tx, row, now)? { ("retry", Some(now)) } else { ("waiting", None) };
    tx.prepare_cached(sql::REPLAY_ROW)?.execute((id, handler, state, due, crashes, history, now))?;
    Ok(())
}

/// Whether no open row of its key lies below; the one that was first so far, if it lies above, waits now. Only the
/// lowest open row of a key is ever due, so no other has to be looked at, however many wait.
fn goes_first(tx: &Transaction<'_>, row: &ExceptionInfo, now: i64) -> rusqlite::Result<bool> {
    let (id, handler) = (row.outbox_id, row.handler.as_str());
    let Some(key) = &row.key else { return Ok(true) };
    let head: Option<i64> =
        tx.prepare_cached(sql::LOWEST_OPEN)?.query_row((handler, key), |row| row.get(0)).optional()?;
    match head {
        Some(head) if head < id => Ok(false),
        Some(head) if head > id => {
            tx.prepare_cached(sql::HEAD_WAITS)?.execute((head, handler, now))?;
            Ok(true)
        }
        _ => Ok(true),
    }
}
