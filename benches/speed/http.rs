//! The server over loopback: 64 keep-alive connections, the site against the bare engine that gives the same answer from memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use vayu_articles::http::engine::{Engine, EngineOptions, Request, Response, StatusCode, header};
use vayu_articles::http::{Access, Health, Role, Site as HttpSite, SiteParts};
use vayu_articles::lifecycle::{Service, StartContext};
use vayu_articles::outbox::Relay;
use vayu_articles::service::WriteContext;
use vayu_articles::sinks::cache::{CacheOptions, PageCache};
use vayu_articles::sinks::render::Renderer;
use vayu_articles::sinks::search::{SearchIndex, SearchOptions};

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input;
use crate::place::{self, LONG, Site, soon};
use crate::sizes::Sizes;
use crate::write::at_once;

const CONNECTIONS: usize = 64;
/// Threads of the client; each has a request under way on every one of its connections.
const CLIENTS: usize = 4;
const TURNS: usize = 4;
const TOKEN: &str = "the-token-of-the-speed-figures";

/// A page that is in the cache.
pub fn get(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let count = sizes.http_get;
    let runs = (0..RUNS)
        .map(|_| {
            let folder = place::folder()?;
            let site = Site::open(folder.path(), "product.db")?;
            let article = site.service.create(input::article("serving", 0), &WriteContext::default())?;
            let request = format!("GET /articles/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", article.slug);
            in_turns(folder.path(), site, count, 200, |_| request.clone())
        })
        .collect::<Outcome<Vec<_>>>()?;
    Ok(vec![rates("http.get.ratio", ">= 0.50", format!("{count} pages, {CONNECTIONS} connections"), &runs)])
}

/// Articles of 2 KB, each answered after its commit.
pub fn post(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let count = sizes.http_post;
    let runs = (0..RUNS)
        .map(|_| {
            let folder = place::folder()?;
            let site = Site::open(folder.path(), "product.db")?;
            in_turns(folder.path(), site, count, 201, creation)
        })
        .collect::<Outcome<Vec<_>>>()?;
    Ok(vec![rates("http.post.ratio", ">= 0.10", format!("{count} articles, {CONNECTIONS} connections"), &runs)])
}

fn creation(number: usize) -> String {
    let article = json!({
        "title": input::title("serving", number), "content": input::content(number), "tags": input::tags(number),
    });
    let body = article.to_string();
    format!(
        "POST /api/v1/articles HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Sends the requests to the bare engine and to the site in turns. The bare engine answers what the site answers to the first.
fn in_turns(folder: &Path, site: Site, count: usize, status: u16, request: impl Fn(usize) -> String) -> Outcome<Sides> {
    let product = start(serve(folder, &site)?)?;
    let constant = {
        let answer = Connection::open(address(&product)?)?.ask(&request(count), status)?;
        Response::text(StatusCode::from_u16(status)?, answer)
            .header(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache"))
    };
    let bare = start(Engine::new(options(), Arc::new(move |_: Request| constant.clone())))?;
    let mut sides = Sides { items: count, ..Sides::default() };
    for turn in 0..TURNS {
        let requests = || (turn * count / TURNS..(turn + 1) * count / TURNS).map(&request).collect();
        sides.baseline += send(address(&bare)?, requests(), status)?;
        sides.product += send(address(&product)?, requests(), status)?;
    }
    product.stop(soon())?;
    bare.stop(soon())?;
    site.close()?;
    Ok(sides)
}

fn serve(folder: &Path, site: &Site) -> Outcome<Engine> {
    let repository = site.service.repository().clone();
    let renderer = Renderer::default();
    let parts = SiteParts {
        articles: site.service.clone(),
        search: Arc::new(SearchIndex::new(folder.join("search.db"), Arc::new(repository), SearchOptions::default())),
        cache: PageCache::open(folder.join("pages"), &renderer.fingerprint(), CacheOptions::default())?,
        renderer,
        access: Access::fixed(&[("bench", Role::Write, TOKEN)]),
        relay: Relay::builder(&site.database).build()?,
        health: Box::new(|| Health { ready: true, services: Vec::new(), lanes: Vec::new(), backlog_error: None }),
    };
    Ok(HttpSite::new(parts).serve_on(options()))
}

fn options() -> EngineOptions {
    EngineOptions { addr: ([127, 0, 0, 1], 0).into(), ..EngineOptions::default() }
}

fn start(engine: Engine) -> Outcome<Engine> {
    engine.start(&StartContext::standalone("http", LONG))?;
    Ok(engine)
}

fn address(engine: &Engine) -> Outcome<SocketAddr> {
    Ok(engine.local_addr().ok_or("the server is not bound")?)
}

/// Sends all requests over connections that are open before the clock starts.
fn send(addr: SocketAddr, requests: Vec<String>, status: u16) -> Outcome<Duration> {
    let mut shares: Vec<Vec<String>> = (0..CLIENTS).map(|_| Vec::new()).collect();
    for (number, request) in requests.into_iter().enumerate() {
        shares[number % CLIENTS].push(request);
    }
    let clients = shares.into_iter().map(|share| {
        let connections = (0..CONNECTIONS / CLIENTS).map(|_| Connection::open(addr)).collect::<Outcome<Vec<_>>>()?;
        Ok((connections, share))
    });
    at_once(clients.collect::<Outcome<Vec<_>>>()?, |(mut connections, requests)| {
        for round in requests.chunks(connections.len()) {
            for (connection, request) in connections.iter_mut().zip(round) {
                connection.stream.get_mut().write_all(request.as_bytes())?;
            }
            for connection in connections.iter_mut().take(round.len()) {
                connection.answer(status)?;
            }
        }
        Ok(())
    })
}

struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
    body: Vec<u8>,
}

impl Connection {
    fn open(addr: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONG))?;
        Ok(Self { stream: BufReader::new(stream), line: String::new(), body: Vec::new() })
    }

    fn ask(&mut self, request: &str, status: u16) -> Outcome<String> {
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer(status)?;
        Ok(String::from_utf8(self.body.clone())?)
    }

    /// Reads one answer to its last byte.
    fn answer(&mut self, status: u16) -> Outcome<()> {
        let first = self.read_line()?.to_owned();
        if first.split(' ').nth(1) != Some(status.to_string().as_str()) {
            return Err(format!("answered {first:?} instead of {status}").into());
        }
        let mut length = 0;
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.parse()?;
            }
        }
        self.body.resize(length, 0);
        Ok(self.stream.read_exact(&mut self.body)?)
    }

    fn read_line(&mut self) -> Outcome<&str> {
        self.line.clear();
        self.stream.read_line(&mut self.line)?;
        Ok(self.line.trim_end())
    }
}
