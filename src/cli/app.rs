//! The parts of the program, put together over one data folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::CliError;
use super::settings::{DataDir, Settings};
use crate::article::{self, ArticleRepository};
use crate::jobs::{self, Jobs, Journal};
use crate::outbox;
use crate::queue::SqliteWriter;
use crate::service::ArticleService;
use crate::sinks::cache::{CacheOptions, PageCache};
use crate::sinks::render::Renderer;
use crate::sinks::search::{SearchIndex, SearchOptions};
use crate::storage::{Component, Database, Options};

/// What `articles.db` holds.
pub(super) const COMPONENTS: &[Component] = &[outbox::COMPONENT, article::COMPONENT, jobs::COMPONENT];
/// How long a command waits at its end for what was accepted to be written.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// The database, the service over it, and the sinks.
pub(super) struct App {
    pub database: Database,
    pub articles: ArticleService,
    pub jobs: Jobs,
    pub search: SearchIndex,
    pub renderer: Renderer,
    cache: PathBuf,
    cache_options: CacheOptions,
}

impl App {
    /// Puts everything together; nothing is opened before the database's services start.
    pub(super) fn new(dir: &DataDir, settings: &Settings) -> Self {
        Self::over(dir, Database::new(dir.articles(), COMPONENTS, settings.storage()), settings)
    }

    /// Opens the database for a short command, without a manager.
    ///
    /// # Errors
    /// The database cannot be opened.
    pub(super) fn open(dir: &DataDir, settings: &Settings) -> Result<Self, CliError> {
        let database = open_database(dir, settings.storage())?;
        Ok(Self::over(dir, database, settings))
    }

    /// The same, with pages that know where readers reach the site.
    pub(super) fn at_site(mut self, url: Option<&str>) -> Self {
        if let Some(url) = url {
            let mut site = self.renderer.site().clone();
            url.clone_into(&mut site.base_url);
            self.renderer = Renderer::new(site);
        }
        self
    }

    /// The cache of rendered pages; makes its folder.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(super) fn pages(&self) -> Result<PageCache, CliError> {
        PageCache::open(&self.cache, &self.renderer.fingerprint(), self.cache_options.clone()).map_err(|error| {
            CliError::failed(format!("cannot make the folder for rendered pages {}: {error}", self.cache.display()))
        })
    }

    /// Writes what was accepted and closes the database.
    ///
    /// # Errors
    /// It took too long.
    pub(super) fn close(self) -> Result<(), CliError> {
        self.database.close(Instant::now() + CLOSE_WITHIN).map_err(|error| CliError::failed(error.to_string()))
    }

    fn over(dir: &DataDir, database: Database, settings: &Settings) -> Self {
        let options = settings.jobs();
        let journal = Arc::new(Journal::new(&database, &options));
        let writer = Arc::new(SqliteWriter::with_gate(&database, journal));
        let repository = ArticleRepository::new(database.clone());
        let search = SearchIndex::new(dir.search(), Arc::new(repository.clone()), SearchOptions::default());
        let articles = ArticleService::new(writer, repository);
        Self {
            jobs: Jobs::new(&database, options),
            database,
            articles,
            search,
            renderer: Renderer::new(settings.site_info()),
            cache: dir.cache(),
            cache_options: settings.cache(),
        }
    }
}

/// The database alone.
///
/// # Errors
/// It cannot be opened.
pub(super) fn open_database(dir: &DataDir, options: Options) -> Result<Database, CliError> {
    let path = dir.articles();
    Database::open(&path, COMPONENTS, options).map_err(|error| CliError::failed(format!("{}: {error}", path.display())))
}
