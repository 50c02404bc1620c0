//! The table of `ureq::Error`.

use super::Class::{self, Poison, Retry, Unavailable};
use crate::outbox::DispatchError;

/// The whole table. A call without an answer met an outage, whatever the reason; so did one with settings that no event
/// can help, such as certificates. An answer that is there and not to be used is a failure of this event.
fn class_of(error: &ureq::Error) -> Class {
    use ureq::Error as Http;
    match error {
        Http::StatusCode(status) => class_of_status(*status),
        // The request itself cannot be made.
        Http::Http(_) | Http::BadUri(_) | Http::RequireHttpsOnly(_) => Poison,
        // There was an answer.
        Http::RedirectFailed
        | Http::TooManyRedirects
        | Http::BodyExceedsLimit(_)
        | Http::LargeResponseHeader(..)
        | Http::Decompress(..) => Retry,
        // No answer, or none that is HTTP.
        Http::Io(_)
        | Http::Timeout(_)
        | Http::HostNotFound
        | Http::ConnectionFailed
        | Http::ConnectProxyFailed(_)
        | Http::Protocol(_)
        | Http::BodyStalled
        | Http::Other(_) => Unavailable,
        // Settings.
        Http::InvalidProxyUrl | Http::Tls(_) | Http::Pem(_) | Http::Rustls(_) | Http::TlsRequired => Unavailable,
        // New to this table, or of a feature of ureq that the program has added.
        _ => Unavailable,
    }
}

/// A token that is wrong or has expired (401, 403, 407) is no fault of the event, and 429, 502, 503 and 504 say that the
/// other side is down. What it refuses otherwise never will work, but for 408 and 425; the rest is worth another try.
fn class_of_status(status: u16) -> Class {
    match status {
        401 | 403 | 407 | 429 | 502..=504 => Unavailable,
        408 | 425 => Retry,
        400..=499 => Poison,
        _ => Retry,
    }
}

/// A call that got no answer met an outage, unless the request itself cannot be made; so did one that was answered 401,
/// 403, 407, 429, 502, 503 or 504. Other statuses from 400 to 499 never will work, save 408 and 425; the rest is worth another try.
impl From<&ureq::Error> for DispatchError {
    fn from(error: &ureq::Error) -> Self {
        let text = match error {
            ureq::Error::StatusCode(status) => format!("the other side answered {status}"),
            other => other.to_string(),
        };
        class_of(error).with(text)
    }
}

impl From<ureq::Error> for DispatchError {
    fn from(error: ureq::Error) -> Self {
        Self::from(&error)
    }
}
