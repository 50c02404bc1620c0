//! The arguments as clap reads them. Texts longer than a line stand in `help`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::adopt::AdoptArgs;
use super::help;
use super::job_args::{EnqueueArgs, FreezeArgs, JobsArgs, ThawArgs};
use super::operator_args::{HandlersArgs, OutboxArgs, ShapeArgs};
#[cfg(feature = "server")]
use super::settings::ServeFlags;
#[cfg(feature = "nats")]
use super::settings::WorkerFlags;
use super::settings::{self, DeliverFlags, Settings, SettingsError, SharedFlags};

/// An article service whose every change commits together with a durable event.
///
/// A relay delivers each event to every handler (search, page cache, CDN) at least once and in order, through crashes,
/// outages and bad events.
#[derive(Debug, Parser)]
#[command(name = "vayu-articles", version, after_help = help::EXIT_CODES, after_long_help = help::with_exit_codes(help::OVERVIEW))]
pub struct Cli {
    /// A settings file; `vayu-articles.example.toml` has them all
    #[arg(long, global = true, env = "VAYU_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Settings that every command has
    #[command(flatten)]
    pub shared: SharedFlags,
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum Command {
    /// Serve the articles over HTTP and deliver their events, until SIGINT or SIGTERM
    #[cfg(feature = "server")]
    #[command(after_long_help = help::with_exit_codes(help::SERVE))]
    Serve(ServeArgs),
    /// Import a folder of Markdown files with front matter
    #[command(after_long_help = help::with_exit_codes(help::IMPORT))]
    Import(ImportArgs),
    /// Take over the database of a VayuPress site
    #[command(after_long_help = help::with_exit_codes(help::ADOPT))]
    Adopt(AdoptArgs),
    /// Search the published articles
    #[command(after_long_help = help::with_exit_codes(help::SEARCH))]
    Search(SearchArgs),
    /// See whether everything in the data folder is whole and fits together
    #[command(after_long_help = help::with_exit_codes(help::CHECK))]
    Check(IntegrityArgs),
    /// Copy the database to a file, while it is in use
    #[command(after_long_help = help::with_exit_codes(help::BACKUP))]
    Backup(BackupArgs),
    /// Look at the outbox; replay, edit or discard what failed; check it
    #[command(after_long_help = help::with_exit_codes(help::OUTBOX))]
    Outbox(OutboxArgs),
    /// Look at the handlers; hold, rewind, rename or retire one
    #[command(after_long_help = help::with_exit_codes(help::HANDLER))]
    Handler(HandlersArgs),
    /// Run handlers on this machine over the events that a `serve` elsewhere hands on to NATS, until SIGINT or SIGTERM
    #[cfg(feature = "nats")]
    #[command(after_long_help = help::with_exit_codes(help::WORKER))]
    Worker(WorkerArgs),
    /// Not in this build: it needs the feature `nats`
    #[cfg(not(feature = "nats"))]
    #[command(hide = true, disable_help_flag = true)]
    Worker(NoWorkerArgs),
    /// Look at the writes that wait, and replay, cancel or discard one
    #[command(after_long_help = help::with_exit_codes(help::JOBS))]
    Jobs(JobsArgs),
    /// Insert jobs from a file of JSON lines
    #[command(after_long_help = help::with_exit_codes(help::ENQUEUE))]
    Enqueue(EnqueueArgs),
    /// Keep writes for later, for a backup or a migration; reads go on
    #[command(after_long_help = help::with_exit_codes(help::FREEZE))]
    Freeze(FreezeArgs),
    /// Open the site again, and apply what was kept, in order
    Thaw(ThawArgs),
    /// What becomes of writes at present
    Mode(ShapeArgs),
    /// Say who may write and who may operate
    #[cfg(feature = "server")]
    #[command(after_long_help = help::with_exit_codes(help::TOKENS))]
    Tokens(TokensArgs),
}

/// How to serve.
#[cfg(feature = "server")]
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Import this folder first if the database holds no article
    #[arg(long, value_name = "PATH")]
    pub seed: Option<PathBuf>,
    /// Print the settings and where each came from, and do nothing else
    #[arg(long)]
    pub print_config: bool,
    /// The settings
    #[command(flatten)]
    pub settings: ServeFlags,
}

/// How to work.
#[cfg(feature = "nats")]
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The settings
    #[command(flatten)]
    pub settings: WorkerFlags,
}

/// What to do with the named tokens.
#[cfg(feature = "server")]
#[derive(Debug, Args)]
pub struct TokensArgs {
    /// What to do
    #[command(subcommand)]
    pub command: TokensCommand,
}

/// What to do with the named tokens.
#[cfg(feature = "server")]
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum TokensCommand {
    /// Make a token and print it, this once
    Add(TokenArgs),
    /// The names and roles
    List,
    /// Refuse a token from now on
    Remove(NameArgs),
}

/// Which token to make.
#[cfg(feature = "server")]
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Its name: letters, digits, and . _ -
    pub name: String,
    /// What it allows
    #[arg(long, value_enum, default_value_t = settings::TokenRole::Write, value_name = "ROLE")]
    pub role: settings::TokenRole,
}

/// Which token.
#[cfg(feature = "server")]
#[derive(Debug, Args)]
pub struct NameArgs {
    /// Its name
    pub name: String,
}

/// Whatever follows, since nothing is done.
#[cfg(not(feature = "nats"))]
#[derive(Debug, Args)]
pub struct NoWorkerArgs {
    /// Not read
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub all: Vec<std::ffi::OsString>,
}

/// What to import.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A folder, or one file
    pub path: PathBuf,
    /// Name of the collection the files belong to [default: the folder's name]
    #[arg(long, value_name = "NAME", value_parser = settings::collection)]
    pub name: Option<String>,
    /// The settings
    #[command(flatten)]
    pub settings: DeliverFlags,
}

/// How to tell what was found.
#[derive(Debug, Args)]
pub struct IntegrityArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Where to copy to.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// A file that is not there yet
    pub file: PathBuf,
}

/// What to search for.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// Words that must occur
    #[arg(allow_hyphen_values = true)]
    pub query: String,
    /// Most results
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100), value_name = "N")]
    pub limit: u32,
}

impl Cli {
    /// The settings of this run.
    ///
    /// # Errors
    /// What is wrong with them and what to write instead.
    pub fn settings(&self) -> Result<Settings, SettingsError> {
        let own = match &self.command {
            #[cfg(feature = "server")]
            Command::Serve(args) => args.settings.given(),
            Command::Import(args) => args.settings.given(),
            #[cfg(feature = "nats")]
            Command::Worker(args) => args.settings.given(),
            _ => self.shared.given(),
        };
        Settings::load(self.config.as_deref(), &[self.shared.given(), own])
    }

    /// How much is logged: what was asked for, else what suits the command.
    pub fn log_level(&self, settings: &Settings) -> log::LevelFilter {
        let serves = match self.command {
            #[cfg(feature = "server")]
            Command::Serve(_) => true,
            #[cfg(feature = "nats")]
            Command::Worker(_) => true,
            _ => false,
        };
        settings.log_filter(serves)
    }
}
