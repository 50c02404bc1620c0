//! Freeze, thaw and jobs as a script meets them.
#![cfg(all(feature = "server", feature = "cli"))]

mod waiting;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use vayu_articles::rusqlite::Connection;
use waiting::wait_until;

fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("VAYU_")) {
        command.env_remove(name);
    }
    command.current_dir(dir);
    command
}

fn run(dir: &TempDir, args: &[&str]) -> Output {
    command(dir.path()).args(args).output().expect("the program runs")
}

/// What a command that went well has printed.
fn done(dir: &TempDir, args: &[&str]) -> String {
    let output = run(dir, args);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{args:?}: {out}{err}");
    out.into_owned()
}

fn json(dir: &TempDir, args: &[&str]) -> Value {
    serde_json::from_str(&done(dir, args)).expect("JSON")
}

/// A data folder with one article.
fn site() -> TempDir {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("posts")).expect("a folder");
    std::fs::write(dir.path().join("posts/a.md"), "# First\n\nText.").expect("a file");
    done(&dir, &["import", "posts"]);
    dir
}

fn articles(dir: &TempDir) -> i64 {
    let conn = Connection::open(dir.path().join("data/articles.db")).expect("a database");
    conn.busy_timeout(Duration::from_secs(30)).expect("a setting");
    conn.query_row("SELECT count(*) FROM articles", [], |row| row.get(0)).expect("a count")
}

#[test]
fn a_freeze_outlasts_the_command_and_thaw_applies_what_was_kept() {
    let dir = site();
    assert!(done(&dir, &["mode"]).starts_with("mode open"));
    let frozen = done(&dir, &["freeze", "--quiesce", "--reason", "a backup"]);
    assert!(frozen.contains("mode journal since") && frozen.contains("a backup") && frozen.contains("cache, search"));
    std::fs::write(dir.path().join("posts/b.md"), "# Second\n\nText.").expect("a file");
    assert!(done(&dir, &["import", "posts"]).contains("2 accepted for later"));
    assert_eq!(articles(&dir), 1);
    let stats = json(&dir, &["jobs", "stats", "--json"]);
    assert_eq!((stats["mode"]["mode"].as_str(), stats["jobs"]["pending"].as_i64()), (Some("journal"), Some(2)));
    let listed = json(&dir, &["jobs", "list", "--json"]);
    let id = listed["jobs"][1]["id"].to_string();
    assert!(done(&dir, &["jobs", "show", &id]).contains("posts/b.md"));
    let thawed = done(&dir, &["thaw"]);
    assert!(thawed.contains("mode open") && thawed.contains("applied here: 2, given up: 0"), "{thawed}");
    assert_eq!(articles(&dir), 2);
    assert_eq!(json(&dir, &["mode", "--json"])["draining"], false);

    done(&dir, &["freeze", "--read-only"]);
    std::fs::write(dir.path().join("posts/c.md"), "# Third\n\nText.").expect("a file");
    assert_eq!(run(&dir, &["import", "posts"]).status.code(), Some(1));
    done(&dir, &["thaw", "--no-wait"]);
    done(&dir, &["import", "posts"]);
    assert_eq!(articles(&dir), 3);
}

#[test]
fn enqueue_takes_good_lines_names_bad_ones_and_its_dead_letters_are_mended_by_command() {
    let dir = site();
    let lines = "{\"op\": \"create\", \"body\": {\"title\": \"One\", \"content\": \"x\"}, \"idempotency_key\": \"k\"}\n\n\
        not json\n\
        {\"op\": \"create\", \"body\": {\"title\": \"Two\", \"content\": \"x\"}, \"idempotency_key\": \"k\"}\n\
        {\"op\": \"update\", \"body\": {\"slug\": \"later\", \"patch\": {\"content\": \"y\"}}}\n";
    std::fs::write(dir.path().join("jobs.jsonl"), lines).expect("a file");
    let output = run(&dir, &["enqueue", "jobs.jsonl"]);
    assert_eq!(output.status.code(), Some(1));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.starts_with("2 jobs inserted, 1 known already by their idempotency key, 1 lines refused"), "{out}");
    assert!(err.contains("line 3: is not JSON"), "{err}");
    // Any command that works on the line applies it; without a `serve` a thaw does nothing more than that.
    let pending = json(&dir, &["jobs", "list", "--status", "pending", "--json"]);
    let ids: Vec<String> =
        pending["jobs"].as_array().expect("a list").iter().map(|job| job["id"].to_string()).collect();
    assert_eq!(ids.len(), 2);
    done(&dir, &["jobs", "cancel", &ids[0], "--reason", "not now"]);
    assert!(done(&dir, &["jobs", "replay", &ids[0]]).contains("is applied"));
    let dead = json(&dir, &["jobs", "show", &ids[1], "--json"]);
    assert_eq!(dead["status"], "dead_letter");
    assert!(done(&dir, &["jobs", "replay", &ids[1]]).contains("dead_letter: not_found"));
    assert_eq!(run(&dir, &["jobs", "cancel", &ids[1]]).status.code(), Some(1));
    done(&dir, &["jobs", "discard", &ids[1], "--reason", "no use"]);
    assert_eq!(run(&dir, &["jobs", "show", &ids[1]]).status.code(), Some(1));
    assert_eq!(articles(&dir), 2);
}

#[test]
fn a_running_serve_picks_up_what_another_process_enqueues_and_starts_in_the_mode_that_is_set() {
    let dir = site();
    let mut serve = command(dir.path())
        .args(["serve", "--addr", "127.0.0.1:0", "--log", "warn", "--mode", "journal"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("serve");
    let mut said = BufReader::new(serve.stdout.take().expect("stdout")).lines();
    assert!(said.next().expect("a line").expect("text").contains("serves http://"));
    assert_eq!(json(&dir, &["mode", "--json"])["mode"], "journal", "a setting");
    let line = "{\"op\": \"create\", \"body\": {\"title\": \"One\", \"content\": \"x\"}}\n";
    std::fs::write(dir.path().join("jobs.jsonl"), line).expect("a file");
    done(&dir, &["enqueue", "jobs.jsonl"]);
    assert_eq!(articles(&dir), 1, "frozen");
    done(&dir, &["thaw", "--no-wait"]);
    wait_until("it is picked up", || articles(&dir) == 2);
    serve.kill().expect("killed");
    serve.wait().expect("gone");
}

#[test]
fn stats_show_the_limit_that_is_set_and_a_refusal_says_what_can_be_done_instead() {
    let dir = site();
    std::fs::write(dir.path().join("vayu.toml"), "[database]\njournal = 7\n").expect("a file");
    let stats = json(&dir, &["jobs", "stats", "--json", "--config", "vayu.toml"]);
    assert_eq!(stats["jobs"]["waiting_max"], 7);
    let line = "{\"op\": \"delete\", \"body\": {\"slug\": \"a\"}, \"run_at\": \"2099-01-01T00:00:00Z\"}\n";
    std::fs::write(dir.path().join("jobs.jsonl"), line).expect("a file");
    done(&dir, &["enqueue", "jobs.jsonl"]);
    let said = run(&dir, &["jobs", "replay", "1"]);
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("job 1 is pending") && said.contains("it can be cancelled"), "{said}");
}

#[test]
fn a_list_in_a_pipe_has_the_whole_reason_and_the_whole_times() {
    let dir = site();
    let lines = "{\"op\": \"update\", \"body\": {\"slug\": \"later\", \"patch\": {\"content\": \"y\"}}}\n\
        {\"op\": \"delete\", \"body\": {\"slug\": \"a\"}, \"run_at\": \"2099-01-01T05:00:00Z\"}\n";
    std::fs::write(dir.path().join("jobs.jsonl"), lines).expect("a file");
    done(&dir, &["enqueue", "jobs.jsonl"]);
    done(&dir, &["jobs", "cancel", "1"]);
    assert!(done(&dir, &["jobs", "replay", "1"]).contains("dead_letter"));
    let listed = json(&dir, &["jobs", "list", "--json"]);
    let table = done(&dir, &["jobs", "list"]);
    assert!(table.contains("2099-01-01T05:00:00.000Z"), "{table}");
    for job in listed["jobs"].as_array().expect("a list") {
        for field in ["updated_at", "last_error"] {
            assert!(job[field].as_str().is_none_or(|text| table.contains(text)), "{field}: {table}");
        }
    }
    assert!(listed["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(|job| job["last_error"].is_string())));
}
