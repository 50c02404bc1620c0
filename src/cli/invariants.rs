//! `outbox check`: what breaks an invariant, and how to mend it.

use super::output::{Output, printable};
use super::{CheckArgs, CliError, exit, json};
use crate::outbox::{self, CheckReport, Finding};
use crate::storage::Database;

/// The exit code: failed if anything is left to mend.
pub(super) fn check(database: &Database, args: &CheckArgs, out: &mut Output) -> Result<u8, CliError> {
    let mut report = look(database)?;
    let mut mended = 0;
    if args.fix && report.findings.iter().any(Finding::is_mendable) {
        mended = outbox::mend(database, &report).map_err(|error| CliError::failed(error.to_string()))?;
        report = look(database)?;
    }
    if args.shape.json {
        json::print(&json::findings(&report, mended), out)?;
    } else {
        print(&report, mended, out)?;
    }
    Ok(if report.is_clean() { exit::OK } else { exit::FAILED })
}

fn look(database: &Database) -> Result<CheckReport, CliError> {
    outbox::check(database).map_err(|error| CliError::failed(format!("the check could not read: {error}")))
}

fn print(report: &CheckReport, mended: u64, out: &mut Output) -> Result<(), CliError> {
    for note in &report.notes {
        out.line(&format!("note: {}", place(note)))?;
        out.line(&format!("  {}", printable(&note.what)))?;
        out.line(&format!("  {}", printable(&note.remedy)))?;
    }
    for finding in &report.findings {
        out.line(&place(finding))?;
        out.line(&format!("  {}", printable(&finding.what)))?;
        out.line(&format!("  mend: {}", printable(&finding.remedy)))?;
    }
    let looked = format!("lanes: {}  exceptions: {}", report.lanes, report.exceptions);
    let found = report.findings.len() as u64 + report.more;
    let unlisted = if report.more > 0 { format!(" ({} not listed)", report.more) } else { String::new() };
    let notes = if report.notes.is_empty() { String::new() } else { format!("  notes: {}", report.notes.len()) };
    out.line(&format!("{looked}  mended: {mended}  findings: {found}{unlisted}{notes}"))?;
    Ok(())
}

fn place(finding: &Finding) -> String {
    let mut line = finding.breach.to_string();
    if let Some(handler) = &finding.handler {
        line.push_str(&format!("  handler {}", printable(handler)));
    }
    if let Some(id) = finding.outbox_id {
        line.push_str(&format!("  event {id}"));
    }
    line
}
