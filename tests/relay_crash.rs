//! Relays in processes of their own, ended by real signals. The child is this very test program, started again.

#[path = "crash/child.rs"]
mod child;
#[path = "crash/doctored.rs"]
mod doctored;
#[path = "crash/doctored_jobs.rs"]
mod doctored_jobs;
#[path = "crash/job_judge.rs"]
mod job_judge;
#[path = "crash/jobs.rs"]
mod jobs;
#[path = "crash/judge.rs"]
mod judge;
#[path = "crash/record.rs"]
mod record;
#[path = "crash/site.rs"]
mod site;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

use child::{HANDLERS, LONG, Process};
use record::{Point, Record};
use rustix::process::{Pid, Signal, kill_process};
use site::wait_until;
use vayu_articles::article::{self, ArticleRepository, NewArticle};
use vayu_articles::outbox;
use vayu_articles::queue::SqliteWriter;
use vayu_articles::service::{ArticleService, WriteContext};
use vayu_articles::storage::{Database, Options};

/// Not a test of its own: what a killed process does.
#[test]
fn child_lives_until_it_is_killed() {
    if std::env::var(child::FOLDER).is_ok() {
        child::live();
    }
}

struct Stage {
    folder: tempfile::TempDir,
    killed_ns: HashMap<u32, u64>,
}

impl Stage {
    /// A database with so many articles, which nobody has delivered yet.
    fn with_articles(count: usize) -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap(), killed_ns: HashMap::new() };
        stage.write(|service| {
            for number in 0..count {
                let article = service.create(NewArticle::new(format!("Post {number}"), "x"), &WriteContext::default());
                let slug = article.unwrap().slug;
                let patch = article::ArticlePatch::default().content("y");
                service.update(&slug, patch, article::Expected::any(), &WriteContext::default()).unwrap();
            }
        });
        stage
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, f: impl FnOnce(&ArticleService)) {
        let components = [outbox::COMPONENT, article::COMPONENT];
        let database = Database::open(self.path().join("site.db"), &components, Options::default()).unwrap();
        let writer = std::sync::Arc::new(SqliteWriter::new(&database));
        f(&ArticleService::new(writer, ArticleRepository::new(database.clone())));
        database.close(Instant::now() + LONG).unwrap();
    }

    fn start(&self) -> Process {
        self.start_on(&self.path().join("site.db"), 0)
    }

    fn start_on(&self, database: &Path, writers: usize) -> Process {
        let process = Process::start(
            &["child_lives_until_it_is_killed", "--exact", "--nocapture"],
            &[
                (child::FOLDER, self.path().to_str().unwrap()),
                (child::DATABASE, database.to_str().unwrap()),
                (child::WRITERS, &writers.to_string()),
            ],
        );
        assert!(process.wait_for("ready", LONG));
        process
    }

    fn kill(&mut self, mut process: Process) {
        let at = process.kill();
        self.killed_ns.insert(process.id(), at);
    }

    fn owner(&self, handler: &str) -> Option<String> {
        site::owners(self.path()).remove(handler)
    }

    fn wait_owned(&self) {
        wait_until("every lane has a living owner", || {
            let owners = site::owners(self.path());
            let alive = |owner: &String| site::is_alive(self.path(), owner);
            HANDLERS.iter().all(|handler| owners.get(*handler).is_some_and(alive))
        });
    }

    fn records(&self, handler: &str) -> Vec<Record> {
        site::runs(self.path(), handler)
    }

    fn wait_drained(&self) {
        wait_until("everything is delivered", || site::is_drained(self.path()));
    }

    /// Everything delivered, in order, one at a time, nothing lost; and every job done with.
    fn assert_clean(&self) -> judge::Counts {
        let evidence = site::evidence(self.path(), &self.killed_ns);
        let counts = judge::judge(&evidence);
        assert!(counts.is_clean(), "{counts:?}, the oldest after {} ns", judge::oldest_repeat_ns(&evidence));
        let jobs = job_judge::judge(&jobs::evidence(self.path()));
        assert!(jobs.is_clean(), "{jobs:?}");
        counts
    }
}

fn signal(process: &Process, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap(), signal).unwrap();
}

fn stop(mut process: Process) {
    process.order("stop");
    assert!(process.wait_for("stopped", LONG));
    assert!(process.wait().success());
}

#[test]
fn case_c40_a_kill_inside_a_handler_loses_nothing_and_keeps_the_order() {
    let mut stage = Stage::with_articles(50);
    for round in 0..20 {
        let mut process = stage.start();
        // Before the effect, and after it but before the relay has heard of it.
        let point = if round % 2 == 0 { "start" } else { "end" };
        process.order(&format!("arm {} {point} {}", HANDLERS[round % 3], 4 + round % 3));
        stage.write(|service| {
            (0..10).for_each(|number| {
                let title = format!("Round {round} {number}");
                service.create(NewArticle::new(title, "x"), &WriteContext::default()).unwrap();
            });
        });
        assert!(process.wait_for("inside", LONG));
        stage.kill(process);
    }
    let last = stage.start();
    stage.wait_drained();
    stop(last);
    assert!(site::owners(stage.path()).is_empty());
    let counts = stage.assert_clean();
    assert!(counts.repeated >= 10, "those killed after their effect come again: {counts:?}");
}

#[test]
fn case_c40_with_two_processes_the_standby_takes_over_at_once_and_no_runs_overlap() {
    let mut stage = Stage::with_articles(30);
    let mut owner = stage.start();
    stage.wait_owned();
    for round in 0..5 {
        let standby = stage.start();
        let before = stage.owner("one");
        owner.order(&format!("arm two {} 3", if round % 2 == 0 { "start" } else { "end" }));
        stage.write(|service| {
            (0..20).for_each(|number| {
                let title = format!("Round {round} {number}");
                service.create(NewArticle::new(title, "x"), &WriteContext::default()).unwrap();
            });
        });
        assert!(owner.wait_for("inside", LONG));
        assert_eq!(stage.owner("one"), before, "a living owner keeps its lanes, however stuck one of them is");
        stage.kill(std::mem::replace(&mut owner, standby));
        stage.wait_owned();
        assert_ne!(stage.owner("one"), before);
    }
    stage.wait_drained();
    stop(owner);
    stage.assert_clean();
}

#[test]
fn g08_an_event_that_kills_its_process_ends_alone_as_a_crash_loop() {
    let stage = Stage::with_articles(20);
    stage.write(|service| {
        service.create(NewArticle::new(child::KILLER, "x"), &WriteContext::default()).unwrap();
        (0..20).for_each(|number| {
            service.create(NewArticle::new(format!("After {number}"), "x"), &WriteContext::default()).unwrap();
        });
    });
    let mut deaths = 0;
    let mut killed_ns = HashMap::new();
    let last = loop {
        let mut process = Process::start(
            &["child_lives_until_it_is_killed", "--exact", "--nocapture"],
            &[(child::FOLDER, stage.path().to_str().unwrap()), (child::WRITERS, "0")],
        );
        wait_until("it dies or is done", || process.has_died() || site::is_drained(stage.path()));
        if !process.has_died() {
            break process;
        }
        deaths += 1;
        assert!(deaths <= 8, "not given up");
        killed_ns.insert(process.id(), site::last_sign_of_life(stage.path(), process.id()));
    };
    stop(last);
    let killers = site::killers(stage.path());
    assert_eq!(site::crash_loops(stage.path()), killers, "the killer and nobody else");
    assert!(deaths >= 3, "{deaths}");
    let stage = Stage { killed_ns, ..stage };
    stage.assert_clean();
    let reason: BTreeSet<String> = {
        let connection = site::look(stage.path());
        let mut statement = connection.prepare("SELECT reason FROM deliveries WHERE state = 'dead_letter'").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert_eq!(reason, BTreeSet::from(["crash_loop".to_owned()]));
}

#[test]
fn g04_a_stopped_owner_is_never_robbed_and_goes_on_when_it_may() {
    let stage = Stage::with_articles(3);
    let owner = stage.start();
    stage.wait_owned();
    stage.wait_drained();
    let name = stage.owner("one").unwrap();
    let standby = stage.start();
    signal(&owner, Signal::STOP);
    stage.write(|service| {
        service.create(NewArticle::new("While stopped", "x"), &WriteContext::default()).unwrap();
    });
    // Longer than a missing file would take to count as death, and many polls of the standby.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(stage.owner("one").as_ref(), Some(&name), "robbed");
        std::thread::park_timeout(Duration::from_millis(100));
    }
    assert!(stage.records("one").iter().all(|record| record.process == owner.id()));
    signal(&owner, Signal::CONT);
    stage.wait_drained();
    assert!(stage.records("one").iter().all(|record| record.process == owner.id()));
    assert_eq!(stage.owner("one"), Some(name));
    stop(standby);
    stop(owner);
    assert_eq!(stage.assert_clean().repeated, 0);
}

#[test]
fn an_owner_whose_file_is_removed_puts_it_back_and_keeps_its_lanes() {
    let mut stage = Stage::with_articles(3);
    let owner = stage.start();
    stage.wait_owned();
    let name = stage.owner("one").unwrap();
    let standby = stage.start();
    let file = stage.path().canonicalize().unwrap().join(format!("site.db-owner-{name}.lock"));
    for _ in 0..3 {
        std::fs::remove_file(&file).unwrap();
        wait_until("the file is back", || file.exists());
        assert!(site::is_alive(stage.path(), &name));
    }
    assert_eq!(stage.owner("one"), Some(name.clone()));
    stage.kill(owner);
    stage.wait_owned();
    assert_ne!(stage.owner("one"), Some(name));
    wait_until("the dead owner's file is removed", || !file.exists());
    stage.wait_drained();
    stop(standby);
    stage.assert_clean();
}

#[test]
fn a_database_opened_through_a_link_has_the_same_owners() {
    let mut stage = Stage::with_articles(3);
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("another-name.db");
    std::os::unix::fs::symlink(stage.path().join("site.db"), &link).unwrap();
    let owner = stage.start();
    stage.wait_owned();
    let name = stage.owner("one");
    let through_link = stage.start_on(&link, 1);
    wait_until("the second has written", || !record::read(&child::book_of(stage.path(), "acks")).is_empty());
    let ends = |process: u32| {
        let records = HANDLERS.iter().flat_map(|handler| stage.records(handler));
        records.filter(|record| record.process == process && record.point == Point::End).count()
    };
    wait_until("the owner has delivered", || ends(owner.id()) > 10);
    assert_eq!((stage.owner("one"), ends(through_link.id())), (name.clone(), 0));
    let only_the_link = std::fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(only_the_link, 1, "nothing is written beside the link");
    stage.kill(owner);
    stage.wait_owned();
    assert_ne!(stage.owner("one"), name);
    stop(through_link);
    // What is scheduled may not have been due yet.
    let last = stage.start();
    wait_until("no job is due any more", || jobs::is_drained(stage.path()));
    stage.wait_drained();
    stop(last);
    stage.assert_clean();
}
