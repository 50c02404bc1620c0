//! Durability as the kernel sees it: `strace` watches a process that writes from several threads, and between the moment
//! at which a note's bytes go into the write-ahead log and the moment at which its caller has the answer there is a
//! finished sync of that log. Skipped with a word where there is no `strace`, unless `REQUIRE_SERVICES=1`.
#![cfg(target_os = "linux")]

mod storage_support;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use storage_support::{LIMIT, NOTES, Scratch, insert};
use vayu_articles::storage::{Database, Options, Synchronous};

const DATABASE: &str = "VAYU_DURABILITY_DATABASE";
const NORMAL: &str = "VAYU_DURABILITY_NORMAL";
const CALLERS: usize = 4;
const NOTES_EACH: usize = 25;

/// Not a test of its own: what is watched. Each answer becomes one line of a file, in one system call.
#[test]
fn child_writes_and_notes_each_answer() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let mut options = Options::default();
    if std::env::var_os(NORMAL).is_some() {
        options.synchronous = Synchronous::Normal;
    }
    let database = Database::open(&path, &[NOTES], options).unwrap();
    let answers = std::fs::File::create(format!("{path}.answers")).unwrap();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (database, answers) = (&database, &answers);
            scope.spawn(move || {
                for number in 0..NOTES_EACH {
                    let name = format!("note-{caller}-{number}.");
                    let text = name.clone();
                    database.writer().transact(move |tx| insert(tx, &text)).unwrap();
                    (&mut &*answers).write_all(format!("answer {name}").as_bytes()).unwrap();
                }
            });
        }
    });
    database.close(Instant::now() + LIMIT).unwrap();
}

/// What `strace` wrote down; `None` where it is not installed.
fn watched(path: &Path, normal: bool) -> Option<String> {
    let trace = path.with_extension("strace");
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-s", "9000", "-e", "trace=pwrite64,write,fsync,fdatasync", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_writes_and_notes_each_answer"])
        .env(DATABASE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if normal {
        command.env(NORMAL, "1");
    }
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{status}");
            Some(String::from_utf8_lossy(&std::fs::read(trace).unwrap()).into_owned())
        }
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_SERVICES").is_none(), "strace: {error}");
            eprintln!("skipped: no strace here ({error})");
            None
        }
    }
}

/// A system call: its number in the order of beginnings, and of ends.
struct Call {
    name: String,
    arguments: String,
    began: usize,
    ended: usize,
    succeeded: bool,
}

/// Reads `PID name(arguments) = result`, also where a call was interrupted by another thread's line.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: HashMap<&str, (String, String, usize)> = HashMap::new();
    let mut calls = Vec::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let succeeded = rest.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with('-'));
        if rest.starts_with("<... ") {
            if let Some((name, arguments, began)) = unfinished.remove(pid) {
                calls.push(Call { name, arguments, began, ended: at, succeeded });
            }
        } else if let Some((name, arguments)) = rest.split_once('(') {
            let (name, arguments) = (name.to_owned(), arguments.to_owned());
            if rest.ends_with("<unfinished ...>") {
                unfinished.insert(pid, (name, arguments, at));
            } else {
                calls.push(Call { name, arguments, began: at, ended: at, succeeded });
            }
        }
    }
    calls
}

/// Notes whose answer was given, and those of them whose bytes were not synced by then.
fn judge(trace: &str) -> (usize, Vec<String>) {
    let calls = calls(trace);
    let of_wal = |call: &&Call| call.arguments.split('>').next().is_some_and(|file| file.ends_with("notes.db-wal"));
    let syncs: Vec<&Call> =
        calls.iter().filter(|call| call.name.contains("sync") && call.succeeded).filter(of_wal).collect();
    let writes: Vec<&Call> = calls.iter().filter(|call| call.name == "pwrite64").filter(of_wal).collect();
    let (mut answered, mut unsynced) = (0, Vec::new());
    for answer in calls.iter().filter(|call| call.name == "write" && call.arguments.contains("\"answer note-")) {
        let name = answer.arguments.split_once("answer ").unwrap().1.split('"').next().unwrap();
        answered += 1;
        let written = writes.iter().find(|write| write.arguments.contains(name));
        let synced = written
            .is_some_and(|write| syncs.iter().any(|sync| sync.began >= write.ended && sync.ended <= answer.began));
        if !synced {
            unsynced.push(name.to_owned());
        }
    }
    (answered, unsynced)
}

#[test]
fn g2_strace_sees_a_sync_of_the_log_between_each_write_and_its_answer() {
    let scratch = Scratch::new();
    let Some(trace) = watched(&scratch.path, false) else { return };
    let (answered, unsynced) = judge(&trace);
    assert_eq!(answered, CALLERS * NOTES_EACH);
    assert!(unsynced.is_empty(), "answered before they were synced: {unsynced:?}");
}

#[test]
fn the_same_look_finds_answers_without_a_sync_where_they_are_asked_for() {
    let scratch = Scratch::new();
    // The named option that answers after a commit which is only written.
    let Some(trace) = watched(&scratch.path, true) else { return };
    let (answered, unsynced) = judge(&trace);
    assert_eq!(answered, CALLERS * NOTES_EACH);
    assert!(unsynced.len() > answered / 2, "the look is blind: it found {}", unsynced.len());
}

#[test]
fn a_trace_is_read_in_the_order_in_which_things_ended() {
    let trace = r#"7 pwrite64(5</d/notes.db-wal>, "..note-0-0...", 4096, 32) = 4096
7 fdatasync(5</d/notes.db-wal> <unfinished ...>
8 write(9</d/a>, "answer note-0-0.", 16) = 16
7 <... fdatasync resumed>) = 0
8 write(9</d/a>, "answer note-0-0.", 16) = 16
7 pwrite64(5</d/notes.db-wal>, "..note-0-1...", 4096, 32) = 4096
7 fdatasync(5</d/notes.db-wal>) = -1 EIO (Input/output error)
7 fdatasync(6</d/notes.db>) = 0
8 write(9</d/a>, "answer note-0-1.", 16) = 16
"#;
    let (answered, unsynced) = judge(trace);
    assert_eq!(answered, 3);
    assert_eq!(unsynced, ["note-0-0.", "note-0-1."], "too early, and after a failed sync");
}
