//! Order, registration, requests and signals.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vayu_articles::lifecycle::{Cause, RegisterError, ServiceState, SignalReply, StartContext, StartError};

use super::support::*;

#[test]
fn services_start_in_order_and_stop_in_reverse() {
    let journal = Journal::default();
    let mut manager = manager();
    for name in ["a", "b", "c"] {
        manager.register(Scripted::new(name, &journal)).unwrap();
    }
    let handle = manager.handle();
    assert!(!handle.is_ready());
    manager.start().unwrap();
    assert!(handle.is_ready());
    let outcome = manager.stop("the test is over");
    assert_eq!(journal.lines(), ["start a", "start b", "start c", "stop c", "stop b", "stop a"]);
    assert!(outcome.is_clean());
    assert_eq!(outcome.exit_code(), 0);
    assert!(matches!(&outcome.cause, Cause::Requested(text) if text == "the test is over"));
    for service in &outcome.services {
        assert_eq!(service.state, ServiceState::Stopped);
        assert!(service.start_ms.is_some() && service.stop_ms.is_some() && service.reason.is_none());
    }
    let status = handle.status();
    assert!(status.ended && !status.ready);
    assert_eq!(status.stop_cause.as_deref(), Some("the test is over"));
}

#[test]
fn run_returns_after_a_stop_request_from_any_thread() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    let handle = manager.handle();
    let asker = std::thread::spawn(move || {
        handle.wait_until(AMPLE, |status| status.ready).unwrap();
        handle.request_stop("enough");
        handle.request_stop("a later cause");
        handle.wait_until(AMPLE, |status| status.ended).unwrap()
    });
    let outcome = manager.run();
    assert_eq!((outcome.exit_code(), outcome.cause.to_string()), (0, "enough".to_owned()));
    assert_eq!(asker.join().unwrap().stop_cause.as_deref(), Some("enough"));
    assert_eq!(manager.run().cause.to_string(), "enough", "a second run only tells how the first ended");
    assert_eq!(journal.lines(), ["start a", "stop a"]);
}

#[test]
fn names_are_unique_and_registration_ends_with_the_start() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    assert_eq!(manager.register(Scripted::new("a", &journal)), Err(RegisterError::DuplicateName("a".into())));
    for bad in ["", "a b", "a=b", "a\nb"] {
        assert_eq!(manager.register(Scripted::new(bad, &journal)), Err(RegisterError::BadName(bad.into())));
    }
    manager.start().unwrap();
    assert_eq!(manager.register(Scripted::new("b", &journal)), Err(RegisterError::TooLate));
    assert!(matches!(manager.start(), Err(StartError::Refused { outcome: None })));
    assert_eq!(manager.stop("done").services.len(), 1);
}

#[test]
fn a_stop_before_the_start_starts_nothing() {
    let journal = Journal::default();
    let mut stopped = manager();
    stopped.register(Scripted::new("a", &journal)).unwrap();
    assert_eq!(stopped.stop("before").exit_code(), 0);
    assert!(matches!(stopped.start(), Err(StartError::Refused { outcome: Some(_) })));
    assert_eq!(stopped.run().exit_code(), 0);
    assert_eq!(state(&stopped.handle(), "a"), ServiceState::New);

    let mut requested = manager();
    requested.register(Scripted::new("a", &journal)).unwrap();
    requested.handle().request_stop("early");
    assert!(matches!(requested.start(), Err(StartError::Stopped(outcome)) if outcome.is_clean()));
    assert!(journal.lines().is_empty());
}

#[test]
fn a_stop_request_during_the_start_starts_nothing_further() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    let handle = manager.handle();
    let asker = handle.clone();
    // Sees the request it made itself, as a long migration would, and gives up: neither failed nor started.
    let start = move |ctx: &StartContext| {
        assert!(!ctx.stop_requested());
        asker.request_stop("changed my mind");
        ctx.check_stop()?;
        Ok(())
    };
    manager.register(Closures("b", start, |_| panic!("was never started"))).unwrap();
    manager.register(Scripted::new("c", &journal)).unwrap();
    let outcome = manager.run();
    assert_eq!(outcome.exit_code(), 0, "{outcome}");
    assert_eq!(journal.lines(), ["start a", "stop a"]);
    assert_eq!(state(&handle, "b"), ServiceState::Stopped);
    assert_eq!(state(&handle, "c"), ServiceState::New);
}

#[test]
fn a_stop_request_waits_for_the_start_under_way_and_stops_what_it_started() {
    let journal = Journal::default();
    let (service, gate) = (Scripted::new("a", &journal).start_by(Act::Never), Gate::default());
    let service = Scripted { gate: gate.clone(), ..service };
    let mut manager = manager();
    manager.register(service).unwrap();
    let manager = Arc::new(manager);
    let starter = std::thread::spawn({
        let manager = manager.clone();
        move || manager.start()
    });
    journal.await_line("start a");
    let stopper = std::thread::spawn({
        let manager = manager.clone();
        move || manager.stop("from elsewhere")
    });
    manager.handle().wait_until(AMPLE, |status| status.stop_cause.is_some()).unwrap();
    gate.open();
    assert!(matches!(starter.join().unwrap(), Err(StartError::Stopped(outcome)) if outcome.is_clean()));
    assert!(stopper.join().unwrap().is_clean());
    assert_eq!(journal.lines(), ["start a", "start a returned", "stop a"]);
}

#[test]
fn the_first_signal_stops_and_the_second_exits_with_130() {
    let manager = manager();
    let codes = Arc::new(Mutex::new(Vec::new()));
    let seen = codes.clone();
    let hook = manager.handle().signal_hook(move |code| seen.lock().unwrap().push(code));
    hook();
    assert!(codes.lock().unwrap().is_empty());
    assert_eq!(manager.handle().status().stop_cause.as_deref(), Some("signal"));
    let deadline = Instant::now() + AMPLE;
    while codes.lock().unwrap().len() < 2 {
        assert!(Instant::now() < deadline, "a later signal insists");
        std::thread::park_timeout(Duration::from_millis(5));
        hook();
    }
    assert_eq!(*codes.lock().unwrap(), [130, 130]);
    assert_eq!(manager.handle().on_signal(), SignalReply::Exit(130));
    assert_eq!(manager.run().exit_code(), 0);
}

#[test]
fn a_signal_within_100_ms_of_the_first_is_the_same_one() {
    let manager = manager();
    let handle = manager.handle();
    let first = Instant::now();
    let at = |ms| handle.on_signal_at(first + Duration::from_millis(ms));
    assert_eq!([at(0), at(0), at(60), at(99)], [SignalReply::Stopping; 4]);
    // A burst does not put it off: the first one counts.
    assert_eq!(at(100), SignalReply::Exit(130));
    assert_eq!(at(101), SignalReply::Exit(130));
    assert_eq!(manager.run().exit_code(), 0);
}

#[test]
fn dropping_a_running_manager_stops_it() {
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("a", &journal)).unwrap();
    manager.start().unwrap();
    drop(manager);
    assert_eq!(journal.lines(), ["start a", "stop a"]);
}

#[test]
fn no_lock_is_held_while_a_hook_runs() {
    let mut manager = manager();
    let handle = manager.handle();
    let asked = Arc::new(AtomicBool::new(false));
    let (inside, seen) = (handle.clone(), asked.clone());
    let start = move |_: &StartContext| {
        assert_eq!(state(&inside, "a"), ServiceState::Starting);
        seen.store(true, Ordering::SeqCst);
        Ok(())
    };
    let stop = move |_| {
        assert_eq!(state(&handle, "a"), ServiceState::Stopping);
        assert!(handle.wait_until(SHORT, |status| status.ended).is_none());
        Ok(())
    };
    manager.register(Closures("a", start, stop)).unwrap();
    manager.start().unwrap();
    assert!(manager.stop("asked").is_clean());
    assert!(asked.load(Ordering::SeqCst));
}
