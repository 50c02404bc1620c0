//! The section on writes that wait: the mode of the site, its jobs by status, those that were given up.

use std::fmt::Write as _;

use super::frame::key;
use super::overview::badge;
use super::session::Operator;
use crate::http::jobs::SiteJobs;
use crate::http::problem::Problem;
use crate::http::request::Query;
use crate::http::site::Parts;
use crate::http::view::rfc3339;
use crate::jobs::{Job, JobQuery, JobStatus, Mode, ModeInfo};
use crate::sinks::escape;

/// Jobs shown of one status.
const ROWS: usize = 25;
const STATUSES: [JobStatus; 5] =
    [JobStatus::Pending, JobStatus::DeadLetter, JobStatus::Quarantined, JobStatus::Cancelled, JobStatus::Applied];

/// Nothing in a site that keeps no jobs.
pub(super) fn push(main: &mut String, parts: &Parts, operator: &Operator) -> Result<(), Problem> {
    let Some(SiteJobs { jobs, .. }) = parts.jobs.get() else { return Ok(()) };
    main.push_str("<section class=\"card\" id=\"jobs\">\n<h2>Writes that wait</h2>\n");
    push_mode(main, &jobs.mode()?, operator);
    let stats = jobs.stats()?;
    main.push_str("<dl class=\"figures\">\n");
    for status in STATUSES {
        let word = status.as_str().replace('_', " ");
        let _ = writeln!(main, "<div><dt>{word}</dt><dd>{}</dd></div>", stats.of(status));
    }
    let _ = write!(main, "<div><dt>scheduled</dt><dd>{}</dd></div>\n</dl>\n", stats.scheduled);
    for status in [JobStatus::DeadLetter, JobStatus::Quarantined, JobStatus::Pending] {
        let query = JobQuery { status, limit: ROWS, ..JobQuery::default() };
        let rows = jobs.list(&query)?;
        if !rows.is_empty() {
            main.push_str("<ul class=\"dead\">\n");
            rows.iter().for_each(|job| push_job(main, job, operator));
            main.push_str("</ul>\n");
        }
    }
    main.push_str("</section>\n");
    Ok(())
}

/// Does what a form of the section asks for; `None` if it is not one of these.
pub(super) fn act(parts: &Parts, what: &str, form: &Query) -> Result<Option<String>, Problem> {
    let (Some(SiteJobs { jobs, .. }), Some(what)) = (parts.jobs.get(), what.strip_prefix("job-")) else {
        return Ok(None);
    };
    let reason = form.get("reason")?.unwrap_or_default().trim();
    if what == "mode" {
        let name = form.get("mode")?.unwrap_or_default();
        let mode: Mode = name.parse().map_err(|reason| Problem::bad_parameter("mode", reason))?;
        jobs.set_mode(mode, (!reason.is_empty()).then_some(reason))?;
        return Ok(Some(format!("The site is {}.", words(mode))));
    }
    let id = form.get("id")?.and_then(|id| id.parse().ok());
    let id: i64 = id.ok_or_else(|| Problem::bad_parameter("id", "must be a number"))?;
    let done = match what {
        "replay" => {
            jobs.replay(id, form.get("force")? == Some("yes"))?;
            format!("Job {id} is tried once more.")
        }
        "cancel" | "discard" if reason.is_empty() => return Err(Problem::bad_parameter("reason", "must say why")),
        "cancel" => {
            jobs.cancel(id, Some(reason))?;
            format!("Job {id} is taken back.")
        }
        "discard" => {
            jobs.discard(id, reason)?;
            format!("Job {id} is removed.")
        }
        _ => return Ok(None),
    };
    Ok(Some(done))
}

fn words(mode: Mode) -> &'static str {
    match mode {
        Mode::Open => "open",
        Mode::Journal => "frozen: writes are accepted and wait",
        Mode::ReadOnly => "read-only: writes are refused",
    }
}

fn push_mode(main: &mut String, info: &ModeInfo, operator: &Operator) {
    let _ = write!(main, "<p>{} The site is {}.", badge(info.mode.as_str(), info.mode == Mode::Open), words(info.mode));
    if info.draining {
        main.push_str(" What was accepted meanwhile is being worked off.");
    }
    if let Some(since) = info.since {
        let _ = write!(main, " <small>Since {}</small>", escape(&rfc3339(since)));
    }
    if let Some(reason) = &info.reason {
        let _ = write!(main, " <small>{}</small>", escape(reason));
    }
    main.push_str("</p>\n<div class=\"acts\">\n");
    let choices = [(Mode::Open, "Thaw"), (Mode::Journal, "Freeze"), (Mode::ReadOnly, "Refuse writes")];
    for (mode, word) in choices.into_iter().filter(|(mode, _)| *mode != info.mode) {
        let _ = writeln!(
            main,
            "<form method=\"post\" action=\"/admin/act\">{}<input type=\"hidden\" name=\"act\" value=\"job-mode\">\
             <input type=\"hidden\" name=\"mode\" value=\"{mode}\"><button>{word}</button></form>",
            key(operator)
        );
    }
    main.push_str("</div>\n");
}

fn push_job(main: &mut String, job: &Job, operator: &Operator) {
    let id = job.id;
    let operation = job.operation.as_deref().unwrap_or("no operation");
    let _ = write!(
        main,
        "<li>\n<p>Job {id}: {} {}",
        escape(operation),
        badge(job.status.as_str(), job.status == JobStatus::Pending)
    );
    if let Some(run_at) = job.run_at {
        let _ = write!(main, " <small>not before {}</small>", escape(&rfc3339(run_at)));
    }
    main.push_str("</p>\n");
    if let Some(why) = &job.last_error {
        let _ = writeln!(main, "<p class=\"reason\">{}</p>", escape(why));
    }
    main.push_str("<div class=\"acts\">\n");
    if job.status == JobStatus::Pending {
        push_confirmed(main, "cancel", "Cancel", id, operator);
    } else {
        let force = if job.status == JobStatus::Quarantined { "yes" } else { "" };
        let _ = writeln!(
            main,
            "<form method=\"post\" action=\"/admin/act\">{}<input type=\"hidden\" name=\"act\" value=\"job-replay\">\
             <input type=\"hidden\" name=\"id\" value=\"{id}\"><input type=\"hidden\" name=\"force\" value=\"{force}\">\
             <button>Replay<span class=\"hidden\"> job {id}</span></button></form>",
            key(operator)
        );
        push_confirmed(main, "discard", "Discard", id, operator);
    }
    main.push_str("</div>\n</li>\n");
}

/// An act that is opened first, and wants a reason.
fn push_confirmed(main: &mut String, act: &str, word: &str, id: i64, operator: &Operator) {
    let _ = write!(
        main,
        "<details>\n<summary>{word}…<span class=\"hidden\"> job {id}</span></summary>\n\
         <form method=\"post\" action=\"/admin/act\">{}<input type=\"hidden\" name=\"act\" value=\"job-{act}\">\
         <input type=\"hidden\" name=\"id\" value=\"{id}\"><label for=\"job-{id}\">Why</label>\
         <input id=\"job-{id}\" name=\"reason\" maxlength=\"200\" required>\
         <button>{word} job {id}</button></form>\n</details>\n",
        key(operator)
    );
}
