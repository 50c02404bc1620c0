//! Who may do what: bearer tokens, their roles, and the one check that a request meets.
//!
//! There is one administrator's token (from the environment, a file, or made at the first start) and any number of
//! named ones, kept as digests in a file of their own. Both files are looked at with each use of a token and read again
//! when they have changed, so a token that was added or removed counts at once.

mod error;
mod private_file;
mod source;
mod store;
mod token;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hyper::header::{AUTHORIZATION, HeaderMap};
use serde::{Deserialize, Serialize};

pub use error::AccessError;
pub use source::{AccessOptions, AdminToken};
pub use store::{TokenInfo, TokenStore};

use super::problem::Problem;
use source::Source;
use token::Digest;

/// Name of the administrator's token; no other may have it.
pub const ADMIN: &str = "admin";

/// What a token allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Write articles, and see drafts.
    Write,
    /// Everything: what [`Write`](Self::Write) may, and operating the program.
    Admin,
}

impl Role {
    /// Whether who has this role may do what takes `needed`.
    pub fn includes(self, needed: Self) -> bool {
        self == Self::Admin || self == needed
    }

    /// `write` or `admin`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whose token came with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The token's name.
    pub name: Arc<str>,
    /// What it allows.
    pub role: Role,
}

/// Checks tokens. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    source: Arc<Source>,
}

impl Access {
    /// Reads the tokens, and makes the administrator's if that was asked for and there is none.
    ///
    /// # Errors
    /// A file cannot be read or written, or a token is too weak.
    pub fn open(options: AccessOptions) -> Result<Self, AccessError> {
        Ok(Self { source: Arc::new(Source::open(options)?) })
    }

    /// Exactly these `(name, role, token)`, for tests and for programs that keep tokens themselves.
    pub fn fixed(tokens: &[(&str, Role, &str)]) -> Self {
        Self { source: Arc::new(Source::fixed(tokens)) }
    }

    /// Whose token this is; `None` if it is nobody's. The time it takes does not depend on how much of a token is right.
    pub fn verify(&self, token: &str) -> Option<Caller> {
        if token.len() > token::MAX_BYTES {
            return None;
        }
        let digest = Digest::of(token);
        let known = self.source.known();
        // All are compared, so that the place of the right one does not show either.
        let found =
            known.iter().fold(None, |found, known| if known.digest.matches(&digest) { Some(known) } else { found });
        found.map(|known| Caller { name: Arc::clone(&known.name), role: known.role })
    }

    /// Who asks, if they say so with `Authorization: Bearer`.
    ///
    /// # Errors
    /// 401: what they say is not so.
    pub fn caller(&self, headers: &HeaderMap) -> Result<Option<Caller>, Problem> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = given.next() else { return Ok(None) };
        let token = value.to_str().ok().and_then(bearer).filter(|_| given.next().is_none());
        let token = token.ok_or_else(|| Problem::unauthorized("write one header Authorization: Bearer TOKEN"))?;
        let caller = self.verify(token);
        caller.map(Some).ok_or_else(|| Problem::unauthorized("this token is not known, or was removed"))
    }

    /// Who asks, if their token allows what takes `role`.
    ///
    /// # Errors
    /// 401 without a right token, 403 if its role is too small.
    pub fn authorize(&self, headers: &HeaderMap, role: Role) -> Result<Caller, Problem> {
        Self::require(self.caller(headers)?, role)
    }

    /// The same for a caller that is known already.
    ///
    /// # Errors
    /// As [`authorize`](Self::authorize).
    pub fn require(caller: Option<Caller>, role: Role) -> Result<Caller, Problem> {
        match caller {
            Some(caller) if caller.role.includes(role) => Ok(caller),
            Some(caller) => Err(Problem::forbidden(format!(
                "this takes a token with the role {role}; that of {} has the role {}",
                caller.name, caller.role
            ))),
            None => Err(Problem::unauthorized("this takes a token: send it as Authorization: Bearer TOKEN")),
        }
    }

    /// Whether somebody chose a token: from the environment, a file or `tokens add`. One that was made at the first start
    /// does not count.
    pub fn is_chosen(&self) -> bool {
        self.source.is_chosen()
    }

    /// The file from which the administrator's token can be read; `None` if it came from the environment, or there is
    /// none.
    pub fn admin_file(&self) -> Option<&Path> {
        self.source.admin_file()
    }

    /// Whether [`open`](Self::open) made the administrator's token.
    pub fn has_made_admin(&self) -> bool {
        self.source.has_made_admin()
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("admin_file", &self.admin_file()).finish_non_exhaustive()
    }
}

/// The token of `Bearer TOKEN`.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim_matches(' ');
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains(' ')).then_some(token)
}

#[cfg(test)]
mod tests;
