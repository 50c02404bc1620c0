//! Draining a log: against threads that only read it, with failures, and beside a slow lane.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use vayu_articles::clock::{Clock, ManualClock};
use vayu_articles::outbox::{DispatchError, Event, Relay, RelayOptions};
use vayu_articles::rusqlite::{Connection, OpenFlags};

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input;
use crate::place::{self, Site, soon};
use crate::raw::RawDatabase;
use crate::sizes::Sizes;
use crate::write::at_once;

/// Events like those of articles, each of a key of its own, and young enough to be kept.
const FILL: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1) \
    INSERT INTO event_outbox (event_id, event_type, event_key, payload, occurred_at) \
    SELECT printf('0199a3b2-7c0f-7000-9000-%012d', i), 'article.created.v1', \
        printf('0199a3b2-7c0f-7000-8000-%012d', i), \
        printf('{\"id\":\"0199a3b2-7c0f-7000-8000-%012d\",\"version\":1,\"kind\":\"post\",\"slug\":\"notes-number-%d\",\
\"title\":\"Notes number %d\",\"status\":\"published\",\"tags\":[\"topic-%d\",\"author-%d\"],\"previous\":null}', \
            i, i, i, i % 50, i % 7), CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM n";
/// As many as the relay reads at once.
const READ: &str = "SELECT id, event_id, event_type, event_key, payload, correlation_id, causation_id, occurred_at \
    FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT 512";
const LANE_AT_THE_END: &str = "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) \
    SELECT ?1, '[\"*\"]', 'continue', max(id) FROM event_outbox";
const ALL_WAIT: &str = "INSERT INTO deliveries (outbox_id, handler, event_key, state, attempts, next_attempt_at, \
        history, created_at, updated_at) \
    SELECT id, ?1, 'one', CASE WHEN id = 1 THEN 'retry' ELSE 'waiting' END, id = 1, CASE WHEN id = 1 THEN 1 END, \
        '[]', 1, 1 FROM event_outbox";
/// One event in so many fails.
const FAILING: i64 = 33;

/// Three no-op handlers against three reading threads; and their rate against the raw loop's.
pub fn handlers3(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "log.db")?;
    fill(&site, sizes.log)?;
    let raw = RawDatabase::create(folder.path(), "raw.db")?;
    let (mut runs, mut headroom, mut writes) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        let baseline = at_once(vec![(); 3], |()| read_all(&site.path))?;
        let product = drain(&site, sizes.log, &names("drain", run, 3), |_| Ok(()))?;
        let written = sizes.bulk / 4;
        let items = input::items("headroom", run * written..(run + 1) * written);
        let write_rate = written as f64 / raw.write(&items, 256)?.as_secs_f64();
        let sides = Sides { baseline, product, items: sizes.log };
        headroom.push(sides.product_rate() / write_rate);
        writes.push(write_rate);
        runs.push(sides);
    }
    site.close()?;
    let size = format!("{} events", sizes.log);
    Ok(vec![
        rates("relay.handlers3.ratio", ">= 0.50", size.clone(), &runs),
        Figure::new("relay.headroom", "ratio", ">= 10", size, headroom).note("raw_writes_per_second", &writes),
    ])
}

/// 3 % of the events fail twice before they succeed.
pub fn failing(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let site = Site::with_clock(folder.path(), "log.db", Arc::new(LeapingClock::default()))?;
    fill(&site, sizes.failing)?;
    let fails = |event: &Event| match event.attempts {
        0 | 1 if event.id % FAILING == 0 => Err(DispatchError::retry("told to fail")),
        _ => Ok(()),
    };
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let baseline = drain(&site, sizes.failing, &names("sound", run, 1), |_| Ok(()))?;
        let product = drain(&site, sizes.failing, &names("failing", run, 1), fails)?;
        runs.push(Sides { baseline, product, items: sizes.failing });
    }
    site.close()?;
    let size = format!("{} events", sizes.failing);
    Ok(vec![rates("relay.failing.ratio", ">= 0.50", size, &runs)])
}

/// What waits behind one event that failed, once that goes well; against the same log with nothing wrong.
pub fn healed(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "log.db")?;
    fill(&site, sizes.waiting)?;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let baseline = drain(&site, sizes.waiting, &names("sound", run, 1), |_| Ok(()))?;
        let product = heal(&site, sizes.waiting, &format!("healed-{run}"))?;
        runs.push(Sides { baseline, product, items: sizes.waiting });
    }
    site.close()?;
    let size = format!("{} events", sizes.waiting);
    Ok(vec![rates("relay.healed.ratio", "report", size, &runs)])
}

/// A lane at rest at the end of the log, to which the whole log is given as it stands when all of it waits behind its
/// first event, and that is due: as if all were of one key. From there to the last outcome.
fn heal(site: &Site, events: usize, name: &str) -> Outcome<Duration> {
    let mut connection = Connection::open(&site.path)?;
    connection.busy_timeout(place::LONG)?;
    connection.execute(LANE_AT_THE_END, [name])?;
    let (handler, end) = counting(events, |_| Ok(()));
    let mut options = RelayOptions::default();
    options.retention = None;
    let relay = Relay::builder(&site.database).options(options).handler_fn(name, handler).start()?;
    if !relay.wait_drained(soon()) {
        return Err(format!("not at rest: {:?}", relay.status()).into());
    }
    let transaction = connection.transaction()?;
    transaction.execute(ALL_WAIT, [name])?;
    let began = Instant::now();
    transaction.commit()?;
    relay.notify();
    end.recv_timeout(place::LONG).map_err(|_| format!("not healed: {:?}", relay.status()))?;
    let took = began.elapsed();
    relay.stop(soon())?;
    Ok(took)
}

/// Two handlers beside a third that sleeps 50 ms per event, against the two alone.
pub fn slow_lane(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "log.db")?;
    fill(&site, sizes.lane)?;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let baseline = drain(&site, sizes.lane, &names("alone", run, 2), |_| Ok(()))?;
        let slow = Relay::builder(&site.database)
            .handler_fn(format!("slow-{run}"), |_: &Event| {
                std::thread::sleep(Duration::from_millis(50));
                Ok(())
            })
            .start()?;
        let product = drain(&site, sizes.lane, &names("beside", run, 2), |_| Ok(()))?;
        // It is far from its end and stops where it is.
        if let Err(late) = slow.stop(Instant::now() + Duration::from_millis(300)) {
            eprintln!("the slow lane was left behind: {late}");
        }
        runs.push(Sides { baseline, product, items: sizes.lane });
    }
    site.close()?;
    let size = format!("{} events", sizes.lane);
    Ok(vec![rates("relay.slow_lane.ratio", ">= 0.90", size, &runs)])
}

/// Fills an empty log.
pub fn fill(site: &Site, events: usize) -> Outcome<()> {
    let connection = Connection::open(&site.path)?;
    connection.busy_timeout(place::LONG)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.execute(FILL, [events as i64])?;
    // What follows reads the file and not a log as large as it.
    connection.pragma_update_and_check(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))?;
    Ok(())
}

/// Starts a relay with new lanes of these names; from there to the last outcome of the last lane.
pub fn drain(
    site: &Site,
    events: usize,
    names: &[String],
    handle: impl Fn(&Event) -> Result<(), DispatchError> + Copy + Send + Sync + 'static,
) -> Outcome<Duration> {
    // Retention begins half a second after the start, which would fall into some drains and not into others.
    let mut options = RelayOptions::default();
    options.retention = None;
    let mut builder = Relay::builder(&site.database).options(options);
    let mut ends = Vec::new();
    for name in names {
        let (handler, end) = counting(events, handle);
        builder = builder.handler_fn(name, handler);
        ends.push(end);
    }
    let relay = builder.build()?;
    let began = Instant::now();
    relay.start()?;
    for end in ends {
        end.recv_timeout(place::LONG).map_err(|_| format!("not drained: {:?}", relay.status()))?;
    }
    let took = began.elapsed();
    relay.stop(soon())?;
    Ok(took)
}

/// A handler around `handle` that tells when as many events have succeeded.
fn counting<H>(
    events: usize,
    handle: H,
) -> (impl Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static, Receiver<()>)
where
    H: Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static,
{
    let left = AtomicI64::new(events as i64);
    let (done, end) = bounded(1);
    let handler = move |event: &Event| {
        handle(event)?;
        // Only the lane's thread counts, so that two plain steps do.
        let now_left = left.load(Relaxed) - 1;
        left.store(now_left, Relaxed);
        if now_left == 0 {
            let _ = done.try_send(());
        }
        Ok(())
    };
    (handler, end)
}

pub fn names(what: &str, run: usize, count: usize) -> Vec<String> {
    (0..count).map(|lane| format!("{what}-{run}-{lane}")).collect()
}

struct Owned {
    _id: i64,
    _texts: [String; 3],
    _key: Option<String>,
    _traces: [Option<String>; 2],
    _occurred_at: i64,
}

fn read_all(path: &Path) -> Outcome<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "query_only", true)?;
    let mut statement = connection.prepare(READ)?;
    let mut position: i64 = 0;
    loop {
        let mut batch = Vec::with_capacity(512);
        let mut rows = statement.query([position])?;
        while let Some(row) = rows.next()? {
            position = row.get(0)?;
            batch.push(Owned {
                _id: position,
                _texts: [row.get(1)?, row.get(2)?, row.get(4)?],
                _key: row.get(3)?,
                _traces: [row.get(5)?, row.get(6)?],
                _occurred_at: row.get(7)?,
            });
        }
        if batch.is_empty() {
            return Ok(());
        }
        drop(std::hint::black_box(batch));
    }
}

/// Ten seconds pass between two looks at it, so that no retry is waited for. It starts in the past, so that no event is
/// ever old.
#[derive(Debug)]
struct LeapingClock(ManualClock);

impl Default for LeapingClock {
    fn default() -> Self {
        Self(ManualClock::new(1_000_000_000_000))
    }
}

impl Clock for LeapingClock {
    fn now_ms(&self) -> i64 {
        self.0.advance(10_000);
        self.0.now_ms()
    }
}
