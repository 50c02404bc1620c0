//! The operator's page: over HTTP, and in a real browser.

use std::sync::atomic::Ordering;

use serde_json::json;

use crate::admin::Failing;
use crate::browser::Browser;
use crate::harness::{Answer, TOKEN, TestSite, WRITE_TOKEN, wait_until};
use crate::markup::assert_page;

fn form(site: &TestSite, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    site.send_as_is("POST", path, headers, Some(body))
}

fn sign_in(site: &TestSite) -> String {
    let answer = form(site, "/admin/sign-in", &[], &format!("token={TOKEN}"));
    assert_eq!((answer.status, answer.header("location")), (303, Some("/admin")), "{}", answer.body);
    answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

fn key_of(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"key\" value=\"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn the_page_takes_an_administrators_token_and_forms_of_its_own_only() {
    let at = Failing::new();
    at.site.post(json!({"title": "A", "content": "x"}));
    at.site.drain();
    let outside = at.site.send_as_is("GET", "/admin", &[], None);
    assert_page(&outside.body);
    assert!(outside.body.contains("type=\"password\"") && !outside.body.contains("mail"));
    for token in ["wrong", "", WRITE_TOKEN] {
        let answer = form(&at.site, "/admin/sign-in", &[], &format!("token={token}"));
        assert!(answer.status == 401 || answer.status == 403, "{token}");
        assert!(answer.header("set-cookie").is_none(), "{token}");
    }
    let cross = form(&at.site, "/admin/sign-in", &[("origin", "https://evil.example")], &format!("token={TOKEN}"));
    assert_eq!(cross.status, 403);
    let answer = form(&at.site, "/admin/sign-in", &[("x-forwarded-proto", "https")], &format!("token={TOKEN}"));
    let set = answer.header("set-cookie").unwrap().to_owned();
    assert!(set.contains("; HttpOnly; SameSite=Strict") && set.ends_with("; Secure") && !set.contains(TOKEN), "{set}");

    let cookie = sign_in(&at.site);
    let get = |path: &str| at.site.send_as_is("GET", path, &[("cookie", cookie.as_str())], None);
    let page = get("/admin");
    assert_page(&page.body);
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe") && !policy.contains("script-src"));
    let id = "name=\"act\" value=\"replay\"";
    assert!(page.body.contains(id) && page.body.contains("no &lt;address&gt; &amp; co for"), "{}", page.body);
    for path in ["/admin/event?q=1", "/admin/event?q=a", "/admin/event?q=%3Cb%3E", "/admin/confirm?id=1&handler=mail"] {
        assert_page(&get(path).body);
    }
    let replay = "act=replay&id=1&handler=mail";
    let with_key = format!("{replay}&key={}", key_of(&page.body));
    let own = format!("http://{}", at.site.addr());
    for (headers, body, status) in [
        (vec![("cookie", cookie.as_str())], replay, 403),
        (vec![("cookie", cookie.as_str()), ("origin", "https://evil.example")], with_key.as_str(), 403),
        (vec![("cookie", cookie.as_str()), ("sec-fetch-site", "cross-site")], with_key.as_str(), 403),
        (vec![("cookie", cookie.as_str()), ("origin", own.as_str())], with_key.as_str(), 303),
    ] {
        assert_eq!(form(&at.site, "/admin/act", &headers, body).status, status, "{headers:?} {body}");
    }
    let out = form(&at.site, "/admin/sign-out", &[("cookie", &cookie)], &format!("key={}", key_of(&page.body)));
    assert!(out.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert!(get("/admin").body.contains("type=\"password\""), "the session is over");
    assert_eq!(at.site.send_as_is("POST", "/admin", &[], Some("")).status, 405);
    assert_eq!(at.site.send_as_is("GET", "/admin/nothing", &[], None).status, 404);
}

#[test]
fn events_are_found_by_number_id_correlation_slug_and_type() {
    let at = Failing::new();
    let headers = [("x-correlation-id", "trail-17")];
    let body = json!({"title": "Grey heron", "content": "x"}).to_string();
    at.site.send("POST", "/api/v1/articles", &headers, Some(&body));
    at.site.drain();
    let cookie = sign_in(&at.site);
    let find = |asked: &str| {
        at.site.send_as_is("GET", &format!("/admin/event?q={asked}"), &[("cookie", cookie.as_str())], None).body
    };
    for asked in ["trail-17", "grey-heron", "article.created.v1", "article.*"] {
        assert!(find(asked).contains("href=\"/admin/event?q=1\""), "{asked}");
    }
    let story = find("1");
    for part in ["<h1>Event 1</h1>", "trail-17", "grey-heron", "Where it stands", "poison", "dead letter"] {
        assert!(story.contains(part), "{part}: {story}");
    }
    assert!(find("nothing").contains("class=\"empty\""));
}

#[test]
fn the_page_freezes_and_thaws_and_acts_on_jobs_that_were_given_up() {
    let site = TestSite::new();
    let cookie = sign_in(&site);
    let page = || site.send_as_is("GET", "/admin", &[("cookie", &cookie)], None).body;
    let key = key_of(&page());
    let act = |fields: &str| form(&site, "/admin/act", &[("cookie", &cookie)], &format!("key={key}&{fields}"));
    let taken = json!({"title": "A", "slug": "a", "content": "x"});
    assert_eq!(site.post(taken.clone()).status, 201);
    assert_eq!(act("act=job-mode&mode=journal&reason=backup").status, 303);
    let frozen = page();
    assert_page(&frozen);
    assert!(frozen.contains("frozen: writes are accepted and wait") && frozen.contains(">Thaw<"), "{frozen}");
    let ready = site.get("/health/ready").json();
    assert_eq!(ready["writes"]["mode"], "journal");
    let ids: Vec<_> = (0..2).map(|_| site.post(taken.clone()).json()["job"]["id"].as_i64().unwrap()).collect();
    assert_eq!(act(&format!("act=job-cancel&id={}", ids[1])).status, 400, "it must be said why");
    assert_eq!(act(&format!("act=job-cancel&id={}&reason=twice", ids[1])).status, 303);
    assert_eq!(act("act=job-mode&mode=open").status, 303);
    wait_until("it is given up", || site.jobs.stats().unwrap().dead_letter == 1);
    let dead = page();
    assert_page(&dead);
    assert!(dead.contains(&format!("Job {}: create", ids[0])) && dead.contains("slug_taken"), "{dead}");
    assert_eq!(site.delete("a").status, 204);
    assert_eq!(act(&format!("act=job-replay&id={}", ids[0])).status, 303);
    wait_until("it is applied", || site.get("/api/v1/articles/a").status == 200);
    assert_eq!(act(&format!("act=job-discard&id={}&reason=done", ids[1])).status, 303);
    assert_eq!(site.jobs.show(ids[1]).unwrap(), None);
}

#[test]
fn in_a_browser_an_operator_signs_in_sees_a_failing_handler_replays_it_and_sees_it_gone() {
    let Some(mut browser) = Browser::start() else { return };
    let at = Failing::new();
    for title in ["Grey heron", "Kingfisher"] {
        at.site.post(json!({"title": title, "content": "x"}));
    }
    at.site.drain();
    browser.width(1200);
    browser.open(&format!("http://{}/admin", at.site.addr()));
    // By keyboard: the field has the focus.
    browser.until("document.activeElement.id == 'token'");
    browser.picture("sign-in");
    browser.type_text(TOKEN);
    browser.key("Enter", 13);
    browser.until("document.readyState == 'complete' && !!document.querySelector('#dead')");
    assert_eq!(browser.eval("document.querySelectorAll('#dead .rows > li').length"), 2);
    browser.until("document.querySelector('#dead').innerText.includes('no <address> & co')");
    browser.picture("overview-light");
    browser.scheme("dark");
    let ground = browser.eval("getComputedStyle(document.body).backgroundColor");
    assert_eq!(ground, "rgb(20, 23, 27)");
    browser.picture("overview-dark");
    browser.width(360);
    for path in ["/admin", "/admin/event?q=1", "/admin/confirm?id=1&handler=mail", "/", "/articles/grey-heron"] {
        browser.open(&format!("http://{}{path}", at.site.addr()));
        let wide = browser.eval("document.documentElement.scrollWidth <= 360");
        assert_eq!(wide, true, "{path} scrolls sideways: {}", browser.eval("document.documentElement.scrollWidth"));
        browser.picture(&format!("phone{}", path.replace(['/', '?', '=', '&'], "-")));
    }
    browser.width(1200);
    browser.scheme("light");
    // Given up for good, after a question.
    browser.open(&format!("http://{}/admin", at.site.addr()));
    browser.eval("document.querySelector('#dead .acts a').click()");
    browser.until("!!document.querySelector('#reason')");
    browser.until("document.activeElement.id == 'reason'");
    browser.type_text("nobody waits for it");
    browser.key("Enter", 13);
    browser.until("!!document.querySelector('.done')");
    assert_eq!(browser.eval("document.querySelectorAll('#dead .rows > li').length"), 1);
    // Mended, and once more.
    at.mended.store(true, Ordering::SeqCst);
    browser.eval("document.querySelector('#dead form button').focus()");
    browser.key("Enter", 13);
    browser
        .until("!!document.querySelector('.done') && document.querySelector('.done').innerText.includes('once more')");
    browser.open(&format!("http://{}/admin", at.site.addr()));
    browser.until("document.querySelector('#dead').innerText.includes('None.')");
    browser.open(&format!("http://{}/admin/event?q=2", at.site.addr()));
    browser.until("document.body.innerText.includes('replay')");
}
