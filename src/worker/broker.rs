//! The broker's side of a worker, on one I/O thread: pulls a message, hands it to its lane, tells the broker that it is
//! being worked on, and settles it as the lane says.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::connection::State;
use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use crossbeam_channel::Sender;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::lane::Calls;
use crate::outbox::Policy;
use crate::sinks::nats::NatsOptions;
use crate::sinks::nats::broker::{Broker, NO_STREAM, Refusal};
use crate::sinks::nats::care::{self, ConsumerWish};

/// One pull request stands this long.
const PULL: Duration = Duration::from_secs(30);
/// Meanwhile the broker says this often that it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After so long without a word the request is taken for lost.
const SILENCE: Duration = Duration::from_secs(13);
/// Signs of life follow each other no faster, whatever wait an operator has set.
const SIGN_MIN: Duration = Duration::from_millis(10);
/// Longest wait, at the end, for what the broker has sent already, and for the last acknowledgements to go out.
const LEAVE: Duration = Duration::from_secs(2);

/// A consumer and the lane it feeds.
pub(super) struct Pipe {
    pub(super) wish: ConsumerWish,
    pub(super) handler: String,
    pub(super) hand: Sender<Delivery>,
    pub(super) calls: Arc<Calls>,
}

/// A message in a lane's hands. Dropped without a word, it goes back.
pub(super) struct Delivery {
    pub(super) body: Bytes,
    /// Where it stands in the stream.
    pub(super) position: u64,
    /// When the stream took it, in nanoseconds since the Unix epoch.
    pub(super) stored_at: u128,
    /// How often the broker has brought it, this time included.
    pub(super) delivered: i64,
    settle: oneshot::Sender<()>,
}

impl Delivery {
    /// One from nowhere, and who hears what becomes of it.
    #[cfg(test)]
    pub(super) fn of(body: String, position: u64) -> (Self, oneshot::Receiver<()>) {
        let (settle, settled) = oneshot::channel();
        (Self { body: Bytes::from(body), position, stored_at: 0, delivered: 1, settle }, settled)
    }

    /// The effect, or the dead letter, is durable.
    pub(super) fn acknowledge(self) {
        // Nobody there any more: the broker brings it again, and the ledger knows it.
        let _ = self.settle.send(());
    }
}

/// Runs until `stop`; a broker that is not there is waited for. `remembered` is how long the ledger knows an event.
pub(super) async fn talk(
    options: &NatsOptions,
    remembered: Duration,
    policy: &Policy,
    pipes: Vec<Pipe>,
    mut stop: watch::Receiver<bool>,
) {
    let Some(broker) = connect((options, remembered), policy, &mut stop).await else { return };
    join_all(pipes.iter().map(|pipe| serve(pipe, &broker, options, policy, stop.clone()))).await;
    // The last acknowledgements are on their way, if there is one.
    if is_connected(&broker) {
        let _ = tokio::time::timeout(LEAVE, broker.client.flush()).await;
    }
}

async fn connect(
    (options, remembered): (&NatsOptions, Duration),
    policy: &Policy,
    stop: &mut watch::Receiver<bool>,
) -> Option<Broker> {
    let mut failed = 0_u32;
    loop {
        let attempt = async {
            let broker = Broker::connect(options, "vayu-articles worker", true).await?;
            care::stream(&broker, options).await?;
            care::compare(&broker, options, remembered).await?;
            Ok::<_, Refusal>(broker)
        };
        let refusal = tokio::select! {
            made = attempt => match made {
                Ok(broker) => {
                    if failed > 0 {
                        log::warn!("worker broker=connected tries={}", failed.saturating_add(1));
                    }
                    return Some(broker);
                }
                Err(refusal) => refusal,
            },
            () = stopped(stop) => return None,
        };
        failed = failed.saturating_add(1);
        let pause = policy.pause_delay(failed, None, fastrand::f64());
        log::warn!("worker broker=unavailable reason={:?} again_in_ms={}", refusal.to_string(), pause.as_millis());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(stop) => return None,
        }
    }
}

async fn serve(pipe: &Pipe, broker: &Broker, options: &NatsOptions, policy: &Policy, mut stop: watch::Receiver<bool>) {
    let mut connects = broker.connects();
    let mut trouble = Trouble::default();
    loop {
        connects.mark_unchanged();
        // Nothing is in hand before there is a consumer.
        let looked_after = tokio::select! {
            done = look_after(pipe, broker, options) => done,
            () = stopped(&mut stop) => return,
        };
        let worked = match looked_after {
            Ok(wait) => session(pipe, broker, &options.stream, wait, &mut stop, &mut trouble).await,
            Err(refusal) => Err(refusal),
        };
        let refusal = match worked {
            Ok(()) => return,
            Err(refusal) => refusal,
        };
        trouble.failed = trouble.failed.saturating_add(1);
        trouble.is_open = true;
        let pause = policy.pause_delay(trouble.failed, None, fastrand::f64());
        log::warn!(
            "worker consumer={} interrupted reason={:?} again_in_ms={}",
            pipe.wish.name,
            refusal.to_string(),
            pause.as_millis()
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = connects.changed() => {}
            () = stopped(&mut stop) => return,
        }
    }
}

/// Stream and consumer may have been deleted since: they are made anew. Returns how long the broker waits for a sign of life.
async fn look_after(pipe: &Pipe, broker: &Broker, options: &NatsOptions) -> Result<Duration, Refusal> {
    match care::consumer(broker, &options.stream, &pipe.wish).await {
        Err(refusal) if refusal.is(NO_STREAM) => {
            care::stream(broker, options).await?;
            care::consumer(broker, &options.stream, &pipe.wish).await
        }
        done => done,
    }
}

/// What has gone wrong with a consumer.
#[derive(Debug, Default)]
struct Trouble {
    /// Sessions that ended with no message.
    failed: u32,
    /// The log names it, and not yet its end.
    is_open: bool,
}

impl Trouble {
    /// The broker brings messages, or says that there are none.
    fn is_over(&mut self, consumer: &str) {
        if std::mem::take(&mut self.is_open) {
            log::warn!("worker consumer={consumer} resumed");
        }
    }
}

/// What is said about a message, and where.
type Word = (async_nats::Subject, &'static [u8]);

/// What came, or did not.
enum Came {
    Message(Message),
    Nothing,
    Reconnected,
    Stop,
}

/// Pulls and hands over until the stop. `wait` is how long the broker waits for a sign of life.
async fn session(
    pipe: &Pipe,
    broker: &Broker,
    stream: &str,
    wait: Duration,
    stop: &mut watch::Receiver<bool>,
    trouble: &mut Trouble,
) -> Result<(), Refusal> {
    let mut connects = broker.connects();
    connects.mark_unchanged();
    let inbox = broker.client.new_inbox();
    let down = |error: &dyn std::fmt::Display| Refusal::Down(error.to_string());
    let mut messages = broker.client.subscribe(inbox.clone()).await.map_err(|error| down(&error))?;
    let pull = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{}", pipe.wish.name);
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let one = json!({ "batch": 1, "expires": nanos(PULL), "idle_heartbeat": nanos(HEARTBEAT) }).to_string();
    let mut asked = false;
    let mut last_word: Option<Word> = None;
    loop {
        if !asked && !*stop.borrow() {
            let request = Bytes::from(one.clone());
            let sent = broker.client.publish_with_reply(pull.clone(), inbox.clone(), request).await;
            sent.map_err(|error| down(&error))?;
            asked = true;
        }
        let came = tokio::select! {
            biased;
            () = stopped(stop) => Came::Stop,
            message = messages.next() => message.map_or(Came::Nothing, Came::Message),
            _ = connects.changed() => Came::Reconnected,
            () = tokio::time::sleep(SILENCE) => Came::Nothing,
        };
        match came {
            Came::Stop => {
                leave(broker, messages).await;
                return Ok(());
            }
            Came::Nothing => return Err(Refusal::Down("no word about the pull request".to_owned())),
            // The request went with the old connection, and perhaps what was said last.
            Came::Reconnected => {
                asked = false;
                if let Some(word) = &last_word {
                    say(broker, word).await;
                }
            }
            Came::Message(message) => match status(&message) {
                None => {
                    asked = false;
                    trouble.is_over(&pipe.wish.name);
                    trouble.failed = 0;
                    last_word = hand_over(pipe, broker, message, wait).await;
                }
                Some(StatusCode::IDLE_HEARTBEAT) => trouble.is_over(&pipe.wish.name),
                // Nothing came, or the request has expired.
                Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => {
                    trouble.is_over(&pipe.wish.name);
                    asked = false;
                }
                Some(status) => {
                    let what = message.description.unwrap_or_default();
                    leave(broker, messages).await;
                    return Err(Refusal::Said { number: u64::from(status.as_u16()), text: what });
                }
            },
        }
    }
}

/// Gives the message to the lane and waits for its word, telling the broker meanwhile that it is being worked on.
async fn hand_over(pipe: &Pipe, broker: &Broker, message: Message, wait: Duration) -> Option<Word> {
    let reply = message.reply.clone()?;
    let Some(Place { position, stored_at, delivered }) = place(&message, broker) else {
        log::error!("worker consumer={} a message without its place was left alone", pipe.wish.name);
        return None;
    };
    let (settle, mut settled) = oneshot::channel();
    let delivery = Delivery { body: message.payload, position, stored_at, delivered, settle };
    // A lane that has ended drops it, and is heard below.
    let _ = pipe.hand.try_send(delivery);
    let every = (wait / 3).max(SIGN_MIN);
    let mut sign = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    loop {
        let word: &'static [u8] = tokio::select! {
            done = &mut settled => if done.is_ok() { b"+ACK" } else { b"-NAK" },
            _ = sign.tick() => b"+WPI",
        };
        let word = (reply.clone(), word);
        say(broker, &word).await;
        if word.1 != b"+WPI" {
            return Some(word);
        }
        pipe.calls.report_overdue(&pipe.handler, position);
    }
}

/// Lost words are no harm: the broker brings the message again. Without a connection nothing is said, rather than queued
/// until there is no room for more.
async fn say(broker: &Broker, (reply, word): &Word) {
    if is_connected(broker) {
        let said = broker.client.publish(reply.clone(), Bytes::from_static(word));
        let _ = tokio::time::timeout(LEAVE, said).await;
    }
}

fn is_connected(broker: &Broker) -> bool {
    broker.client.connection_state() == State::Connected
}

/// What the broker says instead of bringing a message. A message from the stream may carry a status, too: its publisher's.
fn status(message: &Message) -> Option<StatusCode> {
    let is_from_the_stream = message.reply.as_ref().is_some_and(|reply| reply.starts_with("$JS.ACK."));
    message.status.filter(|_| !is_from_the_stream)
}

/// What the broker says of a message besides bringing it.
struct Place {
    position: u64,
    stored_at: u128,
    delivered: i64,
}

fn place(message: &Message, broker: &Broker) -> Option<Place> {
    let context = async_nats::jetstream::new(broker.client.clone());
    let message = async_nats::jetstream::Message { message: message.clone(), context };
    let info = message.info().ok()?;
    let stored_at = SystemTime::from(info.published).duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Some(Place { position: info.stream_sequence, stored_at, delivered: info.delivered })
}

/// Wants nothing more, and gives back what was sent already.
async fn leave(broker: &Broker, mut messages: Subscriber) {
    if !is_connected(broker) {
        return;
    }
    let back = async {
        if messages.drain().await.is_err() {
            return;
        }
        while let Some(message) = messages.next().await {
            if let (None, Some(reply)) = (status(&message), message.reply) {
                say(broker, &(reply, b"-NAK")).await;
            }
        }
    };
    let _ = tokio::time::timeout(LEAVE, back).await;
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can say it any more.
    let _ = stop.wait_for(|stop| *stop).await;
}
