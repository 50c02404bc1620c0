//! The program as a script meets it: arguments, exit codes, and what it prints.
#![cfg(all(feature = "server", feature = "cli"))]

use std::process::Output;

use assert_cmd::Command;
use tempfile::TempDir;
use vayu_articles::rusqlite::Connection;

const COMMANDS: &[&[&str]] = &[
    &[],
    &["serve"],
    &["import"],
    &["search"],
    &["outbox"],
    &["outbox", "stats"],
    &["outbox", "list"],
    &["outbox", "show"],
    &["outbox", "replay"],
    &["handler"],
    &["handler", "list"],
    &["outbox", "discard"],
    &["handler", "hold"],
    &["handler", "release"],
    &["jobs"],
    &["enqueue"],
    &["freeze"],
    &["check"],
    &["backup"],
];

/// The program in an empty folder, without the settings of whoever runs the tests.
fn program(dir: &TempDir) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
    for name in [
        "VAYU_CONFIG",
        "VAYU_DATA",
        "VAYU_LOG",
        "VAYU_ADDR",
        "VAYU_CDN",
        "VAYU_SITE",
        "VAYU_CDN_TOKEN",
        "VAYU_ADMIN_TOKEN",
        "VAYU_TOKEN_FILE",
    ] {
        command.env_remove(name);
    }
    command.current_dir(dir.path());
    command
}

fn run(dir: &TempDir, args: &[&str]) -> Output {
    program(dir).args(args).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn empty(dir: &TempDir) -> bool {
    std::fs::read_dir(dir.path()).expect("folder").next().is_none()
}

#[test]
fn help_is_there_for_every_command_and_names_exit_codes_and_examples() {
    let dir = tempfile::tempdir().expect("tempdir");
    for command in COMMANDS {
        let output = run(&dir, &[*command, &["--help"]].concat());
        let help = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{command:?}");
        assert!(help.contains("--data"), "{command:?}: {help}");
        if command.len() < 2 && *command != ["handler"] {
            assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{command:?}: {help}");
        }
    }
    assert!(empty(&dir));
    assert!(text(&run(&dir, &["--version"]).stdout).starts_with("vayu-articles 0."));
}

#[test]
fn a_wrong_command_line_is_exit_code_2_and_touches_nothing() {
    let dir = tempfile::tempdir().expect("tempdir");
    let post = tempfile::tempdir().expect("tempdir");
    let post = post.path().join("post.md");
    std::fs::write(&post, "# T\n\nText").expect("write");
    let post = post.to_str().expect("UTF-8");
    for args in [
        &["fly"][..],
        &[],
        &["import"],
        &["search"],
        &["search", "x", "--limit", "0"],
        &["search", "x", "--limit", "many"],
        &["outbox"],
        &["outbox", "replay", "search"],
        &["outbox", "stats", "--database", "x.db", "--data", "."],
        &["outbox", "list", "--state", "gone"],
        &["outbox", "discard", "search", "1"],
        &["handler", "hold"],
        &["backup"],
        &["serve", "--addr", "localhost"],
        &["serve", "--addr", "0.0.0.0:8080"],
        &["serve", "--cdn", "http://127.0.0.1:6081/purge"],
        &["serve", "--cdn", "ftp://cdn", "--site", "http://example.org"],
        &["import", post, "--cdn", "http://cdn/", "--site", "nowhere"],
        &["import", post, "--name", "a/b"],
        &["serve", "--log", "loud"],
        &["serve", "--threads", "0"],
        &["serve", "--config", "missing.toml"],
        &["serve", "--config", post],
    ] {
        let output = run(&dir, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output.stderr));
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
    assert!(empty(&dir));
}

#[test]
fn print_config_shows_each_outcome_and_where_it_came_from_and_does_nothing_else() {
    let dir = tempfile::tempdir().expect("tempdir");
    let folder = tempfile::tempdir().expect("tempdir");
    let file = folder.path().join("vayu.toml");
    std::fs::write(&file, "[server]\nthreads = 7\n[cdn]\ntoken = \"s3cret\"\n").expect("write");
    let mut command = program(&dir);
    command.env("VAYU_CDN", "http://127.0.0.1:1/").args(["serve", "--print-config", "--site", "https://example.org"]);
    let output = command.args(["--data", "elsewhere", "--config"]).arg(&file).output().expect("runs");
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for (setting, place) in [
        ("data = \"elsewhere\"", "flag, --data"),
        ("threads = 7", "file, line 2"),
        ("url = \"http://127.0.0.1:1/\"", "environment, VAYU_CDN"),
        ("site = \"https://example.org\"", "flag, --site"),
        ("keep = \"7d\"", "default"),
    ] {
        let line = printed.lines().find(|line| line.starts_with(setting)).unwrap_or_else(|| panic!("{printed}"));
        assert!(line.ends_with(&format!("# {place}")), "{line}");
    }
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(empty(&dir));
}

#[test]
fn a_command_that_reads_says_so_when_there_is_no_database_and_makes_none() {
    let dir = tempfile::tempdir().expect("tempdir");
    for args in [
        &["search", "x"][..],
        &["outbox", "stats"],
        &["outbox", "list"],
        &["outbox", "show", "1"],
        &["outbox", "replay", "search", "1"],
        &["handler", "list"],
        &["check"],
        &["backup", "copy.db"],
    ] {
        let output = run(&dir, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains("no database in ./data"), "{args:?}: {}", text(&output.stderr));
    }
    assert!(empty(&dir));
}

#[test]
fn a_data_folder_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("file"), "x").expect("write");
    std::fs::write(dir.path().join("post.md"), "# T\n\nText").expect("write");
    let output = run(&dir, &["import", "post.md", "--data", "file/data"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("file/data"), "{}", text(&output.stderr));
}

#[test]
fn a_database_that_is_none_is_a_clear_error() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("data")).expect("create");
    std::fs::write(
        dir.path().join("data/articles.db"),
        "this is no database, but long enough to look like one".repeat(20),
    )
    .expect("write");
    let output = run(&dir, &["outbox", "stats"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("articles.db") && !error.contains("panicked"), "{error}");
}

#[test]
fn an_imported_post_is_found_and_its_lanes_are_listed() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::create_dir(dir.path().join("posts")).expect("create");
    std::fs::write(dir.path().join("posts/a.md"), "---\ntitle: On \"otters\"\n---\nOtters hold hands.").expect("write");
    assert_eq!(run(&dir, &["import", "posts"]).status.code(), Some(0));
    let found = text(&run(&dir, &["search", "otters hands"]).stdout);
    assert!(found.contains("on-otters") && found.contains("On \"otters\""), "{found}");
    let nothing = run(&dir, &["search", "-walrus"]);
    assert_eq!((nothing.status.code(), text(&nothing.stdout)), (Some(0), String::new()));
    assert_eq!(text(&nothing.stderr).trim_end(), "nothing found");
    let stats = text(&run(&dir, &["outbox", "stats"]).stdout);
    let handlers = text(&run(&dir, &["handler", "list"]).stdout);
    for name in ["search", "cache"] {
        assert!(stats.contains(name), "{stats}");
        assert!(handlers.contains(name), "{handlers}");
    }
    let dead = run(&dir, &["outbox", "list"]);
    assert_eq!(dead.status.code(), Some(0));
    let missing = run(&dir, &["outbox", "show", "999"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("999"), "{}", text(&missing.stderr));
    let refused = run(&dir, &["outbox", "replay", "nobody", "1"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("nobody"), "{}", text(&refused.stderr));
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("a.md"), "# T\n\nText").expect("write");
    assert_eq!(run(&dir, &["import", "a.md"]).status.code(), Some(0));
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"))
        .current_dir(dir.path())
        .args(["outbox", "stats", "--data", "./data"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ends");
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
}

#[test]
fn a_dead_letter_is_listed_shown_and_replayed() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("a.md"), "# T\n\nText").expect("write");
    let import = || assert_eq!(run(&dir, &["import", "a.md"]).status.code(), Some(0));
    import();
    let db = Connection::open(dir.path().join("data/articles.db")).expect("database");
    let insert =
        "INSERT INTO event_outbox (event_type, event_key, payload) VALUES ('article.updated.v1', 'k', '{\"no\": 1}')";
    db.execute(insert, []).expect("a foreign writer's event");
    let id = db.last_insert_rowid().to_string();
    import();
    let list = text(&run(&dir, &["outbox", "list", "--handler", "search"]).stdout);
    assert!(list.lines().any(|line| line.starts_with(&format!("search   {id} "))), "{list}");
    let next = text(&run(&dir, &["outbox", "list", "--handler", "search", "--after", &id]).stdout);
    assert_eq!(next, "");
    let shown = text(&run(&dir, &["outbox", "show", &id]).stdout);
    assert!(
        shown.contains("article.updated.v1") && shown.contains("dead_letter") && shown.contains("poison"),
        "{shown}"
    );
    let stats = text(&run(&dir, &["outbox", "stats"]).stdout);
    assert!(stats.contains(&format!("newest event {id}")), "{stats}");

    let replayed = run(&dir, &["outbox", "replay", "search", &id]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    let twice = run(&dir, &["outbox", "replay", "search", &id]);
    assert_eq!(twice.status.code(), Some(1), "due already");
    import();
    let again = text(&run(&dir, &["outbox", "show", &id]).stdout);
    assert!(again.contains("replays: 1"), "{again}");
    let all = text(&run(&dir, &["outbox", "replay", "search", "--all"]).stdout);
    assert!(all.starts_with("search: due again: 1"), "{all}");
    import();
    assert_eq!(run(&dir, &["outbox", "replay", "search", &id]).status.code(), Some(0));
    import();
    let refused = run(&dir, &["outbox", "replay", "search", &id]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("--force"), "{}", text(&refused.stderr));
    assert_eq!(run(&dir, &["outbox", "replay", "search", &id, "--force"]).status.code(), Some(0));
}

#[test]
fn a_dead_letter_is_discarded_for_good_with_its_reason() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("a.md"), "# T\n\nText").expect("write");
    let import = || assert_eq!(run(&dir, &["import", "a.md"]).status.code(), Some(0));
    import();
    let db = Connection::open(dir.path().join("data/articles.db")).expect("database");
    let insert = "INSERT INTO event_outbox (event_type, payload) VALUES ('article.updated.v1', '{\"no\": 1}')";
    db.execute(insert, []).expect("a foreign writer's event");
    let id = db.last_insert_rowid().to_string();
    import();
    let discard = ["outbox", "discard", "search", &id, "--reason", "written by mistake"];
    assert_eq!(run(&dir, &discard).status.code(), Some(0));
    let shown = text(&run(&dir, &["outbox", "show", &id]).stdout);
    assert!(shown.contains("discard  written by mistake"), "{shown}");
    let list = text(&run(&dir, &["outbox", "list", "--handler", "search"]).stdout);
    assert_eq!(list.lines().count(), 0, "{list}");
    let again = run(&dir, &discard);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("nothing left to discard"), "{}", text(&again.stderr));
}

#[test]
fn a_held_handler_keeps_its_events_and_says_so_until_it_is_released() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("a.md"), "# T\n\nText").expect("write");
    assert_eq!(run(&dir, &["import", "a.md"]).status.code(), Some(0));
    let stats = || text(&run(&dir, &["outbox", "stats"]).stdout);
    assert!(stats().contains("no owner") && !stats().contains("kept"), "{}", stats());
    assert_eq!(run(&dir, &["handler", "hold", "cache"]).status.code(), Some(0));
    std::fs::write(dir.path().join("b.md"), "# U\n\nText").expect("write");
    assert_eq!(run(&dir, &["import", "b.md"]).status.code(), Some(0));
    assert!(stats().contains("lane cache is held: 1 events are kept for it"), "{}", stats());
    assert_eq!(run(&dir, &["handler", "release", "cache"]).status.code(), Some(0));
    assert!(stats().contains("lane cache has no owner: 1 events are kept for it"), "{}", stats());
    let db = Connection::open(dir.path().join("data/articles.db")).expect("database");
    let dead = "11111111-1111-4111-8111-111111111111";
    db.execute("UPDATE lanes SET owner = ?1 WHERE handler = 'cache'", [dead]).expect("a lane left behind");
    std::fs::write(dir.path().join(format!("data/articles.db-owner-{dead}.lock")), "4711\n").expect("write");
    let handlers = text(&run(&dir, &["handler", "list"]).stdout);
    assert!(handlers.contains("owner dead: the next relay takes over"), "{handlers}");
    assert_eq!(run(&dir, &["import", "a.md"]).status.code(), Some(0));
    assert!(!stats().contains("kept"), "{}", stats());
    let unknown = run(&dir, &["handler", "hold", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("nobody"), "{}", text(&unknown.stderr));
}

#[test]
fn all_that_failed_or_waits_is_listed_with_its_state_and_also_as_json() {
    let dir = tempfile::tempdir().expect("tempdir");
    std::fs::write(dir.path().join("a.md"), "# T\n\nText").expect("write");
    assert_eq!(run(&dir, &["import", "a.md"]).status.code(), Some(0));
    let none = run(&dir, &["outbox", "list"]);
    assert_eq!(
        (text(&none.stdout), text(&none.stderr)),
        (String::new(), "nothing failed and nothing waits\n".to_owned())
    );
    let unknown = run(&dir, &["outbox", "list", "--handler", "serach"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("cache, search"), "{}", text(&unknown.stderr));

    let db = Connection::open(dir.path().join("data/articles.db")).expect("database");
    for (id, state) in [(1, "done"), (2, "retry"), (3, "dead_letter"), (4, "waiting"), (5, "discarded"), (6, "parked")]
    {
        let insert =
            "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at)
             VALUES (?1, 'search', 'k', ?2, iif(?2 = 'retry', 9999999999999, NULL), 0, 0)";
        db.execute(insert, (id, state)).expect(state);
    }
    let list = text(&run(&dir, &["outbox", "list"]).stdout);
    let states: Vec<&str> = list.lines().map(|line| line.split_whitespace().nth(2).unwrap_or_default()).collect();
    assert_eq!(states, ["STATE", "retry", "dead_letter", "waiting", "parked"], "{list}");
    let page = text(&run(&dir, &["outbox", "list", "--handler", "search", "--after", "2", "--limit", "2"]).stdout);
    assert!(page.contains("dead_letter") && page.contains("waiting") && page.lines().count() == 3, "{page}");
    for spelling in ["dead_letter", "dead-letter"] {
        let dead = text(&run(&dir, &["outbox", "list", "--state", spelling, "--json"]).stdout);
        let dead: serde_json::Value = serde_json::from_str(&dead).expect("one document");
        assert_eq!((&dead["exceptions"][0]["id"], &dead["exceptions"][0]["state"]), (&3.into(), &"dead_letter".into()));
        assert_eq!(dead["exceptions"].as_array().map(Vec::len), Some(1));
    }
    for args in [&["outbox", "stats", "--json"], &["handler", "list", "--json"]] {
        let document: serde_json::Value = serde_json::from_str(&text(&run(&dir, args).stdout)).expect("one document");
        let lane = &document["lanes"][1];
        assert_eq!((&lane["handler"], &lane["exceptions"]["dead_letter"]), (&"search".into(), &1.into()), "{document}");
        assert_eq!((&lane["owner_state"], &lane["cursor"]), (&"no_owner".into(), &1.into()), "{document}");
    }
}

#[test]
fn the_outbox_in_another_programs_database_is_looked_at_and_an_event_is_named_by_its_id() {
    use std::time::{Duration, Instant};
    use vayu_articles::outbox::{self, DispatchError, Event, NewEvent, Relay};
    use vayu_articles::storage::{Database, Options};

    let dir = tempfile::tempdir().expect("tempdir");
    let database = Database::open(dir.path().join("shop.db"), &[outbox::COMPONENT], Options::default()).expect("opens");
    let refuse = |_: &Event| Err(DispatchError::poison("not this one"));
    let relay = Relay::builder(&database).handler_fn("mail", refuse).start().expect("starts");
    let event = NewEvent::new("order.placed.v1", &1).expect("an event");
    database.writer().transact(move |tx| outbox::insert(tx, &event)).expect("committed");
    let soon = Instant::now() + Duration::from_secs(30);
    assert!(relay.wait_drained(soon));
    relay.stop(soon).expect("stops");
    database.close(soon).expect("closes");
    let db = Connection::open(dir.path().join("shop.db")).expect("database");
    let event_id: String = db.query_row("SELECT event_id FROM event_outbox", [], |row| row.get(0)).expect("an event");

    let stats = text(&run(&dir, &["outbox", "stats", "--database", "shop.db"]).stdout);
    assert!(stats.contains("mail") && !stats.contains("search"), "{stats}");
    let handlers = text(&run(&dir, &["handler", "--database", "shop.db", "list"]).stdout);
    assert!(handlers.contains("mail"), "{handlers}");
    let unknown = run(&dir, &["outbox", "replay", "mail", "no-such-event", "--database", "shop.db"]);
    assert_eq!(unknown.status.code(), Some(1));
    let replayed = run(&dir, &["outbox", "replay", "mail", &event_id, "--database", "shop.db"]);
    assert_eq!(replayed.status.code(), Some(0), "{}", text(&replayed.stderr));
    assert!(text(&run(&dir, &["outbox", "list", "--database", "shop.db"]).stdout).contains(" retry "));
    let tables: i64 = db
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'articles'", [], |row| row.get(0))
        .expect("count");
    assert_eq!(tables, 0, "only the outbox is opened");

    Connection::open(dir.path().join("other.db")).and_then(|db| db.execute_batch("CREATE TABLE t (a)")).expect("made");
    for file in ["other.db", "none.db", "."] {
        let refused = run(&dir, &["outbox", "stats", "--database", file]);
        assert_eq!(refused.status.code(), Some(1), "{file}");
        assert!(text(&refused.stderr).contains(&format!("--database {file}")), "{}", text(&refused.stderr));
    }
    assert!(!dir.path().join("none.db").exists() && !dir.path().join("data").exists());
    let other = Connection::open(dir.path().join("other.db")).expect("database");
    let tables: i64 = other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).expect("count");
    assert_eq!(tables, 1, "a database without an outbox is left as it is");
}

#[cfg(not(feature = "nats"))]
#[test]
fn a_worker_in_a_build_without_nats_says_how_to_build_one() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_vayu-articles"))
        .args(["worker", "--nats", "nats://127.0.0.1:4222", "--origin", "http://127.0.0.1:1", "--help"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("without the feature `nats`: cargo build --release --features nats"), "{said}");
}
