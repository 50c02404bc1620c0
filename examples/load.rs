//! `make load`: a server under mixed load from this second process, and what came of it.
//!
//! Readers, writers and clients that misbehave work on a fresh server for LOAD_SECONDS (60). Every write that was
//! acknowledged is kept in mind and looked for at the end, over HTTP and, after an orderly stop, in the database. Ends
//! with exit code 1 if an answer was a 5xx, an acknowledged write is lost, the server did not stop in order, or (in a run
//! of 30 s or more) its threads or its memory grew. Nothing is judged by its speed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vayu_articles::rusqlite::Connection;

const WRITERS: usize = 3;
const READERS: usize = 4;
/// A longer run is judged by its threads and memory, too.
const JUDGED_FROM: Duration = Duration::from_secs(30);
/// What memory may grow by, from a quarter of the run to its end.
const GROWTH_MAX_KB: u64 = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "load-0123456789abcdef0123456789abcdef";

/// What the server acknowledged about one article: its newest content, or that it is gone.
type Acknowledged = BTreeMap<String, Option<String>>;

/// Counts of answers by kind and status; 0 stands for no answer.
#[derive(Default)]
struct Tally(Mutex<BTreeMap<(&'static str, u16), u64>>);

/// The server's threads and memory at a moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    threads: u64,
    memory_kb: u64,
}

struct Server {
    child: Child,
    url: String,
}

fn main() -> ExitCode {
    let seconds = std::env::var("LOAD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60);
    let length = Duration::from_secs(seconds);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let server = Server::start(&data, &folder.path().join("log"));
    let (tally, acknowledged) = (Tally::default(), Mutex::new(Acknowledged::new()));
    let samples = drive(&server, length, &tally, &acknowledged);
    let acknowledged = acknowledged.into_inner().expect("no thread panicked");

    let mut faults = Vec::new();
    faults.extend(lost_over_http(&server, &acknowledged));
    faults.extend(server.stop());
    faults.extend(lost_on_disk(&data, &acknowledged));
    report(&tally, &samples, acknowledged.len(), length, &mut faults);
    if faults.is_empty() {
        println!("load: good");
        return ExitCode::SUCCESS;
    }
    for fault in &faults {
        println!("load: FAULT {fault}");
    }
    println!("--- the end of the server's log");
    let log = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    println!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
    ExitCode::FAILURE
}

/// Runs all clients for `length`; a sample of the server for each second.
fn drive(server: &Server, length: Duration, tally: &Tally, acknowledged: &Mutex<Acknowledged>) -> Vec<Sample> {
    let until = Instant::now() + length;
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            scope.spawn(move || write(&Client::new(server, tally), number, until, acknowledged));
        }
        for number in 0..READERS {
            scope.spawn(move || read(&Client::new(server, tally), number, until));
        }
        scope.spawn(move || misbehave(&Client::new(server, tally), until));
        let mut samples = Vec::new();
        while Instant::now() < until {
            samples.extend(server.sample());
            std::thread::sleep(Duration::from_secs(1).min(until.saturating_duration_since(Instant::now())));
        }
        samples
    })
}

/// Creates, changes and now and then deletes articles of its own, and notes what was acknowledged.
fn write(client: &Client<'_>, number: usize, until: Instant, acknowledged: &Mutex<Acknowledged>) {
    for n in 0.. {
        if Instant::now() >= until {
            return;
        }
        let (slug, mut content) = (format!("load-{number}-{n}"), format!("Otters of {number}, number {n}."));
        let article = json!({ "title": slug, "slug": slug, "content": content, "tags": ["load"] });
        if client.ask("create", "POST", "/api/v1/articles", Some(&article)) != 201 {
            continue;
        }
        let path = format!("/api/v1/articles/{slug}");
        let mut sure = true;
        if n % 2 == 0 {
            content.push_str(" Changed.");
            // An article of unknown content is not judged.
            sure = client.ask("change", "PATCH", &path, Some(&json!({ "content": content }))) == 200;
        }
        let mut now = Some(content);
        if n % 10 == 9 {
            let status = client.ask("delete", "DELETE", &path, None);
            sure &= (200..300).contains(&status);
            now = None;
        }
        if sure {
            acknowledged.lock().expect("no thread panicked").insert(slug, now);
        }
    }
}

fn read(client: &Client<'_>, number: usize, until: Instant) {
    let paths =
        ["/", "/api/v1/articles?limit=20", "/api/v1/search?q=otters", "/tags/load", "/api/v1/tags", "/health/ready"];
    for n in 0.. {
        if Instant::now() >= until {
            return;
        }
        client.ask("read", "GET", paths[(number + n) % paths.len()], None);
        let slug = format!("load-{}-{}", n % WRITERS, n / 8);
        client.ask("article", if n % 5 == 0 { "HEAD" } else { "GET" }, &format!("/articles/{slug}"), None);
    }
}

/// What a public server meets: nonsense, bodies that are too large or cut short, clients that go away.
fn misbehave(client: &Client<'_>, until: Instant) {
    let raw: [&[u8]; 5] = [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: l\r\n",
        b"POST /api/v1/articles HTTP/1.1\r\nHost: l\r\nContent-Length: 1000000000000\r\n\r\n",
        b"POST /api/v1/articles HTTP/1.1\r\nHost: l\r\nContent-Length: 100\r\n\r\n{\"title\"",
        b"POST / HTTP/1.1\r\nHost: l\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    for n in 0.. {
        if Instant::now() >= until {
            return;
        }
        client.ask("nonsense", "POST", "/api/v1/articles", Some(&json!({ "title": 1, "content": [n] })));
        client.ask("nonsense", "GET", "/articles/%zz", None);
        client.ask("nonsense", "PUT", "/", None);
        if let Ok(mut socket) = TcpStream::connect(client.server.address()) {
            let _ = socket.write_all(raw[n % raw.len()]);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One client with connections of its own.
struct Client<'a> {
    agent: ureq::Agent,
    server: &'a Server,
    tally: &'a Tally,
}

impl<'a> Client<'a> {
    fn new(server: &'a Server, tally: &'a Tally) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
        Self { agent: config.build().into(), server, tally }
    }

    /// The status of the answer, read to its end; 0 if there was none.
    fn ask(&self, kind: &'static str, method: &str, path: &str, body: Option<&Value>) -> u16 {
        let status = self.server.send(&self.agent, method, path, body).map_or(0, |(status, _)| status);
        *self.tally.0.lock().expect("no thread panicked").entry((kind, status)).or_default() += 1;
        status
    }
}

impl Server {
    fn start(data: &Path, log: &Path) -> Self {
        let program = std::env::var_os("LOAD_PROGRAM").expect("LOAD_PROGRAM names the program");
        let mut command = Command::new(program);
        command.args(["serve", "--addr", "127.0.0.1:0", "--data"]).arg(data).env("VAYU_ADMIN_TOKEN", TOKEN);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(log).expect("a log"));
        let mut server = Self { child: command.spawn().expect("the program starts"), url: String::new() };
        let mut out = BufReader::new(server.child.stdout.take().expect("piped"));
        let mut line = String::new();
        while server.url.is_empty() {
            line.clear();
            assert!(out.read_line(&mut line).expect("text") > 0, "it says no address: {:?}", fs::read_to_string(log));
            if let Some((_, rest)) = line.split_once("serves ") {
                rest.split_whitespace().next().expect("an address").trim_end_matches('/').clone_into(&mut server.url);
            }
        }
        // Keep the pipe drained, so that the program never blocks on it.
        std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        server
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    fn send(&self, agent: &ureq::Agent, method: &str, path: &str, body: Option<&Value>) -> Option<(u16, String)> {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("Authorization", format!("Bearer {TOKEN}"));
        let request = request.header("Content-Type", "application/json");
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut answer = agent.run(request.body(body).ok()?).ok()?;
        let text = answer.body_mut().read_to_string().ok()?;
        Some((answer.status().as_u16(), text))
    }

    /// `None` where the system does not tell.
    fn sample(&self) -> Option<Sample> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let value =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok());
        Some(Sample { threads: value("Threads:")?, memory_kb: value("VmRSS:")? })
    }

    /// Asks for an orderly stop; what was wrong with it.
    fn stop(mut self) -> Option<String> {
        let sent = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()), "the signal can be sent");
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                return (!status.success()).then(|| format!("the server ended with {status}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Some("the server did not end after SIGTERM".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Acknowledged writes that the running server does not show.
fn lost_over_http(server: &Server, acknowledged: &Acknowledged) -> Vec<String> {
    let tally = Tally::default();
    let client = Client::new(server, &tally);
    let mut lost = Vec::new();
    for (slug, expected) in acknowledged {
        let answer = server.send(&client.agent, "GET", &format!("/api/v1/articles/{slug}"), None);
        let found = match answer {
            Some((200, text)) => {
                let article: Value = serde_json::from_str(&text).unwrap_or_default();
                article["content"].as_str().map(str::to_owned)
            }
            Some((404, _)) => None,
            other => Some(format!("{other:?}")),
        };
        if found != *expected {
            lost.push(format!("{slug}: acknowledged {expected:?}, found {found:?}"));
        }
    }
    summed_up("lost over HTTP", lost)
}

/// Acknowledged writes that the database does not hold.
fn lost_on_disk(data: &Path, acknowledged: &Acknowledged) -> Vec<String> {
    let database = Connection::open(data.join("articles.db")).expect("the database");
    let mut content = database.prepare("SELECT content FROM articles WHERE slug = ?1").expect("SQL");
    let lost = acknowledged.iter().filter_map(|(slug, expected)| {
        let found: Option<String> = content.query_row([slug], |row| row.get(0)).ok();
        (found != *expected).then(|| format!("{slug}: acknowledged {expected:?}, stored {found:?}"))
    });
    summed_up("lost on disk", lost.collect())
}

fn summed_up(what: &str, lost: Vec<String>) -> Vec<String> {
    let count = lost.len();
    let mut lines: Vec<_> = lost.into_iter().take(5).collect();
    if count > 0 {
        lines.push(format!("{count} writes are {what}"));
    }
    lines
}

/// Prints what happened, one figure a line, and adds what must not have.
fn report(tally: &Tally, samples: &[Sample], acknowledged: usize, length: Duration, faults: &mut Vec<String>) {
    let counts = tally.0.lock().expect("no thread panicked");
    println!("load: {} s, {WRITERS} writers, {READERS} readers, 1 that misbehaves", length.as_secs());
    let (mut answers, mut server_errors, mut none) = (0, 0, 0);
    for ((kind, status), count) in counts.iter() {
        println!(
            "load: {kind:<8} {} {count:>9}",
            if *status == 0 { "none".to_owned() } else { format!("{status:>4}") }
        );
        answers += count;
        server_errors += if (500..600).contains(status) { *count } else { 0 };
        none += if *status == 0 { *count } else { 0 };
    }
    println!("load: answers {answers}, 5xx {server_errors}, none {none}, acknowledged articles {acknowledged}");
    if server_errors > 0 {
        faults.push(format!("{server_errors} answers were a 5xx"));
    }
    if acknowledged == 0 {
        faults.push("no write was acknowledged".to_owned());
    }
    let settled = &samples[samples.len() / 4..];
    let (Some(first), Some(last)) = (settled.first(), settled.last()) else { return };
    let most = settled.iter().map(|sample| sample.threads).max().unwrap_or_default();
    println!("load: threads {} at a quarter, {} at most, {} at the end", first.threads, most, last.threads);
    println!("load: memory {} KiB at a quarter, {} KiB at the end", first.memory_kb, last.memory_kb);
    if length < JUDGED_FROM {
        return;
    }
    if last.threads > first.threads {
        faults.push("the number of threads grew".to_owned());
    }
    if last.memory_kb > first.memory_kb + GROWTH_MAX_KB {
        faults.push(format!("memory grew by more than {GROWTH_MAX_KB} KiB"));
    }
}
