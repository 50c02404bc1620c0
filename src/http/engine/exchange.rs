//! One request and its answer: checked, read, handed to a handler thread, answered.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use crossbeam_channel::TrySendError;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING};
use hyper::{HeaderMap, Method, StatusCode, Version, http};
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::accept::{BodyShare, Hub};
use super::connection::{Conn, Phase};
use super::options::STOP_BODY_GRACE;
use super::pool::{Answer, Job, Ticket};
use super::{Refusal, Request, Response};

/// What a body's buffer begins with at most; it grows as bytes arrive, not as they are promised.
const BODY_CAPACITY_FIRST: usize = 64 * 1024;

type HttpResponse = hyper::Response<Full<Bytes>>;

/// Answers one request. Never fails: what cannot be answered is refused.
pub(super) async fn exchange(
    hub: Rc<Hub>,
    conn: Rc<Conn>,
    request: hyper::Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    conn.enter(Phase::Request);
    let _in_flight = hub.counters.request();
    let head_only = request.method() == Method::HEAD;
    let line = (request.method().clone(), request.uri().path().to_owned());
    let (response, close) = match answer(&hub, &conn, request).await {
        Ok(response) => (response, false),
        Err(refusal) => {
            let (method, path, status) = (line.0, line.1, refusal.status.as_u16());
            log::info!(
                "request method={method} path={path:?} status={status} peer={} refused={:?}",
                conn.peer,
                refusal.message
            );
            hub.counters.refused();
            if refusal.close {
                conn.refuse();
            }
            (word(&hub, &refusal), refusal.close)
        }
    };
    conn.enter(Phase::Response);
    Ok(framed(response, head_only, close || hub.stopping()))
}

async fn answer(hub: &Rc<Hub>, conn: &Conn, request: hyper::Request<Incoming>) -> Result<Response, Refusal> {
    let (head, body) = request.into_parts();
    check_head(conn, &head)?;
    if body.size_hint().lower() > hub.options.max_body as u64 {
        return Err(too_large());
    }
    let mut share = hub.body_share();
    let body = read_body(hub, body, &mut share).await?;
    let deadline = Instant::now() + hub.options.handler_deadline;
    let request = Request {
        method: head.method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers: head.headers,
        body,
        peer: conn.peer,
        deadline: deadline.into_std(),
    };
    let (job, ticket) = Job::new(request, hub.counters.queued());
    match hub.jobs.try_send(job) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            return Err(Refusal::busy("too many requests are waiting; try again soon", false));
        }
        Err(TrySendError::Disconnected(_)) => return Err(Refusal::busy("the server is stopping", true)),
    }
    await_answer(ticket, deadline, hub.options.handler_grace).await
}

fn check_head(conn: &Conn, head: &http::request::Parts) -> Result<(), Refusal> {
    let bad = |message| Err(Refusal::closing(StatusCode::BAD_REQUEST, message));
    if conn.head_is_ambiguous() {
        return bad("Content-Length and Transfer-Encoding exclude each other");
    }
    let mut encodings = head.headers.get_all(TRANSFER_ENCODING).iter();
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if encodings.next().is_some_and(|value| !chunked(value)) || encodings.next().is_some() {
        return Err(Refusal::closing(
            StatusCode::NOT_IMPLEMENTED,
            "of the transfer encodings only chunked is understood",
        ));
    }
    let hosts = head.headers.get_all(HOST).iter().count();
    if hosts > 1 || (hosts == 0 && head.version >= Version::HTTP_11) {
        return bad("a request has exactly one Host field");
    }
    if head.method == Method::CONNECT {
        return Err(Refusal::closing(StatusCode::NOT_IMPLEMENTED, "this is not a proxy"));
    }
    Ok(())
}

/// Reads the whole body. hyper sends `100 Continue` when the first of it is asked for.
async fn read_body(hub: &Hub, body: Incoming, share: &mut BodyShare) -> Result<Bytes, Refusal> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let deadline = Instant::now() + hub.options.body_deadline;
    let mut stop = hub.stop.clone();
    let stopped = async {
        let _ = stop.wait_for(Option::is_some).await;
        sleep(STOP_BODY_GRACE).await;
    };
    tokio::select! {
        biased;
        read = timeout_at(deadline, collect(body, hub.options.max_body, share)) => read.unwrap_or_else(|_| {
            Err(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "the request body took too long"))
        }),
        () = stopped => Err(Refusal::busy("the server is stopping", true)),
    }
}

async fn collect(mut body: Incoming, max: usize, share: &mut BodyShare) -> Result<Bytes, Refusal> {
    let promised = usize::try_from(body.size_hint().lower()).unwrap_or(max);
    let mut collected = BytesMut::with_capacity(promised.min(BODY_CAPACITY_FIRST));
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| Refusal::closing(StatusCode::BAD_REQUEST, "the request body is malformed or cut short"))?;
        // Trailers mean nothing here.
        let Ok(data) = frame.into_data() else { continue };
        if data.len() > max - collected.len() {
            return Err(too_large());
        }
        if !share.take(data.len()) {
            return Err(Refusal::busy("too many request bodies are being read; try again soon", true));
        }
        collected.extend_from_slice(&data);
    }
    Ok(collected.freeze())
}

async fn await_answer(mut ticket: Ticket, deadline: Instant, grace: Duration) -> Result<Response, Refusal> {
    let mut answer = timeout_at(deadline, &mut ticket.answer).await;
    if answer.is_err() {
        if ticket.cancel() {
            return Err(Refusal::busy("no handler was free in time; nothing was done, try again", false));
        }
        answer = timeout_at(deadline + grace, &mut ticket.answer).await;
    }
    let failed = |status, message| Err(Refusal { status, message, retry_after: None, close: false });
    match answer {
        Ok(Ok(Answer::Response(response))) => Ok(response),
        Ok(Ok(Answer::Panicked)) => failed(StatusCode::INTERNAL_SERVER_ERROR, "the request could not be handled"),
        Ok(Err(_)) => Err(Refusal::busy("the server is stopping", true)),
        Err(_) => failed(StatusCode::GATEWAY_TIMEOUT, "no answer in time; whether anything was done is not known"),
    }
}

fn too_large() -> Refusal {
    Refusal::closing(StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large")
}

/// The refusal in the user's words, with what the protocol needs.
pub(super) fn word(hub: &Hub, refusal: &Refusal) -> Response {
    let mut response = catch_unwind(AssertUnwindSafe(|| (hub.refusals)(refusal))).unwrap_or_else(|_| refusal.as_text());
    response.status = refusal.status;
    if let Some(seconds) = refusal.retry_after {
        response.headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The response as hyper gets it: framing is decided here and by hyper, not by a handler.
fn framed(mut response: Response, head_only: bool, close: bool) -> HttpResponse {
    if response.status.is_informational() {
        log::error!("service=http a handler answered {}, which is not an answer", response.status.as_u16());
        response = Response::new(StatusCode::INTERNAL_SERVER_ERROR, "");
    }
    let Response { status, mut headers, body } = response;
    strip_framing(&mut headers, head_only && body.is_empty());
    if close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let mut http = hyper::Response::new(Full::new(body));
    *http.status_mut() = status;
    *http.headers_mut() = headers;
    http
}

fn strip_framing(headers: &mut HeaderMap, keep_length: bool) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
    if !keep_length {
        headers.remove(CONTENT_LENGTH);
    }
}
