//! Who is signed in. Sessions live in memory, few of them, each for a while; its token is asked about at each request, so
//! a token that was removed ends its sessions.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};

use crate::http::access::{Access, Caller, Role};
use crate::http::problem::Problem;

/// Longest life of a session.
const LIFE: Duration = Duration::from_secs(12 * 60 * 60);
/// Most sessions at once; the oldest gives way.
const MOST: usize = 64;
const COOKIE_NAME: &str = "vayu_admin";
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The open sessions.
#[derive(Default)]
pub(in crate::http) struct Sessions {
    open: Mutex<HashMap<String, Session>>,
}

#[derive(Clone)]
struct Session {
    token: Arc<str>,
    since: Instant,
    /// Stands in every form of the session.
    form_key: Arc<str>,
}

/// Somebody who is signed in.
pub(super) struct Operator {
    pub(super) caller: Caller,
    pub(super) form_key: Arc<str>,
}

impl Sessions {
    /// Opens a session for an administrator's token; the cookie to set.
    pub(super) fn open(&self, token: &str, access: &Access, headers: &HeaderMap) -> Result<HeaderValue, Problem> {
        let caller = access.verify(token.trim());
        Access::require(caller, Role::Admin)?;
        let (id, form_key) = (random()?, random()?);
        let session = Session { token: token.trim().into(), since: Instant::now(), form_key: form_key.into() };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, session| session.since.elapsed() < LIFE);
        if open.len() >= MOST
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.since).map(|(id, _)| id.clone())
        {
            open.remove(&oldest);
        }
        open.insert(id.clone(), session);
        cookie(&id, LIFE, headers)
    }

    /// Who sent this request, if they are signed in.
    pub(super) fn find(&self, headers: &HeaderMap, access: &Access) -> Option<Operator> {
        let session = {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.get(id_of(headers)?).filter(|session| session.since.elapsed() < LIFE)?.clone()
        };
        let caller = access.verify(&session.token).filter(|caller| caller.role.includes(Role::Admin))?;
        Some(Operator { caller, form_key: session.form_key })
    }

    /// Ends the session of this request; the cookie that takes the old one away.
    pub(super) fn close(&self, headers: &HeaderMap) -> Result<HeaderValue, Problem> {
        if let Some(id) = id_of(headers) {
            self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
        cookie("", Duration::ZERO, headers)
    }
}

/// # Errors
/// 403: the form was not sent from a page of this server.
pub(super) fn same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let of_browser = text(&FETCH_SITE).is_none_or(|site| site == "same-origin");
    let here = text(&ORIGIN).is_none_or(|origin| {
        let authority = origin.split_once("://").map(|(_, authority)| authority);
        authority.is_some() && [text(&HOST), text(&FORWARDED_HOST)].contains(&authority)
    });
    if of_browser && here {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "cross_origin", "forms are taken from pages of this server only"))
}

fn id_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE_NAME).map(|(_, id)| id)
}

fn cookie(id: &str, life: Duration, headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    let https = headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes().eq_ignore_ascii_case(b"https"));
    let secure = if https { "; Secure" } else { "" };
    let text =
        format!("{COOKIE_NAME}={id}; Path=/admin; HttpOnly; SameSite=Strict; Max-Age={}{secure}", life.as_secs());
    HeaderValue::from_str(&text).map_err(|_| no_session())
}

/// 32 random bytes in hexadecimal.
fn random() -> Result<String, Problem> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|_| no_session())?;
    let mut text = String::with_capacity(64);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

fn no_session() -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "no session can be opened now")
}
