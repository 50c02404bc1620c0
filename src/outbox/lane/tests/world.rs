//! A database, a clock and a lane over them that is driven step by step.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crossbeam_channel::{bounded, never};

use super::Death;
use super::model::{Model, Modelled};
use super::steps::{Sizes, Step};
use crate::clock::ManualClock;
use crate::outbox::lane::{Board, Interrupt, Lane, LaneParts, StopSignal};
use crate::outbox::owner::OwnerLock;
use crate::outbox::{
    self, Event, Handler, HandlerFn, NewEvent, OnDeadLetter, Operator, RelayOptions, Retention, RewindTo,
};
use crate::storage::{Database, Options};

const START_MS: i64 = 1_767_225_600_000;
/// Passes that a lane needs at most to notice a hold and let go.
const LET_GO_WITHIN: usize = 3;

/// One pass, and with several threads all that comes of it: the next step of the world comes after it.
pub(super) fn pass_to_the_end(lane: &mut Lane) -> Result<bool, Interrupt> {
    let mut worked = lane.pass()?;
    while lane.spread.is_running() {
        lane.spread.inbox = lane.crew.as_ref().unwrap().wait_answer(Duration::from_secs(60));
        assert!(lane.spread.inbox.is_some(), "a call does not end");
        worked |= lane.collect()?;
    }
    Ok(worked)
}

/// 0 is no key.
fn key_text(key: u8) -> Option<String> {
    (key > 0).then(|| format!("key-{key}"))
}

pub(super) struct World {
    pub(super) database: Database,
    pub(super) clock: Arc<ManualClock>,
    pub(super) sizes: Sizes,
    pub(super) model: Arc<Mutex<Model>>,
    pub(super) lane: Option<Lane>,
    /// The lane is ours and `pass` may be called.
    pub(super) serving: bool,
    /// The same handler's lane of another relay that lives.
    standby: Option<Lane>,
    /// Another handler's, in a relay that never dies, and what that handler has done.
    other: Option<Lane>,
    pub(super) other_done: Arc<Mutex<BTreeSet<i64>>>,
    edits: u32,
    _folder: tempfile::TempDir,
}

impl World {
    pub(super) fn new(sizes: Sizes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let options = Options { clock: clock.clone(), ..Options::default() };
        let database = Database::open(folder.path().join("a.db"), &[outbox::COMPONENT], options).unwrap();
        let mut world = Self {
            database,
            clock,
            sizes,
            model: Arc::default(),
            lane: None,
            serving: false,
            standby: None,
            other: None,
            other_done: Arc::default(),
            edits: 0,
            _folder: folder,
        };
        world.lane = Some(world.new_lane());
        world.standby = Some(world.new_lane());
        world.other = Some(world.new_other());
        world.run_other();
        world
    }

    /// The lane of a process that has just started.
    fn new_lane(&self) -> Lane {
        let sizes = &self.sizes;
        let handler = Arc::new(Modelled {
            database: self.database.clone(),
            model: self.model.clone(),
            on_dead_letter: if sizes.park { OnDeadLetter::ParkKey } else { OnDeadLetter::Continue },
            batch: sizes.handler_batch,
            threads: sizes.threads,
        });
        self.model.lock().unwrap().threads.clear();
        self.lane_of("h", handler)
    }

    fn new_other(&self) -> Lane {
        let done = self.other_done.clone();
        let remembers = move |event: &Event| {
            done.lock().unwrap().insert(event.id);
            Ok(())
        };
        self.lane_of("other", Arc::new(HandlerFn::new(remembers)))
    }

    fn lane_of(&self, name: &str, handler: Arc<dyn Handler>) -> Lane {
        let path = self.database.canonical_path().unwrap();
        let sizes = &self.sizes;
        let options = RelayOptions {
            batch_events: sizes.batch_events,
            run_ahead: sizes.run_ahead,
            flush_after: if sizes.flush_at_once { Duration::ZERO } else { Duration::MAX },
            ..RelayOptions::default()
        };
        let (_, asked) = bounded(0);
        Lane::new(LaneParts {
            database: self.database.clone(),
            name: name.into(),
            board: Arc::new(Board::new(name, handler.time_limit(), handler.concurrency())),
            handler,
            options,
            lock: Arc::new(OwnerLock::create(&path, vec![name.into()]).unwrap()),
            path,
            stop: StopSignal { asked, deadline: Arc::new(OnceLock::new()) },
            commits: never(),
            notices: never(),
        })
    }

    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Commit(key, count) => (0..*count).for_each(|_| self.commit(*key)),
            Step::Script(which, outcomes) => {
                if let Some(id) = self.event(*which) {
                    self.model.lock().unwrap().script.entry(id).or_default().extend(outcomes);
                }
            }
            Step::Pass => drop(self.pass()),
            Step::Crash => self.crash(),
            Step::Restart => {
                if std::mem::take(&mut self.serving) {
                    self.lane.as_mut().unwrap().give_up();
                }
                self.lane = Some(self.new_lane());
            }
            Step::Clock(seconds) => self.clock.advance(seconds * 1_000),
            Step::Replay(which, force) => self.replay(*which, *force),
            Step::Edit(which, force) => self.edit(*which, *force),
            Step::Discard(which) => self.discard(*which),
            Step::Resume(key) => self.resume(*key),
            Step::Rewind(which) => self.rewind(*which),
            Step::Hold(held) => self.sql(&format!("UPDATE lanes SET held = {} WHERE handler = 'h'", u8::from(*held))),
            Step::Standby => self.standby_looks(),
            Step::OtherHandler => self.run_other(),
            Step::Outage(outage) => self.model.lock().unwrap().outage = *outage,
            Step::DeadAddress(key) => self.model.lock().unwrap().dead_address = key_text(*key),
            // What nobody has begun to read is nobody's yet.
            Step::Prune(_) if self.number("SELECT count(*) FROM lanes WHERE handler = 'h'") == 0 => {}
            Step::Prune(other_first) => {
                if *other_first {
                    self.run_other();
                }
                let retention = Retention { keep: Duration::ZERO, ..Retention::default() };
                outbox::prune(&self.database, &retention, 0, || false).unwrap();
            }
        }
    }

    /// One of the newest events: there is to be more than one act on one event.
    fn event(&self, which: usize) -> Option<i64> {
        self.model.lock().unwrap().keys.keys().rev().nth(which).copied()
    }

    fn commit(&self, key: u8) {
        let key = key_text(key);
        let mut event = NewEvent::from_json("t", "{}").occurred_at(self.database.clock().now_ms());
        event.key.clone_from(&key);
        let id = self.database.writer().transact(move |tx| outbox::insert(tx, &event)).unwrap();
        self.model.lock().unwrap().keys.insert(id, key);
    }

    pub(super) fn sql(&self, sql: &str) {
        let sql = sql.to_owned();
        self.database.writer().transact(move |tx| tx.execute_batch(&sql)).unwrap();
    }

    fn replay(&self, which: usize, force: bool) {
        let Some(id) = self.event(which) else { return };
        if Operator::new(&self.database).replay(id, "h", force).is_ok() {
            self.model.lock().unwrap().runs_again(id);
        }
    }

    fn edit(&mut self, which: usize, force: bool) {
        let Some(id) = self.event(which) else { return };
        self.edits += 1;
        let payload = format!("{{\"edit\":{}}}", self.edits);
        if Operator::new(&self.database).edit(id, "h", payload.as_str(), force).is_ok() {
            let mut model = self.model.lock().unwrap();
            model.runs_again(id);
            model.edited.insert(id, payload);
        }
    }

    fn discard(&self, which: usize) {
        let Some(id) = self.event(which) else { return };
        if Operator::new(&self.database).discard(id, "h", "told to").is_ok() {
            self.model.lock().unwrap().discarded.insert(id);
        }
    }

    fn resume(&self, key: u8) {
        if let Ok(ids) = Operator::new(&self.database).resume("h", &format!("key-{key}")) {
            self.model.lock().unwrap().resumed.extend(ids);
        }
    }

    fn rewind(&mut self, which: usize) {
        let Some(id) = self.event(which) else { return };
        let operator = Operator::new(&self.database);
        let Ok(lanes) = operator.lanes() else { return };
        let Some(held) = lanes.iter().find(|lane| lane.handler == "h").map(|lane| lane.held) else { return };
        operator.hold("h").unwrap();
        for _ in 0..LET_GO_WITHIN {
            if !self.serving {
                break;
            }
            self.pass();
        }
        assert!(!self.serving, "a held lane is let go");
        let done_above = format!("SELECT outbox_id FROM deliveries WHERE state = 'done' AND outbox_id >= {id}");
        let forgotten = self.rows(&done_above, |row| row.get(0).unwrap()).into_iter().collect();
        let lane = operator.hold_and_wait("h", Duration::from_secs(60)).unwrap();
        if lane.rewind(&RewindTo::Id(id)).is_ok() {
            let in_log = self.rows("SELECT id FROM event_outbox", |row| row.get(0).unwrap()).into_iter().collect();
            self.model.lock().unwrap().rewound(id, &in_log, &forgotten);
        }
        if !held {
            operator.release("h").unwrap();
        }
    }

    /// One step of the lane's life; `true` when there was something to do.
    pub(super) fn pass(&mut self) -> bool {
        let lane = self.lane.as_mut().unwrap();
        if !self.serving {
            self.serving = lane.acquire().unwrap();
            return self.serving;
        }
        match catch_unwind(AssertUnwindSafe(|| pass_to_the_end(lane))) {
            Ok(Ok(worked)) => worked,
            Ok(Err(Interrupt::Held)) => {
                lane.give_up();
                self.serving = false;
                true
            }
            Ok(Err(other)) => panic!("{other:?}"),
            Err(panic) => {
                assert!(panic.is::<Death>());
                self.crash();
                true
            }
        }
    }

    /// G4: as long as the lane's owner lives the other relay does not get it. Where it does, the two change places.
    fn standby_looks(&mut self) {
        let taken = self.standby.as_mut().unwrap().acquire().unwrap();
        assert!(!(taken && self.serving), "two relays have the lane");
        if taken {
            std::mem::swap(&mut self.lane, &mut self.standby);
            self.serving = true;
            self.model.lock().unwrap().threads.clear();
        }
    }

    /// G6: whatever this handler does or waits for, another one goes through the log to its end.
    pub(super) fn run_other(&mut self) {
        let lane = self.other.as_mut().unwrap();
        if !lane.owned {
            assert!(lane.acquire().unwrap(), "nobody else wants it");
        }
        while lane.pass().unwrap() {}
        lane.settle(None).unwrap();
        let all: BTreeSet<i64> = self.model.lock().unwrap().keys.keys().copied().collect();
        assert_eq!(*self.other_done.lock().unwrap(), all, "another handler waits for this one");
    }

    /// What the lane has in memory is gone; its row still names an owner whose file can be locked.
    fn crash(&mut self) {
        self.lane = None;
        self.serving = false;
        self.lane = Some(self.new_lane());
        // A flush that was under way may still be written: wait for the writer.
        self.sql("UPDATE lanes SET held = held");
        // What was not written is forgotten by the relay, so the model must not count on it.
        let mut model = self.model.lock().unwrap();
        model.dead.clear();
        model.finished.clear();
        model.failed.clear();
        for (id, attempts) in self.attempts() {
            model.failed.insert(id, attempts);
        }
    }

    pub(super) fn attempts(&self) -> Vec<(i64, u32)> {
        self.rows("SELECT outbox_id, attempts FROM deliveries", |row| (row.get(0).unwrap(), row.get(1).unwrap()))
    }

    pub(super) fn rows<T>(&self, sql: &str, read: impl Fn(&rusqlite::Row<'_>) -> T) -> Vec<T> {
        let all = |connection: &rusqlite::Connection| -> rusqlite::Result<Vec<T>> {
            connection.prepare(sql)?.query_map([], |row| Ok(read(row)))?.collect()
        };
        self.database.read(all).unwrap()
    }

    pub(super) fn number(&self, sql: &str) -> i64 {
        self.rows(sql, |row| row.get(0).unwrap())[0]
    }
}
