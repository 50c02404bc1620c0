//! What the documents say about the code is still there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_test_that_the_readme_names_exists() {
    let readme = read("README.md");
    let names: BTreeSet<&str> = readme
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| {
            code.len() > 15
                && code.contains('_')
                && !code.starts_with("VAYU_")
                && code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        })
        .collect();
    assert!(names.len() >= 12, "one test at least per promise: {names:?}");
    let mut code = String::new();
    for folder in ["src", "tests"] {
        collect(&root().join(folder), &mut code);
    }
    for name in names {
        assert!(code.contains(&format!("fn {name}()")), "README.md names the test {name}, which is not there");
    }
}

#[test]
fn every_file_that_the_documents_name_exists() {
    for document in ["README.md", "ARCHITECTURE.md"] {
        let text = read(document);
        let paths = text.split('`').skip(1).step_by(2).filter(|code| {
            let known = ["src/", "tests/", "examples/", "sql/", "samples/", "benches/", "docs/"];
            known.iter().any(|folder| code.starts_with(folder)) && !code.contains('<')
        });
        for path in paths {
            assert!(root().join(path).exists(), "{document} names {path}, which is not there");
        }
    }
}

#[test]
fn the_handbook_shows_the_example_that_the_readme_compiles() {
    let in_readme = block(&read("README.md"), "```rust,no_run\n");
    let in_handbook = block(&read("samples/08-embed-the-outbox.md"), "```rust\n");
    assert_eq!(in_readme, in_handbook);
}

fn block(text: &str, opening: &str) -> String {
    let (_, rest) = text.split_once(opening).expect("a block of Rust");
    rest.split_once("\n```").expect("closed").0.to_owned()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn collect(folder: &Path, code: &mut String) {
    for entry in fs::read_dir(folder).expect("folder") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            collect(&path, code);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            code.push_str(&fs::read_to_string(&path).expect("source"));
        }
    }
}
