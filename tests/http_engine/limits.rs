//! Sizes, counts and times.

use std::time::{Duration, Instant};

use super::support::*;

const SHORT: Duration = Duration::from_millis(100);
const MIB: usize = 1 << 20;

#[test]
fn case_c20_a_body_over_the_limit_gets_a_readable_413() {
    let server = Server::start_with(|options| options.max_body = MIB);
    let body = vec![b'x'; 20 * MIB];

    let mut known = server.client();
    known.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", body.len()));
    known.send(&body);
    let reply = known.reply();
    assert!(reply.status == 413 && reply.closes() && !reply.body.is_empty(), "{reply:?}");
    known.close_sending();
    known.assert_closed();

    let mut chunked = server.client();
    chunked.send("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in body.chunks(64 * 1024) {
        chunked.send(format!("{:x}\r\n", piece.len()));
        chunked.send(piece);
        chunked.send("\r\n");
    }
    chunked.send("0\r\n\r\n");
    let reply = chunked.reply();
    assert!(reply.status == 413 && reply.closes(), "{reply:?}");
    chunked.close_sending();
    chunked.assert_closed();

    let mut absurd = server.client();
    let reply = absurd.ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000000000\r\n\r\n");
    assert!(reply.status == 413 && reply.closes(), "{reply:?}");
    absurd.close_sending();
    absurd.assert_closed();
    assert!(server.handled().is_empty());
    server.assert_serves();
}

#[test]
fn case_c20_a_body_exactly_at_the_limit_is_accepted() {
    let server = Server::start_with(|options| options.max_body = MIB);
    let mut client = server.client();
    for (size, status) in [(MIB, 200), (MIB + 1, 413)] {
        client.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {size}\r\n\r\n"));
        client.send(vec![b'x'; size]);
        assert_eq!(client.reply().status, status);
    }
    let mut chunked = server.client();
    for (size, status) in [(MIB, 200), (MIB + 1, 413)] {
        chunked.send(format!("POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n"));
        chunked.send(vec![b'x'; size]);
        chunked.send("\r\n0\r\n\r\n");
        assert_eq!(chunked.reply().status, status);
    }
}

#[test]
fn case_c27_a_client_that_expects_100_continue_gets_it_or_the_final_answer() {
    let server = Server::start_with(|options| options.max_body = MIB);
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let mut client = server.client();
        client.send(format!("POST /e HTTP/1.1\r\nHost: t\r\n{framing}\r\nExpect: 100-continue\r\n\r\n"));
        assert_eq!(client.line(), "HTTP/1.1 100 Continue");
        assert_eq!(client.line(), "");
        client.send(if framing.contains("chunked") { "5\r\nhello\r\n0\r\n\r\n" } else { "hello" });
        assert_eq!(client.reply().body, "POST /e - hello");
    }
    let mut over = server.client();
    let head = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", 2 * MIB);
    assert_eq!(over.ask(&head).status, 413, "at once, and without a 100");
    // Another expectation is ignored, and HTTP/1.0 knows no 100.
    let mut other = server.client();
    let reply = other.ask("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nExpect: something-else\r\n\r\nx");
    assert_eq!(reply.status, 200);
    let mut old = server.client();
    old.send("POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx");
    assert_eq!(old.reply().status, 200);
}

#[test]
fn a_client_that_is_slow_with_its_head_is_cut_while_others_are_served() {
    let server = Server::start_with(|options| options.header_deadline = SHORT);
    let mut slow = [server.client(), server.client(), server.client()];
    slow[0].send("G");
    slow[1].send("GET / HTTP/1.1\r\nHost: t\r\n");
    // After a first request the clock starts anew.
    assert_eq!(slow[2].ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
    slow[2].send("GET / HT");
    server.assert_serves();
    slow.iter_mut().for_each(Client::assert_closed);
    server.assert_serves();
}

#[test]
fn a_head_that_trickles_in_is_cut_by_a_total_deadline() {
    let server = Server::start_with(|options| options.header_deadline = SHORT);
    let mut slow = server.client();
    slow.send("GET / HTTP/1.1\r\nX: ");
    // Were each byte to start the clock anew, this would go on for minutes.
    let begun = Instant::now();
    while slow.trickle(b"x", SHORT / 10) {
        assert!(begun.elapsed() < AMPLE, "the deadline is not a total one");
    }
    server.assert_serves();
    assert_eq!(server.handled(), ["GET /meanwhile"]);
}

#[test]
fn an_idle_connection_is_closed_in_time() {
    let server = Server::start_with(|options| options.idle_deadline = SHORT);
    let (mut silent, mut served) = (server.client(), server.client());
    assert_eq!(served.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
    silent.assert_closed();
    served.assert_closed();
}

#[test]
fn a_client_that_does_not_read_its_answer_is_cut_while_others_are_served() {
    // With room for one connection, another is served only when the first has been given up: it is not idle.
    let server = Server::start_with(|options| {
        options.write_deadline = SHORT;
        options.max_connections = 1;
    });
    let mut deaf = server.client();
    deaf.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    server.assert_serves();
    assert!(deaf.rest().len() < BIG, "the answer was cut");
}

#[test]
fn a_handler_past_its_deadline_costs_its_client_a_504_or_a_503() {
    let server = Server::start_with(|options| {
        options.handler_threads = 1;
        options.handler_deadline = SHORT;
        options.handler_grace = SHORT;
    });
    let (mut running, mut queued) = (server.client(), server.client());
    running.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    let reply = queued.ask("POST /queued HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    let reply = running.reply();
    assert_eq!(reply.status, 504, "it was begun, so its outcome is not known");
    server.gate.open();
    // Both connections are as good as new, and what was answered 503 is never handled.
    for client in [&mut running, &mut queued] {
        assert_eq!(client.ask_until_served("GET /again HTTP/1.1\r\nHost: t\r\n\r\n"), 200);
    }
    assert!(!server.handled().contains(&"POST /queued".to_owned()));
}

#[test]
fn a_full_queue_is_a_503_with_retry_after() {
    let server = Server::start_with(|options| {
        options.handler_threads = 1;
        options.queue_bound = 2;
    });
    let mut clients: Vec<Client> = (0..3).map(|_| server.client()).collect();
    clients[0].send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    // Two fit into the queue; of four, two must be refused, whichever they are.
    let mut four: Vec<Client> = (0..4).map(|_| server.client()).collect();
    four.iter_mut().for_each(|client| client.send("GET /q HTTP/1.1\r\nHost: t\r\n\r\n"));
    let mut refused = 0;
    std::thread::scope(|scope| {
        let replies: Vec<_> = four.iter_mut().map(|client| scope.spawn(|| client.reply())).collect();
        let mut early = 0;
        while early < 2 {
            early = replies.iter().filter(|reply| reply.is_finished()).count();
            std::thread::yield_now();
        }
        server.gate.open();
        for reply in replies {
            let reply = reply.join().unwrap();
            if reply.status == 503 {
                assert_eq!(reply.header("retry-after"), Some("1"));
                assert!(!reply.closes());
                refused += 1;
            } else {
                assert_eq!(reply.status, 200);
            }
        }
    });
    assert_eq!(refused, 2);
    assert_eq!(clients[0].reply().status, 200);
}

#[test]
fn bodies_together_are_bounded() {
    let server = Server::start_with(|options| options.max_body_total = 2 * MIB);
    let mut holder = server.client();
    holder.send(format!("POST /wait HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n", 3 * MIB / 2));
    holder.send(vec![b'x'; 3 * MIB / 2]);
    server.gate.await_arrivals(1);
    let mut other = server.client();
    other.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {MIB}\r\n\r\n"));
    other.send(vec![b'x'; MIB]);
    let reply = other.reply();
    assert!(reply.status == 503 && reply.closes(), "{reply:?}");
    server.gate.open();
    assert_eq!(holder.reply().status, 200);
    let mut again = server.client();
    again.send(format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {MIB}\r\n\r\n"));
    again.send(vec![b'x'; MIB]);
    assert_eq!(again.reply().status, 200);
}

#[test]
fn at_the_limit_of_connections_the_one_idle_longest_makes_room() {
    let server = Server::start_with(|options| options.max_connections = 2);
    let (mut idle, mut busy) = (server.client(), server.client());
    assert_eq!(idle.ask("GET / HTTP/1.1\r\nHost: t\r\n\r\n").status, 200);
    busy.send("GET /wait HTTP/1.1\r\nHost: t\r\n\r\n");
    server.gate.await_arrivals(1);
    server.assert_serves();
    idle.assert_closed();
    server.gate.open();
    assert_eq!(busy.reply().status, 200);
}

#[test]
fn clients_beyond_the_limit_of_connections_wait_and_are_served() {
    let server = Server::start_with(|options| options.max_connections = 1);
    let mut first = server.client();
    first.send("GET /wait HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    server.gate.await_arrivals(1);
    let mut others: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for client in &mut others {
        client.send("GET /later HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n");
    }
    assert_eq!(server.handled(), ["GET /wait"]);
    server.gate.open();
    assert_eq!(first.reply().status, 200);
    for client in &mut others {
        assert_eq!(client.reply().status, 200);
    }
}
