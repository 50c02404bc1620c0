//! An HTTP/1 server with blocking handlers.
//!
//! One thread does all the network I/O (hyper on a tokio runtime that lives and ends in that thread); it hands complete
//! requests over a bounded queue to a fixed number of handler threads, where one function answers them. So a slow
//! client costs a socket and a little memory, never a thread, and handlers may block.
//!
//! Everything is bounded: connections, queued requests, threads, header and body sizes, the bytes of all bodies that
//! are held at once, and the time for each part of a request. What is out of bounds is answered where that is possible
//! (400, 408, 413, 503, 504), and the connection is closed.
//!
//! The engine is a [`Service`]; used alone it is started with a [`StartContext::standalone`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//! use vayu_articles::http::engine::{Engine, EngineOptions, Request, Response, StatusCode};
//! use vayu_articles::lifecycle::{Service, StartContext};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let hello = |request: Request| Response::text(StatusCode::OK, format!("you asked for {}\n", request.path));
//! let options = EngineOptions { addr: "127.0.0.1:0".parse()?, ..EngineOptions::default() };
//! let engine = Engine::new(options, Arc::new(hello));
//! engine.start(&StartContext::standalone("http", Duration::from_secs(5)))?;
//! println!("http://{}", engine.local_addr().ok_or("not bound")?);
//! engine.stop(Instant::now() + Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```

mod accept;
mod connection;
mod counters;
mod exchange;
mod framing;
mod message;
mod options;
mod pool;
mod refused;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::Receiver;
pub use hyper::header;
pub use hyper::{HeaderMap, Method, StatusCode};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

pub use counters::{EngineCounters, EngineStats};
pub use message::{Handler, Refusal, RefusalFn, Request, Response};
pub use options::EngineOptions;

use crate::lifecycle::{BoxError, Service, Spawner, StartContext};

/// When the I/O thread shall have ended; `None` while it serves.
type StopAt = Option<Instant>;

/// The server. Cheap to share as an `Arc`, which is a [`Service`] too.
pub struct Engine {
    options: EngineOptions,
    handler: Arc<Handler>,
    refusals: Arc<RefusalFn>,
    counters: Arc<EngineCounters>,
    running: Mutex<Option<Running>>,
}

/// What there is between start and stop.
struct Running {
    addr: SocketAddr,
    stop: watch::Sender<StopAt>,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected when the last thread has ended.
    all_ended: Receiver<()>,
}

impl Engine {
    /// A server that answers with `handler`. Nothing is bound or started yet.
    ///
    /// The handler is called on several threads at once. When it panics the client gets a 500 and nothing else happens.
    pub fn new(options: EngineOptions, handler: Arc<Handler>) -> Self {
        let refusals: Arc<RefusalFn> = Arc::new(Refusal::as_text);
        Self { options, handler, refusals, counters: Arc::default(), running: Mutex::new(None) }
    }

    /// Words the answers that the engine gives by itself (text/plain otherwise). Called on the I/O thread, so it must
    /// not block; the status and the headers that the protocol needs are the engine's in any case.
    #[must_use]
    pub fn refuse_with(mut self, refusals: Arc<RefusalFn>) -> Self {
        self.refusals = refusals;
        self
    }

    /// Counts in `counters` instead of its own.
    #[must_use]
    pub fn counted_by(mut self, counters: Arc<EngineCounters>) -> Self {
        self.counters = counters;
        self
    }

    /// What the engine counts of itself.
    pub fn counters(&self) -> Arc<EngineCounters> {
        self.counters.clone()
    }

    /// The address that is listened on, with the real port when port 0 was asked for; `None` unless started.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.running().as_ref().map(|running| running.addr)
    }

    fn launch(&self, spawner: &Spawner) -> Result<Running, BoxError> {
        self.options.check()?;
        let listener = TcpListener::bind(self.options.addr).map_err(|error| self.bind_error(&error))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stop_seen) = watch::channel(None);
        let (alive, all_ended) = crossbeam_channel::bounded(0);

        let mut pool = pool::start(spawner, &self.options, &self.handler, &self.counters, &alive)?;
        let hub = accept::HubParts {
            options: self.options.clone(),
            refusals: self.refusals.clone(),
            counters: self.counters.clone(),
            jobs: pool.jobs,
            stop: stop_seen,
        };
        let io_thread = spawn_io(spawner, runtime, listener, hub, alive);
        match io_thread {
            Ok(thread) => pool.threads.push(thread),
            Err(error) => {
                // The queue's only sender is gone with the closure that could not be run, so the handlers end.
                pool::join(pool.threads);
                return Err(error.into());
            }
        }
        Ok(Running { addr, stop, threads: pool.threads, all_ended })
    }

    fn bind_error(&self, error: &io::Error) -> io::Error {
        let addr = self.options.addr;
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; another program listens there, choose another port",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {addr}: {error}{hint}"))
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // A plain value: whoever panicked while holding it left it whole.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service for Engine {
    fn name(&self) -> &str {
        "http"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        let mut running = self.running();
        if running.is_some() {
            return Err("the HTTP server was started already".into());
        }
        let launched = self.launch(ctx.spawner())?;
        log::info!("service=http listening addr={}", launched.addr);
        *running = Some(launched);
        Ok(())
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        let Some(running) = self.running().take() else { return Ok(()) };
        // The I/O thread cuts what is unfinished a moment before, so that there is time to see its end.
        let left = deadline.saturating_duration_since(Instant::now());
        let cut_at = deadline - (left / 8).min(options::STOP_MARGIN);
        running.stop.send_replace(Some(cut_at));
        match running.all_ended.recv_deadline(deadline) {
            Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                let left = running.threads.iter().filter(|thread| !thread.is_finished());
                let names: Vec<_> = left.filter_map(|thread| thread.thread().name()).collect();
                Err(format!("requests were still being handled at the deadline, by {}", names.join(", ")).into())
            }
            Ok(()) | Err(crossbeam_channel::RecvTimeoutError::Disconnected) => {
                pool::join(running.threads);
                Ok(())
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(running) = self.running().take() {
            running.stop.send_replace(Some(Instant::now()));
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("options", &self.options).field("addr", &self.local_addr()).finish()
    }
}

fn spawn_io(
    spawner: &Spawner,
    runtime: Runtime,
    listener: TcpListener,
    hub: accept::HubParts,
    alive: crossbeam_channel::Sender<()>,
) -> io::Result<JoinHandle<()>> {
    spawner.spawn("http-io", move || {
        let _alive = alive;
        accept::run(&runtime, listener, hub);
    })
}
