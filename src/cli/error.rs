//! Why a command did not do what it was asked.

use std::fmt;
use std::io;

use super::settings::SettingsError;

/// Ends a command before it is done.
#[derive(Debug)]
#[non_exhaustive]
pub(super) enum CliError {
    /// The arguments do not fit each other or cannot work, which clap could not see. Nothing was done.
    Usage(String),
    /// What happened and what to do, for the user.
    Failed(String),
    /// Stdout could not be written to. If its reader has merely gone (`… | head`), there is nobody to tell.
    Output(io::Error),
}

impl CliError {
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) => f.write_str(message),
            Self::Output(error) => write!(f, "cannot write to stdout: {error}"),
        }
    }
}

impl std::error::Error for CliError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Usage(_) | Self::Failed(_) => None,
            Self::Output(error) => Some(error),
        }
    }
}

impl From<SettingsError> for CliError {
    fn from(error: SettingsError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}
