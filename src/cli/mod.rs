//! The command line: settings are read and checked here, before any work; each command has a module of its own.

mod app;
mod dates;
mod error;
mod front_matter;
mod handler;
mod import;
mod markdown_files;
mod outbox;
mod output;
mod search;
#[cfg(feature = "server")]
mod serve;
mod settings;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::lifecycle::{BoxError, Handle};
use error::CliError;

pub use settings::LogLevel;

/// Runs the command and returns its exit code, one of [`exit`]. `on_signals` is called by a command that stops in order:
/// it makes the process's signals drive the handle.
pub fn run(cli: &Cli, on_signals: &dyn Fn(&Handle) -> Result<(), BoxError>) -> u8 {
    let done = match &cli.command {
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(&cli.data, args, on_signals),
        Command::Import(args) => import::run(&cli.data, args),
        Command::Search(args) => search::run(&cli.data, args),
        Command::Outbox(command) => outbox::run(&cli.data, command),
        Command::Handler(HandlerCommand::List) => handler::list(&cli.data),
    };
    match done {
        Ok(code) => code,
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => exit::OK,
        Err(error) => {
            eprintln!("vayu-articles: {error}");
            exit::FAILED
        }
    }
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

/// Exit codes, for scripts; the same for every command.
pub mod exit {
    /// Everything asked for was done.
    pub const OK: u8 = 0;
    /// Something failed, or one file of several did; what and why stands on stderr.
    pub const FAILED: u8 = 1;
    /// The command line itself is wrong; nothing was done.
    pub const USAGE: u8 = 2;
    /// A second signal came before the stop was done.
    pub const INTERRUPTED: u8 = 130;
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    something failed, or one file of several did: what and why stands on stderr
  2    the command line is wrong; nothing was done
  130  a second signal came before the stop was done";

const OVERVIEW: &str = "\
Examples:
  vayu-articles serve --addr 127.0.0.1:8080 --seed samples
  vayu-articles import ~/blog/content
  vayu-articles search 'idempotent handler'
  vayu-articles outbox stats
  vayu-articles outbox replay search 4711

The data folder holds articles.db (articles and their outbox), search.db and cache/. The last two can be deleted at
any time while nothing runs: they are rebuilt from the first.";

/// An article service whose every change commits together with a durable event.
///
/// A relay delivers each event to every handler (search, page cache, CDN) at least once and in order, through crashes,
/// outages and bad events.
#[derive(Debug, Parser)]
#[command(name = "vayu-articles", version, after_help = EXIT_CODES, after_long_help = format!("{OVERVIEW}\n\n{EXIT_CODES}"))]
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
    #[command(after_long_help = format!("{SERVE_HELP}\n\n{EXIT_CODES}"))]
    Serve(ServeArgs),
    /// Import a folder of Markdown files with front matter
    #[command(after_long_help = format!("{IMPORT_HELP}\n\n{EXIT_CODES}"))]
    Import(ImportArgs),
    /// Search the published articles
    #[command(after_long_help = format!("{SEARCH_HELP}\n\n{EXIT_CODES}"))]
    Search(SearchArgs),
    /// Look at the outbox, and replay what failed
    #[command(subcommand, after_long_help = format!("{OUTBOX_HELP}\n\n{EXIT_CODES}"))]
    Outbox(OutboxCommand),
    /// Look at the handlers
    #[command(subcommand)]
    Handler(HandlerCommand),
}

#[cfg(feature = "server")]
const SERVE_HELP: &str = "\
Binds a loopback address only. The first SIGINT or SIGTERM stops in order and within bounds: no new requests, running ones
end, the relay drains what is committed, accepted writes are written; a second signal ends the process at once.

Examples:
  vayu-articles serve
  vayu-articles serve --addr 127.0.0.1:0 --data /var/lib/vayu     (any free port; the address is printed)
  vayu-articles serve --seed samples                              (fills an empty database first)
  vayu-articles serve --cdn http://127.0.0.1:6081/purge --site https://example.org";

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
    /// Purge changed pages at this HTTP endpoint
    #[arg(long, env = "VAYU_CDN", value_name = "URL")]
    pub cdn: Option<String>,
    /// Address of the site as its readers see it, for the URLs to purge
    #[arg(long, env = "VAYU_SITE", value_name = "URL", requires = "cdn")]
    pub site: Option<String>,
}

const IMPORT_HELP: &str = "\
Takes .md and .markdown files, in all folders below PATH (32 deep at most), in the order of their names. Hidden files are
skipped, links to folders are not entered. A file may open with YAML (---) or TOML (+++) front matter:

  title                   else the first `# ` heading (taken out of the text if it opens it), else the file's name
  slug                    else derived from the title
  date, updated, lastmod  2026-03-01, or 2026-03-01T09:30:00+01:00; a time without a zone is taken as UTC, with a note
  tags, categories        a list, or one bare string, which is ONE tag, commas and all; also below `taxonomies`
  draft: true             (or published: false) makes a draft
  type: page              (or kind: page) makes a page

Other keys are passed over. A file that cannot be stored is reported with its name, the line and the reason; the others are
imported all the same.

A file is known by the collection's name and its path below PATH, so importing again changes nothing: a changed file updates
its article, unless the article was edited since (it is kept and reported) or deleted (it stays deleted). The events are
delivered before the command ends, unless a running `serve` on the same data does that.

Examples:
  vayu-articles import ~/blog/content
  vayu-articles import ~/blog/content --name blog     (the same collection wherever the folder lies)
  vayu-articles import post.md --data /var/lib/vayu";

/// What to import.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A folder, or one file
    pub path: PathBuf,
    /// Name of the collection the files belong to [default: the folder's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

const SEARCH_HELP: &str = "\
Prints one article per line: its slug, its title and where it matched. Words are taken literally and all must occur; a phrase
goes in double quotes inside the query.

Examples:
  vayu-articles search outbox
  vayu-articles search '\"dead letter\" replay' --limit 5";

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

const OUTBOX_HELP: &str = "\
Examples:
  vayu-articles outbox stats
  vayu-articles outbox list --handler search --state dead-letter
  vayu-articles outbox show search 4711
  vayu-articles outbox replay search 4711";

/// What to do with the outbox.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum OutboxCommand {
    /// How far each handler is, and what waits or failed
    Stats,
    /// The events that failed or wait behind a failed one
    List(ListArgs),
    /// One event, and how it fared with one handler
    Show(DeliveryArgs),
    /// Deliver a dead letter once more, with fresh attempts
    ///
    /// The relay of a running `serve` takes it up by itself; without one, the next `serve` or `import` does.
    Replay(ReplayArgs),
}

/// Which exceptions to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Of this handler only
    #[arg(long, value_name = "NAME")]
    pub handler: Option<String>,
    /// In this state only
    #[arg(long, value_name = "STATE", default_value = "dead-letter")]
    pub state: settings::ListState,
    /// Most lines
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub limit: u32,
    /// Only events after this id: the next page begins after the last id of the one before
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub after: i64,
}

/// One event at one handler.
#[derive(Debug, Args)]
pub struct DeliveryArgs {
    /// The handler's name
    pub handler: String,
    /// The event's id in the log
    pub id: i64,
}

/// What to replay.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The event and the handler
    #[command(flatten)]
    pub delivery: DeliveryArgs,
    /// Also when a later event of the same key was delivered since, or after three replays
    #[arg(long)]
    pub force: bool,
}

/// What to do with the handlers.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum HandlerCommand {
    /// Every handler the database knows: its filter, how far it is, who runs it
    List,
}
