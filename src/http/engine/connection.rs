//! One connection: the time each of its phases may take, and how it ends.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, Sleep, sleep_until};

use super::accept::Hub;
use super::exchange::{exchange, word};
use super::framing::Framing;
use super::options::{BUFFER_BYTES, EngineOptions, HEAD_BYTES_MAX, LINGER, LINGER_BYTES_MAX, STOP_BODY_GRACE};
use super::refused;

/// What a connection is doing; each phase has its own time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between requests, or before the first.
    Idle,
    /// A head is arriving.
    Head,
    /// The request is with [`exchange`], which has its own limits.
    Request,
    /// The answer is being written.
    Response,
    /// The answer was written before the request had been read; see [`LINGER`].
    Lingering,
}

/// What is known of a connection, shared by its stream, its service and its task, all on the I/O thread.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) peer: SocketAddr,
    phase: Cell<Phase>,
    since: Cell<Instant>,
    framing: RefCell<Framing>,
    /// A request was refused before its end.
    refused: Cell<bool>,
    /// To be closed in favour of a new connection.
    evicted: Cell<bool>,
    task: RefCell<Option<Waker>>,
}

impl Conn {
    pub(super) fn new(peer: SocketAddr) -> Rc<Self> {
        Rc::new(Self {
            peer,
            phase: Cell::new(Phase::Idle),
            since: Cell::new(Instant::now()),
            framing: RefCell::default(),
            refused: Cell::new(false),
            evicted: Cell::new(false),
            task: RefCell::new(None),
        })
    }

    /// Enters a phase; its time begins.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(Instant::now());
    }

    /// The verdict on the head of the request that begins now.
    pub(super) fn head_is_ambiguous(&self) -> bool {
        self.framing.borrow_mut().next_is_ambiguous()
    }

    /// Notes that the request will not be read to its end.
    pub(super) fn refuse(&self) {
        self.refused.set(true);
    }

    /// How long the connection has been idle, if it is.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        (self.phase.get() == Phase::Idle).then(|| self.since.get().elapsed())
    }

    /// Has the connection closed at once.
    pub(super) fn evict(&self) {
        self.evicted.set(true);
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }

    /// No answer is due: what hyper writes now, it says by itself.
    fn awaits_request(&self) -> bool {
        matches!(self.phase.get(), Phase::Idle | Phase::Head)
    }

    fn is_busy(&self) -> bool {
        matches!(self.phase.get(), Phase::Request | Phase::Response)
    }

    fn due(&self, options: &EngineOptions, stopping: bool) -> Option<Instant> {
        let limit = match self.phase.get() {
            Phase::Idle => options.idle_deadline,
            Phase::Head => options.header_deadline,
            Phase::Request => return None,
            Phase::Response => options.write_deadline,
            Phase::Lingering if stopping => STOP_BODY_GRACE,
            Phase::Lingering => LINGER,
        };
        self.since.get().checked_add(limit)
    }

    fn received(&self, bytes: &[u8]) {
        let mut framing = self.framing.borrow_mut();
        framing.follow(bytes);
        if self.phase.get() == Phase::Idle && framing.in_head() {
            self.enter(Phase::Head);
        }
    }

    /// All that hyper had to write has been taken by the socket.
    fn flushed(&self) {
        if self.phase.get() == Phase::Response {
            self.enter(if self.framing.borrow().in_head() { Phase::Head } else { Phase::Idle });
        }
    }

    fn must_linger(&self) -> bool {
        self.refused.get() || !self.framing.borrow().at_rest()
    }
}

/// Serves a connection until it ends, its time is up, or the server stops.
pub(super) async fn serve(hub: Rc<Hub>, conn: Rc<Conn>, socket: TcpStream) {
    let stream =
        Stream { socket, conn: conn.clone(), hub: hub.clone(), own: Own::default(), write_closed: false, drained: 0 };
    let service = service_fn(|request| exchange(hub.clone(), conn.clone(), request));
    let mut builder = http1::Builder::new();
    // The phases' limits take the place of hyper's own; a client may close its sending half and still get its answer.
    builder.header_read_timeout(None).half_close(true).max_buf_size(BUFFER_BYTES).max_header_size(HEAD_BYTES_MAX);
    let mut http = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut timer = std::pin::pin!(sleep_until(Instant::now()));
    let mut stop = hub.stop.clone();
    let mut stopping = false;
    loop {
        let step = std::future::poll_fn(|cx| {
            if let Poll::Ready(end) = http.as_mut().poll(cx) {
                return Poll::Ready(
                    end.map_or_else(|error| format!("ended by an error: {error}"), |()| "ended".into()),
                );
            }
            conn.poll_cut(&hub.options, stopping, timer.as_mut(), cx).map(|reason| {
                hub.counters.cut();
                format!("cut: {reason}")
            })
        });
        tokio::select! {
            biased;
            end = step => {
                log::debug!("service=http peer={} connection {end}", conn.peer);
                return;
            }
            _ = stop.wait_for(Option::is_some), if !stopping => {
                if !conn.is_busy() {
                    return;
                }
                stopping = true;
                http.as_mut().graceful_shutdown();
            }
        }
    }
}

impl Conn {
    /// Ready, with the reason, when the connection is to be closed whatever it is doing.
    fn poll_cut(
        &self,
        options: &EngineOptions,
        stopping: bool,
        mut timer: Pin<&mut Sleep>,
        cx: &mut Context<'_>,
    ) -> Poll<&'static str> {
        if self.evicted.get() {
            return Poll::Ready("idle, and a new connection waits");
        }
        *self.task.borrow_mut() = Some(cx.waker().clone());
        let Some(due) = self.due(options, stopping) else { return Poll::Pending };
        if Instant::now() >= due {
            return Poll::Ready(match self.phase.get() {
                Phase::Idle => "idle for too long",
                Phase::Head => "the request head took too long",
                Phase::Request | Phase::Response => "the answer was not read in time",
                Phase::Lingering => "went on sending after a refusal",
            });
        }
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.poll(cx).map(|()| "its time is up")
    }
}

/// The socket as hyper sees it: what arrives is followed, and the end is given the time to be noticed.
struct Stream {
    socket: TcpStream,
    conn: Rc<Conn>,
    hub: Rc<Hub>,
    /// What is sent instead of hyper's answer.
    own: Own,
    write_closed: bool,
    drained: usize,
}

/// Bytes on their way to the socket past hyper.
#[derive(Default)]
struct Own {
    bytes: Vec<u8>,
    sent: usize,
}

impl Stream {
    /// Takes hyper's own refusal of a head and puts a worded one in its place; whether `written` was one.
    fn replaces(&mut self, written: &[u8]) -> bool {
        if !self.conn.awaits_request() {
            return false;
        }
        let Some(refusal) = refused::refusal(written, self.conn.framing.borrow().first_line_bytes()) else {
            return false;
        };
        let status = refusal.status.as_u16();
        log::info!("request status={status} peer={} refused={:?}", self.conn.peer, refusal.message);
        self.hub.counters.refused();
        self.conn.refuse();
        self.conn.enter(Phase::Response);
        self.own = Own { bytes: refused::bytes(&word(&self.hub, &refusal)), sent: 0 };
        true
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.own.sent < self.own.bytes.len() {
            let left = &self.own.bytes[self.own.sent..];
            match std::task::ready!(Pin::new(&mut self.socket).poll_write(cx, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.own.sent += sent,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and forgets until the client closes its side. Closing with unread bytes would reset the connection, and the
    /// client could lose the answer that tells it what was wrong.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0; 8192];
        while self.drained < LINGER_BYTES_MAX {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buf) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => self.drained += buf.filled().len(),
                Poll::Ready(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = read {
            self.conn.received(&buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.replaces(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if bufs.first().is_some_and(|first| self.replaces(first)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        Pin::new(&mut self.socket).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.poll_own(cx))?;
        // hyper asks for this only when its own buffer is empty.
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        if let Poll::Ready(Ok(())) = flushed {
            self.conn.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.write_closed {
            std::task::ready!(self.poll_own(cx))?;
            std::task::ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            self.write_closed = true;
            if self.conn.must_linger() {
                self.conn.enter(Phase::Lingering);
            }
        }
        if self.conn.phase.get() == Phase::Lingering { self.poll_drain(cx) } else { Poll::Ready(Ok(())) }
    }
}
