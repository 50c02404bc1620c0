//! A connection to the broker, and its answers in our words.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, ConnectOptions, Event as ClientEvent, HeaderMap, ServerAddr, ServerError};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use tokio::sync::watch;

use super::options::NatsOptions;
use crate::outbox::DispatchError;

/// JetStream's own numbers for what concerns the message and nothing else.
const TOO_LARGE: u64 = 10_054;
const HEADER_TOO_LARGE: u64 = 10_097;
/// There is no such stream, no such consumer.
pub(crate) const NO_STREAM: u64 = 10_059;
pub(crate) const NO_CONSUMER: u64 = 10_014;

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct Broker {
    pub(crate) client: Client,
    timeout: Duration,
    /// The last thing the server complained about without being asked: a permission, for example.
    complaint: Arc<Mutex<Option<String>>>,
    /// How many connections there have been: what was asked on an earlier one may never be answered.
    connects: watch::Receiver<u64>,
}

/// Why the broker did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No connection, no answer in time.
    Down(String),
    /// Nobody listens there: no JetStream, or no stream takes the subject.
    Nobody(String),
    /// The message is larger than the server takes.
    TooLarge(String),
    /// JetStream says no, with its number.
    Said { number: u64, text: String },
}

impl Broker {
    /// Connects once. `lasting` connections are mended by themselves later, for ever; another one tries each address once
    /// and is given up by its owner with the first failure.
    pub(crate) async fn connect(options: &NatsOptions, name: &str, lasting: bool) -> Result<Self, Refusal> {
        let addresses = options.addresses().map_err(|error| Refusal::Down(error.to_string()))?;
        let complaint = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&complaint);
        let (connected, connects) = watch::channel(0);
        let mut connect = ConnectOptions::new()
            .name(name)
            .connection_timeout(options.connect_timeout)
            .request_timeout(Some(options.ack_timeout))
            .require_tls(options.tls_required)
            .event_callback(move |event| {
                if matches!(event, ClientEvent::Connected) {
                    connected.send_modify(|count| *count += 1);
                }
                listen(&heard, &event);
                std::future::ready(())
            });
        if !lasting {
            // One for each address, so that the first connection finds the server that lives.
            connect = connect.max_reconnects(addresses.len()).ignore_discovered_servers();
        }
        connect = with_login(connect, &addresses);
        if let Some(path) = &options.credentials {
            let unreadable = |error| Refusal::Down(format!("the credentials file {}: {error}", path.display()));
            connect = connect.credentials_file(path).await.map_err(unreadable)?;
        }
        if let Some(path) = &options.tls_ca {
            connect = connect.add_root_certificates(path.clone());
        }
        if let Some((certificate, key)) = &options.tls_client {
            connect = connect.add_client_certificate(certificate.clone(), key.clone());
        }
        let limit = options.connect_timeout.saturating_mul(u32::try_from(addresses.len()).unwrap_or(u32::MAX));
        let made = tokio::time::timeout(limit, connect.connect(addresses)).await;
        let client = match made {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(Refusal::Down(format!("no connection to the broker: {error}"))),
            Err(_) => return Err(Refusal::Down("no connection to the broker in time".to_owned())),
        };
        Ok(Self { client, timeout: options.ack_timeout, complaint, connects })
    }

    /// Sends and waits for the answer.
    pub(crate) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Bytes, Refusal> {
        let mut request = async_nats::Request::new().payload(payload).timeout(Some(self.timeout));
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        match self.client.send_request(subject, request).await {
            Ok(answer) => Ok(answer.payload),
            Err(error) => {
                let (text, forbidden) = self.with_complaint(error.to_string());
                // The server says so beside the request, which is then never answered.
                Err(if forbidden { Refusal::Said { number: 0, text } } else { unanswered(error.kind(), text) })
            }
        }
    }

    /// Changes with every further connection of a lasting one.
    pub(crate) fn connects(&self) -> watch::Receiver<u64> {
        self.connects.clone()
    }

    /// Asks JetStream's API.
    pub(crate) async fn api(&self, call: &str, payload: &Value) -> Result<Value, Refusal> {
        let body = if payload.is_null() { Bytes::new() } else { Bytes::from(payload.to_string()) };
        let answer = self.request(format!("$JS.API.{call}"), None, body).await?;
        read(&answer)
    }

    /// The text, and whether it is about a missing permission.
    fn with_complaint(&self, text: String) -> (String, bool) {
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(complaint) = complaint else { return (text, false) };
        let forbidden = complaint.to_ascii_lowercase().contains("permissions violation");
        (format!("{text} (the server says: {complaint})"), forbidden)
    }
}

/// What it means that a request has no answer.
fn unanswered(kind: RequestErrorKind, text: String) -> Refusal {
    match kind {
        RequestErrorKind::NoResponders => Refusal::Nobody(text),
        RequestErrorKind::MaxPayloadExceeded => Refusal::TooLarge(text),
        RequestErrorKind::TimedOut => Refusal::Down(format!("the broker does not answer: {text}")),
        RequestErrorKind::Other => Refusal::Down(format!("the broker cannot be reached: {text}")),
        _ => Refusal::Down(text),
    }
}

/// An answer of JetStream: the document, unless it holds an error.
pub(crate) fn read(answer: &[u8]) -> Result<Value, Refusal> {
    let document: Value = serde_json::from_slice(answer)
        .map_err(|error| Refusal::Down(format!("the broker's answer cannot be read: {error}")))?;
    let Some(error) = document.get("error") else { return Ok(document) };
    let number = error.get("err_code").and_then(Value::as_u64).unwrap_or(0);
    let text = error.get("description").and_then(Value::as_str).unwrap_or("an error without words").to_owned();
    Err(Refusal::Said { number, text })
}

/// The client leaves what an address says of user and password alone; the first that has some counts for all.
fn with_login(connect: ConnectOptions, addresses: &[ServerAddr]) -> ConnectOptions {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let Some(address) = addresses.iter().find(|address| address.username().is_some()) else { return connect };
    let user = decoded(address.username().unwrap_or_default());
    match address.password() {
        Some(password) => connect.user_and_password(user, decoded(password)),
        None => connect.token(user),
    }
}

/// What a stream says to a publish; one in thousands is read a second time, for its error.
#[derive(Deserialize)]
struct Ack {
    seq: Option<u64>,
    error: Option<IgnoredAny>,
}

/// Whether the answer to a publish is an acknowledgement; `"duplicate": true` is as good, it is in the stream.
pub(super) fn acknowledged(answer: &[u8]) -> Result<(), Refusal> {
    match serde_json::from_slice(answer) {
        Ok(Ack { seq: Some(_), error: None }) => Ok(()),
        // Something listens on the subject that is no stream.
        _ => Err(Refusal::Nobody(format!("the answer is no acknowledgement: {}", read(answer)?))),
    }
}

fn listen(heard: &Mutex<Option<String>>, event: &ClientEvent) {
    if let ClientEvent::ServerError(error) = event {
        log::warn!("nats server_error={:?}", error.to_string());
        if let ServerError::Other(text) = error {
            *heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.clone());
        }
    } else {
        log::debug!("nats connection event={event}");
    }
}

impl Refusal {
    /// What it means for a delivery. Only what concerns this very message is the message's fault; a broker that is
    /// full, read-only, without its stream or without a leader is one that is not there.
    pub(super) fn into_dispatch(self) -> DispatchError {
        let text = self.to_string();
        match self {
            Self::TooLarge(_) | Self::Said { number: TOO_LARGE | HEADER_TOO_LARGE, .. } => DispatchError::poison(text),
            _ => DispatchError::unavailable(text),
        }
    }

    /// Whether another connection may help, or another look after the stream.
    pub(super) fn ends_the_connection(&self) -> bool {
        matches!(self, Self::Down(_) | Self::Nobody(_))
    }

    pub(crate) fn is(&self, wanted: u64) -> bool {
        matches!(self, Self::Said { number, .. } if *number == wanted)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(text) => f.write_str(text),
            Self::Nobody(text) => write!(f, "no stream of the broker takes this: {text}"),
            Self::TooLarge(text) => write!(f, "the broker takes no message of this size: {text}"),
            Self::Said { number, text } => write!(f, "the broker refuses: {text} ({number})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c53_only_what_concerns_the_message_itself_is_poison() {
        let said = |number: u64| {
            let answer = format!(r#"{{"error":{{"code":400,"err_code":{number},"description":"no"}}}}"#);
            read(answer.as_bytes()).unwrap_err().into_dispatch()
        };
        for number in [TOO_LARGE, HEADER_TOO_LARGE] {
            assert!(matches!(said(number), DispatchError::Poison { .. }), "{number}");
        }
        // Insufficient resources, storage full, no quorum, JetStream off, no such stream, sealed, unknown.
        for number in [10_023, 10_047, 10_008, 10_039, 10_059, 10_077, 10_109, 0, 99_999] {
            assert!(matches!(said(number), DispatchError::Unavailable { .. }), "{number}");
        }
        let large = Refusal::TooLarge("2 MB".to_owned()).into_dispatch();
        assert!(matches!(large, DispatchError::Poison { .. }), "{large:?}");
        for down in [Refusal::Down("gone".to_owned()), Refusal::Nobody("none".to_owned())] {
            assert!(matches!(down.into_dispatch(), DispatchError::Unavailable { .. }));
        }
        assert_eq!(acknowledged(br#"{"stream":"S","seq":4,"duplicate":true}"#), Ok(()), "a duplicate is delivered");
        let error = br#"{"error":{"code":503,"err_code":10077,"description":"full"},"stream":"S","seq":0}"#;
        assert!(acknowledged(error).is_err_and(|refusal| refusal.is(10_077)));
        assert!(matches!(acknowledged(br#"{"hello":1}"#), Err(Refusal::Nobody(_))));
        assert!(matches!(read(b"<html>"), Err(Refusal::Down(_))), "junk is no ack");
    }

    #[test]
    fn a_request_without_an_answer_says_whose_fault_that_is() {
        let said = |kind| unanswered(kind, "request failed: channel closed".to_owned()).to_string();
        assert_eq!(said(RequestErrorKind::Other), "the broker cannot be reached: request failed: channel closed");
        assert!(said(RequestErrorKind::TimedOut).starts_with("the broker does not answer: "));
        assert!(said(RequestErrorKind::NoResponders).starts_with("no stream of the broker takes this: "));
        assert!(said(RequestErrorKind::MaxPayloadExceeded).contains("no message of this size"));
    }
}
