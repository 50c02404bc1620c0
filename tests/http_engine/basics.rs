//! Addresses, keep-alive, pipelining, HEAD, panics, refusals in the user's words.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use vayu_articles::http::engine::{Engine, EngineOptions, Refusal, Request, Response, StatusCode};
use vayu_articles::lifecycle::{Service, StartContext};

use super::support::*;

#[test]
fn port_zero_takes_a_free_port_and_reports_it() {
    let (one, two) = (Server::start(), Server::start());
    assert_ne!(one.addr.port(), 0);
    assert_ne!(one.addr, two.addr);
    one.assert_serves();
    two.assert_serves();
}

#[test]
fn a_port_in_use_is_a_start_error_that_says_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = EngineOptions { addr: taken.local_addr().unwrap(), ..EngineOptions::default() };
    let engine = Engine::new(options, Arc::new(|_| Response::new(StatusCode::OK, "")));
    let error = engine.start(&StartContext::standalone("http", AMPLE)).unwrap_err().to_string();
    assert!(error.contains("cannot listen on 127.0.0.1:") && error.contains("choose another port"), "{error}");
    assert_eq!(engine.local_addr(), None);
}

#[test]
fn senseless_options_are_refused_by_name() {
    let options = EngineOptions { handler_threads: 0, ..EngineOptions::default() };
    let engine = Engine::new(options, Arc::new(|_| Response::new(StatusCode::OK, "")));
    let error = engine.start(&StartContext::standalone("http", AMPLE)).unwrap_err().to_string();
    assert_eq!(error, "handler_threads must be at least 1");
}

#[test]
fn an_engine_alone_starts_and_stops_and_starts_again() {
    let options = EngineOptions { addr: ([127, 0, 0, 1], 0).into(), ..EngineOptions::default() };
    let engine = Engine::new(options, Arc::new(|_| Response::new(StatusCode::OK, "hi")));
    engine.stop(Instant::now() + AMPLE).unwrap();
    for _ in 0..3 {
        engine.start(&StartContext::standalone("http", AMPLE)).unwrap();
        assert!(engine.start(&StartContext::standalone("http", AMPLE)).is_err());
        let reply = Client::new(engine.local_addr().unwrap()).ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!((reply.status, reply.body.as_str()), (200, "hi"));
        engine.stop(Instant::now() + AMPLE).unwrap();
        engine.stop(Instant::now() + AMPLE).unwrap();
    }
}

#[test]
fn a_connection_serves_request_after_request() {
    let server = Server::start();
    let mut client = server.client();
    for number in 0..20 {
        let reply = client.ask(&format!("GET /a/%2e%2E/b%zz?n={number}&x=%20 HTTP/1.1\r\nHost: t\r\n\r\n"));
        assert_eq!(reply.status, 200);
        assert_eq!(reply.body, format!("GET /a/%2e%2E/b%zz n={number}&x=%20 "), "path and query come undecoded");
        assert!(!reply.closes());
    }
    let reply = client.ask("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    assert!(reply.closes());
    client.assert_closed();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start();
    let mut client = server.client();
    client.send("GET /1 HTTP/1.1\r\nHost: t\r\n\r\nPOST /2 HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: t\r\n\r\n");
    let bodies = [client.reply().body, client.reply().body, client.reply().body];
    assert_eq!(bodies, ["GET /1 - ", "POST /2 - abc", "GET /3 - "]);
}

#[test]
fn head_answers_the_length_without_the_body() {
    let server = Server::start();
    let mut client = server.client();
    client.send("HEAD /x HTTP/1.1\r\nHost: t\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    // Were there a body, it would be taken for the next answer.
    assert_eq!(client.ask("GET /y HTTP/1.1\r\nHost: t\r\n\r\n").body, "GET /y - ");
    client.send("GET /none HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.head().status, 204);
    assert_eq!(client.ask("GET /z HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
}

#[test]
fn an_old_client_and_one_that_closes_its_sending_half_are_answered() {
    let server = Server::start();
    let mut old = server.client();
    assert_eq!(old.ask("GET /old HTTP/1.0\r\n\r\n").body, "GET /old - ");
    old.assert_closed();
    let mut half = server.client();
    half.send("GET /half HTTP/1.1\r\nHost: t\r\n\r\n");
    half.close_sending();
    assert_eq!(half.reply().body, "GET /half - ");
    half.assert_closed();
}

#[test]
fn a_panicking_handler_is_a_500_and_nothing_more() {
    let server = Server::start_with(|options| options.handler_threads = 1);
    let mut client = server.client();
    for _ in 0..3 {
        let reply = client.ask("GET /panic HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(reply.status, 500);
        assert!(!reply.body.contains("asked to"), "the panic's text is for the log");
    }
    assert_eq!(client.ask("GET /after HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
    assert_eq!(client.ask("GET /continue HTTP/1.1\r\nHost: t\r\n\r\n").status, 500, "1xx is no answer");
    assert_eq!(server.stop().exit_code(), 0);
}

#[test]
fn refusals_are_worded_by_the_user() {
    let word = |refusal: &Refusal| {
        assert!(refusal.status != StatusCode::NOT_IMPLEMENTED, "a panic here falls back to plain text");
        Response::new(StatusCode::OK, format!("{{\"error\":\"{}\"}}", refusal.message))
    };
    let options = EngineOptions { addr: ([127, 0, 0, 1], 0).into(), max_body: 1, ..EngineOptions::default() };
    let handler = |request: Request| Response::text(StatusCode::OK, request.path);
    let engine = Engine::new(options, Arc::new(handler)).refuse_with(Arc::new(word));
    engine.start(&StartContext::standalone("http", AMPLE)).unwrap();
    let addr = engine.local_addr().unwrap();
    let reply = Client::new(addr).ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!((reply.status, reply.body.as_str()), (413, "{\"error\":\"the request body is too large\"}"));
    let reply = Client::new(addr).ask("CONNECT a:1 HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!((reply.status, reply.body.as_str()), (501, "this is not a proxy\n"));
    engine.stop(Instant::now() + AMPLE).unwrap();
}
