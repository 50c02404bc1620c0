//! An endpoint on a loopback socket, which answers as it is told and keeps every request.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

pub const LONG: Duration = Duration::from_secs(60);
/// A secret of 32 bytes.
pub const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
/// Another.
pub const OLD_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[derive(Debug, Clone)]
pub enum Answer {
    /// Status, further header lines, body.
    Status(u16, &'static str, &'static str),
    /// The connection is cut without an answer.
    Cut,
    /// A Content-Length that the body does not keep.
    HalfABody,
    /// The head of an answer, and then nothing.
    HeadOnly,
    /// What is no HTTP.
    Garbage,
    /// Nothing, until the client goes away.
    Silence,
}

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Call {
    pub head: String,
    pub body: String,
}

impl Call {
    pub fn header(&self, name: &str) -> &str {
        let of = |line: &'_ str| line.split_once(':').filter(|(known, _)| known.eq_ignore_ascii_case(name)).is_some();
        let line = self.head.lines().find(|line| of(line)).unwrap_or_else(|| panic!("no {name} in {}", self.head));
        line[name.len() + 1..].trim()
    }

    pub fn id(&self) -> &str {
        self.header("webhook-id")
    }

    pub fn event(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

#[derive(Default)]
struct State {
    script: VecDeque<Answer>,
    otherwise: Option<Answer>,
    calls: Vec<Call>,
    connections: usize,
}

/// A running endpoint. Its connections end with it.
pub struct Endpoint {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

impl Endpoint {
    /// Answers as `script` says, then 204.
    pub fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { script: script.into_iter().collect(), ..State::default() };
        let state = Arc::new((Mutex::new(state), Condvar::new()));
        let shared = state.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                state.0.lock().unwrap().connections += 1;
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks?shop=1", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it answers from now on, once the script is at its end.
    pub fn answer(&self, answer: Answer) {
        self.state.0.lock().unwrap().otherwise = Some(answer);
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state.0.lock().unwrap().calls.clone()
    }

    pub fn connections(&self) -> usize {
        self.state.0.lock().unwrap().connections
    }

    /// Waits until `so` is true of what has arrived.
    pub fn wait(&self, so: impl Fn(&[Call]) -> bool) -> Vec<Call> {
        let until = Instant::now() + LONG;
        let mut state = self.state.0.lock().unwrap();
        while !so(&state.calls) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it does not come; so far {:?}", state.calls);
            state = self.state.1.wait_timeout(state, left).unwrap().0;
        }
        state.calls.clone()
    }
}

fn serve(stream: TcpStream, state: &(Mutex<State>, Condvar)) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(call) = read_call(&mut reader) {
        let answer = {
            let mut state = state.0.lock().unwrap();
            state.calls.push(call);
            let otherwise = state.otherwise.clone().unwrap_or(Answer::Status(204, "", ""));
            state.script.pop_front().unwrap_or(otherwise)
        };
        state.1.notify_all();
        let said = match answer {
            Answer::Status(204, headers, _) => format!("HTTP/1.1 204 No Content\r\n{headers}\r\n"),
            Answer::Status(status, headers, body) => {
                format!("HTTP/1.1 {status} Some\r\nContent-Length: {}\r\n{headers}\r\n{body}", body.len())
            }
            Answer::HalfABody => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nhalf".to_owned(),
            Answer::HeadOnly => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n".to_owned(),
            Answer::Garbage => "220 mail.example ESMTP\r\n\r\n".to_owned(),
            Answer::Cut | Answer::Silence => String::new(),
        };
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
        match answer {
            Answer::Status(..) => {}
            Answer::Cut | Answer::Garbage | Answer::HalfABody => return,
            // Until the client has had enough.
            Answer::HeadOnly | Answer::Silence => return drop(reader.read(&mut [0])),
        }
    }
}

fn read_call(reader: &mut BufReader<TcpStream>) -> Option<Call> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Call { head, body: String::from_utf8(body).unwrap() })
}
