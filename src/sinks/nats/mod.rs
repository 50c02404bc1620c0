//! Handing events on to NATS JetStream, for workers on other machines.
//!
//! Each event becomes one message: `Nats-Msg-Id` is the event's id, the subject its type behind a prefix, the body a
//! [CloudEvent](super::cloud_event). An event is delivered once the stream has acknowledged it; "duplicate" is an
//! acknowledgement too. Inside the stream's duplicate window (1 h) each event is therefore stored once, whatever crashes;
//! what is repeated later than that (an outage of the relay's machine between publish and flush that lasts longer, a rewind)
//! is stored again.
//!
//! | what happens | what follows |
//! |---|---|
//! | no connection, no answer in time, wrong credentials, missing permission | `Unavailable` |
//! | no stream takes the subject, the stream is full, sealed or without a leader, JetStream is off | `Unavailable` |
//! | the message is larger than the server or the stream takes | `Poison` |
//! | the event has a message id that no header can carry | `Poison` |
//!
//! `Unavailable` spends nothing: the lane pauses and goes on by itself, in order per key.
//!
//! The sink has a runtime of its own that turns only during a call, on the lane's thread. A connection that was idle for a
//! minute is made anew rather than trusted, since nobody answered the server's pings meanwhile.

pub(crate) mod broker;
pub(crate) mod care;
mod options;
mod publish;
mod subject;

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

pub use options::{MAX_PARTITIONS, NatsOptions, NatsOptionsError};
pub use subject::{filter as subject_filter, partition_of};

use self::broker::{Broker, Refusal};
use super::cloud_event;
use crate::outbox::{DispatchError, Event, Handler, LaneStart};

/// One call, connecting included, takes no longer; the relay's limit for a handler is 30 s.
const CALL_TIME: Duration = Duration::from_secs(25);
/// A connection idle for longer than this is made anew.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Events published together.
const BATCH: usize = 512;

/// The [`Handler`] that publishes every event of its outbox.
pub struct NatsSink {
    options: NatsOptions,
    state: Mutex<State>,
}

struct State {
    runtime: Runtime,
    connection: Option<(Broker, Instant)>,
}

impl NatsSink {
    /// A handler with these settings. Nothing is sent before the first event.
    ///
    /// # Errors
    /// A setting cannot work.
    pub fn new(options: NatsOptions) -> Result<Self, NatsOptionsError> {
        options.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| NatsOptionsError {
            field: "servers",
            reason: format!("cannot be talked to: no runtime could be made ({error})"),
        })?;
        Ok(Self { options, state: Mutex::new(State { runtime, connection: None }) })
    }

    fn deliver(&self, events: &[Event]) -> Result<(), DispatchError> {
        events.iter().try_for_each(check)?;
        // Only one thread turns the runtime; the lock is the sink's own and nobody else waits for it.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { runtime, connection } = &mut *state;
        let options = &self.options;
        let done = runtime.block_on(async {
            let work = async {
                let broker = connected(options, connection).await?;
                publish::publish(&broker, options, events).await
            };
            match tokio::time::timeout(CALL_TIME, work).await {
                Ok(done) => done,
                Err(_) => Err(Refusal::Down("the broker is slow: the rest is published later".to_owned())),
            }
        });
        match &done {
            Err(refusal) if refusal.ends_the_connection() => *connection = None,
            _ => {
                if let Some((_, used)) = connection {
                    *used = Instant::now();
                }
            }
        }
        done.map_err(Refusal::into_dispatch)
    }
}

/// The connection, made and its stream looked at if there is none.
async fn connected(options: &NatsOptions, connection: &mut Option<(Broker, Instant)>) -> Result<Broker, Refusal> {
    if let Some((broker, used)) = connection
        && used.elapsed() < IDLE_MAX
    {
        return Ok(broker.clone());
    }
    *connection = None;
    let broker = Broker::connect(options, "vayu-articles relay", false).await?;
    care::stream(&broker, options).await?;
    *connection = Some((broker.clone(), Instant::now()));
    Ok(broker)
}

/// What no header can carry never will be. Whoever reads a header takes off the blanks around its value, so two ids that
/// differ in nothing else would be one, and the stream would drop the second.
fn check(event: &Event) -> Result<(), DispatchError> {
    let id = cloud_event::message_id(event);
    let blank = |c: char| c == ' ' || c.is_ascii_control();
    if id.contains(['\r', '\n']) || id.starts_with(blank) || id.ends_with(blank) {
        let reason = "the event's id holds a line break or has a blank at an end, which no message id may";
        return Err(DispatchError::poison(reason));
    }
    Ok(())
}

impl Handler for NatsSink {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.deliver(std::slice::from_ref(event))
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        self.deliver(events)
    }

    fn batch_limit(&self) -> usize {
        BATCH
    }

    /// Looks after the stream before the first event, so that a broker without events has one too.
    fn begin(&self, _lane: &LaneStart) -> Result<(), DispatchError> {
        self.deliver(&[])
    }
}

impl fmt::Debug for NatsSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsSink").field("options", &self.options).finish_non_exhaustive()
    }
}
