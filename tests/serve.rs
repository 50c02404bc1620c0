//! `serve` from outside: start, signals, exit codes, and an import beside it.
#![cfg(all(unix, feature = "server", feature = "cli"))]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use vayu_articles::rusqlite::{Connection, OpenFlags};

const SOON: Duration = Duration::from_secs(30);

/// A running `serve` on a free port.
struct Server {
    child: Option<Child>,
    out: BufReader<ChildStdout>,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Server {
    fn start(dir: &Path, args: &[&str]) -> Self {
        let mut child = program(dir)
            .args(["serve", "--addr", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut printed = String::new();
        let url = loop {
            let mut line = String::new();
            if out.read_line(&mut line).expect("readable") == 0 {
                let ended = child.wait_with_output().expect("ended");
                panic!("ended without an address: {printed}{}", String::from_utf8_lossy(&ended.stderr));
            }
            printed.push_str(&line);
            if let Some((_, rest)) = line.split_once("serves ") {
                break rest.split_whitespace().next().expect("an address").to_owned();
            }
        };
        Self { child: Some(child), out, url }
    }

    fn signal(&self, name: &str) {
        let id = self.child.as_ref().expect("runs").id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end; exit code, rest of stdout, stderr.
    fn end(mut self) -> (Option<i32>, String, String) {
        let mut child = self.child.take().expect("runs");
        let deadline = Instant::now() + SOON;
        // Little is printed at a stop, so the pipes cannot fill up meanwhile.
        while child.try_wait().expect("child").is_none() {
            if Instant::now() > deadline {
                child.kill().expect("killed");
                panic!("still running {SOON:?} after the signal");
            }
            std::thread::yield_now();
        }
        let mut printed = String::new();
        self.out.read_to_string(&mut printed).expect("UTF-8");
        let Output { status, stderr, .. } = child.wait_with_output().expect("ended");
        (status.code(), printed, String::from_utf8(stderr).expect("UTF-8"))
    }
}

fn program(dir: &Path) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
    for name in
        ["VAYU_LOG", "VAYU_ADDR", "VAYU_CDN", "VAYU_SITE", "VAYU_CDN_TOKEN", "VAYU_ADMIN_TOKEN", "VAYU_TOKEN_FILE"]
    {
        command.env_remove(name);
    }
    command.env("VAYU_DATA", dir.join("data")).stdin(Stdio::null());
    command
}

/// The administrator's token, as the server made it.
fn token(dir: &Path) -> String {
    fs::read_to_string(dir.join("data/admin.token")).expect("a token").trim().to_owned()
}

fn posts(dir: &Path, count: usize) -> String {
    let folder = dir.join("posts");
    fs::create_dir_all(&folder).expect("create");
    for i in 0..count {
        fs::write(folder.join(format!("{i}.md")), format!("---\ntitle: Post {i}\n---\nAbout heron {i}."))
            .expect("write");
    }
    folder.to_str().expect("UTF-8").to_owned()
}

fn count(dir: &Path, sql: &str) -> i64 {
    let db = Connection::open_with_flags(dir.join("data/articles.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    db.and_then(|db| db.query_row(sql, [], |row| row.get(0))).expect(sql)
}

#[test]
fn each_stop_signal_ends_the_services_in_reverse_with_exit_code_0() {
    for signal in ["INT", "TERM"] {
        let dir = tempfile::tempdir().expect("tempdir");
        let server = Server::start(dir.path(), &[]);
        assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
        server.signal(signal);
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{signal}: {log}");
        let stops: Vec<&str> =
            log.lines().filter(|line| line.contains("stopped") || line.contains("phase=stop")).collect();
        let at = |service: &str| {
            let mark = format!("service={service} ");
            stops
                .iter()
                .position(|line| format!("{line} ").contains(&mark))
                .unwrap_or_else(|| panic!("{service}: {log}"))
        };
        let order = [at("http"), at("relay"), at("queue-writer"), at("storage")];
        assert!(order.is_sorted(), "{signal}: {order:?}\n{log}");
        assert_eq!(count(dir.path(), "SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    }
}

#[test]
fn readiness_shows_what_each_lane_has_left_and_lanes_that_nobody_here_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = Server::start(dir.path(), &[]);
    let db = Connection::open(dir.path().join("data/articles.db")).expect("database");
    let ready = || -> serde_json::Value {
        let mut answer = ureq::get(format!("{}health/ready", server.url)).call().expect("200");
        serde_json::from_str(&answer.body_mut().read_to_string().expect("text")).expect("JSON")
    };
    let insert =
        "INSERT INTO event_outbox (event_type, event_key, payload) VALUES ('article.updated.v1', 'k', '{\"no\": 1}')";
    db.execute(insert, []).expect("an event that no handler here can read");
    let lane = "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor, paused_until, outage_since) VALUES ('cdn', '[\"*\"]', 'continue', 0, 1781091000120, 0)";
    db.execute(lane, []).expect("a lane of another program");
    let lanes = |of: &serde_json::Value, name: &str| {
        of["lanes"].as_array().expect("lanes").iter().find(|lane| lane["handler"] == name).cloned().unwrap_or_default()
    };
    let deadline = Instant::now() + SOON;
    let mut seen = ready();
    while lanes(&seen, "search")["dead_letters"] != 1 {
        assert!(Instant::now() < deadline, "{seen}");
        std::thread::park_timeout(Duration::from_millis(10));
        seen = ready();
    }
    let search = lanes(&seen, "search");
    assert_eq!((&search["healthy"], &search["state"]), (&true.into(), &"running".into()), "{search}");
    assert!(search["retrying"].is_number() && search["lag_events"].is_number() && search["lag_ms"].is_number());
    let cdn = lanes(&seen, "cdn");
    assert_eq!((&cdn["healthy"], &cdn["state"]), (&false.into(), &"absent".into()), "{cdn}");
    assert_eq!(cdn["lag_events"], 1);
    assert_eq!(
        (&cdn["paused_until"], &cdn["outage_since"]),
        (&"2026-06-10T11:30:00.120Z".into(), &"1970-01-01T00:00:00.000Z".into())
    );
    assert_eq!((&seen["status"], &seen["backlog_error"]), (&"ready".into(), &serde_json::Value::Null));

    db.execute_batch("ALTER TABLE lanes RENAME TO lanes_gone").expect("broken by force");
    let broken = ready();
    assert!(broken["backlog_error"].as_str().is_some_and(|error| error.contains("lanes")), "{broken}");
    db.execute_batch("ALTER TABLE lanes_gone RENAME TO lanes").expect("mended");
}

#[test]
fn a_start_that_fails_names_the_database_and_says_why_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    fs::create_dir(dir.path().join("data")).expect("create");
    fs::write(dir.path().join("data/articles.db"), "no database at all ".repeat(100)).expect("write");
    for level in ["info", "off"] {
        let output =
            program(dir.path()).args(["serve", "--addr", "127.0.0.1:0", "--log", level]).output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert_eq!(error.matches("not a database").count(), 1, "{error}");
        assert!(error.contains("data/articles.db"), "{error}");
    }
    let wrong =
        program(dir.path()).args(["serve", "--cdn", "http://cdn/", "--site", "nowhere"]).output().expect("runs");
    let error = String::from_utf8_lossy(&wrong.stderr);
    assert!(error.contains("--site must be") && !error.contains("--cdn"), "{error}");
}

#[test]
fn the_printed_command_runs_as_it_stands_and_other_crates_log_no_details() {
    let dir = tempfile::tempdir().expect("tempdir");
    let server = Server::start(dir.path(), &["--log", "trace"]);
    let bearer = format!("Bearer {}", token(dir.path()));
    let post = ureq::post(format!("{}api/v1/articles", server.url))
        .header("authorization", &bearer)
        .send(r#"{"title": "T", "content": "<b>x</b>"}"#);
    assert_eq!(post.expect("an answer").status(), 201);
    ureq::get(format!("{}articles/t", server.url)).call().expect("the page");
    server.signal("TERM");
    let (code, printed, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let command = printed.lines().find(|line| line.contains(" outbox stats ")).expect("a command");
    let ran = Command::new("sh").args(["-c", command.trim()]).output().expect("runs");
    assert!(String::from_utf8_lossy(&ran.stdout).contains("newest event 1"), "{command}: {ran:?}");
    let foreign = log.lines().find(|line| line.starts_with('[') && !line.contains(" vayu_articles"));
    assert_eq!(foreign, None);
    assert!(log.contains("DEBUG") || log.contains("TRACE") || log.contains("INFO"), "{log}");
}

#[test]
fn purges_without_a_lifetime_for_pages_are_warned_of() {
    for (shape, ttl, warned) in
        [("keys", None, true), ("purge", None, true), ("keys", Some("10m"), false), ("json", None, false)]
    {
        let dir = tempfile::tempdir().expect("tempdir");
        let mut args = vec!["--site", "http://example.org", "--cdn", "http://127.0.0.1:9/", "--cdn-shape", shape];
        args.extend(ttl.into_iter().flat_map(|ttl| ["--cdn-ttl", ttl]));
        let server = Server::start(dir.path(), &args);
        server.signal("TERM");
        let (_, _, log) = server.end();
        let said = log.contains(&format!("event=cdn_keeps_nothing shape={shape}"));
        assert_eq!(said, warned, "{shape} {ttl:?}: {log}");
    }
}

#[test]
fn probes_fill_no_log_and_a_rebuild_says_why() {
    let dir = tempfile::tempdir().expect("tempdir");
    for (level, shown) in [("info", false), ("debug", true)] {
        let server = Server::start(dir.path(), &["--log", level]);
        for path in ["health/live", "health/ready"] {
            ureq::get(format!("{}{path}", server.url))
                .config()
                .http_status_as_error(false)
                .build()
                .call()
                .expect("an answer");
        }
        server.signal("TERM");
        let (_, _, log) = server.end();
        assert_eq!(log.contains("/health/live"), shown, "{log}");
        assert!(log.contains("/health/ready"), "{log}");
        if !shown {
            assert!(log.contains("rebuild begins reason=\"it is new, or not of this log"), "{log}");
        }
    }
}

#[test]
fn an_empty_database_is_seeded_once() {
    let dir = tempfile::tempdir().expect("tempdir");
    let folder = posts(dir.path(), 3);
    for _ in 0..2 {
        let server = Server::start(dir.path(), &["--seed", &folder]);
        server.signal("TERM");
        let (code, _, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
        posts(dir.path(), 5);
    }
    assert_eq!(count(dir.path(), "SELECT count(*) FROM articles"), 3, "the second start finds a database in use");
}

#[test]
fn a_seed_that_is_not_there_or_a_port_in_use_ends_with_exit_code_1_and_says_why() {
    let dir = tempfile::tempdir().expect("tempdir");
    let missing =
        program(dir.path()).args(["serve", "--addr", "127.0.0.1:0", "--seed", "none"]).output().expect("runs");
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("none"));
    assert!(!dir.path().join("data").exists(), "nothing is done before the settings are checked");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("address").to_string();
    let output = program(dir.path()).args(["serve", "--addr", &addr]).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains(&addr), "{error}");
    assert_eq!(count(dir.path(), "SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0, "the start was rolled back");
}

#[test]
fn an_import_beside_a_running_serve_leaves_the_delivery_to_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let folder = posts(dir.path(), 20);
    let server = Server::start(dir.path(), &[]);
    let owner = "SELECT count(DISTINCT owner) FROM lanes WHERE owner IS NOT NULL";
    let deadline = Instant::now() + SOON;
    while count(dir.path(), owner) == 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    let output = program(dir.path()).args(["import", &folder]).output().expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("20 created"));
    assert_eq!(count(dir.path(), owner), 1, "the server still owns its lanes");
    let behind = "SELECT count(*) FROM lanes WHERE cursor < (SELECT max(id) FROM event_outbox)";
    while count(dir.path(), behind) > 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(count(dir.path(), behind), 0, "the server delivers what another process committed");
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
    let found = program(dir.path()).args(["search", "heron", "--limit", "50"]).output().expect("runs");
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 20);
}
