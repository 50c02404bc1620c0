//! A server under test, a client that sends exactly what it is told, and a gate for handlers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vayu_articles::http::engine::{Engine, EngineOptions, EngineStats, Request, Response, StatusCode};
use vayu_articles::lifecycle::{BoxError, Manager, ManagerOptions, Outcome, Service};

/// Long enough for anything that must succeed.
pub const AMPLE: Duration = Duration::from_secs(30);

/// How many bytes `/big` answers: more than the sockets of both sides take in.
pub const BIG: usize = 64 << 20;

/// Where handlers of `/wait` are held, and how many have come.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<(bool, usize)>, Condvar)>);

impl Gate {
    pub fn open(&self) {
        self.0.0.lock().unwrap().0 = true;
        self.0.1.notify_all();
    }
    fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.1 += 1;
        self.0.1.notify_all();
        while !state.0 {
            state = self.0.1.wait(state).unwrap();
        }
    }
    /// Waits until `count` handlers have come to the gate.
    pub fn await_arrivals(&self, count: usize) {
        let state = self.0.0.lock().unwrap();
        let (_state, timeout) = self.0.1.wait_timeout_while(state, AMPLE, |state| state.1 < count).unwrap();
        assert!(!timeout.timed_out(), "{count} requests did not reach a handler");
    }
}

/// A running server whose handler says what it was asked, and writes it down.
pub struct Server {
    pub addr: SocketAddr,
    pub gate: Gate,
    handled: Arc<Mutex<Vec<String>>>,
    engine: Arc<Engine>,
    manager: Manager,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(|_| ())
    }

    pub fn start_with(change: impl FnOnce(&mut EngineOptions)) -> Self {
        let mut options = EngineOptions { addr: ([127, 0, 0, 1], 0).into(), ..EngineOptions::default() };
        options.header_deadline = AMPLE;
        change(&mut options);
        let (gate, handled) = (Gate::default(), Arc::<Mutex<Vec<String>>>::default());
        let (door, log) = (gate.clone(), handled.clone());
        let handler = move |request: Request| {
            log.lock().unwrap().push(format!("{} {}", request.method, request.path));
            handle(&request, &door)
        };
        let engine = Arc::new(Engine::new(options, Arc::new(handler)));
        let mut manager = Manager::new(ManagerOptions::default());
        manager.register(engine.clone()).unwrap();
        manager.start().unwrap();
        Self { addr: engine.local_addr().unwrap(), gate, handled, engine, manager }
    }

    pub fn client(&self) -> Client {
        Client::new(self.addr)
    }

    /// Method and path of what reached the handler.
    pub fn handled(&self) -> Vec<String> {
        self.handled.lock().unwrap().clone()
    }

    pub fn stats(&self) -> EngineStats {
        self.engine.counters().stats()
    }

    /// Another client is served meanwhile.
    pub fn assert_serves(&self) {
        let reply = self.client().ask("GET /meanwhile HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(reply.status, 200);
    }

    /// All that clients have sent before is known to the server: the I/O thread has since answered one who came later.
    pub fn assert_io_caught_up(&self) {
        let reply = self.client().ask("CONNECT later:1 HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(reply.status, 501);
    }

    /// Stops the engine without the manager.
    pub fn stop_engine(&self, deadline: Instant) -> Result<(), BoxError> {
        self.engine.stop(deadline)
    }

    pub fn stop(&self) -> Outcome {
        self.manager.stop("the test is over")
    }
}

fn handle(request: &Request, gate: &Gate) -> Response {
    assert!(request.deadline > Instant::now());
    match request.path.as_str() {
        "/panic" => panic!("asked to"),
        "/wait" => gate.pass(),
        "/big" => return Response::new(StatusCode::OK, vec![b'x'; BIG]),
        "/none" => return Response::new(StatusCode::NO_CONTENT, ""),
        "/continue" => return Response::new(StatusCode::CONTINUE, ""),
        _ => {}
    }
    let query = request.query.as_deref().unwrap_or("-");
    let body = String::from_utf8_lossy(&request.body);
    let body = if body.len() > 100 { format!("{} bytes", body.len()) } else { body.into_owned() };
    Response::text(StatusCode::OK, format!("{} {} {query} {body}", request.method, request.path))
}

/// A client on one connection.
pub struct Client(BufReader<TcpStream>);

/// What was answered.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Client {
    pub fn new(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(AMPLE)).unwrap();
        stream.set_write_timeout(Some(AMPLE)).unwrap();
        Self(BufReader::new(stream))
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Sends as much as the other side takes, whether or not it does.
    pub fn send_if_taken(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    /// Sends and waits so long for the end of the connection; whether it goes on.
    pub fn trickle(&mut self, bytes: &[u8], wait: Duration) -> bool {
        let stream = self.0.get_mut();
        if stream.write_all(bytes).is_err() {
            return false;
        }
        let before = stream.read_timeout().unwrap();
        stream.set_read_timeout(Some(wait)).unwrap();
        let open = matches!(stream.peek(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        stream.set_read_timeout(before).unwrap();
        open
    }

    /// Repeats a request while the answer is 503; the status that came of it.
    pub fn ask_until_served(&mut self, request: &str) -> u16 {
        let deadline = Instant::now() + AMPLE;
        loop {
            match self.ask(request).status {
                503 if Instant::now() < deadline => {}
                status => return status,
            }
        }
    }

    pub fn close_sending(&mut self) {
        self.0.get_mut().shutdown(Shutdown::Write).unwrap();
    }

    pub fn ask(&mut self, request: &str) -> Reply {
        self.send(request);
        self.reply()
    }

    /// Reads an answer with its body.
    pub fn reply(&mut self) -> Reply {
        let mut reply = self.head();
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        reply.body = String::from_utf8(body).unwrap();
        reply
    }

    /// Reads the head of an answer.
    pub fn head(&mut self) -> Reply {
        let status = self.line();
        let status = status.strip_prefix("HTTP/1.1 ").or(status.strip_prefix("HTTP/1.0 "));
        let status = status.unwrap_or_else(|| panic!("no status line")).get(..3).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Reply { status, headers, body: String::new() }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the connection ended in {line:?}");
        line.trim_end().to_owned()
    }

    /// Waits for the end of the connection and gives what came before it; a reset is an end too.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("the connection was not closed"),
            _ => rest,
        }
    }

    pub fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?} came after the last answer", String::from_utf8_lossy(&rest));
    }
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
    pub fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }
}
