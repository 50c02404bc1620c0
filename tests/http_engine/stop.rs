//! Stopping with clients in every state.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::support::*;

#[test]
fn case_c56_a_stop_closes_idle_clients_and_lets_a_running_request_finish() {
    let server = Server::start();
    let mut idle: Vec<Client> = (0..10).map(|_| server.client()).collect();
    for client in &mut idle {
        assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
    }
    let (mut in_head, mut in_body, mut running) = (server.client(), server.client(), server.client());
    in_head.send("GET / HTTP/1.1\r\nHo");
    in_body.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\nabc");
    running.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    server.assert_serves();

    std::thread::scope(|scope| {
        let stop = scope.spawn(|| server.stop());
        // All these ends come while the handler still runs.
        idle.iter_mut().for_each(Client::assert_closed);
        in_head.assert_closed();
        let refused = in_body.reply();
        assert!(refused.status == 503 && refused.closes(), "{refused:?}");
        assert!(TcpStream::connect(server.addr).is_err(), "new connections are refused");
        assert!(!stop.is_finished());
        server.gate.open();
        let reply = running.reply();
        assert!(reply.status == 200 && reply.closes(), "{reply:?}");
        assert_eq!(reply.body, "GET /wait - ");
        running.assert_closed();
        in_body.close_sending();
        let outcome = stop.join().unwrap();
        assert!(outcome.is_clean(), "{outcome}");
    });
}

#[test]
fn a_request_in_the_queue_is_answered_before_the_stop() {
    let server = Server::start_with(|options| options.handler_threads = 1);
    let (mut running, mut queued) = (server.client(), server.client());
    running.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    queued.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.assert_io_caught_up();
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| server.stop());
        while TcpStream::connect(server.addr).is_ok() {
            std::thread::yield_now();
        }
        server.gate.open();
        assert_eq!(running.reply().status, 200);
        assert_eq!(queued.reply().status, 200);
        assert!(stop.join().unwrap().is_clean());
    });
}

#[test]
fn a_stop_past_its_deadline_names_what_is_left_and_cuts_the_client() {
    let server = Server::start_with(|options| options.handler_threads = 1);
    let mut running = server.client();
    running.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    let error = server.stop_engine(Instant::now() + Duration::from_millis(100)).unwrap_err().to_string();
    assert!(error.contains("http-1"), "{error}");
    running.assert_closed();
    assert!(TcpStream::connect(server.addr).is_err());
    server.gate.open();
}

#[test]
fn a_stop_without_clients_is_immediate_and_leaves_the_port_free() {
    for _ in 0..20 {
        let server = Server::start();
        assert!(server.stop().is_clean());
        std::net::TcpListener::bind(server.addr).unwrap();
    }
}
