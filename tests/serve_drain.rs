//! The program as a server at its limits: stopped while clients are in the middle of things, and with a full queue.
#![cfg(all(unix, feature = "server", feature = "cli"))]

mod serve_support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use serve_support::{LONG, Place, Server, TOKEN, wait_or};
use vayu_articles::rusqlite::Connection;

/// The database's write lock, as another process would hold it; released when dropped.
fn lock(place: &Place) -> Connection {
    let database = Connection::open(place.data().join("articles.db")).unwrap();
    database.busy_timeout(LONG).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    database
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Head and body of a request that creates an article.
fn creates(title: &str, content: &str) -> (String, String) {
    let body = json!({"title": title, "content": content}).to_string();
    let head = format!(
        "POST /api/v1/articles HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// One answer with a `Content-Length`, and no byte beyond it.
fn answer(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

fn whole_answer(mut stream: TcpStream) -> (String, String) {
    stream.set_read_timeout(Some(LONG)).unwrap();
    answer(&mut stream)
}

/// Whether the other side has closed; what it still says is read over.
fn is_at_its_end(stream: &mut TcpStream) -> bool {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => true,
        // Cut with bytes of ours unread.
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// Waits until so many writes wait for the lock, or wait behind those that do.
fn wait_for_writes(place: &Place, server: &Server, count: u64) {
    let pending = || -> u64 {
        let (_, text) = place.get(server, "/metrics");
        let line = text.lines().find(|line| line.starts_with("vayu_queue_jobs "));
        line.unwrap_or_else(|| panic!("{text}")).rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64
    };
    place.wait_until(|| pending() >= count, server);
}

#[test]
fn a_stop_closes_who_is_idle_lets_the_long_answer_arrive_whole_and_ends_with_0() {
    let place = Place::new();
    let mut server =
        Server::start(&place, &["--busy-deadline", "60s", "--stop-timeout", "30s", "--stop-budget", "60s"]);
    let mut idle: Vec<_> = (0..10).map(|_| connect(&server)).collect();
    for stream in &mut idle {
        stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(answer(stream).0.starts_with("http/1.1 200"));
    }
    let mut mid_head = connect(&server);
    mid_head.write_all(b"GET /health/live HTTP/1.1\r\nHo").unwrap();
    let mut mid_body = connect(&server);
    let (head, body) = creates("Half", "never whole");
    mid_body.write_all(format!("{head}{}", &body[..10]).as_bytes()).unwrap();

    let held = lock(&place);
    let mut long = connect(&server);
    let text = "A long text. ".repeat(16_000);
    let (head, body) = creates("Long", &text);
    long.write_all(format!("{head}{body}").as_bytes()).unwrap();
    wait_for_writes(&place, &server, 1);
    server.signal("TERM");
    let stopped = Instant::now();
    for stream in &mut idle {
        assert!(is_at_its_end(stream), "an idle client is closed at once, although a write still runs");
    }
    assert!(is_refused(&server), "nobody new is let in");
    while stopped.elapsed() < Duration::from_secs(3) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    drop(held);

    let (head, body) = answer(&mut long);
    assert!(head.starts_with("http/1.1 201") && head.contains("connection: close"), "{head}");
    let stored: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(stored["content"].as_str(), Some(text.as_str()));
    assert!(is_at_its_end(&mut long) && is_at_its_end(&mut mid_head) && is_at_its_end(&mut mid_body));
    assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
    assert!(stopped.elapsed() < Duration::from_secs(60), "within the budget");
    assert_eq!(place.count("SELECT count(*) FROM articles"), 1, "half a body is no article");
    assert_eq!(place.count("SELECT count(*) FROM event_outbox"), 1);
}

/// A connection that the system took on is not served.
fn is_refused(server: &Server) -> bool {
    let Ok(mut stream) = TcpStream::connect(server.address()) else { return true };
    let _ = stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said.is_empty()
}

#[test]
fn a_stop_without_a_client_and_one_during_the_start_end_with_0() {
    let place = Place::new();
    let mut server = Server::start(&place, &[]);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());

    // The signal comes with the first phase that is logged; the lock makes what has to write wait until then. How far the
    // start has come differs from run to run.
    let held = lock(&place);
    let log = place.path("held.log");
    let stderr = std::fs::File::create(&log).unwrap();
    let mut command = place.program();
    command.args(["serve", "--addr", "127.0.0.1:0"]).stdout(Stdio::null()).stderr(stderr);
    let mut child = command.spawn().unwrap();
    let log_text = || std::fs::read_to_string(&log).unwrap();
    wait_or(|| log_text().contains("phase="), log_text);
    let sent = std::process::Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    drop(held);
    wait_or(|| child.try_wait().unwrap().is_some(), log_text);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", log_text());
}

#[test]
fn a_stop_under_a_foreign_lock_past_its_deadline_names_who_is_left_behind_and_ends_with_1() {
    let place = Place::new();
    let mut server =
        Server::start(&place, &["--busy-deadline", "60s", "--stop-timeout", "500ms", "--stop-budget", "2s"]);
    assert_eq!(place.post(&server, &json!({"title": "Before", "content": "x"})).0, 201);
    place.delivered(&server);
    let held = lock(&place);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(1), "{}", server.log_text());
    let log = server.log_text();
    assert!(log.contains("still running: ") && log.contains("relay"), "{log}");
    drop(held);
    // Its lanes still name it; it is dead, so the next one has them at once, and everything that was answered is there.
    let next = Server::start(&place, &[]);
    assert_eq!(place.post(&next, &json!({"title": "After", "content": "x"})).0, 201);
    place.delivered(&next);
    assert_eq!(place.count("SELECT count(*) FROM articles"), 2);
    assert!(next.log_text().contains("takeover_from="), "{}", next.log_text());
    place.stop(next);
}

/// As many writes as the queue takes wait for a foreign lock when the stop comes: each is stored and answered.
#[test]
fn case_c58_a_stop_with_a_full_queue_answers_each_write_that_was_taken() {
    let place = Place::new();
    for round in 0..5 {
        let mut server = Server::start(&place, &["--busy-deadline", "60s", "--write-queue", "8"]);
        let before = place.count("SELECT count(*) FROM articles");
        let held = lock(&place);
        let mut clients: Vec<_> = (0..12).map(|_| connect(&server)).collect();
        for stream in &mut clients {
            let (head, body) = creates(&format!("Round {round}"), "x");
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
        wait_for_writes(&place, &server, 8);
        server.signal("TERM");
        // The log is one for all rounds.
        place.wait_until(|| server.log_text().matches("phase=shutdown").count() > round, &server);
        drop(held);
        let heads: Vec<_> = clients.into_iter().map(|stream| whole_answer(stream).0).collect();
        let count = |status: &str| heads.iter().filter(|head| head.starts_with(status)).count();
        let (stored, refused) = (count("http/1.1 201"), count("http/1.1 429") + count("http/1.1 503"));
        assert!(stored >= 8 && stored + refused == heads.len(), "{heads:?}");
        assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
        let articles = place.count("SELECT count(*) FROM articles");
        assert_eq!(articles - before, i64::try_from(stored).unwrap(), "stored are those that were answered so");
        assert_eq!(place.count("SELECT count(*) FROM event_outbox"), articles);
    }
}

#[test]
fn a_full_queue_answers_429_at_once_and_recovers() {
    let place = Place::new();
    let server = Server::start(&place, &["--busy-deadline", "60s", "--write-queue", "1"]);
    let held = lock(&place);
    // One write is taken and waits for the lock, one waits behind it; those after them are too many.
    let mut clients: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    for stream in &mut clients {
        let (head, body) = creates("Waits", "x");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    }
    let until = Instant::now() + LONG;
    let refused = loop {
        assert!(Instant::now() < until, "the queue has no limit: {}", server.log_text());
        if let Some(at) = clients.iter().position(|stream| stream.peek(&mut [0]).is_ok()) {
            break clients.remove(at);
        }
    };
    let (head, body) = whole_answer(refused);
    assert!(head.starts_with("http/1.1 429") && head.contains("\r\nretry-after: "), "{head}");
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["error"]["code"], "saturated");
    assert_eq!(place.get(&server, "/api/v1/articles").0, 200, "reading goes on");
    drop(held);
    let heads: Vec<_> = clients.into_iter().map(|stream| whole_answer(stream).0).collect();
    let count = |status| heads.iter().filter(|head| head.starts_with(status)).count();
    let (stored, refused) = (count("http/1.1 201"), count("http/1.1 429"));
    assert!(stored >= 1 && stored + refused == heads.len(), "{heads:?}");
    assert_eq!(place.post(&server, &json!({"title": "After", "content": "x"})).0, 201);
    let articles = place.count("SELECT count(*) FROM articles");
    assert_eq!(articles, i64::try_from(stored).unwrap() + 1, "429 said that nothing was done");
    place.delivered(&server);
    place.stop(server);
}

#[test]
fn case_c20_bodies_over_the_limit_cost_hardly_any_memory() {
    const MIB: usize = 1024 * 1024;
    let place = Place::new();
    let server = Server::start(&place, &["--max-body", "1MiB"]);
    let most_kib = || -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let (_, small) = creates("Small", "x");
    assert_eq!(place.send("POST", &format!("{}/api/v1/articles", server.url), &small).0, 201);
    let before = most_kib();
    let chunk = [b"10000\r\n".as_slice(), &[b'x'; 65_536], b"\r\n"].concat();
    let floods: Vec<_> = (0..8)
        .map(|number| {
            let (address, chunk) = (server.address().to_owned(), chunk.clone());
            let framing = if number % 2 == 0 { "Transfer-Encoding: chunked" } else { "Content-Length: 67108864" };
            let head = format!(
                "POST /api/v1/articles HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\
                 Content-Type: application/json\r\n{framing}\r\n\r\n"
            );
            std::thread::spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_write_timeout(Some(LONG)).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                // Until the server has had enough, or all 64 MiB are sent.
                let sent = (0..1_024).take_while(|_| stream.write_all(&chunk).is_ok()).count();
                let _ = stream.shutdown(std::net::Shutdown::Write);
                sent
            })
        })
        .collect();
    floods.into_iter().for_each(|flood| assert!(flood.join().unwrap() > 0));
    let grown = most_kib() - before;
    // Eight bodies as large as is allowed, and as much again for buffers on their way.
    assert!(grown * 1024 < 16 * MIB, "{grown} KiB more");
    assert_eq!(place.count("SELECT count(*) FROM articles"), 1);
    place.stop(server);
}
