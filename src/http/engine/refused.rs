//! The answers that hyper gives by itself, to heads it cannot read, with a body that says what is wrong.
//!
//! hyper answers those with a bare status line before anybody is asked. It does so only while no answer of ours is on
//! its way, so whatever it writes then is such an answer, alone; [`Stream`](super::connection) sends this instead.

use std::time::SystemTime;

use hyper::StatusCode;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};

use super::options::HEAD_BYTES_MAX;
use super::{Refusal, Response};

/// What hyper's answer says; `None` if it is none that is known here. In a head that is too large,
/// the address is to blame if the first line is this long.
pub(super) fn refusal(written: &[u8], first_line: usize) -> Option<Refusal> {
    let status = written.strip_prefix(b"HTTP/1.1 ").or_else(|| written.strip_prefix(b"HTTP/1.0 "))?.get(..3)?;
    let status = StatusCode::from_bytes(status).ok().filter(StatusCode::is_client_error)?;
    let status = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE if first_line > HEAD_BYTES_MAX / 2 => StatusCode::URI_TOO_LONG,
        status => status,
    };
    let message = match status {
        StatusCode::URI_TOO_LONG => "the address is too long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "the header fields are too many, or too long together",
        _ => "this is no request that HTTP/1.1 knows",
    };
    Some(Refusal::closing(status, message))
}

/// The whole answer as bytes, after which the connection ends.
pub(super) fn bytes(response: &Response) -> Vec<u8> {
    let Response { status, headers, body } = response;
    let reason = status.canonical_reason().unwrap_or_default();
    let date = httpdate::fmt_http_date(SystemTime::now());
    let framing = format!(
        "HTTP/1.1 {} {reason}\r\ndate: {date}\r\nconnection: close\r\ncontent-length: {}\r\n",
        status.as_u16(),
        body.len()
    );
    let mut bytes = framing.into_bytes();
    for (name, value) in headers {
        if [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING].contains(name) {
            continue;
        }
        // A header value holds no line end; its type sees to that.
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::engine::header::{CONTENT_TYPE, HeaderValue};

    #[test]
    fn only_a_refusal_is_taken_for_one() {
        let of = |text: &str| refusal(text.as_bytes(), 100).map(|refusal| refusal.status.as_u16());
        assert_eq!(of("HTTP/1.1 431 Request Header Fields Too Large\r\n"), Some(431));
        let long = refusal(b"HTTP/1.1 431 Request Header Fields Too Large\r\n", 40_000);
        assert_eq!(long.map(|refusal| refusal.status), Some(StatusCode::URI_TOO_LONG));
        assert_eq!(of("HTTP/1.0 400 Bad Request\r\n"), Some(400));
        for text in ["HTTP/1.1 100 Continue\r\n", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 4", "<html>", ""] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn the_framing_is_the_engines_own() {
        let response = Response::text(StatusCode::BAD_REQUEST, "no\n")
            .header(CONTENT_LENGTH, HeaderValue::from_static("99"))
            .header(CONTENT_TYPE, HeaderValue::from_static("text/x"));
        let text = String::from_utf8(bytes(&response)).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert_eq!(body, "no\n");
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\ndate: "), "{head}");
        assert!(head.ends_with("connection: close\r\ncontent-length: 3\r\ncontent-type: text/x"), "{head}");
    }
}
