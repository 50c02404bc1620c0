//! `serve`: the services in their order, from the start to the exit code.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::access::ADMIN_VARIABLE;
use super::app::App;
use super::delivery::{Delivery, Further};
use super::import::{self, Source};
use super::notify::Notifier;
use super::output::Output;
use super::settings::{DataDir, Settings};
use super::{CliError, ServeArgs, access, exit};
use crate::article::{ListQuery, prune_request_keys};
use crate::http::engine::Engine;
use crate::http::{Access, Health, Site, SiteParts};
use crate::jobs::JobRunner;
use crate::lifecycle::{BoxError, Handle, Manager, StartError};
use crate::outbox::{Handler, Operator, Relay};
use crate::sinks::cache::PageCache;
#[cfg(feature = "nats")]
use crate::sinks::nats::NatsSink;

/// Serves until a signal or a failure. The exit code is 0 only for a clean stop that was asked for.
pub(super) fn run(
    settings: &Settings,
    args: &ServeArgs,
    on_signals: &dyn Fn(&Handle) -> Result<(), BoxError>,
) -> Result<u8, CliError> {
    if args.print_config {
        let mut out = Output::new();
        for line in settings.print().lines() {
            out.line(line)?;
        }
        out.flush()?;
        return Ok(exit::OK);
    }
    let seed = args.seed.as_deref().map(|path| Source::open(path, None)).transpose().map_err(CliError::Failed)?;
    let cdn = settings.cdn()?;
    let edge = settings.edge()?;
    let further = further_handlers(settings)?;
    let access = access::options(&DataDir::at(&settings.data), settings)?;
    let dir = DataDir::for_articles(&settings.data)?;
    let access = Access::open(access).map_err(failed)?;
    let app = App::new(&dir, settings).at_site(settings.site.as_deref());
    let cache = app.pages()?;
    let mut manager = Manager::new(settings.manager());
    let delivery = Delivery::new(&app, cache.clone(), cdn, further, settings.relay())?;
    let site = site(&app, cache, access.clone(), delivery.relay(), manager.handle());
    let runner = JobRunner::new(&app.database, settings.jobs());
    let site = site.with_jobs(app.jobs.clone(), runner.clone()).with_edge(edge);
    let engine = Arc::new(site.serve_on(settings.engine()));
    register(&mut manager, &app, runner, delivery, engine.clone()).map_err(failed)?;
    on_signals(&manager.handle()).map_err(failed)?;

    match manager.start() {
        Ok(()) => {}
        Err(StartError::Stopped(outcome)) => return Ok(outcome.exit_code()),
        Err(error) => return Err(not_started(&dir, &error)),
    }
    forget_old_keys(&app);
    if let Some(source) = &seed
        && let Err(error) = plant(&app, source)
        // A stop asked for meanwhile is why it failed, and no failure: `import` goes on from there.
        && manager.handle().status().stop_cause.is_none()
    {
        manager.stop("the seed could not be imported");
        return Err(error);
    }
    let addr = engine.local_addr();
    let notifier = Notifier::ready(manager.handle(), &addr.map(|addr| addr.to_string()).unwrap_or_default());
    if let Some(addr) = addr {
        // Whoever started this may have closed stdout; that is no reason not to serve.
        let _ = announce(addr, &settings.data, &access);
    }
    let cause = manager.wait();
    notifier.stopping(&cause.to_string());
    let outcome = manager.stop(cause.to_string());
    if outcome.is_clean() { Ok(exit::OK) } else { Err(CliError::failed(outcome.to_string())) }
}

/// What else gets events: the broker and the webhooks' endpoints, as far as they are set.
fn further_handlers(settings: &Settings) -> Result<Further, CliError> {
    let webhooks = settings.webhooks()?.into_iter().map(Arc::new).collect();
    Ok(Further { broker: broker(settings)?, webhooks })
}

#[cfg(feature = "nats")]
fn broker(settings: &Settings) -> Result<Option<Arc<dyn Handler>>, CliError> {
    let Some(options) = settings.nats()? else { return Ok(None) };
    let sink = NatsSink::new(options).map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(Some(Arc::new(sink)))
}

#[cfg(not(feature = "nats"))]
fn broker(settings: &Settings) -> Result<Option<Arc<dyn Handler>>, CliError> {
    match settings.nats {
        Some(_) => Err(CliError::Usage(format!("--nats: {}", super::WITHOUT_NATS))),
        None => Ok(None),
    }
}

/// Removes request keys that are past their time, in bounded steps. Those of the time to come go with each new key.
fn forget_old_keys(app: &App) {
    const MAX_STEPS: u32 = 500;
    const PER_STEP: u32 = 100;
    for _ in 0..MAX_STEPS {
        let now_ms = app.database.clock().now_ms();
        match app.database.writer().transact(move |tx| prune_request_keys(tx, now_ms, PER_STEP)) {
            Ok(removed) if removed == PER_STEP as usize => {}
            Ok(_) => return,
            Err(error) => return log::warn!("event=request_keys_kept error=\"{error}\""),
        }
    }
}

/// Why the start failed, with the file if it was the database. A log on stderr has the reason already.
fn not_started(dir: &DataDir, error: &StartError) -> CliError {
    let StartError::Failed { failure, .. } = error else { return CliError::failed(error.to_string()) };
    let mut what = failure.service.clone();
    if what == "storage" {
        what = format!("{what} ({})", dir.articles().display());
    }
    if log::log_enabled!(target: "vayu_articles::lifecycle", log::Level::Error) {
        return CliError::failed(format!(
            "the service {what} did not start: the reason stands above, with phase=failed"
        ));
    }
    CliError::failed(format!("the service {what} did not start: {}", failure.error))
}

/// Start order; the stop is the reverse.
fn register(
    manager: &mut Manager,
    app: &App,
    runner: JobRunner,
    delivery: Delivery,
    engine: Arc<Engine>,
) -> Result<(), BoxError> {
    manager.register(app.database.storage_service())?;
    manager.register(app.database.writer_service())?;
    manager.register(runner)?;
    manager.register(delivery)?;
    manager.register(engine)?;
    Ok(())
}

fn site(app: &App, cache: PageCache, access: Access, relay: &Relay, handle: Handle) -> Site {
    let (relay, operator) = (relay.clone(), Operator::new(&app.database));
    Site::new(SiteParts {
        articles: app.articles.clone(),
        search: Arc::new(app.search.clone()),
        cache,
        renderer: app.renderer.clone(),
        access,
        relay: relay.clone(),
        health: Box::new(move || Health::look(&handle, &relay, &operator)),
    })
}

/// Imports `source` if no article was ever stored.
fn plant(app: &App, source: &Source) -> Result<(), CliError> {
    let all = ListQuery { limit: 1, status: None, ..ListQuery::default() };
    if app.articles.list(&all).map_err(failed)?.total > 0 {
        return Ok(());
    }
    let report = import::import(app, source)?;
    let _ = writeln!(io::stdout(), "{report}");
    Ok(())
}

fn announce(addr: SocketAddr, data: &Path, access: &Access) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let shown = data.display();
    let (program, data) = (started_as(), quoted(&shown.to_string()));
    writeln!(out, "vayu-articles serves http://{addr}/ from {shown}")?;
    if let Some(file) = access.admin_file() {
        let made = if access.has_made_admin() { ", made just now" } else { "" };
        writeln!(out, "The administrator's token stands in {}{made}.", file.display())?;
    }
    let bearer = format!("-H \"Authorization: Bearer {}\"", token_for_a_shell(access));
    writeln!(
        out,
        "
Open that address in a browser, or try in another terminal:
  curl 'http://{addr}/api/v1/search?q=outbox'
  curl -i http://{addr}/api/v1/articles {bearer} \\
    -H 'Content-Type: application/json' \\
    -d '{{\"title\": \"My first post\", \"content\": \"Hello, *outbox*.\", \"tags\": [\"hello\"]}}'
  curl http://{addr}/api/v1/articles/my-first-post
  curl -X DELETE http://{addr}/api/v1/articles/my-first-post {bearer}
  {program} outbox stats --data {data}

Ctrl-C stops it."
    )?;
    out.flush()
}

/// What a shell puts in the place of the administrator's token; never the token.
fn token_for_a_shell(access: &Access) -> String {
    match access.admin_file() {
        Some(file) => format!("$(cat {})", quoted(&file.display().to_string())),
        None => format!("${ADMIN_VARIABLE}"),
    }
}

/// The program as the user named it, so that the command can be pasted into the same shell.
fn started_as() -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "vayu-articles".into());
    quoted(&program.to_string_lossy())
}

/// `text` as one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:~+,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('~') {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn failed(error: impl Display) -> CliError {
    CliError::failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("./target/release/vayu-articles"), "./target/release/vayu-articles");
        assert_eq!(quoted("/my data/it's"), r"'/my data/it'\''s'");
        assert_eq!(quoted("$(x)"), "'$(x)'");
    }
}
