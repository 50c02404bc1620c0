//! Stops that err, panic or overrun.

use std::time::Duration;

use vayu_articles::lifecycle::{Cause, HookKind, Manager, ManagerOptions, ServiceOptions, ServiceState, StartContext};

use super::support::*;

#[test]
fn original_13_a_stop_that_overruns_is_left_behind_and_the_others_are_stopped() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    let stuck = Scripted::new("b", &journal).stop_by(Act::Never);
    let gate = stuck.gate.clone();
    let short = ServiceOptions { stop_timeout: Some(SHORT), ..ServiceOptions::default() };
    manager.register_with(stuck, short).unwrap();
    manager.register(Scripted::new("c", &journal)).unwrap();
    manager.start().unwrap();
    let outcome = manager.stop("asked");
    assert_eq!(outcome.left_behind, ["b"]);
    assert_eq!(outcome.exit_code(), 1);
    assert!(outcome.to_string().contains("still running: b"), "{outcome}");
    assert_eq!(outcome.failure.unwrap().during, HookKind::Stop);
    assert_eq!(&journal.lines()[3..], ["stop c", "stop b", "stop a"]);
    gate.open();
    manager.handle().wait_until(AMPLE, |status| !status.service("b").unwrap().left_behind).unwrap();
    assert_eq!(manager.stop("again").left_behind, ["b"], "what was answered stays so");
}

#[test]
fn original_13_all_stops_together_keep_the_budget() {
    let journal = Journal::default();
    let budget = Duration::from_millis(80);
    // Without the budget this test would take hours.
    let stop_timeout = Duration::from_secs(3600);
    let mut manager = Manager::new(ManagerOptions { stop_timeout, stop_budget: budget, ..ManagerOptions::default() });
    let mut gates = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let stuck = Scripted::new(name, &journal).stop_by(Act::Never);
        gates.push(stuck.gate.clone());
        manager.register(stuck).unwrap();
    }
    manager.start().unwrap();
    let outcome = manager.stop("asked");
    assert_eq!(outcome.left_behind, ["a", "b", "c", "d"]);
    assert_eq!(&journal.lines()[4..], ["stop d", "stop c", "stop b", "stop a"]);
    gates.iter().for_each(Gate::open);
}

#[test]
fn a_stop_that_errs_or_panics_is_reported_and_the_others_are_stopped() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal).stop_by(Act::Err)).unwrap();
    manager.register(Scripted::new("b", &journal).stop_by(Act::Panic)).unwrap();
    manager.register(Scripted::new("c", &journal)).unwrap();
    manager.start().unwrap();
    let outcome = manager.stop("asked");
    assert_eq!(outcome.exit_code(), 1);
    assert!(matches!(outcome.cause, Cause::Requested(_)));
    assert_eq!(outcome.failure.unwrap().service, "b", "the first error wins");
    assert_eq!(outcome.services[0].reason.as_deref(), Some("a cannot stop"));
    assert_eq!(outcome.services[1].reason.as_deref(), Some("it panicked: b panics in stop"));
    assert_eq!(outcome.services[2].state, ServiceState::Stopped);
}

#[test]
fn a_thread_that_survives_the_stop_is_named() {
    let gate = Gate::default();
    let mut manager = manager();
    let door = gate.clone();
    let start = move |ctx: &StartContext| {
        let door = door.clone();
        ctx.spawner().spawn("clinger", move || door.pass())?;
        Ok(())
    };
    let short = ServiceOptions { stop_timeout: Some(SHORT), ..ServiceOptions::default() };
    manager.register_with(Closures("a", start, |_| Ok(())), short).unwrap();
    manager.start().unwrap();
    let outcome = manager.stop("asked");
    assert_eq!(outcome.left_behind, ["a"]);
    assert_eq!(outcome.services[0].reason.as_deref(), Some("threads still running: clinger"));
    gate.open();
}
