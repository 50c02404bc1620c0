//! Writes that wait in the original's queue.

use rusqlite::{OptionalExtension, Row, Transaction};
use serde_json::{Map, Value, json};

use super::addresses::{Address, Addresses};
use super::batch::{Batch, Incoming, Stored};
use super::columns::{self, label, number, plain, text, unreadable};
use super::report::Fate;
use super::{Adoption, fingerprint};
use crate::cli::CliError;
use crate::jobs::{JobStatus, NewJob, insert};
use crate::outbox::InsertError;

const JOBS: &str = "write_jobs";
/// Longest correlation id that is kept, in bytes.
const CORRELATION_ID_MAX: usize = 128;

/// A row of the source, read.
struct Old {
    operation: String,
    body: String,
    status: String,
    standing: Standing,
    dead_reason: String,
    correlation_id: Option<String>,
    replays: u32,
}

/// Where a row of the source stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waits,
    /// A crash came while it was applied, or between that and the mark that it is done.
    Interrupted,
    Done,
    Dead,
    Quarantined,
}

/// A job, with what changed on the way.
#[derive(Debug, Clone)]
struct Come {
    job: NewJob,
    notes: Vec<String>,
}

/// What a row becomes.
enum Becomes {
    Job(Box<Come>),
    LeftOut(String),
}

impl Adoption<'_> {
    /// # Errors
    /// The source cannot be read, or nothing can be stored.
    pub(super) fn jobs(&mut self) -> Result<(), CliError> {
        let wanted = ["id", "op", "article_json", "status", "correlation_id", "replay_count", "dead_reason"];
        let conn = self.source.conn();
        let Some(sql) = columns::select(conn, JOBS, &wanted, "ORDER BY id")? else { return Ok(()) };
        let mut statement = conn.prepare(&sql).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        let mut addresses = Addresses::new(self.source, self.app.articles.repository());
        let mut batch = Batch::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            self.bar.inc(1);
            let name = label(row, 0);
            match Old::read(row) {
                Ok(old) => self.take_job(name, &old, &mut addresses, &mut batch)?,
                Err(reason) => self.report.say(JOBS, &name, Fate::Refused, &reason)?,
            }
            if batch.is_full() {
                self.store_jobs(&mut batch)?;
            }
        }
        self.store_jobs(&mut batch)
    }

    fn take_job(
        &mut self,
        name: String,
        old: &Old,
        addresses: &mut Addresses<'_>,
        batch: &mut Batch<Come>,
    ) -> Result<(), CliError> {
        match old.standing {
            Standing::Done => {
                self.report.finished(JOBS);
                return Ok(());
            }
            Standing::Dead | Standing::Quarantined if !self.with_dead => {
                let reason = format!("it is dead ({}: {}); --with-dead takes it over", old.status, old.dead_reason);
                return self.report.say(JOBS, &name, Fate::LeftOut, &reason);
            }
            _ => {}
        }
        let origin = format!("{JOBS}/{name}/{}", fingerprint(&[&old.operation, &old.body]));
        let earlier = earlier_fingerprint(old).map(|earlier| format!("{JOBS}/{name}/{earlier}"));
        match self.becomes(old, addresses)? {
            Becomes::Job(come) => {
                batch.push(Incoming { label: name, origin, earlier, bytes: old.body.len(), row: *come });
            }
            // It may have had something to change when it came.
            Becomes::LeftOut(_) if self.came_before(&origin, earlier.as_deref())? => self.report.known(JOBS),
            Becomes::LeftOut(reason) => self.report.say(JOBS, &name, Fate::LeftOut, &reason)?,
        }
        Ok(())
    }

    fn becomes(&self, old: &Old, addresses: &mut Addresses<'_>) -> Result<Becomes, CliError> {
        let mut notes = Vec::new();
        let mut job = match article_of(&old.body) {
            Ok(article) => {
                if old.standing == Standing::Interrupted && self.is_done(&old.operation, &article)? {
                    let reason = "it was applied before the crash that left it in processing";
                    return Ok(Becomes::LeftOut(reason.to_owned()));
                }
                match placed(old, &article, addresses)? {
                    Placed::At(slug) => match translated(&old.operation, &article, Some(&slug)) {
                        Ok((operation, body)) => {
                            note_address(old, &article, &slug, addresses, &mut notes);
                            NewJob::new(operation, body)
                        }
                        Err(reason) => unfit(old, &reason),
                    },
                    Placed::Nowhere(reason) if old.standing.is_dead() => unfit(old, &reason),
                    Placed::Nowhere(reason) => return Ok(Becomes::LeftOut(reason)),
                    Placed::Unfit(reason) => unfit(old, &reason),
                }
            }
            Err(reason) => unfit(old, &reason),
        };
        if old.standing.is_dead() {
            let quarantined = old.standing == Standing::Quarantined;
            job.status = if quarantined { JobStatus::Quarantined } else { JobStatus::DeadLetter };
            job.last_error.get_or_insert_with(|| format!("dead: {}", old.dead_reason));
        }
        job.replays = old.replays;
        job.correlation_id = old.correlation_id.clone().filter(|id| id.len() <= CORRELATION_ID_MAX);
        if job.correlation_id != old.correlation_id {
            notes.push(format!("without its correlation id, which is longer than {CORRELATION_ID_MAX} bytes"));
        }
        Ok(Becomes::Job(Box::new(Come { job, notes })))
    }

    /// Whether the source shows that an interrupted job had done its work.
    fn is_done(&self, op: &str, article: &Map<String, Value>) -> Result<bool, CliError> {
        let there = |column: &str| {
            let sql = format!("SELECT 1 FROM articles WHERE {column} = ?1");
            self.source.conn().query_row(&sql, [word(article, column)], |_| Ok(())).optional().map_err(unreadable)
        };
        match op {
            "insert" => Ok(there("id")?.is_some()),
            "delete" => Ok(there("slug")?.is_none()),
            _ => Ok(false),
        }
    }

    fn store_jobs(&mut self, batch: &mut Batch<Come>) -> Result<(), CliError> {
        for (incoming, stored) in self.store_batch(batch, put)? {
            let name = &incoming.label;
            match stored {
                Stored::Known => self.report.known(JOBS),
                Stored::Refused(reason) => self.report.say(JOBS, name, Fate::Refused, &reason)?,
                Stored::Adopted => {
                    self.report.adopted(JOBS);
                    for note in &incoming.row.notes {
                        self.report.say(JOBS, name, Fate::Changed, note)?;
                    }
                    if let Some(reason) = &incoming.row.job.last_error {
                        self.report.say(JOBS, name, Fate::Dead, reason)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Old {
    /// # Errors
    /// A column that matters is not what it should be: the row stays, lest a part of it be lost.
    fn read(row: &Row<'_>) -> Result<Self, String> {
        let status = plain(row, 3, "status")?;
        let standing = match status.as_str() {
            "" | "pending" => Standing::Waits,
            "processing" => Standing::Interrupted,
            "completed" => Standing::Done,
            "dead_letter" | "failed" => Standing::Dead,
            "quarantined" => Standing::Quarantined,
            other => {
                let shown: String = other.chars().take(60).collect();
                return Err(format!("its status {shown:?} is unknown; set it to pending there if it is to come"));
            }
        };
        Ok(Self {
            operation: plain(row, 1, "op")?,
            body: plain(row, 2, "article_json")?,
            status,
            standing,
            dead_reason: plain(row, 6, "dead_reason").unwrap_or_else(|reason| reason),
            correlation_id: text(row, 4, "correlation_id")?.filter(|id| !id.is_empty()),
            replays: u32::try_from(number(row, 5)).unwrap_or(0),
        })
    }
}

impl Standing {
    fn is_dead(self) -> bool {
        matches!(self, Self::Dead | Self::Quarantined)
    }
}

fn put(tx: &Transaction<'_>, come: &Come, now_ms: i64) -> Result<Stored, InsertError> {
    Ok(match insert(tx, &come.job, now_ms)? {
        Some(_) => Stored::Adopted,
        None => Stored::Refused("another job has its number".to_owned()),
    })
}

/// Which slug here a job is about.
enum Placed {
    At(String),
    Nowhere(String),
    Unfit(String),
}

fn placed(old: &Old, article: &Map<String, Value>, addresses: &Addresses<'_>) -> Result<Placed, CliError> {
    let slug = word(article, "slug");
    match old.operation.as_str() {
        "insert" => return Ok(Placed::At(addresses.choose(word(article, "id"), slug, word(article, "title"))?)),
        "update" | "delete" => {}
        other => return Ok(Placed::Unfit(unknown(other))),
    }
    Ok(match addresses.find(slug)? {
        Address::At(slug) => Placed::At(slug),
        Address::Nowhere => Placed::Nowhere(format!("no article has the slug {slug:?} there: it would change nothing")),
        Address::NotHere(id) => Placed::Unfit(format!("its article {id} is not here")),
    })
}

/// Notes what the job, once applied, means for those behind it.
fn note_address(
    old: &Old,
    article: &Map<String, Value>,
    here: &str,
    addresses: &mut Addresses<'_>,
    notes: &mut Vec<String>,
) {
    let there = word(article, "slug");
    if there != here {
        notes.push(format!("the slug {there:?} is {here:?} here"));
    }
    match old.operation.as_str() {
        _ if old.standing.is_dead() => {}
        "insert" => addresses.comes(there, here),
        "delete" => addresses.goes(there, here),
        _ => {}
    }
}

/// A job that cannot be applied comes as it is, dead, so that nothing of it is lost.
fn unfit(old: &Old, reason: &str) -> NewJob {
    let mut job = NewJob::new(&old.operation, &old.body);
    (job.status, job.last_error) = (JobStatus::DeadLetter, Some(format!("invalid: {reason}")));
    job
}

/// What the first version of this program made an origin's fingerprint of: its own translation, slugs left as they are. What that
/// version took over is known by it.
fn earlier_fingerprint(old: &Old) -> Option<String> {
    let article = article_of(&old.body).ok()?;
    let (operation, body) = translated(&old.operation, &article, None).ok()?;
    Some(fingerprint(&[operation, &body]))
}

fn article_of(body: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(body) {
        Ok(Value::Object(article)) => Ok(article),
        Ok(_) => Err("its article is no JSON object".to_owned()),
        Err(error) => Err(format!("its article is no JSON: {error}")),
    }
}

fn word<'a>(article: &'a Map<String, Value>, name: &str) -> &'a str {
    article.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Operation and body as they are here; with `slug` in place of the article's own.
fn translated(op: &str, article: &Map<String, Value>, slug: Option<&str>) -> Result<(&'static str, String), String> {
    let slug = slug.map_or_else(|| article.get("slug").cloned().unwrap_or(Value::Null), Value::from);
    let (operation, body) = match op {
        "insert" => ("create", json!(whole(article, slug))),
        "update" => ("update", json!({ "slug": slug, "patch": fields(article) })),
        "delete" => ("delete", json!({ "slug": slug })),
        other => return Err(unknown(other)),
    };
    // What can never be applied is told now, not when its turn comes.
    let body = body.to_string();
    crate::article::Mutation::from_parts(operation, &body).map_err(|error| error.to_string())?;
    Ok((operation, body))
}

fn unknown(operation: &str) -> String {
    let shown: String = operation.chars().take(60).collect();
    format!("the operation {shown:?} is unknown")
}

/// An article of the original as the API takes it.
fn whole(article: &Map<String, Value>, slug: Value) -> Map<String, Value> {
    let mut whole = fields(article);
    take(article, &["id", "created_at", "updated_at"], &mut whole);
    if !slug.is_null() {
        whole.insert("slug".to_owned(), slug);
    }
    if article.get("is_page").is_some_and(|page| page == &json!(true) || page == &json!(1)) {
        whole.insert("kind".to_owned(), json!("page"));
    }
    if let Some(status) = article.get("status").filter(|status| *status == "draft") {
        whole.insert("status".to_owned(), status.clone());
    }
    whole
}

/// What a change of the original replaces.
fn fields(article: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = Map::new();
    take(article, &["title", "content"], &mut fields);
    // A Go slice without elements is null.
    let tags = article.get("tags").filter(|tags| tags.is_array()).cloned();
    fields.insert("tags".to_owned(), tags.unwrap_or_else(|| json!([])));
    fields
}

fn take(from: &Map<String, Value>, names: &[&str], into: &mut Map<String, Value>) {
    for name in names {
        if let Some(value) = from.get(*name).filter(|value| !value.is_null()) {
            into.insert((*name).to_owned(), value.clone());
        }
    }
}
