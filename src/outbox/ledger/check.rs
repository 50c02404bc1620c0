//! Which entries nothing can move any more: foreign hands, or a damaged disk, left what no claim can name or no handler can get.

use rusqlite::Row;

use super::place::LedgerPlace;
use super::stored::{RawText, StoredEvent};
use super::{Ledger, LedgerError, LedgerState, sql};
use crate::outbox::event::MAX_NAME_BYTES;
use crate::outbox::{MAX_FINDINGS, MAX_PAGE};
use crate::storage::ReadError;

/// What [`Ledger::check`] has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerReport {
    /// How many entries were looked at: those that are open or dead.
    pub entries: u64,
    /// The findings, up to [`MAX_FINDINGS`].
    pub findings: Vec<LedgerFinding>,
    /// How many more there are.
    pub more: u64,
}

/// An entry that nothing can move, and what to do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LedgerFinding {
    /// The handler's name, as far as it can be read.
    pub handler: String,
    /// The event's id, as far as it can be read.
    pub event_id: String,
    /// What is wrong.
    pub what: &'static str,
    /// How to mend it.
    pub remedy: String,
}

const DISCARD: &str = "discard it, and have the event sent once more if it matters";

/// A row, whatever its bytes are.
struct Look {
    place: LedgerPlace,
    key: Option<RawText>,
    position: Option<i64>,
    has_event: bool,
    event: Option<StoredEvent>,
}

impl Ledger {
    /// Looks through all entries that are open or dead for such as nothing can move. Open ones of those hold back the later
    /// events of their key.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn check(&self) -> Result<LedgerReport, LedgerError> {
        let mut report = LedgerReport::default();
        for state in [LedgerState::InProgress, LedgerState::Retry, LedgerState::DeadLetter] {
            let mut after = LedgerPlace::default();
            // Each page has a snapshot of its own, so that none keeps the write-ahead log from starting afresh.
            loop {
                let page = self.look_at(state, &after).map_err(LedgerError::Read)?;
                page.iter().for_each(|look| report.add(look));
                let Some(last) = page.last() else { break };
                after = last.place.clone();
            }
        }
        Ok(report)
    }

    fn look_at(&self, state: LedgerState, after: &LedgerPlace) -> Result<Vec<Look>, ReadError<rusqlite::Error>> {
        self.inner.database.read(|connection| {
            let mut statement = connection.prepare_cached(sql::CHECK_ROWS)?;
            let page = (state.stored(), &after.handler, &after.event_id, super::entries::page(MAX_PAGE));
            statement.query_map(page, Look::decode)?.collect()
        })
    }
}

impl LedgerReport {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, look: &Look) {
        self.entries += 1;
        let Some(finding) = look.finding() else { return };
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

impl Look {
    fn decode(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            place: LedgerPlace { handler: row.get(1)?, event_id: row.get(0)? },
            key: row.get(2)?,
            position: row.get(3)?,
            has_event: row.get_ref(4)? != rusqlite::types::ValueRef::Null,
            event: StoredEvent::read(row, 4)?,
        })
    }

    fn finding(&self) -> Option<LedgerFinding> {
        let LedgerPlace { handler, event_id } = &self.place;
        let (what, remedy) = if !is_name(handler) || !is_name(event_id) {
            ("its handler or its event id is no name that a claim could have", self.deletion())
        } else if self.has_event && self.event.is_none() {
            ("what is stored of its event is none, so nothing but the broker can bring it again", DISCARD.to_owned())
        } else if self.event.as_ref().is_some_and(|event| !event.is_of(event_id, self.key.as_ref(), self.position)) {
            ("the event stored with it is another one, or has another key or place", DISCARD.to_owned())
        } else {
            return None;
        };
        let text = |raw: &RawText| String::from_utf8_lossy(raw.bytes()).into_owned();
        Some(LedgerFinding { handler: text(handler), event_id: text(event_id), what, remedy })
    }

    /// No command can name it.
    fn deletion(&self) -> String {
        use std::fmt::Write;
        let hex = |raw: &RawText| {
            raw.bytes().iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            })
        };
        format!(
            "with the worker stopped: DELETE FROM processed_events WHERE event_id = CAST(x'{}' AS TEXT) AND handler = \
             CAST(x'{}' AS TEXT)",
            hex(&self.place.event_id),
            hex(&self.place.handler)
        )
    }
}

fn is_name(raw: &RawText) -> bool {
    let bytes = raw.bytes();
    !bytes.is_empty() && bytes.len() <= MAX_NAME_BYTES && !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}
