//! What a lane's status says of one that does not get to its database, and of one that is busy by right.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use vayu_articles::outbox::{DispatchError, Event, Handler, LaneStart, LaneState, LaneStatus, Relay, RelayOptions};
use vayu_articles::rusqlite::{self, Connection};

use crate::harness::{LONG, Scripted, Site, drain, stop, wait_until};

const POLL: Duration = Duration::from_millis(5);

fn quick() -> RelayOptions {
    let mut options = RelayOptions::default();
    options.poll = POLL;
    options
}

fn lane(relay: &Relay) -> LaneStatus {
    relay.status().remove(0)
}

#[test]
fn a_lane_that_cannot_be_taken_is_stalled_until_it_can() {
    let site = Site::new();
    let handler = Scripted::new();
    let id = site.insert("a");
    let foreign = Connection::open(site.folder.path().join("site.db")).unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE").unwrap();
    let relay = site.relay().shared_handler("h", handler.clone()).options(quick()).build().unwrap();
    assert!(!lane(&relay).is_stalled(), "nobody has started it");
    relay.start().unwrap();
    wait_until("it is stalled and says why", || {
        let lane = lane(&relay);
        lane.is_stalled() && matches!(&lane.state, LaneState::Waiting { reason } if reason.contains("taking the lane"))
    });
    assert_eq!(lane(&relay).last_pass, None);
    foreign.execute_batch("COMMIT").unwrap();
    wait_until("it is well", || lane(&relay).state == LaneState::Running && !lane(&relay).is_stalled());
    drain(&relay);
    assert_eq!(handler.done(), [id]);
    stop(&relay);
}

#[test]
fn a_lane_that_stands_by_or_is_held_is_stalled_once_it_cannot_look_any_more() -> rusqlite::Result<()> {
    let site = Site::new();
    let owner = site.relay().shared_handler("h", Scripted::new()).options(quick()).start().unwrap();
    drain(&owner);
    let second = Site::in_folder(site.folder.clone());
    let standby = second.relay().shared_handler("h", Scripted::new()).options(quick()).start().unwrap();
    let rests = |what: &str| {
        wait_until(what, || {
            let lane = lane(&standby);
            let shown = matches!(&lane.state, LaneState::Standby { .. } if what == "standby");
            (shown || (lane.state == LaneState::Held && what == "held")) && !lane.is_stalled()
        });
    };
    for what in ["standby", "held"] {
        rests(what);
        // A look every few milliseconds keeps it so.
        let before = lane(&standby).last_sign;
        wait_until("it looks again", || lane(&standby).last_sign < before);
        site.foreign("ALTER TABLE lanes RENAME TO elsewhere")?;
        wait_until("it is stalled", || {
            let lane = lane(&standby);
            lane.is_stalled() && matches!(lane.state, LaneState::Waiting { .. })
        });
        site.foreign("ALTER TABLE elsewhere RENAME TO lanes")?;
        rests(what);
        site.foreign("UPDATE lanes SET held = 1")?;
    }
    stop(&standby);
    stop(&owner);
    Ok(())
}

/// Its `begin`, and its first call after that, end when they are let go.
struct Slow {
    limit: Duration,
    entered: Sender<&'static str>,
    go: Receiver<()>,
    begun: AtomicBool,
}

impl Slow {
    fn wait(&self, what: &'static str) {
        self.entered.send(what).unwrap();
        let _ = self.go.recv_timeout(LONG);
    }
}

impl Handler for Slow {
    fn begin(&self, _: &LaneStart) -> Result<(), DispatchError> {
        self.wait("begin");
        Ok(())
    }

    fn handle(&self, _: &Event) -> Result<(), DispatchError> {
        if !self.begun.swap(true, Ordering::SeqCst) {
            return Err(DispatchError::unavailable("down"));
        }
        self.wait("handle");
        Ok(())
    }

    fn time_limit(&self) -> Duration {
        self.limit
    }
}

fn slow(limit: Duration) -> (Arc<Slow>, Receiver<&'static str>, Sender<()>) {
    let ((entered, entries), (go, gone)) = (unbounded(), unbounded());
    (Arc::new(Slow { limit, entered, go: gone, begun: AtomicBool::new(false) }), entries, go)
}

#[test]
fn a_handler_that_takes_its_time_to_begin_is_not_stalled_and_beyond_its_limit_it_is_overdue() {
    let site = Site::new();
    for (limit, overdue) in [(LONG, false), (Duration::from_millis(1), true)] {
        let (handler, entries, go) = slow(limit);
        let name = format!("limit-{}", limit.as_millis());
        let relay = site.relay().shared_handler(name, handler).options(quick()).start().unwrap();
        assert_eq!(entries.recv_timeout(LONG), Ok("begin"));
        wait_until("it runs for more than three intervals", || {
            lane(&relay).running_for.is_some_and(|time| time > 4 * POLL)
        });
        let seen = lane(&relay);
        assert_eq!((seen.is_stalled(), seen.is_overdue(), seen.calls), (false, overdue, 0), "{seen:?}");
        go.send(()).unwrap();
        drain(&relay);
        assert_eq!((lane(&relay).running_for, lane(&relay).calls), (None, 0));
        stop(&relay);
    }
}

#[test]
fn a_probe_that_hangs_in_an_outage_is_overdue() {
    let site = Site::new();
    let (handler, entries, go) = slow(Duration::from_millis(1));
    go.send(()).unwrap();
    site.insert("a");
    let relay = site.relay().shared_handler("h", handler).options(quick()).start().unwrap();
    assert_eq!(entries.recv_timeout(LONG), Ok("begin"));
    wait_until("the lane pauses", || matches!(lane(&relay).state, LaneState::Paused { .. }));
    site.advance(&relay, 121);
    assert_eq!(entries.recv_timeout(LONG), Ok("handle"));
    wait_until("it is overdue", || lane(&relay).is_overdue());
    let seen = lane(&relay);
    assert!(matches!(seen.state, LaneState::Paused { .. }) && !seen.is_stalled(), "{seen:?}");
    go.send(()).unwrap();
    wait_until("it is well", || lane(&relay).state == LaneState::Running);
    stop(&relay);
}
