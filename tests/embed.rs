//! `examples/embed.rs` does what it says: another crate's server, our outbox, three closures.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

struct Example {
    child: Child,
    lines: Receiver<String>,
    /// Lines that nobody waited for yet.
    printed: Vec<String>,
    addr: SocketAddr,
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Example {
    fn start(database: &std::path::Path) -> Self {
        let addr = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
        let mut child =
            Command::new(binary()).arg(addr.to_string()).arg(database).stdout(Stdio::piped()).spawn().expect("starts");
        let (sender, lines) = channel();
        let out = BufReader::new(child.stdout.take().expect("piped"));
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut example = Self { child, lines, printed: Vec::new(), addr };
        example.line("listening on ", "");
        example
    }

    /// Waits for a line that begins so and contains `part`, and takes it out. The lanes print in no common order.
    fn line(&mut self, prefix: &str, part: &str) {
        let wanted = |line: &String| line.starts_with(prefix) && line.contains(part);
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(at) = self.printed.iter().position(wanted) {
                self.printed.remove(at);
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            self.printed.push(line.unwrap_or_else(|e| panic!("no line {prefix:?} {part:?}: {e}")));
        }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.addr).expect("connects");
        stream.set_read_timeout(Some(SOON)).expect("timeout");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answers");
        answer
    }
}

fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.parent().and_then(|deps| deps.parent()).expect("target/<profile>/deps");
    let binary = profile.join("examples").join(format!("embed{}", std::env::consts::EXE_SUFFIX));
    if !binary.exists() {
        // A run of this test alone builds no examples.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let built = Command::new(cargo).args(["build", "--locked", "--quiet", "--example", "embed"]).status();
        assert!(built.is_ok_and(|status| status.success()), "the example does not build");
    }
    binary
}

#[test]
fn three_closures_hear_of_each_order_also_after_the_process_was_killed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let database = dir.path().join("shop.db");
    let mut example = Example::start(&database);
    let placed = example.request("POST", "/orders", r#"{"item": "kettle", "count": 2}"#);
    assert!(placed.starts_with("HTTP/1.1 200"), "{placed}");
    example.line("mail: ", "");
    drop(example); // SIGKILL

    let mut example = Example::start(&database);
    let refused = example.request("POST", "/orders", r#"{"item": "air", "count": 0}"#);
    assert!(refused.starts_with("HTTP/1.1 200"), "{refused}");
    example.line("statistics: ", "sold");
    let deadline = Instant::now() + SOON;
    while !example.request("GET", "/dead-letters", "").contains("nobody can pack nothing") {
        assert!(Instant::now() < deadline, "the impossible order is no dead letter");
        std::thread::yield_now();
    }
    let listed = example.request("GET", "/orders", "");
    assert!(listed.contains("kettle") && listed.contains("air"), "{listed}");
    assert!(example.request("GET", "/", "").starts_with("HTTP/1.1 404"));
    assert!(example.request("POST", "/orders", "{}").starts_with("HTTP/1.1 400"));
    example.request("POST", "/orders", r#"{"item": "cup", "count": 3}"#);
    example.line("warehouse: pack 3", "cup");
    example.line("statistics: ", "sold");
}
