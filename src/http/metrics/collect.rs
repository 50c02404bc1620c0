//! One look at everything, and how it is written down.

use std::fmt;
use std::path::PathBuf;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;

use super::jobs::JobsSnapshot;
use super::names::Families;
use crate::http::engine::EngineStats;
use crate::http::health::{Health, state_word};
use crate::http::site::Parts;
use crate::outbox::{ExceptionState, LaneInfo, LaneStatus, Operator};
use crate::storage::{PoolState, WriterDistributions, WriterStats};

/// What one scrape tells.
#[derive(Debug)]
pub(super) struct Snapshot {
    writer: WriterStats,
    measured: WriterDistributions,
    pool: Option<PoolState>,
    wal_bytes: u64,
    /// `None`: the database could not tell.
    stored: Option<Vec<LaneInfo>>,
    last_id: Option<i64>,
    running: Vec<LaneStatus>,
    health: Health,
    engine: EngineStats,
    /// `None` in a site that keeps no jobs.
    jobs: Option<JobsSnapshot>,
}

impl Snapshot {
    pub(super) fn take(parts: &Parts) -> Self {
        let database = parts.articles.repository().database();
        let operator = Operator::new(database);
        Self {
            writer: database.writer().stats(),
            measured: database.writer().distributions(),
            pool: database.pool_state(),
            wal_bytes: database.canonical_path().map_or(0, size_of_wal),
            stored: operator.lanes().ok(),
            last_id: operator.last_id().ok(),
            running: parts.relay.status(),
            health: (parts.health)(),
            engine: parts.engine.stats(),
            jobs: parts.jobs.get().map(JobsSnapshot::take),
        }
    }
}

/// What the file takes on the disk. It is looked at, not opened: that would drop SQLite's locks.
fn size_of_wal(database: PathBuf) -> u64 {
    let mut path = database.into_os_string();
    path.push("-wal");
    std::fs::metadata(path).map_or(0, |found| found.len())
}

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families { encoder };
        self.queue(&mut families)?;
        self.storage(&mut families)?;
        self.outbox(&mut families)?;
        self.lanes(&mut families)?;
        self.jobs.as_ref().map_or(Ok(()), |jobs| jobs.write(&mut families))?;
        self.engine(&mut families)?;
        self.services(&mut families)
    }
}

#[allow(clippy::cast_precision_loss)] // What is shown as a gauge needs no more than 52 bits.
impl Snapshot {
    fn queue(&self, to: &mut Families<'_>) -> fmt::Result {
        let Self { writer, measured, .. } = self;
        to.gauge("queue_jobs", "Writes of callers that wait now", None, &[(&[], writer.waiting_jobs as f64)])?;
        let help = "What the waiting writes carry";
        to.gauge("queue_waiting", help, Some(&Unit::Bytes), &[(&[], writer.waiting_bytes as f64)])?;
        let help = "Time that a write waited until the queue-writer took it";
        to.distribution("queue_wait", help, Some(&Unit::Seconds), &measured.wait_seconds)?;
        to.distribution("queue_group_tasks", "Tasks committed together", None, &measured.group_tasks)?;
        let help = "Time that COMMIT took, with its sync";
        to.distribution("queue_commit", help, Some(&Unit::Seconds), &measured.commit_seconds)?;
        to.counter("queue_tasks", "Tasks committed", &[(&[], writer.tasks)])?;
        to.counter("queue_reruns", "Groups run again since a task in them failed", &[(&[], writer.reruns)])?;
        to.counter("queue_faults", "Groups answered with a database fault", &[(&[], writer.faults)])
    }

    fn storage(&self, to: &mut Families<'_>) -> fmt::Result {
        let help = "Size of the write-ahead log on the disk";
        to.gauge("storage_wal", help, Some(&Unit::Bytes), &[(&[], self.wal_bytes as f64)])?;
        let Some(pool) = self.pool else { return Ok(()) };
        let busy = f64::from(pool.connections.saturating_sub(pool.idle));
        let lines: [(&[_], _); 2] = [(&[("state", "busy")], busy), (&[("state", "idle")], f64::from(pool.idle))];
        to.gauge("storage_connections", "Read connections", None, &lines)
    }

    fn outbox(&self, to: &mut Families<'_>) -> fmt::Result {
        let readable = f64::from(u8::from(self.stored.is_some()));
        to.gauge("outbox_readable", "Whether the database told of its lanes", None, &[(&[], readable)])?;
        if let Some(last_id) = self.last_id {
            to.counter("outbox_events", "Position of the newest event in the log", &[(&[], last_id.unsigned_abs())])?;
        }
        let Some(stored) = &self.stored else { return Ok(()) };
        let mut lines = Vec::new();
        let pairs: Vec<(String, &str, u64)> = stored.iter().flat_map(events_by_status).collect();
        let labels: Vec<[(&'static str, &str); 2]> =
            pairs.iter().map(|(status, handler, _)| [("handler", *handler), ("status", status.as_str())]).collect();
        lines.extend(labels.iter().zip(&pairs).map(|(labels, (_, _, count))| (labels.as_slice(), *count as f64)));
        let help = "Events by where they stand with a handler; exceptions are counted up to 100000 each";
        to.gauge("lane_events", help, None, &lines)?;
        let of_lane = |value: fn(&LaneInfo) -> f64| {
            stored.iter().map(move |lane| ([("handler", lane.handler.as_str())], value(lane))).collect::<Vec<_>>()
        };
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: fn(&LaneInfo) -> f64| {
            let values = of_lane(value);
            let lines: Vec<(&[_], f64)> = values.iter().map(|(labels, value)| (labels.as_slice(), *value)).collect();
            to.gauge(name, help, unit, &lines)
        };
        gauge("lane_lag_events", "Log positions that the lane has not passed", None, |lane| lane.lag_events as f64)?;
        let help = "Age of the oldest event that the lane has not passed";
        gauge("lane_lag", help, Some(&Unit::Seconds), |lane| lane.lag_ms as f64 / 1_000.0)?;
        let help = "Events given up: dead letters and parked ones, counted up to 200000";
        gauge("lane_dead_letters", help, None, |lane| (lane.exceptions.dead_letter + lane.exceptions.parked) as f64)?;
        gauge("lane_held", "Held by an operator", None, |lane| f64::from(u8::from(lane.held)))?;
        gauge("lane_paused", "Its transport is down", None, |lane| f64::from(u8::from(lane.paused_until.is_some())))
    }

    fn lanes(&self, to: &mut Families<'_>) -> fmt::Result {
        let mut counter = |name: &str, help: &str, value: fn(&LaneStatus) -> u64| {
            let of_lane = |lane| -> ([(&'static str, &str); 1], u64) {
                let lane: &LaneStatus = lane;
                ([("handler", lane.handler.as_str())], value(lane))
            };
            let values: Vec<_> = self.running.iter().map(of_lane).collect();
            let lines: Vec<(&[_], u64)> = values.iter().map(|(labels, value)| (labels.as_slice(), *value)).collect();
            to.counter(name, help, &lines)
        };
        counter("lane_attempts", "Events handed to the handler, each try counted", |lane| lane.calls)?;
        counter("lane_retries", "Tries that failed and are repeated", |lane| lane.retries)?;
        counter("lane_given_up", "Events given up: dead letters and parked ones", |lane| lane.given_up)?;
        counter("lane_pauses", "Times the lane paused, its transport being down", |lane| lane.pauses)?;
        let labels: Vec<[(&'static str, &str); 2]> =
            self.running.iter().map(|lane| [("handler", lane.handler.as_str()), ("state", state_word(lane))]).collect();
        let lines: Vec<(&[_], f64)> = labels.iter().map(|labels| (labels.as_slice(), 1.0)).collect();
        to.gauge("lane_state", "What the lane is doing in this process: always 1", None, &lines)
    }

    fn engine(&self, to: &mut Families<'_>) -> fmt::Result {
        let engine = &self.engine;
        to.gauge("engine_connections", "Open connections", None, &[(&[], engine.connections_open as f64)])?;
        let (running, queued) = (engine.requests_in_flight as f64, engine.requests_queued as f64);
        to.gauge("engine_requests_in_flight", "Requests read or answered now", None, &[(&[], running)])?;
        to.gauge("engine_requests_queued", "Requests that wait for a handler thread", None, &[(&[], queued)])?;
        let mut counter = |name: &str, help: &str, value: u64| to.counter(name, help, &[(&[], value)]);
        counter("engine_accepted", "Connections accepted", engine.connections_accepted)?;
        counter("engine_cut", "Connections closed: too slow, or to make room", engine.connections_cut)?;
        counter("engine_requests", "Requests whose head could be read", engine.requests)?;
        counter("engine_refused", "Requests that the engine refused by itself", engine.requests_refused)?;
        counter("engine_panicked", "Handlers that panicked", engine.handlers_panicked)
    }

    fn services(&self, to: &mut Families<'_>) -> fmt::Result {
        let ready = f64::from(u8::from(self.health.ready));
        to.gauge("ready", "Whether every service runs", None, &[(&[], ready)])?;
        let services = &self.health.services;
        let labels: Vec<[(&'static str, &str); 2]> =
            services.iter().map(|service| [("service", service.name.as_str()), ("state", &service.state)]).collect();
        let lines: Vec<(&[_], f64)> = labels.iter().map(|labels| (labels.as_slice(), 1.0)).collect();
        to.gauge("service_state", "The state of each service: always 1", None, &lines)?;
        let version: &[_] = &[("version", env!("CARGO_PKG_VERSION"))];
        to.gauge("build_info", "The program: always 1", None, &[(version, 1.0)])
    }
}

/// With one handler: how many events are pending, and how many exceptions there are in each state.
fn events_by_status(lane: &LaneInfo) -> impl Iterator<Item = (String, &str, u64)> {
    let handler = lane.handler.as_str();
    let pending = std::iter::once(("pending".to_owned(), handler, lane.lag_events));
    pending.chain(ExceptionState::ALL.map(|state| (state.to_string(), handler, lane.exceptions.of(state))))
}
