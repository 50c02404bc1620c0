//! Writes that wait: a durable queue of jobs, the modes of a site, and articles published at a time.
//!
//! A **job** is a row of `write_jobs`: an operation and its body. Jobs come from writes while the site is frozen, from articles with
//! a time, and from anybody who inserts a row. A [`JobRunner`] applies those that are due, one line in the order of their numbers;
//! the change, its event and the job's new status are one transaction, and the job's number is the event's causation id. What can
//! never be applied is a dead letter at once, with its reason, and holds nobody up. A database that fails stops the line and spends
//! nothing.
//!
//! The **mode** ([`Mode`]) is a row of the same database. [`Journal`] reads it inside each transaction that would write articles: a
//! change made by another process holds from the next one on. When a frozen site is opened, what was kept is applied in order, and
//! new writes go behind it until the line is empty.
//!
//! ```sql
//! INSERT INTO write_jobs (operation, body) VALUES ('create', '{"title": "From elsewhere", "content": "Text."}');
//! ```

mod adopted;
mod desk;
mod error;
mod freeze;
mod job;
mod journal;
mod line;
mod mode;
mod prune;
mod runner;
mod schedule;
mod sql;
#[cfg(test)]
mod tests;
mod worker;

use std::time::Duration;

pub use adopted::{is_adopted, mark_adopted, mode_info};
pub use desk::{COUNT_MAX, JobQuery, JobStats, Jobs, MAX_PAGE, Ran};
pub use error::JobError;
pub use job::{Job, JobStatus, NewJob, insert};
pub use journal::Journal;
pub use mode::{Mode, ModeInfo};
pub use runner::{JobRunner, RunnerStatus};

use crate::storage::Component;

/// The tables of this module. They refer to those of the articles and the outbox.
pub const COMPONENT: Component = Component {
    name: "jobs",
    migrations: &[include_str!("../../sql/jobs/0001_jobs.sql"), include_str!("../../sql/jobs/0002_adopted.sql")],
};

/// Replays of one job; if it cannot be applied then, it is quarantined.
pub const MAX_REPLAYS: u32 = 3;

/// How jobs are kept and worked off. Start from `JobOptions::default()` and assign the fields that differ.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobOptions {
    /// Most jobs that may wait before writes to a frozen site are refused; 10,000. Jobs with a time do not count.
    pub waiting_max: usize,
    /// Longest time before the runner sees what another process inserted; 200 ms.
    pub poll: Duration,
    /// How long applied and cancelled jobs are kept; a day.
    pub keep: Duration,
    /// What a runner sets the mode to when it starts; `None` (the default) leaves it as it is.
    pub mode: Option<Mode>,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self { waiting_max: 10_000, poll: Duration::from_millis(200), keep: Duration::from_secs(86_400), mode: None }
    }
}
