//! The arguments as clap reads them. Texts longer than a line stand in `help`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use super::help;
use super::operator_args::{HandlersArgs, OutboxArgs};
use super::settings::{self, LogLevel, Secret};

/// An article service whose every change commits together with a durable event.
///
/// A relay delivers each event to every handler (search, page cache, CDN) at least once and in order, through crashes,
/// outages and bad events.
#[derive(Debug, Parser)]
#[command(name = "vayu-articles", version, after_help = help::EXIT_CODES, after_long_help = help::with_exit_codes(help::OVERVIEW))]
pub struct Cli {
    /// Folder that holds everything; created if absent
    #[arg(long, global = true, env = "VAYU_DATA", default_value = "./data", value_name = "DIR")]
    pub data: PathBuf,
    /// What is logged to stderr [default: info for `serve`, else warn]
    #[arg(long, global = true, env = "VAYU_LOG", value_enum, value_name = "LEVEL")]
    pub log: Option<LogLevel>,
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
    /// Look at the outbox; replay, edit or discard what failed; check it
    #[command(after_long_help = help::with_exit_codes(help::OUTBOX))]
    Outbox(OutboxArgs),
    /// Look at the handlers; hold, rewind, rename or retire one
    #[command(after_long_help = help::with_exit_codes(help::HANDLER))]
    Handler(HandlersArgs),
}

/// How to serve.
#[cfg(feature = "server")]
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on, a loopback one; port 0 takes a free port
    #[arg(long, env = "VAYU_ADDR", default_value = "127.0.0.1:8080", value_name = "HOST:PORT", value_parser = settings::loopback)]
    pub addr: std::net::SocketAddr,
    /// Import this folder first if the database holds no article
    #[arg(long, value_name = "PATH")]
    pub seed: Option<PathBuf>,
    /// Where changed pages are purged
    #[command(flatten)]
    pub cdn: CdnArgs,
}

/// Where changed pages are purged.
#[derive(Debug, Args)]
pub struct CdnArgs {
    /// Purge changed pages at this HTTP endpoint
    #[arg(long = "cdn", env = "VAYU_CDN", value_name = "URL", requires = "site")]
    pub endpoint: Option<String>,
    /// Address of the site as its readers see it, for the URLs to purge
    #[arg(long, env = "VAYU_SITE", value_name = "URL")]
    pub site: Option<String>,
    /// Bearer token for the endpoint; better in the environment, where others cannot list it
    #[arg(
        long = "cdn-token",
        env = "VAYU_CDN_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        requires = "endpoint"
    )]
    pub token: Option<Secret>,
}

/// What to import.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A folder, or one file
    pub path: PathBuf,
    /// Name of the collection the files belong to [default: the folder's name]
    #[arg(long, value_name = "NAME", value_parser = settings::collection)]
    pub name: Option<String>,
    /// Where changed pages are purged
    #[command(flatten)]
    pub cdn: CdnArgs,
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
    /// How much is logged: what was asked for, else what suits the command.
    pub fn log_level(&self) -> log::LevelFilter {
        let usual = match self.command {
            #[cfg(feature = "server")]
            Command::Serve(_) => log::LevelFilter::Info,
            _ => log::LevelFilter::Warn,
        };
        self.log.map_or(usual, LogLevel::filter)
    }
}
