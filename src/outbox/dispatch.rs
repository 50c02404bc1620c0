//! Handlers and what they answer.

use std::time::Duration;

use super::Event;

/// Why a delivery did not succeed; decides what the relay does next.
///
/// Errors of I/O, SQLite, JSON, reads, writes and [`insert`](super::insert), and of the HTTP client `ureq` with feature
/// `sinks`, convert into it, so a handler may use `?`. What would hit the next event as well counts as an outage:
///
/// | error of | `Unavailable` | `Poison` | `Retry` |
/// |---|---|---|---|
/// | I/O | not reachable, cut, timed out; no space, memory, right, free address or file handle; a failing device | never | the rest |
/// | SQLite | busy, locked, full, read-only, corrupt, no database, not to be opened, I/O, memory | too big | constraint, statement, row, the rest |
/// | HTTP | no answer or none that is HTTP, TLS, proxy; 401, 403, 407, 429, 502 to 504 | the request cannot be made; other 4xx | 408, 425, other 5xx; an answer that cannot be used |
/// | JSON | reading it failed | it does not parse | |
/// | [`read`](crate::storage::Database::read) | no connection, not open, too long | | a read within a read |
/// | [`transact`](crate::storage::QueueWriter::transact) | full queue, stopped, the database failed, outcome unknown | larger than the queue | panicked, refused, a write within a write |
///
/// The closure's own error keeps its class in the last two. Here one inserts a follow-up event. Since it may be called twice for one event, it does so only if its own row is new:
///
/// ```
/// use vayu_articles::outbox::{self, DispatchError, Event, InsertError, NewEvent};
/// use vayu_articles::storage::Database;
///
/// fn bill(database: &Database, event: &Event) -> Result<(), DispatchError> {
///     let item: String = event.json()?;
///     let order = event.key.clone();
///     let mut due = NewEvent::new("invoice.due.v1", &item)?.causation_id(&event.event_id);
///     due.key.clone_from(&order);
///     due.correlation_id.clone_from(&event.correlation_id);
///     database.writer().transact(move |tx| {
///         let new = tx.execute("INSERT INTO invoices (order_key) VALUES (?1) ON CONFLICT DO NOTHING", [&order])?;
///         if new == 1 {
///             outbox::insert(tx, &due)?;
///         }
///         Ok::<_, InsertError>(())
///     })?;
///     Ok(())
/// }
/// # use vayu_articles::storage::{Component, Options};
/// # const SHOP: Component =
/// #     Component { name: "shop", migrations: &["CREATE TABLE invoices (order_key TEXT PRIMARY KEY) STRICT"] };
/// # let folder = tempfile::tempdir().unwrap();
/// # let database = Database::open(folder.path().join("a.db"), &[outbox::COMPONENT, SHOP], Options::default()).unwrap();
/// # let event = NewEvent::new("order.placed.v1", &"tea").unwrap().key("order-1").into_event(1);
/// # bill(&database, &event).unwrap();
/// # bill(&database, &event).unwrap();
/// # let count = "SELECT count(*) FROM event_outbox WHERE causation_id IS NOT NULL";
/// # let follow_ups: i64 = database.read(|c| c.query_row(count, [], |row| row.get(0))).unwrap();
/// # assert_eq!(follow_ups, 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchError {
    /// The handler failed on this event: tried again after 5 s, doubling to 120 s; dead letter after 3 calls.
    Retry {
        /// What happened.
        reason: String,
    },
    /// This event will never work: dead letter at once.
    Poison {
        /// Why not.
        reason: String,
    },
    /// What the handler needs is down: nothing is spent, the lane pauses and tries again.
    Unavailable {
        /// What is down.
        reason: String,
        /// How long the other side asked to be left alone; capped at 120 s.
        retry_after: Option<Duration>,
    },
}

impl DispatchError {
    /// A failure that is worth another try.
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::Retry { reason: reason.into() }
    }
    /// A failure that no further try will mend.
    pub fn poison(reason: impl Into<String>) -> Self {
        Self::Poison { reason: reason.into() }
    }
    /// An outage.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into(), retry_after: None }
    }
    /// The same outcome, its reason preceded by `what` and a colon.
    #[must_use]
    pub fn context(mut self, what: &str) -> Self {
        let (Self::Retry { reason } | Self::Poison { reason } | Self::Unavailable { reason, .. }) = &mut self;
        *reason = format!("{what}: {reason}");
        self
    }
}

/// A handler as a closure. With settings of its own it is a [`HandlerFn`](super::HandlerFn).
pub type DispatchFn = dyn Fn(&Event) -> Result<(), DispatchError> + Send + Sync;

/// Which events a lane delivers; the others pass by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EventFilter {
    /// Every event.
    #[default]
    All,
    /// Events of exactly these types, or whose type begins with the part before a final `*` (`article.*`).
    Types(Vec<String>),
}

/// What a dead letter does to later events of its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OnDeadLetter {
    /// They go on; the dead letter is passed over.
    #[default]
    Continue,
    /// They wait until an operator [replays](super::Operator::replay) or [discards](super::Operator::discard) it.
    ParkKey,
}

/// Where a lane that is new to the database begins. One that is known goes on where it stopped, whatever this says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum StartAt {
    /// At the oldest event the log still holds.
    #[default]
    Beginning,
    /// After the newest event.
    End,
}

/// Where a lane stands when a relay takes it: lets a sink with a store of its own notice that the store is behind,
/// ahead or foreign, and rebuild it before the first event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneStart {
    /// Everything up to this log position has an outcome.
    pub cursor: i64,
    /// Log position and event id of the newest event at or below the cursor that the lane's filter matches and the log
    /// still holds.
    pub last_event: Option<(i64, String)>,
}

impl LaneStart {
    /// A lane that stands at `cursor`; `last_event` as in the field. For tests of handlers.
    pub fn new(cursor: i64, last_event: Option<(i64, String)>) -> Self {
        Self { cursor, last_event }
    }
}

/// A handler: delivers events somewhere. At least once, so it must be idempotent.
///
/// No transaction or lock of the outbox is held during a call. A panic counts as [`DispatchError::Retry`] with its text.
pub trait Handler: Send + Sync + 'static {
    /// Delivers one event.
    ///
    /// # Errors
    /// A [`DispatchError`] that says what the relay shall do.
    fn handle(&self, event: &Event) -> Result<(), DispatchError>;

    /// Delivers several events at once, in order; only called when [`batch_limit`](Self::batch_limit) is above 1.
    /// When it errs or panics, each event is handed to [`handle`](Self::handle) alone and only those outcomes count.
    ///
    /// # Errors
    /// Any; the events are then delivered one by one.
    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        events.iter().try_for_each(|event| self.handle(event))
    }

    /// Most events in one [`handle_batch`](Self::handle_batch) call; 1 (the default) means never.
    fn batch_limit(&self) -> usize {
        1
    }

    /// How many threads of the lane call the handler at once, 1 to 64; 1 by default. All events of a key are called on one
    /// of them, in order; those without a key on any. With [`batch_limit`](Self::batch_limit) each thread gets batches of
    /// its own.
    fn concurrency(&self) -> usize {
        1
    }

    /// Which events to deliver; all by default.
    fn filter(&self) -> EventFilter {
        EventFilter::All
    }

    /// What a dead letter does to its key; [`OnDeadLetter::Continue`] by default.
    fn on_dead_letter(&self) -> OnDeadLetter {
        OnDeadLetter::Continue
    }

    /// Where a lane new to the database begins; [`StartAt::Beginning`] by default.
    fn start_at(&self) -> StartAt {
        StartAt::Beginning
    }

    /// How long a call may take before the lane is reported unhealthy; 30 s by default.
    fn time_limit(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Called on the lane's thread when the lane has been taken, before the first event.
    ///
    /// # Errors
    /// The lane pauses and asks again later.
    fn begin(&self, _lane: &LaneStart) -> Result<(), DispatchError> {
        Ok(())
    }
}

impl<F> Handler for F
where
    F: Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static,
{
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self(event)
    }
}

impl EventFilter {
    /// Whether an event of this type is delivered.
    pub fn matches(&self, event_type: &str) -> bool {
        match self {
            Self::All => true,
            Self::Types(patterns) => patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => event_type.starts_with(prefix),
                None => event_type == pattern,
            }),
        }
    }

    /// The form stored in `lanes.event_types`: a JSON list of patterns.
    pub(super) fn stored(&self) -> String {
        match self {
            Self::All => r#"["*"]"#.to_owned(),
            Self::Types(patterns) => serde_json::Value::from(patterns.as_slice()).to_string(),
        }
    }
}

impl OnDeadLetter {
    /// The form stored in `lanes.on_dead_letter`.
    pub(super) fn stored(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::ParkKey => "park_key",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_exact_types_and_prefixes() {
        let filter = EventFilter::Types(vec!["order.placed.v1".into(), "article.*".into()]);
        assert!(filter.matches("order.placed.v1"));
        assert!(!filter.matches("order.placed.v10"));
        assert!(filter.matches("article.created.v1"));
        assert!(!filter.matches("articles"));
        assert!(EventFilter::All.matches("anything"));
    }
}
