//! The transactional outbox: events in a log, and a relay that delivers them.

mod dispatch;
mod event;
mod sql;

pub use dispatch::{DispatchError, DispatchFn, EventFilter, Handler, LaneStart, OnDeadLetter, StartAt};
pub use event::{Event, InsertError, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, NewEvent, insert};

use crate::storage::Component;

/// The outbox's tables: hand it to [`Database::open`](crate::storage::Database::open).
pub const COMPONENT: Component =
    Component { name: "outbox", migrations: &[include_str!("../../sql/outbox/0001_outbox.sql")] };
