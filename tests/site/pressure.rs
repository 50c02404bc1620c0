//! Writes that have to wait: what they are answered, and that an answer never hides a commit.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;
use vayu_articles::http::engine::EngineOptions;
use vayu_articles::lifecycle::Service;
use vayu_articles::rusqlite;
use vayu_articles::storage::Options;

use crate::harness::{Answer, LONG, TestSite};

/// Dropped, it lets the queue-writer go on.
type Release = Sender<()>;

fn site(handler_deadline: Duration) -> TestSite {
    let engine = EngineOptions { handler_deadline, handler_grace: LONG, ..EngineOptions::default() };
    TestSite::with(Options::default(), engine)
}

/// A task that stops the queue-writer until it is released; the receiver hears once it has begun.
fn hold<'scope>(scope: &'scope Scope<'scope, '_>, site: &TestSite) -> (Release, Receiver<()>) {
    let queue = site.database.writer().clone();
    let (begun, begins) = channel();
    let (release, released) = channel::<()>();
    scope.spawn(move || {
        queue
            .transact(move |_| {
                let _ = begun.send(());
                let _ = released.recv();
                Ok::<_, rusqlite::Error>(())
            })
            .unwrap();
    });
    (release, begins)
}

fn post<'scope>(scope: &'scope Scope<'scope, '_>, site: &'scope TestSite) -> ScopedJoinHandle<'scope, Answer> {
    scope.spawn(move || site.post(json!({"title": "Waiting", "content": "x"})))
}

fn wait_for(site: &TestSite, jobs: usize) {
    let until = Instant::now() + LONG;
    while site.database.writer().stats().waiting_jobs < jobs {
        assert!(Instant::now() < until, "{:?}", site.database.writer().stats());
        std::thread::yield_now();
    }
}

#[test]
fn a_write_that_was_not_taken_by_its_deadline_is_503_and_never_done() {
    let site = site(Duration::from_millis(300));
    std::thread::scope(|scope| {
        let (release, begins) = hold(scope, &site);
        begins.recv_timeout(LONG).unwrap();
        let answer = post(scope, &site).join().unwrap();
        assert_eq!(answer.problem().1, "deadline_exceeded");
        assert_eq!((answer.status, answer.header("retry-after").is_some()), (503, true));
        drop(release);
    });
    assert_eq!(site.post(json!({"title": "Later", "content": "x"})).status, 201, "the writer is free again");
    assert_eq!(site.get("/api/v1/articles/waiting").status, 404, "503 said that nothing was done");
    assert_eq!(site.events(), 1);
}

#[test]
fn a_write_that_was_taken_is_answered_with_what_became_of_it_however_late() {
    let site = site(Duration::from_millis(300));
    std::thread::scope(|scope| {
        let (first, begins) = hold(scope, &site);
        begins.recv_timeout(LONG).unwrap();
        let answer = post(scope, &site);
        wait_for(&site, 1);
        // It joins the group, and holds the commit up until the write's deadline is long past.
        let (second, begins) = hold(scope, &site);
        wait_for(&site, 2);
        let deadline = Instant::now() + Duration::from_millis(300);
        drop(first);
        begins.recv_timeout(LONG).unwrap();
        while Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert!(!answer.is_finished(), "no 503 may hide the commit that is to come");
        drop(second);
        let answer = answer.join().unwrap();
        assert_eq!(answer.status, 201, "{}", answer.body);
    });
    assert_eq!(site.get("/api/v1/articles/waiting").status, 200);
}

#[test]
fn beyond_its_capacity_the_queue_answers_429_and_says_when_to_come_back() {
    let mut storage = Options::default();
    storage.max_jobs = 1;
    let site = TestSite::with(storage, EngineOptions::default());
    std::thread::scope(|scope| {
        let (release, begins) = hold(scope, &site);
        begins.recv_timeout(LONG).unwrap();
        let waiting = post(scope, &site);
        wait_for(&site, 1);
        let refused = site.post(json!({"title": "Too many", "content": "x"}));
        assert_eq!(refused.problem().1, "saturated");
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
        assert_eq!(site.get("/api/v1/articles").status, 200, "reading goes on");
        drop(release);
        assert_eq!(waiting.join().unwrap().status, 201);
    });
    assert_eq!(site.events(), 1);
}

#[test]
fn while_the_writer_stops_writes_are_503_and_say_when_to_come_back() {
    let site = TestSite::new();
    site.post(json!({"title": "Before", "content": "x"}));
    site.relay.stop(Instant::now() + LONG).unwrap();
    site.database.writer_service().stop(Instant::now() + LONG).unwrap();
    let refused = site.post(json!({"title": "After", "content": "x"}));
    assert_eq!(refused.problem().1, "stopped");
    assert_eq!((refused.status, refused.header("retry-after").is_some()), (503, true));
    assert_eq!(site.get("/api/v1/articles/before").status, 200, "reading goes on");
}
