//! Every setting, one line each. The flag, the variable, the key of the file, the help, the example file's test and
//! `--print-config` all come from here.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::cdn::TimeOrOff;
use super::choices::{LogFormat, LogLevel};
use super::outcome::{Outcome, SettingsError};
use super::value::{Bytes, Count, Secret, Value};
use crate::jobs::Mode;
use crate::sinks::cdn::CdnShape;

/// Which commands have the flag. The variable and the key may always be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All.
    Every,
    /// Those that deliver events: `serve` and `import`.
    Deliver,
    /// `serve`.
    Serve,
    /// `serve` and `worker`.
    Broker,
    /// `worker`.
    Worker,
}

/// One setting as users see it.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) scope: Scope,
    /// Without the two dashes.
    pub(super) flag: &'static str,
    /// The environment variable.
    pub(super) variable: &'static str,
    /// In the file, with its section before a dot.
    pub(super) key: &'static str,
    /// Empty for none.
    pub(super) default: &'static str,
    /// What the help shows for the value: its kind or its unit.
    pub(super) unit: &'static str,
    pub(super) help: &'static str,
    pub(super) secret: bool,
    /// Says what is wrong with a text.
    pub(super) check: fn(&str) -> Result<(), String>,
}

macro_rules! settings {
    ($($scope:ident $field:ident: $kind:ty, $flag:literal, $variable:literal, $key:literal, $default:literal, $unit:literal, $help:literal;)*) => {
        /// The settings of one run, checked one by one and together.
        #[derive(Debug, Clone)]
        #[cfg_attr(
            not(all(feature = "server", feature = "nats")),
            allow(dead_code, reason = "what only `serve` and `worker` ask for")
        )]
        pub struct Settings {
            $(#[doc = $help] pub(in crate::cli) $field: $kind,)*
            /// Where each came from, in the order of the table.
            pub(super) outcomes: Vec<Outcome>,
        }

        /// All settings, in the order in which they are shown.
        pub(super) const TABLE: &[Row] = &[$(Row {
            scope: Scope::$scope,
            flag: $flag,
            variable: $variable,
            key: $key,
            default: $default,
            unit: $unit,
            help: $help,
            secret: <$kind as Value>::SECRET,
            check: |text| <$kind as Value>::read(text).map(|_| ()),
        }),*];

        impl Settings {
            /// From one outcome for each row.
            pub(super) fn from_outcomes(outcomes: Vec<Outcome>) -> Result<Self, SettingsError> {
                let mut next = outcomes.iter();
                Ok(Self { $($field: Outcome::read(next.next())?,)* outcomes })
            }
        }
    };
}

// Scope, field: kind, flag, variable, key, default, unit, help.
#[rustfmt::skip]
settings! {
    Every data: PathBuf, "data", "VAYU_DATA", "data", "./data", "DIR", "Folder that holds everything; created if absent";
    Every log: LogLevel, "log", "VAYU_LOG", "log.level", "info", "LEVEL", "What is logged to stderr: off, error, warn, info, debug, trace; unless set, commands other than `serve` log from warn on";
    Every log_format: LogFormat, "log-format", "VAYU_LOG_FORMAT", "log.format", "text", "FORMAT", "How: text, journal (priority, no time: for systemd) or json (one object a line)";

    Serve addr: SocketAddr, "addr", "VAYU_ADDR", "server.addr", "127.0.0.1:8080", "HOST:PORT", "Address to listen on; port 0 takes a free port";
    Deliver site: Option<String>, "site", "VAYU_SITE", "server.site", "", "URL", "Address of the site as its readers see it, with its scheme";
    Serve token_file: Option<PathBuf>, "token-file", "VAYU_TOKEN_FILE", "server.token_file", "", "FILE", "File that holds the administrator's token; else VAYU_ADMIN_TOKEN, else admin.token in the data folder, made at the first start";
    Serve threads: Count, "threads", "VAYU_THREADS", "server.threads", "16", "N", "Threads that handle requests";
    Serve request_queue: Count, "request-queue", "VAYU_REQUEST_QUEUE", "server.request_queue", "256", "N", "Complete requests that may wait for a thread; beyond it 503";
    Serve connections: Count, "connections", "VAYU_CONNECTIONS", "server.connections", "512", "N", "Open connections; at the limit the one idle longest makes room, else new ones wait";
    Serve max_body: Bytes, "max-body", "VAYU_MAX_BODY", "server.max_body", "16MiB", "SIZE", "Largest request body; beyond it 413";
    Serve max_bodies: Bytes, "max-bodies", "VAYU_MAX_BODIES", "server.max_bodies", "64MiB", "SIZE", "All request bodies held at once; beyond it 503";
    Serve idle_deadline: Duration, "idle-deadline", "VAYU_IDLE_DEADLINE", "server.idle_deadline", "60s", "TIME", "How long a connection may wait for its next request";
    Serve header_deadline: Duration, "header-deadline", "VAYU_HEADER_DEADLINE", "server.header_deadline", "10s", "TIME", "From a request's first byte to the end of its head";
    Serve body_deadline: Duration, "body-deadline", "VAYU_BODY_DEADLINE", "server.body_deadline", "30s", "TIME", "From the end of the head to the end of the body; beyond it 408";
    Serve handler_deadline: Duration, "handler-deadline", "VAYU_HANDLER_DEADLINE", "server.handler_deadline", "30s", "TIME", "From the complete request to its answer; beyond it 503, or 504 if it was begun";
    Serve handler_grace: Duration, "handler-grace", "VAYU_HANDLER_GRACE", "server.handler_grace", "5s", "TIME", "How much longer a request that was begun may take";
    Serve write_deadline: Duration, "write-deadline", "VAYU_WRITE_DEADLINE", "server.write_deadline", "60s", "TIME", "From the answer to its last byte being taken by the client";
    Serve stop_timeout: Duration, "stop-timeout", "VAYU_STOP_TIMEOUT", "server.stop_timeout", "10s", "TIME", "How long the stop of one service may take";
    Serve stop_budget: Duration, "stop-budget", "VAYU_STOP_BUDGET", "server.stop_budget", "30s", "TIME", "How long all stops together may take";

    Serve readers: Count, "readers", "VAYU_READERS", "database.readers", "4", "N", "Pooled connections that read";
    Serve read_wait: Duration, "read-wait", "VAYU_READ_WAIT", "database.read_wait", "2s", "TIME", "Longest wait for one of them";
    Serve read_limit: Duration, "read-limit", "VAYU_READ_LIMIT", "database.read_limit", "2s", "TIME", "Longest read; one that takes longer is interrupted";
    Serve write_queue: Count, "write-queue", "VAYU_WRITE_QUEUE", "database.write_queue", "1000", "N", "Writes that may wait for the queue-writer; beyond it 429";
    Serve write_queue_bytes: Bytes, "write-queue-bytes", "VAYU_WRITE_QUEUE_BYTES", "database.write_queue_bytes", "64MiB", "SIZE", "Most bytes that those may carry together";
    Serve journal: Count, "journal", "VAYU_JOURNAL", "database.journal", "10000", "N", "Writes that may wait while the site is frozen; beyond it 429";
    Serve mode: Option<Mode>, "mode", "VAYU_MODE", "database.mode", "", "MODE", "What becomes of writes, set at the start: open, journal or read_only; unset, it stays as it was";
    Serve busy_deadline: Duration, "busy-deadline", "VAYU_BUSY_DEADLINE", "database.busy_deadline", "5s", "TIME", "How long a write tries to get the lock from other processes";
    Serve wal_limit: Bytes, "wal-limit", "VAYU_WAL_LIMIT", "database.wal_limit", "64MiB", "SIZE", "Size of the write-ahead log above which a fresh start is asked for";

    Deliver keep: Duration, "keep", "VAYU_KEEP", "outbox.keep", "7d", "TIME", "Delivered events younger than this are kept";
    Deliver poll: Duration, "poll", "VAYU_POLL", "outbox.poll", "200ms", "TIME", "Longest time between two looks for events that another process wrote";
    Deliver max_calls: Count, "max-calls", "VAYU_MAX_CALLS", "outbox.max_calls", "3", "N", "Calls of a failing event before it is a dead letter";
    Deliver backoff: Duration, "backoff", "VAYU_BACKOFF", "outbox.backoff", "5s", "TIME", "Wait after the first failed call; doubles from there";
    Deliver backoff_max: Duration, "backoff-max", "VAYU_BACKOFF_MAX", "outbox.backoff_max", "120s", "TIME", "Longest wait between two calls, and longest pause of a handler whose other side is down";

    Deliver cache_files: Count, "cache-files", "VAYU_CACHE_FILES", "cache.files", "100000", "N", "Rendered articles kept, about";
    Deliver cache_bytes: Bytes, "cache-bytes", "VAYU_CACHE_BYTES", "cache.bytes", "1GiB", "SIZE", "Bytes of rendered articles kept, about";

    Deliver cdn: Option<String>, "cdn", "VAYU_CDN", "cdn.url", "", "URL", "Purge changed pages at this HTTP endpoint; needs --site";
    Deliver cdn_token: Option<Secret>, "cdn-token", "VAYU_CDN_TOKEN", "cdn.token", "", "TOKEN", "Bearer token for the endpoint; better in the environment, where others cannot list it";
    Deliver cdn_token_header: String, "cdn-token-header", "VAYU_CDN_TOKEN_HEADER", "cdn.token_header", "Authorization", "NAME", "Header for it; in another one than Authorization it stands without `Bearer`";
    Deliver cdn_shape: CdnShape, "cdn-shape", "VAYU_CDN_SHAPE", "cdn.shape", "json", "SHAPE", "What a purge looks like: json (POST of up to 30 URLs), purge or ban (one request of that method per URL), keys (POST of surrogate keys in a header); the same for `serve` and `worker`";
    Deliver cdn_method: Option<String>, "cdn-method", "VAYU_CDN_METHOD", "cdn.method", "", "METHOD", "Another method than the shape's own";
    Deliver cdn_key_header: String, "cdn-key-header", "VAYU_CDN_KEY_HEADER", "cdn.key_header", "Surrogate-Key", "NAME", "Header of the surrogate keys, on pages and in purges";
    Deliver cdn_again: TimeOrOff, "cdn-again", "VAYU_CDN_AGAIN", "cdn.again", "10s", "TIME", "Purge a second time so long after each change, at most 20s, for what was under way into the cache; longer than the cache waits for an answer; off: never";
    Deliver cdn_timeout: Duration, "cdn-timeout", "VAYU_CDN_TIMEOUT", "cdn.timeout", "10s", "TIME", "Longest time of one purge call";
    Serve cdn_ttl: Option<Duration>, "cdn-ttl", "VAYU_CDN_TTL", "cdn.ttl", "", "TIME", "How long shared caches may keep what a purge would reach (CDN-Cache-Control and Surrogate-Control); unset, pages do not say";

    Serve webhooks: Option<PathBuf>, "webhooks", "VAYU_WEBHOOKS", "webhooks.file", "", "FILE", "TOML file with a [[webhook]] for each endpoint that gets events: name, url, secret and more, see docs/webhooks.md";

    Broker nats: Option<Secret>, "nats", "VAYU_NATS", "nats.url", "", "URLS", "NATS servers, separated by commas: nats://host:4222, tls://host:4222, also with user:password@; with it `serve` hands every event on to JetStream";
    Broker nats_stream: String, "nats-stream", "VAYU_NATS_STREAM", "nats.stream", "VAYU_EVENTS", "NAME", "The stream; made if absent";
    Broker nats_prefix: String, "nats-prefix", "VAYU_NATS_PREFIX", "nats.prefix", "vayu.events", "SUBJECT", "How every subject begins";
    Broker nats_partitions: Option<Count>, "nats-partitions", "VAYU_NATS_PARTITIONS", "nats.partitions", "", "N", "Partitions of the subjects, so that workers share the load and order per article stays; the same for `serve` and `worker`";
    Broker nats_creds: Option<PathBuf>, "nats-creds", "VAYU_NATS_CREDS", "nats.creds", "", "FILE", "Credentials file as nsc writes it";
    Broker nats_ca: Option<PathBuf>, "nats-ca", "VAYU_NATS_CA", "nats.ca", "", "FILE", "Further certificate authorities to trust, PEM";
    Broker nats_cert: Option<PathBuf>, "nats-cert", "VAYU_NATS_CERT", "nats.cert", "", "FILE", "Certificate to show to the servers, PEM; needs --nats-key";
    Broker nats_key: Option<PathBuf>, "nats-key", "VAYU_NATS_KEY", "nats.key", "", "FILE", "Its key, PEM";
    Broker nats_tls: bool, "nats-tls", "VAYU_NATS_TLS", "nats.tls", "false", "BOOL", "Whether to refuse to talk in clear";
    Broker nats_connect_timeout: Duration, "nats-connect-timeout", "VAYU_NATS_CONNECT_TIMEOUT", "nats.connect_timeout", "5s", "TIME", "Longest time for a connection to be made";
    Broker nats_ack_timeout: Duration, "nats-ack-timeout", "VAYU_NATS_ACK_TIMEOUT", "nats.ack_timeout", "5s", "TIME", "Longest wait for one answer of the broker";
    Broker nats_window: Count, "nats-window", "VAYU_NATS_WINDOW", "nats.window", "256", "N", "Publishes under way at once, no two of one article; at most 4096";
    Broker nats_max_age: Duration, "nats-max-age", "VAYU_NATS_MAX_AGE", "nats.max_age", "30d", "TIME", "How long a stream that is made here keeps its messages";
    Broker nats_source: String, "nats-source", "VAYU_NATS_SOURCE", "nats.source", "/vayu-articles", "URI", "What the events name as their source";

    Worker origin: Option<String>, "origin", "VAYU_ORIGIN", "worker.origin", "", "URL", "Address of the server that has the articles";
    Worker origin_token: Option<Secret>, "origin-token", "VAYU_ORIGIN_TOKEN", "worker.origin_token", "", "TOKEN", "A token of that server with the role `write`; better in the environment";
    Worker origin_timeout: Duration, "origin-timeout", "VAYU_ORIGIN_TIMEOUT", "worker.origin_timeout", "10s", "TIME", "Longest time for one of its answers";
    Worker worker_name: String, "worker-name", "VAYU_WORKER_NAME", "worker.name", "worker", "NAME", "Workers of one name share the events; each name gets all of them";
    Worker worker_handlers: Option<String>, "worker-handlers", "VAYU_WORKER_HANDLERS", "worker.handlers", "", "LIST", "What to run, of search, pages and cdn, separated by commas; unless set: search, and cdn if --cdn is set";
    Worker in_flight: Count, "in-flight", "VAYU_IN_FLIGHT", "worker.in_flight", "1", "N", "Events of one partition and handler that run at once, at most 64; above 1 their order is not kept";
    Worker ack_wait: Duration, "ack-wait", "VAYU_ACK_WAIT", "worker.ack_wait", "30s", "TIME", "After so long without a sign of life of a worker its message goes to another";
}
