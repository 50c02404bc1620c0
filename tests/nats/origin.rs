//! What the origin's answers mean to a worker, asked for an article by a fake server that answers as it is told.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use vayu_articles::outbox::{DispatchError, Event};
use vayu_articles::sinks::ArticleSource as _;
use vayu_articles::worker::{Origin, OriginOptions, Worker};

use crate::fixtures::{consumer, database, dead_letters, entry, options, publish, stop, wait_acknowledged};
use crate::support::{LONG, Server, wait_until};

/// A whole answer, as it goes over the wire; empty: the connection is cut.
type Reply = Arc<Mutex<Vec<u8>>>;

/// Answers every request in the same way, and hands over what was asked.
fn fake() -> (String, Reply, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let reply = Reply::default();
    let (asked, requests) = channel();
    let answer = Arc::clone(&reply);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket: TcpStream = socket.unwrap();
            socket.set_read_timeout(Some(LONG)).unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            let _ = asked.send(String::from_utf8_lossy(&head).into_owned());
            let _ = socket.write_all(&answer.lock().unwrap());
        }
    });
    (url, reply, requests)
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn origin(url: &str) -> Origin {
    let mut options = OriginOptions::new(url);
    options.token = Some("a-token-of-the-worker".into());
    options.timeout = Duration::from_secs(20);
    Origin::new(options).unwrap()
}

fn article() -> Value {
    json!({
        "id": "id/1", "kind": "post", "status": "published", "slug": "s", "title": "T", "content": "C", "tags": ["x"],
        "version": 7, "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-02T00:00:00.5Z", "new_field": {},
    })
}

fn not_found(field: &str) -> String {
    json!({ "error": { "code": "not_found", "field": field, "message": "gone" } }).to_string()
}

#[test]
fn an_article_is_asked_for_by_id_with_the_token_and_read() {
    let (url, reply, requests) = fake();
    *reply.lock().unwrap() = answer("200 OK", &article().to_string());
    let read = origin(&format!("{url}/site/")).article("id/1").unwrap().unwrap();
    assert_eq!((read.version, read.content.as_str(), read.updated_at), (7, "C", 1_767_312_000_500));
    let request = requests.recv_timeout(LONG).unwrap().to_ascii_lowercase();
    assert!(request.starts_with("get /site/api/v1/articles/by-id/id%2f1 http/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: bearer a-token-of-the-worker\r\n"), "{request}");
}

#[test]
fn case_c53_a_404_about_the_id_is_a_deletion_and_whatever_else_goes_wrong_is_an_outage() {
    let (url, reply, _requests) = fake();
    let origin = origin(&url);
    let ask = |raw: Vec<u8>| {
        *reply.lock().unwrap() = raw;
        origin.article("id/1")
    };
    assert!(ask(answer("404 Not Found", &not_found("id"))).unwrap().is_none(), "deleted");
    let html = "<h1>404</h1>".to_owned();
    let mut half = answer("200 OK", &article().to_string());
    half.truncate(half.len() - 20);
    let mut another = article();
    another["id"] = json!("id-2");
    let outages = [
        ("a 404 about something else", answer("404 Not Found", &not_found("slug"))),
        ("another server's 404", answer("404 Not Found", &html)),
        ("no token", answer("401 Unauthorized", "{}")),
        ("too small a role", answer("403 Forbidden", "{}")),
        ("a redirect", answer("301 Moved\r\nLocation: /elsewhere", "")),
        ("too many", answer("429 Too Many Requests", "{}")),
        ("a fault", answer("500 Internal Server Error", "")),
        ("a gateway", answer("502 Bad Gateway", &html)),
        ("gone for good", answer("410 Gone", "")),
        ("half an answer", half),
        ("no JSON", answer("200 OK", &html)),
        ("another article", answer("200 OK", &another.to_string())),
        ("no HTTP", b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()),
        ("a cut connection", Vec::new()),
    ];
    for (what, raw) in outages {
        let said = ask(raw);
        assert!(matches!(said, Err(DispatchError::Unavailable { .. })), "{what}: {said:?}");
        let Err(DispatchError::Unavailable { reason, .. }) = said else { continue };
        assert!(!reason.contains("a-token"), "{what}: {reason}");
        let of_token = ["no token", "too small a role"].contains(&what);
        assert_eq!(reason.contains("VAYU_ORIGIN_TOKEN"), of_token, "{what}: {reason}");
    }
    let asked = ask(answer("503 Service Unavailable\r\nRetry-After: 99999", ""));
    let Err(DispatchError::Unavailable { retry_after, .. }) = asked else { panic!("{asked:?}") };
    assert_eq!(retry_after, Some(Duration::from_secs(3_600)), "heard, within a cap");
    let impossible = ask(answer("400 Bad Request", "{}"));
    assert!(matches!(impossible, Err(DispatchError::Poison { .. })), "{impossible:?}");
}

#[test]
fn case_c53_an_id_that_no_request_can_name_is_poison_although_nobody_answers() {
    let origin = origin("http://127.0.0.1:1");
    // Longer than any URL, and what a proxy on the way takes for another path.
    for id in ["x".repeat(70_000).as_str(), "", ".", ".."] {
        let said = origin.article(id);
        assert!(matches!(said, Err(DispatchError::Poison { .. })), "{} bytes: {said:?}", id.len());
    }
    let said = origin.article("...");
    assert!(matches!(said, Err(DispatchError::Unavailable { .. })), "{said:?}");
}

#[test]
fn case_c53_an_origin_that_is_not_there_or_says_nothing_is_an_outage() {
    let nobody = origin("http://127.0.0.1:1").article("x");
    assert!(matches!(nobody, Err(DispatchError::Unavailable { .. })), "{nobody:?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = OriginOptions::new(format!("http://{}", silent.local_addr().unwrap()));
    options.timeout = Duration::from_millis(200);
    let said = Origin::new(options).unwrap().article("x");
    assert!(matches!(said, Err(DispatchError::Unavailable { .. })), "{said:?}");
}

#[test]
fn an_origin_that_is_down_or_refuses_the_token_costs_nothing_and_deletes_nothing() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let database = database(folder.path());
    let (url, reply, requests) = fake();
    let source = origin(&url);
    let read = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&read);
    let worker = Worker::new(&database, options(&server, 0)).unwrap().handler("notes", move |_: &Event| {
        let article = source.article("id/1")?;
        seen.lock().unwrap().push(article.map(|article| article.version));
        Ok(())
    });
    worker.start().unwrap();
    publish(&server, 0, 0..1);
    // Far more calls than an event has.
    for raw in [Vec::new(), answer("401 Unauthorized", "{}"), answer("500 No", ""), answer("404 Not Found", "")] {
        *reply.lock().unwrap() = raw;
        (0..4).for_each(|_| drop(requests.recv_timeout(LONG).unwrap()));
    }
    assert!(read.lock().unwrap().is_empty());
    assert_eq!(consumer(&server, "worker-notes")["num_ack_pending"], 1, "in hand all the while");
    *reply.lock().unwrap() = answer("200 OK", &article().to_string());
    wait_acknowledged(&server, "worker-notes", 1);
    *reply.lock().unwrap() = answer("404 Not Found", &not_found("id"));
    publish(&server, 0, 1..2);
    wait_acknowledged(&server, "worker-notes", 2);
    wait_until("both have run", || read.lock().unwrap().len() == 2);
    stop(&worker);
    assert_eq!(*read.lock().unwrap(), [Some(7), None], "the article, and later its deletion");
    assert_eq!(entry(&database, "event-0").attempts, 0);
    assert!(dead_letters(&database).is_empty());
    assert_eq!(consumer(&server, "worker-notes")["num_redelivered"], 0);
}
