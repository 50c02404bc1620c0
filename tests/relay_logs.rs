//! What somebody reads in the log at night: which event was given up and why, and since when a handler is down.

mod recorder;
mod waiting;

use std::sync::Arc;
use std::time::Instant;

use log::Level;
use recorder::{logged, record};
use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{self, DispatchError, Event, NewEvent, Relay};
use vayu_articles::storage::{Database, Options};
use waiting::{LONG, wait_until};

struct Site {
    database: Database,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        record();
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_767_225_600_000));
        let mut options = Options::default();
        options.clock = clock.clone();
        let database = Database::open(folder.path().join("a.db"), &[outbox::COMPONENT], options).unwrap();
        Self { database, clock, _folder: folder }
    }

    fn insert(&self, count: usize) -> Vec<i64> {
        let event = |n| NewEvent::new("t", &"a secret").unwrap().key(format!("key {n}"));
        let events: Vec<NewEvent> = (0..count).map(event).collect();
        self.database
            .writer()
            .transact(move |tx| events.iter().map(|event| outbox::insert(tx, event)).collect::<Result<Vec<_>, _>>())
            .unwrap()
    }

    fn start(&self, name: &str, act: impl Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static) -> Relay {
        Relay::builder(&self.database).handler_fn(name, act).start().unwrap()
    }
}

fn drain(relay: &Relay) {
    assert!(relay.wait_drained(Instant::now() + LONG), "{:?}", relay.status());
}

#[test]
fn a_dead_letter_is_one_error_line_that_names_the_event_and_the_reason_but_no_payload() {
    let site = Site::new();
    let id = site.insert(1)[0];
    let relay = site.start("lone", |_| Err(DispatchError::poison("no such\nrecipient")));
    drain(&relay);
    relay.stop(Instant::now() + LONG).unwrap();
    let lines: Vec<_> = logged("handler=lone ").into_iter().filter(|(level, _)| *level == Level::Error).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let begins = format!("lane handler=lone event=dead_letter id={id} event_id=\"");
    let ends = "\" key=\"key 0\" what=poison failed_calls=1 reason=\"no such\\nrecipient\"";
    assert!(lines[0].1.starts_with(&begins) && lines[0].1.ends_with(ends), "{lines:?}");
    assert!(logged("secret").is_empty());
    let pid = format!(" pid={} handlers=lone", std::process::id());
    assert_eq!(logged(&pid).len(), 1, "who runs the lane is said at the start");
}

#[test]
fn a_storm_of_dead_letters_and_retries_is_a_few_lines_and_a_count() {
    let site = Site::new();
    site.insert(200);
    let poison = |event: &Event| match event.id % 2 {
        0 => Err(DispatchError::poison("no")),
        _ => Err(DispatchError::retry("not yet")),
    };
    let relay = site.start("storm", poison);
    drain(&relay);
    relay.stop(Instant::now() + LONG).unwrap();
    let named = |what: &str, level| logged(what).iter().filter(|(found, _)| *found == level).count();
    // A window of ten seconds may end in between on a slow machine.
    let (dead, retries) =
        (named("handler=storm event=dead_letter", Level::Error), named("handler=storm event=retry", Level::Info));
    assert!((10..100).contains(&dead) && (10..100).contains(&retries), "{dead} {retries}");
    let rest = |what: &str| -> usize {
        let counted = |(_, line): &(Level, String)| -> usize {
            line.split(what).nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
        };
        logged(what).iter().filter(|(_, line)| line.contains("handler=storm ")).map(counted).sum()
    };
    assert_eq!((dead + rest(" given_up_besides="), retries + rest(" retries_besides=")), (100, 100));
}

#[test]
fn a_pause_and_its_end_are_warnings_with_reason_and_durations_and_no_epoch_times() {
    let site = Site::new();
    site.insert(1);
    let down = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_down = down.clone();
    let relay = site.start("cdn", move |_| match is_down.load(std::sync::atomic::Ordering::SeqCst) {
        true => Err(DispatchError::unavailable("connection refused")),
        false => Ok(()),
    });
    wait_until("the pause is logged", || !logged("handler=cdn state=paused").is_empty());
    down.store(false, std::sync::atomic::Ordering::SeqCst);
    site.clock.advance(7_000);
    relay.notify();
    drain(&relay);
    relay.stop(Instant::now() + LONG).unwrap();
    let paused = &logged("handler=cdn state=paused")[0];
    assert_eq!(paused.0, Level::Warn);
    assert!(paused.1.starts_with("lane handler=cdn state=paused until=2026-01-01T00:00:0"), "{}", paused.1);
    assert!(paused.1.contains(" reason=\"connection refused\" seconds="), "{}", paused.1);
    let over = logged("handler=cdn state=running outage_seconds=7");
    assert_eq!((over.len(), over[0].0), (1, Level::Warn));
    let all = logged("handler=cdn");
    assert!(all.iter().all(|(_, line)| !line.contains("17672256") && !line.contains('{')), "{all:?}");
}

#[test]
fn a_lane_that_nobody_runs_is_named_when_a_relay_starts_without_its_handler() {
    let site = Site::new();
    let relay = site.start("forgotten", |_| Ok(()));
    drain(&relay);
    relay.stop(Instant::now() + LONG).unwrap();
    site.insert(3);
    let relay = site.start("other", |_| Ok(()));
    wait_until("it is named", || !logged("relay lane=\"forgotten\"").is_empty());
    relay.stop(Instant::now() + LONG).unwrap();
    let lines = logged("relay lane=\"forgotten\"");
    assert_eq!(lines.len(), 1);
    assert!(lines[0].0 == Level::Warn && lines[0].1.contains("events_kept=3"), "{lines:?}");
}
