//! The command line: settings are read and checked here, before any work; each command has a module of its own.

#[cfg(feature = "server")]
mod access;
mod acts;
mod adopt;
mod app;
mod args;
mod backup;
mod check;
mod check_search;
mod dates;
mod delivery;
mod enqueue;
mod error;
mod exceptions;
mod front_matter;
mod handler;
mod help;
mod import;
mod invariants;
mod job_args;
mod jobs;
mod json;
mod lane_line;
mod log_file;
mod log_line;
mod markdown_files;
mod mode;
#[cfg(feature = "server")]
mod notify;
mod operator_args;
mod outbox;
mod output;
mod search;
#[cfg(feature = "server")]
mod serve;
mod settings;
mod story;
#[cfg(feature = "server")]
mod tokens;
#[cfg(feature = "nats")]
mod worker;
mod worker_ledger;

use crate::lifecycle::{BoxError, Handle};
use error::CliError;

pub use adopt::AdoptArgs;
#[cfg(not(feature = "nats"))]
pub use args::NoWorkerArgs;
#[cfg(feature = "nats")]
pub use args::WorkerArgs;
pub use args::{BackupArgs, Cli, Command, ImportArgs, IntegrityArgs, SearchArgs};
#[cfg(feature = "server")]
pub use args::{NameArgs, ServeArgs, TokenArgs, TokensArgs, TokensCommand};
pub use job_args::{
    EnqueueArgs, FreezeArgs, JobArgs, JobCancelArgs, JobDiscardArgs, JobListArgs, JobReplayArgs, JobsArgs, JobsCommand,
    ThawArgs,
};
pub use log_line::LogLine;
pub use operator_args::{
    CheckArgs, DiscardArgs, EditArgs, FilterArgs, HandlerArgs, HandlerCommand, HandlersArgs, ListArgs, OutboxArgs,
    OutboxCommand, RenameArgs, ReplayArgs, ResumeArgs, RetireArgs, RewindArgs, ShapeArgs, ShowArgs, TraceArgs,
};
#[cfg(feature = "nats")]
pub use settings::WorkerFlags;
pub use settings::{DeliverFlags, ListState, LogFormat, LogLevel, Secret, Settings, SettingsError, SharedFlags};
#[cfg(feature = "server")]
pub use settings::{ServeFlags, TokenRole};

/// What whoever asks for the broker in another build has to do.
#[cfg(not(feature = "nats"))]
const WITHOUT_NATS: &str = "this program was built without the feature `nats`: cargo build --release --features nats";

/// Runs the command and returns its exit code, one of [`exit`]. `on_signals` is called by a command that stops in order:
/// it makes the process's signals drive the handle.
#[cfg_attr(not(feature = "server"), allow(unused_variables))]
pub fn run(cli: &Cli, settings: &Settings, on_signals: &dyn Fn(&Handle) -> Result<(), BoxError>) -> u8 {
    let data = &settings.data;
    let done = match &cli.command {
        #[cfg(feature = "server")]
        Command::Serve(args) => serve::run(settings, args, on_signals),
        Command::Import(args) => import::run(settings, args),
        Command::Adopt(args) => adopt::run(settings, args),
        Command::Search(args) => search::run(settings, args),
        Command::Outbox(args) => outbox::run(data, args),
        Command::Check(args) => check::run(data, args),
        Command::Backup(args) => backup::run(data, args),
        Command::Handler(args) => handler::run(data, args),
        #[cfg(feature = "nats")]
        Command::Worker(_) => worker::run(settings, on_signals),
        #[cfg(not(feature = "nats"))]
        Command::Worker(_) => Err(CliError::Usage(format!("worker: {WITHOUT_NATS}"))),
        Command::Jobs(args) => jobs::run(settings, args),
        Command::Enqueue(args) => enqueue::run(data, args),
        Command::Freeze(args) => mode::freeze(data, args),
        Command::Thaw(args) => mode::thaw(data, args),
        Command::Mode(args) => mode::mode(data, args),
        #[cfg(feature = "server")]
        Command::Tokens(args) => tokens::run(data, args),
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
    /// The command line or a setting is wrong; nothing was done.
    pub const USAGE: u8 = 2;
    /// A second signal came before the stop was done.
    pub const INTERRUPTED: u8 = 130;
}
