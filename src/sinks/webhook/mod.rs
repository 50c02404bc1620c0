//! Webhooks: each event as a signed HTTP request to somebody else's endpoint.
//!
//! A message is a `POST` whose body is the event as a [CloudEvent](super::cloud_event) (`Content-Type:
//! application/cloudevents+json`), signed by the [Standard Webhooks](https://www.standardwebhooks.com) scheme:
//!
//! | header | is |
//! |---|---|
//! | `webhook-id` | [`message_id`](super::cloud_event::message_id): the same however often the event is sent; another after a forced or edited replay |
//! | `webhook-timestamp` | when this attempt was made, seconds since the Unix epoch |
//! | `webhook-signature` | `v1,` and Base64 of HMAC-SHA256 over `id.timestamp.body`; one for each secret, separated by spaces |
//!
//! [`verify`] is what a receiver in Rust calls; libraries for the scheme exist for most languages. An id of a foreign hand is
//! percent-encoded in the header where it has a dot or what no header carries.
//!
//! Which answer means what:
//!
//! | answer | what happens |
//! |---|---|
//! | 2xx, whatever the body | delivered |
//! | 408, 425, 429, 502, 503, 504 | `Unavailable`, for as long as `Retry-After` says (seconds or date, at most 120 s) |
//! | none: no such name, no connection, wrong certificate, cut connection, silence beyond [`WebhookOptions::timeout`] | `Unavailable` |
//! | 401, 403, 407 | `Unavailable`: secrets differ, or a clock is wrong; it is no fault of the event |
//! | 410 | `Unavailable` for 120 s: the endpoint wants no more, so it is hardly asked, and nothing is thrown away until somebody decides |
//! | none asked for: the host is in a private network and that is not allowed | `Unavailable`: mend the settings or the name |
//! | 500 and every other 5xx | `Retry` |
//! | 3xx (redirects are not followed), every other 4xx, any other number | `Poison` |
//!
//! `Unavailable` spends nothing: the lane pauses, shows the reason (`outbox stats`) and goes on by itself, in order per key. `Retry`
//! spends one of the event's tries. `Poison` makes a dead letter, which is kept and can be replayed.
//!
//! **Where it may connect to.** Unless [`WebhookOptions::allow_private`] is set, no connection is made to an address that is
//! loopback, private, link-local, shared, multicast, reserved or a tunnel to such. What counts are the addresses a connection is
//! made to, at the moment it is made, whatever the name meant before and however a number was written. Proxies of the environment are
//! not asked.
//!
//! Each endpoint is a [`Handler`] of its own and so has its own lane, cursor and dead letters: one that is down delays no
//! other. A new lane begins at the end of the log.

mod answer;
mod guard;
mod network;
mod options;
mod signature;

use std::fmt;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::DefaultConnector;

pub use guard::Lookup;
pub use options::{TIMEOUT_MAX, WebhookOptions, WebhookOptionsError};
pub use signature::{Received, Secret, SecretError, TOLERANCE, VerifyError, verify};

use self::guard::Guard;
use super::answer::excerpt;
use super::cloud_event;
use crate::clock::SharedClock;
use crate::outbox::{DispatchError, Event, EventFilter, Handler, OnDeadLetter, StartAt};

/// An answer's body is read up to here, in bytes.
const BODY_MAX: u64 = 16 << 10;
/// Finding the address, and connecting to it, may take so long each. [`Webhook::close`] cannot cut either.
const REACH_TIME: Duration = Duration::from_secs(4);
/// Once the status is there, the rest of an answer may take so long: it decides nothing.
const BODY_TIME: Duration = Duration::from_secs(2);

/// The [`Handler`] that sends events to one endpoint.
pub struct Webhook {
    options: WebhookOptions,
    agent: Agent,
    clock: SharedClock,
}

impl Webhook {
    /// A handler for this endpoint. Nothing is sent before the first event. `clock` gives the messages their time.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn new(options: WebhookOptions, clock: SharedClock) -> Result<Self, WebhookOptionsError> {
        Self::build(options, clock, None)
    }

    /// The same, with a resolver of the caller's. What it finds is judged like anything else.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn with_lookup(
        options: WebhookOptions,
        clock: SharedClock,
        lookup: Arc<Lookup>,
    ) -> Result<Self, WebhookOptionsError> {
        Self::build(options, clock, Some(lookup))
    }

    fn build(
        options: WebhookOptions,
        clock: SharedClock,
        lookup: Option<Arc<Lookup>>,
    ) -> Result<Self, WebhookOptionsError> {
        options.check()?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .max_idle_connections_per_host(options.concurrency)
            .timeout_global(Some(options.timeout))
            .timeout_resolve(Some(REACH_TIME))
            .timeout_connect(Some(REACH_TIME))
            .timeout_recv_body(Some(BODY_TIME))
            // What an endpoint says is of no interest: it need not be packed, nor unpacked here.
            .accept_encoding("")
            .user_agent(options.user_agent.as_str())
            .build();
        let guard = Guard { allow_private: options.allow_private, lookup, system: DefaultResolver::default() };
        let agent = Agent::with_parts(config, DefaultConnector::default(), guard);
        Ok(Self { options, agent, clock })
    }

    /// The name of its lane: `webhook:` and the endpoint's name.
    pub fn lane(&self) -> String {
        format!("webhook:{}", self.options.name)
    }

    /// Cuts the calls under way and makes no more: each is `Unavailable`, so its event stays in the log. For a stop that cannot
    /// wait for an endpoint that does not answer.
    pub fn close(&self) {
        self.agent.clone().shutdown();
    }

    fn send(&self, event: &Event) -> Result<(), DispatchError> {
        let id = signature::header_id(&cloud_event::message_id(event));
        let body = cloud_event::encode(event, &self.options.source);
        let timestamp = self.clock.now_ms().div_euclid(1_000).max(0);
        let request = self
            .agent
            .post(&self.options.url)
            .header("Content-Type", cloud_event::CONTENT_TYPE)
            .header("webhook-id", &id)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", signature::sign(&self.options.secrets, &id, timestamp, &body));
        let mut response = request.send(&body).map_err(no_answer)?;
        // Read to its end, so that the connection can be used again. The status has decided already.
        let mut said = Vec::new();
        let _ = response.body_mut().as_reader().take(BODY_MAX).read_to_end(&mut said);
        let retry_after = response.headers().get("Retry-After").and_then(|value| value.to_str().ok());
        let detail = excerpt(&String::from_utf8_lossy(&said));
        answer::judge(response.status().as_u16(), retry_after, &detail, self.clock.now_ms())
    }
}

/// Nobody was asked, or nobody answered: no fault of the event.
fn no_answer(error: ureq::Error) -> DispatchError {
    match error {
        ureq::Error::Other(refused) if refused.is::<guard::Refused>() => {
            DispatchError::unavailable(refused.to_string())
        }
        error => DispatchError::unavailable(format!("the endpoint cannot be reached: {error}")),
    }
}

impl Handler for Webhook {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.send(event)
    }

    fn concurrency(&self) -> usize {
        self.options.concurrency
    }

    fn filter(&self) -> EventFilter {
        self.options.filter.clone()
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        self.options.on_dead_letter
    }

    fn start_at(&self) -> StartAt {
        self.options.start_at
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("options", &self.options).finish_non_exhaustive()
    }
}
