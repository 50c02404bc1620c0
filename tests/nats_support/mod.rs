//! A real broker of the test's own: Debian's `nats-server`, started on a free port, killed and started again by its id.
#![allow(dead_code)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use serde_json::{Value, json};

/// No wait of these tests is longer; none is as long unless something is broken.
pub const LONG: Duration = Duration::from_secs(120);

pub struct Server {
    port: u16,
    folder: tempfile::TempDir,
    config: Option<PathBuf>,
    child: Option<Child>,
}

impl Server {
    /// `None` where there is no nats-server, unless services are required.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// With these lines in a configuration file.
    pub fn start_with(lines: &str) -> Option<Self> {
        if Command::new("nats-server").arg("--version").output().is_err() {
            let required = std::env::var("REQUIRE_SERVICES").is_ok_and(|value| value == "1");
            assert!(!required, "nats-server is required and not installed");
            eprintln!("skipped: nats-server is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let config = (!lines.is_empty()).then(|| {
            let path = folder.path().join("server.conf");
            std::fs::write(&path, lines).unwrap();
            path
        });
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut server = Self { port, folder, config, child: None };
        server.up();
        Some(server)
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// On the same port and storage.
    pub fn up(&mut self) {
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]).arg(self.folder.path());
        if let Some(config) = &self.config {
            command.arg("-c").arg(config);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        wait_until("the broker listens", || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn storage(&self) -> &Path {
        self.folder.path()
    }

    /// Asks JetStream's API.
    pub fn api(&self, call: &str, payload: &Value) -> Value {
        self.api_as("", call, payload)
    }

    /// As this user, whose password is its name.
    pub fn api_as(&self, user: &str, call: &str, payload: &Value) -> Value {
        runtime().block_on(async {
            let client = connect(&self.url(), user).await;
            let body = if payload.is_null() { Vec::new() } else { payload.to_string().into_bytes() };
            let answer = client.request(format!("$JS.API.{call}"), body.into()).await.unwrap();
            serde_json::from_slice(&answer.payload).unwrap()
        })
    }

    pub fn messages_in(&self, stream: &str) -> u64 {
        let info = self.api(&format!("STREAM.INFO.{stream}"), &Value::Null);
        info["state"]["messages"].as_u64().unwrap_or(0)
    }

    /// Everything in a stream, in its order: subject, message id, body.
    pub fn read(&self, stream: &str) -> Vec<Stored> {
        let count = self.messages_in(stream);
        runtime().block_on(async {
            let client = connect(&self.url(), "").await;
            let inbox = client.new_inbox();
            let mut messages = client.subscribe(inbox.clone()).await.unwrap();
            let config = json!({ "stream_name": stream, "config": {
                "deliver_subject": inbox, "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant",
            }});
            let call = format!("$JS.API.CONSUMER.CREATE.{stream}");
            client.request(call, config.to_string().into()).await.unwrap();
            let mut stored = Vec::new();
            while (stored.len() as u64) < count {
                let message = tokio::time::timeout(LONG, messages.next()).await.expect("in time").unwrap();
                let id = message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id"));
                stored.push(Stored {
                    subject: message.subject.to_string(),
                    id: id.map(ToString::to_string).unwrap_or_default(),
                    body: serde_json::from_slice(&message.payload).unwrap_or_default(),
                });
            }
            stored
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[derive(Debug, Clone)]
pub struct Stored {
    pub subject: String,
    pub id: String,
    pub body: Value,
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn connect(url: &str, user: &str) -> async_nats::Client {
    let begun = Instant::now();
    loop {
        let options = match user {
            "" => async_nats::ConnectOptions::new(),
            user => async_nats::ConnectOptions::with_user_and_password(user.to_owned(), user.to_owned()),
        };
        match options.connect(url).await {
            Ok(client) => return client,
            Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
