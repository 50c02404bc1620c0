//! Delivering what an import caused, before the command ends.

use std::time::{Duration, Instant};

use super::CliError;
use crate::outbox::{Operator, Relay};

/// How long the relay may go without completing a single event before the command stops waiting for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the lanes may take to finish their calls and give themselves up.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Runs `relay` until every lane it owns has an outcome for everything committed. A lane that another process owns is
/// left to that process. Returns whether all was delivered; what was not stays in the log and is delivered by the next
/// relay.
///
/// # Errors
/// The relay cannot start or does not stop.
pub(super) fn drain(relay: &Relay, operator: &Operator) -> Result<bool, CliError> {
    relay.start().map_err(|error| CliError::failed(format!("the relay cannot start: {error}")))?;
    let drained = wait(relay, operator);
    relay.stop(Instant::now() + STOP_WITHIN).map_err(|error| CliError::failed(error.to_string()))?;
    Ok(drained)
}

fn wait(relay: &Relay, operator: &Operator) -> bool {
    let mut behind = u64::MAX;
    let mut give_up = Instant::now() + PATIENCE;
    while Instant::now() < give_up {
        if relay.wait_drained(Instant::now() + LOOK) {
            return true;
        }
        let now_behind = lag(operator);
        if now_behind < behind {
            behind = now_behind;
            give_up = Instant::now() + PATIENCE;
        }
    }
    false
}

/// Log rows between the newest event and each lane's cursor.
fn lag(operator: &Operator) -> u64 {
    let Ok(stats) = operator.stats() else { return u64::MAX };
    let lag = |cursor: i64| stats.last_id.saturating_sub(cursor).max(0).unsigned_abs();
    stats.lanes.iter().fold(0, |sum, lane| sum.saturating_add(lag(lane.cursor)))
}
