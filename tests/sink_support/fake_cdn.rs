//! A CDN's purge service on a loopback socket, which answers as it is told.

#![allow(dead_code)]

use std::collections::{BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// One call as the service received it.
#[derive(Debug, Clone)]
pub struct Call {
    pub head: String,
    /// The addresses or keys that it names.
    pub urls: Vec<String>,
}

#[derive(Debug, Clone)]
pub enum Answer {
    /// Status, further header lines, body.
    Status(u16, &'static str, &'static str),
    /// The connection is cut without an answer.
    Cut,
    /// A Content-Length that the body does not keep.
    HalfABody,
    /// Nothing, until the client goes away.
    Silence,
}

#[derive(Default)]
struct State {
    script: VecDeque<Answer>,
    calls: Vec<Call>,
    purged: BTreeSet<String>,
    most: Option<usize>,
}

pub struct FakeCdn {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakeCdn {
    /// Answers as `script` says, then 200.
    pub fn start(script: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { script: script.into_iter().collect(), ..State::default() }));
        let shared = state.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    /// More addresses in a call are answered with 400.
    pub fn at_most(self, urls: usize) -> Self {
        self.state.lock().unwrap().most = Some(urls);
        self
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}/purge", self.address)
    }

    pub fn calls(&self) -> Vec<Call> {
        self.state.lock().unwrap().calls.clone()
    }

    /// Every address in a call that was answered with 2xx.
    pub fn purged(&self) -> BTreeSet<String> {
        self.state.lock().unwrap().purged.clone()
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(call) = read_call(&mut reader) {
        let answer = {
            let mut state = state.lock().unwrap();
            state.calls.push(call.clone());
            let too_many = state.most.is_some_and(|most| call.urls.len() > most);
            let answer = if too_many {
                Answer::Status(400, "", "too many files")
            } else {
                state.script.pop_front().unwrap_or(Answer::Status(200, "", "{\"success\":true}"))
            };
            if matches!(answer, Answer::Status(200..=299, ..) | Answer::HalfABody) {
                state.purged.extend(call.urls);
            }
            answer
        };
        match answer {
            Answer::Status(status, headers, body) => {
                let length = body.len();
                let head = format!("HTTP/1.1 {status} Some\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
                if stream.write_all(head.as_bytes()).is_err() {
                    return;
                }
            }
            Answer::HalfABody => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
                return;
            }
            Answer::Cut => return,
            Answer::Silence => {
                // Until the client has had enough.
                let _ = reader.read(&mut [0]);
                return;
            }
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
    let header = |name: &str| {
        head.lines()
            .find_map(|line| Some(line.split_once(": ").filter(|(known, _)| known.eq_ignore_ascii_case(name))?.1))
    };
    let mut body = vec![0; header("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    let mut line = head.split(' ');
    let (method, path) = (line.next()?, line.next()?);
    let urls = match (method, header("content-type"), header("surrogate-key")) {
        (_, Some("application/json"), _) => {
            let body: serde_json::Value = serde_json::from_slice(&body).ok()?;
            body["files"].as_array()?.iter().map(|url| url.as_str().unwrap().to_owned()).collect()
        }
        (_, _, Some(keys)) => keys.split(' ').map(str::to_owned).collect(),
        _ => vec![format!("https://{}{path}", header("host")?)],
    };
    Some(Call { head: head.clone(), urls })
}
