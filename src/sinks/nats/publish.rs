//! Publishing several events at once, in order per key.
//!
//! Publishes go out ahead of each other's acknowledgements, up to a window, but of one key only ever one: the next is sent
//! when the broker has stored the one before. So whatever is lost, refused or repeated on the way, a later event of a key
//! cannot come to lie before an earlier one. (Order on one connection would not do: a message that is refused, or a
//! connection that breaks and is made anew, lets later ones overtake.)

use std::collections::{HashMap, VecDeque};

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::broker::{Broker, Refusal, acknowledged};
use super::options::NatsOptions;
use super::subject::subject;
use crate::outbox::Event;
use crate::sinks::cloud_event;

/// Publishes all of `events` and waits until each is stored. After a failure nothing more is sent, and what is under way
/// is waited for.
///
/// # Errors
/// The first failure.
pub(super) async fn publish(broker: &Broker, options: &NatsOptions, events: &[Event]) -> Result<(), Refusal> {
    let mut under_way = FuturesUnordered::new();
    // Keys under way, with what waits for them.
    let mut keys: HashMap<&str, VecDeque<&Event>> = HashMap::new();
    let mut rest = events.iter();
    let mut failure = None;
    let send = |event| async move { (event, publish_one(broker, options, event).await) };
    loop {
        while failure.is_none() && under_way.len() < options.window {
            let Some(event) = rest.next() else { break };
            match event.key.as_deref() {
                Some(key) if keys.contains_key(key) => {
                    keys.entry(key).or_default().push_back(event);
                    continue;
                }
                Some(key) => drop(keys.insert(key, VecDeque::new())),
                None => {}
            }
            under_way.push(send(event));
        }
        let Some((event, outcome)) = under_way.next().await else { return failure.map_or(Ok(()), Err) };
        if let Err(refusal) = outcome {
            failure.get_or_insert(refusal);
        } else if failure.is_none()
            && let Some(key) = event.key.as_deref()
        {
            match keys.get_mut(key).and_then(VecDeque::pop_front) {
                Some(next) => under_way.push(send(next)),
                None => drop(keys.remove(key)),
            }
        }
    }
}

async fn publish_one(broker: &Broker, options: &NatsOptions, event: &Event) -> Result<(), Refusal> {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", cloud_event::message_id(event).as_str());
    headers.insert("Content-Type", cloud_event::CONTENT_TYPE);
    let partition = options.partition(event.key.as_deref(), &event.event_id);
    let to = subject(&options.prefix, partition, &event.event_type);
    let body = cloud_event::encode(event, &options.source);
    let answer = broker.request(to, Some(headers), Bytes::from(body)).await?;
    acknowledged(&answer)
}
