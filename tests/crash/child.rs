//! A process that takes writes, delivers them, and is meant to be killed. It is steered by lines on its standard input
//! and ends by itself when they end.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use vayu_articles::article::{self, ArticlePatch, ArticleRepository, Expected, NewArticle};
use vayu_articles::jobs::{JobOptions, JobRunner, Journal};
use vayu_articles::outbox::{self, DispatchError, Event, Relay};
use vayu_articles::queue::{SqliteWriter, WriteError};
use vayu_articles::service::{ArticleService, WriteContext};
use vayu_articles::storage::{Database, Options};

use crate::record::{Book, Point, Record, monotonic_ns};

/// Set in a child: the folder it works in.
pub const FOLDER: &str = "VAYU_CRASH_FOLDER";
/// Set in a child: how many threads write.
pub const WRITERS: &str = "VAYU_CRASH_WRITERS";
/// Set in a child: the database's file, if it is not `site.db` in the folder.
pub const DATABASE: &str = "VAYU_CRASH_DATABASE";
pub const HANDLERS: [&str; 3] = ["one", "two", "three"];
/// The title of an article that kills the process which delivers it to [`HANDLERS`]`[0]`.
pub const KILLER: &str = "Killer";
/// Writes of one thread at full speed; beyond them it lets the handlers catch up, which they would never do otherwise.
const FAST_WRITES: usize = 140;
/// Only a hang reaches it.
pub const LONG: Duration = Duration::from_secs(120);

pub fn book_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.book"))
}

/// When a handler shall stop for its murderer: at this point of its so many-th call from now on.
struct Trap {
    /// Who is held, for the judge.
    book: Book,
    set: AtomicBool,
    at_end: AtomicBool,
    handler: AtomicUsize,
    calls_left: AtomicUsize,
}

impl Trap {
    fn new(folder: &Path) -> Self {
        let book = Book::open(&book_of(folder, "traps")).unwrap();
        let (set, at_end) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { book, set, at_end, handler: AtomicUsize::new(0), calls_left: AtomicUsize::new(0) }
    }

    fn spring(&self, handler: usize, point: Point) {
        if !self.set.load(Ordering::SeqCst) || self.handler.load(Ordering::SeqCst) != handler {
            return;
        }
        if self.at_end.load(Ordering::SeqCst) != (point == Point::End) {
            return;
        }
        if self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Err(0) {
            self.book.write(&format!("{} {}", HANDLERS[handler], std::process::id())).unwrap();
            println!("\ninside");
            loop {
                std::thread::park();
            }
        }
    }

    /// `arm HANDLER start|end CALLS`
    fn arm(&self, words: &[&str]) {
        let [handler, point, calls] = words else { panic!("arm {words:?}") };
        self.handler.store(HANDLERS.iter().position(|name| name == handler).unwrap(), Ordering::SeqCst);
        self.at_end.store(*point == "end", Ordering::SeqCst);
        self.calls_left.store(calls.parse().unwrap(), Ordering::SeqCst);
        self.set.store(true, Ordering::SeqCst);
    }
}

/// The child's whole life.
pub fn live() {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let path = std::env::var(DATABASE).map_or_else(|_| folder.join("site.db"), PathBuf::from);
    let components = [outbox::COMPONENT, article::COMPONENT, vayu_articles::jobs::COMPONENT];
    let database = Database::open(path, &components, Options::default()).unwrap();
    let trap = Arc::new(Trap::new(&folder));
    let relay = start_relay(&database, &folder, &trap);
    let runner = JobRunner::new(&database, JobOptions::default());
    runner.start().unwrap();
    let gate = Arc::new(Journal::new(&database, &JobOptions::default()));
    let repository = ArticleRepository::new(database.clone());
    let service = ArticleService::new(Arc::new(SqliteWriter::with_gate(&database, gate)), repository.clone());
    // The killer gets in whatever the mode is.
    let ungated = ArticleService::new(Arc::new(SqliteWriter::new(&database)), repository);
    let acks = Arc::new(Book::open(&book_of(&folder, "acks")).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let writers: usize = std::env::var(WRITERS).unwrap().parse().unwrap();
    let threads: Vec<_> = (0..writers)
        .map(|thread| {
            let (service, acks, stop, relay) = (service.clone(), acks.clone(), stop.clone(), relay.clone());
            std::thread::spawn(move || write_on(&service, &acks, &relay, &stop, thread))
        })
        .collect();
    let jobs = {
        let (database, service, stop, folder) = (database.clone(), service.clone(), stop.clone(), folder.clone());
        std::thread::spawn(move || crate::jobs::live(&database, &service, &folder, writers > 0, &stop))
    };
    println!("\nready");
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["arm", rest @ ..] => trap.arm(rest),
            ["plant"] => {
                let from = monotonic_ns();
                let killer = ungated.create(NewArticle::new(KILLER, "x"), &WriteContext::default()).unwrap();
                acks.write(&answered(&killer, from)).unwrap();
            }
            ["stop"] => {
                stop.store(true, Ordering::SeqCst);
                threads.into_iter().for_each(|thread| thread.join().unwrap());
                jobs.join().unwrap();
                runner.stop(Instant::now() + LONG).unwrap();
                assert!(relay.wait_drained(Instant::now() + LONG), "not drained: {:?}", relay.status());
                relay.stop(Instant::now() + LONG).unwrap();
                database.close(Instant::now() + LONG).unwrap();
                println!("\nstopped");
                return;
            }
            other => panic!("unknown order {other:?}"),
        }
    }
    // The parent is gone.
    std::process::exit(3);
}

fn start_relay(database: &Database, folder: &Path, trap: &Arc<Trap>) -> Relay {
    let mut builder = Relay::builder(database);
    for (place, name) in HANDLERS.into_iter().enumerate() {
        let book = Book::open(&book_of(folder, name)).unwrap();
        let trap = trap.clone();
        builder = builder.handler_fn(name, move |event: &Event| {
            let record = |point| book.write(&Record::now(point, event.id).line()).map_err(DispatchError::from);
            record(Point::Start)?;
            if place == 0 && event.payload.contains(&format!("\"title\":\"{KILLER}\"")) {
                std::process::abort();
            }
            trap.spring(place, Point::Start);
            record(Point::End)?;
            trap.spring(place, Point::End);
            Ok(())
        });
    }
    builder.start().unwrap()
}

/// A line of the book of answers: what was written, since when, until when, by whom.
fn answered(article: &article::Article, from_ns: u64) -> String {
    format!("{} {} {from_ns} {} {}", article.id, article.version, monotonic_ns(), std::process::id())
}

/// Creates, changes and deletes articles until told to stop; every answer goes into the book.
fn write_on(service: &ArticleService, acks: &Book, relay: &Relay, stop: &AtomicBool, thread: usize) {
    let context = WriteContext::default();
    let ack = |article: &article::Article, from: u64| acks.write(&answered(article, from)).unwrap();
    let mut writes = 0;
    while !stop.load(Ordering::SeqCst) {
        let title = format!("Post {} {thread} {writes}", std::process::id());
        writes += 3;
        // Two processes on one file may keep each other waiting for too long: a typed error, and the next try.
        let live_once = || -> Result<(), WriteError> {
            let from = monotonic_ns();
            let article = service.create(NewArticle::new(&title, "Text."), &context)?;
            ack(&article, from);
            let (patch, from) = (ArticlePatch::default().content("Changed."), monotonic_ns());
            let article = service.update(&article.slug, patch, Expected::any(), &context)?;
            ack(&article, from);
            if writes % 2 == 0 {
                let from = monotonic_ns();
                ack(&service.delete(&article.slug, Expected::exactly(&article), &context)?, from);
            }
            Ok(())
        };
        if let Err(error) = live_once()
            && !matches!(error, WriteError::Deferred { .. })
        {
            eprintln!("write not answered with success: {error}");
        }
        if writes > FAST_WRITES {
            // One that stands by, or is caught in a trap, cannot be waited for longer.
            relay.wait_drained(Instant::now() + Duration::from_millis(100));
        }
    }
}

/// A child as its parent holds it; none outlives its parent.
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    says: Receiver<String>,
}

impl Process {
    /// Starts this program again with `arguments`; the child does what [`live`] does.
    pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (say, says) = unbounded();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok).filter(|line| !line.is_empty()) {
                let _ = say.send(line);
            }
        });
        Self { orders: child.stdin.take(), child, says }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// A process that has died meanwhile hears nothing.
    pub fn order(&mut self, line: &str) {
        use std::io::Write;
        if let Some(orders) = &mut self.orders {
            let _ = writeln!(orders, "{line}");
        }
    }

    /// Waits until it says so; `false` when it has died instead, or when `limit` has passed.
    pub fn wait_for(&self, word: &str, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            match self.says.recv_deadline(until) {
                Ok(line) if line == word => return true,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    pub fn has_died(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// SIGKILL; returns when it was sent, on the monotonic clock.
    pub fn kill(&mut self) -> u64 {
        let at = crate::record::monotonic_ns();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        at
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
