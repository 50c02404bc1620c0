//! The transactional outbox: events in a log, and a relay that delivers them.

mod classify;
mod dispatch;
mod event;
mod flush;
mod gate;
mod history;
mod housekeeping;
mod lane;
mod log;
mod operator;
mod owner;
mod policy;
mod relay;
mod retention;
mod sql;

pub use dispatch::{DispatchError, DispatchFn, EventFilter, Handler, LaneStart, OnDeadLetter, StartAt};
pub use event::{Event, InsertError, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, NewEvent, insert};
pub use history::HistoryEntry;
pub use lane::{LaneState, LaneStatus};
pub use operator::{
    EventStory, ExceptionCounts, ExceptionInfo, ExceptionQuery, ExceptionState, LaneInfo, MAX_PAGE, MAX_REPLAYS,
    Operator, OutboxStats, ReplayError,
};
pub use policy::Policy;
pub use relay::{Relay, RelayBuilder, RelayError, RelayOptions, StopTimeout};
pub use retention::{Pruned, Retention, prune};

use crate::storage::Component;

/// The outbox's tables: hand it to [`Database::open`](crate::storage::Database::open).
pub const COMPONENT: Component =
    Component { name: "outbox", migrations: &[include_str!("../../sql/outbox/0001_outbox.sql")] };
