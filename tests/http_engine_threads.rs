//! After a stop no thread of the engine is left. Alone in its program, since it counts the program's threads.
#![cfg(all(feature = "server", target_os = "linux"))]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vayu_articles::http::engine::{Engine, EngineOptions, Request, Response, StatusCode};
use vayu_articles::lifecycle::{Manager, ManagerOptions};

const AMPLE: Duration = Duration::from_secs(30);

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
}

/// Waits until it is so: a thread needs a moment to take its name, or to leave the kernel's list after its end.
fn await_threads(what: &str, so: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + AMPLE;
    while !so(&threads()) {
        assert!(Instant::now() < deadline, "{what}, but there are {:?}", threads());
        std::thread::yield_now();
    }
}

#[test]
fn ten_starts_and_stops_with_clients_leave_no_thread() {
    let before = threads().len();
    for _ in 0..10 {
        let options =
            EngineOptions { addr: ([127, 0, 0, 1], 0).into(), handler_threads: 3, ..EngineOptions::default() };
        let handler = |request: Request| Response::text(StatusCode::OK, request.path);
        let engine = Arc::new(Engine::new(options, Arc::new(handler)));
        let mut manager = Manager::new(ManagerOptions::default());
        manager.register(engine.clone()).unwrap();
        manager.start().unwrap();
        await_threads("three handlers and one for I/O", |names| {
            names.iter().filter(|name| name.starts_with("http-")).count() == 4
        });
        let mut clients: Vec<_> = (0..10).map(|_| TcpStream::connect(engine.local_addr().unwrap()).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            assert!(client.read(&mut [0; 64]).unwrap() > 0);
        }
        assert!(manager.stop("the test is over").is_clean());
        await_threads("as many as before", |names| names.len() == before);
    }
}
