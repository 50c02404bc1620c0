//! The program's answers against its own description, by a public fuzzer: schemathesis.
//!
//! It makes up valid and invalid requests from `/api/v1/openapi.json` and checks statuses, schemas, headers, what is
//! accepted and what refused, and chains of requests. What counts as no fault stands in `tests/contract_fuzz`.
#![cfg(all(unix, feature = "server", feature = "cli"))]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const TOKEN: &str = "the-token-of-these-tests";
/// Requests per operation and phase.
const EXAMPLES: &str = "15";
const SEED: &str = "1";

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(data: &Path, log: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vayu-articles"))
            .args(["--log", "warn", "serve", "--addr", "127.0.0.1:0", "--data"])
            .arg(data)
            .env("VAYU_ADMIN_TOKEN", TOKEN)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let url = loop {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "no address: {}", fs::read_to_string(log).unwrap());
            if let Some((_, rest)) = line.split_once("serves http://") {
                break format!("http://{}", rest.split('/').next().unwrap());
            }
        };
        // Keep the pipe drained, so that the program never blocks on it.
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_server_keeps_to_its_description_whatever_a_fuzzer_sends() {
    if Command::new("schemathesis").arg("--version").output().is_err() {
        let wanted = std::env::var_os("REQUIRE_SERVICES").is_some();
        assert!(!wanted, "schemathesis is missing: pip install schemathesis");
        eprintln!("SKIPPED: schemathesis is not installed (pip install schemathesis)");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let server = Server::start(&folder.path().join("data"), &log);
    // It leaves files beside its settings, which the sources should not get.
    let settings = folder.path().join("settings");
    fs::create_dir(&settings).unwrap();
    for name in ["schemathesis.toml", "hooks.py"] {
        fs::copy(Path::new("tests/contract_fuzz").join(name), settings.join(name)).unwrap();
    }
    let run = Command::new("schemathesis")
        .args(["--config-file", "schemathesis.toml", "run", &format!("{}/api/v1/openapi.json", server.url)])
        .args(["-H", &format!("Authorization: Bearer {TOKEN}"), "--max-examples", EXAMPLES, "--seed", SEED])
        .args(["--no-color", "--continue-on-failure", "--generation-database", "none"])
        .current_dir(&settings)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let log = fs::read_to_string(&log).unwrap();
    assert!(run.status.success(), "{said}\n{}\nlog:\n{log}", String::from_utf8_lossy(&run.stderr));
    assert!(said.contains("Stateful"), "every phase ran: {said}");
    assert!(!log.contains("panic"), "{log}");
}
