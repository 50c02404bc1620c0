//! Where the program keeps its files.

use std::io;
use std::path::{Path, PathBuf};

use crate::cli::CliError;

/// The data folder and what lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// The folder for articles; it is created if it is absent. One that has been a worker's too stays the articles'.
    ///
    /// # Errors
    /// The folder can neither be found nor made; it is a worker's.
    pub(crate) fn for_articles(root: &Path) -> Result<Self, CliError> {
        Self::not_a_workers(root)?.create()
    }

    /// The same, not created.
    ///
    /// # Errors
    /// It is a worker's.
    pub(crate) fn not_a_workers(root: &Path) -> Result<Self, CliError> {
        let dir = Self { root: root.to_owned() };
        if dir.worker().exists() && !dir.articles().exists() {
            return Err(dir.taken("a worker's", &dir.worker()));
        }
        Ok(dir)
    }

    /// The folder for what a worker remembers; it is created if it is absent.
    ///
    /// # Errors
    /// The folder can neither be found nor made; it is a server's.
    #[cfg(feature = "nats")]
    pub(crate) fn for_worker(root: &Path) -> Result<Self, CliError> {
        let dir = Self { root: root.to_owned() };
        if dir.articles().exists() {
            return Err(dir.taken("a server's", &dir.articles()));
        }
        dir.create()
    }

    /// Server and worker keep their index in one file of the folder: each would empty the other's.
    fn taken(&self, whose: &str, sign: &Path) -> CliError {
        CliError::Usage(format!(
            "{} is {whose} folder ({} lies there), and server and worker need a folder each: name another with --data",
            self.root.display(),
            sign.display()
        ))
    }

    fn create(self) -> Result<Self, CliError> {
        let root = &self.root;
        std::fs::create_dir_all(root).map_err(|e| {
            CliError::failed(format!("cannot create the data folder {}: {e}; name another with --data", root.display()))
        })?;
        Ok(self)
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
            Err(e) if e.kind() == io::ErrorKind::NotFound && dir.worker().is_file() => Err(format!(
                "{} is a worker's folder: its articles are at its origin; what it has are `outbox` (stats, list, show, replay, \
                 edit, discard, check), `search` and `backup`",
                root.display()
            )),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(format!(
                "no database in {}: name its folder with --data, or make one with `import` or `serve`",
                root.display()
            )),
            Err(e) => Err(format!("cannot look at {}: {e}", dir.articles().display())),
        }
    }

    /// The folder of articles, or of a worker.
    ///
    /// # Errors
    /// As [`existing`](Self::existing).
    pub(crate) fn of_either(root: &Path) -> Result<Self, String> {
        let dir = Self { root: root.to_owned() };
        if dir.worker().is_file() { Ok(dir) } else { Self::existing(root) }
    }

    /// Articles and their outbox.
    pub(crate) fn articles(&self) -> PathBuf {
        self.root.join("articles.db")
    }

    /// What a worker remembers.
    pub(crate) fn worker(&self) -> PathBuf {
        self.root.join("worker.db")
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
