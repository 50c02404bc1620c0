//! `freeze`, `thaw` and `mode`.

use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::job_args::{FreezeArgs, ThawArgs};
use super::jobs::{failed, mode_json, mode_line};
use super::output::Output;
use super::{CliError, ShapeArgs, exit, json, log_file};
use crate::jobs::{JobOptions, Jobs, Mode, Ran};

/// How long a step of applying what was kept takes before progress is shown.
const STEP: Duration = Duration::from_millis(250);

pub(super) fn freeze(data: &Path, args: &FreezeArgs) -> Result<u8, CliError> {
    let mode = if args.read_only { Mode::ReadOnly } else { Mode::Journal };
    with_jobs(data, |jobs, out| {
        let reason = args.reason.as_deref();
        let info = if args.quiesce {
            jobs.quiesce(mode, reason, Instant::now() + Duration::from_secs(args.wait.into()))
        } else {
            jobs.set_mode(mode, reason)
        };
        out.line(&mode_line(&info.map_err(failed)?))?;
        Ok(())
    })
}

pub(super) fn thaw(data: &Path, args: &ThawArgs) -> Result<u8, CliError> {
    with_jobs(data, |jobs, out| {
        let info = jobs.set_mode(Mode::Open, None).map_err(failed)?;
        if args.no_wait || !info.draining {
            out.line(&mode_line(&info))?;
            return Ok(());
        }
        let ran = work_off(jobs)?;
        out.line(&mode_line(&jobs.mode().map_err(failed)?))?;
        // A running `serve` may have applied some of them.
        out.line(&format!("applied here: {}, given up: {}", ran.applied, ran.failed))?;
        Ok(())
    })
}

pub(super) fn mode(data: &Path, args: &ShapeArgs) -> Result<u8, CliError> {
    with_jobs(data, |jobs, out| {
        let info = jobs.mode().map_err(failed)?;
        if args.json {
            return json::print(&mode_json(&info), out);
        }
        Ok(out.line(&mode_line(&info))?)
    })
}

/// Applies what was kept until nothing of it is left.
fn work_off(jobs: &Jobs) -> Result<Ran, CliError> {
    let bar = progress_bar(jobs.stats().map_err(failed)?.pending);
    let mut all = Ran::default();
    while jobs.mode().map_err(failed)?.draining {
        let ran = jobs.run_due(Instant::now() + STEP).map_err(failed)?;
        all.applied += ran.applied;
        all.failed += ran.failed;
        bar.inc(ran.applied + ran.failed);
    }
    bar.finish_and_clear();
    Ok(all)
}

/// On stderr, and only when that is a terminal.
fn progress_bar(jobs: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(jobs), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} jobs  {elapsed}") {
        bar.set_style(style);
    }
    bar
}

fn with_jobs(data: &Path, act: impl FnOnce(&Jobs, &mut Output) -> Result<(), CliError>) -> Result<u8, CliError> {
    let database = log_file::open(data, None)?;
    let mut out = Output::new();
    let done = act(&Jobs::new(&database, JobOptions::default()), &mut out);
    log_file::close(&database)?;
    done?;
    out.flush()?;
    Ok(exit::OK)
}
