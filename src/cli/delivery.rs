//! The relay with the program's handlers: as a service of `serve`, and to deliver what an import caused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::CliError;
use super::app::App;
use crate::lifecycle::{BoxError, Service, StartContext};
use crate::outbox::{Operator, Relay};
use crate::sinks::cache::{PageCache, PageHandler};
use crate::sinks::cdn::CdnPurge;
use crate::sinks::search::SearchIndex;

/// How long the relay may go without getting on by a single event before an import stops waiting for it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often its progress is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the lanes may take to finish their calls and give themselves up.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// The relay, and what has to be told before it stops.
pub(super) struct Delivery {
    relay: Relay,
    search: SearchIndex,
    operator: Operator,
}

impl Delivery {
    /// The relay with every handler of the program; `pages` is where rendered pages go, `cdn` where they are purged.
    ///
    /// # Errors
    /// None that could happen: the handlers' names are fixed and differ.
    pub(super) fn new(app: &App, pages: PageCache, cdn: Option<CdnPurge>) -> Result<Self, CliError> {
        let repository = Arc::new(app.articles.repository().clone());
        let mut handlers = Relay::builder(&app.database)
            .handler("search", app.search.clone())
            .handler("cache", PageHandler::new(pages, repository, app.renderer.clone()));
        if let Some(cdn) = cdn {
            handlers = handlers.handler("cdn", cdn);
        }
        let relay = handlers.build().map_err(|error| CliError::failed(error.to_string()))?;
        Ok(Self { relay, search: app.search.clone(), operator: Operator::new(&app.database) })
    }

    /// The relay, to be looked at.
    #[cfg(feature = "server")]
    pub(super) fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Runs the relay until every lane it owns has an outcome for everything committed. A lane that another process
    /// owns is left to that process. Returns whether all was delivered; the rest stays in the log for the next relay.
    ///
    /// # Errors
    /// The relay cannot start or does not stop.
    pub(super) fn drain(&self) -> Result<bool, CliError> {
        self.relay.start().map_err(|error| CliError::failed(format!("the relay cannot start: {error}")))?;
        let drained = self.wait_drained();
        self.search.close();
        self.relay.stop(Instant::now() + STOP_WITHIN).map_err(|error| CliError::failed(error.to_string()))?;
        Ok(drained)
    }

    fn wait_drained(&self) -> bool {
        let mut behind = u64::MAX;
        let mut give_up = Instant::now() + PATIENCE;
        while Instant::now() < give_up {
            if self.relay.wait_drained(Instant::now() + LOOK) {
                return true;
            }
            let now_behind = self.behind();
            if now_behind < behind {
                behind = now_behind;
                give_up = Instant::now() + PATIENCE;
            }
        }
        false
    }

    /// Log rows after the lanes' cursors, all lanes together.
    fn behind(&self) -> u64 {
        let Ok(stats) = self.operator.stats() else { return u64::MAX };
        let lag = |cursor: i64| stats.last_id.saturating_sub(cursor).max(0).unsigned_abs();
        stats.lanes.iter().fold(0, |sum, lane| sum.saturating_add(lag(lane.cursor)))
    }
}

impl Service for Delivery {
    fn name(&self) -> &str {
        "relay"
    }

    fn start(&self, ctx: &StartContext) -> Result<(), BoxError> {
        Service::start(&self.relay, ctx)
    }

    fn stop(&self, deadline: Instant) -> Result<(), BoxError> {
        // A rebuild of the index would keep its lane's thread busy.
        self.search.close();
        Service::stop(&self.relay, deadline)
    }
}
