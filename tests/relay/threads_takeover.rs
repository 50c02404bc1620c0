//! A process with a lane of several threads is killed while all of them are inside a call; the next one takes over. The
//! child is this very test program, started again.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{self, DispatchError, Event, ExceptionState, Handler, LaneState, NewEvent, Relay};
use vayu_articles::storage::{Database, Options};

use crate::crowd::*;
use crate::harness::*;

const FOLDER: &str = "VAYU_TEST_THREADS_FOLDER";
/// Calls of these events never end: before their effect, or after it.
const STUCK: &str = "VAYU_TEST_THREADS_STUCK";
const STUCK_AFTER: &str = "VAYU_TEST_THREADS_STUCK_AFTER";
const KILLER: &str = "{\"kills\":true}";

/// Writes a line when a call begins and one when it ends, each in one append.
struct Writing {
    book: Mutex<File>,
    stuck: HashSet<i64>,
    stuck_after: HashSet<i64>,
}

impl Writing {
    fn note(&self, what: &str, id: i64) {
        self.book.lock().unwrap().write_all(format!("{what} {id}\n").as_bytes()).unwrap();
    }

    fn stay(&self, id: i64) -> ! {
        self.note("inside", id);
        loop {
            std::thread::park();
        }
    }
}

impl Handler for Writing {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.note("begin", event.id);
        if event.payload == KILLER {
            std::process::abort();
        }
        if self.stuck.contains(&event.id) {
            self.stay(event.id);
        }
        self.note("end", event.id);
        if self.stuck_after.contains(&event.id) {
            self.stay(event.id);
        }
        Ok(())
    }

    fn concurrency(&self) -> usize {
        THREADS
    }
}

fn ids_of(variable: &str) -> HashSet<i64> {
    let list = std::env::var(variable).unwrap_or_default();
    list.split(',').filter_map(|id| id.parse().ok()).collect()
}

/// Not a test of its own: what a killed process does.
#[test]
fn child_of_several_threads_lives_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let mut options = Options::default();
    options.clock = Arc::new(ManualClock::new(START_MS));
    let database = Database::open(folder.join("site.db"), &[outbox::COMPONENT], options).unwrap();
    let book = OpenOptions::new().create(true).append(true).open(folder.join("book")).unwrap();
    let handler = Writing { book: Mutex::new(book), stuck: ids_of(STUCK), stuck_after: ids_of(STUCK_AFTER) };
    let _relay = Relay::builder(&database).handler("h", handler).start().unwrap();
    // Until it is killed, or the parent is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn start_child(folder: &Path, stuck: &[i64], stuck_after: &[i64]) -> Child {
    let list = |ids: &[i64]| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    Command::new(std::env::current_exe().unwrap())
        .args(["threads_takeover::child_of_several_threads_lives_until_it_is_killed", "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .env(STUCK, list(stuck))
        .env(STUCK_AFTER, list(stuck_after))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ids of the lines that say so, in order.
fn noted(folder: &Path, what: &str) -> Vec<i64> {
    let book = std::fs::read_to_string(folder.join("book")).unwrap_or_default();
    let id = |line: &str| line.strip_prefix(what)?.trim().parse().ok();
    book.lines().filter_map(id).collect()
}

#[test]
fn g04_a_kill_amid_the_calls_of_several_threads_loses_nothing_and_keeps_the_order() {
    let keys = keys_of_each_thread();
    for after in [false, true] {
        let site = Site::new();
        let folder = site.folder.path().to_owned();
        let in_turns: Vec<&str> = (0..10).flat_map(|_| keys.iter().map(String::as_str)).collect();
        let ids = site.insert_all(&in_turns);
        // Of each key another event, so that the threads have run ahead of each other.
        let inside: Vec<i64> = (0..THREADS).map(|key| ids[(1 + 2 * key) * THREADS + key]).collect();
        let (stuck, stuck_after) = if after { (&[][..], &inside[..]) } else { (&inside[..], &[][..]) };
        let mut child = start_child(&folder, stuck, stuck_after);
        let crowd = Crowd::new();
        wait_until("all threads are inside", || noted(&folder, "inside").len() == THREADS);
        let standby = start(&site, &crowd);
        wait_until("this one stands by", || matches!(standby.status()[0].state, LaneState::Standby { .. }));
        assert!(crowd.done().is_empty(), "the other one lives");
        child.kill().unwrap();
        child.wait().unwrap();
        let of_child = noted(&folder, "end");
        wait_until("this one takes over", || {
            standby.notify();
            standby.status()[0].state == LaneState::Running
        });
        drain(&standby);
        wait_until("the single steps are over", || {
            standby.notify();
            site.count("SELECT count(*) FROM lanes WHERE single_step_to IS NULL AND running_id IS NULL") == 1
        });
        // First completions, in both processes.
        let done = crowd.done();
        crowd.state().done = [of_child.clone(), done.clone()].concat();
        crowd.judge(&site);
        assert!(inside.iter().all(|id| done.contains(id)), "what was inside runs again");
        assert_eq!(first_of_each(done.clone()), done, "nothing twice in one life");
        assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "a death whose cause nobody knows blames nobody");
        // And it is as many threads as before.
        let last = ids.last().copied().unwrap();
        (1..=THREADS as i64).for_each(|more| crowd.shut(last + more));
        let more = site.insert_all(&keys.iter().map(String::as_str).collect::<Vec<_>>());
        standby.notify();
        crowd.wait_inside(&more);
        more.iter().for_each(|id| crowd.open(*id));
        drain(&standby);
        stop(&standby);
    }
}

#[test]
fn g08_an_event_that_kills_a_process_of_several_threads_ends_alone_as_a_crash_loop() {
    let keys = keys_of_each_thread();
    let site = Site::new();
    let folder = site.folder.path().to_owned();
    let in_turns: Vec<&str> = (0..5).flat_map(|_| keys.iter().map(String::as_str)).collect();
    let mut ids = site.insert_all(&in_turns);
    let killer = site.insert_event(NewEvent::from_json("test.happened.v1", KILLER).key(&keys[0]));
    ids.extend(site.insert_all(&in_turns));
    let mut deaths = 0;
    let mut last = loop {
        let mut child = start_child(&folder, &[], &[]);
        wait_until("it has died or all is delivered", || {
            let drained = "SELECT cursor >= (SELECT max(id) FROM event_outbox) FROM lanes";
            child.try_wait().unwrap().is_some() || (deaths >= 3 && site.count(drained) == 1)
        });
        if child.try_wait().unwrap().is_none() {
            break child;
        }
        deaths += 1;
        assert!(deaths <= 6, "not given up");
    };
    wait_until("the others of its key are delivered", || {
        let ended: HashSet<i64> = noted(&folder, "end").into_iter().collect();
        ids.iter().all(|id| ended.contains(id))
    });
    last.kill().unwrap();
    last.wait().unwrap();
    let dead = site.in_state(ExceptionState::DeadLetter);
    assert_eq!(dead.iter().map(|row| row.outbox_id).collect::<Vec<_>>(), [killer], "the killer and nobody else");
    assert_eq!(dead[0].reason.as_deref(), Some("crash_loop"));
    let crowd = Crowd::new();
    crowd.state().done = noted(&folder, "end");
    crowd.judge(&site);
}
