//! Who has a lane when something befalls its owner's process: stopped together with its machine, under a clock that is
//! stepped, without room on its disk, stuck beyond its stop, or known only from a backup. The processes are this very test
//! program, started again.
#![cfg(target_os = "linux")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, unbounded};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use vayu_articles::clock::{Clock, SystemClock};
use vayu_articles::outbox::{self, DispatchError, Event, LaneState, NewEvent, Relay, RelayOptions};
use vayu_articles::rusqlite::Connection;
use vayu_articles::storage::{Database, Options};

const FOLDER: &str = "VAYU_TAKEOVER_FOLDER";
/// Set in a child whose handler stops inside an event that says so.
const STICKS: &str = "VAYU_TAKEOVER_STICKS";
/// Only a hang reaches it.
const LONG: Duration = Duration::from_secs(60);
/// Longer than the two seconds after which a missing file counts as death.
const LONG_ENOUGH: Duration = Duration::from_millis(2_500);

/// Not a test of its own: what each process does.
#[test]
fn child_owns_a_lane_or_stands_by() {
    if let Ok(folder) = std::env::var(FOLDER) {
        live(Path::new(&folder));
    }
}

/// The wall clock and what a file adds to it, in hours.
#[derive(Debug)]
struct SteppedClock(PathBuf);

impl Clock for SteppedClock {
    fn now_ms(&self) -> i64 {
        let hours: i64 = std::fs::read_to_string(&self.0).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        SystemClock.now_ms() + hours * 3_600_000
    }
}

#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let open = self.open.lock().unwrap();
        drop(self.changed.wait_while(open, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

fn live(folder: &Path) {
    let mut options = Options::default();
    options.clock = Arc::new(SteppedClock(folder.join("clock")));
    let database = Database::open(folder.join("site.db"), &[outbox::COMPONENT], options).unwrap();
    let gate = Arc::new(Gate::default());
    let relay = start_relay(&database, folder, gate.clone());
    println!("\nready");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["insert", word] => {
                let event = NewEvent::new("t.v1", word).unwrap().key(*word);
                database.writer().transact(move |tx| outbox::insert(tx, &event)).unwrap();
                println!("\ninserted");
            }
            ["state"] => println!("\nstate {}", state_word(&relay.status()[0].state)),
            ["no-room"] => limit_files(Some(largest_file(folder))),
            ["room"] => limit_files(None),
            ["release"] => gate.open(),
            ["stop", millis] => {
                let stopped = relay.stop(Instant::now() + Duration::from_millis(millis.parse().unwrap()));
                println!("\n{}", if stopped.is_ok() { "stopped" } else { "left-behind" });
            }
            ["end"] => std::process::exit(0),
            other => panic!("unknown order {other:?}"),
        }
    }
    // The parent is gone.
    std::process::exit(3);
}

fn start_relay(database: &Database, folder: &Path, gate: Arc<Gate>) -> Relay {
    let book = OpenOptions::new().create(true).append(true).open(folder.join("runs")).unwrap();
    let (sticks, process) = (std::env::var(STICKS).is_ok(), std::process::id());
    let handler = move |event: &Event| {
        let word: String = event.json()?;
        let note = |point: &str| (&book).write_all(format!("{process} {word} {point}\n").as_bytes());
        note("start")?;
        if sticks && word == "stick" {
            gate.pass();
        }
        note("end")?;
        Ok::<_, DispatchError>(())
    };
    let mut options = RelayOptions::default();
    // Many looks in little time.
    options.poll = Duration::from_millis(20);
    Relay::builder(database).options(options).handler_fn("h", handler).start().unwrap()
}

fn state_word(state: &LaneState) -> &'static str {
    match state {
        LaneState::Running => "running",
        LaneState::Standby { .. } => "standby",
        LaneState::Waiting { .. } => "waiting",
        _ => "other",
    }
}

/// Files of this process may grow to so many bytes; `None` lifts the limit.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

fn largest_file(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap()
}

/// A child as its parent holds it; none outlives its parent.
struct Process {
    child: Child,
    orders: ChildStdin,
    says: Receiver<String>,
}

impl Process {
    fn start(folder: &Path, sticks: bool) -> Self {
        let mut command = Command::new("sh");
        // A file that may not grow is an error then, not a signal.
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(["child_owns_a_lane_or_stands_by", "--exact", "--nocapture"]).env(FOLDER, folder);
        if sticks {
            command.env(STICKS, "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (say, says) = unbounded();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| !line.is_empty()) {
                let _ = say.send(line);
            }
        });
        let process = Self { orders: child.stdin.take().unwrap(), child, says };
        process.hear("ready");
        process
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").unwrap();
    }

    fn hear(&self, words: &str) {
        let until = Instant::now() + LONG;
        while self.says.recv_deadline(until).unwrap_or_else(|error| panic!("{words}: {error}")) != words {}
    }

    fn wait_state(&mut self, state: &str) {
        let until = Instant::now() + LONG;
        loop {
            self.order("state");
            let said = loop {
                let line = self.says.recv_deadline(until).unwrap();
                if let Some(said) = line.strip_prefix("state ") {
                    break said.to_owned();
                }
            };
            if said == state {
                return;
            }
            assert!(Instant::now() < until, "never {state}, but {said}");
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.id()).unwrap()).unwrap(), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < until, "waited too long until {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The folder that the processes share.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn start(&self) -> Process {
        Process::start(self.path(), false)
    }

    /// An owner, and one that stands by.
    fn pair(&self, owner_sticks: bool) -> (Process, Process) {
        let mut owner = Process::start(self.path(), owner_sticks);
        owner.wait_state("running");
        let mut standby = self.start();
        standby.wait_state("standby");
        (owner, standby)
    }

    fn look<T: vayu_articles::rusqlite::types::FromSql>(&self, sql: &str) -> T {
        let connection = Connection::open(self.path().join("site.db")).unwrap();
        connection.busy_timeout(LONG).unwrap();
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn owner(&self) -> Option<String> {
        self.look("SELECT owner FROM lanes")
    }

    fn owner_file(&self, owner: &str) -> PathBuf {
        self.path().canonicalize().unwrap().join(format!("site.db-owner-{owner}.lock"))
    }

    fn step_clock(&self, hours: i64) {
        // At once, so that nobody reads half of it.
        std::fs::write(self.path().join("clock.new"), hours.to_string()).unwrap();
        std::fs::rename(self.path().join("clock.new"), self.path().join("clock")).unwrap();
    }

    /// Process, event and point of each run, in order.
    fn runs(&self) -> Vec<(u32, String, String)> {
        let text = std::fs::read_to_string(self.path().join("runs")).unwrap_or_default();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        text.lines().map(words).map(|w| (w[0].parse().unwrap(), w[1].clone(), w[2].clone())).collect()
    }

    fn ends(&self) -> Vec<(u32, String)> {
        self.runs().into_iter().filter(|run| run.2 == "end").map(|run| (run.0, run.1)).collect()
    }

    fn wait_end(&self, word: &str) -> u32 {
        let found = |stage: &Self| stage.ends().iter().rev().find(|run| run.1 == word).map(|run| run.0);
        wait_until("it is delivered", || found(self).is_some());
        found(self).unwrap()
    }

    fn wait_written(&self) {
        wait_until("the cursor is written", || {
            self.look::<i64>("SELECT max(id) - (SELECT cursor FROM lanes) FROM event_outbox") == 0
        });
    }

    /// For longer than a missing file takes to count as death, and through a hundred looks of the standby.
    fn assert_nobody_takes_it(&self, standby: &mut Process) {
        let (owner, runs) = (self.owner(), self.runs().len());
        assert!(owner.is_some());
        let until = Instant::now() + LONG_ENOUGH;
        while Instant::now() < until {
            assert_eq!(self.owner(), owner, "robbed");
            std::thread::park_timeout(Duration::from_millis(50));
        }
        standby.wait_state("standby");
        assert_eq!(self.runs().len(), runs, "somebody has run it");
    }
}

#[test]
fn a_machine_that_was_suspended_takes_nothing_from_an_owner_that_wakes_last() {
    let stage = Stage::new();
    let (mut owner, mut standby) = stage.pair(false);
    let name = stage.owner();
    owner.signal(Signal::STOP);
    standby.signal(Signal::STOP);
    stage.step_clock(9);
    standby.signal(Signal::CONT);
    standby.order("insert slept");
    standby.hear("inserted");
    stage.assert_nobody_takes_it(&mut standby);
    owner.signal(Signal::CONT);
    assert_eq!(stage.wait_end("slept"), owner.id());
    stage.wait_written();
    owner.wait_state("running");
    assert_eq!(stage.owner(), name);
}

#[test]
fn a_clock_that_is_stepped_either_way_moves_no_lane() {
    let stage = Stage::new();
    let (owner, mut standby) = stage.pair(false);
    let name = stage.owner();
    for (hours, word) in [(10, "ahead"), (-10, "back"), (24 * 365, "year"), (0, "right")] {
        stage.step_clock(hours);
        standby.order(&format!("insert {word}"));
        assert_eq!(stage.wait_end(word), owner.id());
        stage.wait_written();
        assert_eq!(stage.owner(), name, "{hours} hours");
    }
    stage.step_clock(-10);
    stage.assert_nobody_takes_it(&mut standby);
    assert_eq!(stage.ends().len(), 4, "each once: {:?}", stage.runs());
}

#[test]
fn an_owner_whose_lock_file_is_replaced_by_a_copy_is_not_robbed_and_puts_its_own_back() {
    let stage = Stage::new();
    let (mut owner, mut standby) = stage.pair(true);
    let name = stage.owner();
    let file = stage.owner_file(name.as_deref().unwrap());
    // It is busy, so that all it can do for its file is done beside the call.
    standby.order("insert stick");
    wait_until("it runs", || stage.runs().len() == 1);
    for _ in 0..2 {
        // As `cp` and `mv` do it, a restore, or a program that keeps folders alike: the lock is on the file that is gone.
        std::fs::copy(&file, file.with_extension("copy")).unwrap();
        std::fs::rename(file.with_extension("copy"), &file).unwrap();
        stage.assert_nobody_takes_it(&mut standby);
        let locked = || File::open(&file).is_ok_and(|file| file.try_lock_shared().is_err());
        wait_until("the owner's own file is back", locked);
    }
    owner.order("release");
    assert_eq!(stage.wait_end("stick"), owner.id());
    stage.wait_written();
    assert_eq!(stage.owner(), name);
}

#[test]
fn an_owner_whose_disk_is_full_keeps_its_lane_and_writes_what_it_knows_once_there_is_room() {
    let stage = Stage::new();
    let (mut owner, mut standby) = stage.pair(true);
    let name = stage.owner();
    standby.order("insert stick");
    wait_until("it runs", || stage.runs().len() == 1);
    // Its files may not grow any more; the other process is not bound by that, and its write makes the log longer.
    owner.order("no-room");
    owner.wait_state("running");
    standby.order("insert later");
    standby.hear("inserted");
    standby.hear("inserted");
    owner.order("release");
    owner.wait_state("waiting");
    stage.assert_nobody_takes_it(&mut standby);
    owner.order("room");
    stage.wait_written();
    owner.wait_state("running");
    assert_eq!(stage.owner(), name);
    // A flush that failed at its COMMIT may have been written: the owner loads the lane anew and may repeat what it ran.
    let ends = stage.ends();
    assert!(ends.iter().all(|run| run.0 == owner.id()), "{ends:?}");
    assert_eq!((&*ends[0].1, &*ends[1].1), ("stick", "later"));
}

#[test]
fn a_handler_stuck_past_the_stop_keeps_its_lane_until_its_process_ends() {
    let stage = Stage::new();
    let (mut owner, mut standby) = stage.pair(true);
    let name = stage.owner();
    owner.order("insert stick");
    wait_until("it runs", || stage.runs().len() == 1);
    owner.order("stop 100");
    owner.hear("left-behind");
    standby.order("insert behind");
    standby.hear("inserted");
    stage.assert_nobody_takes_it(&mut standby);
    assert_eq!(stage.owner(), name);
    owner.order("end");
    assert!(owner.child.wait().unwrap().success());
    assert_eq!(stage.wait_end("stick"), standby.id());
    assert_eq!(stage.wait_end("behind"), standby.id());
    stage.wait_written();
    assert_ne!(stage.owner(), name);
    wait_until("the dead owner's file is removed", || !stage.owner_file(name.as_deref().unwrap()).exists());
}

#[test]
fn a_handler_that_returns_after_the_stop_frees_its_lane_while_its_process_lives_on() {
    let stage = Stage::new();
    let (mut owner, standby) = stage.pair(true);
    owner.order("insert stick");
    wait_until("it runs", || stage.runs().len() == 1);
    owner.order("stop 100");
    owner.hear("left-behind");
    owner.order("release");
    owner.order("insert next");
    assert_eq!(stage.wait_end("next"), standby.id());
    stage.wait_written();
    assert_eq!(stage.ends(), [(owner.id(), "stick".to_owned()), (standby.id(), "next".to_owned())], "nothing twice");
    assert_eq!(owner.child.try_wait().unwrap(), None, "it lives");
}

#[test]
fn a_restored_backup_is_taken_from_the_owner_of_its_former_life_and_stepped_through_singly() {
    for file_is_left in [true, false] {
        let stage = Stage::new();
        let mut owner = Process::start(stage.path(), true);
        owner.order("insert done");
        stage.wait_end("done");
        stage.wait_written();
        owner.order("insert stick");
        wait_until("it runs", || stage.runs().len() == 3);
        let name = stage.owner().unwrap();
        let backup = stage.path().join("backup.db");
        let live = Connection::open(stage.path().join("site.db")).unwrap();
        live.execute("VACUUM INTO ?1", [backup.to_str().unwrap()]).unwrap();
        drop(live);
        // Elsewhere, while the owner lives: another path has other owners.
        let elsewhere = Stage::new();
        std::fs::copy(&backup, elsewhere.path().join("site.db")).unwrap();
        assert_eq!(elsewhere.owner().as_deref(), Some(&*name));
        let other = elsewhere.start();
        assert_eq!(elsewhere.wait_end("stick"), other.id());
        assert_eq!(stage.owner().as_deref(), Some(&*name), "the first one's lane is not touched");
        // And in its old place, after a death.
        owner.kill();
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(stage.path().join(format!("site.db{suffix}")));
        }
        std::fs::rename(&backup, stage.path().join("site.db")).unwrap();
        if !file_is_left {
            std::fs::remove_file(stage.owner_file(&name)).unwrap();
        }
        let restored = Process::start(stage.path(), true);
        wait_until("it runs again", || stage.runs().iter().any(|run| run.0 == restored.id()));
        let named = "SELECT running_id = (SELECT max(id) FROM event_outbox) AND single_step_to IS NOT NULL FROM lanes";
        assert!(stage.look::<bool>(named), "named while it runs, as after any death");
        assert_ne!(stage.owner().as_deref(), Some(&*name));
        assert_eq!(stage.runs().last().unwrap().1, "stick", "what the backup knows as done does not come again");
        assert!(!stage.owner_file(&name).exists());
    }
}

#[test]
fn files_of_the_dead_are_removed_at_a_start_and_that_of_a_living_owner_stays() {
    let stage = Stage::new();
    let owner = stage.start();
    wait_until("it owns the lane", || {
        File::open(stage.path().join("site.db")).is_ok() && stage.look::<i64>("SELECT count(owner) FROM lanes") == 1
    });
    // A relay that stood by, and one with nothing to do, both killed.
    let dead: Vec<PathBuf> = (0..2)
        .map(|_| {
            let mut standby = stage.start();
            standby.wait_state("standby");
            let files = owner_files(stage.path());
            standby.kill();
            let of_owner = stage.owner_file(&stage.owner().unwrap());
            files.into_iter().find(|file| *file != of_owner).unwrap()
        })
        .collect();
    let last = stage.start();
    wait_until("they are gone", || dead.iter().all(|file| !file.exists()));
    assert_eq!(owner_files(stage.path()).len(), 2, "those of the living");
    drop((owner, last));
}

fn owner_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.canonicalize().unwrap()).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().contains("-owner-"))
        .collect()
}
