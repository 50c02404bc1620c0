//! The broker's side of a worker, on one I/O thread: pulls a message, hands it to its lane, tells the broker that it is
//! being worked on, and settles it as the lane says.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use crossbeam_channel::Sender;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::json;
use tokio::sync::{oneshot, watch};

use super::lane::Calls;
use crate::outbox::Policy;
use crate::sinks::nats::NatsOptions;
use crate::sinks::nats::broker::{Broker, Refusal};
use crate::sinks::nats::care::{self, ConsumerWish};

/// One pull request stands this long.
const PULL: Duration = Duration::from_secs(30);
/// Meanwhile the broker says this often that it is there.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// After so long without a word the request is taken for lost.
const SILENCE: Duration = Duration::from_secs(13);
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
    /// How often the broker has brought it, this time included.
    pub(super) delivered: i64,
    settle: oneshot::Sender<()>,
}

impl Delivery {
    /// The effect, or the dead letter, is durable.
    pub(super) fn acknowledge(self) {
        // Nobody there any more: the broker brings it again, and the ledger knows it.
        let _ = self.settle.send(());
    }
}

/// Runs until `stop`; a broker that is not there is waited for.
pub(super) async fn talk(options: &NatsOptions, policy: &Policy, pipes: Vec<Pipe>, mut stop: watch::Receiver<bool>) {
    let Some(broker) = connect(options, policy, &mut stop).await else { return };
    let stream = options.stream.as_str();
    join_all(pipes.iter().map(|pipe| serve(pipe, &broker, stream, policy, stop.clone()))).await;
    // The last acknowledgements are on their way.
    let _ = tokio::time::timeout(LEAVE, broker.client.flush()).await;
}

async fn connect(options: &NatsOptions, policy: &Policy, stop: &mut watch::Receiver<bool>) -> Option<Broker> {
    let mut failed = 0_u32;
    loop {
        let attempt = async {
            let broker = Broker::connect(options, "vayu-articles worker", true).await?;
            care::stream(&broker, options).await?;
            care::partitions(&broker, options).await?;
            Ok::<_, Refusal>(broker)
        };
        let refusal = tokio::select! {
            made = attempt => match made {
                Ok(broker) => return Some(broker),
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

async fn serve(pipe: &Pipe, broker: &Broker, stream: &str, policy: &Policy, mut stop: watch::Receiver<bool>) {
    let mut connects = broker.connects();
    let mut failed = 0_u32;
    loop {
        connects.mark_unchanged();
        let refusal = match session(pipe, broker, stream, &mut stop, &mut failed).await {
            Ok(()) => return,
            Err(refusal) => refusal,
        };
        failed = failed.saturating_add(1);
        let pause = policy.pause_delay(failed, None, fastrand::f64());
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

/// What is said about a message, and where.
type Word = (async_nats::Subject, &'static [u8]);

/// What came, or did not.
enum Came {
    Message(Message),
    Nothing,
    Reconnected,
    Stop,
}

/// Pulls and hands over until the stop.
async fn session(
    pipe: &Pipe,
    broker: &Broker,
    stream: &str,
    stop: &mut watch::Receiver<bool>,
    failed: &mut u32,
) -> Result<(), Refusal> {
    let mut connects = broker.connects();
    connects.mark_unchanged();
    care::consumer(broker, stream, &pipe.wish).await?;
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
                if let Some((reply, word)) = last_word.clone() {
                    let _ = broker.client.publish(reply, Bytes::from_static(word)).await;
                }
            }
            Came::Message(message) => match message.status.map(|status| status.as_u16()) {
                None => {
                    asked = false;
                    *failed = 0;
                    last_word = hand_over(pipe, broker, message).await;
                }
                Some(100) => {}
                // Nothing came, or the request has expired.
                Some(404 | 408) => asked = false,
                Some(status) => {
                    let what = message.description.unwrap_or_default();
                    leave(broker, messages).await;
                    return Err(Refusal::Said { number: u64::from(status), text: what });
                }
            },
        }
    }
}

/// Gives the message to the lane and waits for its word, telling the broker meanwhile that it is being worked on.
async fn hand_over(pipe: &Pipe, broker: &Broker, message: Message) -> Option<Word> {
    let reply = message.reply.clone()?;
    let Some((position, delivered)) = place(&message, broker) else {
        log::error!("worker consumer={} a message without its place was left alone", pipe.wish.name);
        return None;
    };
    let (settle, mut settled) = oneshot::channel();
    let delivery = Delivery { body: message.payload, position, delivered, settle };
    // A lane that has ended drops it, and is heard below.
    let _ = pipe.hand.try_send(delivery);
    let every = pipe.wish.ack_wait / 3;
    let mut sign = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    loop {
        let word: &'static [u8] = tokio::select! {
            done = &mut settled => if done.is_ok() { b"+ACK" } else { b"-NAK" },
            _ = sign.tick() => b"+WPI",
        };
        // Lost words are no harm: the broker brings the message again.
        let _ = broker.client.publish(reply.clone(), Bytes::from_static(word)).await;
        if word != b"+WPI" {
            return Some((reply, word));
        }
        pipe.calls.report_overdue(&pipe.handler, position);
    }
}

fn place(message: &Message, broker: &Broker) -> Option<(u64, i64)> {
    let context = async_nats::jetstream::new(broker.client.clone());
    let message = async_nats::jetstream::Message { message: message.clone(), context };
    let info = message.info().ok()?;
    Some((info.stream_sequence, info.delivered))
}

/// Wants nothing more, and gives back what was sent already.
async fn leave(broker: &Broker, mut messages: Subscriber) {
    let back = async {
        if messages.drain().await.is_err() {
            return;
        }
        while let Some(message) = messages.next().await {
            if let (None, Some(reply)) = (message.status, message.reply) {
                let _ = broker.client.publish(reply, Bytes::from_static(b"-NAK")).await;
            }
        }
    };
    let _ = tokio::time::timeout(LEAVE, back).await;
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that nobody can say it any more.
    let _ = stop.wait_for(|stop| *stop).await;
}
