//! The program over a data folder of its own, and as a server on a free port.
#![allow(dead_code, reason = "each test program uses a part")]

#[path = "../waiting/mod.rs"]
pub mod waiting;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::Value;
use vayu_articles::rusqlite::Connection;
#[allow(unused_imports, reason = "each test program uses a part")]
pub use waiting::{LONG, wait_or, wait_until};

/// The administrator's token of every server here.
pub const TOKEN: &str = "test-token-0123456789abcdef0123456789";

/// A folder with everything that one test needs.
pub struct Place {
    folder: tempfile::TempDir,
    pub agent: ureq::Agent,
}

impl Place {
    pub fn new() -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LONG));
        Self { folder: tempfile::tempdir().unwrap(), agent: config.build().into() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// The program, without the settings of whoever runs the tests.
    pub fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("VAYU_") {
                command.env_remove(name);
            }
        }
        command.env("VAYU_DATA", self.data()).env("VAYU_LOG", "info").env("VAYU_ADMIN_TOKEN", TOKEN);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// The program below a shell that has run `first`, which sets limits.
    pub fn limited(&self, first: &str, args: &[&str]) -> Command {
        let program = self.program();
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]).arg(program.get_program()).args(args);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.current_dir(self.folder.path()).stdin(Stdio::null());
        shell
    }

    /// Runs a command to its end; the exit code and what it said.
    pub fn run(&self, args: &[&str]) -> (i32, String) {
        let output = self.program().args(args).output().unwrap();
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
        (output.status.code().unwrap(), said)
    }

    pub fn count(&self, sql: &str) -> i64 {
        let database = Connection::open(self.data().join("articles.db")).unwrap();
        database.busy_timeout(LONG).unwrap();
        database.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub fn send(&self, method: &str, url: &str, body: &str) -> (u16, String) {
        self.try_send(method, url, body).unwrap()
    }

    /// The error is that of the connection.
    fn try_send(&self, method: &str, url: &str, body: &str) -> Result<(u16, String), ureq::Error> {
        let request = ureq::http::Request::builder().method(method).uri(url);
        let request = request.header("Authorization", format!("Bearer {TOKEN}")).body(body.to_owned()).unwrap();
        let mut answer = self.agent.run(request)?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }

    pub fn get(&self, server: &Server, path: &str) -> (u16, String) {
        self.send("GET", &format!("{}{path}", server.url), "")
    }

    pub fn post(&self, server: &Server, article: &Value) -> (u16, String) {
        self.send("POST", &format!("{}/api/v1/articles", server.url), &article.to_string())
    }

    /// [`post`](Self::post) to a server that may go meanwhile; `None` if the connection was refused or cut.
    pub fn try_post(&self, server: &Server, article: &Value) -> Option<(u16, Value)> {
        let url = format!("{}/api/v1/articles", server.url);
        let (status, body) = self.try_send("POST", &url, &article.to_string()).ok()?;
        Some((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
    }

    pub fn patch(&self, server: &Server, slug: &str, patch: &Value) -> (u16, String) {
        self.send("PATCH", &format!("{}/api/v1/articles/{slug}", server.url), &patch.to_string())
    }

    /// The slugs of what is found.
    pub fn found(&self, server: &Server, word: &str) -> Vec<String> {
        let (status, body) = self.get(server, &format!("/api/v1/search?q={word}"));
        assert_eq!(status, 200, "{body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        body["items"].as_array().unwrap().iter().map(|hit| hit["slug"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until every lane has passed the newest event.
    pub fn delivered(&self, server: &Server) {
        let behind = "SELECT count(*) FROM lanes WHERE cursor < (SELECT coalesce(max(id), 0) FROM event_outbox)";
        self.wait_until(|| self.count(behind) == 0, server);
    }

    pub fn wait_until(&self, so: impl FnMut() -> bool, server: &Server) {
        wait_or(so, || server.log_text());
    }

    pub fn stop(&self, mut server: Server) {
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
    }
}

/// A running `serve`.
pub struct Server {
    pub url: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts the program on a free port and returns once it has said where it listens.
    pub fn start(place: &Place, args: &[&str]) -> Self {
        let mut command = place.program();
        command.args(["serve", "--addr", "127.0.0.1:0"]).args(args);
        Self::start_as(place, command)
    }

    pub fn start_as(place: &Place, mut command: Command) -> Self {
        let log = place.path("log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let url = loop {
            line.clear();
            if out.read_line(&mut line).unwrap() == 0 {
                let _ = child.kill();
                panic!("it ended without an address; log:\n{}", fs::read_to_string(&log).unwrap());
            }
            if let Some((_, rest)) = line.split_once("serves ") {
                break rest.split_whitespace().next().unwrap().trim_end_matches('/').to_owned();
            }
        };
        // Keep the pipe drained, so that the program never blocks on it.
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        Self { url, child, log }
    }

    /// Host and port, for a socket.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        let (mut ended, child, log) = (None, &mut self.child, &self.log);
        let has_ended = || {
            ended = child.try_wait().unwrap();
            ended.is_some()
        };
        wait_or(has_ended, || format!("it does not end; log:\n{}", fs::read_to_string(log).unwrap()));
        ended.unwrap()
    }

    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
