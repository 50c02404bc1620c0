//! What an idle process writes, and how long starting and stopping take.

use std::path::Path;
use std::time::{Duration, Instant};

use vayu_articles::outbox::{Event, LaneState, Relay};
use vayu_articles::rusqlite::Connection;
use vayu_articles::service::WriteContext;

use crate::RUNS;
use crate::figures::{Figure, Outcome};
use crate::input;
use crate::place::{self, Site, soon};
use crate::scale;
use crate::sizes::Sizes;

const IDLE_FOR: Duration = Duration::from_secs(2);
const LANES: usize = 3;

/// Rows changed and bytes of the write-ahead log changed, in three processes' worth of idling at once.
pub fn idle(_: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let mut idlers = Vec::new();
    for run in 0..RUNS {
        let site = Site::open(folder.path(), &format!("idle-{run}.db"))?;
        let relay = start_relay(&site)?;
        for article in input::articles("idling", 0..100) {
            site.service.create(article, &WriteContext::default())?;
        }
        if !relay.wait_drained(soon()) {
            return Err("not drained before the idle time".into());
        }
        let before = Written::of(&site)?;
        idlers.push((site, relay, before));
    }
    std::thread::sleep(IDLE_FOR);
    let mut written = Vec::new();
    for (site, relay, before) in idlers {
        written.push(Written::of(&site)?.since(&before));
        relay.stop(soon())?;
        site.close()?;
    }
    let size = format!("{} s, {LANES} lanes", IDLE_FOR.as_secs());
    Ok(vec![Figure::new("idle.writes", "rows+bytes", "0", size, written)])
}

/// What a database file has been given so far.
struct Written {
    /// Changes with each commit of any connection; looked at over one that does nothing else.
    version: i64,
    observer: Option<Connection>,
    wal: Vec<u8>,
    groups: u64,
}

impl Written {
    fn of(site: &Site) -> Outcome<Self> {
        let observer = Connection::open(&site.path)?;
        Ok(Self {
            version: data_version(&observer)?,
            observer: Some(observer),
            wal: std::fs::read(wal_of(&site.path))?,
            groups: site.database.writer().stats().groups,
        })
    }

    /// Commits (each of at least a row) and bytes of the log that are not what they were.
    fn since(&self, before: &Self) -> f64 {
        let version = before.observer.as_ref().map_or(Ok(0), data_version).unwrap_or(i64::MAX);
        let commits = (self.groups - before.groups).max(u64::from(version != before.version));
        let shared = self.wal.iter().zip(&before.wal).filter(|(now, then)| now != then).count();
        let bytes = shared + self.wal.len().abs_diff(before.wal.len());
        commits as f64 + bytes as f64
    }
}

fn data_version(connection: &Connection) -> vayu_articles::rusqlite::Result<i64> {
    connection.pragma_query_value(None, "data_version", |row| row.get(0))
}

fn wal_of(path: &Path) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// From opening to the first pass of every lane, behind many articles against an empty, created database; and the stop.
pub fn start_and_stop(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    for (name, articles) in [("empty.db", 0), ("full.db", sizes.behind)] {
        let site = Site::open(folder.path(), name)?;
        scale::fill_articles(&site, articles)?;
        let relay = start_relay(&site)?;
        if !relay.wait_drained(soon()) {
            return Err("not drained".into());
        }
        relay.stop(soon())?;
        site.close()?;
    }
    let (mut ratios, mut stops, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (empty, _) = start_once(folder.path(), "empty.db")?;
        let (full, stop) = start_once(folder.path(), "full.db")?;
        ratios.push(full / empty);
        starts.push(full * 1e3);
        stops.push(stop * 1e3);
    }
    let size = format!("{} articles", sizes.behind);
    Ok(vec![
        Figure::new("start.ratio", "ratio", "<= 1.5", size.clone(), ratios).note("ms", &starts),
        Figure::new("stop.ms", "ms", "report", size, stops),
    ])
}

/// Seconds to start and to stop.
fn start_once(folder: &Path, name: &str) -> Outcome<(f64, f64)> {
    let began = Instant::now();
    let site = Site::open(folder, name)?;
    let relay = start_relay(&site)?;
    let ready =
        |relay: &Relay| relay.status().iter().all(|lane| lane.state == LaneState::Running && lane.last_pass.is_some());
    while !ready(&relay) {
        std::thread::yield_now();
    }
    let started = began.elapsed().as_secs_f64();
    let began = Instant::now();
    relay.stop(soon())?;
    site.close()?;
    Ok((started, began.elapsed().as_secs_f64()))
}

fn start_relay(site: &Site) -> Outcome<Relay> {
    let builder = (0..LANES).fold(Relay::builder(&site.database), |builder, lane| {
        builder.handler_fn(format!("lane-{lane}"), |_: &Event| Ok(()))
    });
    Ok(builder.start()?)
}
