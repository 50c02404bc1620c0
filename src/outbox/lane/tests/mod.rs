//! A lane driven step by step, against a simple model: commits, outcomes of each kind, deaths in and between calls,
//! takeovers by a second relay, steps of the clock, holds, restarts, prunes, and the operator's acts (replay, edit, discard,
//! resume, rewind) in any order, with one thread and with several. After each step no event is lost
//! sight of, at each completion nothing earlier of its key is open, and in the end everything is settled; no second relay
//! gets the lane while its owner lives, and another handler has every event whatever this one does.

mod healing;
mod judge;
mod model;
mod named;
mod steps;
mod world;

use proptest::prelude::*;

use self::steps::{sizes, steps};
use self::world::World;

/// Thrown by the handler: the process dies here, and with it all that the lane has in memory.
pub(super) struct Death;

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let config = ProptestConfig { failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() };
    if asked { config } else { ProptestConfig { cases: 48, ..config } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn g3_to_g8_hold_whatever_happens_in_whatever_order(sizes in sizes(), steps in steps()) {
        let mut world = World::new(sizes);
        for step in &steps {
            world.take(step);
            world.check();
        }
        world.settle();
        world.check();
        world.check_end();
    }
}
