//! What an idle process writes.

use std::path::Path;
use std::time::Duration;

use vayu_articles::outbox::{Event, Relay};
use vayu_articles::rusqlite::Connection;
use vayu_articles::service::WriteContext;

use crate::RUNS;
use crate::figures::{Figure, Outcome};
use crate::input;
use crate::place::{self, Site, soon};
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

fn start_relay(site: &Site) -> Outcome<Relay> {
    let builder = (0..LANES).fold(Relay::builder(&site.database), |builder, lane| {
        builder.handler_fn(format!("lane-{lane}"), |_: &Event| Ok(()))
    });
    Ok(builder.start()?)
}
