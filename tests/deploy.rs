//! What the files in `deploy/` name is there: paths, features, flags, variables, ports.
#![cfg(all(feature = "server", feature = "cli"))]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLE: &str = "vayu-articles.example.toml";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every variable that the program takes.
fn variables() -> Vec<String> {
    let example = read(EXAMPLE);
    let named = example.split(|c: char| !(c.is_ascii_uppercase() || c == '_')).filter(|word| word.starts_with("VAYU_"));
    named.map(str::to_owned).chain(["VAYU_ADMIN_TOKEN".to_owned(), "VAYU_CONFIG".to_owned()]).collect()
}

/// The settings that the program would use with these arguments.
fn printed(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VAYU_")) {
        command.env_remove(name);
    }
    let output = command.args(args).arg("--print-config").output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_unit_starts_the_program_with_flags_that_it_has_and_waits_longer_than_a_stop_takes() {
    let unit = read("deploy/vayu-articles.service");
    let value = |key: &str| unit.lines().find_map(|line| line.strip_prefix(&format!("{key}="))).expect(key);
    let example = root().join(EXAMPLE);
    let line = value("ExecStart").replace("/etc/vayu-articles.toml", example.to_str().unwrap());
    let (program, args) = line.split_once(' ').unwrap();
    assert!(program.ends_with("/vayu-articles"));
    let settings = printed(&args.split(' ').collect::<Vec<_>>());
    assert!(settings.contains("data = \"/var/lib/vayu-articles\""), "{settings}");
    assert!(settings.contains("format = \"journal\""), "{settings}");
    assert_eq!((value("Type"), value("StateDirectory")), ("notify", "vayu-articles"));
    let budget = settings.lines().find_map(|line| line.strip_prefix("stop_budget = \"")?.split('s').next()).unwrap();
    let seconds = |text: &str| text.parse::<u64>().unwrap();
    assert!(seconds(value("TimeoutStopSec")) > seconds(budget), "systemd would kill a stop that is in time");
}

#[test]
fn the_dockerfile_copies_what_is_there_and_runs_as_nobody_special() {
    let file = read("deploy/Dockerfile");
    for line in file.lines().filter(|line| line.starts_with("COPY ") && !line.contains("--from")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for source in &words[1..words.len() - 1] {
            assert!(root().join(source).exists(), "{line}");
        }
    }
    // Whatever the library reads at build time has to be copied.
    let mut included = Vec::new();
    collect_includes(&root().join("src"), &mut included);
    for path in included {
        let top = path.split('/').next().unwrap().to_owned();
        assert!(file.contains(&format!("COPY {top} ")) || file.contains(&format!("{top} ./")), "{path} is not copied");
    }
    let manifest = read("Cargo.toml");
    let features = file.split("--features ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let features = features.filter(|list| *list != "\"$FEATURES\"");
    for feature in features.flat_map(|list| list.split(',')) {
        assert!(manifest.contains(&format!("\n{feature} = [")), "there is no feature {feature}");
    }
    assert!(manifest.contains("name = \"vayu-articles\"\npath = \"src/main.rs\""), "--bin vayu-articles");
    for part in ["\nUSER vayu\n", "\nHEALTHCHECK ", "/health/live", "\nSTOPSIGNAL SIGTERM\n"] {
        assert!(file.contains(part), "{part}");
    }
    let known = variables();
    for word in file.split(|c: char| !(c.is_ascii_uppercase() || c == '_')).filter(|word| word.starts_with("VAYU_")) {
        assert!(known.iter().any(|name| name == word), "there is no variable {word}");
    }
}

#[test]
fn the_proxies_point_to_where_the_program_listens_and_take_what_it_takes() {
    let example = read(EXAMPLE);
    let addr = example.lines().find_map(|line| line.strip_prefix("#addr = \"")?.strip_suffix('"')).unwrap();
    for file in ["deploy/Caddyfile", "deploy/nginx.conf"] {
        let text = read(file);
        assert!(text.contains(addr), "{file}");
        assert_eq!(text.matches('{').count(), text.matches('}').count(), "{file}");
        assert!(text.contains("/metrics") || text.contains("(metrics"), "{file} shows the metrics to everybody");
    }
    assert!(read("deploy/Caddyfile").contains("max_size 16MiB") && example.contains("#max_body = \"16MiB\""));
}

/// Paths, from the root, that `include_str!` and `include_bytes!` name.
fn collect_includes(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_includes(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for rest in
                text.split("include_str!(\"").chain(text.split("include_bytes!(\"")).filter(|r| r.starts_with(".."))
            {
                let relative = rest.split('"').next().unwrap();
                let mut at = path.parent().unwrap().to_owned();
                for part in relative.split('/') {
                    if part == ".." {
                        at.pop()
                    } else {
                        at.push(part);
                        true
                    };
                }
                assert!(at.exists(), "{}: {relative}", path.display());
                found.push(at.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
}

#[test]
fn varnish_points_to_where_the_program_listens_and_waits_less_for_a_page_than_the_second_purge() {
    let (vcl, example) = (read("deploy/varnish.vcl"), read(EXAMPLE));
    let value = |name: &str| {
        let line = example.lines().find_map(|line| line.strip_prefix(&format!("#{name} = \"")));
        line.and_then(|rest| rest.strip_suffix('"')).expect(name)
    };
    let (host, port) = value("addr").rsplit_once(':').unwrap();
    assert!(vcl.contains(&format!(".host = \"{host}\"")) && vcl.contains(&format!(".port = \"{port}\"")));
    let patience = vcl.split("set bereq.first_byte_timeout = ").nth(1).and_then(|rest| rest.split('s').next()).unwrap();
    let again = value("again").trim_end_matches('s');
    assert!(patience.parse::<u32>().unwrap() < again.parse().unwrap(), "an old page could come after the second purge");
    assert!(vcl.contains(&format!("beresp.http.{}", value("key_header"))));
}

#[test]
#[cfg(feature = "nats")]
fn the_compose_file_starts_what_there_is_with_variables_that_the_program_takes() {
    let text = read("deploy/compose.yaml");
    let file: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    let services = file["services"].as_object().unwrap();
    assert_eq!(services.keys().map(String::as_str).collect::<Vec<_>>(), ["broker", "server", "worker"]);
    let known = variables();
    for (name, service) in services {
        for variable in service["environment"].as_object().into_iter().flatten().map(|(variable, _)| variable) {
            assert!(variable == "<<" || known.contains(variable), "{name}: there is no variable {variable}");
        }
        for other in service["depends_on"].as_array().into_iter().flatten() {
            assert!(services.contains_key(other.as_str().unwrap()), "{name}: there is no service {other}");
        }
        for volume in service["volumes"].as_array().unwrap() {
            let volume = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(file["volumes"].as_object().unwrap().contains_key(volume), "{name}: there is no volume {volume}");
        }
    }
    let build = &services["server"]["build"];
    assert!(root().join("deploy").join(build["context"].as_str().unwrap()).join("Cargo.toml").exists());
    assert!(root().join(build["dockerfile"].as_str().unwrap()).exists());
    assert_eq!(build["args"]["FEATURES"], "nats");
    assert_eq!(services["worker"]["command"][0], "worker");
}

#[test]
#[cfg(feature = "nats")]
fn the_page_on_jetstream_lists_every_setting_of_broker_and_worker() {
    let page = read("docs/jetstream.md");
    let example = read(EXAMPLE);
    let variables = example.split(|c: char| !(c.is_ascii_uppercase() || c == '_'));
    let ours = ["VAYU_NATS", "VAYU_ORIGIN", "VAYU_WORKER", "VAYU_IN_FLIGHT", "VAYU_ACK_WAIT"];
    let flags: std::collections::BTreeSet<String> = variables
        .filter(|word| ours.iter().any(|start| word.starts_with(start)) && *word != "VAYU_WORKER_TOKEN")
        .map(|word| format!("--{}", word.trim_start_matches("VAYU_").to_lowercase().replace('_', "-")))
        .collect();
    assert!(flags.len() >= 18, "{flags:?}");
    for flag in flags {
        let named = [format!("`{flag}`"), format!("`{flag} ")].iter().any(|word| page.contains(word.as_str()));
        assert!(named, "docs/jetstream.md does not tell of {flag}");
    }
}
