//! `worker`: handlers on this machine over the events of a server elsewhere.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use super::settings::{DataDir, Settings};
use super::{CliError, exit};
use crate::lifecycle::{BoxError, Handle, Manager, ManagerOptions, Service, StartContext, StartError};
use crate::sinks::cache::{PageCache, PageHandler};
use crate::sinks::cdn::CdnAgain;
use crate::sinks::render::Renderer;
use crate::sinks::search::{SearchIndex, SearchOptions};
use crate::storage::Database;
use crate::worker::{self, Origin, Worker};

/// The worker, and what has to be told before it stops.
struct Working {
    worker: Worker,
    search: Option<SearchIndex>,
    cdn_again: Option<CdnAgain>,
}

/// Works until a signal or a failure. The exit code is 0 only for a clean stop that was asked for.
pub(super) fn run(settings: &Settings, on_signals: &dyn Fn(&Handle) -> Result<(), BoxError>) -> Result<u8, CliError> {
    let options = settings.worker()?;
    let origin =
        Arc::new(Origin::new(settings.origin()?).map_err(|error| CliError::Usage(format!("--origin: {error}")))?);
    let dir = DataDir::for_worker(&settings.data)?;
    let database = Database::new(dir.worker(), &[worker::COMPONENT], settings.storage());
    let worker = Worker::new(&database, options).map_err(|error| CliError::Usage(error.to_string()))?;
    let working = with_handlers(worker, settings, &dir, &origin)?;
    let stops = ManagerOptions {
        stop_timeout: settings.stop_timeout,
        stop_budget: settings.stop_budget,
        ..ManagerOptions::default()
    };
    let mut manager = Manager::new(stops);
    manager.register(database.storage_service()).map_err(failed)?;
    manager.register(database.writer_service()).map_err(failed)?;
    manager.register(working).map_err(failed)?;
    on_signals(&manager.handle()).map_err(failed)?;
    match manager.start() {
        Ok(()) => {}
        Err(StartError::Stopped(outcome)) => return Ok(outcome.exit_code()),
        Err(error) => return Err(failed(error)),
    }
    let _ = writeln!(io::stdout(), "vayu-articles works on {}; Ctrl-C stops it.", settings.data.display());
    let cause = manager.wait();
    let outcome = manager.stop(cause.to_string());
    if outcome.is_clean() { Ok(exit::OK) } else { Err(CliError::failed(outcome.to_string())) }
}

fn with_handlers(
    mut worker: Worker,
    settings: &Settings,
    dir: &DataDir,
    origin: &Arc<Origin>,
) -> Result<Working, CliError> {
    let cdn = settings.cdn()?;
    let default = if cdn.is_some() { "search,cdn" } else { "search" };
    let names = settings.worker_handlers.as_deref().unwrap_or(default);
    let mut seen = Vec::new();
    let (mut search, mut cdn_again) = (None, None);
    for name in names.split(',').map(str::trim) {
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        worker = match name {
            "search" => {
                let source = Arc::<Origin>::clone(origin);
                let index = SearchIndex::new(dir.search(), source, SearchOptions::default());
                search = Some(index.clone());
                worker.handler("search", index)
            }
            "pages" => {
                let renderer = renderer(settings);
                let pages = PageCache::open(dir.cache(), &renderer.fingerprint(), settings.cache());
                let pages = pages.map_err(|error| CliError::failed(format!("{}: {error}", dir.cache().display())))?;
                worker.handler("pages", PageHandler::new(pages, Arc::<Origin>::clone(origin), renderer))
            }
            "cdn" => {
                let cdn =
                    cdn.clone().ok_or_else(|| CliError::Usage("the handler cdn needs --cdn and --site".into()))?;
                cdn_again.clone_from(&cdn.again);
                let worker = worker.handler("cdn", cdn.purge);
                match cdn.again {
                    Some(again) => worker.handler("cdn-again", again),
                    None => worker,
                }
            }
            _ => {
                return Err(CliError::Usage(format!(
                    "--worker-handlers: there is no {name:?}; write search, pages or cdn"
                )));
            }
        };
    }
    Ok(Working { worker, search, cdn_again })
}

fn renderer(settings: &Settings) -> Renderer {
    let renderer = Renderer::default();
    let Some(url) = &settings.site else { return renderer };
    let mut site = renderer.site().clone();
    site.base_url.clone_from(url);
    Renderer::new(site)
}

impl Service for Working {
    fn name(&self) -> &str {
        "worker"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        Service::start(&self.worker, ctx)
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        // A rebuild of the index would keep its lane's thread busy.
        if let Some(search) = &self.search {
            search.close();
        }
        if let Some(again) = &self.cdn_again {
            again.close();
        }
        self.worker.stop(deadline)
    }
}

fn failed(error: impl Display) -> CliError {
    CliError::failed(error.to_string())
}
