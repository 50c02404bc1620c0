//! The program as a server, started and ended the ways a machine does it.
#![cfg(all(feature = "server", feature = "cli"))]

mod serve_support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use serve_support::{LONG, Place, Server};
use vayu_articles::rusqlite::Connection;

/// How often each kind of end is tried; `ROUNDS` asks for more, as CI does.
fn rounds() -> u32 {
    std::env::var("ROUNDS").map_or(10, |rounds| rounds.parse().expect("ROUNDS is a number"))
}

/// Decides at which write each end comes. A failure names the seed, and `SEED` asks for it.
struct Chance {
    seed: u64,
    random: fastrand::Rng,
}

impl Chance {
    fn new() -> Self {
        let seed = std::env::var("SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
        Self { seed, random: fastrand::Rng::with_seed(seed) }
    }

    fn up_to(&mut self, most: usize) -> usize {
        self.random.usize(1..=most)
    }
}

impl Drop for Chance {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the ends came by SEED={}", self.seed);
        }
    }
}

/// Articles without an event, and events without an article, in a database without deletions.
fn one_sided(database: &Connection) -> (i64, i64) {
    let count = |sql: &str| database.query_row(sql, [], |row| row.get(0)).unwrap();
    (
        count("SELECT count(*) FROM articles WHERE id NOT IN (SELECT event_key FROM event_outbox)"),
        count("SELECT count(*) FROM event_outbox WHERE event_key NOT IN (SELECT id FROM articles)"),
    )
}

/// What clients were told.
#[derive(Default)]
struct Told {
    /// The ids of what was acknowledged.
    stored: Mutex<Vec<String>>,
    /// Writes that were turned away because too many waited.
    too_many: AtomicU64,
}

/// Clients write flat out; once they are `busy`, `end` is called, and they go on until the server is gone.
fn write_until_gone(place: &Place, server: &Server, busy: impl Fn(&Told) -> bool + Sync, end: impl FnOnce()) -> Told {
    const CLIENTS: usize = 8;
    let told = Told::default();
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (told, enough, busy) = (&told, &enough, &busy);
        let writers: Vec<_> = (0..CLIENTS)
            .map(|writer| {
                scope.spawn(move || {
                    for n in 0.. {
                        let article = json!({"title": format!("By {writer}, number {n}"), "content": "x"});
                        match place.try_post(server, &article) {
                            Some((201, article)) => {
                                told.stored.lock().unwrap().push(article["id"].as_str().unwrap().to_owned());
                            }
                            Some((429, _)) => drop(told.too_many.fetch_add(1, Ordering::SeqCst)),
                            // Refused while stopping, or cut: this client is told, and stops.
                            Some((503, _)) | None => return,
                            Some((status, body)) => panic!("{status}: {body}"),
                        }
                        enough.fetch_or(busy(told), Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let until = Instant::now() + LONG;
        while !enough.load(Ordering::SeqCst) {
            let in_time = Instant::now() < until && writers.iter().any(|writer| !writer.is_finished());
            if !in_time {
                server.signal("KILL");
                panic!("the clients are never busy; log:\n{}", server.log_text());
            }
            std::thread::yield_now();
        }
        end();
    });
    told
}

/// Most writes that are acknowledged before an end comes; how many it is differs from round to round.
const MOST_STORED: usize = 150;

fn are_stored(count: usize) -> impl Fn(&Told) -> bool + Sync {
    move |told| told.stored.lock().unwrap().len() >= count
}

fn check_acknowledged(place: &Place, acknowledged: &[String]) {
    let database = Connection::open(place.data().join("articles.db")).unwrap();
    let mut stored = database.prepare("SELECT 1 FROM articles WHERE id = ?1").unwrap();
    for id in acknowledged {
        assert!(stored.exists([id]).unwrap(), "{id} was acknowledged and is lost");
    }
    assert_eq!(one_sided(&database), (0, 0));
}

#[test]
fn case_c58_nothing_acknowledged_is_lost_by_an_orderly_stop() {
    let mut chance = Chance::new();
    for _ in 0..rounds() {
        let place = Place::new();
        let mut server = Server::start(&place, &[]);
        let busy = are_stored(chance.up_to(MOST_STORED));
        let told = write_until_gone(&place, &server, busy, || server.signal("TERM"));
        assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
        check_acknowledged(&place, &told.stored.into_inner().unwrap());
    }
}

#[test]
fn case_c58_nothing_acknowledged_is_lost_by_a_stop_with_a_full_queue() {
    let mut chance = Chance::new();
    for _ in 0..rounds() {
        let place = Place::new();
        let mut server = Server::start(&place, &["--write-queue", "1"]);
        let (refused, stored) = (chance.up_to(50) as u64, are_stored(chance.up_to(50)));
        let full = |told: &Told| told.too_many.load(Ordering::SeqCst) >= refused && stored(told);
        let told = write_until_gone(&place, &server, full, || server.signal("TERM"));
        assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
        check_acknowledged(&place, &told.stored.into_inner().unwrap());
    }
}

#[test]
fn case_c58_nothing_acknowledged_is_lost_by_kill_9() {
    let place = Place::new();
    let mut chance = Chance::new();
    let mut all = Vec::new();
    for _ in 0..rounds() {
        let mut server = Server::start(&place, &[]);
        let busy = are_stored(chance.up_to(MOST_STORED));
        let told = write_until_gone(&place, &server, busy, || server.signal("KILL"));
        all.extend(told.stored.into_inner().unwrap());
        server.wait();
    }
    // The next start needs no manual step, takes the lanes over and delivers what was left.
    let server = Server::start(&place, &[]);
    check_acknowledged(&place, &all);
    place.delivered(&server);
    place.stop(server);
}

#[test]
fn a_stop_logs_each_service_in_reverse_order_and_exits_with_0() {
    let place = Place::new();
    let mut server = Server::start(&place, &[]);
    server.signal("INT");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
    let log = server.log_text();
    let stopped: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("phase=stopped"))
        .filter_map(|line| line.split("service=").nth(1)?.split_whitespace().next())
        .collect();
    assert_eq!(stopped, ["http", "relay", "job-runner", "queue-writer", "storage"], "{log}");
}

#[test]
fn two_servers_on_one_folder_share_the_work_and_one_takes_over() {
    let place = Place::new();
    let mut first = Server::start(&place, &[]);
    let second = Server::start(&place, &[]);
    let ready = |server: &Server| -> Value { serde_json::from_str(&place.get(server, "/health/ready").1).unwrap() };
    let states = |server: &Server| -> Vec<String> {
        let lanes = ready(server)["lanes"].as_array().unwrap().clone();
        lanes.iter().map(|lane| lane["state"].as_str().unwrap().to_owned()).collect()
    };
    let wait_for = |server: &Server, state: &str| {
        place.wait_until(|| states(server).iter().all(|lane| lane == state), server);
    };
    wait_for(&first, "running");
    wait_for(&second, "standby");
    assert_eq!(place.post(&second, &json!({"title": "Both write", "content": "x"})).0, 201);
    first.signal("KILL");
    first.wait();
    wait_for(&second, "running");
    place.stop(second);
}
