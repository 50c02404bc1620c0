//! `outbox check` of a worker's database: whether the file is whole, and whether every entry can be moved.

use std::path::Path;

use serde_json::{Value, json};

use super::{documents, unreadable};
use crate::cli::backup::open_to_read;
use crate::cli::check::{Report, integrity};
use crate::cli::operator_args::CheckArgs;
use crate::cli::output::{Output, printable};
use crate::cli::{CliError, exit};
use crate::outbox::{Ledger, LedgerFinding, LedgerReport};

const RESTORE: &str = "stop the worker and put a backup in the place of the file; without one, move the file away: what was not \
                       acknowledged comes again, dead letters do not";

/// The exit code: failed if anything is found. Nothing here can be mended without losing something, so nothing is.
pub(super) fn check(ledger: &Ledger, file: &Path, args: &CheckArgs, out: &mut Output) -> Result<u8, CliError> {
    let damage = damage(file)?;
    // What cannot be read as a whole says nothing by its rows.
    let report = if damage.is_empty() { ledger.check().map_err(unreadable)? } else { LedgerReport::default() };
    if args.shape.json {
        documents::print(&document(&damage, &report), out)?;
    } else {
        print(&damage, &report, out)?;
    }
    Ok(if damage.is_empty() && report.is_clean() { exit::OK } else { exit::FAILED })
}

fn damage(file: &Path) -> Result<Vec<String>, CliError> {
    let mut report = Report::default();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let looked = open_to_read(file).and_then(|connection| integrity(&connection, &name, &mut report));
    looked.map_err(unreadable)?;
    Ok(report.faults)
}

fn document(damage: &[String], report: &LedgerReport) -> Value {
    let of_file = |what: &String| json!({ "handler": null, "event_id": null, "what": what, "remedy": RESTORE });
    let of_entry = |finding: &LedgerFinding| {
        let LedgerFinding { handler, event_id, what, remedy, .. } = finding;
        json!({ "handler": handler, "event_id": event_id, "what": what, "remedy": remedy })
    };
    let findings: Vec<_> = damage.iter().map(of_file).chain(report.findings.iter().map(of_entry)).collect();
    json!({ "entries": report.entries, "mended": 0, "findings": findings, "more": report.more })
}

fn print(damage: &[String], report: &LedgerReport, out: &mut Output) -> Result<(), CliError> {
    for what in damage {
        out.line(what)?;
        out.line(&format!("  mend: {RESTORE}"))?;
    }
    for finding in &report.findings {
        out.line(&format!("handler {}  event {}", printable(&finding.handler), printable(&finding.event_id)))?;
        out.line(&format!("  {}", finding.what))?;
        out.line(&format!("  mend: {}", finding.remedy))?;
    }
    let found = (damage.len() + report.findings.len()) as u64 + report.more;
    let unlisted = if report.more > 0 { format!(" ({} not listed)", report.more) } else { String::new() };
    out.line(&format!("entries: {}  mended: 0  findings: {found}{unlisted}", report.entries))?;
    Ok(())
}
