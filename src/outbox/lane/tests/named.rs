//! Single stories of a lane.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

use super::model::{Outcome, state_of};
use super::steps::{Sizes, Step};
use super::world::{World, pass_to_the_end};
use crate::outbox::lane::Interrupt;

/// Only a hang reaches it.
const LONG: Duration = Duration::from_secs(60);

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
    // The third fills what may run ahead: the pass after it waits for the writer, and neither ends nor calls anybody.
    let (passed, passes) = bounded(3);
    let (third, fourth, done) = std::thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| passed.send(lane.pass().unwrap()).unwrap()));
        let third = passes.recv_timeout(LONG);
        let fourth = passes.recv_timeout(Duration::from_millis(100));
        let done = world.model.lock().unwrap().done.len();
        go.send(()).unwrap();
        (third, fourth, done)
    });
    assert_eq!((third, fourth, done), (Ok(true), Err(RecvTimeoutError::Timeout), 3));
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
fn g8_nothing_is_called_under_the_name_of_an_event_that_had_finished_and_could_not_be_unnamed() {
    for threads in [1, 2] {
        let sizes = Sizes {
            batch_events: 512,
            run_ahead: 2_048,
            flush_at_once: false,
            handler_batch: 100,
            park: false,
            threads,
        };
        let mut world = World::new(sizes);
        // It fails, and kills twice when it is tried again: the second death is counted. By then the lane is beyond it.
        world.take(&Step::Commit(1, 1));
        world.take(&Step::Script(0, vec![Outcome::Fail, Outcome::Die, Outcome::Die]));
        world.take(&Step::Commit(2, 1));
        while world.number("SELECT count(*) FROM deliveries WHERE crashes > 0") == 0 {
            world.take(&Step::Pass);
            if world.serving {
                world.lane.as_mut().unwrap().settle(None).unwrap();
            }
            world.take(&Step::Clock(121));
        }
        // The suspect runs well, but the database refuses to take its name back.
        foreign(
            &world,
            "CREATE TRIGGER refused BEFORE UPDATE ON lanes WHEN NEW.running_id IS NULL AND OLD.running_id IS NOT NULL \
             BEGIN SELECT RAISE(ABORT, 'no room'); END",
        );
        let named = |world: &World| world.number("SELECT running_id IS NOT NULL FROM lanes WHERE handler = 'h'") == 1;
        while !named(&world) {
            drop(pass_as_it_ends(&mut world));
        }
        // What comes next would kill the process.
        world.take(&Step::Commit(2, 2));
        world.take(&Step::Script(0, vec![Outcome::Die]));
        world.take(&Step::Script(1, vec![Outcome::Die]));
        for _ in 0..3 {
            let ended = pass_as_it_ends(&mut world);
            assert!(matches!(ended, Some(Err(Interrupt::Database(_)))), "it calls nobody: {ended:?}");
            assert!(named(&world));
        }
        foreign(&world, "DROP TRIGGER refused");
        world.settle();
        world.check_end();
        assert_eq!(state_of(&world.database, 1).as_deref(), Some("done"), "it was not blamed for those after it");
    }
}

/// What a task of the writer may not do.
fn foreign(world: &World, sql: &str) {
    let connection = rusqlite::Connection::open(world.database.canonical_path().unwrap()).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection.execute_batch(sql).unwrap();
}

/// `None`: the process died.
fn pass_as_it_ends(world: &mut World) -> Option<Result<bool, Interrupt>> {
    let lane = world.lane.as_mut().unwrap();
    catch_unwind(AssertUnwindSafe(|| pass_to_the_end(lane))).ok()
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
