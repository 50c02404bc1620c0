//! Exceptions, one by one.

use rusqlite::{Connection, Row};

use super::mend::Fix;
use super::{Breach, CheckReport, Finding};
use crate::outbox::operator::lossy;
use crate::outbox::{MAX_PAYLOAD_BYTES, sql};

/// Rows in one snapshot.
const PAGE: i64 = 2_000;

/// An exception with what stands around it.
struct Look {
    id: i64,
    handler: String,
    key: Option<String>,
    state: String,
    next_attempt_at: Option<i64>,
    superseded_by: Option<i64>,
    sound_history: bool,
    sound_payload: bool,
    payload_bytes: i64,
    sound_counts: bool,
    has_event: bool,
    key_differs: bool,
    has_lane: bool,
    /// State of the lowest open row of its key below it.
    open_below: Option<String>,
}

/// Checks a page; returns where the next begins.
pub(super) fn check_page(
    connection: &Connection,
    (after_id, after_handler): &(i64, String),
    report: &mut CheckReport,
) -> rusqlite::Result<Option<(i64, String)>> {
    let mut statement = connection.prepare_cached(sql::CHECK_ROWS)?;
    let mut rows = statement.query((after_id, after_handler, PAGE))?;
    let (mut seen, mut last) = (0, None);
    while let Some(row) = rows.next()? {
        let look = Look::decode(row)?;
        seen += 1;
        report.exceptions += 1;
        for finding in [look.order(), look.surroundings(), look.columns()].into_iter().flatten() {
            report.add(finding.at(&look.handler, Some(look.id)));
        }
        last = Some((look.id, look.handler));
    }
    Ok(if seen < PAGE { None } else { last })
}

impl Look {
    fn decode(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            handler: lossy(row, 1)?.unwrap_or_default(),
            key: lossy(row, 2)?,
            state: lossy(row, 3)?.unwrap_or_default(),
            next_attempt_at: row.get(4)?,
            superseded_by: row.get(5)?,
            sound_history: row.get(6)?,
            sound_payload: row.get(7)?,
            payload_bytes: row.get(8)?,
            sound_counts: row.get(9)?,
            has_event: row.get(10)?,
            key_differs: row.get(11)?,
            has_lane: row.get(12)?,
            open_below: lossy(row, 13)?,
        })
    }

    fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "retry" | "waiting" | "parked")
    }

    fn order(&self) -> Option<Finding> {
        let Self { id, handler, .. } = self;
        let key = self.key.as_deref().unwrap_or("-");
        let behind = Fix::Wait { id: *id, handler: handler.clone() };
        match (self.state.as_str(), &self.open_below) {
            ("retry", Some(below)) if below == "retry" => Some(
                Finding::new(
                    Breach::TwoHeads,
                    format!("event {id} and an earlier one of key {key:?} are both due: their order is not kept"),
                    "let it wait behind the earlier one: `outbox check --fix` does",
                )
                .fixed_by(behind),
            ),
            ("retry", Some(below)) => Some(
                Finding::new(
                    Breach::RetryBehindOpen,
                    format!("event {id} is due while an earlier one of key {key:?} is {below}"),
                    "let it wait behind the earlier one: `outbox check --fix` does",
                )
                .fixed_by(behind),
            ),
            ("waiting", None) => Some(
                Finding::new(
                    Breach::WaitingWithoutHead,
                    format!("event {id} waits, and no earlier one of key {key:?} is open: nothing wakes it"),
                    "make it due: `outbox check --fix` does, and so does the relay when it takes the lane",
                )
                .fixed_by(Fix::Wake { id: *id, handler: handler.clone(), key: self.key.clone() }),
            ),
            _ => None,
        }
    }

    fn surroundings(&self) -> Option<Finding> {
        let Self { id, handler, state, .. } = self;
        if !self.has_event {
            let remedy = if self.is_open() || state == "dead_letter" {
                "discard it: `outbox check --fix` does"
            } else {
                "remove the row, which nobody needs: `outbox check --fix` does"
            };
            return Some(
                Finding::new(
                    Breach::EventMissing,
                    format!("event {id} is {state}, and the log does not hold it"),
                    remedy,
                )
                .fixed_by(Fix::CloseGone { id: *id, handler: handler.clone() }),
            );
        }
        if !self.has_lane && (self.is_open() || state == "dead_letter") {
            return Some(Finding::new(
                Breach::NoLane,
                format!("event {id} is {state} for {handler:?}, which has no lane"),
                format!(
                    "start a program that has the handler, or give up what is left of it: `handler retire {handler}`"
                ),
            ));
        }
        self.key_differs.then(|| {
            Finding::new(
                Breach::KeyDiffers,
                format!("event {id} is {state} under key {:?}, and has another in the log", self.key),
                "set deliveries.event_key to what the log says, with no program running",
            )
        })
    }

    fn columns(&self) -> Option<Finding> {
        let id = self.id;
        let known = ["retry", "waiting", "parked", "dead_letter", "discarded", "done"];
        let wrong = if !known.contains(&self.state.as_str()) {
            format!("state {:?} is none", self.state)
        } else if self.state == "retry" && self.next_attempt_at.is_none() {
            "it is to be tried again, without a time".to_owned()
        } else if self.superseded_by.is_some_and(|by| by <= id) {
            format!("it is superseded by {:?}, which is not later", self.superseded_by)
        } else if !self.sound_counts {
            "a count of attempts, crashes or replays is negative".to_owned()
        } else if !self.sound_history {
            "its history is no JSON list".to_owned()
        } else if !self.sound_payload || self.payload_bytes > MAX_PAYLOAD_BYTES as i64 {
            "its edited payload is no JSON, or too large".to_owned()
        } else {
            return None;
        };
        let remedy = format!(
            "give it a payload that is sound with `outbox edit`, or give it up: `outbox discard {} {id}`",
            self.handler
        );
        Some(Finding::new(Breach::BadException, format!("event {id}: {wrong}"), remedy))
    }
}
