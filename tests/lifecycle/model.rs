//! Random scripts against a model, and many threads at once.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use vayu_articles::lifecycle::{ServiceOptions, StartContext};

use super::support::*;

/// Hammers one manager from many threads: it is started once, every stop gets the same answer, every hook is called at
/// most once and a stop only after a start.
fn hammer(round: u64) {
    let (starts, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut manager = manager();
    for name in ["hm-a", "hm-b", "hm-c"] {
        let (started, stopped, end) = (starts.clone(), stops.clone(), Gate::default());
        let door = end.clone();
        let start = move |ctx: &StartContext| {
            started.fetch_add(1, Ordering::SeqCst);
            let door = door.clone();
            ctx.spawner().spawn(&format!("hm-{round}"), move || door.pass())?;
            Ok(())
        };
        let stop = move |_| {
            stopped.fetch_add(1, Ordering::SeqCst);
            end.open();
            Ok(())
        };
        manager.register(Closures(name, start, stop)).unwrap();
    }
    let (mut outcomes, go) = (HashSet::new(), Gate::default());
    std::thread::scope(|scope| {
        let (manager, go) = (&manager, &go);
        let mut stoppers = Vec::new();
        for who in 0..4u64 {
            stoppers.push(scope.spawn(move || {
                go.pass();
                if (round + who).is_multiple_of(3) {
                    let _ = manager.start();
                }
                if round.is_multiple_of(2) {
                    manager.handle().request_stop(format!("asked by {who}"));
                }
                let _ = manager.handle().status();
                manager.stop(format!("stopped by {who}"))
            }));
        }
        go.open();
        for stopper in stoppers {
            let outcome = stopper.join().unwrap();
            assert_eq!(outcome.exit_code(), 0, "{outcome}");
            outcomes.insert(outcome.to_string());
        }
    });
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    assert_eq!(starts.load(Ordering::SeqCst), stops.load(Ordering::SeqCst));
}

#[test]
fn start_and_stop_stand_hammering_and_leak_no_thread() {
    for round in 0..60 {
        hammer(round);
    }
    #[cfg(target_os = "linux")]
    for prefix in ["hm-", "start:hm-", "stop:hm-"] {
        assert_threads_gone(prefix);
    }
}

fn script() -> impl Strategy<Value = (Act, Act)> {
    let start = prop_oneof![6 => Just(Act::Ok), 1 => Just(Act::Err), 1 => Just(Act::Panic), 1 => Just(Act::Late),
                            1 => Just(Act::Never)];
    let stop = prop_oneof![5 => Just(Act::Ok), 1 => Just(Act::Err), 1 => Just(Act::Panic), 1 => Just(Act::Never)];
    // A late start needs ample time to be stopped in, a stop that never returns little: not both in one service.
    (start, stop).prop_filter("contradictory limits", |pair| *pair != (Act::Late, Act::Never))
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What must come of these scripts: the journal, who is left behind, the first failure.
fn model(scripts: &[(Act, Act)]) -> (Vec<String>, Vec<&'static str>, Option<&'static str>) {
    let (mut lines, mut started, mut left, mut failure) = (Vec::new(), Vec::new(), Vec::new(), None);
    for (index, (start, _)) in scripts.iter().enumerate() {
        lines.push(format!("start {}", NAMES[index]));
        if matches!(start, Act::Ok | Act::Late) {
            started.push(index);
        }
        if *start == Act::Never {
            left.push(NAMES[index]);
        }
        if *start != Act::Ok {
            failure = Some(NAMES[index]);
            break;
        }
    }
    for index in started.into_iter().rev() {
        let stop = scripts[index].1;
        lines.push(format!("stop {}", NAMES[index]));
        if stop != Act::Ok {
            failure.get_or_insert(NAMES[index]);
        }
        if stop == Act::Never {
            left.push(NAMES[index]);
        }
    }
    left.sort_unstable();
    (lines, left, failure)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_mix_of_hooks_ends_as_the_model_says(scripts in prop::collection::vec(script(), 0..=NAMES.len())) {
        let journal = Journal::default();
        let mut manager = manager();
        let mut gates = Vec::new();
        for (index, (start, stop)) in scripts.iter().enumerate() {
            let service = Scripted::new(NAMES[index], &journal).start_by(*start).stop_by(*stop);
            gates.push(service.gate.clone());
            let slow_start = matches!(start, Act::Late | Act::Never);
            let slow_stop = *stop == Act::Never || *start == Act::Never;
            let options = ServiceOptions {
                start_timeout: slow_start.then_some(SHORT),
                stop_timeout: slow_stop.then_some(SHORT),
                ..ServiceOptions::default()
            };
            manager.register_with(service, options).unwrap();
        }
        let started = manager.start();
        let outcome = manager.stop("the model is done");
        let (lines, left, failure) = model(&scripts);
        prop_assert_eq!(journal.lines(), lines);
        prop_assert_eq!(&outcome.left_behind, &left);
        prop_assert_eq!(outcome.failure.as_ref().map(|f| f.service.as_str()), failure);
        prop_assert_eq!(outcome.exit_code(), u8::from(failure.is_some()));
        prop_assert_eq!(started.is_ok(), scripts.iter().all(|(start, _)| *start == Act::Ok));
        gates.iter().for_each(Gate::open);
        for (index, (start, _)) in scripts.iter().enumerate() {
            if *start == Act::Never && left.contains(&NAMES[index]) {
                journal.await_line(&format!("stop {}", NAMES[index]));
            }
        }
    }
}
