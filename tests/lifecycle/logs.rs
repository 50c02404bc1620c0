//! What the log says.

use std::sync::{Mutex, Once};

use log::{Level, LevelFilter, Log, Metadata, Record};
use vayu_articles::lifecycle::Spawner;

use super::support::*;

static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &Record<'_>) {
        LINES.lock().unwrap().push((record.level(), record.args().to_string()));
    }
    fn flush(&self) {}
}

/// The lines logged so far that hold `what`; other tests log too.
fn logged(what: &str) -> Vec<(Level, String)> {
    LINES.lock().unwrap().iter().filter(|(_, line)| line.contains(what)).cloned().collect()
}

fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Recorder).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
}

#[test]
fn every_transition_and_the_cause_are_logged() {
    record();
    let journal = Journal::default();
    let mut manager = manager();
    manager.register(Scripted::new("logged-a", &journal)).unwrap();
    manager.register(Scripted::new("logged-b", &journal).stop_by(Act::Err)).unwrap();
    manager.start().unwrap();
    manager.stop("the log test");
    let lines = logged("service=logged-");
    let phases: Vec<_> = lines.iter().map(|(_, line)| line.split(" ms=").next().unwrap()).collect();
    assert_eq!(
        phases,
        [
            "service=logged-a phase=starting",
            "service=logged-a phase=running",
            "service=logged-b phase=starting",
            "service=logged-b phase=running",
            "service=logged-b phase=stopping",
            "service=logged-b phase=failed",
            "service=logged-a phase=stopping",
            "service=logged-a phase=stopped",
        ]
    );
    assert!(lines.iter().all(|(_, line)| line.contains(" ms=")));
    assert_eq!(lines[5].0, Level::Error);
    assert!(lines[5].1.ends_with("reason=\"logged-b cannot stop\""));
    assert_eq!(logged("phase=shutdown cause=\"the log test\"").len(), 1);
}

#[test]
fn a_panic_in_a_component_used_alone_is_logged_as_an_error() {
    record();
    let thread = Spawner::standalone("lone").spawn("lone-worker", || panic!("on purpose")).unwrap();
    assert!(thread.join().is_err());
    let expected = (Level::Error, "service=lone thread=lone-worker panic=\"on purpose\"".to_owned());
    assert_eq!(logged("service=lone "), [expected]);
}
