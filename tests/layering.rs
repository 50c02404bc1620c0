//! Modules use what lies below them, never above. A new module has to be given its place here.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module with those it may use, lowest first.
const LAYERS: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("lifecycle", &[]),
    ("storage", &["clock", "lifecycle"]),
    ("outbox", &["clock", "lifecycle", "storage"]),
    ("article", &["clock", "storage", "outbox"]),
    ("queue", &["clock", "storage", "outbox", "article"]),
    ("jobs", &["clock", "lifecycle", "storage", "outbox", "article", "queue"]),
    ("service", &["clock", "storage", "outbox", "article", "queue"]),
    ("sinks", &["clock", "lifecycle", "storage", "outbox", "article"]),
    ("worker", &["clock", "lifecycle", "storage", "outbox", "article", "sinks"]),
    ("http", &["clock", "lifecycle", "storage", "outbox", "article", "queue", "jobs", "service", "sinks"]),
    (
        "cli",
        &["clock", "lifecycle", "storage", "outbox", "article", "queue", "jobs", "service", "sinks", "http", "worker"],
    ),
];

#[test]
fn no_module_reaches_upward() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    for file in rust_files(&root) {
        let module = module_of(&root, &file);
        if module == "lib" || module == "main" {
            continue;
        }
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else {
            faults.push(format!("{}: module {module} has no place in LAYERS", file.display()));
            continue;
        };
        let depth = depth_of(&root, &file);
        let text = fs::read_to_string(&file).expect("source file");
        for used in used_modules(&text, depth) {
            if used != module && !allowed.contains(&used.as_str()) {
                faults.push(format!("{}: {module} uses {used}, which is not below it", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_outbox_knows_no_articles_and_the_service_no_database_writer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in rust_files(&root.join("outbox")) {
        let text = code_of(&fs::read_to_string(&file).expect("source file"));
        assert!(!text.to_lowercase().contains("article"), "{} speaks of articles", file.display());
    }
    if let Ok(service) = fs::read_to_string(root.join("service.rs")) {
        let text = code_of(&service);
        for name in ["QueueWriter", "SqliteWriter", "Transaction"] {
            assert!(!text.contains(name), "service.rs names {name}: it may see the queue::Writer trait alone");
        }
    }
}

#[test]
fn the_reader_of_paths_finds_every_way_to_name_a_module() {
    let text = "use crate::article::Article;\nuse crate::{storage::{self, Database}, queue};\nlet x = crate::http::go();\n\
                // crate::cli::comment\npub(crate) fn f() {}\nuse super::sinks::Search;\n#[cfg(test)]\nmod tests {\n use crate::cli::X;\n}\n";
    let expected = ["article", "http", "queue", "sinks", "storage"].map(str::to_owned);
    assert_eq!(used_modules(text, 1), BTreeSet::from(expected));
    let deeper = ["article", "http", "queue", "storage"].map(str::to_owned);
    assert_eq!(used_modules(text, 2), BTreeSet::from(deeper), "`super` of a submodule is its own module");
}

/// The source files below `root`; unit tests in files of their own may set up whatever they need.
fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("source folder") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The top-level module a file belongs to.
fn module_of(root: &Path, file: &Path) -> String {
    let relative = file.strip_prefix(root).expect("below src");
    let first = relative.components().next().expect("has a name").as_os_str().to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// How many `super::` lead from the file's module to the crate root.
fn depth_of(root: &Path, file: &Path) -> usize {
    let relative = file.strip_prefix(root).expect("below src");
    let folders = relative.components().count() - 1;
    if relative.ends_with("mod.rs") { folders } else { folders + 1 }
}

/// Top-level modules named in `text` through `crate::` or through `depth` times `super::`. Comments and inline test
/// modules do not count: tests may set up whatever they need.
fn used_modules(text: &str, depth: usize) -> BTreeSet<String> {
    let code = code_of(text);
    let mut used = BTreeSet::new();
    for prefix in ["crate::".to_owned(), "super::".repeat(depth)] {
        let mut rest = code.as_str();
        while let Some(at) = rest.find(&prefix) {
            let before = rest[..at].chars().next_back();
            rest = &rest[at + prefix.len()..];
            if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'))
                || rest.starts_with("super::")
            {
                continue;
            }
            used.extend(first_names(rest).into_iter().filter(|name| name.starts_with(|c: char| c.is_lowercase())));
        }
    }
    used.remove("rusqlite");
    used
}

/// The first path segment after a prefix, or those at the first level of a braced group.
fn first_names(rest: &str) -> Vec<String> {
    let name_of = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    if !rest.starts_with('{') {
        return vec![name_of(rest)];
    }
    let mut names = Vec::new();
    let mut level = 0;
    let mut item = String::new();
    for c in rest.chars() {
        match c {
            '{' => level += 1,
            '}' => level -= 1,
            ',' if level == 1 => names.push(name_of(std::mem::take(&mut item).trim())),
            _ if level == 1 => item.push(c),
            _ => {}
        }
        if level == 0 {
            break;
        }
    }
    names.push(name_of(item.trim()));
    names.retain(|name| !name.is_empty());
    names
}

/// `text` without line comments and without what follows an inline test module.
fn code_of(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next_opens_module =
            lines.peek().is_some_and(|next| next.trim_start().starts_with("mod ") && next.ends_with('{'));
        if line.trim() == "#[cfg(test)]" && next_opens_module {
            break;
        }
        code.push_str(line.split("//").next().unwrap_or_default());
        code.push('\n');
    }
    code
}
