//! Jobs and the mode of the site.

use std::fmt;

use super::names::Families;
use crate::http::jobs::SiteJobs;
use crate::jobs::{JobStats, JobStatus, Mode, ModeInfo, RunnerStatus};

/// What one scrape tells of a site's jobs.
#[derive(Debug)]
pub(super) struct JobsSnapshot {
    /// `None`: the database could not tell.
    stored: Option<(ModeInfo, JobStats)>,
    runner: RunnerStatus,
}

impl JobsSnapshot {
    pub(super) fn take(jobs: &SiteJobs) -> Self {
        let stored = jobs.jobs.mode().ok().zip(jobs.jobs.stats().ok());
        Self { stored, runner: jobs.runner.status() }
    }

    #[allow(clippy::cast_precision_loss)] // What is shown as a gauge needs no more than 52 bits.
    pub(super) fn write(&self, to: &mut Families<'_>) -> fmt::Result {
        to.counter("jobs_applied", "Jobs applied by this process", &[(&[], self.runner.applied)])?;
        to.counter("jobs_given_up", "Jobs given up by this process", &[(&[], self.runner.failed)])?;
        let stopped = f64::from(u8::from(self.runner.fault.is_some()));
        to.gauge("jobs_line_stopped", "Whether a fault of the database stops the line", None, &[(&[], stopped)])?;
        let Some((info, stats)) = &self.stored else { return Ok(()) };
        let modes: Vec<[(&'static str, &str); 1]> = Mode::ALL.iter().map(|mode| [("mode", mode.as_str())]).collect();
        let is = |mode: &Mode| f64::from(u8::from(info.mode == *mode));
        let lines: Vec<(&[_], f64)> =
            modes.iter().zip(Mode::ALL).map(|(labels, mode)| (labels.as_slice(), is(mode))).collect();
        to.gauge("write_mode", "What becomes of writes: 1 for the mode that holds", None, &lines)?;
        let draining = f64::from(u8::from(info.draining));
        to.gauge("write_draining", "Whether new writes go behind what was kept", None, &[(&[], draining)])?;
        let counts: Vec<([(&'static str, &str); 1], u64)> =
            JobStatus::ALL.iter().map(|status| ([("status", status.as_str())], stats.of(*status))).collect();
        let lines: Vec<(&[_], f64)> = counts.iter().map(|(labels, count)| (labels.as_slice(), *count as f64)).collect();
        to.gauge("jobs", "Jobs by their status, counted up to 100000 each", None, &lines)?;
        let scheduled = stats.scheduled as f64;
        to.gauge("jobs_scheduled", "Pending jobs with a time to come", None, &[(&[], scheduled)])
    }
}
