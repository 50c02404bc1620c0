//! `check`: whether everything in the data folder is whole and fits together. Reads only; a server may run meanwhile.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::app::COMPONENTS;
use super::backup::open_to_read;
use super::output::{Output, printable};
use super::settings::DataDir;
use super::{CliError, IntegrityArgs, check_search, exit, log_file};
use crate::outbox::{self, Finding};

/// Most lines of one kind; a damaged database has thousands.
const LINES_MAX: usize = 20;

pub(super) const VERSION: &str = "SELECT version FROM vayu_schema WHERE component = ?1";
/// What must count nothing, and what it means when it does.
const ORPHANS: &[(&str, &str)] = &[
    (
        "SELECT count(*) FROM article_tags t WHERE NOT EXISTS (SELECT 1 FROM articles a WHERE a.id = t.article_id)",
        "tags belong to no article",
    ),
    ("SELECT count(*) FROM deliveries WHERE json_valid(history) = 0", "deliveries have a history that cannot be read"),
];
/// What is worth saying, and no fault.
const NOTES: &[(&str, &str)] = &[
    ("SELECT count(*) FROM deliveries WHERE state = 'dead_letter'", "dead letters: see `outbox list`"),
    (
        "SELECT count(*) FROM deliveries WHERE state = 'parked'",
        "keys are held back by a parked event: see `outbox list`",
    ),
    ("SELECT count(*) FROM lanes WHERE held <> 0", "handlers are held: see `handler list`"),
    (
        "SELECT count(*) FROM lanes WHERE owner IS NULL AND cursor < (SELECT max(id) FROM event_outbox)",
        "handlers have events to deliver and nobody who runs them: start `serve`",
    ),
];

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// What has to be mended.
    pub(super) faults: Vec<String>,
    /// What one may want to know.
    pub(super) notes: Vec<String>,
    /// What was looked at and is as it should be.
    pub(super) good: Vec<String>,
}

/// Exit code 0 if there is no fault, else 1.
pub(super) fn run(data: &Path, args: &IntegrityArgs) -> Result<u8, CliError> {
    let dir = DataDir::existing(data).map_err(CliError::Failed)?;
    let path = dir.articles();
    let mut report = Report::default();
    match check(&dir, &mut report) {
        Ok(true) => rules(data, &mut report)?,
        Ok(false) => {}
        Err(error) => report.faults.push(format!("{} cannot be read: {error}", path.display())),
    }
    print(&report, args.json)?;
    Ok(if report.faults.is_empty() { exit::OK } else { exit::FAILED })
}

/// What the outbox's tables must keep to.
fn rules(data: &Path, report: &mut Report) -> Result<(), CliError> {
    let database = log_file::open(data, None)?;
    let found = outbox::check(&database);
    log_file::close(&database)?;
    let found = found.map_err(|error| CliError::failed(error.to_string()))?;
    if found.is_clean() {
        report.good.push("the outbox keeps its rules".to_owned());
    }
    let line = |finding: &Finding| format!("{}: {}", printable(&finding.what), finding.remedy);
    report.faults.extend(found.findings.iter().map(line));
    report.notes.extend(found.notes.iter().map(line));
    if found.more > 0 {
        report.faults.push(format!("{} further breaches of the outbox's rules: see `outbox check`", found.more));
    }
    Ok(())
}

/// `false` if the tables are not those of this program, so that nothing more can be said.
fn check(dir: &DataDir, report: &mut Report) -> rusqlite::Result<bool> {
    let connection = open_to_read(&dir.articles())?;
    // One state of everything, however long it takes.
    connection.execute_batch("BEGIN")?;
    integrity(&connection, "articles.db", report)?;
    if !schema(&connection, report)? {
        return Ok(false);
    }
    for (sql, what) in ORPHANS {
        count(&connection, sql, what, &mut report.faults)?;
    }
    for (sql, what) in NOTES {
        count(&connection, sql, what, &mut report.notes)?;
    }
    connection.execute_batch("COMMIT")?;
    check_search::check(&connection, &dir.search(), report)?;
    Ok(true)
}

/// The pages of a database, its indexes, its constraints, its references.
pub(super) fn integrity(connection: &Connection, name: &str, report: &mut Report) -> rusqlite::Result<()> {
    let before = report.faults.len();
    connection.pragma_query(None, "integrity_check", |row| {
        let line: String = row.get(0)?;
        if line != "ok" && report.faults.len() < before + LINES_MAX {
            report.faults.push(format!("{name} is damaged: {}", printable(&line)));
        }
        Ok(())
    })?;
    connection.pragma_query(None, "foreign_key_check", |row| {
        if report.faults.len() < before + LINES_MAX {
            let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
            report.faults.push(format!(
                "{name}: a row of {} refers to none of {}",
                printable(&table),
                printable(&parent)
            ));
        }
        Ok(())
    })?;
    if report.faults.len() == before {
        report.good.push(format!("{name} is whole"));
    }
    Ok(())
}

/// Whether the tables are those that this program knows.
fn schema(connection: &Connection, report: &mut Report) -> rusqlite::Result<bool> {
    let before = report.faults.len();
    for component in COMPONENTS {
        let (name, known) = (component.name, component.migrations.len());
        let known = i64::try_from(known).unwrap_or(i64::MAX);
        let found: Option<i64> = connection.query_row(VERSION, [name], |row| row.get(0)).optional()?;
        match found {
            Some(found) if found > known => report.faults.push(format!(
                "{name} is of version {found}, made by a newer program; this one knows {known}: run that newer one"
            )),
            Some(found) if found == known => report.good.push(format!("{name} is of version {found}")),
            found => {
                let found = found.unwrap_or(0);
                report.notes.push(format!("{name} is of version {found}: the next `serve` makes it {known}"));
                return Ok(false);
            }
        }
    }
    Ok(report.faults.len() == before)
}

fn count(connection: &Connection, sql: &str, what: &str, found: &mut Vec<String>) -> rusqlite::Result<()> {
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    if count > 0 {
        found.push(format!("{count} {what}"));
    }
    Ok(())
}

fn print(report: &Report, as_json: bool) -> Result<(), CliError> {
    let mut out = Output::new();
    if as_json {
        let Report { faults, notes, good } = report;
        out.line(&serde_json::json!({ "faults": faults, "notes": notes, "good": good }).to_string())?;
    } else {
        for (kind, lines) in [("good", &report.good), ("note", &report.notes), ("FAULT", &report.faults)] {
            for line in lines {
                out.line(&format!("{kind:<5}  {line}"))?;
            }
        }
    }
    out.flush()?;
    Ok(())
}
