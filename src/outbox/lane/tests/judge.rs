//! What holds at any moment, and what holds in the end.

use std::collections::{BTreeSet, HashMap};

use super::model::state_of;
use super::world::World;

/// Enough for every event to be tried, parked, and run through again.
const LAST_STEPS: usize = 400;

impl World {
    /// What holds at any moment.
    pub(super) fn check(&self) {
        let cursor = self.number("SELECT coalesce(max(cursor), 0) FROM lanes WHERE handler = 'h'");
        let states: HashMap<i64, (String, Option<String>)> = self
            .rows("SELECT outbox_id, state, reason FROM deliveries", |row| {
                (row.get(0).unwrap(), (row.get(1).unwrap(), row.get(2).unwrap()))
            })
            .into_iter()
            .collect();
        let in_log: BTreeSet<i64> =
            self.rows("SELECT id FROM event_outbox", |row| row.get(0).unwrap()).into_iter().collect();
        let model = self.model.lock().unwrap();
        assert!(model.breaches.is_empty(), "{:?}", model.breaches);
        for id in model.keys.keys() {
            // G3: done, before the cursor, or an exception; and only what is done leaves the log.
            let over = model.done.contains(id) || model.discarded.contains(id);
            let known = over || *id > cursor || states.contains_key(id);
            assert!(known, "event {id} is lost: cursor {cursor}, {states:?}");
            assert!(in_log.contains(id) || over, "event {id} was pruned undelivered");
            let other_done = self.other_done.lock().unwrap().contains(id);
            assert!(in_log.contains(id) || other_done, "event {id} was pruned before another handler had it");
            // G8: condemned is only who has killed three times itself.
            let condemned = states.get(id).is_some_and(|(_, reason)| reason.as_deref() == Some("crash_loop"));
            let deaths = model.deaths.get(id).copied().unwrap_or(0);
            assert!(!condemned || deaths >= 3, "event {id} was condemned for {deaths} deaths");
        }
        // G7: an outage spends nothing and gives nothing up.
        for (id, attempts) in self.attempts() {
            let failed = model.failed.get(&id).copied().unwrap_or(0);
            assert!(attempts <= failed, "event {id}: {attempts} attempts, {failed} failures");
        }
        let twice = "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE state = 'retry' AND event_key IS NOT NULL \
                     GROUP BY event_key HAVING count(*) > 1)";
        assert_eq!(self.number(twice), 0, "two due rows of one key");
        let parked =
            "SELECT count(*) FROM deliveries WHERE state = 'parked' AND reason LIKE 'a later event of its key%'";
        assert_eq!(self.number(parked), 0, "what is superseded holds its key back");
    }

    /// Lets the lane go on undisturbed until nothing is left to do.
    pub(super) fn settle(&mut self) {
        {
            let mut model = self.model.lock().unwrap();
            model.outage = false;
            model.dead_address = None;
            model.script.clear();
        }
        self.sql("UPDATE lanes SET held = 0 WHERE handler = 'h'");
        for _ in 0..LAST_STEPS {
            if !self.pass() {
                self.clock.advance(121_000);
                if self.serving {
                    self.lane.as_mut().unwrap().settle(None).unwrap();
                }
                if self.is_settled() {
                    return;
                }
            }
        }
        let rows = self.rows("SELECT outbox_id, state, event_key FROM deliveries", |row| {
            (row.get::<_, i64>(0).unwrap(), row.get::<_, String>(1).unwrap(), row.get::<_, Option<String>>(2).unwrap())
        });
        let spread = self.lane.as_ref().map(|lane| format!("{:?} {:?}", lane.spread, lane.progress));
        panic!("not settled: {rows:?} {:?} {spread:?}", self.model.lock().unwrap());
    }

    fn is_settled(&self) -> bool {
        let open = "SELECT count(*) FROM deliveries d WHERE state = 'retry' OR (state = 'waiting' AND NOT EXISTS \
                    (SELECT 1 FROM deliveries p WHERE p.state = 'parked' AND p.event_key = d.event_key))";
        let behind = "SELECT count(*) FROM event_outbox WHERE id > \
                      (SELECT coalesce(max(cursor), -1) FROM lanes WHERE handler = 'h')";
        self.serving && self.number(open) == 0 && self.number(behind) == 0
    }

    /// What holds when nothing is left to do.
    pub(super) fn check_end(&self) {
        let superseded = "SELECT outbox_id FROM deliveries WHERE superseded_by IS NOT NULL";
        let superseded: BTreeSet<i64> = self.rows(superseded, |row| row.get(0).unwrap()).into_iter().collect();
        let model = self.model.lock().unwrap();
        for (id, key) in &model.keys {
            let state = state_of(&self.database, *id);
            let (done, discarded) = (model.done.contains(id), model.discarded.contains(id));
            let fine = match state.as_deref() {
                None => done || discarded,
                Some("done") => done && !discarded,
                Some("discarded") => discarded,
                Some("dead_letter") => !self.sizes.park || model.resumed.contains(id) || superseded.contains(id),
                Some("parked" | "waiting") => self.sizes.park,
                Some(_) => false,
            };
            assert!(fine, "event {id} of {key:?} ended as {state:?}");
        }
    }
}
