//! A real broker of the test's own: Debian's `nats-server`, started on a free port, killed and started again by its id.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use log::{LevelFilter, Log, Metadata, Record};
use serde_json::{Value, json};

pub use crate::waiting::wait_until;

/// No wait of these tests is longer; none is as long unless something is broken.
pub const LONG: Duration = Duration::from_secs(120);

pub struct Server {
    port: u16,
    folder: tempfile::TempDir,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// `None` where there is no nats-server, unless services are required.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// With these lines in a configuration file.
    pub fn start_with(lines: &str) -> Option<Self> {
        let mut server = Self::prepare(lines)?;
        server.arguments.push("-js".to_owned());
        server.up();
        Some(server)
    }

    /// Without streams.
    pub fn start_without_jetstream() -> Option<Self> {
        let mut server = Self::prepare("")?;
        server.up();
        Some(server)
    }

    /// From now on with streams.
    pub fn restart_with_jetstream(&mut self) {
        self.kill();
        self.arguments.push("-js".to_owned());
        self.up();
    }

    fn prepare(lines: &str) -> Option<Self> {
        if Command::new("nats-server").arg("--version").output().is_err() {
            let required = std::env::var("REQUIRE_SERVICES").is_ok_and(|value| value == "1");
            assert!(!required, "nats-server is required and not installed");
            eprintln!("skipped: nats-server is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut arguments = Vec::new();
        if !lines.is_empty() {
            let path = folder.path().join("server.conf");
            std::fs::write(&path, lines).unwrap();
            arguments.extend(["-c".to_owned(), path.to_str().unwrap().to_owned()]);
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Self { port, folder, arguments, child: None })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub fn url_as(&self, login: &str) -> String {
        format!("nats://{login}@127.0.0.1:{}", self.port)
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
        command.args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"]).arg(self.folder.path());
        command.args(&self.arguments).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().unwrap());
        wait_until("the broker listens", || std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
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

    /// Publishes as anybody may, with these headers, and waits until a stream has it.
    pub fn publish_raw(&self, subject: &str, headers: &[(&str, &str)], body: &[u8]) -> Value {
        runtime().block_on(async {
            let client = connect(&self.url(), "").await;
            let mut map = async_nats::HeaderMap::new();
            headers.iter().for_each(|(name, value)| map.insert(*name, *value));
            let begun = Instant::now();
            let answer = loop {
                let sent = client.request_with_headers(subject.to_owned(), map.clone(), body.to_vec().into());
                match sent.await {
                    Ok(answer) => break answer,
                    // A stream that somebody makes at this moment is there before it takes messages.
                    Err(error) => assert!(begun.elapsed() < LONG, "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            let ack: Value = serde_json::from_slice(&answer.payload).unwrap();
            assert!(ack.get("seq").is_some(), "{ack}");
            ack
        })
    }

    /// Makes a consumer whose messages nobody acknowledges, and waits until the broker has brought one this many times
    /// again: once per second, so that much time has passed for it.
    pub fn wait_for_redeliveries(&self, name: &str, times: u64) {
        let stream = "VAYU_EVENTS";
        let config = json!({ "stream_name": stream, "config": {
            "durable_name": name, "ack_policy": "explicit", "ack_wait": 1_000_000_000, "max_ack_pending": 1,
            "deliver_policy": "all", "replay_policy": "instant",
        }});
        let made = self.api(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &config);
        assert!(made.get("error").is_none(), "{made}");
        runtime().block_on(async {
            let client = connect(&self.url(), "").await;
            let inbox = client.new_inbox();
            let mut messages = client.subscribe(inbox.clone()).await.unwrap();
            for _ in 0..=times {
                let ask = json!({ "batch": 1, "expires": u64::try_from(LONG.as_nanos()).unwrap() }).to_string();
                let call = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
                client.publish_with_reply(call, inbox.clone(), ask.into()).await.unwrap();
                tokio::time::timeout(LONG, messages.next()).await.expect("in time").unwrap();
            }
        });
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

/// A process that somebody is about to kill.
pub fn await_death() -> ! {
    loop {
        std::thread::park();
    }
}

/// Holds whoever comes until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Door>, Condvar)>);

#[derive(Default)]
struct Door {
    open: bool,
    waiting: usize,
}

impl Gate {
    pub fn pass(&self) {
        let (door, moved) = &*self.0;
        let mut door = door.lock().unwrap();
        door.waiting += 1;
        moved.notify_all();
        let (mut door, late) = moved.wait_timeout_while(door, LONG, |door| !door.open).unwrap();
        assert!(!late.timed_out(), "nobody opens the gate");
        door.waiting -= 1;
    }

    /// Until so many wait at it.
    pub fn wait_for(&self, count: usize) {
        let (door, moved) = &*self.0;
        let waited = moved.wait_timeout_while(door.lock().unwrap(), LONG, |door| door.waiting < count).unwrap();
        assert!(!waited.1.timed_out(), "{} of {count} wait at the gate", waited.0.waiting);
    }

    pub fn open(&self) {
        let (door, moved) = &*self.0;
        door.lock().unwrap().open = true;
        moved.notify_all();
    }
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("vayu_articles")
    }
    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            LINES.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
        }
    }
    fn flush(&self) {}
}

/// Keeps what is logged from now on.
pub fn record_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Recorder).unwrap();
        log::set_max_level(LevelFilter::Info);
    });
}

/// The lines so far that hold `what`; other tests log, too.
pub fn logged(what: &str) -> Vec<String> {
    LINES.lock().unwrap().iter().filter(|line| line.contains(what)).cloned().collect()
}
