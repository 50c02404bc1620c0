//! Threads that end although nobody asked them to.

use vayu_articles::lifecycle::{Cause, HookKind, Outcome, ServiceState, Spawner, StartContext};

use super::support::*;

/// Runs services a, b, c, where b's thread ends by `end` once everything runs.
fn dying_thread(end: impl Fn() + Send + Sync + Clone + 'static) -> (Outcome, Vec<String>) {
    let (journal, gate) = (Journal::default(), Gate::default());
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    let (log, door) = (journal.clone(), gate.clone());
    let start = move |ctx: &StartContext| {
        let (door, end) = (door.clone(), end.clone());
        let die = move || {
            door.pass();
            end();
        };
        ctx.spawner().spawn("b-worker", die)?;
        Ok(())
    };
    let stop = move |_| {
        log.add("stop b");
        Ok(())
    };
    manager.register(Closures("b", start, stop)).unwrap();
    manager.register(Scripted::new("c", &journal)).unwrap();
    let handle = manager.handle();
    manager.start().unwrap();
    gate.open();
    let cause = manager.wait();
    assert!(matches!(cause, Cause::Failed(failure) if failure.service == "b"));
    assert!(!handle.is_ready(), "readiness is off before anything is stopped");
    assert_eq!(state(&handle, "b"), ServiceState::Failed);
    assert_eq!(state(&handle, "c"), ServiceState::Running);
    let outcome = manager.run();
    assert_eq!(outcome.exit_code(), 1);
    assert_eq!(state(&handle, "b"), ServiceState::Failed);
    (outcome, journal.lines())
}

#[test]
fn case_c59_a_panicking_thread_fails_its_service_and_brings_the_rest_down() {
    let (outcome, lines) = dying_thread(|| panic!("marked article"));
    assert_eq!(&lines[2..], ["stop c", "stop b", "stop a"]);
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.during, HookKind::Run);
    assert_eq!(failure.to_string(), "service b failed: thread b-worker panicked: marked article");
}

#[test]
fn case_c59_a_thread_that_returns_unasked_fails_its_service() {
    let (outcome, _) = dying_thread(|| ());
    assert_eq!(outcome.failure.unwrap().to_string(), "service b failed: thread b-worker ended unasked");
}

#[test]
fn a_service_can_report_its_own_failure() {
    let mut manager = manager();
    let start = |ctx: &StartContext| {
        ctx.spawner().fail("the disk is gone");
        Ok(())
    };
    manager.register(Closures("a", start, |_| Ok(()))).unwrap();
    let (failure, outcome) = failed_start(manager.start());
    assert_eq!(failure.to_string(), "service a failed to start: the disk is gone");
    assert!(outcome.services[0].stop_ms.is_some(), "its start returned Ok, so it was stopped");
}

#[test]
fn a_thread_that_ends_during_a_successful_start_fails_the_service() {
    let mut manager = manager();
    let start = |ctx: &StartContext| {
        ctx.spawner().spawn("helper", || ())?.join().unwrap();
        Ok(())
    };
    manager.register(Closures("a", start, |_| Ok(()))).unwrap();
    let fault = failed_start(manager.start()).0;
    assert_eq!(fault.to_string(), "service a failed to start: thread helper ended unasked");
}

#[test]
fn threads_may_return_while_stopping_but_not_panic() {
    for panics in [false, true] {
        let gate = Gate::default();
        let mut manager = manager();
        let door = gate.clone();
        let start = move |ctx: &StartContext| {
            let door = door.clone();
            ctx.spawner().spawn("worker", move || {
                door.pass();
                assert!(!panics, "lost the last batch");
            })?;
            Ok(())
        };
        let stop = move |_| {
            gate.open();
            Ok(())
        };
        manager.register(Closures("a", start, stop)).unwrap();
        manager.start().unwrap();
        let outcome = manager.stop("asked");
        assert_eq!(outcome.exit_code(), u8::from(panics), "{outcome}");
        assert!(outcome.left_behind.is_empty(), "the manager waits for the service's threads");
    }
}

#[test]
fn a_standalone_spawner_needs_no_manager() {
    let ctx = StartContext::standalone("alone", AMPLE);
    assert!(!ctx.stop_requested() && ctx.check_stop().is_ok());
    assert!(ctx.spawner().spawn("worker", || panic!("on purpose")).unwrap().join().is_err());
    assert!(Spawner::standalone("alone").spawn("worker", || ()).unwrap().join().is_ok());
}
