//! The program as a server, started and ended the ways a machine does it.
#![cfg(all(feature = "server", feature = "cli"))]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vayu_articles::rusqlite::Connection;

const TOKEN: &str = "the-token-of-these-tests";
const LONG: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    url: String,
    log: std::path::PathBuf,
}

impl Server {
    /// Starts the program and returns once it has said where it listens.
    fn start(data: &Path) -> Self {
        let log = data.with_extension("log");
        let mut child = Command::new(env!("CARGO_BIN_EXE_vayu-articles"))
            .env("VAYU_ADMIN_TOKEN", TOKEN)
            .args(["--log", "info", "serve", "--addr", "127.0.0.1:0", "--data"])
            .arg(data)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut url = None;
        let mut line = String::new();
        while out.read_line(&mut line).unwrap() > 0 {
            if let Some(at) = line.find("http://127.0.0.1:") {
                let rest = &line[at..];
                let port_end = rest["http://127.0.0.1:".len()..].find(|c: char| !c.is_ascii_digit()).unwrap();
                url = Some(rest[.."http://127.0.0.1:".len() + port_end].to_owned());
                break;
            }
            line.clear();
        }
        // Keep the pipe drained, so that the program never blocks on it.
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        let log_text = || std::fs::read_to_string(&log).unwrap();
        Self { url: url.unwrap_or_else(|| panic!("no address; log:\n{}", log_text())), child, log }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end; log:\n{}", self.log_text());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often each kind of end is tried; `ROUNDS` asks for more.
fn rounds() -> u32 {
    std::env::var("ROUNDS").map_or(10, |rounds| rounds.parse().expect("ROUNDS is a number"))
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LONG));
    config.build().into()
}

/// The status and the body, or `None` when the connection failed.
fn post(agent: &ureq::Agent, url: &str, body: &Value) -> Option<(u16, Value)> {
    let mut answer = agent
        .post(format!("{url}/api/v1/articles"))
        .header("authorization", format!("Bearer {TOKEN}"))
        .send(body.to_string())
        .ok()?;
    let text = answer.body_mut().read_to_string().ok()?;
    Some((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null)))
}

/// Articles without an event, and events without an article, in a database without deletions.
fn one_sided(database: &Connection) -> (i64, i64) {
    let count = |sql: &str| database.query_row(sql, [], |row| row.get(0)).unwrap();
    (
        count("SELECT count(*) FROM articles WHERE id NOT IN (SELECT event_key FROM event_outbox)"),
        count("SELECT count(*) FROM event_outbox WHERE event_key NOT IN (SELECT id FROM articles)"),
    )
}

/// Eight clients write flat out until the server is gone; returns the ids it has acknowledged.
fn write_until_gone(server: &mut Server, end: impl FnOnce(&Server)) -> Vec<String> {
    let acknowledged = Mutex::new(Vec::new());
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (acknowledged, enough, url) = (&acknowledged, &enough, server.url.clone());
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let url = url.clone();
                scope.spawn(move || {
                    let agent = agent();
                    for n in 0.. {
                        let body = json!({"title": format!("By {writer}, number {n}"), "content": "x"});
                        match post(&agent, &url, &body) {
                            Some((201, article)) => {
                                let mut acknowledged = acknowledged.lock().unwrap();
                                acknowledged.push(article["id"].as_str().unwrap().to_owned());
                                enough.fetch_or(acknowledged.len() > 40, Ordering::SeqCst);
                            }
                            // Refused while stopping, or cut: this client is told, and stops.
                            Some((503, _)) | None => return,
                            Some((status, body)) => panic!("{status}: {body}"),
                        }
                    }
                })
            })
            .collect();
        while !enough.load(Ordering::SeqCst) {
            assert!(writers.iter().any(|writer| !writer.is_finished()), "no writer is left");
            std::thread::yield_now();
        }
        end(server);
    });
    acknowledged.into_inner().unwrap()
}

fn check_acknowledged(data: &Path, acknowledged: &[String]) {
    let database = Connection::open(data.join("articles.db")).unwrap();
    let mut stored = database.prepare("SELECT 1 FROM articles WHERE id = ?1").unwrap();
    for id in acknowledged {
        assert!(stored.exists([id]).unwrap(), "{id} was acknowledged and is lost");
    }
    assert_eq!(one_sided(&database), (0, 0));
}

#[test]
fn case_c58_nothing_acknowledged_is_lost_by_an_orderly_stop() {
    for _ in 0..rounds() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let mut server = Server::start(&data);
        let acknowledged = write_until_gone(&mut server, |server| server.signal("-TERM"));
        let status = server.wait();
        assert_eq!(status.code(), Some(0), "{}", server.log_text());
        check_acknowledged(&data, &acknowledged);
    }
}

#[test]
fn case_c58_nothing_acknowledged_is_lost_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut all = Vec::new();
    for _ in 0..rounds() {
        let mut server = Server::start(&data);
        all.extend(write_until_gone(&mut server, |server| server.signal("-KILL")));
        server.wait();
    }
    // The next start needs no manual step, takes the lanes over and delivers what was left.
    let mut server = Server::start(&data);
    check_acknowledged(&data, &all);
    let database = Connection::open(data.join("articles.db")).unwrap();
    let until = Instant::now() + LONG;
    let behind = || -> i64 {
        let sql = "SELECT (SELECT max(id) FROM event_outbox) - min(cursor) FROM lanes";
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    while behind() > 0 {
        assert!(Instant::now() < until, "{} events undelivered; log:\n{}", behind(), server.log_text());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    server.signal("-TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
}

#[test]
fn a_stop_logs_each_service_in_reverse_order_and_exits_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(&folder.path().join("data"));
    server.signal("-INT");
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
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut first = Server::start(&data);
    let mut second = Server::start(&data);
    let agent = agent();
    let ready = |server: &Server| -> Value {
        let mut answer = agent.get(format!("{}/health/ready", server.url)).call().unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    };
    let states = |server: &Server| -> Vec<String> {
        let lanes = ready(server)["lanes"].as_array().unwrap().clone();
        lanes.iter().map(|lane| lane["state"].as_str().unwrap().to_owned()).collect()
    };
    let wait_for = |server: &Server, state: &str| {
        let until = Instant::now() + LONG;
        while states(server).iter().any(|lane| lane != state) {
            assert!(Instant::now() < until, "{:?}\n{}", states(server), server.log_text());
            std::thread::park_timeout(Duration::from_millis(10));
        }
    };
    wait_for(&first, "running");
    wait_for(&second, "standby");
    let (status, _) = post(&agent, &second.url, &json!({"title": "Both write", "content": "x"})).unwrap();
    assert_eq!(status, 201);
    first.signal("-KILL");
    first.wait();
    wait_for(&second, "running");
    second.signal("-TERM");
    assert_eq!(second.wait().code(), Some(0), "{}", second.log_text());
}
