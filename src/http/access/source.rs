//! Where the tokens come from, and the set of them at this moment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::private_file::{self, Stamp};
use super::store::{Known, TokenStore};
use super::token::{self, Digest};
use super::{ADMIN, AccessError, Role};

/// Where the administrator's token comes from.
#[derive(Clone)]
#[non_exhaustive]
pub enum AdminToken {
    /// This is it.
    Given(String),
    /// It stands in this file, on a line of its own.
    File(PathBuf),
    /// It stands in this file, which is made at the first start unless a named token has the role `admin`.
    Made(PathBuf),
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given(hidden)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Made(path) => f.debug_tuple("Made").field(path).finish(),
        }
    }
}

/// Where the tokens come from.
#[derive(Debug, Clone)]
pub struct AccessOptions {
    /// The administrator's token.
    pub admin: AdminToken,
    /// The file of named tokens; it need not be there.
    pub tokens: PathBuf,
}

pub(super) struct Source {
    /// The administrator's token, if it is in no file; for [`Access::fixed`](super::Access::fixed) all tokens.
    given: Vec<Known>,
    admin_file: Option<PathBuf>,
    store: Option<TokenStore>,
    /// The admin file was chosen by somebody, not made.
    chosen: bool,
    made: bool,
    read: Mutex<Read>,
}

/// The tokens in the files, and the state of the files in which they stood there.
#[derive(Default)]
struct Read {
    admin: Part,
    named: Part,
    known: Arc<[Known]>,
}

#[derive(Default)]
struct Part {
    stamp: Stamp,
    /// It could not even be looked at.
    unseen: bool,
    known: Vec<Known>,
}

impl Source {
    pub(super) fn open(options: AccessOptions) -> Result<Self, AccessError> {
        let store = TokenStore::new(options.tokens);
        let named = store.known()?;
        let mut source = Self {
            given: Vec::new(),
            admin_file: None,
            store: Some(store),
            chosen: true,
            made: false,
            read: Mutex::default(),
        };
        match options.admin {
            AdminToken::Given(token) => {
                token::check(&token, "VAYU_ADMIN_TOKEN")?;
                source.given.push(admin(&token));
            }
            AdminToken::File(path) => {
                let found = read_admin(&path)?;
                found.ok_or_else(|| file_error(&path, std::io::ErrorKind::NotFound.into()))?;
                source.admin_file = Some(path);
            }
            AdminToken::Made(path) => {
                source.chosen = false;
                let there = read_admin(&path)?.is_some();
                if !there && !named.iter().any(|known| known.role == Role::Admin) {
                    let text = format!("{}\n", token::make()?);
                    source.made = private_file::create(&path, &text).map_err(|error| file_error(&path, error))?;
                }
                // Also if it is not there: somebody may write it later.
                source.admin_file = Some(path);
            }
        }
        source.warn_if_open();
        Ok(source)
    }

    pub(super) fn fixed(tokens: &[(&str, Role, &str)]) -> Self {
        let known = |(name, role, token): &(&str, Role, &str)| Known {
            name: Arc::from(*name),
            role: *role,
            digest: Digest::of(token),
        };
        Self {
            given: tokens.iter().map(known).collect(),
            admin_file: None,
            store: None,
            chosen: true,
            made: false,
            read: Mutex::default(),
        }
    }

    /// The tokens that count now. A file that cannot be read has none: a token is then refused rather than kept alive.
    pub(super) fn known(&self) -> Arc<[Known]> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed = read.known.is_empty();
        if let Some(path) = &self.admin_file {
            changed |= read.admin.refresh(path, || Ok(read_admin(path)?.into_iter().collect()));
        }
        if let Some(store) = &self.store {
            changed |= read.named.refresh(store.path(), || store.known());
        }
        if changed {
            read.known = [&self.given, &read.admin.known, &read.named.known].into_iter().flatten().cloned().collect();
        }
        Arc::clone(&read.known)
    }

    pub(super) fn is_chosen(&self) -> bool {
        self.chosen || self.store.as_ref().and_then(|store| store.known().ok()).is_some_and(|known| !known.is_empty())
    }

    pub(super) fn admin_file(&self) -> Option<&Path> {
        self.admin_file.as_deref().filter(|path| path.exists())
    }

    pub(super) fn has_made_admin(&self) -> bool {
        self.made
    }

    fn warn_if_open(&self) {
        let files = self.admin_file.as_deref().into_iter().chain(self.store.as_ref().map(TokenStore::path));
        for path in files.filter(|path| private_file::is_open_to_others(path)) {
            log::warn!("event=token_file_open_to_others path={path:?} advice=\"chmod 600\"");
        }
    }
}

impl Part {
    /// Reads anew if the file is another than it was; tells whether it did.
    fn refresh(&mut self, path: &Path, read: impl FnOnce() -> Result<Vec<Known>, AccessError>) -> bool {
        // Looked at before it is read: a change in between shows at the next look.
        let stamp = private_file::stamp(path).map_err(|error| file_error(path, error));
        if stamp.as_ref().is_ok_and(|stamp| *stamp == self.stamp && !self.unseen) {
            return false;
        }
        let seen = stamp.as_ref().ok().cloned();
        let known = stamp.and_then(|_| read());
        // Said once per state of the file.
        if let (Err(error), false) = (&known, self.unseen && seen.is_none()) {
            log::error!("event=tokens_unreadable error=\"{error}\" consequence=\"its tokens are refused\"");
        }
        *self = Self { unseen: seen.is_none(), stamp: seen.flatten(), known: known.unwrap_or_default() };
        true
    }
}

fn read_admin(path: &Path) -> Result<Option<Known>, AccessError> {
    let text = private_file::read(path).map_err(|error| file_error(path, error))?;
    let Some(text) = text else { return Ok(None) };
    let token = text.trim();
    token::check(token, &path.display().to_string())?;
    Ok(Some(admin(token)))
}

fn admin(token: &str) -> Known {
    Known { name: Arc::from(ADMIN), role: Role::Admin, digest: Digest::of(token) }
}

fn file_error(path: &Path, error: std::io::Error) -> AccessError {
    AccessError::File { path: path.to_owned(), error }
}
