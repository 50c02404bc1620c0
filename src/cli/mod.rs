//! The command line: settings are read and checked here, before any work; each command has a module of its own.

#[cfg(feature = "server")]
mod access;
mod app;
mod args;
mod dates;
mod delivery;
mod error;
mod exceptions;
mod front_matter;
mod handler;
mod help;
mod import;
mod json;
mod log_file;
mod markdown_files;
mod outbox;
mod output;
mod search;
#[cfg(feature = "server")]
mod serve;
mod settings;
#[cfg(feature = "server")]
mod tokens;

use crate::lifecycle::{BoxError, Handle};
use error::CliError;

#[cfg(feature = "server")]
pub use args::{AccessArgs, NameArgs, ServeArgs, TokenArgs, TokensArgs, TokensCommand};
pub use args::{
    CdnArgs, Cli, Command, DiscardArgs, HandlerArgs, HandlerCommand, HandlersArgs, ImportArgs, ListArgs, OutboxArgs,
    OutboxCommand, ReplayArgs, SearchArgs, ShapeArgs, ShowArgs,
};
#[cfg(feature = "server")]
pub use settings::TokenRole;
pub use settings::{ListState, LogLevel, Secret};

/// Runs the command and returns its exit code, one of [`exit`]. `on_signals` is called by a command that stops in order:
/// it makes the process's signals drive the handle.
#[cfg_attr(not(feature = "server"), allow(unused_variables))]
pub fn run(cli: &Cli, on_signals: &dyn Fn(&Handle) -> Result<(), BoxError>) -> u8 {
    let done = match &cli.command {
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(&cli.data, args, on_signals),
        Command::Import(args) => import::run(&cli.data, args),
        Command::Search(args) => search::run(&cli.data, args),
        Command::Outbox(args) => outbox::run(&cli.data, args),
        Command::Handler(args) => handler::run(&cli.data, args),
        #[cfg(feature = "server")]
        Command::Tokens(args) => tokens::run(&cli.data, args),
    };
    match done {
        Ok(code) => code,
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => exit::OK,
        Err(error) => {
            output::say(&format!("vayu-articles: {error}"));
            if matches!(error, CliError::Usage(_)) { exit::USAGE } else { exit::FAILED }
        }
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
