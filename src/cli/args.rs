//! The arguments as clap reads them. Texts longer than a line stand in `help`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::help;
#[cfg(feature = "server")]
use super::settings::ServeFlags;
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
    /// Search the published articles
    #[command(after_long_help = help::with_exit_codes(help::SEARCH))]
    Search(SearchArgs),
    /// See whether everything in the data folder is whole and fits together
    #[command(after_long_help = help::with_exit_codes(help::CHECK))]
    Check(CheckArgs),
    /// Copy the database to a file, while it is in use
    #[command(after_long_help = help::with_exit_codes(help::BACKUP))]
    Backup(BackupArgs),
    /// Look at the outbox, and replay what failed
    #[command(after_long_help = help::with_exit_codes(help::OUTBOX))]
    Outbox(OutboxArgs),
    /// Look at the handlers
    #[command(after_long_help = help::with_exit_codes(help::HANDLER))]
    Handler(HandlersArgs),
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
pub struct CheckArgs {
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

/// Which outbox, and what to do with it.
#[derive(Debug, Args)]
pub struct OutboxArgs {
    /// Database of a program that has the outbox in it, instead of the one in the data folder; it must exist
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "data")]
    pub database: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: OutboxCommand,
}

/// How to show it.
#[derive(Debug, Args)]
pub struct ShapeArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to do with the outbox.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum OutboxCommand {
    /// How far each handler is, and what waits or failed
    Stats(ShapeArgs),
    /// The events that failed or wait behind a failed one
    List(ListArgs),
    /// One event, and how it fared with each handler
    Show(ShowArgs),
    /// Deliver a dead letter once more, with fresh attempts
    ///
    /// The relay of a running `serve` takes it up by itself; without one, the next `serve` or `import` does.
    Replay(ReplayArgs),
    /// Give up an event that failed or waits, or a dead letter, for good
    ///
    /// The next event of its key goes on. An event that runs at this moment is given up too: its outcome no longer counts.
    Discard(DiscardArgs),
}

/// Which exceptions to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Of this handler only
    #[arg(long, value_name = "NAME")]
    pub handler: Option<String>,
    /// In this state [default: dead_letter, parked, retry and waiting]
    #[arg(long, value_name = "STATE", value_enum)]
    pub state: Option<settings::ListState>,
    /// Most lines
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub limit: u32,
    /// The next page: only events after this id
    #[arg(long, value_name = "ID", requires = "handler")]
    pub after: Option<i64>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Which event to show.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The event's number in the log, or its event id
    pub event: String,
}

/// What to replay.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The handler's name
    pub handler: String,
    /// The event's number in the log, or its event id
    #[arg(required_unless_present = "all")]
    pub event: Option<String>,
    /// Also when a later event of the same key was delivered since, or after three replays
    #[arg(long)]
    pub force: bool,
    /// All dead letters of the handler, in order, but those that would need --force
    #[arg(long, conflicts_with_all = ["event", "force"])]
    pub all: bool,
}

/// What to discard.
#[derive(Debug, Args)]
pub struct DiscardArgs {
    /// The handler's name
    pub handler: String,
    /// The event's number in the log, or its event id
    pub event: String,
    /// Why; it is kept with the event
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// Which outbox's handlers, and what to do with them.
#[derive(Debug, Args)]
pub struct HandlersArgs {
    /// Database of a program that has the outbox in it, instead of the one in the data folder; it must exist
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "data")]
    pub database: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: HandlerCommand,
}

/// What to do with the handlers.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum HandlerCommand {
    /// Every handler the database knows: its filter, how far it is, who runs it
    List(ShapeArgs),
    /// Let a handler finish its running call and deliver nothing more, until it is released
    ///
    /// Its events are kept meanwhile. A hold outlasts restarts.
    Hold(HandlerArgs),
    /// End a hold
    Release(HandlerArgs),
}

/// Which handler.
#[derive(Debug, Args)]
pub struct HandlerArgs {
    /// The handler's name
    pub name: String,
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
            _ => self.shared.given(),
        };
        Settings::load(self.config.as_deref(), &[self.shared.given(), own])
    }

    /// How much is logged: what was asked for, else what suits the command.
    pub fn log_level(&self, settings: &Settings) -> log::LevelFilter {
        #[cfg(feature = "server")]
        let serves = matches!(self.command, Command::Serve(_));
        #[cfg(not(feature = "server"))]
        let serves = false;
        settings.log_filter(serves)
    }
}
