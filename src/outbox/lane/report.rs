//! What a lane says in the log of the program: failures by name, at most a few lines a second, and never a payload.

use std::fmt;
use std::time::{Duration, Instant};

use log::Level;

use crate::outbox::flush::{Change, Flush, Verdict};
use crate::outbox::sql;
use crate::storage::Database;

/// At most so many lines of one kind in one window; what is beyond is counted, and the count is said afterwards.
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
/// Longest reason in a line, in characters; the whole is in the exception.
const MAX_REASON: usize = 300;

/// Reports the outcomes of one lane, once they are written.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    given_up: Limit,
    retries: Limit,
}

/// One kind of line within its bounds.
#[derive(Debug, Default)]
struct Limit {
    since: Option<Instant>,
    lines: u32,
    untold: u64,
}

/// A failure as the log names it.
struct Failure<'f> {
    handler: &'f str,
    /// What became of the event: `dead_letter`, `parked`, `retry`, `discarded`.
    becomes: &'static str,
    id: i64,
    event_id: Option<String>,
    key: Option<&'f str>,
    what: &'f str,
    failed_calls: u32,
    reason: &'f str,
}

impl Reporter {
    /// Reports what a flush has written.
    pub(super) fn written(&mut self, database: &Database, flush: &Flush, now: Instant) {
        self.counts(&flush.handler, now);
        for change in &flush.changes {
            let (id, key, verdict) = match change {
                Change::New { id, key, verdict } | Change::Ran { id, key, verdict, .. } => (*id, key, verdict),
                Change::Passed { .. } => continue,
            };
            let (level, becomes, what, failed_calls, reason) = match verdict {
                Verdict::Final { attempts, what, reason } => {
                    let becomes = if verdict.parks(flush.park_keys) { "parked" } else { "dead_letter" };
                    (Level::Error, becomes, *what, *attempts, reason)
                }
                Verdict::Discarded { reason } => (Level::Error, "discarded", "discard", 0, reason),
                Verdict::Retry { attempts, reason, .. } => (Level::Info, "retry", "retry", *attempts, reason),
                Verdict::Done | Verdict::Blocked => continue,
            };
            let limit = if level == Level::Error { &mut self.given_up } else { &mut self.retries };
            if !log::log_enabled!(level) || !limit.admits(now) {
                continue;
            }
            let (handler, key, event_id) = (flush.handler.as_str(), key.as_deref(), event_id_of(database, id));
            let failure = Failure { handler, becomes, id, event_id, key, what, failed_calls, reason };
            log::log!(level, "lane {failure}");
        }
    }

    /// An event was condemned while the lane was taken.
    pub(super) fn condemned(&mut self, database: &Database, flush: (&str, bool), id: i64, now: Instant) {
        let (handler, park_keys) = flush;
        if !log::log_enabled!(Level::Error) || !self.given_up.admits(now) {
            return;
        }
        let becomes = if park_keys { "parked" } else { "dead_letter" };
        let event_id = event_id_of(database, id);
        let reason = "the process died each time it ran";
        let what = "crash_loop";
        let failure = Failure { handler, becomes, id, event_id, key: None, what, failed_calls: 0, reason };
        log::error!("lane {failure}");
    }

    /// Says how many lines were left out, once their window is over.
    pub(super) fn counts(&mut self, handler: &str, now: Instant) {
        if let Some(untold) = self.given_up.take_untold(now) {
            log::error!(
                "lane handler={handler} given_up_besides={untold} list_them=\"outbox list --handler {handler}\""
            );
        }
        if let Some(untold) = self.retries.take_untold(now) {
            log::info!("lane handler={handler} retries_besides={untold}");
        }
    }

    /// The lane ends: what is left to say is said now.
    pub(super) fn end(&mut self, handler: &str) {
        self.counts(handler, Instant::now() + WINDOW);
    }
}

impl Limit {
    fn admits(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            self.since = Some(now);
            self.lines = 0;
        }
        if self.lines < LINES {
            self.lines += 1;
            return true;
        }
        self.untold += 1;
        false
    }

    fn take_untold(&mut self, now: Instant) -> Option<u64> {
        let over = self.since.is_some_and(|since| now.saturating_duration_since(since) >= WINDOW);
        (over && self.untold > 0).then(|| std::mem::take(&mut self.untold))
    }
}

/// Only asked for a line that is written: the lane itself needs no more than the position.
fn event_id_of(database: &Database, id: i64) -> Option<String> {
    let found = database
        .read(|connection| connection.prepare_cached(sql::EVENT_ID_OF)?.query_row([id], |row| row.get::<_, String>(0)));
    found.ok()
}

/// Quotes and control characters are escaped, so that no text from outside can forge a line.
impl fmt::Display for Failure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { handler, becomes, id, event_id, key, what, failed_calls, reason } = self;
        write!(f, "handler={handler} event={becomes} id={id}")?;
        if let Some(event_id) = event_id {
            write!(f, " event_id={event_id:?}")?;
        }
        if let Some(key) = key {
            write!(f, " key={key:?}")?;
        }
        write!(f, " what={what} failed_calls={failed_calls} reason={:?}", shorten(reason))
    }
}

/// A reason of a length that suits a line.
pub(super) fn shorten(reason: &str) -> &str {
    reason.char_indices().nth(MAX_REASON).map_or(reason, |(end, _)| &reason[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_of_failures_is_ten_lines_in_ten_seconds_and_a_count() {
        let mut limit = Limit::default();
        let start = Instant::now();
        assert_eq!((0..1_000).filter(|_| limit.admits(start)).count(), 10);
        let later = start + Duration::from_secs(9);
        assert_eq!((limit.admits(later), limit.take_untold(later)), (false, None), "the window is not over");
        let over = start + WINDOW;
        assert_eq!(limit.take_untold(over), Some(991));
        assert!(limit.admits(over) && limit.take_untold(over + WINDOW).is_none());
    }

    #[test]
    fn no_text_from_outside_forges_a_line() {
        let reason = format!("down\nlane handler=x \"{}", "é".repeat(1_000));
        let failure = Failure {
            handler: "mail",
            becomes: "dead_letter",
            id: 7,
            event_id: Some("e-7".into()),
            key: Some("order 1"),
            what: "poison",
            failed_calls: 1,
            reason: &reason,
        };
        let line = failure.to_string();
        let begins = "handler=mail event=dead_letter id=7 event_id=\"e-7\" key=\"order 1\" what=poison failed_calls=1 \
                      reason=\"down\\nlane handler=x \\\"é";
        assert!(line.starts_with(begins), "{line}");
        assert!(!line.contains('\n') && line.chars().count() < 500, "{line}");
    }
}
