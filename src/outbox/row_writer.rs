//! The rows of a flush: new exceptions, and what became of those that were run.
//!
//! A flush has up to a thousand of them, so that the statements for one are prepared once, and a row is read with everything
//! that decides what becomes of it.

use std::collections::HashMap;

use rusqlite::{CachedStatement, OptionalExtension, Transaction};

use super::flush::{Change, Flush, Lowest, Verdict, later_ones_wait, make_lowest_due};
use super::log::Began;
use super::{history, sql};

/// The open states.
const RETRY: &str = "retry";
const WAITING: &str = "waiting";
const PARKED: &str = "parked";

/// Writes the changes of one flush.
pub(super) struct RowWriter<'t> {
    tx: &'t Transaction<'t>,
    flush: &'t Flush,
    keys: HashMap<&'t str, Touched>,
    lowest_open: CachedStatement<'t>,
    insert: CachedStatement<'t>,
    read_run: CachedStatement<'t>,
    delete_waited: CachedStatement<'t>,
    fail_again: CachedStatement<'t>,
    close: CachedStatement<'t>,
}

/// What is to be looked at once all rows are written, for a key that they touched.
#[derive(Debug, Default)]
struct Touched {
    /// The highest event of the key that went well.
    passed: Option<i64>,
    /// Another row of it may be open.
    look: bool,
    /// A row of it was closed: the next in line becomes due.
    closed: bool,
}

/// A row that was run, as it stands when the outcome is written.
struct Found {
    history: String,
    retries: bool,
    crashed: bool,
    /// The first other row of its key that is open.
    other: Option<i64>,
}

/// A row's columns that a verdict decides.
struct Decided<'v> {
    state: &'static str,
    attempts: u32,
    due: Option<i64>,
    what: Option<&'static str>,
    reason: Option<&'v str>,
}

impl<'t> RowWriter<'t> {
    pub(super) fn new(tx: &'t Transaction<'t>, flush: &'t Flush) -> rusqlite::Result<Self> {
        Ok(Self {
            tx,
            flush,
            keys: HashMap::new(),
            lowest_open: tx.prepare_cached(sql::LOWEST_OPEN)?,
            insert: tx.prepare_cached(sql::NEW_EXCEPTION)?,
            read_run: tx.prepare_cached(sql::READ_RUN)?,
            delete_waited: tx.prepare_cached(sql::DELETE_WAITED)?,
            fail_again: tx.prepare_cached(sql::FAIL_AGAIN)?,
            close: tx.prepare_cached(sql::CLOSE_DONE)?,
        })
    }

    pub(super) fn write(mut self) -> rusqlite::Result<()> {
        for change in &self.flush.changes {
            match change {
                Change::Passed { id, key } => {
                    let touched = self.touched(key);
                    touched.passed = touched.passed.max(Some(*id));
                    touched.look = true;
                }
                Change::New { id, key, verdict } => self.insert_row(*id, key.as_deref(), verdict)?,
                Change::Ran { id, key, began, verdict } => self.write_run(*id, key.as_deref(), began, verdict)?,
            }
        }
        self.settle_keys()
    }

    fn touched(&mut self, key: &'t str) -> &mut Touched {
        self.keys.entry(key).or_default()
    }

    fn insert_row(&mut self, id: i64, key: Option<&str>, verdict: &Verdict) -> rusqlite::Result<()> {
        let flush = self.flush;
        let lowest = match key {
            Some(key) => self.lowest_open(key)?,
            None => None,
        };
        let decided = decide(flush, verdict, lowest.is_some_and(|lowest| lowest.id < id));
        let history = match (decided.what, decided.reason) {
            (Some(what), Some(reason)) => history::append("[]", flush.now, what, reason),
            _ => "[]".to_owned(),
        };
        let is_new = self.insert.execute((
            id,
            &flush.handler,
            key,
            decided.state,
            decided.attempts,
            decided.due,
            decided.reason.map(history::shorten),
            history,
            flush.now,
        ))? > 0;
        // Where nothing of its key was open, nothing has to wait for it; nor for a row that an operator closed meanwhile.
        if is_new && lowest.is_some() && [RETRY, PARKED].contains(&decided.state) {
            later_ones_wait(self.tx, &flush.handler, key, id, flush.now)?;
        }
        Ok(())
    }

    fn write_run(&mut self, id: i64, key: Option<&'t str>, began: &Began, verdict: &Verdict) -> rusqlite::Result<()> {
        if let (Verdict::Done, Some(key)) = (verdict, key)
            && began.only_waited()
            && id <= self.flush.to
            && self.delete_waited.execute((id, &self.flush.handler))? > 0
        {
            let touched = self.touched(key);
            (touched.look, touched.closed) = (true, true);
            touched.passed = touched.passed.max(Some(id));
            return Ok(());
        }
        let Some(found) = self.read_run(id, key, began)? else { return Ok(()) };
        let (other, done) = (found.other.is_some(), matches!(verdict, Verdict::Done));
        let closed = if done { self.close_row(id, found).map(|()| true) } else { self.fail_row(id, found, verdict) }?;
        if let (true, Some(key)) = (closed, key) {
            let touched = self.touched(key);
            touched.look |= other;
            touched.closed = true;
            if done {
                touched.passed = touched.passed.max(Some(id));
            }
        }
        Ok(())
    }

    /// `None` if it is not what the run began with; one that waited may have become due meanwhile.
    fn read_run(&mut self, id: i64, key: Option<&str>, began: &Began) -> rusqlite::Result<Option<Found>> {
        let asked = (id, &self.flush.handler, key, began.state, began.replays, began.payload());
        let found = |row: &rusqlite::Row<'_>| {
            Ok(Found {
                history: history::column(row, 0)?,
                retries: row.get_ref(1)?.as_str()? == RETRY,
                crashed: row.get(2)?,
                other: row.get(3)?,
            })
        };
        self.read_run.query_row(asked, found).optional()
    }

    /// A row that never failed leaves no trace; one that did stays as history.
    fn close_row(&mut self, id: i64, found: Found) -> rusqlite::Result<()> {
        let Flush { handler, now, to, .. } = self.flush;
        let history = match found.history {
            empty if empty == "[]" && id <= *to => {
                self.tx.prepare_cached(sql::DELETE_EXCEPTION)?.execute((id, handler))?;
                return Ok(());
            }
            empty if empty == "[]" => empty,
            old => history::append(&old, *now, "done", "delivered"),
        };
        self.close.execute((id, handler, history, now))?;
        Ok(())
    }

    /// Says whether that closed the row.
    fn fail_row(&mut self, id: i64, found: Found, verdict: &Verdict) -> rusqlite::Result<bool> {
        let Flush { handler, now, .. } = self.flush;
        let decided = decide(self.flush, verdict, found.other.is_some_and(|other| other < id));
        let reason = decided.reason.unwrap_or_default();
        let history = history::append(&found.history, *now, decided.what.unwrap_or(decided.state), reason);
        let reason = history::shorten(reason);
        if found.retries && decided.state == RETRY && !found.crashed {
            self.fail_again.execute((id, handler, decided.attempts, decided.due, reason, history, now))?;
        } else {
            let failed = (id, handler, decided.state, decided.attempts, decided.due, reason, history, now);
            self.tx.prepare_cached(sql::FAIL_ROW)?.execute(failed)?;
        }
        Ok(![RETRY, WAITING, PARKED].contains(&decided.state))
    }

    /// What is dead, or was replayed, below an event that went well is superseded; and where a row was closed, the first that
    /// waits becomes due. Each update is asked for first: it sets up a temporary table even when there is nothing to update.
    fn settle_keys(mut self) -> rusqlite::Result<()> {
        let (tx, handler, now) = (self.tx, &self.flush.handler, self.flush.now);
        let any_dead: bool = tx.prepare_cached(sql::HAS_DEAD)?.query_row([handler], |row| row.get(0))?;
        for (key, touched) in std::mem::take(&mut self.keys) {
            let lowest = if touched.look { self.lowest_open(key)? } else { None };
            if let Some(id) = touched.passed {
                if any_dead && tx.prepare_cached(sql::DEAD_BELOW)?.query_row((handler, key, id), |row| row.get(0))? {
                    tx.prepare_cached(sql::SUPERSEDE_DEAD)?.execute((handler, key, id, now))?;
                }
                if lowest.is_some_and(|lowest| lowest.id < id) {
                    tx.prepare_cached(sql::SUPERSEDE_REPLAYED)?.execute((handler, key, id, now))?;
                }
            }
            if touched.closed {
                make_lowest_due(tx, handler, lowest, now)?;
            }
        }
        Ok(())
    }

    fn lowest_open(&mut self, key: &str) -> rusqlite::Result<Option<Lowest>> {
        self.lowest_open.query_row((&self.flush.handler, key), Lowest::from_row).optional()
    }
}

/// `behind`: whether an open row of its key is below it.
fn decide<'v>(flush: &Flush, verdict: &'v Verdict, behind: bool) -> Decided<'v> {
    match verdict {
        Verdict::Done => Decided { state: "done", attempts: 0, due: None, what: None, reason: None },
        Verdict::Blocked if behind => Decided { state: WAITING, attempts: 0, due: None, what: None, reason: None },
        // What it waited for was closed meanwhile.
        Verdict::Blocked => Decided { state: RETRY, attempts: 0, due: Some(flush.now), what: None, reason: None },
        Verdict::Retry { attempts, due, reason } => Decided {
            state: if behind { WAITING } else { RETRY },
            attempts: *attempts,
            due: (!behind).then_some(*due),
            what: Some("retry"),
            reason: Some(reason),
        },
        Verdict::Final { attempts, what, reason } => Decided {
            state: if verdict.parks(flush.park_keys) { PARKED } else { "dead_letter" },
            attempts: *attempts,
            due: None,
            what: Some(what),
            reason: Some(reason),
        },
        Verdict::Discarded { reason } => {
            Decided { state: "discarded", attempts: 0, due: None, what: Some("discard"), reason: Some(reason) }
        }
    }
}
