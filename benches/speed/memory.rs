//! Resident memory while a backlog drains.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::RUNS;
use crate::figures::{Figure, Outcome};
use crate::place::{self, Site};
use crate::relay;
use crate::sizes::Sizes;

/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(5);

pub fn backlog(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "log.db")?;
    relay::fill(&site, sizes.log)?;
    let mut growth = Vec::new();
    for run in 0..RUNS {
        let before = resident_mib()?;
        let over = AtomicBool::new(false);
        let highest = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut highest = before;
                while !over.load(Relaxed) {
                    std::thread::sleep(EVERY);
                    highest = resident_mib().unwrap_or(highest).max(highest);
                }
                highest
            });
            let drained = relay::drain(&site, sizes.log, &relay::names("memory", run, 3), |_| Ok(()));
            over.store(true, Relaxed);
            let highest = watcher.join().map_err(|_| "the watcher panicked")?;
            drained.map(|_| highest)
        })?;
        growth.push(highest - before);
    }
    site.close()?;
    // Later runs find memory that the first one left behind: the first tells most.
    let most = growth.iter().copied().fold(0.0, f64::max);
    let size = format!("{} events", sizes.log);
    Ok(vec![Figure::new("mem.backlog_mib", "MiB", "<= 32", size, vec![most])])
}

fn resident_mib() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1_024.0)
}
