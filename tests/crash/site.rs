//! The database and the books of a crash run, looked at from outside.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use vayu_articles::rusqlite::{Connection, OpenFlags, Params, Row};

use crate::child::{HANDLERS, KILLER, LONG, book_of};
use crate::judge::{Answered, Evidence, Logged};
use crate::record::{self, Record};

/// Waits until `condition` holds; it is looked at again every few milliseconds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !condition() {
        assert!(Instant::now() < until, "waited too long until {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

pub fn look(folder: &Path) -> Connection {
    let connection = Connection::open_with_flags(folder.join("site.db"), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    connection.busy_timeout(LONG).unwrap();
    connection
}

pub fn rows<T>(folder: &Path, sql: &str, parameters: impl Params, read: impl Fn(&Row<'_>) -> T) -> Vec<T> {
    let connection = look(folder);
    let mut statement = connection.prepare(sql).unwrap();
    statement.query_map(parameters, |row| Ok(read(row))).unwrap().map(Result::unwrap).collect()
}

fn pair<A, B>(row: &Row<'_>) -> (A, B)
where
    A: vayu_articles::rusqlite::types::FromSql,
    B: vayu_articles::rusqlite::types::FromSql,
{
    (row.get(0).unwrap(), row.get(1).unwrap())
}

/// Handler and owner of every lane that is owned.
pub fn owners(folder: &Path) -> HashMap<String, String> {
    rows(folder, "SELECT handler, owner FROM lanes WHERE owner IS NOT NULL", [], pair).into_iter().collect()
}

/// Whether a living process holds the owner's file.
pub fn is_alive(folder: &Path, owner: &str) -> bool {
    let path = folder.canonicalize().unwrap().join(format!("site.db-owner-{owner}.lock"));
    File::open(path).is_ok_and(|file| file.try_lock_shared().is_err())
}

pub fn killers(folder: &Path) -> BTreeSet<(String, i64)> {
    let sql = "SELECT ?1, id FROM event_outbox WHERE payload ->> 'title' = ?2";
    rows(folder, sql, (HANDLERS[0], KILLER), pair).into_iter().collect()
}

pub fn crash_loops(folder: &Path) -> BTreeSet<(String, i64)> {
    let sql = "SELECT handler, outbox_id FROM deliveries WHERE state = 'dead_letter'";
    rows(folder, sql, [], pair).into_iter().collect()
}

pub fn is_drained(folder: &Path) -> bool {
    let sql = "SELECT (SELECT count(*) FROM lanes WHERE cursor = (SELECT max(id) FROM event_outbox)), \
               (SELECT count(*) FROM deliveries WHERE state IN ('retry', 'waiting', 'parked'))";
    rows(folder, sql, [], pair::<i64, i64>) == [(HANDLERS.len() as i64, 0)]
}

/// The last line a process wrote into a handler's book: it died then, or later.
pub fn last_sign_of_life(folder: &Path, process: u32) -> u64 {
    let records = HANDLERS.iter().flat_map(|handler| runs(folder, handler));
    records.filter(|record| record.process == process).map(|record| record.at_ns).max().unwrap_or(0)
}

pub fn runs(folder: &Path, handler: &str) -> Vec<Record> {
    record::read(&book_of(folder, handler)).iter().filter_map(|words| Record::parse(words)).collect()
}

pub fn log(folder: &Path) -> Vec<Logged> {
    let sql = "SELECT id, event_key, payload ->> 'version', event_type FROM event_outbox ORDER BY id";
    rows(folder, sql, [], |row| Logged {
        id: row.get(0).unwrap(),
        article: row.get(1).unwrap(),
        version: row.get(2).unwrap(),
        deletes: row.get::<_, String>(3).unwrap().starts_with("article.deleted"),
    })
}

pub fn evidence(folder: &Path, killed_ns: &HashMap<u32, u64>) -> Evidence {
    let acked = record::read(&book_of(folder, "acks"));
    let articles: Vec<(String, i64)> = rows(folder, "SELECT id, version FROM articles", [], pair);
    let runs: BTreeMap<String, Vec<Record>> =
        HANDLERS.iter().map(|handler| ((*handler).to_owned(), runs(folder, handler))).collect();
    let mut answered: HashMap<u32, Vec<Answered>> = HashMap::new();
    for words in &acked {
        let [_, _, from, until, process] = words.as_slice() else { continue };
        let write = Answered { from_ns: from.parse().unwrap(), until_ns: until.parse().unwrap() };
        answered.entry(process.parse().unwrap()).or_default().push(write);
    }
    let traps = record::read(&book_of(folder, "traps"));
    Evidence {
        answered,
        trapped: traps.into_iter().map(|words| (words[0].clone(), words[1].parse().unwrap())).collect(),
        acked: acked.into_iter().map(|words| (words[0].clone(), words[1].parse().unwrap())).collect(),
        articles: articles.into_iter().collect(),
        log: log(folder),
        runs,
        killed_ns: killed_ns.clone(),
        planted: killers(folder),
        crash_loops: crash_loops(folder),
    }
}
