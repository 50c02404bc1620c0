//! `serve --webhooks` as users run it: endpoints that fail, come back and are killed in between, and the operator's commands.
#![cfg(all(unix, feature = "server", feature = "cli"))]

mod serve_support;
mod webhook_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use serve_support::{Place, Server};
use vayu_articles::sinks::webhook::{Received, Secret, verify};
use webhook_support::{Answer, Call, Endpoint, SECRET};

const DOWN: Answer = Answer::Status(503, "", "");
const FINE: Answer = Answer::Status(204, "", "");
const REFUSED: Answer = Answer::Status(422, "", "no such shop");

/// A webhooks file with these endpoints, each with further lines, and the settings to be impatient.
fn arguments(place: &Place, endpoints: &[(&str, &Endpoint, &str)]) -> Vec<String> {
    let table = |(name, endpoint, more): &(&str, &Endpoint, &str)| {
        let url = endpoint.url();
        format!("[[webhook]]\nname = {name:?}\nurl = {url:?}\nsecret = {SECRET:?}\nallow_private = true\n{more}\n")
    };
    let file = place.path("webhooks.toml");
    fs::write(&file, endpoints.iter().map(table).collect::<String>()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    ["--webhooks", file.to_str().unwrap(), "--backoff", "20ms", "--backoff-max", "100ms", "--poll", "20ms"]
        .map(str::to_owned)
        .to_vec()
}

fn start(place: &Place, arguments: &[String]) -> Server {
    Server::start(place, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

fn article(slug: &str) -> Value {
    json!({ "title": slug, "slug": slug, "content": "About herons." })
}

fn write(place: &Place, server: &Server, slug: &str) {
    let (status, said) = place.post(server, &article(slug));
    assert_eq!(status, 201, "{said}");
}

fn change(place: &Place, server: &Server, method: &str, slug: &str, body: &str) {
    let (status, said) = place.send(method, &format!("{}/api/v1/articles/{slug}", server.url), body);
    assert!((200..300).contains(&status), "{said}");
}

/// Ids that arrived, each once.
fn ids(calls: &[Call]) -> BTreeSet<String> {
    calls.iter().map(|call| call.id().to_owned()).collect()
}

/// The versions of each article, in the order in which they first arrived.
fn versions(calls: &[Call]) -> BTreeMap<String, Vec<i64>> {
    let (mut seen, mut versions) = (BTreeSet::new(), BTreeMap::<String, Vec<i64>>::new());
    for call in calls.iter().filter(|call| seen.insert(call.id().to_owned())) {
        let event = call.event();
        let version = event["data"]["version"].as_i64().unwrap();
        versions.entry(event["subject"].as_str().unwrap().to_owned()).or_default().push(version);
    }
    versions
}

#[test]
fn an_endpoint_that_is_down_delays_no_other_and_catches_up_in_order_through_kill_9() {
    let place = Place::new();
    let (shop, chat, graves) = (Endpoint::start([]), Endpoint::start([]), Endpoint::start([]));
    chat.answer(DOWN);
    let endpoints = [
        ("shop", &shop, ""),
        ("chat", &chat, "types = [\"article.*\"]"),
        ("graves", &graves, "types = [\"article.deleted.v1\"]\nconcurrency = 1"),
    ];
    let arguments = arguments(&place, &endpoints);
    let mut server = start(&place, &arguments);
    let slugs: Vec<String> = (0..6).map(|n| format!("heron-{n}")).collect();
    for slug in &slugs {
        write(&place, &server, slug);
    }
    for round in 0..3 {
        for slug in &slugs {
            change(&place, &server, "PATCH", slug, &json!({ "content": format!("round {round}") }).to_string());
        }
    }
    change(&place, &server, "DELETE", "heron-0", "");
    let all = 6 + 18 + 1;
    let at_shop = shop.wait(|calls| ids(calls).len() == all);
    assert_eq!(graves.wait(|calls| !calls.is_empty())[0].event()["type"], "article.deleted.v1");
    let tried = chat.wait(|calls| !calls.is_empty());
    assert!(place.count("SELECT cursor FROM lanes WHERE handler = 'webhook:chat'") == 0, "it stands: {tried:?}");
    let (_, health) = place.get(&server, "/health/ready");
    assert!(health.contains("webhook:chat") && health.contains("the endpoint answered 503"), "{health}");

    server.signal("KILL");
    server.wait();
    let server = start(&place, &arguments);
    let before = chat.calls().len();
    chat.wait(|calls| calls.len() > before);
    chat.answer(FINE);
    let at_chat = chat.wait(|calls| {
        let accepted: BTreeSet<_> = ids(&calls[before..]);
        accepted.len() == all
    });
    place.delivered(&server);
    let [shop, chat] = [at_shop, at_chat].map(|calls| (ids(&calls), versions(&calls)));
    assert_eq!(shop, chat, "both know the same");
    assert!(chat.1.values().all(|versions| versions.is_sorted()), "in order per article: {:?}", chat.1);
    let spent = "SELECT count(*) FROM deliveries WHERE handler LIKE 'webhook:%'";
    assert_eq!(place.count(spent), 0, "an outage spends nothing and leaves no dead letters");
    assert_eq!(ids(&graves.calls()).len(), 1);
    place.stop(server);
}

#[test]
fn what_arrives_through_the_program_is_verified_with_its_secret() {
    let place = Place::new();
    let shop = Endpoint::start([]);
    let server = start(&place, &arguments(&place, &[("shop", &shop, "source = \"https://example.org/\"")]));
    write(&place, &server, "heron");
    let calls = shop.wait(|calls| !calls.is_empty());
    let [id, timestamp, signature] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| calls[0].header(name));
    let secrets: Vec<Secret> = vec![SECRET.parse().unwrap()];
    let now_ms = timestamp.parse::<i64>().unwrap() * 1_000;
    verify(&Received { id, timestamp, signature, body: calls[0].body.as_bytes() }, &secrets, now_ms).unwrap();
    let event = calls[0].event();
    assert_eq!((&event["source"], &event["data"]["slug"]), (&json!("https://example.org/"), &json!("heron")));
    assert!(!server.log_text().contains("whsec"), "{}", server.log_text());
    place.stop(server);
}

#[test]
fn dead_letters_of_an_endpoint_are_listed_and_replayed_by_its_name() {
    let place = Place::new();
    let shop = Endpoint::start([]);
    shop.answer(REFUSED);
    let server = start(&place, &arguments(&place, &[("shop", &shop, "")]));
    write(&place, &server, "heron");
    write(&place, &server, "egret");
    let dead = "SELECT count(*) FROM deliveries WHERE handler = 'webhook:shop' AND state = 'dead_letter'";
    place.wait_until(|| place.count(dead) == 2, &server);
    let (code, list) = place.run(&["outbox", "list", "--handler", "webhook:shop", "--json"]);
    assert!(
        code == 0 && list.matches("\"reason\":\"the endpoint answered 422: no such shop\",\"replays\"").count() == 2,
        "{list}"
    );
    let refused = ids(&shop.calls());

    shop.answer(FINE);
    let (heron, egret) = (shop.calls()[0].id().to_owned(), shop.calls()[1].id().to_owned());
    let (code, said) = place.run(&["outbox", "replay", "webhook:shop", &heron]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = place.run(&["outbox", "replay", "webhook:shop", &egret, "--force"]);
    assert_eq!(code, 0, "{said}");
    let calls = shop.wait(|calls| calls.len() == 4);
    let again: BTreeSet<String> = ids(&calls[2..]);
    assert_eq!(again, BTreeSet::from([heron, format!("{egret}:r1")]), "forced, it is a message of its own");
    assert_eq!(refused.len(), 2);
    let forced = calls.iter().find(|call| call.id().ends_with(":r1")).unwrap().event();
    assert_eq!((&forced["id"], &forced["replayof"]), (&json!(format!("{egret}:r1")), &json!(egret)));
    place.wait_until(|| place.count(dead) == 0, &server);
    place.stop(server);
}

#[test]
fn a_new_endpoint_begins_with_what_happens_now_and_may_be_filled_up() {
    let place = Place::new();
    let shop = Endpoint::start([]);
    let (none, arguments) = (arguments(&place, &[]), arguments(&place, &[("shop", &shop, "concurrency = 1")]));
    // The file that both name has the endpoint in it by now: without the setting, it has none.
    let server = start(&place, &none[2..]);
    write(&place, &server, "old");
    place.delivered(&server);
    place.stop(server);

    let server = start(&place, &arguments);
    write(&place, &server, "new");
    assert_eq!(shop.wait(|calls| !calls.is_empty())[0].event()["data"]["slug"], "new");
    let (code, said) = place.run(&["handler", "backfill", "webhook:shop", "--to-start"]);
    assert_eq!(code, 0, "{said}");
    let calls = shop.wait(|calls| calls.len() == 3);
    let slugs: Vec<_> = calls.iter().map(|call| call.event()["data"]["slug"].as_str().unwrap().to_owned()).collect();
    assert_eq!(slugs, ["new", "old", "new"]);
    assert_eq!(calls[0].id(), calls[2].id(), "so that a receiver can tell");
    place.stop(server);

    // An import delivers to search and pages; what the endpoint has not got, the next `serve` sends.
    fs::write(place.path("post.md"), "# Imported\n\nText.\n").unwrap();
    let (code, said) = place.run(&["import", place.path("post.md").to_str().unwrap()]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(shop.calls().len(), 3);
    let server = start(&place, &arguments);
    assert_eq!(shop.wait(|calls| calls.len() == 4)[3].event()["data"]["title"], "Imported");
    place.stop(server);
}

#[test]
fn a_webhooks_file_that_cannot_work_ends_the_start_with_exit_code_2_and_no_secret_is_ever_shown() {
    let place = Place::new();
    let file = place.path("webhooks.toml");
    let serve = |text: &str, more: &[&str]| {
        fs::write(&file, text).unwrap();
        let arguments = [&["serve", "--addr", "127.0.0.1:0", "--webhooks", file.to_str().unwrap()], more].concat();
        let (code, said) = place.run(&arguments);
        assert!(!said.contains("MDEyMzQ1"), "{said}");
        (code, said)
    };
    let good = format!("[[webhook]]\nname = \"shop\"\nurl = \"https://example.org/x\"\nsecret = \"{SECRET}\"\n");
    for (text, part) in [
        (good.replace("url", "uri"), "line 3: unknown field `uri`"),
        (good.replace("https://example.org", "http://192.168.0.7"), "192.168.0.7, an address that is private"),
        (good.replace("https://example.org", "http://localhost:1"), "allow_private"),
        (good.replace("https://", "https://me:pw@"), "must have no user and no password"),
        (good.replace("whsec_", ""), "line 4: webhook \"shop\": secret must begin with whsec_"),
        (format!("{good}{good}"), "line 6: webhook \"shop\": there is another endpoint of this name"),
        (format!("{good}timeout = \"30s\""), "line 5: webhook \"shop\": timeout must be above zero and at most 25s"),
        (format!("{good}types = [\"artcle.*\"]"), "no event is of the type \"artcle.*\""),
        (good.replace("[[webhook]]", "[webhook]"), "write [[webhook]], with double brackets"),
    ] {
        let (code, said) = serve(&text, &[]);
        assert!(code == 2 && said.contains(part) && said.contains("webhooks.toml"), "{code} {said}");
    }
    let (code, said) = place.run(&["serve", "--webhooks", "nowhere.toml"]);
    assert!(code == 2 && said.contains("cannot read nowhere.toml"), "{said}");
    assert!(!place.data().join("articles.db").exists(), "nothing was done");
    let (code, said) = serve(&good, &["--print-config"]);
    assert!(code == 0 && said.contains("[webhooks]") && said.contains("webhooks.toml\""), "{said}");
}

#[test]
fn a_file_without_an_endpoint_is_warned_of() {
    let place = Place::new();
    let server = start(&place, &arguments(&place, &[]));
    assert!(server.log_text().contains("event=webhooks_none"), "{}", server.log_text());
    place.stop(server);
}

#[test]
fn secrets_that_every_user_can_read_are_warned_of() {
    let place = Place::new();
    let shop = Endpoint::start([]);
    let arguments = arguments(&place, &[("shop", &shop, "")]);
    let server = start(&place, &arguments);
    assert!(!server.log_text().contains("webhook_secrets_open"), "{}", server.log_text());
    place.stop(server);
    fs::set_permissions(place.path("webhooks.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let server = start(&place, &arguments);
    assert!(server.log_text().contains("event=webhook_secrets_open"), "{}", server.log_text());
    place.stop(server);
}

#[test]
fn an_endpoint_that_never_answers_is_cut_off_at_the_stop_and_gets_its_events_from_the_next_run() {
    let place = Place::new();
    let shop = Endpoint::start([]);
    shop.answer(Answer::Silence);
    let mut arguments = arguments(&place, &[("shop", &shop, "timeout = \"25s\"")]);
    arguments.extend(["--stop-timeout", "4s"].map(str::to_owned));
    let server = start(&place, &arguments);
    write(&place, &server, "heron");
    write(&place, &server, "egret");
    // The other may wait for the same thread.
    shop.wait(|calls| !calls.is_empty());
    place.stop(server);
    assert_eq!(place.count("SELECT count(*) FROM deliveries WHERE handler = 'webhook:shop'"), 0, "nothing was spent");

    let before = shop.calls().len();
    shop.answer(FINE);
    let server = start(&place, &arguments);
    shop.wait(|calls| ids(&calls[before..]).len() == 2);
    place.delivered(&server);
    place.stop(server);
}
