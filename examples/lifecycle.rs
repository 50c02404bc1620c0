//! The lifecycle manager alone: a small counting server made of two services, stopped in order by Ctrl-C.
//!
//! `cargo run --example lifecycle`, then `echo hello | nc 127.0.0.1 7878`; the answer is how many lines came so far.
//! Send the line `die` to see what the manager does about a thread that panics.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use vayu_articles::lifecycle::{BoxError, Manager, ManagerOptions, Service, StartContext};

/// A line, and where its number goes.
type Line = (String, Sender<u64>);

/// Numbers the lines it is sent, on one thread. Ends when `stop` takes the sender away.
struct Counter {
    lines: Arc<Mutex<Option<Sender<Line>>>>,
}

impl Service for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        let (sender, receiver) = bounded(64);
        ctx.spawner().spawn("counter", move || count(&receiver))?;
        *self.lines.lock().unwrap() = Some(sender);
        Ok(())
    }

    fn stop(&self, _deadline: Instant) -> Result<(), BoxError> {
        // The thread sees its channel close; the manager waits until it has ended.
        self.lines.lock().unwrap().take();
        Ok(())
    }
}

fn count(lines: &Receiver<Line>) {
    for (number, (line, answer)) in (1..).zip(lines) {
        assert!(line != "die", "somebody said so");
        let _ = answer.try_send(number);
    }
}

/// Accepts connections, one at a time, and passes their lines on.
struct Listener {
    addr: SocketAddr,
    lines: Arc<Mutex<Option<Sender<Line>>>>,
    stopping: Arc<AtomicBool>,
}

impl Service for Listener {
    fn name(&self) -> &str {
        "listener"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        let listener = TcpListener::bind(self.addr)?;
        let lines = self.lines.lock().unwrap().clone().ok_or("the counter does not run")?;
        let stopping = self.stopping.clone();
        ctx.spawner().spawn("listener", move || {
            for client in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                if let Err(error) = client.and_then(|client| serve(client, &lines)) {
                    log::warn!("client error={error}");
                }
            }
        })?;
        log::info!("listening addr={}", self.addr);
        Ok(())
    }

    fn stop(&self, _deadline: Instant) -> Result<(), BoxError> {
        self.stopping.store(true, Ordering::SeqCst);
        // A connection wakes the thread, which waits for one.
        TcpStream::connect(self.addr)?;
        Ok(())
    }
}

fn serve(client: TcpStream, lines: &Sender<Line>) -> std::io::Result<()> {
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut answers = client.try_clone()?;
    for line in BufReader::new(client).lines() {
        let (answer, number) = bounded(1);
        if lines.send((line?, answer)).is_err() {
            return Ok(());
        }
        // No answer comes when the counter has died meanwhile.
        let Ok(number) = number.recv() else { return Ok(()) };
        writeln!(answers, "{number}")?;
    }
    Ok(())
}

fn main() -> Result<ExitCode, BoxError> {
    env_logger::Builder::new().filter_level(log::LevelFilter::Info).init();
    let addr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:7878").parse()?;
    let lines = Arc::new(Mutex::new(None));

    let mut manager = Manager::new(ManagerOptions::default());
    manager.register(Counter { lines: lines.clone() })?;
    manager.register(Listener { addr, lines, stopping: Arc::default() })?;
    ctrlc::set_handler(manager.handle().signal_hook(|code| std::process::exit(code.into())))?;

    let outcome = manager.run();
    println!("{outcome}");
    Ok(ExitCode::from(outcome.exit_code()))
}
