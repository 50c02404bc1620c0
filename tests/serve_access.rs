//! The program's tokens from outside: where they come from, who learns them, and what takes effect when.
#![cfg(all(unix, feature = "server", feature = "cli"))]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const TOKEN: &str = "a-token-somebody-chose";

fn program(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
    for name in
        ["VAYU_LOG", "VAYU_ADDR", "VAYU_CDN", "VAYU_SITE", "VAYU_CDN_TOKEN", "VAYU_ADMIN_TOKEN", "VAYU_TOKEN_FILE"]
    {
        command.env_remove(name);
    }
    command.args(args).env("VAYU_DATA", dir.join("data")).stdin(Stdio::null()).current_dir(dir);
    command
}

fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = program(dir, args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

struct Server {
    child: Child,
    url: String,
    printed: String,
}

impl Server {
    /// Starts it and reads what it prints until it says how to stop it.
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        while !printed.contains("Ctrl-C stops it.") {
            if out.read_line(&mut printed).unwrap() == 0 {
                let ended = child.wait_with_output().unwrap();
                panic!("{printed}{}", String::from_utf8_lossy(&ended.stderr));
            }
        }
        let (_, rest) = printed.split_once("serves http://").unwrap();
        let url = format!("http://{}", rest.split_once('/').unwrap().0);
        Self { child, url, printed }
    }

    fn status(&self, token: Option<&str>) -> u16 {
        let mut request = ureq::get(format!("{}/api/v1/articles?status=all", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        match request.call() {
            Ok(answer) => answer.status().as_u16(),
            Err(ureq::Error::StatusCode(status)) => status,
            Err(error) => panic!("{error}"),
        }
    }

    /// Stops it; all it wrote to its log.
    fn stop(mut self) -> String {
        let killed = Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        assert!(killed.success());
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{log}");
        log
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_first_start_makes_a_token_and_prints_its_place_but_never_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(program(dir.path(), &["serve", "--addr", "127.0.0.1:0", "--log", "trace"]));
    let file = dir.path().join("data/admin.token");
    let token = fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(token.len() >= 40 && server.printed.contains(file.to_str().unwrap()), "{}", server.printed);
    assert_eq!(server.status(Some(&token)), 200);
    assert_eq!((server.status(None), server.status(Some("wrong"))), (401, 401));
    let printed = server.printed.clone();
    let log = server.stop();
    assert!(!printed.contains(&token) && !log.contains(&token) && !log.contains("wrong"), "{printed}{log}");

    let again = Server::start(program(dir.path(), &["serve", "--addr", "127.0.0.1:0"]));
    assert_eq!(again.status(Some(&token)), 200, "a restart keeps it");
    again.stop();
}

#[test]
fn what_is_printed_to_try_works_as_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(program(dir.path(), &["serve", "--addr", "127.0.0.1:0"]));
    let lines = server.printed.replace("\\\n", " ");
    let curls: Vec<&str> = lines.lines().map(str::trim).filter(|line| line.starts_with("curl ")).collect();
    let statuses: Vec<String> = curls
        .iter()
        .map(|curl| {
            let quiet = format!("{curl} -sS -o /dev/null -w '%{{http_code}}'");
            let ran = Command::new("sh").args(["-c", &quiet]).output().unwrap();
            String::from_utf8(ran.stdout).unwrap()
        })
        .collect();
    assert_eq!(statuses, ["200", "201", "200", "204"], "{curls:?}");
    server.stop();
}

#[test]
fn tokens_are_added_and_removed_while_the_server_runs() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(program(dir.path(), &["serve", "--addr", "127.0.0.1:0"]));
    let (code, pen, said) = run(dir.path(), &["tokens", "add", "pen"]);
    assert_eq!((code, pen.lines().count()), (Some(0), 1), "{said}");
    assert_eq!(server.status(Some(pen.trim())), 200);
    let (_, listed, _) = run(dir.path(), &["tokens", "list"]);
    assert!(listed.contains("pen") && listed.contains("write") && !listed.contains(pen.trim()), "{listed}");
    assert_eq!(fs::metadata(dir.path().join("data/tokens.json")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(run(dir.path(), &["tokens", "add", "pen"]).0, Some(1), "the name is taken");
    assert_eq!(run(dir.path(), &["tokens", "add", "admin"]).0, Some(2));
    assert_eq!(run(dir.path(), &["tokens", "remove", "pen"]).0, Some(0));
    assert_eq!(server.status(Some(pen.trim())), 401);
    assert_eq!(run(dir.path(), &["tokens", "remove", "pen"]).0, Some(1));
    server.stop();
}

#[test]
fn an_address_that_others_can_reach_needs_a_token_that_somebody_set() {
    let dir = tempfile::tempdir().unwrap();
    let open = ["serve", "--addr", "0.0.0.0:0"];
    let (code, _, said) = run(dir.path(), &open);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("VAYU_ADMIN_TOKEN") && said.contains("--token-file"), "{said}");
    assert!(!dir.path().join("data/admin.token").exists());

    let mut given = program(dir.path(), &open);
    given.env("VAYU_ADMIN_TOKEN", TOKEN);
    let server = Server::start(given);
    assert!(!server.printed.contains(TOKEN) && server.printed.contains("$VAYU_ADMIN_TOKEN"), "{}", server.printed);
    server.stop();

    run(dir.path(), &["tokens", "add", "boss", "--role", "admin"]);
    Server::start(program(dir.path(), &open)).stop();
    assert!(!dir.path().join("data/admin.token").exists(), "there is an administrator already");
}

#[test]
fn a_token_file_is_read_anew_when_it_changes_and_a_bad_setting_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("secret");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let serve = ["serve", "--addr", "127.0.0.1:0", "--token-file", "secret"];
    let server = Server::start(program(dir.path(), &serve));
    assert_eq!(server.status(Some(TOKEN)), 200);
    fs::write(&file, "another-token-somebody-chose\n").unwrap();
    assert_eq!((server.status(Some(TOKEN)), server.status(Some("another-token-somebody-chose"))), (401, 200));
    server.stop();

    let mut both = program(dir.path(), &serve);
    assert_eq!(both.env("VAYU_ADMIN_TOKEN", TOKEN).output().unwrap().status.code(), Some(2));
    let mut weak = program(dir.path(), &["serve", "--addr", "127.0.0.1:0"]);
    let weak = weak.env("VAYU_ADMIN_TOKEN", "guess-me").output().unwrap();
    let said = String::from_utf8(weak.stderr).unwrap();
    assert!(weak.status.code() == Some(1) && !said.contains("guess-me") && said.contains("16"), "{said}");
    fs::remove_file(&file).unwrap();
    let (code, _, said) = run(dir.path(), &serve);
    assert!(code == Some(1) && said.contains("secret"), "{said}");
}
