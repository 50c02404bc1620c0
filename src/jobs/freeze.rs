//! Freezing down to the last row: writes are kept back, the lanes are drained, and then they are held.

use std::thread;
use std::time::{Duration, Instant};

use super::mode::{self, Mode, ModeInfo};
use super::{JobError, Jobs};
use crate::outbox::{LaneInfo, Operator, OwnerState};

/// How often the lanes are looked at while they drain and let go.
const LOOK: Duration = Duration::from_millis(25);

impl Jobs {
    /// [`set_mode`](Self::set_mode) to `mode`, then has every lane that runs deliver what is committed, and holds all lanes: from the
    /// answer on no row of the articles and the outbox changes until the site is opened. It is for backups and migrations.
    ///
    /// # Errors
    /// [`JobError::Freeze`] when the lanes were not done at `until`: the mode stays, and names what was in the way.
    pub fn quiesce(&self, mode: Mode, reason: Option<&str>, until: Instant) -> Result<ModeInfo, JobError> {
        if mode == Mode::Open {
            return Err(JobError::Freeze { what: "an open site is not frozen: take journal or read_only".to_owned() });
        }
        self.set_mode(mode, reason)?;
        let operator = Operator::new(&self.database);
        wait(&operator, until, "not delivered yet", |lane| {
            lane.owner_state == OwnerState::Alive && !lane.held && lane.lag_events > 0
        })?;
        let info = self.transact(|tx| Ok(mode::hold_lanes(tx)?))?;
        if info.mode == Mode::Open {
            return Err(JobError::Freeze { what: "somebody opened the site meanwhile".to_owned() });
        }
        // What a living owner still knows, it writes when it lets go.
        wait(&operator, until, "not let go yet", |lane| lane.owner_state == OwnerState::Alive)?;
        Ok(info)
    }
}

/// Waits until no lane is `busy`.
fn wait(operator: &Operator, until: Instant, what: &str, busy: impl Fn(&LaneInfo) -> bool) -> Result<(), JobError> {
    loop {
        let lanes = operator.lanes()?;
        let left: Vec<&str> = lanes.iter().filter(|lane| busy(lane)).map(|lane| lane.handler.as_str()).collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(JobError::Freeze { what: format!("{what}: {}", left.join(", ")) });
        }
        thread::sleep(LOOK);
    }
}
