//! How a lane comes into a relay's hands, and how it leaves them.

use std::time::{Duration, Instant};

use super::progress::Progress;
use super::spread::Spread;
use super::take::{self, Claim, Taken};
use super::{Interrupt, Lane, LaneState};
use crate::outbox::owner::Liveness;
use crate::outbox::{OnDeadLetter, StartAt, sql};
use crate::storage::{TaskOptions, TransactError};

/// Longest wait of a relay's start for a lane's first row.
const REGISTER_WITHIN: Duration = Duration::from_secs(2);

impl Lane {
    /// Takes our name off the lane if it stands there, for a lane of which nothing is in memory.
    pub(super) fn release(&mut self) -> Result<(), String> {
        let (handler, owner) = (self.name.clone(), self.lock.id().to_owned());
        self.database
            .writer()
            .submit_internal(false, move |tx| {
                tx.prepare_cached(sql::GIVE_UP_LANE)?.execute((handler.as_str(), owner.as_str()))
            })
            .and_then(|pending| pending.wait())
            .map_err(|error: TransactError<rusqlite::Error>| format!("letting the lane go failed: {error}"))?;
        self.owned = false;
        Ok(())
    }

    /// Writes down where a lane begins that is new and wants only what comes from now on: what commits after the relay's start
    /// is its own, also before its thread first runs. A database that does not answer in time has the lane begin when it
    /// does.
    pub(in crate::outbox) fn register(&self) {
        if self.start_at != StartAt::End {
            return;
        }
        let name = self.name.as_str();
        if let Ok(Some(_)) = self.database.read(|connection| take::read_lane(connection, name)) {
            return;
        }
        let row = (self.name.clone(), self.matcher.filter().stored(), self.on_dead_letter.stored(), true);
        let options = TaskOptions { deadline: Some(Instant::now() + REGISTER_WITHIN), ..TaskOptions::default() };
        let written = self
            .database
            .writer()
            .submit_internal_with(options, false, move |tx| {
                tx.prepare_cached(sql::NEW_LANE)?.execute((&row.0, &row.1, row.2, row.3))
            })
            .and_then(|pending| pending.wait());
        if let Err(error) = written {
            let error: TransactError<rusqlite::Error> = error;
            log::warn!(
                "lane handler={name} event=begin_unknown note=\"it begins at the first event after the database answers\" \
                 reason=\"{error}\""
            );
        }
    }

    /// Takes the lane if it is free or its owner is dead.
    pub(super) fn acquire(&mut self) -> Result<bool, String> {
        let name = self.name.clone();
        let row = self
            .database
            .read(|connection| take::read_lane(connection, &name))
            .map_err(|error| format!("reading the lane failed: {error}"))?;
        let mut dead = None;
        if row.is_none() && self.seen {
            // Made anew it would deliver all over again what the log still holds.
            return Err("the lane was renamed or retired: restart the program, with that handler only if it is wanted"
                .to_owned());
        }
        if let Some(row) = &row {
            self.seen = true;
            if row.held {
                if row.owner.as_deref() == Some(self.lock.id()) {
                    // Only what nobody owns can be worked on.
                    self.release()?;
                }
                self.board.looked();
                self.board.show(LaneState::Held);
                return Ok(false);
            }
            if row.owner.as_deref() == Some(self.lock.id()) {
                // A flush of ours was refused, or nobody knows how it ended: load the lane as it stands now.
                return self.claim(None);
            }
            if let Some(owner) = &row.owner {
                if self.watch.check(&self.path, owner, Instant::now()) == Liveness::Alive {
                    self.board.looked();
                    self.board.show(LaneState::Standby { owner: owner.clone() });
                    return Ok(false);
                }
                dead = Some(owner.clone());
            }
        }
        self.man()?;
        self.claim(dead)
    }

    pub(super) fn claim(&mut self, dead: Option<String>) -> Result<bool, String> {
        let claim = Claim {
            handler: self.name.clone(),
            owner: self.lock.id().to_owned(),
            event_types: self.matcher.filter().stored(),
            on_dead_letter: self.on_dead_letter,
            start_at: self.start_at,
            dead: dead.clone(),
            run_ahead: self.options.run_ahead,
            max_crashes: self.options.policy.max_crashes,
            seen: self.seen,
            now: self.now(),
        };
        self.owned = true;
        let taken = self
            .database
            .writer()
            .submit_internal(false, move |tx| take::take(tx, &claim))
            .and_then(|pending| pending.wait())
            .map_err(|error| format!("taking the lane failed: {error}"))?;
        let Taken::Ours { cursor, single_step_to, dead_owner_is_done, condemned, rows_until } = taken else {
            self.owned = false;
            return Ok(false);
        };
        self.seen = true;
        self.rows_until = rows_until;
        if let Some(dead) = dead {
            let end = single_step_to.unwrap_or(cursor);
            log::warn!("lane handler={} takeover_from={dead} cursor={cursor} single_step_to={end}", self.name);
            if dead_owner_is_done {
                take::clean_up_after(&self.path, &dead);
            }
        }
        if let Some(id) = condemned {
            let park_keys = self.on_dead_letter == OnDeadLetter::ParkKey;
            self.board.condemned();
            self.reporter.condemned(&self.database, (&self.name, park_keys), id, Instant::now());
        }
        self.progress = Progress::at(cursor);
        self.ahead.clear();
        self.sought = None;
        self.settle_first = false;
        self.hold_asked = false;
        self.outage = None;
        self.single_step_to = single_step_to;
        self.begun = false;
        self.named = false;
        self.orphans_after = Some(i64::MIN);
        self.board.set_cursor(cursor);
        self.board.show(LaneState::Running);
        Ok(true)
    }

    pub(super) fn forget(&mut self) {
        // It is lost already.
        let _ = self.narrow();
        log::warn!("lane handler={} ownership=lost loading=anew", self.name);
        self.progress = Progress::default();
        self.ahead.clear();
        self.sought = None;
    }

    /// The lane's thread panicked: nothing that it has in memory counts. Calls that still run on other threads are waited
    /// for, as ever, before the lane is let go.
    pub(super) fn let_go_after_panic(&mut self, text: &str) {
        self.crew = None;
        self.spread = Spread::default();
        self.progress = Progress::default();
        self.ahead.clear();
        self.sought = None;
        let reason = format!("the lane's thread panicked: {text}");
        log::error!("lane handler={} state=failed reason={reason:?}", self.name);
        if self.owned
            && let Err(error) = self.release()
        {
            log::error!("lane handler={} release=failed reason={error:?}", self.name);
        }
        self.board.show(LaneState::Failed { reason });
    }

    /// Writes what is known and lets the lane go, so that a successor starts at once.
    pub(super) fn give_up(&mut self) {
        if self.narrow().is_err() {
            return self.forget();
        }
        self.record_ahead();
        loop {
            let written = self.land(true).and_then(|()| self.depart(None, true)).and_then(|()| self.land(true));
            match written {
                Ok(()) => {
                    self.owned = false;
                    return;
                }
                Err(Interrupt::Database(reason)) => {
                    self.board.show(LaneState::Waiting { reason: reason.clone() });
                    if self.past_deadline() {
                        log::error!("lane handler={} release=failed reason={reason:?}", self.name);
                        return;
                    }
                    self.wait_for(self.options.poll);
                }
                Err(_) => return self.forget(),
            }
        }
    }
}
