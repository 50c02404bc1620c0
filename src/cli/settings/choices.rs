//! Arguments that are one of several words, or a name.

use clap::ValueEnum;

#[cfg(feature = "server")]
use crate::http::access::Role;
use crate::outbox::ExceptionState;

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What failed.
    Error,
    /// What may need a look, too.
    Warn,
    /// Starts, stops and what is done, too.
    Info,
    /// Details for finding a fault, too.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// As the `log` crate names it.
    pub fn filter(self) -> log::LevelFilter {
        match self {
            Self::Off => log::LevelFilter::Off,
            Self::Error => log::LevelFilter::Error,
            Self::Warn => log::LevelFilter::Warn,
            Self::Info => log::LevelFilter::Info,
            Self::Debug => log::LevelFilter::Debug,
            Self::Trace => log::LevelFilter::Trace,
        }
    }
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum LogFormat {
    /// Time, level, module and message.
    Text,
    /// The message after its priority in angle brackets, as the journal of systemd reads it.
    Journal,
    /// One JSON object a line.
    Json,
}

/// What a named token allows.
#[cfg(feature = "server")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum TokenRole {
    /// Write articles, and see drafts.
    Write,
    /// Everything, with operating the program.
    Admin,
}

#[cfg(feature = "server")]
impl TokenRole {
    /// In words.
    pub(in crate::cli) fn allows(self) -> &'static str {
        match self {
            Self::Write => "write articles and see drafts",
            Self::Admin => "write and operate",
        }
    }
}

#[cfg(feature = "server")]
impl From<TokenRole> for Role {
    fn from(role: TokenRole) -> Self {
        match role {
            TokenRole::Write => Self::Write,
            TokenRole::Admin => Self::Admin,
        }
    }
}

/// The name of a collection of files.
///
/// # Errors
/// A sentence for the user.
pub(in crate::cli) fn collection(name: &str) -> Result<String, String> {
    if name.is_empty() || name.len() > 200 || name.contains(|c: char| c == '/' || c.is_control()) {
        return Err("write 1 to 200 bytes, without / and control characters".to_owned());
    }
    Ok(name.to_owned())
}

/// Which exceptions `outbox list` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[non_exhaustive]
pub enum ListState {
    /// To be tried again.
    Retry,
    /// Behind an earlier event of the same key.
    Waiting,
    /// Given up, and holding back their key.
    Parked,
    /// Given up, and passed over.
    #[value(name = "dead_letter", alias = "dead-letter")]
    DeadLetter,
    /// Given up by an operator.
    Discarded,
    /// Went well after a failure.
    Done,
}

impl From<ListState> for ExceptionState {
    fn from(state: ListState) -> Self {
        match state {
            ListState::Retry => Self::Retry,
            ListState::Waiting => Self::Waiting,
            ListState::Parked => Self::Parked,
            ListState::DeadLetter => Self::DeadLetter,
            ListState::Discarded => Self::Discarded,
            ListState::Done => Self::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_needs_a_name_that_a_path_can_begin_with() {
        assert_eq!(collection("my blog"), Ok("my blog".to_owned()));
        for name in ["", "a/b", "a\nb", &"x".repeat(201)] {
            collection(name).expect_err(name);
        }
    }
}
