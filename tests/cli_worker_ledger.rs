//! `outbox …` on a worker's database: the operator's commands over its ledger.
#![cfg(feature = "cli")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use vayu_articles::outbox::{DispatchError, LEDGER_COMPONENT, Ledger, LedgerOptions, NewEvent};
use vayu_articles::storage::{Database, Options};

/// A worker's database with dead letters of the handler `search`.
fn worker(dir: &Path) {
    let database = Database::open(dir.join("worker.db"), &[LEDGER_COMPONENT], Options::default()).unwrap();
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    for (id, name) in [(1, "one"), (2, "two"), (3, "three")] {
        let mut event = NewEvent::from_json("order.placed.v1", "{}").key(name).into_event(id);
        event.event_id = name.to_owned();
        ledger.run_event(&event, "search", |_| Err(DispatchError::poison("never"))).unwrap();
    }
    database.close(Instant::now() + Duration::from_secs(30)).unwrap();
}

fn run(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
    let output = command.current_dir(dir).args(args).args(["--database", "worker.db"]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_command_prints_one_document_with_json() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    let json = |args: &[&str]| -> Value {
        let (code, out, err) = run(dir.path(), &[&["outbox"], args, &["--json"]].concat());
        assert_eq!(code, 0, "{args:?}: {err}");
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
    };
    assert_eq!(json(&["list"])["exceptions"].as_array().unwrap().len(), 3);
    let stats = json(&["stats"]);
    assert_eq!((&stats["handlers"][0]["dead_letter"], &stats["more"]), (&3.into(), &false.into()));
    assert_eq!(json(&["show", "one"])[0]["state"], "dead_letter");
    let discarded = json(&["discard", "search", "one", "--reason", "no use"]);
    assert_eq!(
        (&discarded["handler"], &discarded["id"], &discarded["discarded"]),
        (&"search".into(), &"one".into(), &true.into())
    );
    let replayed = json(&["replay", "search", "two"]);
    assert_eq!((&replayed["id"], &replayed["replayed"], &replayed["left"]), (&"two".into(), &1.into(), &0.into()));
    let rest = json(&["replay", "search", "--all"]);
    assert_eq!((&rest["id"], &rest["replayed"], &rest["left"]), (&Value::Null, &1.into(), &0.into()));
    assert_eq!(rest["more"], false);
}

#[test]
fn a_list_goes_on_page_by_page_whatever_the_states() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    run(dir.path(), &["outbox", "replay", "search", "three"]);
    // One whose name is none: it can still be listed, and paged behind.
    let connection = vayu_articles::rusqlite::Connection::open(dir.path().join("worker.db")).unwrap();
    let strange = "UPDATE processed_events SET event_id = CAST(x'74ff40' AS TEXT) WHERE event_id = 'two'";
    assert_eq!(connection.execute(strange, []).unwrap(), 1);
    drop(connection);
    let (mut seen, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["outbox", "list", "--limit", "1", "--json"];
        args.extend(after.iter().flat_map(|place| ["--after", place]));
        let (code, out, err) = run(dir.path(), &args);
        assert_eq!(code, 0, "{err}");
        let page: Value = serde_json::from_str(&out).unwrap();
        let ids = page["exceptions"].as_array().unwrap().iter();
        seen.extend(ids.map(|entry| entry["event_id"].as_str().unwrap().to_owned()));
        assert!(seen.len() <= 3, "paging goes round: {seen:?}");
        after = page["next"].as_str().map(str::to_owned);
        assert_eq!(page["more"].as_bool(), Some(after.is_some()));
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["one", "three", "t\u{fffd}@"]);
    let (_, out, err) = run(dir.path(), &["outbox", "list", "--limit", "2"]);
    assert!(out.contains("three") && err.contains("--after three@search"), "{out}{err}");
    let (_, out, _) = run(dir.path(), &["outbox", "list", "--handler", "search", "--after", "one"]);
    assert!(!out.contains("one") && out.contains("three"), "{out}");
    let (code, _, err) = run(dir.path(), &["outbox", "list", "--after", "one"]);
    assert!(code == 2 && err.contains("is no place in the list"), "{err}");
}

#[test]
fn a_dead_letter_is_edited_and_what_makes_no_sense_on_a_ledger_is_refused_with_what_to_do_instead() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    let (code, out, err) = run(dir.path(), &["outbox", "edit", "search", "one", "--payload", "{\"id\":7}"]);
    assert!(code == 0 && out.contains("with the new payload"), "{out}{err}");
    let (_, out, _) = run(dir.path(), &["outbox", "show", "one"]);
    assert!(out.contains("retry") && out.contains("{\"id\":7}"), "{out}");
    let connection = vayu_articles::rusqlite::Connection::open(dir.path().join("worker.db")).unwrap();
    connection.execute("UPDATE processed_events SET state = 'done' WHERE event_id = 'three'", []).unwrap();
    drop(connection);
    for (args, why) in [
        (&["edit", "search", "two", "--payload", "{"][..], "is not JSON"),
        (&["edit", "search", "none", "--payload", "{}"], "no entry of that event"),
        (&["replay", "search", "three", "--force"], "`outbox replay nats EVENT --force` on the server"),
        (&["trace", "request-1"], "trace on the server"),
        (&["resume", "search", "one"], "a key goes on by itself"),
    ] {
        let (code, _, err) = run(dir.path(), &[&["outbox"], args].concat());
        assert!(code == 1 && err.contains(why), "{args:?}: {code} {err}");
    }
}

#[test]
fn a_check_ends_with_1_if_an_entry_cannot_be_moved_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    let (code, out, err) = run(dir.path(), &["outbox", "check"]);
    assert_eq!((code, out.trim_end()), (0, "entries: 3  mended: 0  findings: 0"), "{err}");
    let connection = vayu_articles::rusqlite::Connection::open(dir.path().join("worker.db")).unwrap();
    connection.execute("UPDATE processed_events SET event = '{' WHERE event_id = 'two'", []).unwrap();
    drop(connection);
    let (code, out, _) = run(dir.path(), &["outbox", "check"]);
    assert!(code == 1 && out.contains("handler search  event two") && out.contains("mend: discard it"), "{code} {out}");
    let (code, out, _) = run(dir.path(), &["outbox", "check", "--json"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &document["findings"][0]["event_id"]), (1, &"two".into()), "{document}");
}

#[test]
fn a_state_that_a_ledger_does_not_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    let (code, out, err) = run(dir.path(), &["outbox", "list", "--state", "parked"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("dead_letter, retry or discarded"), "{err}");
}

#[test]
fn a_name_that_is_no_handlers_is_called_that() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    let database = Database::open(dir.path().join("worker.db"), &[LEDGER_COMPONENT], Options::default()).unwrap();
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    let event = NewEvent::from_json("order.placed.v1", "{}").into_event(4);
    ledger.run_event(&event, "mail", |_| Ok(())).unwrap();
    drop(ledger);
    database.close(Instant::now() + Duration::from_secs(30)).unwrap();
    for args in [
        &["outbox", "list", "--handler", "saerch"][..],
        &["outbox", "replay", "saerch", "--all"],
        &["outbox", "replay", "saerch", "--key", "one"],
        &["outbox", "replay", "saerch", "one"],
        &["outbox", "edit", "saerch", "one", "--payload", "{}"],
        &["outbox", "discard", "saerch", "one", "--reason", "x"],
    ] {
        let (code, out, err) = run(dir.path(), args);
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}: {err}");
        assert!(err.contains("the ledger knows no handler \"saerch\"; known: mail, search"), "{args:?}: {err}");
    }
    for args in [&["outbox", "list", "--handler", "mail"][..], &["outbox", "replay", "mail", "--all"]] {
        let (code, _, err) = run(dir.path(), args);
        assert_eq!(code, 0, "one of which nothing failed is no slip: {args:?}: {err}");
    }
    let (code, _, err) = run(dir.path(), &["outbox", "replay", "search", "nothing"]);
    assert!(code == 1 && err.contains("no entry of that event and handler"), "{err}");
}

#[test]
fn a_workers_folder_is_backed_up_and_other_commands_say_whose_it_is() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
        let output = command.current_dir(dir.path()).args(args).args(["--data", "."]).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code().unwrap(), said)
    };
    for args in [&["check"][..], &["handler", "list"]] {
        let (code, said) = run(args);
        assert!(code == 1 && said.contains("is a worker's folder"), "{args:?}: {code} {said}");
    }
    let (code, said) = run(&["backup", "copy.db"]);
    assert!(code == 0 && said.contains("3 entries of a worker's ledger"), "{code} {said}");
    let copy = Database::open(dir.path().join("copy.db"), &[LEDGER_COMPONENT], Options::default()).unwrap();
    let ledger = Ledger::new(&copy, LedgerOptions::default()).unwrap();
    assert_eq!(ledger.show("one").unwrap().len(), 1, "with its dead letters");
    copy.close(Instant::now() + Duration::from_secs(30)).unwrap();
    std::fs::remove_file(dir.path().join("worker.db")).unwrap();
    let (code, said) = run(&["backup", "other.db"]);
    assert!(code == 1 && said.contains("no database in"), "{code} {said}");
}

/// Neither would notice the other's `worker.db` or `articles.db`, and each would empty the index that both keep in `search.db`.
#[test]
#[cfg(feature = "server")]
fn what_makes_a_servers_folder_is_refused_in_a_workers_and_a_worker_in_a_servers() {
    let dir = tempfile::tempdir().unwrap();
    worker(dir.path());
    std::fs::write(dir.path().join("post.md"), "# Post").unwrap();
    let run = |args: &[&str]| {
        let mut command = assert_cmd::Command::cargo_bin("vayu-articles").unwrap();
        let command = command.current_dir(dir.path()).args(args).timeout(Duration::from_secs(60));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let refused = |args: &[&str], why: &str| {
        let (code, said) = run(&[args, &["--data", "."]].concat());
        assert!(code == Some(2) && said.contains(why), "{args:?}: {code:?} {said}");
    };
    let serve = ["serve", "--addr", "127.0.0.1:0"];
    for args in [&serve[..], &["import", "post.md"], &["tokens", "add", "x"]] {
        refused(args, ". is a worker's folder");
    }
    let mut files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["post.md", "worker.db"], "nothing is made there");
    assert_eq!(run(&["import", "post.md", "--data", "server"]).0, Some(0));
    let _ = std::fs::copy(dir.path().join("server/articles.db"), dir.path().join("articles.db")).unwrap();
    #[cfg(feature = "nats")]
    refused(&["worker", "--nats", "nats://127.0.0.1:1", "--origin", "http://127.0.0.1:1"], ". is a server's folder");
    assert_eq!(run(&["import", "post.md", "--data", "."]).0, Some(0), "one that was both goes on as a server's");
}
