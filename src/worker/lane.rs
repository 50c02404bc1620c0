//! One lane of a worker: a thread that runs one message after the other through the ledger.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, select_biased};

use super::WorkerOptions;
use super::broker::Delivery;
use crate::clock::{Clock as _, SystemClock};
use crate::lifecycle::BoxError;
use crate::outbox::{
    DispatchError, Event, EventFilter, Handler, LaneStart, Ledger, LedgerError, LedgerOutcome, NewEvent, Policy,
};
use crate::sinks::cloud_event;

/// A wait for something that somebody else ends is cut into pieces of this length.
const LOOK: Duration = Duration::from_secs(1);
/// Replayed events looked for at once.
const DUE: usize = 64;
/// How often finished entries are looked for that can be forgotten.
const PRUNE_EVERY: Duration = Duration::from_secs(3_600);

/// A handler and what its lanes share.
pub(super) struct Subscriber {
    name: String,
    handler: Arc<dyn Handler>,
    filter: EventFilter,
    ledger: Ledger,
    policy: Policy,
    poll: Duration,
    stream: String,
    /// Whether the handler has begun.
    begun: Mutex<bool>,
    /// Calls that went well, in all lanes: tells an outage from one event that never gets through.
    successes: AtomicU64,
}

impl Subscriber {
    pub(super) fn new(
        name: &str,
        handler: Arc<dyn Handler>,
        ledger: Ledger,
        options: &WorkerOptions,
    ) -> Result<Self, BoxError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        if name.is_empty() || name.len() > 100 || !name.chars().all(allowed) {
            return Err(format!("handler name {name:?} is not allowed").into());
        }
        Ok(Self {
            name: name.to_owned(),
            filter: handler.filter(),
            handler,
            ledger,
            policy: options.policy.clone(),
            poll: options.poll.max(Duration::from_millis(1)),
            stream: options.nats.stream.clone(),
            begun: Mutex::new(false),
            successes: AtomicU64::new(0),
        })
    }
}

/// The running call, for whoever watches the time.
#[derive(Debug)]
pub(super) struct Calls {
    limit: Duration,
    begun: Mutex<Option<Instant>>,
}

impl Calls {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, begun: Mutex::new(None) }
    }

    fn set(&self, begun: Option<Instant>) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = begun;
    }

    /// A thread cannot be killed, but it can be named.
    pub(super) fn report_overdue(&self, handler: &str, position: u64) {
        let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = begun.map(|at| at.elapsed()).filter(|running| *running > self.limit) {
            log::warn!("worker handler={handler} position={position} overdue_ms={}", running.as_millis());
        }
    }
}

/// How an event left the lane's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// Done or given up, durably.
    Over,
    /// The worker stops: somebody else shall have it.
    Back,
}

/// What one delivery to the ledger came to.
enum Attempted {
    /// Done or given up, durably.
    Over,
    /// Not now; try again after this long.
    Again(Duration),
    /// Something else has to end first.
    Behind(Duration),
}

/// An outage, or a ledger that cannot be written, as the event in hand has met it.
#[derive(Debug, Clone, Default)]
struct Trouble {
    failed: u32,
    /// Calls that had gone well when it began.
    successes_before: Option<u64>,
}

impl Trouble {
    fn pause(&mut self, policy: &Policy, asked: Option<Duration>) -> Duration {
        self.failed = self.failed.saturating_add(1);
        policy.pause_delay(self.failed, asked, fastrand::f64())
    }
}

pub(super) struct Lane {
    subscriber: Arc<Subscriber>,
    deliveries: Receiver<Delivery>,
    stop: Receiver<()>,
    calls: Arc<Calls>,
    /// When to look for replayed events next; `None` in all lanes of a handler but one.
    house_at: Option<Instant>,
    house_trouble: Trouble,
    pruned: Option<Instant>,
}

impl Lane {
    pub(super) fn new(
        subscriber: Arc<Subscriber>,
        deliveries: Receiver<Delivery>,
        stop: Receiver<()>,
        calls: Arc<Calls>,
        keeps_house: bool,
    ) -> Self {
        let house_at = keeps_house.then(Instant::now);
        Self { subscriber, deliveries, stop, calls, house_at, house_trouble: Trouble::default(), pruned: None }
    }

    /// The thread's whole life. What it is handed in its last moments falls back to the broker.
    pub(super) fn run(mut self) {
        if self.begin() == Settled::Over {
            self.serve();
        }
        // Until the broker's side has ended, too: a message left lying in the channel would stay ours.
        while let Ok(delivery) = self.deliveries.recv() {
            drop(delivery);
        }
    }

    fn serve(&mut self) {
        loop {
            let delivery = select_biased! {
                recv(self.stop) -> _ => return,
                recv(self.deliveries) -> delivery => delivery.map(Some),
                default(self.subscriber.poll) => Ok(None),
            };
            match delivery {
                Ok(Some(delivery)) => {
                    if self.take(&delivery) == Settled::Back {
                        return;
                    }
                    delivery.acknowledge();
                }
                Ok(None) => {}
                // The broker's side ends only when it is told to.
                Err(_) => drop(self.stop.recv()),
            }
            self.keep_house();
        }
    }

    /// Lets the handler look at what it has, once for all its lanes.
    fn begin(&self) -> Settled {
        let subscriber = &self.subscriber;
        let mut failed = 0_u32;
        loop {
            let answer = match subscriber.begun.try_lock() {
                Ok(begun) if *begun => return Settled::Over,
                Ok(mut begun) => {
                    // Where a worker stands in the origin's log is not known: whoever asks shall compare everything.
                    let start = LaneStart::new(i64::MAX, None);
                    let answer = caught(|| subscriber.handler.begin(&start));
                    *begun = answer.is_ok();
                    answer
                }
                Err(TryLockError::Poisoned(_)) => return Settled::Over,
                Err(TryLockError::WouldBlock) => {
                    if self.stops_within(LOOK.min(subscriber.poll)) {
                        return Settled::Back;
                    }
                    continue;
                }
            };
            let Err(error) = answer else { return Settled::Over };
            failed = failed.saturating_add(1);
            let pause = subscriber.policy.pause_delay(failed, None, fastrand::f64());
            log::warn!("{}", cannot_begin(&subscriber.name, &error, pause));
            if self.stops_within(pause) {
                return Settled::Back;
            }
        }
    }

    fn take(&self, delivery: &Delivery) -> Settled {
        let subscriber = Arc::clone(&self.subscriber);
        if delivery.delivered > 1 {
            let (name, position, delivered) = (&subscriber.name, delivery.position, delivery.delivered);
            log::info!("worker handler={name} position={position} delivered={delivered}");
        }
        let position = i64::try_from(delivery.position).unwrap_or(i64::MAX);
        let refused = match cloud_event::decode(&delivery.body, position) {
            Ok(event) if !subscriber.filter.matches(&event.event_type) => return Settled::Over,
            Ok(event) => match self.work(&event, None) {
                Ok(settled) => return settled,
                Err(reason) => reason,
            },
            Err(reason) => reason,
        };
        // A message that can never be run is a dead letter under its place in the stream, and the time at which it came
        // there: a stream that was deleted and made anew counts from 1 again.
        let mut event = NewEvent::from_json("undecodable", String::from_utf8_lossy(&delivery.body));
        event.event_id = format!("{}:{position}:{}", subscriber.stream, delivery.stored_at);
        self.work(&event.into_event(position), Some(&refused)).unwrap_or(Settled::Over)
    }

    /// Runs the event until it is over or the worker stops. `Err`: the ledger cannot take it, and never will.
    fn work(&self, event: &Event, refused: Option<&str>) -> Result<Settled, String> {
        let (mut trouble, mut earlier) = (Trouble::default(), Trouble::default());
        loop {
            let wait = match self.attempt(event, refused, &mut trouble)? {
                Attempted::Over => {
                    if trouble.failed > 0 {
                        let (name, pauses) = (&self.subscriber.name, trouble.failed);
                        log::warn!("worker handler={name} event_id={} resumed pauses={pauses}", event.event_id);
                    }
                    return Ok(Settled::Over);
                }
                Attempted::Again(wait) => wait,
                Attempted::Behind(wait) => self.clear_the_way(event, &mut earlier).unwrap_or(wait),
            };
            if self.stops_within(wait) {
                self.let_go(event);
                return Ok(Settled::Back);
            }
        }
    }

    /// Another worker may run the event, and later ones of its key, before this one is back: what has cost nothing here is
    /// then of no concern to it.
    fn let_go(&self, event: &Event) {
        let subscriber = &*self.subscriber;
        if let Err(error) = subscriber.ledger.let_go(&event.event_id, &subscriber.name) {
            log::warn!("worker handler={} event_id={} kept=retry reason={error}", subscriber.name, event.event_id);
        }
    }

    /// Runs the earlier event of the key that the ledger waits for. The broker, which lets one be under way, does not
    /// bring that again: it was replayed here, or it failed here or its worker died, and another settled it.
    /// Returns how long to leave it alone, if there is something.
    fn clear_the_way(&self, event: &Event, trouble: &mut Trouble) -> Option<Duration> {
        let subscriber = &*self.subscriber;
        match subscriber.ledger.earlier_open(event, &subscriber.name) {
            // What is not due yet, or claimed elsewhere, is answered without a call.
            Ok(earlier) => match self.attempt(&earlier?, None, trouble) {
                Ok(Attempted::Over) => Some(Duration::ZERO),
                Ok(Attempted::Again(wait)) => Some(wait),
                Ok(Attempted::Behind(_)) | Err(_) => None,
            },
            Err(error) => {
                log::error!("worker handler={} ledger=unreadable reason={error}", subscriber.name);
                None
            }
        }
    }

    /// One delivery to the ledger.
    fn attempt(&self, event: &Event, refused: Option<&str>, trouble: &mut Trouble) -> Result<Attempted, String> {
        let subscriber = &*self.subscriber;
        let successes = || subscriber.successes.load(Ordering::SeqCst);
        // An outage of which other events know nothing is this event's own failure.
        let blamed = trouble.successes_before.is_some_and(|before| successes() > before);
        let run = |event: &Event| match self.call(event, refused) {
            Err(DispatchError::Unavailable { reason, .. }) if blamed => Err(DispatchError::Retry { reason }),
            answer => answer,
        };
        let (name, id) = (&subscriber.name, &event.event_id);
        Ok(match subscriber.ledger.run_event(event, name, run) {
            Ok(LedgerOutcome::Done) => {
                subscriber.successes.fetch_add(1, Ordering::SeqCst);
                Attempted::Over
            }
            Ok(LedgerOutcome::Skipped | LedgerOutcome::Discarded) => Attempted::Over,
            Ok(LedgerOutcome::DeadLetter { reason }) => {
                log::error!("worker handler={name} event_id={id} state=dead_letter reason={reason:?}");
                Attempted::Over
            }
            Ok(LedgerOutcome::Deferred { until }) => Attempted::Behind(until_then(until).min(LOOK)),
            Ok(LedgerOutcome::Retry { reason, attempts, until }) => {
                log::warn!("worker handler={name} event_id={id} state=retry attempts={attempts} reason={reason:?}");
                Attempted::Again(until_then(until))
            }
            Ok(LedgerOutcome::Unavailable { reason, retry_after }) => {
                trouble.successes_before.get_or_insert_with(successes);
                let pause = trouble.pause(&subscriber.policy, retry_after);
                log::warn!("worker handler={name} paused_ms={} reason={reason:?}", pause.as_millis());
                Attempted::Again(pause)
            }
            // Somebody else's word counts: hear it.
            Ok(_) => Attempted::Again(Duration::ZERO),
            Err(LedgerError::Invalid { field }) => return Err(format!("{field} is empty, too long or holds a NUL")),
            Err(error) => {
                log::error!("worker handler={name} ledger=unavailable reason={error}");
                Attempted::Again(trouble.pause(&subscriber.policy, None))
            }
        })
    }

    fn call(&self, event: &Event, refused: Option<&str>) -> Result<(), DispatchError> {
        if let Some(reason) = refused {
            return Err(DispatchError::poison(reason));
        }
        self.calls.set(Some(Instant::now()));
        // After a panic, which the ledger catches, the next call sets it anew.
        let answer = self.subscriber.handler.handle(event);
        self.calls.set(None);
        answer
    }

    /// Runs what an operator has replayed, and what no broker would bring again: each once, what does not get through
    /// comes again. Now and then forgets what is over.
    fn keep_house(&mut self) {
        let now = Instant::now();
        let Some(next) = self.house_at.filter(|at| *at <= now) else { return };
        let subscriber = Arc::clone(&self.subscriber);
        let mut wait = subscriber.poll;
        match subscriber.ledger.due(&subscriber.name, DUE) {
            Ok(due) => {
                for event in due {
                    if self.stops_within(Duration::ZERO) {
                        return;
                    }
                    if let Ok(Attempted::Again(pause)) = self.attempt(&event, None, &mut self.house_trouble.clone()) {
                        self.house_trouble.failed = self.house_trouble.failed.saturating_add(1);
                        wait = wait.max(pause);
                        break;
                    }
                    self.house_trouble = Trouble::default();
                }
            }
            Err(error) => log::error!("worker handler={} ledger=unreadable reason={error}", subscriber.name),
        }
        self.house_at = Some(next.max(now) + wait);
        if self.pruned.is_none_or(|at| at.elapsed() >= PRUNE_EVERY) {
            self.pruned = Some(now);
            if let Err(error) = subscriber.ledger.prune(|| self.stops_within(Duration::ZERO)) {
                log::error!("worker ledger=not_pruned reason={error}");
            }
        }
    }

    /// Waits; `true` as soon as the worker is to stop.
    fn stops_within(&self, wait: Duration) -> bool {
        !matches!(self.stop.recv_timeout(wait), Err(RecvTimeoutError::Timeout))
    }
}

/// How long until a time of the ledger's clock, and never much longer than any wait it writes down.
fn until_then(until: i64) -> Duration {
    let ms = until.saturating_sub(SystemClock.now_ms()).clamp(1, 120_000);
    Duration::from_millis(ms.unsigned_abs())
}

/// A panic while beginning is a failure to begin.
fn caught(run: impl FnOnce() -> Result<(), DispatchError>) -> Result<(), DispatchError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = crate::lifecycle::panic_text(panic.as_ref());
        Err(DispatchError::retry(format!("panicked: {text}")))
    })
}

pub(super) fn cannot_begin(name: &str, error: &DispatchError, pause: Duration) -> String {
    format!("worker handler={name} cannot begin reason={:?} again_in_ms={}", error.to_string(), pause.as_millis())
}
