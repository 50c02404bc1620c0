//! Raw arguments as checked settings.

use std::fmt;
use std::io;
#[cfg(feature = "server")]
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::CdnArgs;
use crate::clock::SystemClock;
#[cfg(feature = "server")]
use crate::http::access::Role;
use crate::outbox::ExceptionState;
use crate::sinks::cdn::{CdnOptions, CdnPurge};

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

/// An address to listen on.
///
/// # Errors
/// A sentence for the user.
#[cfg(feature = "server")]
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let text = numeric.as_deref().unwrap_or(text);
    text.parse().map_err(|_| "write an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
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
    pub(super) fn allows(self) -> &'static str {
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
pub(super) fn collection(name: &str) -> Result<String, String> {
    if name.is_empty() || name.len() > 200 || name.contains(|c: char| c == '/' || c.is_control()) {
        return Err("write 1 to 200 bytes, without / and control characters".to_owned());
    }
    Ok(name.to_owned())
}

/// Text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// The CDN to purge, if one is set.
///
/// # Errors
/// A sentence for the user: a URL cannot work.
pub(super) fn cdn(args: &CdnArgs) -> Result<Option<CdnPurge>, String> {
    let (Some(endpoint), Some(site)) = (&args.endpoint, &args.site) else { return Ok(None) };
    let mut options = CdnOptions::new(endpoint, site);
    options.token = args.token.as_ref().map(|token| token.0.clone());
    CdnPurge::new(options, SystemClock::shared()).map(Some).map_err(|error| {
        let option = match error.field {
            "endpoint" => "--cdn",
            "base_url" => "--site",
            "token" => "--cdn-token",
            _ => "--cdn, --site",
        };
        format!("{option} {}", error.reason)
    })
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

/// The data folder and what lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Creates the folder if it is absent.
    ///
    /// # Errors
    /// A sentence for the user: the folder can neither be found nor made.
    pub(crate) fn create(root: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(root)
            .map_err(|e| format!("cannot create the data folder {}: {e}; name another with --data", root.display()))?;
        Ok(Self { root: root.to_owned() })
    }

    /// The folder as it is.
    #[cfg(feature = "server")]
    pub(crate) fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder of a database that must exist already.
    ///
    /// # Errors
    /// A sentence for the user: there is none.
    pub(crate) fn existing(root: &Path) -> Result<Self, String> {
        let dir = Self { root: root.to_owned() };
        match std::fs::metadata(dir.articles()) {
            Ok(_) => Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!(
                "no database in {}: name its folder with --data, or make one with `import` or `serve`",
                root.display()
            )),
            Err(e) => Err(format!("cannot look at {}: {e}", dir.articles().display())),
        }
    }

    /// Articles and their outbox.
    pub(crate) fn articles(&self) -> PathBuf {
        self.root.join("articles.db")
    }

    /// The search index.
    pub(crate) fn search(&self) -> PathBuf {
        self.root.join("search.db")
    }

    /// Rendered pages.
    pub(crate) fn cache(&self) -> PathBuf {
        self.root.join("cache")
    }

    /// The administrator's token, if it was made here.
    #[cfg(feature = "server")]
    pub(crate) fn admin_token(&self) -> PathBuf {
        self.root.join("admin.token")
    }

    /// The named tokens.
    #[cfg(feature = "server")]
    pub(crate) fn tokens(&self) -> PathBuf {
        self.root.join("tokens.json")
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

    #[test]
    fn a_secret_is_not_shown() {
        assert_eq!(format!("{:?}", Secret::from("s3cret".to_owned())), "(hidden)");
    }

    #[cfg(feature = "server")]
    #[test]
    fn an_address_has_numbers_and_a_port() {
        for (text, addr) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(address(text).expect(text).to_string(), addr);
        }
        for text in ["127.0.0.1", "localhost", "127.0.0.1:99999", "example.org:80", ""] {
            address(text).expect_err(text);
        }
    }
}
