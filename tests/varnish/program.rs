//! The program itself behind Varnish, set up as the documents say.

use super::harness::{LONG, Varnish, wait_until};
use super::serve_support::{Place, Server, TOKEN};

#[test]
fn the_program_purges_what_varnish_keeps_and_stops_without_waiting_for_the_second_purge() {
    let Some(mut varnish) = Varnish::find() else { return };
    let place = Place::new();
    let cache = format!("http://127.0.0.1:{}/", varnish.port);
    let server = Server::start(
        &place,
        &["--site", "http://site.test", "--cdn", &cache, "--cdn-shape", "keys", "--cdn-ttl", "10m"],
    );
    varnish.up(server.address().rsplit_once(':').unwrap().1.parse().unwrap());
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(LONG)).build().into();
    let get = |path: &str| {
        let mut answer = agent.get(format!("{cache}{path}")).call().unwrap();
        let hit = answer.headers().get("x-cache").is_some_and(|value| value == "HIT");
        (answer.status().as_u16(), hit, answer.body_mut().read_to_string().unwrap())
    };
    // Writes may go through Varnish as well.
    let bearer = format!("Bearer {TOKEN}");
    let write = |method: &str, path: &str, body: &str| {
        let request = ureq::http::Request::builder().method(method).uri(format!("{cache}{path}"));
        let request = request.header("Authorization", &bearer).header("Content-Type", "application/json");
        agent.run(request.body(body.to_owned()).unwrap()).unwrap().status().as_u16()
    };
    assert_eq!(get("articles/fox").0, 404);
    assert!(get("articles/fox").1, "the 404 is kept");
    assert_eq!(write("POST", "api/v1/articles", r#"{"title": "Fox", "slug": "fox", "content": "red fur"}"#), 201);
    wait_until("the new page is there", || get("articles/fox").0 == 200);
    assert!(get("articles/fox").1, "the page is kept");
    assert_eq!(write("PATCH", "api/v1/articles/fox", r#"{"content": "white fur"}"#), 200);
    wait_until("the change is there", || get("articles/fox").2.contains("white fur"));
    let (code, said) = place.run(&["handler", "list"]);
    assert!(code == 0 && said.contains("cdn-again"), "{said}");
    place.stop(server);
}
