//! Publishing to a real broker: a lane with the sink, against a bare loop of the client with the same window.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, stream};
use async_nats::{Client, HeaderMap};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use vayu_articles::outbox::Relay;
use vayu_articles::sinks::cloud_event;
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::place::{self, Site, soon};
use crate::relay::fill;
use crate::sizes::Sizes;

/// Publishes under way at once, on both sides.
const WINDOW: usize = 256;
const BARE: &str = "BARE";

/// Events per second into a stream with file storage, and that rate against the bare loop's.
pub fn publish(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    if !sizes.full {
        return Ok(Vec::new());
    }
    let folder = place::folder()?;
    let Some(server) = Server::start(&folder.path().join("broker"))? else {
        eprintln!("  nats.publish: skipped, nats-server is not installed");
        return Ok(Vec::new());
    };
    let site = Site::open(folder.path(), "publish.db")?;
    fill(&site, sizes.publish)?;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let baseline = bare(&server, run, sizes.publish)?;
        let product = lane(&server, &site, run)?;
        runs.push(Sides { baseline, product, items: sizes.publish });
    }
    site.close()?;
    let size = format!("{} events, {WINDOW} under way, no two of one key", sizes.publish);
    let values: Vec<f64> = runs.iter().map(Sides::product_rate).collect();
    Ok(vec![
        Figure::new("nats.publish", "events/s", "", size.clone(), values),
        rates("nats.publish.ratio", ">= 0.50", size, &runs),
    ])
}

/// From the start of a lane that is new to the log until it has written that all is published.
fn lane(server: &Server, site: &Site, run: usize) -> Outcome<Duration> {
    let mut options = NatsOptions::new([server.url.as_str()]);
    options.stream = format!("LANE-{run}");
    options.prefix = format!("lane{run}");
    options.window = WINDOW;
    let began = Instant::now();
    let relay = Relay::builder(&site.database).handler(format!("nats-{run}"), NatsSink::new(options)?).start()?;
    if !relay.wait_drained(soon()) {
        return Err(format!("not drained: {:?}", relay.status()).into());
    }
    let took = began.elapsed();
    relay.stop(soon())?;
    Ok(took)
}

/// The client alone: messages of the same size with ids, published a window at a time ahead of their acknowledgements.
fn bare(server: &Server, run: usize, count: usize) -> Outcome<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client: Client = async_nats::connect(&server.url).await?;
        let context = jetstream::new(client);
        let subject = format!("bare{run}.article.created.v1");
        let config =
            stream::Config { name: format!("{BARE}-{run}"), subjects: vec![subject.clone()], ..Default::default() };
        context.create_stream(config).await?;
        let event = vayu_articles::outbox::NewEvent::new("article.created.v1", &"x".repeat(220))?
            .key("0199a3b2-7c0f-7000-8000-000000000001")
            .into_event(1);
        let body = bytes::Bytes::from(cloud_event::encode(&event, "/vayu-articles"));
        let began = Instant::now();
        let mut under_way = FuturesUnordered::new();
        for number in 0..count {
            if under_way.len() == WINDOW {
                under_way.next().await.transpose()?;
            }
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", format!("bare-{number}").as_str());
            let ack = context.publish_with_headers(subject.clone(), headers, body.clone()).await?;
            under_way.push(ack.into_future());
        }
        while under_way.next().await.transpose()?.is_some() {}
        Ok(began.elapsed())
    })
}

struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// `None`: it is not installed.
    fn start(storage: &Path) -> Outcome<Option<Self>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(storage);
        let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else { return Ok(None) };
        let server = Self { child, url: format!("nats://127.0.0.1:{port}") };
        let until = soon();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if Instant::now() > until {
                return Err("the broker does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(server))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
