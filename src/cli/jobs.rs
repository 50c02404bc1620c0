//! `jobs stats|list|show|replay|cancel|discard`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::job_args::{JobArgs, JobListArgs, JobReplayArgs, JobsArgs, JobsCommand};
use super::output::{Output, moment, printable};
use super::settings::Settings;
use super::{CliError, exit, json as documents, log_file};
use crate::jobs::{COUNT_MAX, Job, JobError, JobQuery, JobStats, JobStatus, Jobs, ModeInfo};

/// How long a replay waits for the line, at most.
const APPLY_WITHIN: Duration = Duration::from_secs(30);

/// Runs one of the commands on a database that exists.
pub(super) fn run(settings: &Settings, args: &JobsArgs) -> Result<u8, CliError> {
    let database = log_file::open(&settings.data, None)?;
    let jobs = Jobs::new(&database, settings.jobs());
    let mut out = Output::new();
    let done = match &args.command {
        JobsCommand::Stats(args) => stats(&jobs, args.json, &mut out),
        JobsCommand::List(args) => list(&jobs, args, &mut out),
        JobsCommand::Show(args) => show(&jobs, args, &mut out),
        JobsCommand::Replay(args) => replay(&jobs, args, &mut out),
        JobsCommand::Cancel(args) => jobs
            .cancel(args.id, args.reason.as_deref())
            .map_err(failed)
            .and_then(|()| Ok(out.line(&format!("job {} is cancelled", args.id))?)),
        JobsCommand::Discard(args) => jobs
            .discard(args.id, &args.reason)
            .map_err(failed)
            .and_then(|()| Ok(out.line(&format!("job {} is removed", args.id))?)),
    };
    log_file::close(&database)?;
    done?;
    out.flush()?;
    Ok(exit::OK)
}

fn stats(jobs: &Jobs, as_json: bool, out: &mut Output) -> Result<(), CliError> {
    let (info, stats) = (jobs.mode().map_err(failed)?, jobs.stats().map_err(failed)?);
    if as_json {
        return documents::print(&json!({ "mode": mode_json(&info), "jobs": stats_json(&stats) }), out);
    }
    out.line(&mode_line(&info))?;
    let counts = [stats.pending, stats.scheduled, stats.dead_letter, stats.quarantined, stats.cancelled, stats.applied];
    let head = ["PENDING", "OF THEM SCHEDULED", "DEAD", "QUARANTINED", "CANCELLED", "APPLIED"];
    out.table(head, &[counts.map(|count| if count >= COUNT_MAX { format!("{count}+") } else { count.to_string() })])?;
    if let Some(at) = stats.next_run_at {
        out.line(&format!("the next scheduled job is due at {}", moment(at)))?;
    }
    Ok(())
}

/// What becomes of writes, in a sentence.
pub(super) fn mode_line(info: &ModeInfo) -> String {
    let mut line = format!("mode {}", info.mode);
    if let Some(since) = info.since {
        line.push_str(&format!(" since {}", moment(since)));
    }
    if let Some(reason) = &info.reason {
        line.push_str(&format!(": {}", printable(reason)));
    }
    if info.draining {
        line.push_str("; what was kept is being applied, new writes go behind it");
    }
    if !info.held.is_empty() {
        line.push_str(&format!("; held by the freeze: {}", printable(&info.held.join(", "))));
    }
    line
}

pub(super) fn mode_json(info: &ModeInfo) -> Value {
    json!({
        "mode": info.mode,
        "draining": info.draining,
        "since": info.since.map(moment),
        "reason": info.reason,
        "held": info.held,
    })
}

fn stats_json(stats: &JobStats) -> Value {
    let mut document = json!(stats);
    document["next_run_at"] = json!(stats.next_run_at.map(moment));
    document
}

fn list(jobs: &Jobs, args: &JobListArgs, out: &mut Output) -> Result<(), CliError> {
    let wanted = match args.status {
        Some(status) => vec![status],
        None => vec![JobStatus::Pending, JobStatus::DeadLetter, JobStatus::Quarantined],
    };
    let mut found = Vec::new();
    for status in wanted {
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let query = JobQuery { status, limit, ..JobQuery::default() };
        found.extend(jobs.list(&query).map_err(failed)?);
    }
    if args.json {
        let jobs: Vec<Value> = found.iter().map(job_json).collect();
        return documents::print(&json!({ "jobs": jobs }), out);
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    Ok(out.table(["JOB", "STATUS", "OPERATION", "SINCE", "RUN AT", "REPLAYS", "ARTICLE", "REASON"], &rows)?)
}

fn row(job: &Job) -> [String; 8] {
    let dash = |text: &Option<String>| printable(text.as_deref().unwrap_or("-"));
    [
        job.id.to_string(),
        job.status.to_string(),
        dash(&job.operation),
        moment(job.updated_at),
        job.run_at.map_or_else(|| "-".to_owned(), moment),
        job.replays.to_string(),
        dash(if job.slug.is_some() { &job.slug } else { &job.article_id }),
        dash(&job.last_error),
    ]
}

fn show(jobs: &Jobs, args: &JobArgs, out: &mut Output) -> Result<(), CliError> {
    let job = jobs.show(args.id).map_err(failed)?.ok_or_else(|| failed(JobError::NotFound { id: args.id }))?;
    if args.json {
        return documents::print(&job_json(&job), out);
    }
    let dash = |text: &Option<String>| printable(text.as_deref().unwrap_or("-"));
    for (name, text) in [
        ("job", job.id.to_string()),
        ("status", job.status.to_string()),
        ("operation", dash(&job.operation)),
        ("run at", job.run_at.map_or_else(|| "as soon as possible".to_owned(), moment)),
        ("replays", job.replays.to_string()),
        ("reason", dash(&job.last_error)),
        ("article", dash(&job.article_id)),
        ("slug", dash(&job.slug)),
        ("event", dash(&job.event_id)),
        ("correlation", dash(&job.correlation_id)),
        ("key", dash(&job.idempotency_key)),
        ("created", moment(job.created_at)),
        ("updated", moment(job.updated_at)),
        ("body", dash(&job.body)),
    ] {
        out.line(&format!("{name:<12} {text}"))?;
    }
    Ok(())
}

fn job_json(job: &Job) -> Value {
    let mut document = json!(job);
    for field in ["created_at", "updated_at", "run_at"] {
        document[field] = document[field].as_i64().map_or(Value::Null, |at| json!(moment(at)));
    }
    document
}

fn replay(jobs: &Jobs, args: &JobReplayArgs, out: &mut Output) -> Result<(), CliError> {
    jobs.replay(args.id, args.force).map_err(failed)?;
    jobs.run_due(Instant::now() + APPLY_WITHIN).map_err(failed)?;
    let Some(job) = jobs.show(args.id).map_err(failed)? else { return Ok(()) };
    let reason = job.last_error.filter(|_| job.status != JobStatus::Applied && job.status != JobStatus::Pending);
    let reason = reason.map(|reason| format!(": {}", printable(&reason))).unwrap_or_default();
    out.line(&format!("job {} is {}{reason}", job.id, job.status))?;
    Ok(())
}

pub(super) fn failed(error: JobError) -> CliError {
    CliError::failed(error.to_string())
}
