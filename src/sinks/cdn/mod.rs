//! Purging a CDN: tells a cache in front of the site what went stale, over HTTP.
//!
//! An event's addresses are the article's page under its new and its old slug, the home page, the same article and lists in the API, and
//! the pages of all its tags, new and old; they stand in the event, since what was before cannot be looked up. Instead of addresses a
//! cache may be told [`keys`], which its pages carry. Either
//! go out in calls of a bounded size, the article and the home page in the first, and the event is
//! delivered once every call has succeeded. What has been purged is remembered in memory, so that after a failure only the rest is
//! sent; after a restart, or when an operator replays the event, all of it is sent again, which does no harm.
//!
//! Purging by address reaches exactly the addresses named ([`named_path`]): further pages of a list (`/?page=2`) stay until they
//! expire, so let the cache keep none but those named, or ignore queries. Purging by key reaches all of them.
//!
//! Which requests these are says [`CdnShape`]. Redirects are not followed. Which answer means what:
//!
//! | answer | what happens |
//! |---|---|
//! | 2xx, whatever the body; 404, 410 | these addresses or keys are purged |
//! | 400, 413, 422 to several of them | they are sent again in halves, at once |
//! | 400, 413, 422 to a single one | `Poison`, after the others were tried; if nothing was purged before it, they are not tried |
//! | 401, 403, 407 | `Unavailable`: the token is wrong or has expired |
//! | 408, 429, 502, 503, 504 | `Unavailable`, for as long as `Retry-After` says (seconds or date, at most 120 s) |
//! | none: no connection, cut connection, silence beyond [`CdnOptions::timeout`] | `Unavailable` |
//! | 500 and every other 5xx | that call is repeated once at once; then `Retry`, after the others were tried |
//! | 3xx, every other 4xx, any other number | `Poison`; the rest is not tried |
//!
//! `Unavailable` spends nothing: the lane pauses, shows the reason (`outbox stats`), asks again by itself and goes on with
//! the same event. With a token that has expired it therefore waits, however long that takes, and loses nothing; start the
//! program again with the new token and the lane catches up. `Retry` spends one of the event's tries. `Poison` makes a dead
//! letter, which is kept: once the settings are mended, `outbox replay cdn --all` makes all of them due again (`cdn` being the handler's name).
//!
//! What was on its way from the server into the cache during a purge is stale and stays there: [`CdnAgain`] purges a second time.

mod again;
mod answer;
mod call;
pub mod keys;
mod options;
mod urls;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use again::{CdnAgain, DELAY_MAX};
pub use options::{CdnOptions, CdnOptionsError, CdnShape, KEY_HEADER, UnknownShape, key_header};
pub use urls::{SITE_PATHS, named_path};

use super::change::{Change, article_event_types};
use crate::clock::SharedClock;
use crate::outbox::{DispatchError, Event, EventFilter, Handler};
use answer::Verdict;
use call::Caller;

/// Events whose addresses go out together.
const BATCH: usize = 32;
/// The same where each address is a call.
const BATCH_OF_SINGLE: usize = 8;
/// One delivery, all its calls together, takes no longer; the relay's limit for a handler is 30 s.
const DELIVERY_TIME: Duration = Duration::from_secs(25);
/// Events whose progress is remembered.
const REMEMBERED: usize = 256;

/// The [`Handler`] that purges. Cheap to clone.
#[derive(Clone)]
pub struct CdnPurge {
    inner: Arc<Inner>,
}

struct Inner {
    caller: Caller,
    unfinished: Mutex<VecDeque<Unfinished>>,
}

/// What is left to purge of an event whose delivery failed.
struct Unfinished {
    event_id: String,
    replays: u32,
    items: Vec<String>,
}

impl CdnPurge {
    /// A handler with these settings. Nothing is sent before the first event.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn new(options: CdnOptions, clock: SharedClock) -> Result<Self, CdnOptionsError> {
        let caller = Caller::new(options, clock)?;
        Ok(Self { inner: Arc::new(Inner { caller, unfinished: Mutex::default() }) })
    }
}

impl Handler for CdnPurge {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        let change = Change::of(event)?;
        let inner = &*self.inner;
        let items = inner.left_of(event).unwrap_or_else(|| inner.stale(std::slice::from_ref(&change)));
        inner.purge(items).map_err(|failure| {
            inner.remember(event, failure.left);
            failure.error
        })
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        let changes = events.iter().map(Change::of).collect::<Result<Vec<_>, _>>()?;
        self.inner.purge(self.inner.stale(&changes)).map_err(|failure| failure.error)
    }

    fn batch_limit(&self) -> usize {
        if self.inner.caller.options.shape.is_single() { BATCH_OF_SINGLE } else { BATCH }
    }

    fn filter(&self) -> EventFilter {
        article_event_types()
    }
}

/// A delivery that did not come to its end.
struct Failure {
    error: DispatchError,
    left: Vec<String>,
}

impl Inner {
    /// What to purge after `changes`, in the cache's terms.
    fn stale(&self, changes: &[Change]) -> Vec<String> {
        match self.caller.options.shape {
            CdnShape::Keys => keys::stale(changes),
            _ => urls::stale(&self.caller.options, changes),
        }
    }

    /// Purges all of `items`, call by call. What cannot be done now goes into the failure together with the rest.
    fn purge(&self, items: Vec<String>) -> Result<(), Failure> {
        let deadline = Instant::now() + DELIVERY_TIME;
        let mut calls = VecDeque::from(self.caller.calls(items));
        let (mut left, mut worst, mut any_done) = (Vec::new(), None, false);
        while let Some(call) = calls.pop_front() {
            match self.caller.call(&call, deadline) {
                Verdict::Done => any_done = true,
                Verdict::Split(_) if call.len() > 1 => {
                    let (first, second) = call.split_at(call.len() / 2);
                    calls.push_front(second.to_vec());
                    calls.push_front(first.to_vec());
                }
                Verdict::Split(error) if any_done => {
                    // This address alone is not liked: the others shall not suffer for it.
                    left.extend(call);
                    worst.get_or_insert(error);
                }
                Verdict::Failed(error @ DispatchError::Retry { .. }) => {
                    left.extend(call);
                    // A further try is worth more than the dead letter.
                    worst = Some(error);
                }
                Verdict::Split(error) | Verdict::Refused(error) | Verdict::Failed(error) => {
                    left.extend(call);
                    left.extend(calls.into_iter().flatten());
                    return Err(Failure { error, left });
                }
            }
        }
        worst.map_or(Ok(()), |error| Err(Failure { error, left }))
    }

    fn left_of(&self, event: &Event) -> Option<Vec<String>> {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        let at = unfinished.iter().position(|it| it.event_id == event.event_id)?;
        // A replay is a wish to have all of it purged.
        unfinished.remove(at).filter(|it| it.replays == event.replays).map(|it| it.items)
    }

    fn remember(&self, event: &Event, items: Vec<String>) {
        let mut unfinished = self.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
        if unfinished.len() == REMEMBERED {
            unfinished.pop_front();
        }
        unfinished.push_back(Unfinished { event_id: event.event_id.clone(), replays: event.replays, items });
    }
}

impl fmt::Debug for CdnPurge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CdnPurge").field("options", &self.inner.caller.options).finish_non_exhaustive()
    }
}
