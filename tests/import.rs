//! `import` as a user meets it: the real program, folders of Markdown, and what stands in the database afterwards.
#![cfg(all(feature = "server", feature = "cli"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use vayu_articles::article::{ArticlePatch, Expected, Mutation};
use vayu_articles::clock::SystemClock;
use vayu_articles::queue::{DirectWriter, WriteJob, Writer};
use vayu_articles::rusqlite::{Connection, OpenFlags};

/// A folder of posts and a data folder beside it.
struct Site {
    dir: TempDir,
}

/// What a run of the program said.
struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        fs::create_dir(dir.path().join("posts")).expect("create folder");
        Self { dir }
    }

    fn posts(&self) -> PathBuf {
        self.dir.path().join("posts")
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.posts().join(name);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("create folder");
        fs::write(path, text).expect("write");
    }

    fn command(&self) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("vayu-articles"));
        for name in ["VAYU_LOG", "VAYU_CDN", "VAYU_SITE", "VAYU_CDN_TOKEN", "VAYU_ADMIN_TOKEN", "VAYU_TOKEN_FILE"] {
            command.env_remove(name);
        }
        command.arg("--data").arg(self.data()).stdin(Stdio::null());
        command
    }

    fn import_path(&self, path: &Path) -> Run {
        let output = self.command().arg("import").arg(path).output().expect("the program runs");
        Run {
            code: output.status.code().expect("not killed"),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }

    fn import(&self) -> Run {
        self.import_path(&self.posts())
    }

    /// An import that must go well; returns what it printed.
    fn import_ok(&self) -> String {
        let run = self.import();
        assert_eq!(run.code, 0, "{}{}", run.out, run.err);
        run.out
    }

    fn db(&self) -> Connection {
        let path = self.data().join("articles.db");
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("database")
    }

    fn count(&self, sql: &str) -> i64 {
        self.db().query_row(sql, [], |row| row.get(0)).expect(sql)
    }

    fn articles(&self) -> i64 {
        self.count("SELECT count(*) FROM articles")
    }

    fn events(&self) -> i64 {
        self.count("SELECT count(*) FROM event_outbox")
    }

    /// Title, slug, status, kind, created_at and tags of the article with this title.
    fn article(&self, title: &str) -> (String, String, String, i64, Vec<String>) {
        let db = self.db();
        let (id, slug, status, kind, created) = db
            .query_row("SELECT id, slug, status, kind, created_at FROM articles WHERE title = ?1", [title], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, String>(3)?,
                    row.get::<_, i64>(4)?,
                ))
            })
            .unwrap_or_else(|e| panic!("{title}: {e}"));
        let mut tags =
            db.prepare("SELECT label FROM article_tags WHERE article_id = ?1 ORDER BY position").expect("sql");
        let tags = tags.query_map([id], |row| row.get(0)).expect("query").collect::<Result<_, _>>().expect("rows");
        (slug, status, kind, created, tags)
    }

    fn write(&self, mutation: Mutation) {
        let writer = DirectWriter::open(self.data().join("articles.db"), SystemClock::shared()).expect("writer");
        writer.enqueue(WriteJob::new(mutation)).expect("applied");
    }
}

#[test]
fn posts_in_each_usual_form_are_stored_with_title_tags_and_dates() {
    let site = Site::new();
    site.put(
        "one.md",
        "---\ndate: 2017-04-09T10:58:08-04:00\ntags: [\"scene\"]\ntitle: \"Part I: The Hall\"\nimages:\n  deep:\n    x: true\n\
         ---\n\nThe provost’s men on the Grève.\n",
    );
    site.put("two.md", "---\ntitle: A bare tag!\ndate: 2018-09-30\ntags: second tag\n---\nText.\n");
    site.put(
        "b/three.markdown",
        "---\ntitle: A list.\ndate: 2018-08-24\ntags:\n  - second tag\n  - two words\n---\nText.\n",
    );
    site.put(
        "four.md",
        "+++\ntitle = \"TOML\"\ndate = 2026-01-02\ntags = [\"a\", 7]\ndraft = true\nkind = \"page\"\n+++\nText.\n",
    );
    site.put("plain_file.md", "Only text.\n");
    let out = site.import_ok();
    assert!(out.contains("5 created, 0 updated, 0 unchanged"), "{out}");
    let strings = |tags: &[&str]| tags.iter().map(|&tag| tag.to_owned()).collect::<Vec<_>>();
    let (slug, status, kind, created, tags) = site.article("Part I: The Hall");
    assert_eq!((slug.as_str(), status.as_str(), kind.as_str()), ("part-i-the-hall", "published", "post"));
    assert_eq!((created, tags), (1_491_749_888_000, strings(&["scene"])));
    let (_, _, _, created, tags) = site.article("A bare tag!");
    assert_eq!((created, tags), (1_538_265_600_000, strings(&["second tag"])));
    let (_, _, _, created, tags) = site.article("A list.");
    assert_eq!((created, tags), (1_535_068_800_000, strings(&["second tag", "two words"])));
    let (_, status, kind, created, tags) = site.article("TOML");
    assert_eq!((status.as_str(), kind.as_str()), ("draft", "page"));
    assert_eq!((created, tags), (1_767_312_000_000, strings(&["a", "7"])));
    site.article("plain file");
}

#[test]
fn case_c60_importing_twice_creates_nothing_and_says_so() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: A\n---\nText");
    site.put("b.md", "---\ntitle: B\n---\nText");
    site.import_ok();
    let again = site.import_ok();
    assert!(again.contains("0 created, 0 updated, 2 unchanged"), "{again}");
    let single = site.import_path(&site.posts().join("a.md"));
    assert!(single.out.contains("0 created, 0 updated, 1 unchanged"), "{}", single.out);
    assert_eq!((site.articles(), site.events()), (2, 2));
}

#[test]
fn case_c60_a_run_killed_half_way_is_completed_by_the_next() {
    let site = Site::new();
    for i in 0..400 {
        site.put(&format!("{i:03}.md"), format!("---\ntitle: Post {i}\n---\nText {i}"));
    }
    let mut child = site.command().arg("import").arg(site.posts()).stdout(Stdio::null()).spawn().expect("starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let stored = || -> i64 {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = Connection::open_with_flags(site.data().join("articles.db"), flags);
        db.and_then(|db| db.query_row("SELECT count(*) FROM articles", [], |row| row.get(0))).unwrap_or(0)
    };
    while stored() == 0 && child.try_wait().expect("child").is_none() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    child.kill().ok();
    child.wait().expect("ended");
    let (articles, events) = (site.articles(), site.events());
    assert!(articles > 0);
    assert_eq!(articles, events, "an article without its event, or the reverse");
    let out = site.import_ok();
    assert!(out.contains(&format!("{} created, 0 updated, {articles} unchanged", 400 - articles)), "{out}");
    assert_eq!((site.articles(), site.events()), (400, 400));
}

#[test]
fn case_c60_two_posts_with_one_title_are_both_stored() {
    let site = Site::new();
    site.put("2025/review.md", "---\ntitle: The year\n---\nFirst.");
    site.put("2026/review.md", "---\ntitle: The year\n---\nSecond.");
    let out = site.import_ok();
    assert!(out.contains("2 created"), "{out}");
    assert_eq!(site.count("SELECT count(DISTINCT slug) FROM articles WHERE title = 'The year'"), 2);
}

#[test]
fn case_c60_one_bad_file_among_a_hundred_is_reported_and_the_rest_is_stored() {
    let site = Site::new();
    for i in 0..99 {
        site.put(&format!("{i:03}.md"), format!("---\ntitle: Post {i}\n---\nText"));
    }
    site.put("050-bad.md", "---\ntitle: Bad\ntags: [a, b\n---\nText");
    let run = site.import();
    assert_eq!(run.code, 1);
    assert!(run.out.contains("99 created") && run.out.contains("1 failed"), "{}", run.out);
    assert!(run.err.contains("050-bad.md: line 3: "), "{}", run.err);
    assert_eq!((site.articles(), site.events()), (99, 99));
}

#[test]
fn case_c60_each_kind_of_bad_file_is_reported_by_name_and_reason() {
    let site = Site::new();
    let tags = (0..45).map(|i| format!("t{i}")).collect::<Vec<_>>().join(", ");
    site.put("tags.md", format!("---\ntitle: Many\ntags: [{tags}]\n---\nText"));
    site.put("title.md", format!("---\ntitle: {}\n---\nText", "x".repeat(501)));
    site.put("slug.md", "---\ntitle: S\nslug: No Spaces\n---\nText");
    site.put("encoding.md", b"---\ntitle: L\n---\nna\xefve");
    site.put("open.md", "---\ntitle: Never closed\n\nText");
    site.put("empty.md", "---\ntitle: E\n---\n");
    site.put("date.md", "---\ntitle: D\ndate: 2026-02-30\n---\nText");
    site.put("nul.md", "---\ntitle: N\n---\nbefore\0after");
    site.put("fine.md", "---\ntitle: Fine\n---\nText");
    let run = site.import();
    assert_eq!(run.code, 1);
    for (file, reason) in [
        ("tags.md", "20"),
        ("title.md", "500"),
        ("slug.md", "slug"),
        ("encoding.md", "line 4: not UTF-8"),
        ("open.md", "never closed"),
        ("empty.md", "no text"),
        ("date.md", "line 3: date: cannot read \"2026-02-30\""),
        ("nul.md", "content"),
    ] {
        let line = run.err.lines().find(|line| line.contains(&format!("failed: {file}: ")));
        assert!(line.is_some_and(|line| line.contains(reason)), "{file}: {line:?}\n{}", run.err);
    }
    assert!(run.out.contains("1 created") && run.out.contains("8 failed"), "{}", run.out);
    assert_eq!((site.articles(), site.events()), (1, 1));
}

#[test]
fn case_c60_an_explicit_slug_that_is_taken_is_reported_and_not_renamed() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: First\nslug: same\n---\nText");
    site.put("b.md", "---\ntitle: Second\nslug: same\n---\nText");
    let run = site.import();
    assert_eq!(run.code, 1);
    assert!(run.err.contains("failed: b.md: ") && run.err.contains("same"), "{}", run.err);
    assert_eq!(site.articles(), 1);
}

#[test]
fn case_c60_a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let site = Site::new();
    site.put("a.md", b"\xef\xbb\xbf---\r\ntitle: Marked\r\ntags: [x]\r\n---\r\nText\r\n");
    site.import_ok();
    assert_eq!(site.article("Marked").4, ["x"]);
}

#[test]
fn case_c51_a_time_without_a_zone_is_utc_and_noted() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: No zone\ndate: 2026-06-10 11:30:00\n---\nText");
    site.put("b.md", "---\ntitle: Zone\ndate: 2026-06-10T13:30:00+02:00\n---\nText");
    let run = site.import();
    assert_eq!(run.code, 0);
    assert_eq!(site.article("No zone").3, 1_781_091_000_000);
    assert_eq!(site.article("Zone").3, 1_781_091_000_000);
    assert!(run.err.contains("a.md: a time without a zone was taken as UTC"), "{}", run.err);
    assert!(!run.err.contains("b.md"), "{}", run.err);
}

#[test]
fn a_changed_file_updates_its_article_and_keeps_id_and_slug() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: Before\ntags: [x]\n---\nText");
    site.import_ok();
    let id = |title: &str| -> String {
        site.db().query_row("SELECT id FROM articles WHERE title = ?1", [title], |row| row.get(0)).expect("article")
    };
    let before = id("Before");
    site.put("a.md", "---\ntitle: After\ntags: [y]\n---\nText");
    let out = site.import_ok();
    assert!(out.contains("0 created, 1 updated, 0 unchanged"), "{out}");
    assert_eq!(id("After"), before);
    let (slug, _, _, _, tags) = site.article("After");
    assert_eq!((slug.as_str(), tags), ("before", vec!["y".to_owned()]));
    assert_eq!((site.articles(), site.events()), (1, 2));
}

#[test]
fn an_article_edited_since_its_import_is_kept_and_reported() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: A\n---\nText");
    site.import_ok();
    let patch = ArticlePatch::default().content("Edited by hand.");
    site.write(Mutation::Update { slug: "a".to_owned(), patch, expected: Expected::any() });
    let unchanged = site.import_ok();
    assert!(unchanged.contains("1 unchanged"), "{unchanged}");
    site.put("a.md", "---\ntitle: A\n---\nNew text");
    let run = site.import();
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.out.contains("0 updated, 0 unchanged, 1 kept"), "{}", run.out);
    assert!(run.err.contains("kept: a.md: "), "{}", run.err);
    assert_eq!(site.count("SELECT count(*) FROM articles WHERE content = 'Edited by hand.'"), 1);
}

#[test]
fn an_article_deleted_since_its_import_stays_deleted() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: A\n---\nText");
    site.import_ok();
    site.write(Mutation::Delete { slug: "a".to_owned(), expected: Expected::any() });
    site.import_ok();
    site.put("a.md", "---\ntitle: A\n---\nNew text");
    let run = site.import();
    assert!(run.out.contains("0 created, 0 updated, 0 unchanged, 1 kept"), "{}", run.out);
    assert!(run.err.contains("deleted since"), "{}", run.err);
    assert_eq!(site.articles(), 0);
}

#[test]
fn two_folders_with_files_of_the_same_names_do_not_overwrite_each_other() {
    let site = Site::new();
    site.put("one/index.md", "---\ntitle: One\n---\nText");
    site.put("two/index.md", "---\ntitle: Two\n---\nText");
    for folder in ["one", "two"] {
        let run = site.import_path(&site.posts().join(folder));
        assert!(run.out.contains("1 created"), "{}{}", run.out, run.err);
    }
    assert_eq!(site.articles(), 2);
}

#[test]
fn the_events_are_delivered_before_the_import_ends() {
    let site = Site::new();
    for i in 0..150 {
        site.put(&format!("{i:03}.md"), format!("---\ntitle: Post {i}\n---\nA zebra, number {i}."));
    }
    site.import_ok();
    let behind = site.count("SELECT count(*) FROM lanes WHERE cursor < (SELECT max(id) FROM event_outbox)");
    assert_eq!((site.count("SELECT count(*) > 0 FROM lanes"), behind), (1, 0));
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0, "lanes are given up");
    let found = site.command().args(["search", "zebra", "--limit", "100"]).output().expect("runs");
    assert_eq!(String::from_utf8(found.stdout).expect("UTF-8").lines().count(), 100);
}

#[test]
fn a_handler_that_is_down_is_named_and_does_not_hold_the_import_up() {
    let site = Site::new();
    site.put("a.md", "---\ntitle: A\n---\nText");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let endpoint = format!("http://{closed}/purge");
    let output = site
        .command()
        .args(["import", "--cdn", &endpoint, "--site", "http://example.org"])
        .arg(site.posts())
        .output()
        .expect("runs");
    let err = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("not everything is delivered yet by cdn: "), "{err}");
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE handler = 'cdn' AND cursor = 0"), 1);
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "an outage writes no row");
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE handler <> 'cdn' AND cursor < 1"), 0);
}

#[test]
fn a_path_that_holds_nothing_to_import_is_refused_before_any_database_is_made() {
    let site = Site::new();
    for path in [site.posts(), site.posts().join("none")] {
        let run = site.import_path(&path);
        assert_eq!(run.code, 1);
        assert!(run.err.contains("posts"), "{}", run.err);
    }
    assert!(!site.data().exists());
}

#[test]
fn an_import_whose_reader_has_gone_is_finished_all_the_same() {
    let site = Site::new();
    for i in 0..20 {
        site.put(&format!("bad-{i:02}.md"), "---\ntitle: [\n---\nx");
    }
    site.put("good.md", "# Good\n\ntext");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut import = site.command();
    import.arg("import").arg(site.posts()).stdout(writer.try_clone().expect("a copy")).stderr(writer);
    let status = import.status().expect("runs");
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
    assert_eq!((site.articles(), site.events()), (1, 1));
    assert_eq!(site.count("SELECT count(*) FROM lanes WHERE cursor < 1 OR owner IS NOT NULL"), 0);
}

#[test]
fn names_of_jekyll_and_indexes_of_hugo_are_understood() {
    let site = Site::new();
    site.put("2026-03-01-trip-to-rome.md", "Rome.");
    let one = site.import();
    assert!(one.out.starts_with("1 file: 1 created"), "{}", one.out);
    site.put("posts/_index.md", "+++\ntitle = \"Posts\"\n+++\n");
    site.put("node_modules/p/README.md", "# A package\n\nx");
    let run = site.import();
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(run.err.contains("posts/_index.md: skipped"), "{}", run.err);
    assert!(run.out.contains("2 files:") && run.out.contains("0 failed, 1 skipped"), "{}", run.out);
    let db = Connection::open(site.data().join("articles.db")).expect("database");
    let row = |row: &vayu_articles::rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let found = db.query_row("SELECT title, created_at FROM articles", [], row).expect("one article");
    assert_eq!(found, ("trip to rome".to_owned(), 1_772_323_200_000));
}

#[test]
fn a_site_that_takes_no_writes_ends_the_import_at_once_and_no_file_is_blamed() {
    let site = Site::new();
    site.put("first.md", "First.");
    site.import_ok();
    let mode = |args: &[&str]| assert!(site.command().args(args).status().expect("runs").success(), "{args:?}");
    mode(&["freeze", "--read-only"]);
    for n in 0..250 {
        site.put(&format!("{n}.md"), format!("Text {n}."));
    }
    let run = site.import();
    assert_eq!(run.code, 1);
    assert!(!run.err.contains("failed: "), "{}", run.err);
    assert!(run.err.contains("read-only") && run.err.contains("import again to go on"), "{}", run.err);
    mode(&["thaw"]);
    assert!(site.import_ok().contains("250 created"));
}
