//! Endpoints that want to keep a caller, or to fill its memory.
#![cfg(feature = "sinks")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::json;
use vayu_articles::clock::SystemClock;
use vayu_articles::outbox::{DispatchError, Handler, NewEvent};
use vayu_articles::sinks::webhook::{Secret, Webhook, WebhookOptions};

/// What one call may take by the settings of these tests.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Far less than any of these endpoints would take.
const LONG: Duration = Duration::from_secs(25);

/// What becomes of one message to an endpoint that does `serve` with its connection.
fn send_to(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Result<(), DispatchError> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, serve) = (stream.unwrap(), Arc::clone(&serve));
            thread::spawn(move || {
                let _ = stream.read(&mut [0; 4_096]);
                serve(stream);
            });
        }
    });
    let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
    let mut options = WebhookOptions::new("shop", url, [secret]);
    (options.allow_private, options.timeout) = (true, TIMEOUT);
    let webhook = Webhook::new(options, SystemClock::shared()).unwrap();
    let event = NewEvent::new("article.updated.v1", &json!({ "id": "a" })).unwrap().into_event(1);
    let (done, waits) = mpsc::channel();
    thread::spawn(move || done.send(webhook.handle(&event)));
    waits.recv_timeout(LONG).expect("the endpoint keeps the caller")
}

/// `piece` again and again, until nobody reads it.
fn without_end(mut stream: TcpStream, head: &str, piece: &str, pause: Duration) {
    let mut sent = stream.write_all(head.as_bytes());
    while sent.is_ok() {
        thread::sleep(pause);
        sent = stream.write_all(piece.as_bytes());
    }
}

#[test]
fn a_head_that_drips_is_cut_off_at_the_time_limit() {
    let slow = Duration::from_millis(50);
    for (head, piece) in [
        ("", "H"),
        ("HTTP/1.1 204 No Content\r\n", "a: b\r\n"),
        ("HTTP/1.1 204 No Content\r\nx: ", "y"),
        ("", "HTTP/1.1 103 Early Hints\r\n\r\n"),
    ] {
        let sent = send_to(move |stream| without_end(stream, head, piece, slow));
        assert!(matches!(sent, Err(DispatchError::Unavailable { .. })), "{head:?} {piece:?} {sent:?}");
    }
}

#[test]
fn a_head_without_end_is_cut_off() {
    let long = "y".repeat(10_000);
    for (head, piece) in [
        ("", long.clone()),
        ("HTTP/1.1 204 No Content\r\n", "a: b\r\n".repeat(1_000)),
        ("HTTP/1.1 204 No Content\r\nx: ", long),
        ("", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(500)),
        ("", "HTTP/1.1 100 Continue\r\n\r\n".repeat(500)),
    ] {
        let what = piece[..8].to_owned();
        let sent = send_to(move |stream| without_end(stream, head, &piece, Duration::ZERO));
        assert!(matches!(sent, Err(DispatchError::Unavailable { .. })), "{head:?} {what:?} {sent:?}");
    }
}

#[test]
fn a_body_that_drips_or_has_no_end_holds_nobody_up_once_the_status_is_there() {
    for (head, piece, pause) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "x".to_owned(), 50),
        ("HTTP/1.1 200 OK\r\n\r\n", "x".repeat(100_000), 0),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n".to_owned(), 50),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n".repeat(10_000), 0),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", "y".repeat(10_000), 0),
    ] {
        let sent = send_to(move |stream| without_end(stream, head, &piece, Duration::from_millis(pause)));
        assert!(sent.is_ok(), "{head:?} {pause} {sent:?}");
    }
}
