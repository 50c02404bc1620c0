//! Writes that wait in the original's queue.

use rusqlite::{OptionalExtension, Row};
use serde_json::{Map, Value, json};

use super::columns::{self, label, number, plain, unreadable};
use super::report::Fate;
use super::{Adoption, fingerprint};
use crate::cli::CliError;
use crate::jobs::{JobStatus, NewJob, insert, is_adopted, mark_adopted};

const JOBS: &str = "write_jobs";

/// What a row becomes.
enum Becomes {
    Job(Box<NewJob>),
    LeftOut(String),
}

impl Adoption<'_> {
    /// # Errors
    /// The source cannot be read, or nothing can be stored.
    pub(super) fn jobs(&mut self) -> Result<(), CliError> {
        let wanted =
            ["id", "op", "article_json", "status", "correlation_id", "replay_count", "dead_reason", "created_at"];
        let conn = self.source.conn();
        let Some(sql) = columns::select(conn, JOBS, &wanted, "ORDER BY id")? else { return Ok(()) };
        let mut statement = conn.prepare(&sql).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            self.bar.inc(1);
            let name = label(row, 0);
            let status = plain(row, 3, "status").unwrap_or_default();
            let dead = matches!(status.as_str(), "dead_letter" | "quarantined" | "failed");
            if status == "completed" {
                self.report.finished(JOBS);
                continue;
            }
            if dead && !self.with_dead {
                let reason = plain(row, 6, "dead_reason").unwrap_or_default();
                let reason = format!("it is dead ({status}: {reason}); --with-dead takes it over");
                self.report.say(JOBS, &name, Fate::LeftOut, &reason)?;
                continue;
            }
            match self.becomes(row, &status, dead)? {
                Becomes::LeftOut(reason) => self.report.say(JOBS, &name, Fate::LeftOut, &reason)?,
                Becomes::Job(job) => self.store_job(&name, *job)?,
            }
        }
        Ok(())
    }

    fn becomes(&self, row: &Row<'_>, status: &str, dead: bool) -> Result<Becomes, CliError> {
        let (op, body) = (plain(row, 1, "op").unwrap_or_default(), plain(row, 2, "article_json").unwrap_or_default());
        let mut job = match translated(&op, &body) {
            // A crash may have come between the change and the mark that it is done.
            Ok(_) if status == "processing" && self.is_done(&op, &body)? => {
                return Ok(Becomes::LeftOut("it was applied before the crash that left it in processing".to_owned()));
            }
            Ok((operation, body)) => NewJob::new(operation, body),
            Err(reason) => {
                let mut job = NewJob::new(op, body);
                (job.status, job.last_error) = (JobStatus::DeadLetter, Some(format!("invalid: {reason}")));
                job
            }
        };
        if dead {
            let reason = plain(row, 6, "dead_reason").unwrap_or_default();
            job.status = JobStatus::DeadLetter;
            job.last_error.get_or_insert_with(|| format!("dead: {reason}"));
        }
        job.replays = u32::try_from(number(row, 5)).unwrap_or(0);
        job.correlation_id = plain(row, 4, "correlation_id").ok().filter(|id| !id.is_empty() && id.len() <= 128);
        Ok(Becomes::Job(Box::new(job)))
    }

    /// Whether the source shows that an interrupted job had done its work.
    fn is_done(&self, op: &str, body: &str) -> Result<bool, CliError> {
        let article: Value = serde_json::from_str(body).unwrap_or_default();
        let there = |column: &str, value: &Value| {
            let sql = format!("SELECT 1 FROM articles WHERE {column} = ?1");
            self.source.conn().query_row(&sql, [value.as_str().unwrap_or_default()], |_| Ok(())).optional()
        };
        let found = match op {
            "insert" => there("id", &article["id"]),
            "delete" => there("slug", &article["slug"]).map(|found| if found.is_none() { Some(()) } else { None }),
            _ => return Ok(false),
        };
        Ok(found.map_err(unreadable)?.is_some())
    }

    fn store_job(&mut self, name: &str, job: NewJob) -> Result<(), CliError> {
        self.still_stands()?;
        let origin = format!("{JOBS}/{name}/{}", fingerprint(&[&job.operation, &job.body]));
        let error = job.last_error.clone();
        let now_ms = self.app.database.clock().now_ms();
        let stored = self.app.database.writer().transact(move |tx| {
            if is_adopted(tx, &origin)? {
                return Ok(false);
            }
            insert(tx, &job, now_ms)?;
            mark_adopted(tx, &origin, now_ms)?;
            Ok::<_, rusqlite::Error>(true)
        });
        match stored {
            Ok(false) => self.report.known(JOBS),
            Ok(true) => {
                self.report.adopted(JOBS);
                if let Some(reason) = error {
                    self.report.say(JOBS, name, Fate::Dead, &reason)?;
                }
            }
            Err(error) => return Err(CliError::failed(format!("{error}; adopt again to go on"))),
        }
        Ok(())
    }
}

/// Operation and body as they are here.
fn translated(op: &str, body: &str) -> Result<(&'static str, String), String> {
    let article: Value = serde_json::from_str(body).map_err(|error| format!("its article is no JSON: {error}"))?;
    let article = article.as_object().ok_or("its article is no JSON object")?;
    let slug = article.get("slug").cloned().unwrap_or(Value::Null);
    let (operation, body) = match op {
        "insert" => ("create", json!(fields(article, true))),
        "update" => ("update", json!({ "slug": slug, "patch": fields(article, false) })),
        "delete" => ("delete", json!({ "slug": slug })),
        other => return Err(format!("the operation {other:?} is unknown")),
    };
    // What can never be applied is told now, not when its turn comes.
    let body = body.to_string();
    crate::article::Mutation::from_parts(operation, &body).map_err(|error| error.to_string())?;
    Ok((operation, body))
}

/// An article of the original as the API takes it.
fn fields(article: &Map<String, Value>, whole: bool) -> Map<String, Value> {
    let mut fields = Map::new();
    let mut take = |name: &str| {
        if let Some(value) = article.get(name).filter(|value| !value.is_null()) {
            fields.insert(name.to_owned(), value.clone());
        }
    };
    ["title", "content"].into_iter().for_each(&mut take);
    if whole {
        ["id", "slug", "created_at", "updated_at"].into_iter().for_each(&mut take);
        if article.get("is_page").is_some_and(|page| page == &json!(true) || page == &json!(1)) {
            fields.insert("kind".to_owned(), json!("page"));
        }
        if let Some(status) = article.get("status").filter(|status| *status == "draft") {
            fields.insert("status".to_owned(), status.clone());
        }
    }
    // A Go slice without elements is null.
    let tags = article.get("tags").filter(|tags| tags.is_array()).cloned();
    fields.insert("tags".to_owned(), tags.unwrap_or_else(|| json!([])));
    fields
}
