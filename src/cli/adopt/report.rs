//! What came, what stayed, and why.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use crate::cli::CliError;
use crate::cli::output::Output;

/// How a row fared that did not simply come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It stays behind by rule.
    LeftOut,
    /// It should have come and could not.
    Refused,
    /// It came, as a dead letter.
    Dead,
    /// It came, changed.
    Changed,
}

impl Fate {
    fn as_str(self) -> &'static str {
        match self {
            Self::LeftOut => "left_out",
            Self::Refused => "refused",
            Self::Dead => "dead_letter",
            Self::Changed => "changed",
        }
    }
}

/// Counts of one table.
#[derive(Debug, Default)]
struct Counts {
    adopted: u64,
    known: u64,
    finished: u64,
    left_out: u64,
    refused: u64,
    dead: u64,
}

/// The lines as they arise, and the sums at the end.
pub(super) struct Report {
    json: bool,
    out: Output,
    tables: BTreeMap<&'static str, Counts>,
}

impl Report {
    pub(super) fn new(json: bool) -> Self {
        Self { json, out: Output::new(), tables: BTreeMap::new() }
    }

    pub(super) fn adopted(&mut self, table: &'static str) {
        self.counts(table).adopted += 1;
    }

    /// It came in an earlier run.
    pub(super) fn known(&mut self, table: &'static str) {
        self.counts(table).known += 1;
    }

    /// The original had done with it: nothing waits.
    pub(super) fn finished(&mut self, table: &'static str) {
        self.counts(table).finished += 1;
    }

    /// Says what became of one row.
    ///
    /// # Errors
    /// It cannot be printed.
    pub(super) fn say(&mut self, table: &'static str, row: &str, fate: Fate, reason: &str) -> Result<(), CliError> {
        let counts = self.counts(table);
        match fate {
            Fate::LeftOut => counts.left_out += 1,
            Fate::Refused => counts.refused += 1,
            Fate::Dead => counts.dead += 1,
            Fate::Changed => {}
        }
        let line = if self.json {
            json!({ "table": table, "row": row, "fate": fate.as_str(), "reason": reason }).to_string()
        } else {
            format!("{}: {table} {row}: {}", fate.as_str().replace('_', " "), reason.escape_debug())
        };
        Ok(self.out.line(&line)?)
    }

    /// Everything came that should.
    pub(super) fn is_complete(&self) -> bool {
        self.tables.values().all(|counts| counts.refused == 0 && counts.dead == 0)
    }

    /// Prints the sums.
    ///
    /// # Errors
    /// They cannot be printed.
    pub(super) fn finish(mut self, source: &Path, dry_run: bool) -> Result<(), CliError> {
        let tables = std::mem::take(&mut self.tables);
        if self.json {
            let sums: serde_json::Map<_, _> = tables
                .iter()
                .map(|(table, counts)| {
                    let Counts { adopted, known, finished, left_out, refused, dead } = counts;
                    let sums = json!({
                        "adopted": adopted, "known": known, "finished": finished,
                        "left_out": left_out, "refused": refused, "dead_letter": dead,
                    });
                    ((*table).to_owned(), sums)
                })
                .collect();
            let report = json!({ "source": source.display().to_string(), "dry_run": dry_run, "tables": sums });
            self.out.line(&report.to_string())?;
        } else {
            for (table, counts) in &tables {
                let Counts { adopted, known, finished, left_out, refused, dead } = counts;
                let verb = if dry_run { "would be adopted" } else { "adopted" };
                self.out.line(&format!(
                    "{table}: {adopted} {verb} ({dead} as dead letters), {known} came before, {finished} were done with, \
                     {left_out} left out, {refused} refused"
                ))?;
            }
        }
        Ok(self.out.flush()?)
    }

    fn counts(&mut self, table: &'static str) -> &mut Counts {
        self.tables.entry(table).or_default()
    }
}
