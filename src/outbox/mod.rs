//! The transactional outbox: events in a log, and a relay that delivers them.
//!
//! A program [`insert`]s an event in the transaction that changes its own tables, so that either both are committed or
//! neither. A [`Relay`] then runs every [`Handler`] over every event: at least once, in order per key, through crashes
//! and outages. It needs nothing else of this crate, and no articles.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use vayu_articles::outbox::{self, Event, NewEvent, Relay};
//! use vayu_articles::storage::{Component, Database, Options};
//!
//! const ORDERS: Component =
//!     Component { name: "orders", migrations: &["CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT) STRICT"] };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.db");
//! let database = Database::open(&path, &[outbox::COMPONENT, ORDERS], Options::default())?;
//! let relay = Relay::builder(&database)
//!     .handler_fn("mail", |event: &Event| {
//!         let item: String = event.json()?;
//!         println!("mail: {item} is on its way");
//!         Ok(())
//!     })
//!     .start()?;
//!
//! let placed = NewEvent::new("order.placed.v1", &"tea")?.key("order-1");
//! database.writer().transact(move |tx| {
//!     tx.execute("INSERT INTO orders (item) VALUES ('tea')", [])?;
//!     outbox::insert(tx, &placed)
//! })?;
//!
//! let soon = Instant::now() + Duration::from_secs(5);
//! assert!(relay.wait_drained(soon));
//! relay.stop(soon)?;
//! database.close(soon)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! The log is append-only and SQLite has one writer at a time, so positions in the log become visible in commit order.
//! Each handler is a **lane** with a cursor: a lane reads what comes after its cursor, calls the handler and moves on.
//! On this happy path nothing is written per event. Only an **exception** (an event that failed, or waits behind one of
//! its key that did) has a row of its own, until it is delivered, given up as a dead letter, or discarded.
//!
//! What a handler answers decides what happens next; see [`DispatchError`]. Handlers must be idempotent: a crash
//! repeats at most what was finished in the last 50 ms, and somewhat more behind a slow call or a disk that does not keep up.

mod check;
mod classify;
mod dispatch;
mod event;
mod flush;
mod freeze;
mod gate;
mod handler_fn;
mod history;
mod housekeeping;
mod lane;
mod ledger;
mod log;
mod operator;
mod owner;
mod policy;
#[cfg(test)]
mod poll_cost;
mod relay;
mod retention;
mod row_writer;
mod sql;
mod standing;
#[cfg(test)]
mod tests;

pub use check::{Breach, CheckReport, Finding, MAX_FINDINGS, check, mend};
pub use dispatch::{DispatchError, DispatchFn, EventFilter, Handler, LaneStart, OnDeadLetter, StartAt};
pub(crate) use event::insert_serialized;
pub use event::{Event, InsertError, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, NewEvent, insert};
pub(crate) use freeze::{hold_lanes, release_lanes};
pub use handler_fn::HandlerFn;
pub use history::HistoryEntry;
pub use lane::{LaneState, LaneStatus};
pub use ledger::{
    COMPONENT as LEDGER_COMPONENT, Ledger, LedgerActError, LedgerEntry, LedgerError, LedgerFinding, LedgerOptions,
    LedgerOutcome, LedgerPlace, LedgerQuery, LedgerReport, LedgerSetupError, LedgerState,
};
pub use operator::{
    DiscardError, EditError, EventStory, ExceptionCounts, ExceptionCursor, ExceptionInfo, ExceptionPage,
    ExceptionState, Filter, HeldLane, HoldError, LaneError, LaneInfo, MAX_COUNTED, MAX_PAGE, MAX_REPLAYS, Operator,
    OutboxStats, ReplayError, Replayed, ResumeError, RewindTo, Rewound,
};
pub use owner::OwnerState;
pub use policy::Policy;
pub use relay::{Relay, RelayBuilder, RelayError, RelayOptions, StopTimeout};
pub use retention::{Pruned, Retention, prune, reclaim};

use crate::storage::Component;

/// The outbox's tables: hand it to [`Database::open`](crate::storage::Database::open).
pub const COMPONENT: Component = Component {
    name: "outbox",
    migrations: &[
        include_str!("../../sql/outbox/0001_outbox.sql"),
        include_str!("../../sql/outbox/0002_closed_keys.sql"),
    ],
};
