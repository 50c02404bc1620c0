//! Lanes and their owners.

use rusqlite::{Connection, Row};

use super::mend::Fix;
use super::{Breach, CheckReport, Finding};
use crate::outbox::operator::lossy;
use crate::outbox::owner::{self, OwnerState};
use crate::outbox::sql;
use crate::storage::{Database, ReadError};

/// A lane's row, and how far the log has counted.
struct Look {
    handler: String,
    event_types: String,
    held: i64,
    cursor: i64,
    owner: Option<String>,
    owned_since: Option<i64>,
    running: Option<i64>,
    paused_until: Option<i64>,
    outage_since: Option<i64>,
    sequence: i64,
}

pub(super) fn check(database: &Database, report: &mut CheckReport) -> Result<(), ReadError<rusqlite::Error>> {
    let lanes = database.read(read)?;
    let path = database.canonical_path().unwrap_or_default();
    for lane in lanes {
        report.lanes += 1;
        let owner = lane.owner.as_deref().and_then(|owner| about_owner(&lane, owner::look(&path, owner)));
        for finding in [lane.cursor(), lane.running(), lane.columns()].into_iter().flatten() {
            report.add(finding.at(&lane.handler, None));
        }
        if let Some(note) = owner {
            report.note(note.at(&lane.handler, None));
        }
    }
    Ok(())
}

fn read(connection: &Connection) -> rusqlite::Result<Vec<Look>> {
    connection.prepare_cached(sql::CHECK_LANES)?.query_map([], Look::decode)?.collect()
}

fn about_owner(lane: &Look, (state, pid): (OwnerState, Option<u32>)) -> Option<Finding> {
    let name = &lane.handler;
    let pid = pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    match state {
        OwnerState::Dead => Some(Finding::new(
            Breach::DeadOwner,
            format!("the owner of lane {name:?}{pid} died without letting go"),
            "start a program that has the handler: it takes the lane over at once",
        )),
        OwnerState::Unknown => Some(Finding::new(
            Breach::UnknownOwner,
            format!("the lock file of the owner of lane {name:?} is missing, replaced by a copy, or unreadable"),
            "look again in a second, when a living owner has put it back; else start a program that has the handler: it \
             takes the lane over after two seconds",
        )),
        OwnerState::Alive | OwnerState::NoOwner => None,
    }
}

impl Look {
    fn decode(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            handler: lossy(row, 0)?.unwrap_or_default(),
            event_types: lossy(row, 1)?.unwrap_or_default(),
            held: row.get(2)?,
            cursor: row.get(3)?,
            owner: lossy(row, 4)?,
            owned_since: row.get(5)?,
            running: row.get(6)?,
            paused_until: row.get(7)?,
            outage_since: row.get(8)?,
            sequence: row.get(9)?,
        })
    }

    fn cursor(&self) -> Option<Finding> {
        let Self { handler, cursor, sequence, .. } = self;
        if *cursor < 0 {
            return Some(Finding::new(
                Breach::BadLane,
                format!("the cursor of lane {handler:?} is {cursor}"),
                format!("`handler rewind {handler} --to-start`"),
            ));
        }
        (cursor > sequence).then(|| {
            Finding::new(
                Breach::CursorBeyondLog,
                format!("lane {handler:?} stands at {cursor}, and the log has given ids up to {sequence}: it was emptied or replaced"),
                "raise the log's sequence, so that new events come after it: `outbox check --fix` does, and so does the \
                 relay when it takes the lane; to deliver again what the log holds: `handler rewind`",
            )
            .fixed_by(Fix::RaiseSequence { handler: handler.clone() })
        })
    }

    fn running(&self) -> Option<Finding> {
        let id = self.running.filter(|_| self.owner.is_none())?;
        let handler = &self.handler;
        Some(
            Finding::new(
                Breach::RunningOfNobody,
                format!("lane {handler:?} names event {id} as running, and has no owner"),
                "take the name away: `outbox check --fix` does, and so does the relay when it takes the lane",
            )
            .fixed_by(Fix::ClearRunning { handler: handler.clone() }),
        )
    }

    fn columns(&self) -> Option<Finding> {
        let wrong = if serde_json::from_str::<Vec<String>>(&self.event_types).is_err() {
            "its filter is no JSON list of event types"
        } else if !matches!(self.held, 0 | 1) {
            "held is neither 0 nor 1"
        } else if self.owner.is_some() != self.owned_since.is_some() {
            "owner and owned_since do not go together"
        } else if self.paused_until.is_some() && self.outage_since.is_none() {
            "it is paused, without an outage"
        } else {
            return None;
        };
        let remedy = "start a program that has the handler: it writes these columns anew when it takes the lane";
        Some(Finding::new(Breach::BadLane, format!("lane {:?}: {wrong}", self.handler), remedy))
    }
}
