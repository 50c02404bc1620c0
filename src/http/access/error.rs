//! Why tokens cannot be read or changed.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why tokens cannot be read or changed. No message has a token in it.
#[derive(Debug)]
#[non_exhaustive]
pub enum AccessError {
    /// A file of tokens cannot be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file of named tokens is not what `tokens add` writes.
    Malformed {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A token that somebody chose cannot be used.
    Unusable {
        /// Where it comes from.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A name that a token cannot have.
    BadName(String),
    /// A token of that name is there already.
    NameTaken(String),
    /// No token has that name.
    UnknownName(String),
    /// No further token fits in.
    TooMany(usize),
    /// The operating system gives no random bytes.
    NoRandom(String),
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, error } => write!(f, "cannot use the file of tokens {}: {error}", path.display()),
            Self::Malformed { path, reason } => {
                write!(
                    f,
                    "the file of tokens {} is damaged: {reason}; mend it, or remove it and add anew",
                    path.display()
                )
            }
            Self::Unusable { place, reason } => {
                write!(f, "the token in {place} {reason}; `tokens add` makes a good one")
            }
            Self::BadName(name) => write!(
                f,
                "a token cannot have the name {name:?}: write 1 to 64 letters, digits, or any of . _ -, and not \"admin\""
            ),
            Self::NameTaken(name) => write!(f, "there is a token named {name:?} already; remove it first"),
            Self::UnknownName(name) => write!(f, "no token has the name {name:?}; `tokens list` shows them"),
            Self::TooMany(limit) => {
                write!(f, "there are {limit} tokens already, and no more fit in; remove some first")
            }
            Self::NoRandom(reason) => write!(f, "the operating system gives no random bytes: {reason}"),
        }
    }
}

impl std::error::Error for AccessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { error, .. } => Some(error),
            _ => None,
        }
    }
}
