//! One call of a handler: no panic gets out, and a suspect runs alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::status::Board;
use crate::lifecycle::panic_text;
use crate::outbox::gate;
use crate::outbox::{DispatchError, Event, Handler};

/// What a call came to.
#[derive(Debug, Clone)]
pub(super) enum Called {
    Done,
    Failed { reason: String },
    Poison { reason: String },
    Unavailable { reason: String, retry_after: Option<Duration> },
}

/// Hands one event to the handler. `alone` keeps every other lane of the process out meanwhile.
pub(super) fn call(handler: &dyn Handler, board: &Board, event: &Event, alone: bool) -> Called {
    guarded(handler, board, 1, alone, || handler.handle(event))
}

/// Hands a batch to the handler.
pub(super) fn call_batch(handler: &dyn Handler, board: &Board, events: &[Event]) -> Called {
    guarded(handler, board, events.len() as u64, false, || handler.handle_batch(events))
}

/// Runs any of the handler's hooks without letting a panic out.
pub(super) fn hook(run: impl FnOnce() -> Result<(), DispatchError>) -> Called {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Called::Done,
        Ok(Err(DispatchError::Retry { reason })) => Called::Failed { reason },
        Ok(Err(DispatchError::Poison { reason })) => Called::Poison { reason },
        Ok(Err(DispatchError::Unavailable { reason, retry_after })) => Called::Unavailable { reason, retry_after },
        Err(panic) => Called::Failed { reason: format!("panicked: {}", panic_text(panic.as_ref())) },
    }
}

fn guarded(
    handler: &dyn Handler,
    board: &Board,
    events: u64,
    alone: bool,
    run: impl FnOnce() -> Result<(), DispatchError>,
) -> Called {
    let limit = handler.time_limit();
    let (pass, alone_pass) =
        if alone { (None, Some(gate::enter_alone(limit))) } else { (Some(gate::enter(limit)), None) };
    board.call_begins(Instant::now());
    let called = hook(run);
    board.calls_end(events);
    drop((pass, alone_pass));
    called
}
