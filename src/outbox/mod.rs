//! The transactional outbox: events in a log, and a relay that delivers them. SKELETON types; the rest follows.

mod dispatch;
mod event;

pub use dispatch::{DispatchError, DispatchFn, EventFilter, Handler, LaneStart, OnDeadLetter, StartAt};
pub use event::{Event, InsertError, NewEvent, insert};
