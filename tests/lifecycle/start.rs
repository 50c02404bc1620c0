//! Starts that fail, panic, overrun or never return.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};

use vayu_articles::lifecycle::{
    BoxError, Fault, HookKind, ServiceOptions, ServiceState, StartContext, StartError, Status,
};

use super::support::*;

/// C.start fails in every way there is; A and B are stopped, D is never started, the original error comes back.
fn start_failure(act: Act, expected: &str) {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    // A failing stop must not mask the error that began it.
    manager.register(Scripted::new("b", &journal).stop_by(Act::Err)).unwrap();
    let c = Scripted::new("c", &journal).start_by(act);
    let gate = c.gate.clone();
    manager.register_with(c, if act == Act::Never { short_both() } else { ServiceOptions::default() }).unwrap();
    manager.register(Scripted::new("d", &journal)).unwrap();

    let (failure, outcome) = failed_start(manager.start());
    assert_eq!((failure.service.as_str(), failure.during), ("c", HookKind::Start));
    assert!(failure.error.to_string().contains(expected), "{failure}");
    assert_eq!(outcome.failure.as_ref().unwrap().service, "c");
    assert_eq!(outcome.exit_code(), 1);
    assert_eq!(outcome.left_behind, if act == Act::Never { vec!["c"] } else { vec![] });
    assert_eq!(journal.lines(), ["start a", "start b", "start c", "stop b", "stop a"]);
    let states: Vec<_> = outcome.services.iter().map(|service| service.state).collect();
    assert_eq!(states, [ServiceState::Stopped, ServiceState::Failed, ServiceState::Failed, ServiceState::New]);
    assert!(!manager.handle().is_ready());

    match manager.start() {
        Err(refused @ StartError::Refused { outcome: Some(_) }) => {
            assert!(refused.to_string().contains("make a new one"), "{refused}");
            assert!(refused.to_string().contains(expected), "{refused}");
        }
        other => panic!("a second start was not refused: {other:?}"),
    }
    assert_eq!(manager.run().exit_code(), 1);
    assert_eq!(journal.lines().len(), 5, "nothing was called again");
    gate.open();
    if act == Act::Never {
        // It came back after all: stopped at once, and no longer left behind.
        journal.await_line("stop c");
        let back = |status: &Status| !status.service("c").unwrap().left_behind;
        manager.handle().wait_until(AMPLE, back).unwrap();
    }
}

#[test]
fn case_c54_a_failing_start_is_rolled_back() {
    start_failure(Act::Err, "c cannot start");
}

#[test]
fn case_c54_a_panicking_start_is_rolled_back() {
    start_failure(Act::Panic, "c panics in start");
}

#[test]
fn case_c54_a_start_that_never_returns_is_cut_by_its_deadline() {
    start_failure(Act::Never, "did not return within 20 ms");
}

#[test]
fn original_13_a_failed_start_leaves_no_earlier_service_running() {
    start_failure(Act::Err, "c cannot start");
}

#[test]
fn case_c54_a_port_in_use_leaves_no_port_and_no_thread() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken_addr = taken.local_addr().unwrap();
    let first = Arc::new(Mutex::new(None::<TcpListener>));
    let gate = Gate::default();
    let mut manager = manager();
    let (slot, door) = (first.clone(), gate.clone());
    let start = move |ctx: &StartContext| {
        *slot.lock().unwrap() = Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
        let door = door.clone();
        ctx.spawner().spawn("c54-worker", move || door.pass())?;
        Ok(())
    };
    let (port, slot) = (Arc::new(Mutex::new(None)), first.clone());
    let seen = port.clone();
    let stop = move |_| {
        let listener = slot.lock().unwrap().take();
        *seen.lock().unwrap() = listener.map(|l| l.local_addr().unwrap());
        gate.open();
        Ok(())
    };
    manager.register(Closures("first", start, stop)).unwrap();
    let bind = move |_: &StartContext| TcpListener::bind(taken_addr).map(drop).map_err(BoxError::from);
    manager.register(Closures("second", bind, |_| panic!("was never started"))).unwrap();

    let (failure, outcome) = failed_start(manager.start());
    let cause = failure.error.downcast_ref::<io::Error>().expect("the original error, not a text");
    assert_eq!(cause.kind(), io::ErrorKind::AddrInUse);
    assert!(outcome.left_behind.is_empty(), "{outcome}");
    let addr = port.lock().unwrap().unwrap();
    TcpListener::bind(addr).expect("the first service's port is free again");
    #[cfg(target_os = "linux")]
    assert_threads_gone("c54-worker");
}

#[test]
fn a_late_start_is_stopped_before_what_it_stands_on() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    manager.register_with(Scripted::new("b", &journal).start_by(Act::Late), short_start()).unwrap();
    let (failure, outcome) = failed_start(manager.start());
    assert!(matches!(failure.error.downcast_ref(), Some(Fault::HookOverran { limit_ms: 20 })));
    assert!(outcome.left_behind.is_empty());
    assert_eq!(journal.lines(), ["start a", "start b", "stop b", "stop a"]);
}

#[test]
fn a_failed_start_is_stopped_when_the_service_asks_for_it() {
    let journal = Journal::default();
    let mut manager = manager();
    let options = ServiceOptions { stop_after_failed_start: true, ..ServiceOptions::default() };
    manager.register_with(Scripted::new("a", &journal).start_by(Act::Panic), options).unwrap();
    failed_start(manager.start());
    assert_eq!(journal.lines(), ["start a", "stop a"]);
}

#[test]
fn a_start_that_fails_and_ends_its_own_threads_reports_its_own_error() {
    let mut manager = manager();
    let start = |ctx: &StartContext| {
        let thread = ctx.spawner().spawn("helper", || ())?;
        thread.join().unwrap();
        Err("port in use".into())
    };
    manager.register(Closures("a", start, |_| Ok(()))).unwrap();
    assert_eq!(failed_start(manager.start()).0.error.to_string(), "port in use");
}
