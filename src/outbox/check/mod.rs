//! `check`: what in the outbox breaks an invariant, and how to mend it.
//!
//! The relay leaves nothing that is found here. A foreign hand, a restored table or a damaged disk may. It reads only,
//! page by page, so it may run beside anything.

mod lanes;
mod mend;
mod rows;
mod schema;

use std::fmt;

use crate::storage::{Database, ReadError};

pub use mend::mend;

/// Findings that a report lists; what is beyond is counted.
pub const MAX_FINDINGS: usize = 1_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// At most [`MAX_FINDINGS`]; empty when all is well.
    pub findings: Vec<Finding>,
    /// What a crash or a restore leaves and the next relay settles, which breaks no rule: [`Breach::DeadOwner`] and
    /// [`Breach::UnknownOwner`]. At most [`MAX_FINDINGS`] lanes.
    pub notes: Vec<Finding>,
    /// Findings beyond those listed.
    pub more: u64,
    /// Lanes that were looked at.
    pub lanes: u64,
    /// Exceptions that were looked at.
    pub exceptions: u64,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Which rule is broken.
    pub breach: Breach,
    /// The handler it is about.
    pub handler: Option<String>,
    /// The log position it is about.
    pub outbox_id: Option<i64>,
    /// What is wrong, as a sentence.
    pub what: String,
    /// What to do, as a sentence.
    pub remedy: String,
    fix: Option<mend::Fix>,
}

/// A broken rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Breach {
    /// A `retry` row has an open row of its key below it that is no `retry`.
    RetryBehindOpen,
    /// Two rows of one key are `retry`.
    TwoHeads,
    /// A `waiting` row has nothing to wait for.
    WaitingWithoutHead,
    /// An exception's event is not in the log.
    EventMissing,
    /// An exception belongs to a handler that has no lane.
    NoLane,
    /// An exception has another key than its event.
    KeyDiffers,
    /// Columns of an exception that do not fit together.
    BadException,
    /// A cursor stands beyond every id that the log has given.
    CursorBeyondLog,
    /// An event is named as running, and nobody owns the lane.
    RunningOfNobody,
    /// A lane's owner is dead. A note.
    DeadOwner,
    /// A lane's owner cannot be told alive or dead. A note.
    UnknownOwner,
    /// Columns of a lane that do not fit together.
    BadLane,
    /// A table, index, trigger or view is missing.
    SchemaMissing,
    /// A table, index, trigger or view is not as this version makes it.
    SchemaDiffers,
    /// An index or trigger on the outbox's tables that is not the outbox's.
    SchemaForeign,
}

impl Finding {
    fn new(breach: Breach, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { breach, handler: None, outbox_id: None, what: what.into(), remedy: remedy.into(), fix: None }
    }

    fn at(mut self, handler: &str, outbox_id: Option<i64>) -> Self {
        (self.handler, self.outbox_id) = (Some(handler.to_owned()), outbox_id);
        self
    }

    fn fixed_by(mut self, fix: mend::Fix) -> Self {
        self.fix = Some(fix);
        self
    }

    /// Whether [`mend`] can mend it without losing anything.
    pub fn is_mendable(&self) -> bool {
        self.fix.is_some()
    }
}

impl CheckReport {
    /// Nothing is wrong; there may be [`notes`](Self::notes).
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }

    fn note(&mut self, note: Finding) {
        if self.notes.len() < MAX_FINDINGS {
            self.notes.push(note);
        }
    }

    fn add(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Looks at the outbox in `database` and finds what breaks an invariant. Changes nothing.
///
/// Takes about 10 microseconds per exception, in pages, and nothing per event of the log.
///
/// # Errors
/// As the reads report it.
pub fn check(database: &Database) -> Result<CheckReport, ReadError<rusqlite::Error>> {
    let mut report = CheckReport::default();
    database.read(|connection| schema::check(connection, &mut report))?;
    lanes::check(database, &mut report)?;
    let mut after = Some((i64::MIN, String::new()));
    while let Some(place) = after {
        after = database.read(|connection| rows::check_page(connection, &place, &mut report))?;
    }
    Ok(report)
}

impl Breach {
    /// The word for it in `--json`; it never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::RetryBehindOpen => "retry_behind_open",
            Self::TwoHeads => "two_heads",
            Self::WaitingWithoutHead => "waiting_without_head",
            Self::EventMissing => "event_missing",
            Self::NoLane => "no_lane",
            Self::KeyDiffers => "key_differs",
            Self::BadException => "bad_exception",
            Self::CursorBeyondLog => "cursor_beyond_log",
            Self::RunningOfNobody => "running_of_nobody",
            Self::DeadOwner => "dead_owner",
            Self::UnknownOwner => "unknown_owner",
            Self::BadLane => "bad_lane",
            Self::SchemaMissing => "schema_missing",
            Self::SchemaDiffers => "schema_differs",
            Self::SchemaForeign => "schema_foreign",
        }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
