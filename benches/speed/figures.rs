//! A measured line: its runs, their median, and where it is printed.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::place;
use crate::sizes::Sizes;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// One line.
pub struct Figure {
    name: &'static str,
    unit: &'static str,
    target: &'static str,
    /// What one run measured: how many of what.
    size: String,
    runs: Vec<f64>,
    /// Absolute values behind the ratio, for the reader.
    notes: Vec<(&'static str, f64)>,
}

impl Figure {
    pub fn new(name: &'static str, unit: &'static str, target: &'static str, size: String, runs: Vec<f64>) -> Self {
        Self { name, unit, target, size, runs, notes: Vec::new() }
    }

    /// Adds the median of an absolute value.
    pub fn note(mut self, what: &'static str, runs: &[f64]) -> Self {
        self.notes.push((what, median(runs)));
        self
    }

    /// To standard output the line alone, to standard error the rest.
    pub fn show(&self) {
        println!("{} {} {}", self.name, rounded(self.value()), self.unit);
        let runs: Vec<String> = self.runs.iter().map(|run| rounded(*run)).collect();
        let notes: Vec<String> = self.notes.iter().map(|(what, value)| format!("{what} {}", rounded(*value))).collect();
        eprintln!(
            "  {:<24} {:>9} {:<6} target {:<10} runs {:<24} {} {}",
            self.name,
            rounded(self.value()),
            self.unit,
            self.target,
            runs.join(" "),
            self.size,
            notes.join(", ")
        );
    }

    fn value(&self) -> f64 {
        median(&self.runs)
    }

    fn json(&self) -> Value {
        let notes: serde_json::Map<_, _> =
            self.notes.iter().map(|(what, value)| ((*what).to_owned(), json!(value))).collect();
        json!({
            "name": self.name, "value": self.value(), "unit": self.unit, "target": self.target,
            "n": self.size, "runs": self.runs, "absolute": notes,
        })
    }
}

/// What a run took, per side. Both sides did the same number of items in turns.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sides {
    pub baseline: Duration,
    pub product: Duration,
    pub items: usize,
}

impl Sides {
    /// The product's rate against the baseline's.
    pub fn ratio(&self) -> f64 {
        self.baseline.as_secs_f64() / self.product.as_secs_f64()
    }

    pub fn baseline_rate(&self) -> f64 {
        self.items as f64 / self.baseline.as_secs_f64()
    }

    pub fn product_rate(&self) -> f64 {
        self.items as f64 / self.product.as_secs_f64()
    }
}

/// The line about runs whose two sides were rates.
pub fn rates(name: &'static str, target: &'static str, size: String, runs: &[Sides]) -> Figure {
    let values = |of: fn(&Sides) -> f64| runs.iter().map(of).collect::<Vec<_>>();
    Figure::new(name, "ratio", target, size, values(Sides::ratio))
        .note("per_second", &values(Sides::product_rate))
        .note("baseline_per_second", &values(Sides::baseline_rate))
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value at this share (0 to 1) of the sorted values.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

pub fn head() {
    eprintln!("medians of {} runs, baseline and product in turns", crate::RUNS);
}

/// Writes `target/bench/report.json`.
pub fn report(figures: &[Figure], sizes: &Sizes, took: Duration) -> Outcome<PathBuf> {
    let report = json!({
        "sqlite": vayu_articles::rusqlite::version(),
        "pragmas": place::pragmas()?,
        "sizes": sizes,
        "runs": crate::RUNS,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "seconds": took.as_secs_f64(),
        "lines": figures.iter().map(Figure::json).collect::<Vec<_>>(),
    });
    let path = place::report_path();
    std::fs::write(&path, format!("{report:#}\n"))?;
    Ok(path)
}

fn rounded(value: f64) -> String {
    if value.abs() >= 1_000.0 || value == value.trunc() { format!("{value:.0}") } else { format!("{value:.3}") }
}
