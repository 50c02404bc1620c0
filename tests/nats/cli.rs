//! `serve --nats` and `worker` as users run them: two processes, a broker between them.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Server, wait_until};

const TOKEN: &str = "a-token-of-more-than-sixteen";

struct Process(Child);

impl Process {
    /// Started, and its first line of output that has `word` in it.
    fn start(arguments: &[&str], word: &str) -> (Self, String) {
        let mut child = program(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| line.ok().filter(|line| line.contains(word))).expect("it starts");
        std::thread::spawn(move || lines.for_each(drop));
        (Self(child), line)
    }

    /// SIGTERM; it ends with this code.
    fn stop(mut self, code: i32) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(code));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
    command.args(arguments).env("VAYU_ADMIN_TOKEN", TOKEN).env("VAYU_ORIGIN_TOKEN", TOKEN);
    command
}

fn output(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn finds(data: &str, word: &str) -> usize {
    let found = output(&["search", word, "--data", data]);
    String::from_utf8_lossy(&found.stdout).lines().count()
}

/// A server that publishes, and how to write to it.
struct Site {
    server: Process,
    origin: String,
    agent: ureq::Agent,
    bearer: String,
}

impl Site {
    fn start(data: &str, broker: &str) -> Self {
        let serve = ["serve", "--addr", "127.0.0.1:0", "--data", data, "--nats", broker, "--nats-partitions", "2"];
        let (server, line) = Process::start(&serve, "serves http");
        let origin = line.split_whitespace().find(|word| word.starts_with("http")).unwrap();
        let origin = origin.trim_end_matches('/').to_owned();
        Self { server, origin, agent: ureq::Agent::new_with_defaults(), bearer: format!("Bearer {TOKEN}") }
    }

    fn create(&self, title: &str, status: &str) -> Value {
        let article = json!({ "title": title, "content": "About herons.", "status": status }).to_string();
        let request = self.agent.post(format!("{}/api/v1/articles", self.origin));
        let request = request.header("Authorization", &self.bearer).header("Content-Type", "application/json");
        let mut answer = request.send(&article).unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }

    fn delete(&self, slug: &Value) {
        let request = self.agent.delete(format!("{}/api/v1/articles/{}", self.origin, slug.as_str().unwrap()));
        assert_eq!(request.header("Authorization", &self.bearer).call().unwrap().status().as_u16(), 204);
    }

    fn by_id(&self, id: &Value, with_token: bool) -> (u16, Value) {
        let request = self.agent.get(format!("{}/api/v1/articles/by-id/{}", self.origin, id.as_str().unwrap()));
        let request = if with_token { request.header("Authorization", &self.bearer) } else { request };
        let mut answer = request.config().http_status_as_error(false).build().call().unwrap();
        let body: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        (answer.status().as_u16(), body)
    }
}

#[test]
fn a_worker_searches_what_a_server_elsewhere_writes_and_no_longer_what_is_deleted() {
    let Some(broker) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (there, here) = (text(&folder.path().join("server")), text(&folder.path().join("worker")));
    let url = broker.url();
    let site = Site::start(&there, &url);
    let first = site.create("The first heron", "published");
    let draft = site.create("A heron in the making", "draft");
    let worker = ["worker", "--nats", &url, "--nats-partitions", "2", "--origin", &site.origin, "--data", &here];
    let (working, _) = Process::start(&worker, "works on");
    wait_until("the worker finds it", || finds(&here, "herons") == 1);
    site.create("The second heron", "published");
    wait_until("and the next", || finds(&here, "herons") == 2);

    // By id: what is published to all, what is a draft to who has a token, and a 404 that says what is not there.
    assert_eq!(site.by_id(&first["id"], false).1["content"], "About herons.");
    assert_eq!(site.by_id(&draft["id"], true).0, 200);
    for (status, body) in [site.by_id(&draft["id"], false), site.by_id(&json!("nobody"), true)] {
        assert_eq!((status, &body["error"]["field"]), (404, &json!("id")), "{body}");
    }
    site.delete(&first["slug"]);
    wait_until("and no longer what is deleted", || finds(&here, "herons") == 1);
    working.stop(0);
    site.server.stop(0);
}

#[test]
fn a_workers_dead_letters_are_listed_replayed_and_discarded_with_the_commands_of_the_outbox() {
    let Some(broker) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let here = text(&folder.path().join("worker"));
    // The origin is down: what is no event needs none.
    let url = broker.url();
    let arguments = ["worker", "--nats", &url, "--origin", "http://127.0.0.1:1", "--data", &here];
    let cdn = ["--worker-handlers", "cdn", "--cdn", "http://127.0.0.1:1/purge", "--site", "http://site.example"];
    let cdn = [&cdn[..], &["--cdn-again", "off"]].concat();
    let (working, _) = Process::start(&[&arguments[..], &cdn].concat(), "works on");
    let outbox = |arguments: &[&str]| {
        let all: Vec<&str> = ["outbox"].iter().chain(arguments).chain(&["--data", &here]).copied().collect();
        let ended = output(&all);
        (ended.status.success(), String::from_utf8(ended.stdout).unwrap())
    };
    wait_until("there is a stream", || broker.api("STREAM.INFO.VAYU_EVENTS", &Value::Null).get("config").is_some());
    for word in ["junk", "more junk"] {
        broker.publish_raw("vayu.events.x", &[], word.as_bytes());
    }
    let dead = || {
        let listed: Value = serde_json::from_str(&outbox(&["list", "--json", "--state", "dead_letter"]).1).unwrap();
        listed["exceptions"].as_array().unwrap().clone()
    };
    wait_until("both are dead letters", || dead().len() == 2);
    let name = |number: usize| dead()[number]["event_id"].as_str().unwrap().to_owned();
    let (first, second) = (name(0), name(1));
    assert!(first.starts_with("VAYU_EVENTS:1:") && second.starts_with("VAYU_EVENTS:2:"), "{first} {second}");
    assert_eq!(dead()[0]["payload"], json!("junk"));
    assert!(outbox(&["list", "--reason", "other"]).1.is_empty());
    assert!(outbox(&["stats"]).1.contains("cdn"));
    let tried = |event: &str, times: usize| {
        let (_, shown) = outbox(&["show", event]);
        shown.matches("  replay  ").count() == times && shown.contains("dead_letter  failed calls")
    };
    assert!(outbox(&["replay", "cdn", &first]).0);
    wait_until("the running worker tried it once more", || tried(&first, 1));
    assert!(outbox(&["replay", "cdn", "--all"]).0);
    wait_until("and both", || tried(&first, 2) && tried(&second, 1));
    for event in [&first, &second] {
        assert!(outbox(&["discard", "cdn", event, "--reason", "junk"]).0);
    }
    assert!(outbox(&["list"]).1.is_empty());
    assert!(!outbox(&["edit", "cdn", &first, "--payload", "1"]).0, "only what a ledger can do");
    working.stop(0);
}

#[test]
fn a_worker_without_a_broker_or_an_origin_is_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let data = text(&folder.path().join("worker"));
    let table: [(&[&str], &str); 5] = [
        (&[], "--nats"),
        (&["--nats", "nats://127.0.0.1:1"], "--origin"),
        (&["--nats", "nats://127.0.0.1:1", "--origin", "ftp://x"], "--origin"),
        (&["--nats", "http://127.0.0.1:1", "--origin", "http://x"], "servers"),
        (&["--nats", "nats://127.0.0.1:1", "--origin", "http://x", "--worker-handlers", "cdn"], "--cdn"),
    ];
    for (arguments, word) in table {
        let all: Vec<&str> = ["worker", "--data", &data].iter().chain(arguments).copied().collect();
        let ended = output(&all);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}
