//! Random interleavings of claimers, ends, deaths, clock steps and operators, against what must hold in each.

use std::collections::HashMap;

use proptest::prelude::*;
use rusqlite::{Connection, TransactionBehavior};

use super::claim::{Asker, Claim, Ended, Subject, claim, settle};
use super::entries::{discard, replay};
use super::{LedgerOptions, LedgerOutcome};
use crate::outbox::policy::millis;

const PROCESSES: usize = 3;
const EVENTS: usize = 6;

#[derive(Debug, Clone)]
enum Act {
    Deliver { event: usize, process: usize },
    End { run: usize, ended: Ended },
    Kill { process: usize },
    Clock { ms: i64 },
    Replay { event: usize },
    Discard { event: usize },
}

fn ended() -> impl Strategy<Value = Ended> {
    let reason = || "told so".to_owned();
    prop_oneof![
        3 => Just(Ended::Done),
        3 => Just(Ended::Failed { reason: reason() }),
        1 => Just(Ended::Poison { reason: reason() }),
        1 => Just(Ended::Unavailable { reason: reason(), retry_after: None }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let steps = prop_oneof![Just(1_000), Just(15_000), Just(1_800_000), Just(-3_600_000), Just(86_400_000)];
    prop_oneof![
        8 => (0..EVENTS, 0..PROCESSES).prop_map(|(event, process)| Act::Deliver { event, process }),
        6 => (0..8_usize, ended()).prop_map(|(run, ended)| Act::End { run, ended }),
        1 => (0..PROCESSES).prop_map(|process| Act::Kill { process }),
        3 => steps.prop_map(|ms| Act::Clock { ms }),
        1 => (0..EVENTS).prop_map(|event| Act::Replay { event }),
        1 => (0..EVENTS).prop_map(|event| Act::Discard { event }),
    ]
}

/// A handler that runs, as its own process knows it.
#[derive(Debug, Clone)]
struct Run {
    event: usize,
    token: String,
    process: usize,
    /// Set back together with the clock, as the ledger does.
    started_at: i64,
    /// Somebody else was granted the event since.
    expired: bool,
}

struct Model {
    connection: Connection,
    options: LedgerOptions,
    now: i64,
    tokens: u64,
    runs: Vec<Run>,
    /// Tokens whose process died.
    dead: Vec<Run>,
    /// Events whose handler went well, under the token that counted.
    done: HashMap<usize, String>,
    calls: HashMap<usize, u32>,
}

impl Model {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        super::COMPONENT.migrations.iter().for_each(|sql| connection.execute_batch(sql).unwrap());
        let (options, now) = (LedgerOptions::default(), 1_790_000_000_000);
        let (runs, dead, done, calls) = <_>::default();
        Self { connection, options, now, tokens: 0, runs, dead, done, calls }
    }

    /// Two keys, and two events without order.
    fn subject(event: usize) -> Subject {
        let key = ["a", "b"].get(event / 2).map(|key| ((*key).to_owned(), event as i64));
        Subject { event_id: event.to_string(), handler: "h".into(), order: key, event: Some("{}".into()) }
    }

    fn row(&self, event: usize) -> Option<(String, Option<String>, u32, u32)> {
        let text = "SELECT state, token, attempts, crashes FROM processed_events WHERE event_id = ?1";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
        self.connection.query_row(text, [event.to_string()], read).ok()
    }

    fn in_transaction<T>(&mut self, f: impl FnOnce(&rusqlite::Transaction<'_>) -> T) -> T {
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let result = f(&tx);
        tx.commit().unwrap();
        result
    }

    fn ask(&mut self, event: usize, process: usize, alone: bool) -> (String, Claim) {
        self.tokens += 1;
        let token = format!("token-{}", self.tokens);
        let current = self.row(event).and_then(|(_, token, ..)| token);
        let asker = Asker {
            token: token.clone(),
            owner: process.to_string(),
            now: self.now,
            lease: self.options.lease,
            policy: self.options.policy.clone(),
            alone,
            dead_claim: current.filter(|token| self.dead.iter().any(|run| run.token == *token)),
        };
        let subject = Self::subject(event);
        (token, self.in_transaction(|tx| claim(tx, &subject, &asker)).unwrap())
    }

    fn deliver(&mut self, event: usize, process: usize) {
        let (token, mut answer) = self.ask(event, process, false);
        let mut token = token;
        if matches!(answer, Claim::Suspect) && self.runs.iter().all(|run| run.process != process) {
            (token, answer) = self.ask(event, process, true);
        }
        match answer {
            Claim::Yours(_) => self.granted(event, process, token),
            Claim::Suspect => {}
            Claim::Answer(outcome) => self.answered(event, &outcome),
        }
    }

    /// The heart of it: who may run, may run.
    fn granted(&mut self, event: usize, process: usize, token: String) {
        assert!(!self.done.contains_key(&event), "{event} runs again after it was done");
        for run in self.runs.iter_mut().filter(|run| run.event == event && !run.expired) {
            let age = self.now - run.started_at;
            assert!(age >= millis(self.options.lease), "{event} runs twice, the other one for {age} ms");
            // Its lease has ended for good, also should the clock be set back behind that end.
            run.expired = true;
        }
        if let Some((key, position)) = Self::subject(event).order {
            let text = "SELECT count(*) FROM processed_events WHERE event_key = ?1 AND position < ?2 \
                        AND state IN ('in_progress', 'retry')";
            let open: i64 = self.connection.query_row(text, (key, position), |row| row.get(0)).unwrap();
            assert_eq!(open, 0, "{event} overtakes an earlier one of its key");
        }
        let (state, current, attempts, crashes) = self.row(event).unwrap();
        assert_eq!((state.as_str(), current.as_deref()), ("in_progress", Some(token.as_str())));
        assert!(attempts < self.options.policy.max_calls && crashes < self.options.policy.max_crashes);
        let beside = self.runs.iter().any(|run| run.process == process);
        assert!(crashes == 0 || !beside, "a suspect runs beside others");
        *self.calls.entry(event).or_default() += 1;
        self.runs.push(Run { event, token, process, started_at: self.now, expired: false });
    }

    fn answered(&mut self, event: usize, outcome: &LedgerOutcome) {
        match outcome {
            LedgerOutcome::Skipped => assert!(self.done.contains_key(&event), "{event} is skipped and never was done"),
            LedgerOutcome::Deferred { until } => {
                assert!(*until > self.now, "a deferral into the past");
                assert!(*until <= self.now + millis(self.options.lease), "a deferral beyond a lease");
                // A start ahead of the clock was set back.
                let now = self.now;
                let runs = self.runs.iter_mut().chain(&mut self.dead).filter(|run| run.event == event);
                runs.filter(|run| run.started_at > now).for_each(|run| run.started_at = now);
            }
            LedgerOutcome::DeadLetter { .. } | LedgerOutcome::Discarded => {}
            other => panic!("{other:?} without a run"),
        }
    }

    fn end(&mut self, run: usize, ended: &Ended) {
        if self.runs.is_empty() {
            return;
        }
        let run = self.runs.remove(run % self.runs.len());
        let before = self.row(run.event);
        let mine = before.as_ref().is_some_and(|(_, token, ..)| token.as_deref() == Some(run.token.as_str()));
        let (subject, policy, now) = (Self::subject(run.event), self.options.policy.clone(), self.now);
        let outcome = self.in_transaction(|tx| settle(tx, &subject, &run.token, ended, &policy, now)).unwrap();
        assert_eq!(outcome == LedgerOutcome::Lost, !mine, "a stale owner ended something: {outcome:?}");
        if !mine {
            assert_eq!(self.row(run.event), before);
        }
        if outcome == LedgerOutcome::Done {
            assert!(self.done.insert(run.event, run.token).is_none(), "done twice");
        }
        if let LedgerOutcome::Unavailable { .. } = outcome {
            assert_eq!(self.row(run.event).unwrap().2, before.unwrap().2, "an outage spent an attempt");
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Deliver { event, process } => self.deliver(*event, *process),
            Act::End { run, ended } => self.end(*run, ended),
            Act::Kill { process } => {
                let (died, live) = self.runs.drain(..).partition(|run| run.process == *process);
                self.runs = live;
                self.dead.extend::<Vec<Run>>(died);
            }
            Act::Clock { ms } => self.now += ms,
            Act::Replay { event } => {
                let (event, now) = (event.to_string(), self.now);
                let _refused = self.in_transaction(|tx| replay(tx, &event, "h", true, 2, now));
            }
            Act::Discard { event } => {
                let (event, now) = (event.to_string(), self.now);
                let _refused = self.in_transaction(|tx| discard(tx, &event, "h", "unwanted", now));
            }
        }
    }

    /// Whatever happened: with patience everything that was begun comes to an end.
    fn comes_to_an_end(&mut self) {
        while !self.runs.is_empty() {
            self.end(0, &Ended::Done);
        }
        // The clock may stand days before what was written down.
        const ROUNDS: usize = 20;
        for _ in 0..ROUNDS {
            for event in 0..EVENTS {
                self.deliver(event, 0);
                if !self.runs.is_empty() {
                    self.end(0, &Ended::Done);
                }
            }
            self.now += millis(self.options.lease);
        }
        let text = "SELECT count(*) FROM processed_events WHERE state IN ('in_progress', 'retry')";
        let open: i64 = self.connection.query_row(text, [], |row| row.get(0)).unwrap();
        assert_eq!(open, 0, "an entry that nobody ends");
        for event in 0..EVENTS {
            let (state, ..) = self.row(event).unwrap();
            assert_eq!(state == "done", self.done.contains_key(&event), "{event} is {state}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_event_is_done_once_in_order_by_one_owner_and_none_is_stuck(acts in prop::collection::vec(act(), 1..120)) {
        let mut model = Model::new();
        for act in &acts {
            model.act(act);
        }
        model.comes_to_an_end();
    }
}
