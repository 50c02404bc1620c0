//! The program: settings, the logger and the signals; the rest is the library's.

use std::process::ExitCode;

use clap::Parser;
use vayu_articles::cli::{self, Cli};
use vayu_articles::lifecycle::{BoxError, Handle};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = cli.log_level();
    // What other crates say in detail is of no use to whoever looks for a fault here.
    let others = level.min(log::LevelFilter::Warn);
    env_logger::Builder::new().filter_level(others).filter_module("vayu_articles", level).init();
    ExitCode::from(cli::run(&cli, &install_signals))
}

/// SIGINT, SIGTERM and SIGHUP ask for an orderly stop; a second one ends the process with exit code 130.
fn install_signals(handle: &Handle) -> Result<(), BoxError> {
    ctrlc::set_handler(handle.signal_hook(|code| std::process::exit(code.into())))?;
    Ok(())
}
