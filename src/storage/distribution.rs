//! How often a measured value fell where, counted with plain atomics by whoever measures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A distribution at one moment.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Distribution {
    /// Upper bound of each bucket, and how many values lay above the bound before and not above this one. The last
    /// bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// All values together.
    pub sum: f64,
    /// How many values.
    pub count: u64,
}

/// The buckets of a distribution of whole numbers. Recording is a short walk and two additions.
#[derive(Debug)]
pub(crate) struct Buckets<const N: usize> {
    bounds: &'static [u64; N],
    /// What one unit of a value is in units of the distribution.
    unit: f64,
    counts: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Buckets<N> {
    pub(crate) fn new(bounds: &'static [u64; N], unit: f64) -> Self {
        let counts = std::array::from_fn(|_| AtomicU64::new(0));
        Self { bounds, unit, counts, above: AtomicU64::new(0), sum: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self, value: u64) {
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        bucket.map_or(&self.above, |at| &self.counts[at]).fetch_add(1, Relaxed);
        self.sum.fetch_add(value, Relaxed);
    }

    #[allow(clippy::cast_precision_loss)] // A sum of this size is told no more exactly than that.
    pub(crate) fn read(&self) -> Distribution {
        let bounds = self.bounds.iter().map(|bound| *bound as f64 * self.unit).chain([f64::INFINITY]);
        let counts = self.counts.iter().chain([&self.above]).map(|count| count.load(Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        Distribution { buckets, sum: self.sum.load(Relaxed) as f64 * self.unit, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_one_bucket() {
        let buckets = Buckets::new(&[10, 100], 0.5);
        [0, 10, 11, 100, 101, 7_000].into_iter().for_each(|value| buckets.record(value));
        let read = buckets.read();
        assert_eq!(read.buckets, [(5.0, 2), (50.0, 2), (f64::INFINITY, 2)]);
        assert_eq!((read.count, read.sum), (6, 3_611.0));
    }
}
