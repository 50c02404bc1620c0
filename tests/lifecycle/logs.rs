//! What the log says.

use log::Level;
use vayu_articles::lifecycle::Spawner;

use super::recorder::{logged, record};
use super::support::*;

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
