//! `examples/webhook_receiver.rs` does what it says: believes what is signed, once.
#![cfg(feature = "sinks")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::json;
use vayu_articles::clock::{Clock, ManualClock, SystemClock};
use vayu_articles::outbox::{DispatchError, Event, Handler, NewEvent};
use vayu_articles::sinks::webhook::{Webhook, WebhookOptions};

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
const OTHER: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

struct Example {
    child: Child,
    lines: Receiver<String>,
    address: String,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Example {
    fn start() -> Self {
        let mut command = Command::new(binary());
        command.arg("127.0.0.1:0").env("WEBHOOK_SECRET", SECRET).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut example = Self { child, lines, address: String::new() };
        let line = example.line();
        example.address =
            line.strip_prefix("listening on http://").expect("an address").trim_end_matches('/').to_owned();
        example
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(SOON).expect("a line")
    }

    /// How it answers `request`, up to the end of the connection.
    fn answer(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(SOON)).expect("timeout");
        stream.write_all(request).expect("writes");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).expect("answers");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn sender(&self, secret: &str, now_ms: i64) -> Webhook {
        let secret = secret.parse().expect("a secret");
        let mut options = WebhookOptions::new("receiver", format!("http://{}/", self.address), [secret]);
        options.allow_private = true;
        Webhook::new(options, Arc::new(ManualClock::new(now_ms))).expect("good settings")
    }
}

fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let binary = profile.join("examples").join(format!("webhook_receiver{}", std::env::consts::EXE_SUFFIX));
    if !binary.exists() {
        // A run of this test alone builds no examples.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let build = ["build", "--locked", "--quiet", "--all-features", "--example", "webhook_receiver"];
        let built = Command::new(cargo).args(build).status();
        assert!(built.is_ok_and(|status| status.success()), "the example does not build");
    }
    binary
}

fn event() -> Event {
    let mut event = NewEvent::new("article.created.v1", &json!({ "slug": "heron" })).expect("JSON").key("a-1");
    event.event_id = "e-1".to_owned();
    event.into_event(1)
}

#[test]
fn it_believes_what_is_signed_once_and_refuses_the_rest() {
    let example = Example::start();
    let now = SystemClock.now_ms();
    let sender = example.sender(SECRET, now);
    sender.handle(&event()).expect("delivered");
    let what = format!(r#"id=e-1 timestamp={} type="article.created.v1" subject="a-1""#, now / 1_000);
    assert_eq!(example.line(), format!(r#"event: {what} data={{"slug":"heron"}}"#));
    sender.handle(&event()).expect("delivered before");
    assert_eq!(example.line(), format!("already had: {what}"));

    for (secret, now_ms, why) in
        [(OTHER, now, "no signature fits"), (SECRET, now - 400_000, "s old"), (SECRET, now + 400_000, "s old")]
    {
        let error = example.sender(secret, now_ms).handle(&event()).expect_err("refused");
        assert!(matches!(error, DispatchError::Unavailable { .. }), "an operator's fault, no event's: {error}");
        assert!(error.to_string().contains("401") && error.to_string().contains(why), "{error}");
        assert!(example.line().contains(why));
    }

    let mut long = b"POST / HTTP/1.1\r\nx: ".to_vec();
    long.resize(16 << 10, b'x');
    for (request, status) in [
        (&b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"[..], "401"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "405"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", "413"),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "411"),
        (&long, "400"),
    ] {
        assert_eq!(example.answer(request), format!("HTTP/1.1 {status}"));
    }

    let mut again = event();
    (again.forced, again.replays) = (true, 1);
    sender.handle(&again).expect("delivered");
    let lines = std::iter::repeat_with(|| example.line());
    let line = lines.take(10).find(|line| line.starts_with("event:")).expect("a forced replay is a message of its own");
    assert!(line.contains(" id=e-1:r1 "), "{line}");
}

#[test]
fn without_a_secret_it_says_what_to_set() {
    for (secret, part) in
        [(None, "set the variable WEBHOOK_SECRET"), (Some("x"), "WEBHOOK_SECRET must begin with whsec_")]
    {
        let mut command = Command::new(binary());
        command.arg("127.0.0.1:0").env_remove("WEBHOOK_SECRET").envs(secret.map(|secret| ("WEBHOOK_SECRET", secret)));
        let ended = command.output().expect("runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success() && said.starts_with("webhook_receiver: ") && said.contains(part), "{said}");
        assert!(!said.contains("Error"), "as a sentence: {said}");
    }
}
