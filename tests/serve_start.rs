//! A server that cannot start: it says why and what to do, leaves nothing behind, and starts once the cause is gone.
#![cfg(all(target_os = "linux", feature = "server", feature = "cli"))]

mod serve_support;

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use serve_support::{Place, Server};

fn said(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    (output.status.code(), said)
}

/// The services that the log says were stopped, in that order.
fn stopped(said: &str) -> Vec<&str> {
    let of_service = |line: &'_ str| line.contains("phase=stopped");
    said.lines()
        .filter(|line| of_service(line))
        .filter_map(|line| line.split("service=").nth(1)?.split(' ').next())
        .collect()
}

const DOWN: [&str; 4] = ["relay", "job-runner", "queue-writer", "storage"];

#[test]
fn case_c59_threads_that_cannot_be_had_end_the_start_with_the_reason_and_nothing_is_left() {
    let place = Place::new();
    // Each thread takes 2 MiB of address space for its stack.
    let many = ["serve", "--addr", "127.0.0.1:0", "--threads", "1024"];
    let (code, said) = said(place.limited("ulimit -v 1200000", &many));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the thread http-") && said.contains("ulimit -u and -v"), "{said}");
    assert_eq!(stopped(&said), DOWN, "{said}");
    assert_eq!(place.count("SELECT count(*) FROM lanes WHERE owner IS NOT NULL"), 0);
    place.stop(Server::start(&place, &[]));
}

#[test]
fn case_c54_a_port_in_use_rolls_the_start_back_and_the_next_start_works() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut serve = place.program();
    serve.args(["serve", "--addr", &address]);
    let (code, said) = said(serve);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&address) && said.contains("in use"), "{said}");
    assert_eq!(stopped(&said), DOWN, "{said}");
    drop(taken);
    let mut serve = place.program();
    serve.args(["serve", "--addr", &address]);
    place.stop(Server::start_as(&place, serve));
}

#[test]
fn case_c54_a_database_that_cannot_be_made_ends_the_start_before_anything_else_begins() {
    let place = Place::new();
    let in_the_way = place.data().join("articles.db");
    fs::create_dir_all(&in_the_way).unwrap();
    let mut serve = place.program();
    serve.args(["serve", "--addr", "127.0.0.1:0"]);
    let (code, said) = said(serve);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("articles.db") && said.contains("service=storage phase=failed"), "{said}");
    assert!(!said.contains("service=queue-writer phase=starting"), "{said}");
    fs::remove_dir(&in_the_way).unwrap();
    place.stop(Server::start(&place, &[]));
}
