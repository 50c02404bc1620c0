//! A real nginx with `deploy/nginx-cache.conf` in front of the program: what it keeps is purged, and what nobody purges is not
//! kept. Without nginx and its module these tests are skipped, unless `REQUIRE_SERVICES=1`.
#![cfg(all(feature = "server", feature = "cli"))]

mod serve_support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serve_support::{LONG, Place, Server, TOKEN, wait_or, wait_until};

const MODULE: &str = "/usr/lib/nginx/modules/ngx_http_cache_purge_module.so";

struct Nginx {
    port: u16,
    folder: tempfile::TempDir,
    child: Option<Child>,
}

impl Nginx {
    /// `None` where there is no nginx or no module that purges, unless services are required. It is not started yet.
    fn find() -> Option<Self> {
        let runs = Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        if !runs || !Path::new(MODULE).exists() {
            let required = std::env::var("REQUIRE_SERVICES").is_ok_and(|value| value == "1");
            let how = "apt-get install nginx libnginx-mod-http-cache-purge";
            assert!(!required, "nginx with {MODULE} is required and not installed: {how}");
            eprintln!("skipped: nginx with its purge module is not installed: {how}");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(Self { port, folder: tempfile::tempdir().unwrap(), child: None })
    }

    /// In front of the server on this port, with the repository's file.
    fn up(&mut self, backend: u16) {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/nginx-cache.conf");
        let mut site = fs::read_to_string(file).unwrap();
        let pages = self.path("pages");
        for (there, here) in [
            ("server 127.0.0.1:8080;", format!("server 127.0.0.1:{backend};")),
            ("listen 80;", format!("listen 127.0.0.1:{};", self.port)),
            ("/var/cache/nginx/vayu-articles", pages.display().to_string()),
        ] {
            assert!(site.contains(there), "the file names {there}");
            site = site.replace(there, &here);
        }
        let folder = self.folder.path().display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {folder}/{what};\n"))
            .concat();
        let whole = format!(
            "load_module {MODULE};\n{}daemon off;\nworker_processes 1;\npid {folder}/pid;\nerror_log {folder}/said;\n\
             events {{}}\nhttp {{\naccess_log off;\n{temporary}{site}}}\n",
            // Started by root it would be another user, who may not enter the folder.
            if is_root(self.folder.path()) { "user root;\n" } else { "" }
        );
        fs::write(self.path("nginx.conf"), whole).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.folder.path()).arg("-c").arg(self.path("nginx.conf"));
        command.arg("-e").arg(self.path("said")).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let said = || fs::read_to_string(self.path("said")).unwrap_or_default();
        let is_there = || {
            assert!(child.try_wait().unwrap().is_none(), "{}", said());
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        };
        wait_or(is_there, said);
        self.child = Some(child);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Whoever made the folder is who we are.
fn is_root(folder: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(folder).unwrap().uid() == 0
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It ends its worker.
            let _ = Command::new("kill").arg(child.id().to_string()).status();
            let _ = child.wait();
        }
    }
}

struct Answer {
    status: u16,
    cache: String,
    headers: ureq::http::HeaderMap,
    body: String,
}

struct Reader {
    agent: ureq::Agent,
    base: String,
}

impl Reader {
    fn send(&self, method: &str, path: &str, token: bool, body: &str) -> Answer {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        if token {
            request = request.header("Authorization", format!("Bearer {TOKEN}"));
        }
        let request = request.header("Content-Type", "application/json").body(body.to_owned()).unwrap();
        let mut answer = self.agent.run(request).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
        Answer {
            status: answer.status().as_u16(),
            cache: answer.headers().get("x-cache").map_or("", |value| value.to_str().unwrap()).to_owned(),
            headers: answer.headers().clone(),
            body: answer.body_mut().read_to_string().unwrap(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, false, "")
    }

    fn write(&self, method: &str, path: &str, body: &str) -> u16 {
        self.send(method, path, true, body).status
    }

    /// Asks twice; whether the second answer came from the cache.
    fn keeps(&self, path: &str) -> bool {
        self.get(path);
        self.get(path).cache == "HIT"
    }
}

#[test]
fn nginx_keeps_what_is_purged_and_nothing_else() {
    let Some(mut nginx) = Nginx::find() else { return };
    let place = Place::new();
    let base = format!("http://127.0.0.1:{}", nginx.port);
    let args = ["--site", "http://site.test", "--cdn", &base, "--cdn-shape", "purge", "--cdn-ttl", "10m"];
    let server = Server::start(&place, &args);
    nginx.up(server.address().rsplit_once(':').unwrap().1.parse().unwrap());
    let config = ureq::Agent::config_builder().http_status_as_error(false).allow_non_standard_methods(true);
    let config = config.timeout_global(Some(LONG));
    let reader = Reader { agent: config.build().into(), base };

    let new = r#"{"title": "Red fox", "slug": "fox", "content": "red fur", "tags": ["big & small"]}"#;
    let tag = "/tags/big%20%26%20small";
    for path in ["/", "/articles/fox", "/feed.xml", "/sitemap.xml", tag] {
        assert!(reader.keeps(path), "{path} is kept, also when it is a 404");
    }
    assert_eq!(reader.get("/articles/fox").status, 404);
    assert_eq!(reader.write("POST", "/api/v1/articles", new), 201);
    for path in ["/", "/articles/fox", "/feed.xml", tag] {
        wait_until("the new article is there", || reader.get(path).body.contains("Red fox"));
        assert!(reader.keeps(path), "{path} is kept");
    }
    let page = reader.get("/articles/fox");
    assert_eq!((page.status, page.cache.as_str()), (200, "HIT"));
    for hidden in ["surrogate-key", "cdn-cache-control", "surrogate-control"] {
        assert!(!page.headers.contains_key(hidden), "{hidden}: {:?}", page.headers);
    }
    assert_eq!(reader.write("PATCH", "/api/v1/articles/fox", r#"{"slug": "vixen", "title": "Vixen"}"#), 200);
    wait_until("the old address is gone", || !reader.get("/articles/fox").body.contains("red fur"));
    wait_until("the new one is there", || reader.get("/articles/vixen").status == 200);
    wait_until("the list has the new title", || reader.get("/").body.contains("Vixen"));

    // What no purge would reach, and what is not for everybody.
    let others =
        ["/?page=1", "/search?q=fur", "/health/ready", "/metrics", "/api/v1/articles", "/api/v1/articles?tag=x"];
    for path in others.into_iter().chain(["/articles//vixen", "/admin"]) {
        assert!(!reader.keeps(path), "{path} is kept");
    }
    let draft = r#"{"title": "Secret", "slug": "secret", "content": "x", "status": "draft"}"#;
    assert_eq!(reader.write("POST", "/api/v1/articles", draft), 201);
    assert!(reader.keeps("/articles/secret"), "the 404 of everybody");
    let seen = |token| reader.send("GET", "/api/v1/articles/secret", token, "").status;
    assert_eq!((seen(false), seen(true), seen(false)), (404, 200, 404));
    let with_token = reader.send("GET", "/articles/secret", true, "");
    assert_eq!((with_token.status, with_token.cache.as_str()), (404, "BYPASS"), "pages are for everybody");

    let passed_on = ureq::http::Request::builder().method("PURGE").uri(format!("{}/articles/vixen", reader.base));
    let passed_on = passed_on.header("X-Forwarded-For", "203.0.113.7").body(()).unwrap();
    assert_eq!(reader.agent.run(passed_on).unwrap().status().as_u16(), 403);
    assert_eq!(reader.send("PURGE", "/forget", false, "").status, 404, "an address as any other");
    assert_eq!(reader.send("PURGE", "/articles/vixen", false, "").status, 200, "by hand");
    assert_eq!(reader.get("/articles/vixen").cache, "MISS");
    let (code, said) = place.run(&["outbox", "list"]);
    assert!(code == 0 && !said.contains("dead"), "every purge was taken: {said}");
    place.stop(server);
}
