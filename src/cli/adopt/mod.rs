//! `adopt PATH`: takes over the database of a VayuPress site.
//!
//! Three passes over one snapshot of the source, each row of which comes once: articles and scheduled posts (known by their import
//! notes), then jobs, then events (known by the table `adopted`). What stays behind is told with its reason.

mod addresses;
mod articles;
mod batch;
mod columns;
mod events;
mod jobs;
mod report;
mod scratch;
mod source;
#[cfg(test)]
mod tests;
mod times;

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest, Sha256};

use super::app::App;
use super::settings::{DataDir, Settings};
use super::{CliError, exit};
use report::Report;
use scratch::Scratch;
use source::Source;

/// Rows that are stored together.
const BATCH_ROWS: usize = 100;
/// Bytes of text after which a batch is stored.
const BATCH_BYTES: usize = 4 << 20;

/// What to take over.
#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The database file, or the folder that holds vayupress.db
    pub path: PathBuf,
    /// Say what would come and what would stay, and store nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take dead events and jobs over, too
    #[arg(long)]
    pub with_dead: bool,
    /// One JSON line for each row that stays behind or changes, and the report as the last line
    #[arg(long)]
    pub json: bool,
}

/// One run: what is read, where it goes, and what is said.
struct Adoption<'a> {
    source: &'a Source,
    app: &'a App,
    with_dead: bool,
    report: Report,
    bar: ProgressBar,
}

/// Takes over what is there; the exit code is 1 if a row was refused that should have come, or came as a dead letter.
pub(super) fn run(settings: &Settings, args: &AdoptArgs) -> Result<u8, CliError> {
    let source = Source::open(&args.path)?;
    DataDir::not_a_workers(&settings.data)?;
    let twin = args.dry_run.then(|| Scratch::twin_of(&settings.data)).transpose()?;
    let data: &Path = twin.as_ref().map_or(&settings.data, |twin| twin.path());
    let dir = DataDir::for_articles(data)?;
    let app = App::open(&dir, settings)?;
    let adopted = adopt(&source, &app, args);
    app.close()?;
    let report = adopted?;
    let complete = report.is_complete();
    report.finish(source.path(), args.dry_run)?;
    Ok(if complete { exit::OK } else { exit::FAILED })
}

fn adopt(source: &Source, app: &App, args: &AdoptArgs) -> Result<Report, CliError> {
    let mode = app.jobs.mode().map_err(|error| CliError::failed(error.to_string()))?;
    if !batch::is_open(&mode) {
        return Err(batch::not_open(&mode));
    }
    let mut rows = 0;
    for table in ["articles", "scheduled_posts", "write_jobs", "event_outbox"] {
        rows += columns::count(source.conn(), table)?;
    }
    let bar = progress_bar(rows);
    let mut run = Adoption { source, app, with_dead: args.with_dead, report: Report::new(args.json), bar };
    run.articles()?;
    run.scheduled_posts()?;
    run.jobs()?;
    run.events()?;
    run.bar.finish_and_clear();
    Ok(run.report)
}

impl Adoption<'_> {
    /// To be called before rows that were read are stored.
    fn still_stands(&self) -> Result<(), CliError> {
        self.source.still_stands()
    }
}

/// On stderr, and only when that is a terminal.
fn progress_bar(rows: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(rows), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} rows  {elapsed}") {
        bar.set_style(style);
    }
    bar
}

/// Tells texts apart. It stands in the database: it never changes.
fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
