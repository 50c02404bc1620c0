//! What a relay does beside delivering: it keeps its owner file in place, removes those of the dead, and prunes the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::operator::Operator;
use super::owner::{self, OwnerLock, OwnerState};
use super::retention::{self, Retention};
use super::sql;
use crate::storage::Database;

/// How often the owner file is looked at: well within the two seconds after which a missing one counts as dead.
const LOOK: Duration = Duration::from_millis(500);
/// After so many passes retention looks at the log from its beginning again.
const PASSES_PER_SWEEP: u64 = 36;
/// Dead owners' files removed at the start, at most.
const MAX_DEAD_FILES: usize = 1_000;

pub(super) struct Housekeeping {
    pub(super) database: Database,
    pub(super) lock: Arc<OwnerLock>,
    pub(super) path: PathBuf,
    /// The handlers of this relay.
    pub(super) handlers: Vec<String>,
    pub(super) retention: Option<Retention>,
    pub(super) stop: Receiver<()>,
}

pub(super) fn run(house: &Housekeeping) {
    let (owner, pid) = (house.lock.id(), std::process::id());
    log::info!("relay owner={owner} pid={pid} handlers={}", house.handlers.join(","));
    remove_dead_files(house);
    warn_of_absent_lanes(house);
    let mut resume_after = 0;
    let mut passes = 0_u64;
    let mut last_pass: Option<Instant> = None;
    while let Err(RecvTimeoutError::Timeout) = house.stop.recv_timeout(LOOK) {
        if let Err(error) = house.lock.keep() {
            log::warn!("relay owner_file=missing error={error}");
        }
        let Some(retention) = &house.retention else { continue };
        if last_pass.is_some_and(|at| at.elapsed() < retention.every) {
            continue;
        }
        last_pass = Some(Instant::now());
        let stopping = || matches!(house.stop.try_recv(), Err(crossbeam_channel::TryRecvError::Disconnected));
        let keep_and_go_on = || {
            let _ = house.lock.keep();
            stopping()
        };
        match retention::prune(&house.database, retention, resume_after, keep_and_go_on) {
            Ok(pruned) => {
                passes += 1;
                // Now and then from the beginning: what was kept for a dead letter may be free by now.
                resume_after = if passes.is_multiple_of(PASSES_PER_SWEEP) { 0 } else { pruned.resume_after };
                if pruned.events > 0 {
                    log::info!("relay retention removed={} up_to={}", pruned.events, pruned.resume_after);
                }
                // Also after a pass that removed nothing: an earlier one may have been stopped half-way.
                if let Err(error) = retention::reclaim(&house.database, retention, keep_and_go_on) {
                    log::warn!("relay vacuum=failed error={error}");
                }
            }
            Err(error) => log::warn!("relay retention=failed error={error}"),
        }
    }
}

/// A lane that nobody runs any more keeps every event since: said once, when a relay starts without its handler.
fn warn_of_absent_lanes(house: &Housekeeping) {
    let lanes = match Operator::new(&house.database).lanes() {
        Ok(lanes) => lanes,
        Err(error) => {
            log::warn!("relay lanes=unread error={error}");
            return;
        }
    };
    for lane in lanes {
        if house.handlers.contains(&lane.handler) || lane.owner_state == OwnerState::Alive {
            continue;
        }
        log::warn!(
            "relay lane={:?} handler_here=no owner=none events_kept={}: no relay runs this lane, and the log keeps its \
             events until one does",
            lane.handler,
            lane.lag_events
        );
    }
}

fn remove_dead_files(house: &Housekeeping) {
    let dead = owner::remove_unfinished(&house.path, MAX_DEAD_FILES)
        .and_then(|()| owner::dead_owners(&house.path, MAX_DEAD_FILES));
    let dead = match dead {
        Ok(dead) => dead,
        Err(error) => {
            log::warn!("relay owner_files=unreadable error={error}");
            return;
        }
    };
    for owner in dead {
        let owns = house.database.read(|connection| {
            connection.prepare_cached(sql::LANES_OF_OWNER)?.query_row([&owner], |row| row.get::<_, i64>(0))
        });
        // A file that a lane still names proves that its owner is dead: the taking of that lane removes it.
        if matches!(owns, Ok(0)) {
            owner::remove_owner_file(&house.path, &owner);
        }
    }
}
