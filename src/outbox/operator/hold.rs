//! Hold and release: nobody delivers for a handler while it is held. Acts that move a lane need one that is held and
//! that nobody owns: a [`HeldLane`].

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, Transaction};

use super::Operator;
use super::error::{HoldError, LaneError, reading};
use crate::outbox::owner::{self, Liveness, OwnerWatch};
use crate::outbox::sql;
use crate::storage::{Database, ReadError, TransactError};

/// How often a held lane is looked at until its owner has let go.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A lane that is held and that no living relay owns, so that it can be moved, renamed or retired.
///
/// It stays held when this is dropped: [`give_back`](Self::give_back) puts it as it was before. An act finds out inside
/// its transaction whether somebody released the lane meanwhile, and refuses then.
#[derive(Debug)]
pub struct HeldLane {
    pub(super) database: Database,
    pub(super) handler: String,
    was_held: bool,
    /// An owner that died without letting go. Its name stays on the lane, since whoever takes the lane over has to
    /// settle what that death may have caused.
    dead_owner: Option<String>,
}

impl Operator {
    /// Has the lane's owner finish its running call, write what it knows and let go; nobody delivers for this handler
    /// until it is [released](Self::release). Its events stay in the log meanwhile. A held lane stays held.
    ///
    /// # Errors
    /// A [`HoldError`]; nothing was changed then.
    pub fn hold(&self, handler: &str) -> Result<(), TransactError<HoldError>> {
        self.set_held(handler, true).map(drop)
    }

    /// Ends a hold: a relay with that handler goes on. A lane that is not held stays as it is.
    ///
    /// # Errors
    /// A [`HoldError`]; nothing was changed then.
    pub fn release(&self, handler: &str) -> Result<(), TransactError<HoldError>> {
        self.set_held(handler, false).map(drop)
    }

    /// [Holds](Self::hold) the lane and waits until its owner has let go, or is dead.
    ///
    /// # Errors
    /// [`HoldError::StillOwned`] when the owner has not let go after `within`, because its call still runs; the lane is
    /// released then, unless it was held before. Else as [`hold`](Self::hold).
    pub fn hold_and_wait(&self, handler: &str, within: Duration) -> Result<HeldLane, TransactError<HoldError>> {
        let deadline = Instant::now() + within;
        let was_held = self.set_held(handler, true)?;
        let mut lane =
            HeldLane { database: self.database.clone(), handler: handler.to_owned(), was_held, dead_owner: None };
        let mut watch = OwnerWatch::default();
        loop {
            let Some(owner) = lane.owner()? else { return Ok(lane) };
            let path = self.database.canonical_path().unwrap_or_default();
            if watch.check(&path, &owner, Instant::now()) == Liveness::Dead {
                lane.dead_owner = Some(owner);
                return Ok(lane);
            }
            if Instant::now() >= deadline {
                let (_, pid) = owner::look(&path, &owner);
                lane.give_back()?;
                return Err(TransactError::Task(HoldError::StillOwned { owner, pid }));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether it was so before.
    fn set_held(&self, handler: &str, held: bool) -> Result<bool, TransactError<HoldError>> {
        let handler = handler.to_owned();
        self.database.writer().transact(move |tx| {
            let Some(before) = Standing::read(tx, &handler)? else { return Err(HoldError::NotFound) };
            tx.prepare_cached(sql::SET_HELD)?.execute((&handler, held))?;
            Ok(before.held)
        })
    }
}

impl HeldLane {
    /// The handler's name; after a rename the new one.
    pub fn handler(&self) -> &str {
        &self.handler
    }

    /// Whether it was held before it was asked for.
    pub fn was_held(&self) -> bool {
        self.was_held
    }

    /// Releases the lane, unless it was held before.
    ///
    /// # Errors
    /// A [`HoldError`]; the lane is still held then.
    pub fn give_back(&self) -> Result<(), TransactError<HoldError>> {
        if self.was_held { Ok(()) } else { Operator::new(&self.database).release(&self.handler) }
    }

    fn owner(&self) -> Result<Option<String>, TransactError<HoldError>> {
        let read: Result<_, ReadError<rusqlite::Error>> =
            self.database.read(|connection| Standing::read(connection, &self.handler));
        match read.map_err(reading)? {
            Some(lane) => Ok(lane.owner),
            None => Err(TransactError::Task(HoldError::NotFound)),
        }
    }

    /// What an act has to prove inside its transaction.
    pub(super) fn proof(&self) -> Proof {
        Proof { handler: self.handler.clone(), dead_owner: self.dead_owner.clone() }
    }
}

/// That the lane is still held and still nobody's.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    pub(super) handler: String,
    dead_owner: Option<String>,
}

impl Proof {
    pub(super) fn check(&self, tx: &Transaction<'_>) -> Result<Standing, LaneError> {
        let Some(lane) = Standing::read(tx, &self.handler)? else { return Err(LaneError::NotFound) };
        if !lane.held {
            return Err(LaneError::NotHeld);
        }
        match &lane.owner {
            Some(owner) if Some(owner) != self.dead_owner.as_ref() => Err(LaneError::Owned { owner: owner.clone() }),
            _ => Ok(lane),
        }
    }
}

/// Where a lane stands and whose it is.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) owner: Option<String>,
    pub(super) held: bool,
    pub(super) cursor: i64,
}

impl Standing {
    pub(super) fn read(connection: &Connection, handler: &str) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached(sql::READ_LANE)?
            .query_row([handler], |row| Ok(Self { owner: row.get(0)?, held: row.get(1)?, cursor: row.get(2)? }))
            .optional()
    }
}
