//! The arguments of the commands around jobs and modes, as clap reads them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::ShapeArgs;
use crate::jobs::JobStatus;

/// What to do with the jobs.
#[derive(Debug, Args)]
pub struct JobsArgs {
    /// What to do
    #[command(subcommand)]
    pub command: JobsCommand,
}

/// What to do with the jobs.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum JobsCommand {
    /// What becomes of writes at present, and how many jobs there are
    Stats(ShapeArgs),
    /// The jobs in one status, in the order in which they came to it
    List(JobListArgs),
    /// One job with its body
    Show(JobArgs),
    /// Have a job applied once more that was given up or cancelled
    ///
    /// It takes its old place in the line. A running `serve` takes it up by itself; else it is applied at once.
    Replay(JobReplayArgs),
    /// Take back a job before its turn
    Cancel(JobCancelArgs),
    /// Remove a job that was given up or cancelled, for good
    Discard(JobDiscardArgs),
}

/// Which jobs to list.
#[derive(Debug, Args)]
pub struct JobListArgs {
    /// In this status [default: pending, then dead_letter and quarantined]
    #[arg(long, value_name = "STATUS")]
    pub status: Option<JobStatus>,
    /// Most lines for each status
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub limit: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Which job.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Its number
    pub id: i64,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to replay.
#[derive(Debug, Args)]
pub struct JobReplayArgs {
    /// Its number
    pub id: i64,
    /// Also after three replays
    #[arg(long)]
    pub force: bool,
}

/// What to take back.
#[derive(Debug, Args)]
pub struct JobCancelArgs {
    /// Its number
    pub id: i64,
    /// Why; it is kept with the job
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// What to remove.
#[derive(Debug, Args)]
pub struct JobDiscardArgs {
    /// Its number
    pub id: i64,
    /// Why; it is logged
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// What to insert.
#[derive(Debug, Args)]
pub struct EnqueueArgs {
    /// A file of JSON lines, one job each; - reads standard input
    pub file: PathBuf,
}

/// How far to freeze.
#[derive(Debug, Args)]
pub struct FreezeArgs {
    /// Also deliver what is committed and hold every handler, so that no row of the articles and the outbox changes
    #[arg(long)]
    pub quiesce: bool,
    /// Refuse writes instead of keeping them for later
    #[arg(long)]
    pub read_only: bool,
    /// Why; shown with the mode
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// How long --quiesce waits for the handlers, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400), value_name = "S")]
    pub wait: u32,
}

/// How to open the site.
#[derive(Debug, Args)]
pub struct ThawArgs {
    /// Leave what was kept to a running or the next `serve`, instead of applying it before the command ends
    #[arg(long)]
    pub no_wait: bool,
}
