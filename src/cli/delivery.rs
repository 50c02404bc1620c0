//! The relay with the program's handlers: as a service of `serve`, and to deliver what an import caused.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::CliError;
use super::app::App;
use super::settings::CdnLanes;
use crate::lifecycle::{BoxError, Service, StartContext};
use crate::outbox::{Handler, LaneState, LaneStatus, Operator, Relay, RelayOptions};
use crate::sinks::cache::{PageCache, PageHandler};
use crate::sinks::cdn::CdnAgain;
use crate::sinks::search::SearchIndex;
use crate::sinks::webhook::Webhook;

/// How long the lanes may go without moving a cursor before an import stops waiting for them.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often its progress is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// How long the lanes may take to finish their calls and give themselves up.
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Handlers that only some settings ask for.
#[derive(Default)]
pub(super) struct Further {
    pub(super) broker: Option<Arc<dyn Handler>>,
    pub(super) webhooks: Vec<Arc<Webhook>>,
}

/// The relay, and what has to be told before it stops.
pub(super) struct Delivery {
    relay: Relay,
    search: SearchIndex,
    cdn_again: Option<CdnAgain>,
    operator: Operator,
    webhooks: Vec<Arc<Webhook>>,
}

impl Delivery {
    /// The relay with every handler of the program; `pages` is where rendered pages go, `cdn` where they are purged, `further` what else
    /// gets events.
    ///
    /// # Errors
    /// None that could happen: the handlers' names are fixed, or were checked, and differ.
    pub(super) fn new(
        app: &App,
        pages: PageCache,
        cdn: Option<CdnLanes>,
        further: Further,
        options: RelayOptions,
    ) -> Result<Self, CliError> {
        let repository = Arc::new(app.articles.repository().clone());
        let mut handlers = Relay::builder(&app.database)
            .options(options)
            .handler("search", app.search.clone())
            .handler("cache", PageHandler::new(pages, repository, app.renderer.clone()));
        let mut cdn_again = None;
        if let Some(CdnLanes { purge, again }) = cdn {
            handlers = handlers.handler("cdn", purge);
            if let Some(again) = &again {
                handlers = handlers.handler("cdn-again", again.clone());
            }
            cdn_again = again;
        }
        if let Some(broker) = further.broker {
            handlers = handlers.shared_handler("nats", broker);
        }
        for webhook in &further.webhooks {
            handlers = handlers.shared_handler(webhook.lane(), webhook.clone());
        }
        let relay = handlers.build().map_err(|error| CliError::failed(error.to_string()))?;
        let (search, operator) = (app.search.clone(), Operator::new(&app.database));
        Ok(Self { relay, search, cdn_again, operator, webhooks: further.webhooks })
    }

    /// The relay, to be looked at.
    #[cfg(feature = "server")]
    pub(super) fn relay(&self) -> &Relay {
        &self.relay
    }

    /// Runs the relay until every lane it owns has an outcome for everything that is committed now. A lane that another process
    /// owns is left to that process. Returns the lanes that did not get through, each with why; what they did not
    /// deliver stays in the log for the next relay.
    ///
    /// # Errors
    /// The relay cannot start or does not stop.
    pub(super) fn drain(&self) -> Result<Vec<String>, CliError> {
        self.relay.start().map_err(|error| CliError::failed(format!("the relay cannot start: {error}")))?;
        let left = self.wait_drained();
        self.search.close();
        self.relay.stop(Instant::now() + STOP_WITHIN).map_err(|error| CliError::failed(error.to_string()))?;
        Ok(left)
    }

    fn wait_drained(&self) -> Vec<String> {
        // What others commit meanwhile would have no end.
        let newest = self.operator.stats().map_or(i64::MAX, |stats| stats.last_id);
        let mut seen = (Vec::new(), Instant::now());
        loop {
            if self.relay.wait_drained(Instant::now() + LOOK) {
                return Vec::new();
            }
            let behind = self.behind(newest);
            // A lane that pauses has been refused by what it talks to, and will be again.
            let patience = if behind.iter().all(|lane| is_down(&lane.state)) { LOOK * 2 } else { PATIENCE };
            let cursors: Vec<i64> = behind.iter().map(|lane| lane.cursor).collect();
            if cursors != seen.0 {
                seen = (cursors, Instant::now());
            } else if seen.1.elapsed() >= patience {
                return behind.iter().map(why).collect();
            }
        }
    }

    /// Ends calls to endpoints that do not answer, unless the relay has `stopped` before. Those that do answer get half of the
    /// time to take what is committed.
    fn cut_webhooks(&self, stopped: &Receiver<()>, deadline: Instant) {
        let half = deadline.saturating_duration_since(Instant::now()) / 2;
        if stopped.recv_timeout(half) == Err(RecvTimeoutError::Timeout) {
            self.webhooks.iter().for_each(|webhook| webhook.close());
        }
    }

    /// The lanes of this relay that have not passed event `newest`.
    fn behind(&self, newest: i64) -> Vec<LaneStatus> {
        let mut lanes = self.relay.status();
        lanes.retain(|lane| lane.cursor < newest && !matches!(lane.state, LaneState::Standby { .. } | LaneState::Held));
        lanes
    }
}

fn is_down(state: &LaneState) -> bool {
    matches!(state, LaneState::Paused { .. } | LaneState::Waiting { .. } | LaneState::Failed { .. })
}

fn why(lane: &LaneStatus) -> String {
    match &lane.state {
        LaneState::Paused { reason, .. } | LaneState::Waiting { reason } | LaneState::Failed { reason } => {
            format!("{}: {reason}", lane.handler)
        }
        _ => format!("{}: it does not get on", lane.handler),
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
        // A rebuild of the index, and the wait for a second purge, would keep their lanes' threads busy.
        self.search.close();
        if let Some(again) = &self.cdn_again {
            again.close();
        }
        let (stopped, until_then) = crossbeam_channel::bounded::<()>(0);
        thread::scope(|scope| {
            let cutter = thread::Builder::new().name("webhook-cutter".to_owned());
            if let Err(error) = cutter.spawn_scoped(scope, move || self.cut_webhooks(&until_then, deadline)) {
                log::warn!("event=webhooks_not_cut error=\"{error}\"");
            }
            let done = Service::stop(&self.relay, deadline);
            drop(stopped);
            done
        })
    }
}
