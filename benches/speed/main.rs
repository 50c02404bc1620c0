//! The speed figures: `make bench`, or `cargo bench --bench speed -- relay write.bulk` for the lines that begin so.
//!
//! Standard output is one `name value unit` a line; standard error shows each line's target and runs beside it;
//! `target/bench/report.json` adds sizes, SQLite's version and the pragmas as read back. A missed target is shown, never a
//! failure: this program measures, it does not judge. `VAYU_BENCH=full` takes the larger sizes.

mod crates;
mod figures;
#[cfg(feature = "server")]
mod http;
mod input;
mod jobs;
mod latency;
mod memory;
mod mixed;
#[cfg(feature = "nats")]
mod nats;
mod pipeline;
mod place;
mod raw;
mod relay;
mod retention;
mod scale;
mod search;
mod sizes;
#[cfg(all(feature = "server", feature = "cli"))]
mod start;
mod still;
mod write;

use std::time::Instant;

use figures::{Figure, Outcome};
use sizes::Sizes;

/// Runs of each line; its value is their median.
const RUNS: usize = 3;

/// Lines that come out of one measurement.
struct Section {
    lines: &'static [&'static str],
    measure: fn(&Sizes) -> Outcome<Vec<Figure>>,
}

const SECTIONS: &[Section] = &[
    Section { lines: &["write.callers64.ratio"], measure: write::callers64 },
    Section { lines: &["write.caller1.ratio"], measure: write::caller1 },
    Section { lines: &["write.bulk1000.ratio"], measure: write::bulk1000 },
    Section { lines: &["write.mixed.ratio"], measure: mixed::mixed },
    Section { lines: &["relay.handlers3.ratio", "relay.headroom"], measure: relay::handlers3 },
    Section { lines: &["relay.latency.ratio"], measure: latency::latency },
    Section { lines: &["relay.failing.ratio"], measure: relay::failing },
    Section { lines: &["relay.healed.ratio"], measure: relay::healed },
    Section { lines: &["relay.slow_lane.ratio"], measure: relay::slow_lane },
    Section { lines: &["jobs.apply.ratio"], measure: jobs::apply },
    Section { lines: &["e2e.ratio"], measure: pipeline::end_to_end },
    Section { lines: &["search.index.ratio"], measure: search::index },
    Section { lines: &["scale.poll.ratio", "scale.read.ratio"], measure: scale::behind_a_log },
    Section { lines: &["scale.write.ratio"], measure: scale::write },
    Section { lines: &["retention.p99.ratio"], measure: retention::removal },
    Section { lines: &["mem.backlog_mib"], measure: memory::backlog },
    #[cfg(feature = "nats")]
    Section { lines: &["nats.publish", "nats.publish.ratio"], measure: nats::publish },
    #[cfg(feature = "server")]
    Section { lines: &["http.get.ratio"], measure: http::get },
    #[cfg(feature = "server")]
    Section { lines: &["http.post.ratio"], measure: http::post },
    Section { lines: &["idle.writes"], measure: still::idle },
    #[cfg(all(feature = "server", feature = "cli"))]
    Section { lines: &["start.ratio", "stop.ms"], measure: start::start_and_stop },
    Section { lines: &["build.crates"], measure: crates::count },
];

fn main() -> Outcome<()> {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let sizes = Sizes::chosen();
    let began = Instant::now();
    let mut all = Vec::new();
    place::clean_up()?;
    figures::head();
    for section in SECTIONS.iter().filter(|section| section.is_wanted(&wanted)) {
        for figure in (section.measure)(&sizes)? {
            figure.show();
            all.push(figure);
        }
    }
    let report = figures::report(&all, &sizes, began.elapsed())?;
    eprintln!("{:.1} s; {}", began.elapsed().as_secs_f64(), report.display());
    Ok(())
}

impl Section {
    fn is_wanted(&self, wanted: &[String]) -> bool {
        wanted.is_empty() || self.lines.iter().any(|line| wanted.iter().any(|start| line.starts_with(start)))
    }
}
