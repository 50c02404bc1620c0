//! What the service manager hears, over a real socket as systemd opens it.
#![cfg(all(target_os = "linux", feature = "server", feature = "cli"))]

#[path = "serve_support/mod.rs"]
mod serve_support;

use std::os::unix::net::UnixDatagram;

use serve_support::{LONG, Place, Server};

/// What comes next but signs of life.
fn next(socket: &UnixDatagram) -> String {
    loop {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).expect("the program says something");
        let text = String::from_utf8(bytes[..length].to_vec()).unwrap();
        if text.trim() != "WATCHDOG=1" {
            return text;
        }
    }
}

#[test]
fn the_service_manager_hears_of_readiness_life_and_stop() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let mut command = place.program();
    command.args(["serve", "--addr", "127.0.0.1:0"]).env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    let mut server = Server::start_as(&place, command);
    let ready = next(&socket);
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    assert!(ready.contains(&format!("STATUS=serves {}", server.address())), "{ready}");
    for _ in 0..3 {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).expect("a sign of life");
        assert_eq!(String::from_utf8_lossy(&bytes[..length]).trim(), "WATCHDOG=1");
    }
    server.signal("TERM");
    let stopping = next(&socket);
    assert!(stopping.lines().any(|line| line == "STOPPING=1"), "{stopping}");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log_text());
}

#[test]
fn a_start_that_fails_is_never_called_ready() {
    let place = Place::new();
    let path = place.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = place.program().args(["serve", "--addr", &addr]).env("NOTIFY_SOCKET", &path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let silence = socket.recv(&mut [0; 64]).expect_err("nothing was said");
    assert_eq!(silence.kind(), std::io::ErrorKind::WouldBlock);
}
