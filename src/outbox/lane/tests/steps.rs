//! What can happen, and how often.

use proptest::prelude::*;

use super::model::Outcome;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// So many events of this key; 0 is no key.
    Commit(u8, usize),
    /// What the handler will do with one of the newest events.
    Script(usize, Vec<Outcome>),
    Pass,
    /// The process dies between two calls.
    Crash,
    /// It stops in good order and is started again.
    Restart,
    Clock(i64),
    Replay(usize, bool),
    /// A new payload for one of the newest events.
    Edit(usize, bool),
    Discard(usize),
    /// The key goes on without what is parked.
    Resume(u8),
    /// The lane is held until it is let go, moved back to one of the newest events, and released if it was not held before.
    Rewind(usize),
    Hold(bool),
    /// Another relay with the same handler looks whether the lane is free.
    Standby,
    /// Another handler goes through the log.
    OtherHandler,
    Outage(bool),
    /// Nobody answers for the events of this key; 0 is no key.
    DeadAddress(u8),
    /// Before it, the other handler goes through the log or does not.
    Prune(bool),
}

/// Sizes small enough that every limit is met, and large ones.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    pub(super) batch_events: usize,
    pub(super) run_ahead: usize,
    pub(super) flush_at_once: bool,
    pub(super) handler_batch: usize,
    pub(super) park: bool,
    pub(super) threads: usize,
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Fail),
        2 => Just(Outcome::Poison),
        1 => Just(Outcome::Panic),
        3 => Just(Outcome::Die),
    ];
    let outcomes = prop::collection::vec(outcome, 1..6);
    // The same again: what is given up, or condemned.
    let stubborn = (prop_oneof![Just(Outcome::Fail), Just(Outcome::Die)], 3..6_usize)
        .prop_map(|(outcome, times)| vec![outcome; times]);
    let clock = prop_oneof![6 => Just(121_i64), 2 => Just(5), 1 => Just(-3_600), 1 => -200..200_i64];
    let newest = 0..6_usize;
    let step = prop_oneof![
        6 => (0..3_u8, 1..5_usize).prop_map(|(key, count)| Step::Commit(key, count)),
        8 => (newest.clone(), prop_oneof![outcomes, stubborn]).prop_map(|(which, all)| Step::Script(which, all)),
        16 => Just(Step::Pass),
        3 => Just(Step::Crash),
        1 => Just(Step::Restart),
        7 => clock.prop_map(Step::Clock),
        4 => (newest.clone(), any::<bool>()).prop_map(|(which, force)| Step::Replay(which, force)),
        3 => (newest.clone(), any::<bool>()).prop_map(|(which, force)| Step::Edit(which, force)),
        2 => newest.clone().prop_map(Step::Discard),
        2 => (1..3_u8).prop_map(Step::Resume),
        2 => (0..12_usize).prop_map(Step::Rewind),
        1 => any::<bool>().prop_map(Step::Hold),
        2 => any::<bool>().prop_map(Step::Outage),
        2 => (0..3_u8).prop_map(Step::DeadAddress),
        4 => Just(Step::Standby),
        2 => Just(Step::OtherHandler),
        1 => any::<bool>().prop_map(Step::Prune),
    ];
    prop::collection::vec(step, 1..60)
}

pub(super) fn sizes() -> impl Strategy<Value = Sizes> {
    let small_or_large = |large: usize| prop_oneof![Just(1), Just(3), Just(large)];
    let threads = prop_oneof![Just(1), Just(1), Just(2), Just(3)];
    (small_or_large(512), small_or_large(2_048), any::<bool>(), small_or_large(100), any::<bool>(), threads).prop_map(
        |(batch_events, run_ahead, flush_at_once, handler_batch, park, threads)| Sizes {
            batch_events,
            run_ahead,
            flush_at_once,
            handler_batch,
            park,
            threads,
        },
    )
}
