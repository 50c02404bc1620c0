//! How to reach the broker, and which stream and subjects are ours.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::ServerAddr;

use super::subject::is_plain;

/// Most partitions.
pub const MAX_PARTITIONS: u32 = 256;

/// The broker and the stream, for a [`NatsSink`](super::NatsSink) and for a worker alike. Start from
/// [`NatsOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsOptions {
    /// Servers of one cluster, tried in random order: `nats://host:port`, `tls://host:port`, also with `user:password@`.
    pub servers: Vec<String>,
    /// The stream; `VAYU_EVENTS`. Letters, digits, `-`, `_`.
    pub stream: String,
    /// How every subject begins; `vayu.events`. Tokens as in `stream`, separated by dots.
    pub prefix: String,
    /// How many partitions the subjects have, by a hash of the event's key; 0 (the default) means no partition in the
    /// subject. At most [`MAX_PARTITIONS`]. Must be the same for the sink and its workers.
    pub partitions: u32,
    /// A credentials file (JWT and seed) as `nsc` writes it.
    pub credentials: Option<PathBuf>,
    /// PEM file of further certificate authorities to trust, beside the system's.
    pub tls_ca: Option<PathBuf>,
    /// PEM files of a certificate to show to the server, and its key.
    pub tls_client: Option<(PathBuf, PathBuf)>,
    /// Refuse to talk in clear, whatever the server says; off by default (a `tls://` address implies it).
    pub tls_required: bool,
    /// Longest time for a connection to be made; 5 s.
    pub connect_timeout: Duration,
    /// Longest time to wait for one answer of the broker; 5 s.
    pub ack_timeout: Duration,
    /// Most publishes under way at once, no two of one key; 256.
    pub window: usize,
    /// The stream's memory for message ids; 1 h. Also written to a stream that has another.
    pub duplicate_window: Duration,
    /// How long a stream that we create keeps its messages; 30 days. Zero keeps them for ever.
    pub max_age: Duration,
    /// Copies of a stream that we create; 1.
    pub replicas: u32,
    /// The `source` of the CloudEvents; `/vayu-articles`.
    pub source: String,
}

impl NatsOptions {
    /// The defaults, for these servers.
    pub fn new<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Self {
        Self {
            servers: servers.into_iter().map(Into::into).collect(),
            stream: "VAYU_EVENTS".to_owned(),
            prefix: "vayu.events".to_owned(),
            partitions: 0,
            credentials: None,
            tls_ca: None,
            tls_client: None,
            tls_required: false,
            connect_timeout: Duration::from_secs(5),
            ack_timeout: Duration::from_secs(5),
            window: 256,
            duplicate_window: Duration::from_secs(3_600),
            max_age: Duration::from_secs(30 * 86_400),
            replicas: 1,
            source: "/vayu-articles".to_owned(),
        }
    }

    /// Looks whether this can work, without asking the broker.
    ///
    /// # Errors
    /// The field that cannot, and why.
    pub fn check(&self) -> Result<(), NatsOptionsError> {
        let wrong = |field, reason: &str| Err(NatsOptionsError { field, reason: reason.to_owned() });
        self.addresses()?;
        if !is_plain(&self.stream, false) {
            return wrong("stream", "must be 1 to 200 letters, digits, - and _");
        }
        if !is_plain(&self.prefix, true) {
            return wrong("prefix", "must be tokens of letters, digits, - and _, separated by dots");
        }
        if self.partitions > MAX_PARTITIONS {
            return wrong("partitions", "must be at most 256");
        }
        if self.connect_timeout.is_zero() || self.ack_timeout.is_zero() {
            return wrong("timeout", "must be above zero");
        }
        if self.window == 0 || self.window > 4_096 {
            return wrong("window", "must be 1 to 4096");
        }
        if self.duplicate_window.is_zero() {
            return wrong("duplicate_window", "must be above zero: without it a crash would leave duplicates");
        }
        if !self.max_age.is_zero() && self.max_age < self.duplicate_window {
            return wrong("max_age", "must not be below duplicate_window");
        }
        if self.source.is_empty() {
            return wrong("source", "must not be empty");
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> Result<Vec<ServerAddr>, NatsOptionsError> {
        let wrong = |reason| NatsOptionsError { field: "servers", reason };
        if self.servers.is_empty() {
            return Err(wrong("must name at least one server".to_owned()));
        }
        // The address itself may hold a password: it is not quoted.
        let parse = |server: &String| server.trim().parse::<ServerAddr>();
        let parsed: Result<Vec<_>, _> = self.servers.iter().map(parse).collect();
        parsed.map_err(|error| wrong(format!("must be addresses such as nats://host:4222 ({})", error.kind())))
    }

    /// The partition of an event; `None` when there are none. What has no key goes anywhere.
    pub(super) fn partition(&self, key: Option<&str>, event_id: &str) -> Option<u32> {
        (self.partitions > 0).then(|| super::subject::partition_of(key.unwrap_or(event_id), self.partitions))
    }
}

/// Servers may hold passwords: only their number is shown.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("servers", &self.servers.len())
            .field("stream", &self.stream)
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

/// A setting that cannot work: mend it as the reason says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NatsOptionsError {
    /// The field of [`NatsOptions`].
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for NatsOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NATS setting {} {}", self.field, self.reason)
    }
}

impl std::error::Error for NatsOptionsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_by_name_and_no_password_is_shown() {
        let good = NatsOptions::new(["nats://me:s3cret@127.0.0.1:4222"]);
        good.check().unwrap();
        assert!(!format!("{good:?}").contains("s3cret"));
        type Change = fn(&mut NatsOptions);
        let table: [(&str, Change); 9] = [
            ("servers", |o| o.servers.clear()),
            ("servers", |o| o.servers = vec!["http://s3cret@x".into()]),
            ("stream", |o| o.stream = "a.b".into()),
            ("prefix", |o| o.prefix = "a.>".into()),
            ("partitions", |o| o.partitions = 257),
            ("timeout", |o| o.ack_timeout = Duration::ZERO),
            ("window", |o| o.window = 0),
            ("duplicate_window", |o| o.duplicate_window = Duration::ZERO),
            ("max_age", |o| o.max_age = Duration::from_secs(1)),
        ];
        for (field, change) in table {
            let mut options = good.clone();
            change(&mut options);
            let error = options.check().unwrap_err();
            assert_eq!(error.field, field);
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
