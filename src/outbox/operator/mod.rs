//! What an operator sees and does: lanes, exceptions, an event's story; replay, edit, discard, resume, hold, rewind.
//!
//! Every act works on the database alone, so it may come from any process, while the lanes run or not. Each is one
//! transaction (many rows: one a batch), decided on the rows as they are inside it: two operators at once are one after
//! the other, and a run that began before an act finds its row changed and writes nothing.

mod discard;
mod edit;
mod error;
mod exception;
mod handlers;
mod hold;
mod list;
mod replay;
mod resume;
mod rewind;
mod stats;
mod story;

pub use error::{DiscardError, EditError, HoldError, LaneError, ReplayError, ResumeError};
pub use exception::{ExceptionInfo, ExceptionState};
pub(super) use exception::{count, lossy};
pub use hold::HeldLane;
pub(super) use hold::Standing;
#[cfg(test)]
pub(super) use list::page_of as dead_letter_page;
pub use list::{ExceptionCursor, ExceptionPage, Filter, MAX_PAGE};
pub use replay::{MAX_REPLAYS, Replayed};
pub use rewind::{RewindTo, Rewound};
pub use stats::{ExceptionCounts, LaneInfo, MAX_COUNTED, OutboxStats};
pub use story::EventStory;

use crate::storage::Database;

/// The operator's view of a database's outbox. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Operator {
    database: Database,
}

impl Operator {
    /// The operator's view of `database`.
    pub fn new(database: &Database) -> Self {
        Self { database: database.clone() }
    }
}
