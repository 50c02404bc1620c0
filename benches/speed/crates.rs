//! What somebody who embeds the outbox has to compile.

use std::collections::BTreeSet;
use std::process::Command;

use crate::figures::{Figure, Outcome};
use crate::sizes::Sizes;

/// Crates of a build with `--no-default-features`, this one and those that only run at build time included.
pub fn count(_: &Sizes) -> Outcome<Vec<Figure>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--no-default-features", "--edges", "normal,build"])
        .args(["--prefix", "none", "--format", "{p}", "--manifest-path", manifest])
        .output()?;
    if !tree.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&tree.stderr)).into());
    }
    let names = String::from_utf8(tree.stdout)?;
    // A crate stands once per way to it, with a mark after its version from the second time on.
    let crates: BTreeSet<(&str, &str)> = names
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            words.next().zip(words.next())
        })
        .collect();
    let size = "--no-default-features".to_owned();
    Ok(vec![Figure::new("build.crates", "crates", "<= 55", size, vec![crates.len() as f64])])
}
