//! Single stories of a lane.

use std::time::Duration;

use crossbeam_channel::bounded;

use super::model::{Outcome, state_of};
use super::steps::{Sizes, Step};
use super::world::World;

#[test]
fn a_stuck_writer_makes_no_busy_loop_and_no_unbounded_memory() {
    let sizes = Sizes { batch_events: 1, run_ahead: 3, flush_at_once: true, handler_batch: 1, park: false, threads: 1 };
    let mut world = World::new(sizes);
    world.take(&Step::Commit(1, 5));
    world.take(&Step::Pass);
    let (go, gone) = bounded::<()>(1);
    let stuck = world.database.writer().submit_internal(false, move |_| {
        let _ = gone.recv();
        Ok::<_, rusqlite::Error>(())
    });
    // The first outcome's flush is stuck; the second outcome is overdue, but can only wait.
    world.take(&Step::Pass);
    world.take(&Step::Pass);
    let lane = world.lane.as_mut().unwrap();
    assert!(lane.progress.is_flying() && lane.progress.oldest().is_some());
    assert!(lane.wait_time(std::time::Instant::now()) >= Duration::from_millis(1));
    // The third fills what may run ahead: the lane waits for the writer instead of going on.
    let waiting = std::thread::scope(|scope| {
        let pass = scope.spawn(|| (0..2).map(|_| lane.pass().unwrap()).collect::<Vec<_>>());
        while world.model.lock().unwrap().done.len() < 3 {
            std::thread::yield_now();
        }
        let waiting = !pass.is_finished() && world.model.lock().unwrap().done.len() == 3;
        go.send(()).unwrap();
        pass.join().unwrap();
        waiting
    });
    assert!(waiting);
    stuck.unwrap().wait().unwrap();
    world.settle();
    world.check_end();
}

#[test]
fn g8_an_event_that_had_finished_is_not_blamed_for_a_death_after_it() {
    let sizes =
        Sizes { batch_events: 512, run_ahead: 2_048, flush_at_once: false, handler_batch: 1, park: false, threads: 1 };
    let mut world = World::new(sizes);
    let dies = || Step::Script(0, vec![Outcome::Die; 2]);
    // It runs well while the lane single-steps; then the process dies, idle. The script would kill twice more.
    let steps = [
        Step::Pass,
        Step::Crash,
        Step::Commit(1, 1),
        Step::Pass,
        Step::Pass,
        Step::Crash,
        dies(),
        Step::Pass,
        Step::Pass,
    ];
    for step in steps.into_iter().chain(vec![Step::Pass; 3]) {
        world.take(&step);
        world.check();
    }
    world.settle();
    world.check_end();
    assert_eq!(state_of(&world.database, 1), None, "finished and written: it does not even run again");
}

#[test]
fn g5_a_suspect_waits_for_what_a_rewind_of_its_dead_owners_lane_has_put_before_it() {
    let sizes =
        Sizes { batch_events: 512, run_ahead: 2_048, flush_at_once: false, handler_batch: 1, park: false, threads: 1 };
    let mut world = World::new(sizes);
    world.take(&Step::Pass);
    world.take(&Step::Commit(0, 2));
    world.take(&Step::Commit(1, 4));
    world.take(&Step::Script(0, vec![Outcome::Die; 3]));
    // It kills twice; the second death is counted, and its row is a suspect.
    for _ in 0..5 {
        world.take(&Step::Pass);
        world.check();
    }
    // The event before it comes again first: run the other way round, its older state would be the last word.
    world.take(&Step::Rewind(1));
    world.settle();
    world.check();
    world.check_end();
}
