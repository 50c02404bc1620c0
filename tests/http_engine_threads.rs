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

/// Waits until as many threads as before are there: one that was joined may need a moment to leave the kernel's list.
fn assert_threads(expected: usize) {
    let deadline = Instant::now() + AMPLE;
    while threads().len() != expected {
        assert!(Instant::now() < deadline, "{expected} threads were there before, now {:?}", threads());
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
        let names = threads();
        assert_eq!(names.iter().filter(|name| name.starts_with("http-")).count(), 4, "{names:?}");
        let mut clients: Vec<_> = (0..10).map(|_| TcpStream::connect(engine.local_addr().unwrap()).unwrap()).collect();
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").unwrap();
            assert!(client.read(&mut [0; 64]).unwrap() > 0);
        }
        assert!(manager.stop("the test is over").is_clean());
        assert_threads(before);
    }
}
