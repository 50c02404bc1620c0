//! A receiver of webhooks with nothing but the standard library and [`verify`]: it trusts what is signed, does each message
//! once, and answers at once.
//!
//! ```sh
//! export WEBHOOK_SECRET="whsec_$(openssl rand -base64 32)"
//! cargo run --example webhook_receiver -- 127.0.0.1:9000
//! ```
//!
//! Name `http://127.0.0.1:9000/` and the same secret in the file that `serve --webhooks` is given (docs/webhooks.md), write an
//! article, and see its events. While a secret is changed, put both into the variable, separated by a space.
//!
//! What it answers: 204 for what is done, also if it was done before; 401 for what is not signed or too old; 4xx for what is no
//! such request. A receiver of yours does its work, or puts it into a queue of its own, before it answers 204: then nothing is lost.

use std::collections::{HashSet, VecDeque};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use vayu_articles::sinks::webhook::{Received, Secret, verify};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An event's payload has 1 MiB at most.
const BODY_MAX: usize = 2 << 20;
const HEAD_MAX: u64 = 16 << 10;
const CONNECTIONS_MAX: usize = 32;
/// How long a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// A message may be sent again after hours: remember as many as may come in such a time, better in a database.
const REMEMBERED: usize = 100_000;

const NO_SECRET: &str = "set the variable WEBHOOK_SECRET to the secret of the webhooks file (whsec_...); to make one: \
                         export WEBHOOK_SECRET=\"whsec_$(openssl rand -base64 32)\"";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("webhook_receiver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), BoxError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9000".to_owned());
    let secrets = std::env::var("WEBHOOK_SECRET").unwrap_or_default();
    let secrets = secrets.split_whitespace().map(str::parse).collect::<Result<Vec<Secret>, _>>();
    let secrets = secrets.map_err(|error| format!("WEBHOOK_SECRET {error}"))?;
    if secrets.is_empty() {
        return Err(NO_SECRET.into());
    }
    let listener = TcpListener::bind(&address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    println!("listening on http://{}/", listener.local_addr()?);
    let receiver = Arc::new(Receiver { secrets, seen: Mutex::default(), connections: AtomicUsize::new(0) });
    for stream in listener.incoming() {
        let (stream, receiver) = (stream?, receiver.clone());
        // Beyond that they are closed, and come again.
        if receiver.connections.fetch_add(1, Ordering::Relaxed) < CONNECTIONS_MAX {
            thread::spawn(move || receiver.serve(stream));
        } else {
            receiver.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

struct Receiver {
    secrets: Vec<Secret>,
    seen: Mutex<Seen>,
    connections: AtomicUsize,
}

/// The ids of messages that are done, the oldest forgotten first.
#[derive(Default)]
struct Seen {
    ids: HashSet<String>,
    order: VecDeque<String>,
}

/// One request. Headers with lower-case names.
struct Request {
    method: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A status, and why.
struct Refusal(&'static str, String);

impl Receiver {
    fn serve(&self, stream: TcpStream) {
        if let Err(error) = self.answer_all(stream) {
            eprintln!("connection: {error}");
        }
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Answers one request after the other, until the sender has no more.
    fn answer_all(&self, mut stream: TcpStream) -> Result<(), BoxError> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let done = match read(&mut reader) {
                Ok(None) => return Ok(()),
                Ok(Some(request)) => self.take(&request),
                Err(refusal) => {
                    // What follows is not known to be a request.
                    let Refusal(status, reason) = refusal;
                    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
                    return Err(reason.into());
                }
            };
            match done {
                Ok(()) => stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?,
                Err(Refusal(status, reason)) => {
                    println!("refused: {reason}");
                    let length = reason.len();
                    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{reason}")?;
                }
            }
        }
    }

    fn take(&self, request: &Request) -> Result<(), Refusal> {
        if request.method != "POST" {
            return Err(Refusal("405 Method Not Allowed", "webhooks are posted".to_owned()));
        }
        let id = request.header("webhook-id");
        let received = Received {
            id,
            timestamp: request.header("webhook-timestamp"),
            signature: request.header("webhook-signature"),
            body: &request.body,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        verify(&received, &self.secrets, now_ms).map_err(|error| Refusal("401 Unauthorized", error.to_string()))?;
        let event: Value = serde_json::from_slice(&request.body)
            .map_err(|error| Refusal("422 Unprocessable Content", format!("the body is no JSON: {error}")))?;

        // The same message is done once, also when two connections bring it: the work is done while the ids are locked.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let what =
            format!("id={id} timestamp={} type={} subject={}", received.timestamp, event["type"], event["subject"]);
        if seen.ids.contains(id) {
            println!("already had: {what}");
            return Ok(());
        }
        println!("event: {what} data={}", event["data"]);
        seen.remember(id);
        Ok(())
    }
}

impl Seen {
    fn remember(&mut self, id: &str) {
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.ids.insert(id.to_owned());
        self.order.push_back(id.to_owned());
    }
}

impl Request {
    /// Empty if there is no such header.
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | TimedOut | WouldBlock)
}

/// The next request, `None` at the end of the connection.
fn read(reader: &mut BufReader<TcpStream>) -> Result<Option<Request>, Refusal> {
    let bad = |reason: String| Refusal("400 Bad Request", reason);
    let mut lines = Vec::new();
    let mut head = reader.by_ref().take(HEAD_MAX);
    loop {
        let mut line = String::new();
        match head.read_line(&mut line) {
            Ok(0) if lines.is_empty() && head.limit() == HEAD_MAX => return Ok(None),
            Ok(_) if !line.ends_with('\n') => return Err(bad("the head is cut or too long".to_owned())),
            Ok(_) if line.trim_end().is_empty() => break,
            Ok(_) => lines.push(line.trim_end().to_owned()),
            // Silent for long, or gone, between two requests: that is how a connection ends.
            Err(error) if is_end(&error) && lines.is_empty() && line.is_empty() => return Ok(None),
            Err(error) => return Err(bad(error.to_string())),
        }
    }
    let method = lines.first().and_then(|line| line.split(' ').next()).unwrap_or_default().to_owned();
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    let mut request = Request { method, headers, body: Vec::new() };
    let length = match request.header("content-length") {
        "" if request.header("transfer-encoding").is_empty() => 0,
        "" => return Err(Refusal("411 Length Required", "no Content-Length".to_owned())),
        length => length.parse::<usize>().map_err(|_| bad("no length".to_owned()))?,
    };
    if length > BODY_MAX {
        return Err(Refusal("413 Content Too Large", format!("a body of {length} bytes")));
    }
    request.body.resize(length, 0);
    reader.read_exact(&mut request.body).map_err(|error| bad(error.to_string()))?;
    Ok(Some(request))
}
