//! Settings as the options of the parts that they are for.

use super::outcome::Origin;
use super::table::Settings;
use super::{LogFormat, LogLevel};
#[cfg(feature = "server")]
use crate::http::engine::EngineOptions;
use crate::jobs::JobOptions;
#[cfg(feature = "server")]
use crate::lifecycle::ManagerOptions;
use crate::outbox::{RelayOptions, Retention};
use crate::sinks::cache::CacheOptions;
use crate::sinks::render::SiteInfo;
use crate::storage::Options;

impl Settings {
    /// How much is logged: what was asked for, else what suits a server or a command.
    pub(in crate::cli) fn log_filter(&self, serves: bool) -> log::LevelFilter {
        let asked = self.outcome("log").is_some_and(|outcome| outcome.origin != Origin::Default);
        if asked || serves { self.log.filter() } else { LogLevel::Warn.filter() }
    }

    /// How the lines of the log look.
    pub fn log_format(&self) -> LogFormat {
        self.log_format
    }

    pub(in crate::cli) fn storage(&self) -> Options {
        Options {
            readers: self.readers.0,
            read_wait: self.read_wait,
            read_limit: self.read_limit,
            max_jobs: self.write_queue.len(),
            max_bytes: self.write_queue_bytes.in_memory(),
            busy_deadline: self.busy_deadline,
            wal_limit: self.wal_limit.0,
            ..Options::default()
        }
    }

    pub(in crate::cli) fn relay(&self) -> RelayOptions {
        let mut options = RelayOptions { poll: self.poll, ..RelayOptions::default() };
        options.policy.max_calls = self.max_calls.0;
        options.policy.backoff_base = self.backoff;
        options.policy.backoff_max = self.backoff_max;
        options.policy.pause_base = self.backoff;
        options.policy.pause_max = self.backoff_max;
        options.retention = Some(Retention { keep: self.keep, ..Retention::default() });
        options
    }

    pub(in crate::cli) fn jobs(&self) -> JobOptions {
        JobOptions { waiting_max: self.journal.len(), poll: self.poll, mode: self.mode, ..JobOptions::default() }
    }

    pub(in crate::cli) fn cache(&self) -> CacheOptions {
        CacheOptions { max_files: self.cache_files.len(), max_bytes: self.cache_bytes.0, ..CacheOptions::default() }
    }

    /// What pages say of the site.
    pub(in crate::cli) fn site_info(&self) -> SiteInfo {
        SiteInfo { base_url: self.site.clone().unwrap_or_default(), ..SiteInfo::default() }
    }

    #[cfg(feature = "server")]
    pub(in crate::cli) fn manager(&self) -> ManagerOptions {
        ManagerOptions { stop_timeout: self.stop_timeout, stop_budget: self.stop_budget, ..ManagerOptions::default() }
    }

    #[cfg(feature = "server")]
    pub(in crate::cli) fn engine(&self) -> EngineOptions {
        EngineOptions {
            addr: self.addr,
            handler_threads: self.threads.len(),
            queue_bound: self.request_queue.len(),
            max_connections: self.connections.len(),
            idle_deadline: self.idle_deadline,
            header_deadline: self.header_deadline,
            body_deadline: self.body_deadline,
            handler_deadline: self.handler_deadline,
            handler_grace: self.handler_grace,
            write_deadline: self.write_deadline,
            max_body: self.max_body.in_memory(),
            max_body_total: self.max_bodies.in_memory(),
        }
    }
}
