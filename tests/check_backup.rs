//! `check` and `backup` as an operator meets them, with and without a running server.
#![cfg(all(unix, feature = "server", feature = "cli"))]

#[path = "serve_support/mod.rs"]
mod serve_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use serve_support::{Place, Server};
use vayu_articles::rusqlite::Connection;

fn imported(place: &Place, count: usize) {
    let posts = place.path("posts");
    fs::create_dir_all(&posts).unwrap();
    for n in 0..count {
        fs::write(posts.join(format!("{n}.md")), format!("# Post {n}\n\nAbout heron {n}.")).unwrap();
    }
    let (code, said) = place.run(&["import", posts.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
}

fn articles(place: &Place) -> Connection {
    Connection::open(place.data().join("articles.db")).unwrap()
}

/// The faults that `check --json` names; the exit code must fit.
fn faults(place: &Place) -> Vec<String> {
    let (code, said) = place.run(&["check", "--json"]);
    let report: Value = serde_json::from_str(said.lines().next().unwrap_or_default()).expect(&said);
    let faults: Vec<String> =
        report["faults"].as_array().unwrap().iter().map(|fault| fault.as_str().unwrap().to_owned()).collect();
    assert_eq!(code, i32::from(!faults.is_empty()), "{said}");
    faults
}

#[test]
fn check_finds_nothing_in_a_good_folder_while_a_server_writes() {
    let place = Place::new();
    imported(&place, 3);
    assert_eq!(faults(&place), [""; 0]);
    let (code, said) = place.run(&["check"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("good   articles.db is whole") && said.contains("every published article"), "{said}");
    let server = Server::start(&place, &[]);
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0.. {
                let (status, body) = place.post(&server, &json!({"title": format!("More {n}"), "content": "x"}));
                assert_eq!(status, 201, "{body}");
                if enough.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let found: Vec<_> = (0..3).map(|_| faults(&place)).collect();
        enough.store(true, Ordering::SeqCst);
        writer.join().unwrap();
        assert_eq!(found.concat(), [""; 0]);
    });
    place.stop(server);
}

#[test]
fn check_names_what_belongs_to_nothing_and_what_search_does_not_hold() {
    let place = Place::new();
    imported(&place, 3);
    let database = articles(&place);
    let insert = "INSERT INTO deliveries (outbox_id, handler, state, created_at, updated_at) VALUES (999, 'cache', 'done', 0, 0), (1, 'nobody', 'dead_letter', 0, 0)";
    database.execute(insert, []).unwrap();
    database.execute("INSERT INTO article_tags VALUES ('gone', 't', 0, 't')", []).unwrap();
    database.execute("UPDATE articles SET version = version + 1 WHERE slug = 'post-1'", []).unwrap();
    database.execute("UPDATE lanes SET cursor = 4711 WHERE handler = 'cache'", []).unwrap();
    let found = faults(&place).join("\n");
    for what in [
        "1 tags",
        "event 999 is done, and the log does not hold it",
        "nobody",
        "stands at 4711",
        "search differs from 1",
    ] {
        assert!(found.contains(what), "{what}: {found}");
    }
}

#[test]
fn check_names_damage_and_a_newer_schema_instead_of_guessing() {
    let place = Place::new();
    imported(&place, 30);
    let database = articles(&place);
    database.execute("UPDATE vayu_schema SET version = 99 WHERE component = 'articles'", []).unwrap();
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(database);
    let found = faults(&place).join("\n");
    assert!(found.contains("articles is of version 99"), "{found}");
    let path = place.data().join("articles.db");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0xff);
    fs::write(&path, bytes).unwrap();
    assert!(!faults(&place).is_empty());
    fs::write(&path, "no database".repeat(1_000)).unwrap();
    let found = faults(&place).join("\n");
    assert!(found.contains("cannot be read"), "{found}");
}

#[test]
fn a_backup_made_while_a_server_writes_is_consistent_and_starts_and_delivers() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let copy = place.path("copy.db");
    let enough = AtomicBool::new(false);
    let acknowledged = std::thread::scope(|scope| {
        let (place, server, enough) = (&place, &server, &enough);
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                scope.spawn(move || {
                    let mut slugs = Vec::new();
                    for n in 0.. {
                        let title = format!("Kestrel {writer} {n}");
                        let (status, body) =
                            place.post(server, &json!({"title": title, "content": "x", "tags": ["t"]}));
                        assert_eq!(status, 201, "{body}");
                        slugs.push(format!("kestrel-{writer}-{n}"));
                        if enough.load(Ordering::SeqCst) {
                            return slugs;
                        }
                    }
                    unreachable!("it ends above")
                })
            })
            .collect();
        place.wait_until(|| place.count("SELECT count(*) FROM articles") > 20, server);
        let before = place.count("SELECT count(*) FROM articles");
        let (code, said) = place.run(&["backup", copy.to_str().unwrap()]);
        enough.store(true, Ordering::SeqCst);
        let slugs: Vec<Vec<String>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(" bytes, ") && said.contains("newest event"), "{said}");
        let copied = Connection::open(&copy).unwrap();
        let count = |sql: &str| -> i64 { copied.query_row(sql, [], |row| row.get(0)).unwrap() };
        assert!(count("SELECT count(*) FROM articles") >= before);
        assert_eq!(count("SELECT count(*) FROM articles WHERE id NOT IN (SELECT event_key FROM event_outbox)"), 0);
        assert_eq!(count("SELECT count(*) FROM event_outbox WHERE event_key NOT IN (SELECT id FROM articles)"), 0);
        slugs.concat()
    });
    place.stop(server);
    assert!(acknowledged.len() > 20);
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);

    let restored = Place::new();
    fs::create_dir(restored.data()).unwrap();
    fs::copy(&copy, restored.data().join("articles.db")).unwrap();
    let server = Server::start(&restored, &[]);
    let (status, body) = restored.post(&server, &json!({"title": "After the restore", "content": "whinchat"}));
    assert_eq!(status, 201, "{body}");
    restored.delivered(&server);
    let (status, found) = restored.get(&server, "/api/v1/search?q=whinchat");
    assert!(status == 200 && found.contains("after-the-restore"), "{found}");
    let (_, found) = restored.get(&server, "/api/v1/search?q=kestrel");
    assert!(found.contains("kestrel-"), "{found}");
    assert_eq!(faults(&restored), [""; 0]);
    restored.stop(server);
}

#[test]
fn a_backup_never_overwrites_and_leaves_nothing_half_made() {
    let place = Place::new();
    imported(&place, 1);
    let folder = place.path("backups");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("a.db");
    fs::write(&file, "precious").unwrap();
    let (code, said) = place.run(&["backup", file.to_str().unwrap()]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("there is a file already"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    let (code, said) = place.run(&["backup", place.path("missing/a.db").to_str().unwrap()]);
    assert_eq!(code, 1, "{said}");
    // A database that is damaged is not copied as if it were whole.
    let path = place.data().join("articles.db");
    articles(&place).execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let (code, said) = place.run(&["backup", folder.join("b.db").to_str().unwrap()]);
    assert_eq!(code, 1, "{said}");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["a.db"], "{said}");
}
