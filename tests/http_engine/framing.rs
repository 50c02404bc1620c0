//! Chunked bodies, lengths that contradict each other, and requests hidden in bodies.

use std::time::Duration;

use super::support::*;

const SMUGGLED: &str = "GET /articles/smuggled HTTP/1.1\r\nHost: t\r\n\r\n";
const NEXT: &str = "GET /next HTTP/1.1\r\nHost: t\r\n\r\n";
const CHUNKED: &str = "POST /c HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn case_c24_chunked_bodies_are_decoded_and_the_next_request_is_answered_as_itself() {
    let server = Server::start();
    let one_byte_chunks: String = "hello".chars().map(|c| format!("1\r\n{c}\r\n")).collect();
    for body in [
        "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n".to_owned(),
        format!("{one_byte_chunks}0\r\n\r\n"),
        "5;x=1\r\nhello\r\n0\r\n\r\n".to_owned(),
        "5\r\nhello\r\n0\r\nTrailer: 1\r\nOther: 2\r\n\r\n".to_owned(),
        "0005\r\nhello\r\n00\r\n\r\n".to_owned(),
    ] {
        let mut client = server.client();
        client.send(format!("{CHUNKED}{body}{NEXT}"));
        assert_eq!(client.reply().body, "POST /c - hello", "{body:?}");
        assert_eq!(client.reply().body, "GET /next - ", "{body:?}");
    }
}

#[test]
fn case_c24_a_chunk_size_may_come_in_pieces() {
    let server = Server::start();
    let mut client = server.client();
    client.send(format!("{CHUNKED}0"));
    server.assert_serves();
    client.send("5\r");
    server.assert_serves();
    client.send(format!("\nhello\r\n0\r\n\r\n{NEXT}"));
    assert_eq!(client.reply().body, "POST /c - hello");
    assert_eq!(client.reply().body, "GET /next - ");
}

#[test]
fn case_c24_a_bad_chunk_size_is_refused_and_closes() {
    let server = Server::start();
    for bad in [
        "zz\r\nhello\r\n",
        "5 5\r\nhello\r\n",
        "-5\r\nhello\r\n",
        "5\nhello\n",
        "11111111111111111\r\nhello\r\n",
        "5\r\nhelloo\r\n",
    ] {
        let mut client = server.client();
        client.send(format!("{CHUNKED}{bad}0\r\n\r\n{SMUGGLED}"));
        let reply = client.reply();
        assert!(reply.status == 400 && reply.closes(), "{bad:?}: {reply:?}");
        client.close_sending();
        client.assert_closed();
    }
    assert!(server.handled().is_empty());
}

#[test]
fn case_c24_a_body_without_its_end_times_out() {
    let server = Server::start_with(|options| options.body_deadline = Duration::from_millis(100));
    let mut client = server.client();
    client.send(format!("{CHUNKED}5\r\nhello\r\n"));
    server.assert_serves();
    let reply = client.reply();
    assert!(reply.status == 408 && reply.closes(), "{reply:?}");
    client.close_sending();
    client.assert_closed();
    assert_eq!(server.handled(), ["GET /meanwhile"]);
}

#[test]
fn case_c25_contradicting_lengths_are_refused_and_close() {
    let server = Server::start();
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 48\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 48",
        "Transfer-Encoding: chunked\r\nContent-Length: nonsense",
        "Transfer-Encoding : chunked",
        "Content-Length : 5",
        "Content-Length: +5",
        "Content-Length: -1",
        "Content-Length: 5, 5",
        "Content-Length: abc",
        "Content-Length:",
        "Content-Length: 123456789012345678901234567890",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: xchunked",
        "X: 1\r\n Content-Length: 5",
    ] {
        let mut client = server.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\n{fields}\r\n\r\n0\r\n\r\n{SMUGGLED}"));
        let reply = client.reply();
        assert_eq!(reply.status, 400, "{fields:?}");
        assert!(reply.closes(), "{fields:?}");
        client.close_sending();
        client.assert_closed();
        server.assert_serves();
    }
    for fields in ["Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"] {
        let mut client = server.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\n{fields}\r\n\r\n0\r\n\r\n{SMUGGLED}"));
        let reply = client.reply();
        assert!(reply.status == 501 && reply.closes(), "{fields:?}: {reply:?}");
        client.close_sending();
        client.assert_closed();
    }
    assert!(server.handled().iter().all(|line| line == "GET /meanwhile"), "{:?}", server.handled());
}

#[test]
fn case_c25_an_ambiguous_request_is_found_later_on_a_connection_too() {
    let server = Server::start();
    let mut client = server.client();
    client.send(format!("{CHUNKED}5\r\nhello\r\n0\r\nT: 1\r\n\r\n{NEXT}"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.reply().status, 200);
    client.send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!(client.reply().status, 200);
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}"
    ));
    assert_eq!(client.reply().status, 400);
    client.close_sending();
    client.assert_closed();
}

#[test]
fn case_c25_a_body_ends_where_its_length_says() {
    let server = Server::start_with(|options| options.body_deadline = Duration::from_millis(100));
    // Too short: idle until the deadline, then closed; what was hidden in it is only a body.
    let mut short = server.client();
    short.send(format!("POST /short HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{SMUGGLED}"));
    server.assert_serves();
    assert_eq!(short.reply().status, 408);
    short.close_sending();
    short.assert_closed();
    // Cut short by the client.
    let mut cut = server.client();
    cut.send("POST /cut HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n0123456789");
    cut.close_sending();
    assert_eq!(cut.reply().status, 400);
    // Too long: what follows is no request, so it is refused.
    let mut long = server.client();
    long.send(format!("POST /long HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\n{}\r\n\r\n", "0".repeat(100)));
    assert_eq!(long.reply().body, "POST /long - 0000000000");
    let reply = long.reply();
    assert!(reply.status == 400 && reply.closes(), "{reply:?}");
    // Said twice, alike.
    let mut twice = server.client();
    twice.send(format!("POST /twice HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello{NEXT}"));
    assert_eq!(twice.reply().body, "POST /twice - hello");
    assert_eq!(twice.reply().body, "GET /next - ");
    assert!(
        !server
            .handled()
            .iter()
            .any(|line| line.contains("smuggled") || line.contains("cut") || line.contains("short"))
    );
}

#[test]
fn malformed_heads_are_refused_and_close() {
    let server = Server::start();
    for head in [
        "GET /\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: t\r\nno colon\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: t\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: t\r\n\r\n",
        "G\0T / HTTP/1.1\r\nHost: t\r\n\r\n",
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\n\n",
    ] {
        let mut client = server.client();
        client.send(head);
        let reply = client.reply();
        assert!(reply.status == 400 && reply.closes(), "{head:?}: {reply:?}");
        assert!(!reply.body.is_empty(), "{head:?}: it says what is wrong");
        client.close_sending();
        client.assert_closed();
    }
    let mut client = server.client();
    client.send_if_taken(format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", "x".repeat(100_000)).as_bytes());
    let reply = client.reply();
    assert!(reply.status == 431 && reply.closes() && reply.body.contains("header fields"), "{reply:?}");
    let mut client = server.client();
    client.send_if_taken(format!("GET /{} HTTP/1.1\r\nHost: t\r\n\r\n", "x".repeat(100_000)).as_bytes());
    let reply = client.reply();
    assert!(reply.status == 414 && reply.closes() && reply.body.contains("address"), "{reply:?}");
    let mut client = server.client();
    let many = "X: y\r\n".repeat(200);
    let reply = client.ask(&format!("GET / HTTP/1.1\r\nHost: t\r\n{many}\r\n"));
    assert!(reply.status == 431 && reply.closes() && reply.body.contains("header fields"), "{reply:?}");
    assert!(server.handled().is_empty());
}

#[test]
fn a_malformed_head_after_good_requests_is_refused_after_their_answers() {
    let server = Server::start();
    for bad in ["GET  / HTTP/1.1\r\nHost: t\r\n\r\n", "\0\r\n\r\n"] {
        let mut client = server.client();
        client.send(format!("GET /one HTTP/1.1\r\nHost: t\r\n\r\nGET /two HTTP/1.1\r\nHost: t\r\n\r\n{bad}"));
        assert_eq!(client.reply().body, "GET /one - ");
        assert_eq!(client.reply().body, "GET /two - ");
        let reply = client.reply();
        assert!(reply.status == 400 && reply.closes() && reply.body.contains("no request"), "{reply:?}");
        client.close_sending();
        client.assert_closed();
    }
}

#[test]
fn an_answer_that_looks_like_a_refusal_of_hypers_is_left_alone() {
    let server = Server::start();
    let mut client = server.client();
    let text = "HTTP/1.1 400 Bad Request\r\n\r\n";
    let length = text.len();
    let reply = client.ask(&format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{text}"));
    assert_eq!((reply.status, reply.body), (200, format!("POST / - {text}")));
    let stats = server.stats();
    assert_eq!((stats.requests, stats.requests_refused, stats.requests_in_flight), (1, 0, 0));
}

#[test]
fn the_engine_counts_connections_requests_and_refusals() {
    let server = Server::start();
    let mut waiting = server.client();
    waiting.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    let mut bad = server.client();
    assert_eq!(bad.ask("nonsense\r\n\r\n").status, 400);
    assert_eq!(server.client().ask("GET /panic HTTP/1.1\r\nHost: t\r\n\r\n").status, 500);
    let stats = server.stats();
    assert_eq!((stats.requests, stats.requests_refused, stats.handlers_panicked), (2, 2, 1), "{stats:?}");
    assert_eq!((stats.requests_in_flight, stats.requests_queued, stats.connections_accepted), (1, 0, 3), "{stats:?}");
    assert!((2..=3).contains(&stats.connections_open), "{stats:?}");
    server.gate.open();
    assert_eq!(waiting.reply().status, 200);
    assert_eq!(server.stop().exit_code(), 0);
    assert_eq!(server.stats().connections_open, 0);
}
