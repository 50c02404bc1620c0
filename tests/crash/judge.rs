//! Reads what is left after all the kills and counts what must not be.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::record::{Point, Record};

/// Finished work is handed to the queue-writer this long afterwards, at the latest, so that much may come again after a kill.
/// It is on the disk only when the flush before it and its own have been committed, and how long that takes is the disk's
/// affair: see [`written_by`].
pub const FLUSH_AFTER_NS: u64 = 50_000_000;
/// What the lane may take to see that its last flush has landed, or that a call has ended, on a machine that has other things to
/// do; and to hand over once more what the writer refused (a poll of 200 ms, and 50 ms again).
pub const NOTICED_NS: u64 = 500_000_000;
/// Whatever the disk does: a writer that is stuck for longer is a breach of its own.
pub const REPEATED_NS: u64 = 5_050_000_000;

/// A write that was answered: when it was handed over, and when its answer was there.
#[derive(Debug, Clone, Copy)]
pub struct Answered {
    pub from_ns: u64,
    pub until_ns: u64,
}

/// An event as the log holds it.
#[derive(Debug, Clone)]
pub struct Logged {
    pub id: i64,
    pub article: String,
    pub version: i64,
    pub deletes: bool,
}

/// Everything the judge looks at.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Answered writes: article and version.
    pub acked: Vec<(String, i64)>,
    /// Articles and their versions as stored.
    pub articles: BTreeMap<String, i64>,
    /// In the order of the log.
    pub log: Vec<Logged>,
    /// Per handler, in the order in which it was written.
    pub runs: BTreeMap<String, Vec<Record>>,
    /// Per process, its answered writes: how promptly its queue-writer committed, by its own account.
    pub answered: HashMap<u32, Vec<Answered>>,
    /// When a process was killed, at the earliest; those that ended by themselves are not in it.
    pub killed_ns: HashMap<u32, u64>,
    /// Handlers that were held inside a call until the kill, with their processes.
    pub trapped: BTreeSet<(String, u32)>,
    /// Handler and event of planted killers, and of those that ended as a crash loop.
    pub planted: BTreeSet<(String, i64)>,
    pub crash_loops: BTreeSet<(String, i64)>,
}

/// The counts; all but `repeated` must be 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub repeated: usize,
    pub lost: usize,
    pub articles_without_event: usize,
    pub events_without_article: usize,
    pub overlapping_runs: usize,
    pub out_of_order: usize,
    pub undelivered: usize,
    /// Finished work that came again though its process lived on long enough to write it down.
    pub late_repeats: usize,
}

impl Counts {
    pub fn is_clean(&self) -> bool {
        *self == Self { repeated: self.repeated, ..Self::default() }
    }
}

pub fn judge(evidence: &Evidence) -> Counts {
    let mut counts = Counts {
        lost: lost(evidence),
        articles_without_event: articles_without_event(evidence),
        events_without_article: events_without_article(evidence),
        ..Counts::default()
    };
    for (handler, records) in &evidence.runs {
        let runs = runs(records, &evidence.killed_ns);
        counts.overlapping_runs += overlapping(&runs);
        let first = first_ends(records);
        counts.out_of_order += out_of_order(evidence, records);
        counts.undelivered += undelivered(evidence, handler, &first);
        let repeats = repeats(evidence, handler, records);
        counts.repeated += repeats.len();
        counts.late_repeats += repeats.iter().filter(|repeat| !repeat.explained).count();
    }
    counts
}

fn lost(evidence: &Evidence) -> usize {
    let logged: BTreeSet<(&str, i64)> =
        evidence.log.iter().map(|event| (event.article.as_str(), event.version)).collect();
    evidence.acked.iter().filter(|(article, version)| !logged.contains(&(article.as_str(), *version))).count()
}

/// The last event of each article, which must be what is stored.
fn last_events(evidence: &Evidence) -> HashMap<&str, &Logged> {
    evidence.log.iter().map(|event| (event.article.as_str(), event)).collect()
}

fn articles_without_event(evidence: &Evidence) -> usize {
    let last = last_events(evidence);
    let explained =
        |article: &str, version: i64| last.get(article).is_some_and(|event| !event.deletes && event.version == version);
    evidence.articles.iter().filter(|(article, version)| !explained(article, **version)).count()
}

fn events_without_article(evidence: &Evidence) -> usize {
    let missing = |event: &&&Logged| !event.deletes && evidence.articles.get(&event.article) != Some(&event.version);
    last_events(evidence).values().filter(missing).count()
}

/// From, until, in which process.
type Run = (u64, u64, u32);

/// A run without an end lasted at least until its process was killed.
fn runs(records: &[Record], killed_ns: &HashMap<u32, u64>) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut open: HashMap<u32, u64> = HashMap::new();
    let until_death = |process: u32, start: u64| killed_ns.get(&process).copied().unwrap_or(start).max(start);
    for record in records {
        let start = open.remove(&record.process);
        match (record.point, start) {
            (Point::End, Some(start)) => runs.push((start, record.at_ns, record.process)),
            (Point::End, None) => runs.push((record.at_ns, record.at_ns, record.process)),
            (Point::Start, earlier) => {
                // A call that ended without an end: only its beginning is certain.
                runs.extend(earlier.map(|start| (start, start, record.process)));
                open.insert(record.process, record.at_ns);
            }
        }
    }
    runs.extend(open.into_iter().map(|(process, start)| (start, until_death(process, start), process)));
    runs.sort_unstable();
    runs
}

/// A lane has one thread, so no two runs of a handler may overlap, whatever their events.
fn overlapping(runs: &[Run]) -> usize {
    let mut latest_end = 0;
    let mut count = 0;
    for (start, end, _) in runs {
        count += usize::from(*start < latest_end);
        latest_end = latest_end.max(*end);
    }
    count
}

fn first_ends(records: &[Record]) -> BTreeSet<i64> {
    records.iter().filter(|record| record.point == Point::End).map(|record| record.event).collect()
}

/// Judged on the first completion of each event.
fn out_of_order(evidence: &Evidence, records: &[Record]) -> usize {
    let keys: HashMap<i64, &str> = evidence.log.iter().map(|event| (event.id, event.article.as_str())).collect();
    let mut seen = BTreeSet::new();
    let mut highest: HashMap<&str, i64> = HashMap::new();
    let mut count = 0;
    for record in records.iter().filter(|record| record.point == Point::End) {
        let Some(key) = keys.get(&record.event) else { continue };
        if seen.insert(record.event) {
            let highest = highest.entry(key).or_insert(0);
            count += usize::from(record.event < *highest);
            *highest = record.event.max(*highest);
        }
    }
    count
}

fn undelivered(evidence: &Evidence, handler: &str, first: &BTreeSet<i64>) -> usize {
    let excused = |id: i64| {
        let this = (handler.to_owned(), id);
        evidence.planted.contains(&this) && evidence.crash_loops.contains(&this)
    };
    let missing = evidence.log.iter().filter(|event| !first.contains(&event.id) && !excused(event.id)).count();
    // An innocent event that was condemned has been delivered at some time, or it is missing already.
    let condemned = evidence.crash_loops.iter().filter(|entry| entry.0 == handler && !evidence.planted.contains(entry));
    missing + condemned.filter(|(_, id)| first.contains(id)).count()
}

/// Work that came again.
struct Repeat {
    /// How long before its process died, or could do no more for it, it was finished; `None` if nobody killed that process.
    age_ns: Option<u64>,
    /// A kill explains it: the work was not written, and need not have been.
    explained: bool,
}

/// All repeats of a handler.
fn repeats(evidence: &Evidence, handler: &str, records: &[Record]) -> Vec<Repeat> {
    let busy_from = busy_from(evidence, handler, records);
    let mut last_end: HashMap<i64, &Record> = HashMap::new();
    let mut repeats = Vec::new();
    for record in records.iter().filter(|record| record.point == Point::End) {
        let Some(earlier) = last_end.insert(record.event, record) else { continue };
        let until = busy_from.get(&earlier.process).copied().unwrap_or(u64::MAX);
        let died = evidence.killed_ns.get(&earlier.process).map(|killed| (*killed).min(until));
        let answered = evidence.answered.get(&earlier.process).map_or(&[][..], Vec::as_slice);
        let must_be_written = written_by(earlier.at_ns, answered).min(earlier.at_ns + REPEATED_NS);
        repeats.push(Repeat {
            age_ns: died.map(|died| died.saturating_sub(earlier.at_ns)),
            explained: died.is_some_and(|died| died <= must_be_written),
        });
    }
    repeats
}

/// The start of the call in which a process died, or was held until it did: up to then its lane could write down what it
/// had finished. One whose last call had ended was idle and could until the kill.
fn busy_from(evidence: &Evidence, handler: &str, records: &[Record]) -> HashMap<u32, u64> {
    let mut starts: HashMap<u32, (u64, bool)> = HashMap::new();
    for record in records {
        match record.point {
            Point::Start => _ = starts.insert(record.process, (record.at_ns, false)),
            Point::End => starts.entry(record.process).or_default().1 = true,
        }
    }
    let held = |process: u32| evidence.trapped.contains(&(handler.to_owned(), process));
    let busy = starts.into_iter().filter(|(process, (_, ended))| !ended || held(*process));
    busy.map(|(process, (start, _))| (process, start)).collect()
}

/// The longest time for which work was finished before its process was killed, and came again all the same.
pub fn oldest_repeat_ns(evidence: &Evidence) -> u64 {
    let all = evidence.runs.iter().flat_map(|(handler, records)| repeats(evidence, handler, records));
    all.filter_map(|repeat| repeat.age_ns).max().unwrap_or(0)
}

/// When work that was finished at `end_ns` must have been durable, as far as the process's answered writes tell.
///
/// One queue-writer commits flushes and writes in the order in which they are handed over. So once a write is answered that
/// was handed over after the flush was due, an earlier flush of the lane has landed, and this one has left soon after; and once
/// a write is answered that was handed over after that, it is on the disk.
fn written_by(end_ns: u64, answered: &[Answered]) -> u64 {
    let first_answer = |since: u64| {
        answered.iter().filter(|write| write.from_ns >= since).map(|write| write.until_ns).min().unwrap_or(u64::MAX)
    };
    let landed = first_answer(end_ns + FLUSH_AFTER_NS);
    first_answer(landed.saturating_add(NOTICED_NS))
}
