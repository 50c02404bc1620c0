//! The engine's limits.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The largest request head, in bytes; beyond it 431.
pub(super) const HEAD_BYTES_MAX: usize = 32 * 1024;
/// hyper's buffer for one connection, in bytes.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;
/// How long and for how many bytes a connection is read to no purpose after a request was refused, so that its client
/// gets to read the answer rather than a reset.
pub(super) const LINGER: Duration = Duration::from_secs(5);
pub(super) const LINGER_BYTES_MAX: usize = 64 << 20;
/// What a body that is still arriving gets when the server stops.
pub(super) const STOP_BODY_GRACE: Duration = Duration::from_secs(1);
/// How long before the end of a stop its unfinished connections are cut, at most.
pub(super) const STOP_MARGIN: Duration = Duration::from_millis(200);
/// How long a connection has been idle before it may be closed in favour of a new one.
pub(super) const IDLE_SPARED: Duration = Duration::from_secs(1);

/// The longest any deadline may be.
const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The engine's address and limits.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Where to listen (default `127.0.0.1:8080`); port 0 takes a free one.
    pub addr: SocketAddr,
    /// Threads that handle requests (default 16). Each that writes waits for its commit, and those that wait share it.
    pub handler_threads: usize,
    /// Complete requests that may wait for a handler thread (default 256); beyond it 503 at once.
    pub queue_bound: usize,
    /// Open connections (default 512). At the limit the one idle longest, if for a second, makes room; else new ones
    /// wait to be accepted.
    pub max_connections: usize,
    /// How long a connection may wait for its next request (default 60 s).
    pub idle_deadline: Duration,
    /// From the first byte of a request to the end of its head (default 10 s).
    pub header_deadline: Duration,
    /// From the end of the head to the end of the body (default 30 s); beyond it 408.
    pub body_deadline: Duration,
    /// From the complete request to its answer (default 30 s); [`Request::deadline`](super::Request::deadline). A
    /// request still in the queue then is answered 503 and never handled.
    pub handler_deadline: Duration,
    /// How much longer a handler may take that has begun by then (default 5 s), before its client is answered 504: one
    /// that waits for a commit gets the time to say what came of it.
    pub handler_grace: Duration,
    /// From the answer to its last byte being taken by the client's side (default 60 s).
    pub write_deadline: Duration,
    /// Largest body, in bytes (default 16 MiB, since JSON may write two bytes of text as the six of `\u0436`); beyond it 413.
    pub max_body: usize,
    /// Bytes of all bodies held at once, from their arrival to their answer (default 64 MiB); beyond it 503.
    pub max_body_total: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            addr: (Ipv4Addr::LOCALHOST, 8080).into(),
            handler_threads: 16,
            queue_bound: 256,
            max_connections: 512,
            idle_deadline: Duration::from_secs(60),
            header_deadline: Duration::from_secs(10),
            body_deadline: Duration::from_secs(30),
            handler_deadline: Duration::from_secs(30),
            handler_grace: Duration::from_secs(5),
            write_deadline: Duration::from_secs(60),
            max_body: 16 << 20,
            max_body_total: 64 << 20,
        }
    }
}

impl EngineOptions {
    pub(super) fn check(&self) -> io::Result<()> {
        let positive = [
            ("handler_threads", self.handler_threads),
            ("queue_bound", self.queue_bound),
            ("max_connections", self.max_connections),
        ];
        let deadlines = [
            ("idle_deadline", self.idle_deadline),
            ("header_deadline", self.header_deadline),
            ("body_deadline", self.body_deadline),
            ("handler_deadline", self.handler_deadline),
            ("handler_grace", self.handler_grace),
            ("write_deadline", self.write_deadline),
        ];
        let invalid = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return invalid(format!("{name} must be at least 1"));
        }
        if let Some((name, _)) = deadlines.iter().find(|(_, value)| *value > DEADLINE_MAX) {
            return invalid(format!("{name} must be at most a day"));
        }
        Ok(())
    }
}
