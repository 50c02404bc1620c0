//! How long the program itself takes to start and to stop: `serve` as people run it, spawned, asked over HTTP, ended by a signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use vayu_articles::rusqlite::Connection;

use crate::RUNS;
use crate::figures::{Figure, Outcome};
use crate::place::{self, LONG, Site, soon};
use crate::scale;
use crate::sizes::Sizes;

/// Starts of a run on each side, one after the other: one alone is mostly noise.
const TURNS: usize = 5;
/// Past the first moments, in which retention looks for old rows.
const IDLE_FOR: Duration = Duration::from_secs(1);
/// Lanes that have not had every event.
const BEHIND: &str = "SELECT count(*) FROM lanes WHERE cursor < (SELECT coalesce(max(id), 0) FROM event_outbox)";

/// From the spawn to `/health/ready`, behind many articles against an empty, created database; and from SIGTERM to the exit.
pub fn start_and_stop(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let (empty, full) = (folder.path().join("empty"), folder.path().join("full"));
    prepare(&empty, 0)?;
    prepare(&full, sizes.behind)?;
    let (mut ratios, mut starts, mut empty_starts, mut stops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (mut of_empty, mut of_full) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..TURNS {
            of_empty += start_once(&empty)?;
            of_full += start_once(&full)?;
        }
        ratios.push(of_full.as_secs_f64() / of_empty.as_secs_f64());
        let ms = |took: Duration| took.as_secs_f64() * 1e3;
        starts.push(ms(of_full) / TURNS as f64);
        empty_starts.push(ms(of_empty) / TURNS as f64);
        stops.push(ms(idle_stop(&full)?));
    }
    let size = format!("{} articles", sizes.behind);
    let ratio = Figure::new("start.ratio", "ratio", "<= 1.5", size.clone(), ratios);
    let stop = Figure::new("stop.ms", "ms", "report", size, stops);
    Ok(vec![ratio.note("ms", &starts).note("empty_ms", &empty_starts), stop])
}

/// A data folder that the program has made, with so many articles, all of them in the search index.
fn prepare(data: &Path, articles: usize) -> Outcome<()> {
    Program::start(data)?.stop()?;
    if articles == 0 {
        return Ok(());
    }
    let site = Site::open(data, "articles.db")?;
    scale::fill_articles(&site, articles)?;
    site.close()?;
    let database = Connection::open(data.join("articles.db"))?;
    // The page cache would render each of them, which takes long; a start does not look at them.
    database.execute("UPDATE lanes SET cursor = (SELECT max(id) FROM event_outbox) WHERE handler = 'cache'", [])?;
    let program = Program::start(data)?;
    let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0));
    let until = Instant::now() + LONG * 5;
    while count(BEHIND)? > 0 {
        if Instant::now() > until {
            return Err("the handlers do not come to the end of the log".into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    program.stop()?;
    match count("SELECT count(*) FROM deliveries")? {
        0 => Ok(()),
        failed => Err(format!("{failed} deliveries of the prepared articles have failed").into()),
    }
}

fn start_once(data: &Path) -> Outcome<Duration> {
    let began = Instant::now();
    let program = Program::start(data)?;
    let took = began.elapsed();
    program.stop()?;
    Ok(took)
}

fn idle_stop(data: &Path) -> Outcome<Duration> {
    let program = Program::start(data)?;
    std::thread::sleep(IDLE_FOR);
    program.stop()
}

/// A running `serve`.
struct Program {
    child: Child,
}

impl Program {
    /// Returns once it says that it is ready.
    fn start(data: &Path) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vayu-articles"));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("VAYU_")) {
            command.env_remove(name);
        }
        command.args(["serve", "--addr", "127.0.0.1:0", "--log", "error", "--data"]).arg(data);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut program = Self { child };
        let address = program.address()?;
        let until = soon();
        while !is_ready(&address)? {
            if Instant::now() > until {
                return Err("the program does not become ready".into());
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(program)
    }

    /// Host and port, as its first line names them. What else it says fits into the pipe.
    fn address(&mut self) -> Outcome<String> {
        let out = self.child.stdout.take().ok_or("no standard output")?;
        let mut out = BufReader::new(out);
        let mut line = String::new();
        out.read_line(&mut line)?;
        // Kept open: a program whose output is closed is not as people run it.
        self.child.stdout = Some(out.into_inner());
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split('/').next());
        Ok(address.ok_or_else(|| format!("it says {line:?} and no address"))?.to_owned())
    }

    /// From SIGTERM until it has ended.
    fn stop(mut self) -> Outcome<Duration> {
        let id = Pid::from_child(&self.child);
        let began = Instant::now();
        kill_process(id, Signal::TERM)?;
        let status = self.child.wait()?;
        let took = began.elapsed();
        if status.success() { Ok(took) } else { Err(format!("the program ended with {status}").into()) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_ready(address: &str) -> Outcome<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.write_all(b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}
