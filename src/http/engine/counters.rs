//! What the engine counts of itself, to be shown as metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of an engine; shared, so that whoever shows them need not know the engine.
#[derive(Debug, Default)]
pub struct EngineCounters {
    open: AtomicU64,
    accepted: AtomicU64,
    in_flight: AtomicU64,
    queued: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    panicked: AtomicU64,
    cut: AtomicU64,
}

/// The counters at one moment. The first three go up and down, the others only up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EngineStats {
    /// Connections that are open.
    pub connections_open: u64,
    /// Requests between the end of their head and their answer.
    pub requests_in_flight: u64,
    /// Requests that wait for a handler thread.
    pub requests_queued: u64,
    /// Connections accepted since the engine was made.
    pub connections_accepted: u64,
    /// Connections closed because a phase took too long, or to make room for others.
    pub connections_cut: u64,
    /// Requests whose head could be read.
    pub requests: u64,
    /// Answers that the engine gave by itself: malformed, too large, too slow, too many.
    pub requests_refused: u64,
    /// Handlers that panicked; their clients got a 500.
    pub handlers_panicked: u64,
}

impl EngineCounters {
    /// The counters now. Each is exact, together they are of nearly the same moment.
    pub fn stats(&self) -> EngineStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStats {
            connections_open: read(&self.open),
            requests_in_flight: read(&self.in_flight),
            requests_queued: read(&self.queued),
            connections_accepted: read(&self.accepted),
            connections_cut: read(&self.cut),
            requests: read(&self.requests),
            requests_refused: read(&self.refused),
            handlers_panicked: read(&self.panicked),
        }
    }

    pub(super) fn connection(self: &Arc<Self>) -> Gauge {
        add(&self.accepted);
        Gauge::new(self, |counters| &counters.open)
    }

    pub(super) fn request(self: &Arc<Self>) -> Gauge {
        add(&self.requests);
        Gauge::new(self, |counters| &counters.in_flight)
    }

    pub(super) fn queued(self: &Arc<Self>) -> Gauge {
        Gauge::new(self, |counters| &counters.queued)
    }

    pub(super) fn refused(&self) {
        add(&self.refused);
    }

    pub(super) fn panicked(&self) {
        add(&self.panicked);
    }

    pub(super) fn cut(&self) {
        add(&self.cut);
    }
}

/// Counts one while it lives.
#[derive(Debug)]
pub(super) struct Gauge {
    counters: Arc<EngineCounters>,
    which: fn(&EngineCounters) -> &AtomicU64,
}

impl Gauge {
    fn new(counters: &Arc<EngineCounters>, which: fn(&EngineCounters) -> &AtomicU64) -> Self {
        add(which(counters));
        Self { counters: Arc::clone(counters), which }
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        (self.which)(&self.counters).fetch_sub(1, Ordering::Relaxed);
    }
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
