//! `enqueue FILE`: JSON lines become jobs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use serde_json::{Map, Value};

use super::job_args::EnqueueArgs;
use super::jobs::failed;
use super::output::{Output, say};
use super::{CliError, exit, log_file};
use crate::clock::parse_rfc3339;
use crate::jobs::{JobOptions, Jobs, NewJob};

/// Longest line, in bytes.
const MAX_LINE_BYTES: u64 = 32 << 20;
/// Jobs handed over at once, and bytes after which they are.
const STEP_JOBS: usize = 500;
const STEP_BYTES: usize = 8 << 20;
const FIELDS: [&str; 6] = ["op", "operation", "body", "run_at", "correlation_id", "idempotency_key"];

/// Inserts every line that is a job; says of each other why not. What a job's body is worth shows when its turn comes.
pub(super) fn run(data: &Path, args: &EnqueueArgs) -> Result<u8, CliError> {
    let input = open(&args.file)?;
    let database = log_file::open(data, None)?;
    let mut run = Run::new(Jobs::new(&database, JobOptions::default()));
    let done = run.take_all(input);
    log_file::close(&database)?;
    done?;
    let mut out = Output::new();
    let Run { inserted, known, bad, .. } = run;
    out.line(&format!(
        "{inserted} jobs inserted, {known} known already by their idempotency key, {bad} lines refused"
    ))?;
    out.flush()?;
    Ok(if bad == 0 { exit::OK } else { exit::FAILED })
}

fn open(file: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if file == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let opened = File::open(file).map_err(|error| CliError::failed(format!("{}: {error}", file.display())))?;
    Ok(Box::new(BufReader::new(opened)))
}

struct Run {
    jobs: Jobs,
    waiting: Vec<NewJob>,
    bytes: usize,
    inserted: usize,
    known: usize,
    bad: usize,
}

impl Run {
    fn new(jobs: Jobs) -> Self {
        Self { jobs, waiting: Vec::new(), bytes: 0, inserted: 0, known: 0, bad: 0 }
    }

    fn take_all(&mut self, mut input: Box<dyn BufRead>) -> Result<(), CliError> {
        let unreadable = |error: io::Error| CliError::failed(format!("the input cannot be read: {error}"));
        let mut line = Vec::new();
        for number in 1_u64.. {
            line.clear();
            let read = (&mut input).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line).map_err(unreadable)?;
            if read == 0 {
                break;
            }
            if read as u64 > MAX_LINE_BYTES {
                return Err(CliError::failed(format!(
                    "line {number} is longer than 32 MiB; what came before is inserted"
                )));
            }
            match job(&line) {
                Ok(None) => {}
                Ok(Some(job)) => self.keep(job)?,
                Err(reason) => {
                    self.bad += 1;
                    say(&format!("failed: line {number}: {reason}"));
                }
            }
        }
        self.flush()
    }

    fn keep(&mut self, job: NewJob) -> Result<(), CliError> {
        self.bytes += job.body.len();
        self.waiting.push(job);
        if self.waiting.len() >= STEP_JOBS || self.bytes >= STEP_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), CliError> {
        self.bytes = 0;
        let ids = self.jobs.enqueue(std::mem::take(&mut self.waiting)).map_err(failed)?;
        let inserted = ids.iter().flatten().count();
        self.inserted += inserted;
        self.known += ids.len() - inserted;
        Ok(())
    }
}

/// The job of a line; `None` for an empty one.
fn job(line: &[u8]) -> Result<Option<NewJob>, String> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let line: Value = serde_json::from_slice(line).map_err(|error| format!("is not JSON: {error}"))?;
    let object = line.as_object().ok_or("must be a JSON object")?;
    if let Some(name) = object.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(format!("{name:?} is no field of a job; there are {}", FIELDS.join(", ")));
    }
    let operation = text(object, "operation")?.or(text(object, "op")?).ok_or("operation is missing")?;
    let body = match object.get("body") {
        None => return Err("body is missing".to_owned()),
        Some(Value::String(text)) => text.clone(),
        Some(body) => body.to_string(),
    };
    let run_at = match text(object, "run_at")? {
        None => None,
        Some(at) => Some(parse_rfc3339(&at).map_err(|reason| format!("run_at {reason}"))?),
    };
    Ok(Some(NewJob {
        run_at,
        correlation_id: text(object, "correlation_id")?,
        idempotency_key: text(object, "idempotency_key")?,
        ..NewJob::new(operation, body)
    }))
}

fn text(object: &Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("{field} must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_job_or_says_why_not() {
        let read = |line: &str| job(line.as_bytes());
        let new =
            read(r#"{"op": "create", "body": {"title": "x"}, "run_at": "1970-01-01T00:00:01Z"}"#).unwrap().unwrap();
        assert_eq!(
            (new.operation.as_str(), new.body.as_str(), new.run_at),
            ("create", r#"{"title":"x"}"#, Some(1_000))
        );
        let new = read("\u{feff}{\"operation\": \"delete\", \"body\": \"not json\", \"idempotency_key\": \"k\"}\r\n");
        let new = new.unwrap().unwrap();
        assert_eq!((new.body.as_str(), new.idempotency_key.as_deref()), ("not json", Some("k")));
        assert_eq!(read(" \n"), Ok(None));
        for (line, word) in [
            ("{", "JSON"),
            ("[]", "object"),
            ("{\"body\": {}}", "operation"),
            ("{\"op\": \"x\"}", "body"),
            ("{\"op\": \"x\", \"body\": {}, \"run_at\": \"2026-01-01T00:00:00\"}", "offset"),
            ("{\"op\": \"x\", \"body\": {}, \"priority\": 1}", "priority"),
            ("{\"op\": 1, \"body\": {}}", "op"),
        ] {
            assert!(read(line).unwrap_err().contains(word), "{line}");
        }
    }
}
