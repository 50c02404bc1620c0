//! The program: settings, the logger and the signals; the rest is the library's.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use vayu_articles::cli::{self, Cli, LogFormat, LogLine};
use vayu_articles::lifecycle::{BoxError, Handle};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let settings = match cli.settings() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("vayu-articles: {error}");
            return ExitCode::from(cli::exit::USAGE);
        }
    };
    start_log(cli.log_level(&settings), settings.log_format());
    ExitCode::from(cli::run(&cli, &settings, &install_signals))
}

fn start_log(level: log::LevelFilter, format: LogFormat) {
    // What other crates say in detail is of no use to whoever looks for a fault here.
    let others = level.min(log::LevelFilter::Warn);
    env_logger::Builder::new()
        .filter_level(others)
        .filter_module("vayu_articles", level)
        .format(move |out, record| {
            let time = out.timestamp_millis();
            writeln!(out, "{}", LogLine { format, time: &time, record })
        })
        .init();
}

/// SIGINT, SIGTERM and SIGHUP ask for an orderly stop; a second one ends the process with exit code 130.
fn install_signals(handle: &Handle) -> Result<(), BoxError> {
    ctrlc::set_handler(handle.signal_hook(|code| std::process::exit(code.into())))?;
    Ok(())
}
