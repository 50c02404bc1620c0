//! What becomes of writes at present: one row of the database, read inside every transaction that would write articles.

use std::fmt;
use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Transaction};
use serde::{Deserialize, Serialize};

use super::sql;
use crate::outbox;

/// What becomes of writes. It outlasts restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// They are applied before they are answered.
    #[default]
    Open,
    /// They are accepted durably and applied once the site is open again; no article and no event changes until then.
    Journal,
    /// They are refused.
    ReadOnly,
}

/// The mode and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ModeInfo {
    /// What becomes of writes.
    pub mode: Mode,
    /// The site is open again, but what was accepted meanwhile is still being worked off; new writes go behind it.
    pub draining: bool,
    /// Since when the mode is what it is, milliseconds since the Unix epoch; `None` if it was never changed.
    pub since: Option<i64>,
    /// Why, in the words of whoever set it.
    pub reason: Option<String>,
    /// The lanes that the freeze holds.
    pub held: Vec<String>,
}

/// What a transaction needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub mode: Mode,
    pub draining: bool,
}

pub(super) fn standing(conn: &Connection) -> rusqlite::Result<Standing> {
    conn.prepare_cached(sql::MODE)?.query_row([], |row| Ok(Standing { mode: row.get(0)?, draining: row.get(1)? }))
}

pub(super) fn info(conn: &Connection) -> rusqlite::Result<ModeInfo> {
    conn.prepare_cached(sql::MODE_INFO)?.query_row([], |row| {
        let held: String = row.get(4)?;
        Ok(ModeInfo {
            mode: row.get(0)?,
            draining: row.get(1)?,
            since: row.get(2)?,
            reason: row.get(3)?,
            held: serde_json::from_str(&held).unwrap_or_default(),
        })
    })
}

/// Sets the mode. Opening the site lets go of the lanes that a freeze holds, and has new writes go behind those that wait.
pub(super) fn set(tx: &Transaction<'_>, mode: Mode, reason: Option<&str>, now_ms: i64) -> rusqlite::Result<ModeInfo> {
    let before = info(tx)?;
    let mut draining = false;
    if mode == Mode::Open {
        draining = before.draining && before.mode == Mode::Open
            || before.mode != Mode::Open && tx.prepare_cached(sql::HAS_READY)?.query_row([], |row| row.get(0))?;
        outbox::release_lanes(tx, &before.held)?;
        tx.prepare_cached(sql::SET_HELD)?.execute(["[]"])?;
    }
    // The same mode once more is no news of its own.
    let same = before.mode == mode;
    let since = if same { before.since } else { Some(now_ms) };
    let reason = reason.map(str::to_owned).or_else(|| before.reason.filter(|_| same));
    tx.prepare_cached(sql::SET_MODE)?.execute((mode, draining, since, reason))?;
    info(tx)
}

/// Holds every lane that nobody holds yet, and notes which ones those are.
pub(super) fn hold_lanes(tx: &Transaction<'_>) -> rusqlite::Result<ModeInfo> {
    let mut before = info(tx)?;
    if before.mode == Mode::Open {
        // Somebody has opened the site meanwhile: nothing would ever release them.
        return Ok(before);
    }
    before.held.extend(outbox::hold_lanes(tx)?);
    let held = serde_json::Value::from(before.held).to_string();
    tx.prepare_cached(sql::SET_HELD)?.execute([held])?;
    info(tx)
}

impl Mode {
    /// Every mode there is.
    pub const ALL: &'static [Mode] = &[Mode::Open, Mode::Journal, Mode::ReadOnly];

    /// The mode's name: `open`, `journal`, `read_only`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Journal => "journal",
            Self::ReadOnly => "read_only",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|mode| mode.as_str() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::from_name(name).ok_or_else(|| "must be open, journal or read_only".to_owned())
    }
}

impl ToSql for Mode {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_str()))
    }
}

impl FromSql for Mode {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::from_name(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}
