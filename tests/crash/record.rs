//! What the processes of a crash run write down, line by line, for the judge who reads it afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Nanoseconds of the machine's monotonic clock: the same for every process.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// A file that several processes append to.
pub struct Book(File);

impl Book {
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(path)?))
    }

    /// Appends one line and waits until it is on the disk. A line that a kill cut short has no final semicolon.
    pub fn write(&self, words: &str) -> io::Result<()> {
        (&self.0).write_all(format!("\n{words};").as_bytes())?;
        self.0.sync_data()
    }
}

/// The whole lines of a book, each as its words.
pub fn read(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.strip_suffix(';'))
        .map(|line| line.split(' ').map(str::to_owned).collect())
        .collect()
}

/// Where a run of a handler stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    Start,
    /// The effect is there; the relay does not know it yet.
    End,
}

/// One line of a handler's book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub point: Point,
    /// Position in the log.
    pub event: i64,
    pub at_ns: u64,
    pub process: u32,
}

impl Record {
    pub fn now(point: Point, event: i64) -> Self {
        Self { point, event, at_ns: monotonic_ns(), process: std::process::id() }
    }

    pub fn line(&self) -> String {
        let point = if self.point == Point::Start { "start" } else { "end" };
        format!("{point} {} {} {}", self.event, self.at_ns, self.process)
    }

    pub fn parse(words: &[String]) -> Option<Self> {
        let [point, event, at_ns, process] = words else { return None };
        let point = match point.as_str() {
            "start" => Point::Start,
            "end" => Point::End,
            _ => return None,
        };
        let (event, at_ns) = (event.parse().ok()?, at_ns.parse().ok()?);
        Some(Self { point, event, at_ns, process: process.parse().ok()? })
    }
}
