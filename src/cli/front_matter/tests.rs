use super::*;

fn read(text: &str) -> Document {
    parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn refused(text: &str) -> String {
    parse(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn yaml_front_matter_gives_title_date_and_tags() {
    let doc = read(
        "---\ntitle: \"Chapter: one\"\ndate: 2017-04-09T10:58:08-04:00\nupdated: 2018-01-01\ntags: [\"scene\", tower]\n\
         slug: chapter-one\ntype: page\ndraft: true\n---\n\nText.\n",
    );
    assert_eq!(doc.title.as_deref(), Some("Chapter: one"));
    assert_eq!(doc.slug.as_deref(), Some("chapter-one"));
    assert_eq!(doc.tags, ["scene", "tower"]);
    assert_eq!(doc.created_at, Some(1_491_749_888_000));
    assert_eq!(doc.updated_at, Some(1_514_764_800_000));
    assert_eq!((doc.kind, doc.status), (Kind::Page, Status::Draft));
    assert_eq!(doc.body, "\nText.\n");
    assert!(!doc.zone_assumed);
}

#[test]
fn tags_may_be_a_list_a_flow_list_or_one_bare_string() {
    for (front, expected) in [
        ("tags:\n  - a b\n  - c\n", vec!["a b", "c"]),
        ("tags: [a b, 'c']\n", vec!["a b", "c"]),
        ("tags: second tag\n", vec!["second tag"]),
        ("tags: Tom Jones, Jr.\n", vec!["Tom Jones, Jr."]),
        ("tags: [2026, 1.10, true, ~]\n", vec!["2026", "1.10", "true"]),
        ("tags: 2026\n", vec!["2026"]),
        ("tags:\n", vec![]),
        ("tags: ''\n", vec![]),
        ("tags: ['', a, ' ']\n", vec!["a"]),
        ("tags: [a]\ncategories: b\ntaxonomies:\n  tags: [c]\n  categories: [d]\n", vec!["a", "b", "c", "d"]),
        ("taxonomies:\n", vec![]),
    ] {
        assert_eq!(read(&format!("---\n{front}---\nText")).tags, expected, "{front}");
    }
}

#[test]
fn a_title_may_be_a_block_and_line_ends_may_be_old_ones() {
    assert_eq!(read("---\ntitle: >\n  Two\n  lines\n---\nText").title.as_deref(), Some("Two lines"));
    let doc = read("---\rtitle: ' Old '\r---\rText\rmore");
    assert_eq!((doc.title.as_deref(), doc.body.as_str()), (Some("Old"), "Text\nmore"));
}

#[test]
fn toml_front_matter_gives_the_same() {
    let doc = read(
        "+++\ntitle = \"Zola\"\ndate = 2026-03-01T10:00:00+01:00\nlastmod = 2026-03-02\ntags = [\"a\", 2026, true]\n\
         [taxonomies]\ntags = [\"b\"]\ncategories = [\"c\"]\n[extra]\ndeep = { x = [1, { y = 2 }] }\n+++\nText",
    );
    assert_eq!(doc.title.as_deref(), Some("Zola"));
    assert_eq!(doc.created_at, Some(1_772_355_600_000));
    assert_eq!(doc.updated_at, Some(1_772_409_600_000));
    assert_eq!(doc.tags, ["a", "2026", "true", "b", "c"]);
}

#[test]
fn toml_native_dates_of_each_sort_are_read() {
    let local = read("+++\ndate = 2026-03-01T09:00:00\n+++\nx");
    assert_eq!((local.created_at, local.zone_assumed), (Some(1_772_355_600_000), true));
    let text = read("+++\ndate = \"2026-03-01 10:00 +0100\"\n+++\nx");
    assert_eq!((text.created_at, text.zone_assumed), (Some(1_772_355_600_000), false));
    assert!(refused("+++\ntitle = \"x\"\ndate = 09:00:00\n+++\nx").starts_with("line 3: date: cannot read"));
}

#[test]
fn nested_and_unknown_keys_are_passed_over() {
    let doc = read(
        "---\nsocial_share:\n  items:\n    facebook: true\n    list: [1, {a: b}]\ntitle: T\nweight: 3\npublished: 2026-01-01\n---\nx",
    );
    assert_eq!((doc.title.as_deref(), doc.status), (Some("T"), Status::Published));
}

#[test]
fn what_is_marked_unpublished_becomes_a_draft() {
    for front in ["---\ndraft: true\n---\nx", "---\npublished: false\n---\nx", "+++\npublished = false\n+++\nx"] {
        assert_eq!(read(front).status, Status::Draft, "{front}");
    }
    assert_eq!(read("---\ndraft: false\npublished: true\n---\nx").status, Status::Published);
}

#[test]
fn the_first_heading_is_the_title_when_no_key_is() {
    let opening = read("---\ntags: a\n---\n\n# Hello *there* #\n\nText\n");
    assert_eq!(opening.title.as_deref(), Some("Hello *there*"));
    assert_eq!(opening.body, "\nText\n");
    let later = read("Intro\n\n```sh\n# a comment\n```\n\n# Later\n\nText\n");
    assert_eq!(later.title.as_deref(), Some("Later"));
    assert!(later.body.contains("# Later"));
    let only = read("# C#\n");
    assert_eq!((only.title.as_deref(), only.body.as_str()), (Some("C#"), "# C#\n"));
    assert_eq!(read("#hashtag\n## Two\n").title, None);
    assert_eq!(read("---\ntitle: Key\n---\n# Heading\n").body, "# Heading\n");
}

#[test]
fn case_c60_a_byte_order_mark_and_crlf_are_accepted() {
    let doc = read("\u{feff}---\r\ntitle: T\r\ntags:\r\n  - a\r\n---\r\nOne\r\n\r\nTwo\r\n");
    assert_eq!((doc.title.as_deref(), doc.tags.as_slice()), (Some("T"), &["a".to_owned()][..]));
    assert_eq!(doc.body, "One\n\nTwo\n");
}

#[test]
fn case_c60_a_bad_file_names_the_line_and_the_reason() {
    let not_utf8 = parse(b"---\ntitle: a\n---\nx\n\xff\n").expect_err("not UTF-8");
    assert_eq!(not_utf8, DocumentError::NotUtf8 { line: 5 });
    assert_eq!(refused("---\ntitle: x\n\nText"), "line 1: the front matter opened with --- is never closed");
    assert_eq!(refused("+++"), "line 1: the front matter opened with +++ is never closed");
    assert_eq!(refused("---\ntitle: x\n---\n \n"), "no text below the front matter: an article needs some");
    assert_eq!(refused(""), "no text below the front matter: an article needs some");
    for (text, place) in [
        ("---\ntitle: x\ntags: [a, b\n---\nx", "line "),
        ("---\ntitle: x\n\tbad: tab\n---\nx", "line 2: "),
        ("---\ntitle: a\ntitle: b\n---\nx", "line 3: "),
        ("---\ntitle: x\ntags: {a: b}\n---\nx", "line 3: "),
        ("---\ntitle: [x]\n---\nx", "line 2: "),
        ("---\n- a\n- b\n---\nx", "line 2: "),
        ("+++\ntitle = \"x\"\ntags = [1,\n+++\nx", "line "),
        ("+++\ntitle = \"x\"\ntitle = \"y\"\n+++\nx", "line 3: "),
        ("+++\na = 1\ntags = [[1]]\n+++\nx", "line 3: tags: "),
        ("+++\ntitle = [1]\n+++\nx", "line 2: title: "),
        ("+++\ndraft = 1\n+++\nx", "line 2: draft: "),
        ("---\na: 1\nb: 2\ndate: soon\n---\nx", "line 4: date: cannot read \"soon\""),
    ] {
        let error = refused(text);
        assert!(error.starts_with(place), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn front_matter_made_to_hurt_ends_as_an_error() {
    let mut bomb = String::from("---\na0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let alias = format!("*a{}, ", i - 1).repeat(9);
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", alias.trim_end_matches(", ")));
    }
    bomb.push_str("tags: *a11\n---\nx");
    refused(&bomb);
    refused(&format!("---\na: {}\n---\nx", "[".repeat(30_000)));
    refused(&format!("+++\na = {}\n+++\nx", "[".repeat(30_000)));
    refused(&format!("---\na: {}\n---\nx", "y".repeat(MAX_FRONT_MATTER_BYTES)));
    refused(&format!("---\n{}---\nx", "a: 1\n".repeat(3)));
}

#[test]
fn an_empty_front_matter_is_none() {
    let doc = read("---\n---\nText");
    assert_eq!((doc.title, doc.body.as_str()), (None, "Text"));
    assert_eq!(read("---\n# only a comment\n---\nText").tags, Vec::<String>::new());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..400)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn no_front_matter_makes_the_reader_panic(
        fence in "(---|\\+\\+\\+)",
        front in "([a-z]{1,9}(: | = )?[-\\[\\]{}&*!|>'\"%@`#,?:=0-9a-zA-Zäß.\t ]{0,20}\n){0,8}",
        body in "(# )?\\PC{0,20}\n?",
    ) {
        let _ = parse(format!("{fence}\n{front}{fence}\n{body}").as_bytes());
    }

    #[test]
    fn no_text_makes_the_date_reader_panic(text in "([0-9]{4}-[0-9]{2}-[0-9]{2})?[T ]?\\PC{0,20}") {
        let _ = super::dates::parse(&text);
    }
}
