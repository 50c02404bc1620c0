//! `serve --nats` and `worker` as users run them: two processes, a broker between them.
#![cfg(all(unix, feature = "nats", feature = "server", feature = "cli"))]

mod nats_support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use nats_support::{Server, wait_until};
use serde_json::{Value, json};

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

#[test]
fn a_worker_searches_what_a_server_elsewhere_writes_and_its_dead_letters_have_the_same_commands() {
    let Some(broker) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (there, here) = (text(&folder.path().join("server")), text(&folder.path().join("worker")));
    let url = broker.url();
    let serve = ["serve", "--addr", "127.0.0.1:0", "--data", &there, "--nats", &url, "--nats-partitions", "2"];
    let (server, line) = Process::start(&serve, "serves http");
    let origin =
        line.split_whitespace().find(|word| word.starts_with("http")).unwrap().trim_end_matches('/').to_owned();
    let agent = ureq::Agent::new_with_defaults();
    let bearer = format!("Bearer {TOKEN}");
    let create = |title: &str, draft: bool| -> Value {
        let status = if draft { "draft" } else { "published" };
        let article = json!({ "title": title, "content": "About herons.", "status": status }).to_string();
        let answer = agent
            .post(format!("{origin}/api/v1/articles"))
            .header("Authorization", &bearer)
            .header("Content-Type", "application/json")
            .send(&article);
        serde_json::from_str(&answer.unwrap().body_mut().read_to_string().unwrap()).unwrap()
    };
    let first = create("The first heron", false);
    let draft = create("A heron in the making", true);

    let worker = ["worker", "--nats", &url, "--nats-partitions", "2", "--origin", &origin, "--data", &here];
    let (working, _) = Process::start(&worker, "works on");
    wait_until("the worker finds it", || finds(&here, "herons") == 1);
    create("The second heron", false);
    wait_until("and the next", || finds(&here, "herons") == 2);

    // By id: what is published to all, what is a draft to who has a token, and a 404 that says what is not there.
    let ask = |id: &Value, token: bool| {
        let id = id.as_str().unwrap();
        let request = agent.get(format!("{origin}/api/v1/articles/by-id/{id}"));
        let request = if token { request.header("Authorization", &bearer) } else { request };
        let mut answer = request.config().http_status_as_error(false).build().call().unwrap();
        let body: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
        (answer.status().as_u16(), body)
    };
    assert_eq!(ask(&first["id"], false).1["content"], "About herons.");
    assert_eq!(ask(&draft["id"], true).0, 200);
    for (status, body) in [ask(&draft["id"], false), ask(&json!("nobody"), true)] {
        assert_eq!((status, &body["error"]["field"]), (404, &json!("id")), "{body}");
    }

    let gone = agent
        .delete(format!("{origin}/api/v1/articles/{}", first["slug"].as_str().unwrap()))
        .header("Authorization", &bearer)
        .call();
    assert_eq!(gone.unwrap().status().as_u16(), 204);
    wait_until("and no longer what is deleted", || finds(&here, "herons") == 1);

    // What can never be run is listed and replayed with the commands of the outbox.
    nats_support::runtime().block_on(async {
        let client = async_nats::connect(broker.url()).await.unwrap();
        client.request("vayu.events.0.x", "junk".into()).await.unwrap();
    });
    let list = |arguments: &[&str]| {
        let all: Vec<&str> = ["outbox", "list", "--data", &here].iter().chain(arguments).copied().collect();
        String::from_utf8(output(&all).stdout).unwrap()
    };
    wait_until("it is a dead letter", || list(&[]).contains("dead_letter"));
    let listed: Value = serde_json::from_str(&list(&["--json", "--state", "dead_letter"])).unwrap();
    let event = listed["exceptions"][0]["event_id"].as_str().unwrap().to_owned();
    assert_eq!(listed["exceptions"][0]["payload"], "junk", "{listed}");
    assert!(list(&["--reason", "other"]).is_empty());
    let replayed = output(&["outbox", "replay", "search", &event, "--data", &here]);
    assert!(replayed.status.success(), "{replayed:?}");
    let again = || {
        let shown = output(&["outbox", "show", &event, "--data", &here]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        shown.contains("replay") && shown.contains("dead_letter  failed calls")
    };
    wait_until("the running worker tried it once more", again);
    let discarded = output(&["outbox", "discard", "search", &event, "--reason", "junk", "--data", &here]);
    assert!(discarded.status.success(), "{discarded:?}");
    assert!(list(&[]).is_empty());

    working.stop(0);
    server.stop(0);
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
