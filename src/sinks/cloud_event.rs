//! An event as [CloudEvents 1.0](https://cloudevents.io) in its JSON format: what leaves this machine.
//!
//! | attribute | is |
//! |---|---|
//! | `id` | [`message_id`]: the event's id; after a forced or edited replay followed by `:r` and the number of replays |
//! | `source` | whatever the sender calls itself |
//! | `type`, `time`, `subject` | the event's type, when it happened, its key |
//! | `datacontenttype`, `data` | `application/json` and the payload; `text/plain` and a string, if it is not JSON |
//! | `correlationid`, `causationid` | extensions, left out when there is none |
//! | `replayof` | extension after a forced or edited replay: the event's id |

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::clock;
use crate::outbox::{Event, NewEvent};

/// The media type of what [`encode`] makes.
pub const CONTENT_TYPE: &str = "application/cloudevents+json";

/// What receivers deduplicate by: the event's id, unless an operator wants its effect once more.
pub fn message_id(event: &Event) -> String {
    if event.forced || event.edited { format!("{}:r{}", event.event_id, event.replays) } else { event.event_id.clone() }
}

/// `event` as a JSON document. The payload's text goes in as it is.
pub fn encode(event: &Event, source: &str) -> String {
    let id = message_id(event);
    let mut json = String::with_capacity(event.payload.len() + 512);
    json.push_str("{\"specversion\":\"1.0\"");
    let time = clock::rfc3339(event.occurred_at);
    let replay_of = (id != event.event_id).then_some(event.event_id.as_str());
    let attributes = [
        ("id", Some(id.as_str())),
        ("source", Some(source)),
        ("type", Some(event.event_type.as_str())),
        ("time", Some(time.as_str())),
        ("subject", event.key.as_deref()),
        ("correlationid", event.correlation_id.as_deref()),
        ("causationid", event.causation_id.as_deref()),
        ("replayof", replay_of),
    ];
    for (name, value) in attributes {
        if let Some(value) = value {
            json.push_str(",\"");
            json.push_str(name);
            json.push_str("\":");
            push_text(&mut json, value);
        }
    }
    // A foreign hand may have put anything into the log.
    if serde_json::from_str::<IgnoredAny>(&event.payload).is_ok() {
        json.push_str(",\"datacontenttype\":\"application/json\",\"data\":");
        json.push_str(&event.payload);
    } else {
        json.push_str(",\"datacontenttype\":\"text/plain\",\"data\":");
        push_text(&mut json, &event.payload);
    }
    json.push('}');
    json
}

fn push_text(json: &mut String, text: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&Value::from(text).to_string());
    }
}

#[derive(Deserialize)]
struct Envelope {
    specversion: String,
    id: String,
    #[serde(rename = "type")]
    event_type: String,
    time: Option<String>,
    subject: Option<String>,
    datacontenttype: Option<String>,
    /// As it stands there: no number and no order of fields shall change on the way.
    data: Option<Box<RawValue>>,
    data_base64: Option<IgnoredAny>,
    correlationid: Option<String>,
    causationid: Option<String>,
}

/// The event in a JSON document, at position `position` of whatever brought it. Its `event_id` is the document's `id`.
///
/// # Errors
/// What is wrong with the document.
pub fn decode(json: &[u8], position: i64) -> Result<Event, String> {
    let envelope: Envelope =
        serde_json::from_slice(json).map_err(|error| format!("the message is no CloudEvent: {error}"))?;
    if envelope.specversion != "1.0" {
        return Err(format!("the message is a CloudEvent of version {:?}, not 1.0", envelope.specversion));
    }
    if envelope.data_base64.is_some() {
        return Err("the message's data is binary (data_base64), and a payload is text".to_owned());
    }
    let is_json = envelope.datacontenttype.as_deref().is_none_or(|media| media.contains("json"));
    let data = envelope.data.map_or_else(|| "null".to_owned(), |data| data.get().to_owned());
    let text = if is_json { None } else { serde_json::from_str::<String>(&data).ok() };
    let payload = text.unwrap_or(data);
    let mut event = NewEvent::from_json(envelope.event_type, payload);
    event.event_id = envelope.id;
    event.key = envelope.subject;
    event.correlation_id = envelope.correlationid;
    event.causation_id = envelope.causationid;
    event.occurred_at = envelope.time.as_deref().and_then(milliseconds);
    Ok(event.into_event(position))
}

/// A time as RFC 3339 writes it, in milliseconds since the Unix epoch.
pub(crate) fn milliseconds(rfc3339: &str) -> Option<i64> {
    rfc3339.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        let mut event = NewEvent::from_json("article.updated.v1", r#"{"b": 1.50, "a": "\u00e9\n"}"#)
            .key("a-1")
            .correlation_id("c\"1")
            .occurred_at(1_790_000_000_123);
        event.event_id = "e-1".to_owned();
        event.into_event(7)
    }

    #[test]
    fn an_event_survives_the_way_there_and_back() {
        let json = encode(&event(), "/site");
        let document: Value = serde_json::from_str(&json).unwrap();
        for (name, value) in [
            ("specversion", "1.0"),
            ("id", "e-1"),
            ("source", "/site"),
            ("type", "article.updated.v1"),
            ("time", "2026-09-21T14:13:20.123Z"),
            ("subject", "a-1"),
            ("correlationid", "c\"1"),
            ("datacontenttype", "application/json"),
        ] {
            assert_eq!(document[name], value, "{json}");
        }
        assert!(document.get("causationid").is_none() && document.get("replayof").is_none(), "{json}");
        assert!(json.contains(r#""data":{"b": 1.50, "a": "\u00e9\n"}"#), "as it is: {json}");
        let back = decode(json.as_bytes(), 9).unwrap();
        let mut want = event();
        want.id = 9;
        assert_eq!(back, want, "the payload byte for byte");
    }

    #[test]
    fn only_a_forced_or_edited_replay_is_another_message() {
        let mut event = event();
        event.replays = 2;
        assert_eq!(message_id(&event), "e-1");
        event.edited = true;
        assert_eq!(message_id(&event), "e-1:r2");
        (event.edited, event.forced) = (false, true);
        let document: Value = serde_json::from_str(&encode(&event, "/")).unwrap();
        assert_eq!((&document["id"], &document["replayof"]), (&Value::from("e-1:r2"), &Value::from("e-1")));
    }

    #[test]
    fn a_payload_that_is_no_json_goes_as_text() {
        let mut event = event();
        event.payload = "say \"hi\"".to_owned();
        let back = decode(encode(&event, "/").as_bytes(), 7).unwrap();
        assert_eq!(back.payload, event.payload);
    }

    #[test]
    fn a_payload_comes_out_as_it_went_in_whatever_numbers_it_holds() {
        for payload in
            [r#"{"z": 123456789012345678901234567890, "a": 1.10, "a": 1e400}"#, "null", " \"\\ud83d\" ", "[ ]"]
        {
            let mut event = event();
            event.payload = payload.to_owned();
            let back = decode(encode(&event, "/").as_bytes(), 7).unwrap();
            assert_eq!(back.payload, payload.trim());
        }
        let bare = decode(br#"{"specversion":"1.0","id":"a","type":"t"}"#, 1).unwrap();
        assert_eq!((bare.payload.as_str(), bare.key), ("null", None), "data may be missing");
    }

    #[test]
    fn a_time_that_is_none_or_far_off_is_no_hindrance() {
        for time in ["yesterday", "", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59+00:00", "99999-01-01T00:00:00Z"] {
            let json = format!(r#"{{"specversion":"1.0","id":"a","type":"t","time":"{time}"}}"#);
            decode(json.as_bytes(), 1).unwrap();
        }
    }

    #[test]
    fn what_is_no_cloud_event_is_refused() {
        for text in
            ["", "[]", "{}", r#"{"specversion":"0.3","id":"a","type":"t"}"#, r#"{"specversion":"1.0","id":"a"}"#]
        {
            decode(text.as_bytes(), 1).unwrap_err();
        }
        let with = |rest: &str| decode(format!(r#"{{"specversion":"1.0","id":"a","type":"t",{rest}}}"#).as_bytes(), 1);
        with(r#""data":1"#).unwrap();
        for rest in [r#""id":"b""#, r#""type":7"#, r#""subject":{}"#, r#""data_base64":"AAE=""#, r#""data":"#] {
            with(rest).unwrap_err();
        }
        decode(b"{\"specversion\":\"1.0\",\"id\":\"a\",\"type\":\"t\",\"data\":\"\xff\"}", 1).unwrap_err();
    }
}
