//! The program over data that a crash, a full disk, a backup or a broken disk left behind.
#![cfg(all(target_os = "linux", feature = "server", feature = "cli"))]

mod serve_support;

use std::fs;
use std::process::{Command, Stdio};

use serde_json::json;
use serve_support::{Place, Server, TOKEN, wait_or, wait_until};
use vayu_articles::rusqlite::Connection;

#[test]
fn case_c59_a_full_disk_refuses_writes_half_writes_nothing_and_heals() {
    let place = Place::new();
    // Files may grow to so many KiB; what is beyond fails as on a full disk.
    let server =
        Server::start_as(&place, place.limited("trap '' XFSZ; ulimit -S -f 1500", &["serve", "--addr", "127.0.0.1:0"]));
    let text = "word ".repeat(20_000);
    let mut stored = 0;
    let refused = loop {
        let (status, body) = place.post(&server, &json!({"title": format!("Post {stored}"), "content": text}));
        match status {
            201 => stored += 1,
            _ => break (status, body),
        }
        assert!(stored < 100, "never full");
    };
    assert!(matches!(refused.0, 503 | 507), "{refused:?}");
    assert!(stored > 0 && refused.1.contains("\"message\""), "{refused:?}");
    assert_eq!(place.get(&server, "/articles/post-0").0, 200, "reading goes on");
    let sides = "SELECT (SELECT count(*) FROM articles) - (SELECT count(*) FROM event_outbox)";
    assert_eq!((place.count("SELECT count(*) FROM articles"), place.count(sides)), (stored, 0));

    let raised = Command::new("prlimit")
        .args(["--pid", &server.id().to_string(), "--fsize=unlimited"])
        .status()
        .expect("prlimit of util-linux");
    assert!(raised.success());
    let healed = json!({"title": "Healed", "content": "room again"});
    place.wait_until(|| place.post(&server, &healed).0 == 201, &server);
    place.delivered(&server);
    assert_eq!(place.found(&server, "again"), ["healed"]);
    assert_eq!(place.count("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'"), 0);
    assert_eq!(place.count("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'"), 0);
    place.stop(server);
}

#[test]
fn case_c22_a_key_outlives_kill_9_and_a_restart() {
    let place = Place::new();
    let body = json!({"title": "Once", "content": "x"}).to_string();
    let post = |server: &Server, key: &str| {
        let request = place.agent.post(format!("{}/api/v1/articles", server.url));
        let request = request.header("authorization", format!("Bearer {TOKEN}")).header("idempotency-key", key);
        let mut answer = request.send(&body).unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (tag, location) = (header("etag"), header("location"));
        (answer.status().as_u16(), tag, location, answer.body_mut().read_to_string().unwrap())
    };
    let mut server = Server::start(&place, &[]);
    let first = post(&server, "k");
    assert_eq!(first.0, 201, "{}", first.3);
    server.signal("KILL");
    server.wait();
    let server = Server::start(&place, &[]);
    assert_eq!(post(&server, "k"), first);
    place.stop(server);
    let server = Server::start(&place, &[]);
    assert_eq!(post(&server, "k"), first);
    assert_ne!(post(&server, "k2"), first);
    place.stop(server);
    let old = "UPDATE request_keys SET created_at = created_at - 86400000 WHERE key = 'k'";
    Connection::open(place.data().join("articles.db")).unwrap().execute(old, []).unwrap();
    place.stop(Server::start(&place, &[]));
    assert_eq!(place.count("SELECT count(*) FROM request_keys"), 1, "a start forgets what is past its day");
    assert_eq!(place.count("SELECT count(*) FROM articles"), 2);
    assert_eq!(place.count("SELECT count(*) FROM event_outbox"), 2);
}

#[test]
fn a_restored_backup_is_served_searched_and_delivered_as_it_is() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    place.post(&server, &json!({"title": "Kept", "content": "early", "tags": ["old"]}));
    place.delivered(&server);
    place.stop(server);
    fs::copy(place.data().join("articles.db"), place.path("backup.db")).unwrap();

    let server = Server::start(&place, &[]);
    place.patch(&server, "kept", &json!({"content": "vanished", "tags": ["gone"]}));
    for n in 0..5 {
        place.post(&server, &json!({"title": format!("Lost {n}"), "content": "vanished"}));
    }
    place.delivered(&server);
    for path in ["/", "/articles/kept", "/articles/lost-1", "/tags/gone"] {
        assert_eq!(place.get(&server, path).0, 200, "{path}");
    }
    assert_eq!(place.found(&server, "vanished").len(), 6);
    place.stop(server);
    fs::copy(place.path("backup.db"), place.data().join("articles.db")).unwrap();

    let server = Server::start(&place, &[]);
    assert!(place.get(&server, "/articles/kept").1.contains("early"));
    assert_eq!(place.get(&server, "/articles/lost-1").0, 404);
    assert_eq!(place.get(&server, "/tags/gone").0, 404);
    let index = place.get(&server, "/").1;
    assert!(index.contains("/articles/kept") && !index.contains("/articles/lost"), "{index}");
    // Reaches the same log positions and the same version as the lost future, with another text.
    place.patch(&server, "kept", &json!({"content": "present"}));
    place.post(&server, &json!({"title": "New", "content": "present"}));
    place.delivered(&server);
    place.wait_until(|| place.found(&server, "present").len() == 2, &server);
    assert!(place.found(&server, "vanished").is_empty() && place.found(&server, "early").is_empty());
    assert!(place.get(&server, "/articles/kept").1.contains("present"));
    assert_eq!(place.count("SELECT count(*) FROM deliveries"), 0);
    let ahead = "SELECT count(*) FROM lanes WHERE cursor > (SELECT max(id) FROM event_outbox)";
    assert_eq!(place.count(ahead), 0);
    place.stop(server);
}

#[test]
fn a_damaged_index_and_damaged_pages_are_made_anew() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    place.post(&server, &json!({"title": "Heron", "content": "stands", "tags": ["bird"]}));
    place.delivered(&server);
    place.get(&server, "/");
    place.stop(server);
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(place.data().join(format!("search.db{suffix}")));
    }
    fs::write(place.data().join("search.db"), vec![0x5a; 9_000]).unwrap();
    let mut pages = 0;
    let mut folders = vec![place.data().join("cache")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                fs::write(path, "<h1>not the page</h1>").unwrap();
                pages += 1;
            }
        }
    }
    assert!(pages >= 2);
    let server = Server::start(&place, &[]);
    // Until the lane has looked at the file, a search says that there is none.
    let search = "/api/v1/search?q=stands";
    place.wait_until(|| matches!(place.get(&server, search), (200, body) if body.contains("heron")), &server);
    for path in ["/", "/articles/heron"] {
        let page = place.get(&server, path).1;
        assert!(page.contains("Heron") && !page.contains("not the page"), "{path}: {page}");
    }
    place.stop(server);
}

#[test]
fn a_database_that_cannot_be_opened_ends_every_command_with_a_reason_and_is_left_as_it_is() {
    let place = Place::new();
    let posts = place.path("posts");
    fs::create_dir(&posts).unwrap();
    fs::write(posts.join("a.md"), "# A\n\ntext").unwrap();
    let posts = posts.to_str().unwrap();
    let commands: [&[&str]; 4] =
        [&["serve", "--addr", "127.0.0.1:0"], &["import", posts], &["outbox", "stats"], &["handler", "list"]];

    fs::create_dir(place.data()).unwrap();
    let file = place.data().join("articles.db");
    fs::write(&file, vec![0x5a; 9_000]).unwrap();
    for command in commands {
        let (code, said) = place.run(command);
        assert_eq!(code, 1, "{command:?}: {said}");
        assert!(said.contains("not an SQLite database"), "{command:?}: {said}");
    }
    assert_eq!(fs::read(&file).unwrap(), vec![0x5a; 9_000]);

    fs::remove_file(&file).unwrap();
    assert_eq!(place.run(&["import", posts]).0, 0);
    for component in ["articles", "outbox"] {
        let set = |version: i64| {
            let database = Connection::open(&file).unwrap();
            let sql = "UPDATE vayu_schema SET version = version + ?1 WHERE component = ?2";
            assert_eq!(database.execute(sql, (version, component)).unwrap(), 1);
        };
        set(90);
        for command in commands {
            let (code, said) = place.run(command);
            assert_eq!(code, 1, "{command:?}: {said}");
            assert!(said.contains(component) && said.contains("newer version"), "{command:?}: {said}");
        }
        set(-90);
    }
    assert_eq!(place.run(&["import", posts]).0, 0);
    assert_eq!(place.count("SELECT count(*) FROM articles"), 1);
}

#[test]
fn a_stop_during_the_seed_is_clean() {
    let place = Place::new();
    let posts = place.path("posts");
    fs::create_dir(&posts).unwrap();
    for n in 0..3_000 {
        fs::write(posts.join(format!("{n}.md")), format!("# Post {n}\n\ntext")).unwrap();
    }
    let mut child = place
        .program()
        .args(["serve", "--addr", "127.0.0.1:0", "--seed", posts.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stored = || {
        let database = Connection::open(place.data().join("articles.db"));
        let count =
            database.and_then(|db| db.query_row("SELECT count(*) FROM articles", [], |row| row.get::<_, i64>(0)));
        count.unwrap_or(0)
    };
    wait_until("something is seeded", || stored() > 0);
    assert!(Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap().success());
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    let sides = "SELECT (SELECT count(*) FROM articles) - (SELECT count(*) FROM event_outbox)";
    assert_eq!(place.count(sides), 0);
    let (code, said) = place.run(&["import", posts.to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(place.count("SELECT count(*) FROM articles"), 3_000, "an import goes on from there");
}

#[test]
fn a_second_signal_ends_a_stop_that_takes_long_with_130() {
    let place = Place::new();
    // Takes connections and never answers.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}/purge", deaf.local_addr().unwrap());
    let mut server = Server::start(&place, &["--cdn", &endpoint, "--site", "http://site.example"]);
    place.post(&server, &json!({"title": "Purge me", "content": "x"}));
    let _connection = deaf.accept().unwrap();
    server.signal("TERM");
    place.wait_until(|| server.log_text().contains("service=relay phase=stopping"), &server);
    // What comes within 100 ms of the first counts as that one; so insist until it is heard.
    let heard = || server.log_text().contains("a second signal");
    wait_or(
        || {
            if !heard() {
                server.signal("INT");
            }
            heard()
        },
        || server.log_text(),
    );
    assert_eq!(server.wait().code(), Some(130), "{}", server.log_text());
    // Nothing is lost by that: the next start delivers what was not.
    let server = Server::start(&place, &[]);
    place.wait_until(|| place.found(&server, "purge") == ["purge-me"], &server);
    place.stop(server);
}

#[test]
fn case_c60_two_imports_at_once_store_each_post_once() {
    let place = Place::new();
    let posts = place.path("posts");
    fs::create_dir(&posts).unwrap();
    for n in 0..150 {
        fs::write(posts.join(format!("{n}.md")), format!("# Post {n}\n\ntext")).unwrap();
    }
    let import = || place.run(&["import", posts.to_str().unwrap()]);
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(import);
        [import(), other.join().unwrap()]
    });
    for (code, said) in both {
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("0 failed"), "{said}");
    }
    assert_eq!(place.count("SELECT count(*) FROM articles"), 150);
    assert_eq!(place.count("SELECT count(*) FROM event_outbox"), 150);
    let behind = "SELECT count(*) FROM lanes WHERE cursor < 150 OR owner IS NOT NULL";
    assert_eq!(place.count(behind), 0, "delivered, and every lane is given up");
}

#[test]
fn a_stop_during_a_rebuild_of_the_index_is_clean_and_the_next_start_goes_on() {
    let place = Place::new();
    let posts = place.path("posts");
    fs::create_dir(&posts).unwrap();
    for n in 0..600 {
        fs::write(posts.join(format!("{n}.md")), format!("# Post {n}\n\n{}", "some words ".repeat(2_000))).unwrap();
    }
    assert_eq!(place.run(&["import", posts.to_str().unwrap()]).0, 0);
    fs::remove_file(place.data().join("search.db")).unwrap();
    let server = Server::start(&place, &[]);
    place.wait_until(|| server.log_text().contains("search index rebuild begins"), &server);
    place.stop(server);
    assert_eq!(place.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    let server = Server::start(&place, &[]);
    let search = "/api/v1/search?q=words";
    place.wait_until(|| place.get(&server, search).1.contains("\"total\":600"), &server);
    place.stop(server);
}
