//! The I/O thread: accepting connections, keeping their number, ending them at a stop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use std::rc::Rc;
use std::sync::Arc;

use crossbeam_channel::Sender;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::connection::{Conn, serve};
use super::options::IDLE_SPARED;
use super::pool::Job;
use super::{EngineCounters, EngineOptions, RefusalFn, StopAt};

/// How long to wait after accepting failed (too many open files, for example), doubling, and between looks for an idle
/// connection when there are as many as there may be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const ACCEPT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// What the I/O thread is given.
pub(super) struct HubParts {
    pub(super) options: EngineOptions,
    pub(super) refusals: Arc<RefusalFn>,
    pub(super) counters: Arc<EngineCounters>,
    pub(super) jobs: Sender<Job>,
    pub(super) stop: watch::Receiver<StopAt>,
}

/// What all connections share, on the I/O thread.
pub(super) struct Hub {
    pub(super) options: EngineOptions,
    pub(super) refusals: Arc<RefusalFn>,
    pub(super) counters: Arc<EngineCounters>,
    /// The only sender: when the I/O thread ends, so do the handler threads.
    pub(super) jobs: Sender<Job>,
    pub(super) stop: watch::Receiver<StopAt>,
    body_bytes: Cell<usize>,
    connections: RefCell<BTreeMap<u64, Rc<Conn>>>,
}

/// The bytes that one request's body holds of what all bodies may.
pub(super) struct BodyShare {
    hub: Rc<Hub>,
    taken: usize,
}

/// Serves until a stop is asked for and done.
pub(super) fn run(runtime: &Runtime, listener: StdListener, parts: HubParts) {
    let HubParts { options, refusals, counters, jobs, stop } = parts;
    let hub = Rc::new(Hub {
        options,
        refusals,
        counters,
        jobs,
        stop,
        body_bytes: Cell::new(0),
        connections: RefCell::default(),
    });
    let local = LocalSet::new();
    local.block_on(runtime, async {
        let listener = match TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return log::error!("service=http the listener cannot be used: {error}"),
        };
        serve_all(&hub, listener).await;
    });
}

async fn serve_all(hub: &Rc<Hub>, listener: TcpListener) {
    let mut tasks = JoinSet::new();
    let (mut stop, mut stop_during_pause) = (hub.stop.clone(), hub.stop.clone());
    let mut next_id = 0;
    let mut pause = ACCEPT_PAUSE;
    // Accepted when there were as many connections as there may be; nothing more is accepted until it has room.
    let mut waiting = None;
    loop {
        tokio::select! {
            biased;
            // An engine that is dropped drops the sender: that is a stop too.
            _ = stop.wait_for(Option::is_some) => break,
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => note_end(hub, ended),
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok(accepted) => {
                    waiting = Some(accepted);
                    pause = ACCEPT_PAUSE;
                }
                Err(error) => {
                    log::warn!("service=http cannot accept a connection: {error}");
                    tokio::select! {
                        () = sleep(pause) => {}
                        // The loop sees it too.
                        _ = stop_during_pause.wait_for(Option::is_some) => {}
                    }
                    pause = (pause * 2).min(ACCEPT_PAUSE_MAX);
                }
            },
            () = sleep(ACCEPT_PAUSE), if waiting.is_some() => hub.evict_idle(),
        }
        if !hub.is_full()
            && let Some((socket, peer)) = waiting.take()
        {
            next_id += 1;
            let conn = Conn::new(peer);
            hub.connections.borrow_mut().insert(next_id, conn.clone());
            tasks.spawn_local(serve_one(hub.clone(), next_id, conn, socket));
        }
    }
    drop(listener);
    let cut_at = stop.borrow().map_or_else(Instant::now, Instant::from_std);
    let all_ended = async {
        while let Some(ended) = tasks.join_next().await {
            note_end(hub, ended);
        }
    };
    if timeout_at(cut_at, all_ended).await.is_err() {
        log::warn!("service=http {} connections are cut unfinished", hub.connections.borrow().len());
    }
    tasks.shutdown().await;
}

async fn serve_one(hub: Rc<Hub>, id: u64, conn: Rc<Conn>, socket: TcpStream) -> u64 {
    let _open = hub.counters.connection();
    // Answers are written in one piece, so there is nothing to wait for.
    let _ = socket.set_nodelay(true);
    serve(hub, conn, socket).await;
    id
}

/// A connection's task has ended; a panic in it is a fault of the engine, and its entry goes with the next sweep.
fn note_end(hub: &Hub, ended: Result<u64, tokio::task::JoinError>) {
    match ended {
        Ok(id) => {
            hub.connections.borrow_mut().remove(&id);
        }
        Err(error) => {
            log::error!("service=http a connection's task failed: {error}");
            hub.connections.borrow_mut().retain(|_, conn| Rc::strong_count(conn) > 1);
        }
    }
}

impl Hub {
    pub(super) fn stopping(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// An empty share of the bytes of all bodies.
    pub(super) fn body_share(self: &Rc<Self>) -> BodyShare {
        BodyShare { hub: self.clone(), taken: 0 }
    }

    fn is_full(&self) -> bool {
        self.connections.borrow().len() >= self.options.max_connections
    }

    /// Closes the connection that has been idle longest, if any has for long enough.
    fn evict_idle(&self) {
        let connections = self.connections.borrow();
        let longest =
            connections.values().filter_map(|conn| Some((conn.idle_for()?, conn))).max_by_key(|(for_, _)| *for_);
        if let Some((idle, conn)) = longest
            && idle >= IDLE_SPARED
        {
            conn.evict();
        }
    }
}

impl BodyShare {
    /// Takes `bytes` more; `false` when all bodies together would hold too much.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let held = self.hub.body_bytes.get().saturating_add(bytes);
        let fits = held <= self.hub.options.max_body_total;
        if fits {
            self.hub.body_bytes.set(held);
            self.taken += bytes;
        }
        fits
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        self.hub.body_bytes.set(self.hub.body_bytes.get() - self.taken);
    }
}
