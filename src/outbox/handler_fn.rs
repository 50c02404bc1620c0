//! A closure as a handler, with the settings that a closure alone cannot have.

use std::fmt;
use std::time::Duration;

use super::{DispatchError, Event, EventFilter, Handler, OnDeadLetter, StartAt};

/// A closure with settings; each that is not set is as [`Handler`] has it.
///
/// ```
/// use std::time::Duration;
/// use vayu_articles::outbox::{self, Event, HandlerFn, OnDeadLetter, Relay, StartAt};
/// use vayu_articles::storage::{Database, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let database = Database::open(folder.path().join("shop.db"), &[outbox::COMPONENT], Options::default())?;
/// let mail = HandlerFn::new(|event: &Event| {
///     println!("mail about {}", event.event_type);
///     Ok(())
/// })
/// .types(&["order.*"])
/// .start_at(StartAt::End)
/// .time_limit(Duration::from_secs(10))
/// .on_dead_letter(OnDeadLetter::ParkKey);
/// let relay = Relay::builder(&database).handler("mail", mail).build()?;
/// # Ok(())
/// # }
/// ```
pub struct HandlerFn<F> {
    run: F,
    filter: EventFilter,
    start_at: StartAt,
    time_limit: Duration,
    on_dead_letter: OnDeadLetter,
    concurrency: usize,
}

impl<F> HandlerFn<F>
where
    F: Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static,
{
    /// The closure with the defaults: every event, from the beginning of the log, 30 s a call.
    pub fn new(run: F) -> Self {
        let defaults: &dyn Handler = &|_: &Event| Ok(());
        Self {
            run,
            filter: defaults.filter(),
            start_at: defaults.start_at(),
            time_limit: defaults.time_limit(),
            on_dead_letter: defaults.on_dead_letter(),
            concurrency: defaults.concurrency(),
        }
    }

    /// Only events of these types; a final `*` stands for any ending.
    #[must_use]
    pub fn types(mut self, types: &[&str]) -> Self {
        self.filter = EventFilter::Types(types.iter().map(|name| (*name).to_owned()).collect());
        self
    }

    /// Where the lane begins when it is new to the database.
    #[must_use]
    pub fn start_at(mut self, start_at: StartAt) -> Self {
        self.start_at = start_at;
        self
    }

    /// How long a call may take before the lane is reported unhealthy.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// What a dead letter does to later events of its key.
    #[must_use]
    pub fn on_dead_letter(mut self, on_dead_letter: OnDeadLetter) -> Self {
        self.on_dead_letter = on_dead_letter;
        self
    }

    /// How many threads call the closure at once; the events of one key are called on one of them, in order.
    #[must_use]
    pub fn concurrency(mut self, threads: usize) -> Self {
        self.concurrency = threads;
        self
    }
}

impl<F> Handler for HandlerFn<F>
where
    F: Fn(&Event) -> Result<(), DispatchError> + Send + Sync + 'static,
{
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        (self.run)(event)
    }

    fn filter(&self) -> EventFilter {
        self.filter.clone()
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        self.on_dead_letter
    }

    fn start_at(&self) -> StartAt {
        self.start_at
    }

    fn time_limit(&self) -> Duration {
        self.time_limit
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }
}

impl<F> fmt::Debug for HandlerFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFn")
            .field("filter", &self.filter)
            .field("start_at", &self.start_at)
            .field("time_limit", &self.time_limit)
            .field("on_dead_letter", &self.on_dead_letter)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closure_takes_the_defaults_of_a_handler_unless_told_otherwise() {
        let plain: &dyn Handler = &HandlerFn::new(|_: &Event| Ok(()));
        assert_eq!((plain.filter(), plain.start_at()), (EventFilter::All, StartAt::Beginning));
        assert_eq!((plain.time_limit(), plain.on_dead_letter()), (Duration::from_secs(30), OnDeadLetter::Continue));
        assert_eq!(plain.concurrency(), 1);
        let told: &dyn Handler = &HandlerFn::new(|_: &Event| Err(DispatchError::poison("no")))
            .types(&["order.*"])
            .start_at(StartAt::End)
            .time_limit(Duration::from_secs(1))
            .on_dead_letter(OnDeadLetter::ParkKey)
            .concurrency(4);
        assert_eq!(told.concurrency(), 4);
        assert!(told.filter().matches("order.placed") && !told.filter().matches("mail.sent"));
        assert_eq!((told.start_at(), told.time_limit()), (StartAt::End, Duration::from_secs(1)));
        assert_eq!(told.on_dead_letter(), OnDeadLetter::ParkKey);
        assert!(told.handle(&super::super::NewEvent::from_json("order.placed", "1").into_event(1)).is_err());
    }
}
