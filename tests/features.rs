//! Without features the library brings neither an async runtime, nor a server, nor a command line.

use std::process::Command;

#[test]
fn without_features_neither_tokio_nor_hyper_nor_clap_is_built() {
    let Some(bare) = crates(&["--no-default-features"]) else { return };
    for name in ["tokio", "hyper", "clap", "ureq", "env_logger", "ctrlc", "indicatif", "pulldown-cmark", "serde-saphyr"]
    {
        assert!(!bare.iter().any(|built| built == name), "{name} is built without features");
    }
    assert!(bare.iter().any(|built| built == "rusqlite"), "the list is not what it seems: {bare:?}");
}

#[test]
fn the_command_line_alone_needs_no_async_runtime() {
    let Some(cli) = crates(&["--no-default-features", "--features", "cli"]) else { return };
    assert!(cli.iter().any(|built| built == "clap"));
    assert!(!cli.iter().any(|built| built == "tokio" || built == "hyper"), "{cli:?}");
}

/// Names of the crates that a normal build with these options compiles; `None`, said aloud, where cargo is absent.
fn crates(options: &[&str]) -> Option<Vec<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let run = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(options)
        .output();
    let output = match run {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: cargo cannot be run here ({error})");
            return None;
        }
    };
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo prints UTF-8");
    Some(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}
