//! The examples in the API's description are sent, and the answers compared with those that it shows.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Map, Value};

use crate::harness::{LONG, TestSite};

/// Values that differ from one server to the next.
const OWN: [&str; 7] = ["id", "created_at", "updated_at", "occurred_at", "event_id", "score", "correlation_id"];
/// In this order an article is made, read, changed and deleted.
const METHODS: [&str; 5] = ["post", "get", "patch", "put", "delete"];

/// The same but for what each server has of its own, which must be of one type.
fn assert_alike(shown: &Value, answered: &Value, place: &str) {
    match (shown, answered) {
        (Value::Object(shown), Value::Object(answered)) => {
            let keys = |object: &Map<String, Value>| object.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(shown), keys(answered), "{place}");
            for (key, value) in shown {
                let place = format!("{place}.{key}");
                if OWN.contains(&key.as_str()) {
                    assert_eq!(value.is_string(), answered[key].is_string(), "{place}");
                } else {
                    assert_alike(value, &answered[key], &place);
                }
            }
        }
        (Value::Array(shown), Value::Array(answered)) => {
            assert_eq!(shown.len(), answered.len(), "{place}: {answered:?}");
            shown.iter().zip(answered).for_each(|(shown, answered)| assert_alike(shown, answered, place));
        }
        _ => assert_eq!(shown, answered, "{place}"),
    }
}

/// The path and query of an operation's examples; `None` if a parameter that it needs has none.
fn target(path: &str, operation: &Value) -> Option<String> {
    let (mut path, mut query) = (path.to_owned(), Vec::new());
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    for parameter in parameters.iter().filter(|parameter| parameter["required"] == true) {
        let name = parameter["name"].as_str().unwrap();
        let example = parameter["schema"]["examples"][0].as_str()?;
        match parameter["in"].as_str().unwrap() {
            "path" => path = path.replace(&format!("{{{name}}}"), example),
            "query" => query.push(format!("{name}={example}")),
            place => panic!("{name} is required in {place}"),
        }
    }
    Some(if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) })
}

#[test]
fn every_example_of_the_description_is_what_the_server_does() {
    let site = TestSite::new();
    let description = site.get("/api/v1/openapi.json");
    assert_eq!((description.status, description.header("content-type")), (200, Some("application/json")));
    let description = description.json();
    let paths = description["paths"].as_object().unwrap();
    let mut compared = 0;
    for method in METHODS {
        for (path, operations) in paths {
            let operation = &operations[method];
            let Some((status, reply)) = success(operation) else { continue };
            let shown = &reply["content"]["application/json"]["example"];
            let body = &operation["requestBody"]["content"]["application/json"]["example"];
            if shown.is_null() && method != "delete" {
                continue;
            }
            let Some(target) = target(path, operation) else { continue };
            let body = (!body.is_null()).then(|| body.to_string());
            if path.ends_with("/bulk") {
                // Compared by itself: what it makes would stand in the lists.
                continue;
            }
            let answer = site.send(&method.to_uppercase(), &target, &[], body.as_deref());
            assert_eq!(answer.status, status, "{method} {target}: {}", answer.body);
            for (name, _) in reply["headers"].as_object().into_iter().flatten() {
                assert!(answer.header(&name.to_lowercase()).is_some(), "{method} {target} lacks {name}");
            }
            if !shown.is_null() {
                assert_alike(shown, &answer.json(), &format!("{method} {target}"));
                compared += 1;
            }
            site.drain();
        }
    }
    assert!(compared >= 8, "{compared}");
    let bulk = &paths["/api/v1/articles/bulk"]["post"];
    let body = bulk["requestBody"]["content"]["application/json"]["example"].to_string();
    let answer = site.send("POST", "/api/v1/articles/bulk", &[], Some(&body));
    assert_alike(&bulk["responses"]["200"]["content"]["application/json"]["example"], &answer.json(), "bulk");
}

/// The usual answer of 2xx.
fn success(operation: &Value) -> Option<(u16, &Value)> {
    let replies = operation["responses"].as_object()?;
    // 202 is for a site that is frozen, or for more than one request can do.
    let successes = || replies.iter().filter(|(status, _)| status.starts_with('2'));
    let (status, reply) = successes().find(|(status, _)| *status != "202").or_else(|| successes().next())?;
    Some((status.parse().unwrap(), reply))
}

#[test]
fn every_405_names_the_methods_that_the_description_has() {
    let site = TestSite::new();
    let description = site.get("/api/v1/openapi.json").json();
    for (path, operations) in description["paths"].as_object().unwrap() {
        let answer = site.send("PROPFIND", path, &[], None);
        assert_eq!(answer.problem().1, "method_not_allowed", "{path}");
        let allowed: Vec<&str> = answer.header("allow").unwrap().split(", ").collect();
        for method in operations.as_object().unwrap().keys() {
            assert!(allowed.contains(&method.to_uppercase().as_str()), "{path}: {allowed:?}");
        }
        // An article may have the slug `bulk`, so there its methods are allowed too.
        let more = if path.ends_with("/bulk") { 4 } else { 0 };
        let head = usize::from(allowed.contains(&"HEAD"));
        assert_eq!(allowed.len(), operations.as_object().unwrap().len() + head + more, "{path}: {allowed:?}");
    }
}

#[test]
fn an_answer_that_the_engine_gives_by_itself_has_the_same_form() {
    let site = TestSite::new();
    let large = site.send("POST", "/api/v1/articles", &[], Some(&"x".repeat(17 << 20)));
    assert_eq!(large.problem(), (413, "too_large".to_owned(), None));
}

/// What a server says to these bytes until it closes.
fn raw(site: &TestSite, request: &str) -> String {
    let mut stream = TcpStream::connect(site.addr()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    // The server may have answered and closed before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut part) {
        said.extend_from_slice(&part[..read]);
    }
    String::from_utf8(said).unwrap()
}

#[test]
fn a_head_that_cannot_be_read_is_refused_in_the_same_form_and_the_connection_closed() {
    let site = TestSite::new();
    let (path, field) = ("a".repeat(70_000), "b".repeat(300_000));
    let lines: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\nno colon here\r\n\r\n".to_owned(), 400),
        ("NOT HTTP AT ALL\r\n\r\n".to_owned(), 400),
        (format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {field}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}\r\n"), 431),
    ] {
        let shown = &request[..request.len().min(40)];
        let said = raw(&site, &request);
        let (head, body) = said.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{shown}: {said:?}"));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {said}");
        let head = head.to_lowercase();
        assert!(
            head.contains("connection: close") && head.contains("content-type: application/json"),
            "{shown}: {said}"
        );
        let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{shown}: {error}: {said}"));
        assert!(body["error"]["code"].is_string() && body["error"]["message"].is_string(), "{shown}: {body}");
    }
    assert_eq!(site.get("/health/live").status, 200, "others are served");
}
