//! The file of named tokens: names, roles and digests, never a token.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::private_file;
use super::token::{self, Digest};
use super::{ADMIN, AccessError, Role};
use crate::clock::rfc3339;

/// Most tokens in one file.
const MAX_TOKENS: usize = 1_000;
/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The named tokens in one file, as `tokens add`, `list` and `remove` see them.
#[derive(Debug, Clone)]
pub struct TokenStore {
    path: PathBuf,
}

/// A named token without the token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenInfo {
    /// Its name.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// When it was added (RFC 3339).
    pub created_at: String,
}

/// A token that a request can be checked against.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) role: Role,
    pub(super) digest: Digest,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    tokens: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    role: Role,
    sha256: String,
    created_at: String,
}

impl TokenStore {
    /// The tokens in the file at `path`, which need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Makes a token and returns it: it can be read this once, as only its digest is kept.
    ///
    /// # Errors
    /// The name is taken or cannot be one, there are 1,000 already, or the file cannot be read or written.
    pub fn add(&self, name: &str, role: Role, now_ms: i64) -> Result<String, AccessError> {
        if !is_name(name) || name == ADMIN {
            return Err(AccessError::BadName(name.to_owned()));
        }
        let _lock = self.lock()?;
        let mut stored = self.read()?;
        if stored.tokens.iter().any(|entry| entry.name == name) {
            return Err(AccessError::NameTaken(name.to_owned()));
        }
        if stored.tokens.len() >= MAX_TOKENS {
            return Err(AccessError::TooMany(MAX_TOKENS));
        }
        let token = token::make()?;
        let (name, created_at) = (name.to_owned(), rfc3339(now_ms));
        stored.tokens.push(Entry { name, role, sha256: Digest::of(&token).to_hex(), created_at });
        self.write(&stored)?;
        Ok(token)
    }

    /// Removes the token of that name; a running server refuses it from then on.
    ///
    /// # Errors
    /// No token has that name, or the file cannot be read or written.
    pub fn remove(&self, name: &str) -> Result<(), AccessError> {
        let _lock = self.lock()?;
        let mut stored = self.read()?;
        let before = stored.tokens.len();
        stored.tokens.retain(|entry| entry.name != name);
        if stored.tokens.len() == before {
            return Err(AccessError::UnknownName(name.to_owned()));
        }
        self.write(&stored)
    }

    /// The tokens in the order in which they were added.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn list(&self) -> Result<Vec<TokenInfo>, AccessError> {
        let info = |entry: Entry| TokenInfo { name: entry.name, role: entry.role, created_at: entry.created_at };
        Ok(self.read()?.tokens.into_iter().map(info).collect())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn known(&self) -> Result<Vec<Known>, AccessError> {
        let known = |entry: Entry| {
            let digest = Digest::from_hex(&entry.sha256)
                .ok_or_else(|| self.malformed(format!("the sha256 of {:?} is none", entry.name)))?;
            Ok(Known { name: entry.name.into(), role: entry.role, digest })
        };
        self.read()?.tokens.into_iter().map(known).collect()
    }

    fn read(&self) -> Result<Stored, AccessError> {
        let text = private_file::read(&self.path).map_err(|error| self.failed(error))?;
        let Some(text) = text else { return Ok(Stored::default()) };
        let stored: Stored = serde_json::from_str(&text).map_err(|error| self.malformed(error.to_string()))?;
        if let Some(entry) = stored.tokens.iter().find(|entry| !is_name(&entry.name) || entry.name == ADMIN) {
            return Err(self.malformed(format!("{:?} is no name for a token", entry.name)));
        }
        Ok(stored)
    }

    fn write(&self, stored: &Stored) -> Result<(), AccessError> {
        let mut text = serde_json::to_string_pretty(stored).map_err(|error| self.malformed(error.to_string()))?;
        text.push('\n');
        private_file::replace(&self.path, &text).map_err(|error| self.failed(error))
    }

    /// Held while the file is changed, so that two commands at once both count. Ends with the file handle.
    fn lock(&self) -> Result<File, AccessError> {
        let lock = || {
            let path = self.path.with_extension("lock");
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder).map_err(|error| self.failed(error))?;
        }
        lock().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> AccessError {
        AccessError::File { path: self.path.clone(), error }
    }

    fn malformed(&self, reason: String) -> AccessError {
        AccessError::Malformed { path: self.path.clone(), reason }
    }
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed)
}
