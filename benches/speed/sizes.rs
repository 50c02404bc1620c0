//! How much each line measures. The quick sizes keep the whole run below 50 s on two cores.

/// Items of each run, unless said otherwise.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Sizes {
    pub full: bool,
    /// Articles written by 64 callers, and operations of the mixed line.
    pub callers64: usize,
    pub caller1: usize,
    pub bulk: usize,
    /// Jobs that wait, in each of the three runs.
    pub jobs: usize,
    /// Events in the log that is drained.
    pub log: usize,
    /// Events of the line about failing events: so many that the last retries, which wait for a flush each, count little.
    pub failing: usize,
    /// Events that wait behind one.
    pub waiting: usize,
    /// Events of the line about slow lanes.
    pub lane: usize,
    pub latency_samples: usize,
    pub end_to_end: usize,
    pub search: usize,
    pub http_get: usize,
    pub http_post: usize,
    /// Events published to a broker; only in the large run, with the feature `nats`.
    #[cfg(feature = "nats")]
    pub publish: usize,
    /// Rows behind which a poll, a read, a write and a start are measured.
    pub behind: usize,
    /// Dead letters, and as many waiting rows, among them.
    pub exceptions: usize,
}

impl Sizes {
    /// The quick sizes, or the large ones when the environment says `VAYU_BENCH=full`.
    pub fn chosen() -> Self {
        if std::env::var("VAYU_BENCH").is_ok_and(|value| value == "full") { Self::full() } else { Self::quick() }
    }

    fn quick() -> Self {
        Self {
            full: false,
            callers64: 6_400,
            caller1: 900,
            bulk: 8_000,
            jobs: 8_000,
            log: 200_000,
            failing: 300_000,
            waiting: 100_000,
            lane: 30_000,
            latency_samples: 500,
            end_to_end: 9_600,
            search: 2_048,
            http_get: 9_600,
            http_post: 1_920,
            #[cfg(feature = "nats")]
            publish: 0,
            behind: 100_000,
            exceptions: 10_000,
        }
    }

    fn full() -> Self {
        Self {
            full: true,
            callers64: 64_000,
            caller1: 8_000,
            bulk: 64_000,
            jobs: 64_000,
            log: 1_000_000,
            failing: 1_000_000,
            waiting: 1_000_000,
            lane: 400_000,
            latency_samples: 4_000,
            end_to_end: 64_000,
            search: 16_384,
            http_get: 128_000,
            http_post: 25_600,
            #[cfg(feature = "nats")]
            publish: 50_000,
            behind: 1_000_000,
            exceptions: 10_000,
        }
    }
}
