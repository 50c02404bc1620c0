//! Who may purge, what is never kept, and what readers see of all this.

use vayu_articles::article::{ArticlePatch, NewArticle, Status};
use vayu_articles::outbox::LaneState;
use vayu_articles::service::WriteContext;
use vayu_articles::sinks::cdn::CdnShape;

use super::harness::{Fronted, TOKEN, wait_until};

#[test]
fn what_is_for_somebody_with_a_token_is_never_kept() {
    let Some(site) = Fronted::start(CdnShape::Keys, None) else { return };
    let draft = NewArticle::new("Secret", "plans").slug("secret").status(Status::Draft);
    site.service.create(draft, &WriteContext::default()).unwrap();
    site.post("open", "text", &[]);
    site.drain();
    let bearer = format!("Bearer {TOKEN}");
    let with_token = |path: &str| site.send("GET", path, &[("Authorization", &bearer)]);
    for path in
        ["/api/v1/articles/secret", "/api/v1/articles?status=all", "/api/v1/articles/open", "/api/v1/admin/lanes"]
    {
        let page = with_token(path);
        assert_eq!(page.status, 200, "{path}");
        assert!(!with_token(path).is_hit(), "{path}");
        let stranger = site.get(path);
        assert!(!stranger.is_hit() && !stranger.body.contains("Secret"), "{path} {stranger:?}");
    }
    for path in ["/admin", "/health/ready", "/metrics", "/api/v1/search?q=text", "/search?q=text"] {
        site.get(path);
        assert!(!site.get(path).is_hit(), "{path}");
    }
    // And the other way round: what strangers are shown is not what the token shows.
    assert_eq!(site.warm("/api/v1/articles/secret").status, 404);
    assert_eq!(with_token("/api/v1/articles/secret").status, 200);
}

#[test]
fn a_reader_sees_no_keys_asks_again_each_time_and_gets_304() {
    let Some(site) = Fronted::start(CdnShape::Keys, None) else { return };
    site.post("a", "text", &["t"]);
    site.drain();
    let page = site.warm("/articles/a");
    for name in ["surrogate-key", "cdn-cache-control", "surrogate-control", "x-path", "x-correlation-id"] {
        assert_eq!(page.header(name), None, "{name}");
    }
    assert_eq!(page.header("cache-control"), Some("no-cache"));
    let tag = page.header("etag").unwrap();
    let again = site.send("GET", "/articles/a", &[("If-None-Match", tag)]);
    assert_eq!((again.status, again.is_hit(), again.body.as_str()), (304, true, ""));
    let head = site.send("HEAD", "/articles/a", &[]);
    assert_eq!((head.status, head.is_hit()), (200, true));
    assert!(site.send("GET", "/articles/a", &[("Cookie", "theme=dark")]).is_hit(), "a foreign cookie");
    assert!(site.get("/articles/a?utm_source=x&fbclid=y").is_hit(), "who links to it");
    // Of a change in between it hears at once.
    site.update("a", ArticlePatch::default().content("other"));
    site.drain();
    assert_eq!(site.send("GET", "/articles/a", &[("If-None-Match", tag)]).status, 200);
}

#[test]
fn a_stranger_cannot_purge_and_no_key_can_ban_more_than_it_names() {
    let Some(site) = Fronted::start(CdnShape::Keys, None) else { return };
    site.post("a", "text", &["t"]);
    site.drain();
    site.warm("/articles/a");
    // As a proxy on the same machine passes it on.
    let forwarded = ("X-Forwarded-For", "203.0.113.7");
    assert_eq!(site.send("PURGE", "/articles/a", &[forwarded]).status, 403);
    assert_eq!(site.send("BAN", "/articles/a", &[forwarded]).status, 403);
    assert_eq!(site.send("POST", "/", &[forwarded, ("Surrogate-Key", "all")]).status, 403);
    for keys in [".*", "a|b", "a,b", " ", "a  b", "all)|(", "all && obj.status != 0", "\"all\"", "a\tb", "(", "ä"] {
        assert_eq!(site.send("POST", "/", &[("Surrogate-Key", keys)]).status, 400, "{keys:?}");
    }
    for keys in ["slug", "slug-", "lug-a", "article", "tag-a", "al", "slug-a-b"] {
        assert_eq!(site.send("POST", "/", &[("Surrogate-Key", keys)]).status, 200, "{keys:?}");
    }
    assert!(site.get("/articles/a").is_hit(), "none of these named it");
    assert_eq!(site.send("POST", "/", &[("Surrogate-Key", "none all")]).status, 200);
    assert!(!site.get("/articles/a").is_hit());
    // A call with as much as a call may have.
    let many: Vec<String> = (0..40).map(|number| format!("{number:0100}")).chain(["slug-a".to_owned()]).collect();
    site.warm("/articles/a");
    assert_eq!(site.send("POST", "/", &[("Surrogate-Key", &many.join(" "))]).status, 200);
    assert!(!site.get("/articles/a").is_hit());
}

#[test]
fn with_a_token_only_who_has_it_may_purge_and_a_server_without_it_waits_and_loses_nothing() {
    let Some(mut site) = Fronted::start(CdnShape::Keys, None) else { return };
    let backend = site.origin_port();
    site.varnish.kill();
    site.varnish.token = Some("s3cret");
    site.varnish.up(backend);
    for (token, status) in
        [(None, 401), (Some("Bearer wrong"), 401), (Some("s3cret"), 401), (Some("Bearer s3cret"), 200)]
    {
        let elsewhere = ("X-Forwarded-For", "203.0.113.7");
        let headers: Vec<_> = token.map(|token| ("Authorization", token)).into_iter().chain([elsewhere]).collect();
        assert_eq!(site.send("PURGE", "/articles/a", &headers).status, status, "{token:?}");
        assert_eq!(site.send("BAN", "/articles/a", &headers).status, status, "{token:?}");
        let keys: Vec<_> = headers.iter().copied().chain([("Surrogate-Key", "all")]).collect();
        assert_eq!(site.send("POST", "/", &keys).status, status, "{token:?}");
    }
    site.post("a", "text", &[]);
    let pauses = |reason: &str| reason.contains("401") && reason.contains("token");
    wait_until("the lane says why it waits", || {
        site.relay.status().iter().any(|lane| matches!(&lane.state, LaneState::Paused { reason, .. } if pauses(reason)))
    });
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0);
    // The right settings, as after a restart of either.
    site.varnish.kill();
    site.varnish.token = None;
    site.varnish.up(backend);
    site.wait_for_lane("cdn");
}
