//! One call of a handler: no panic gets out, and others see that it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::status::Board;
use crate::lifecycle::panic_text;
use crate::outbox::dispatch::LaneStart;
use crate::outbox::{DispatchError, Event, Handler};

/// What a call came to.
#[derive(Debug, Clone)]
pub(super) enum Called {
    Done,
    Failed {
        reason: String,
    },
    Poison {
        reason: String,
    },
    /// There was no call: the event cannot be handed over.
    Undecodable {
        reason: String,
    },
    Unavailable {
        reason: String,
        retry_after: Option<Duration>,
    },
}

/// A lane's board, and the place on it of the thread that calls.
pub(super) type Seat<'b> = (&'b Board, usize);

/// Hands one event to the handler.
pub(super) fn call(handler: &dyn Handler, seat: Seat<'_>, event: &Event, now: Instant) -> Called {
    shown(seat, now, 1, || handler.handle(event))
}

/// Hands a batch to the handler.
pub(super) fn call_batch(handler: &dyn Handler, seat: Seat<'_>, events: &[Event], now: Instant) -> Called {
    shown(seat, now, events.len() as u64, || handler.handle_batch(events))
}

/// Tells the handler where its lane stands. No event is called, but it may take as long as a call.
pub(super) fn begin(handler: &dyn Handler, seat: Seat<'_>, start: &LaneStart) -> Called {
    shown(seat, Instant::now(), 0, || handler.begin(start))
}

/// Runs any of the handler's hooks without letting a panic out.
fn hook(run: impl FnOnce() -> Result<(), DispatchError>) -> Called {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => Called::Done,
        Ok(Err(DispatchError::Retry { reason })) => Called::Failed { reason },
        Ok(Err(DispatchError::Poison { reason })) => Called::Poison { reason },
        Ok(Err(DispatchError::Unavailable { reason, retry_after })) => Called::Unavailable { reason, retry_after },
        #[cfg(test)]
        Err(panic) if panic.is::<super::tests::Death>() => std::panic::resume_unwind(panic),
        Err(panic) => Called::Failed { reason: format!("panicked: {}", panic_text(panic.as_ref())) },
    }
}

fn shown(seat: Seat<'_>, now: Instant, events: u64, run: impl FnOnce() -> Result<(), DispatchError>) -> Called {
    let (board, place) = seat;
    board.call_begins(place, now);
    let called = hook(run);
    board.calls_end(place, events);
    called
}
