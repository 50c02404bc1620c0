//! Counts what must not be in the jobs that are left after all the kills.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// An event that a job caused.
#[derive(Debug, Clone)]
pub struct Emitted {
    pub job: i64,
    pub article: String,
    pub event: String,
}

/// A job as its row tells.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: i64,
    pub status: String,
    pub event: Option<String>,
    /// Its number says when it was due: a replayed one has its old number at a later time, a scheduled one its own time.
    pub in_line: bool,
}

/// Everything the judge looks at.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Numbers that were given to whoever wrote.
    pub accepted: BTreeSet<i64>,
    /// In the order of the log.
    pub events: Vec<Emitted>,
    pub jobs: Vec<Job>,
}

/// What must be 0, but for the first two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub accepted: usize,
    pub applied: usize,
    /// Accepted, and no row tells of them.
    pub lost: usize,
    /// More than one event of one job, or one of a job that is not applied.
    pub twice: usize,
    /// Applied, and its event is missing or another's.
    pub without_event: usize,
    /// An event of a kept write before that of an earlier one to the same article.
    pub out_of_order: usize,
    /// Due, and still waiting once everything is drained.
    pub left: usize,
}

impl Counts {
    pub fn is_clean(&self) -> bool {
        self.lost + self.twice + self.without_event + self.out_of_order + self.left == 0
    }
}

pub fn judge(evidence: &Evidence) -> Counts {
    let known: BTreeSet<i64> = evidence.jobs.iter().map(|job| job.id).collect();
    let mut counts = Counts {
        accepted: evidence.accepted.len(),
        lost: evidence.accepted.difference(&known).count(),
        out_of_order: out_of_order(evidence),
        ..Counts::default()
    };
    let mut emitted: HashMap<i64, Vec<&str>> = HashMap::new();
    for event in &evidence.events {
        emitted.entry(event.job).or_default().push(&event.event);
    }
    for job in &evidence.jobs {
        let events = emitted.get(&job.id).map_or(&[][..], Vec::as_slice);
        match job.status.as_str() {
            "applied" => {
                counts.applied += 1;
                counts.twice += events.len().saturating_sub(1);
                counts.without_event += usize::from(job.event.as_deref().is_some_and(|event| !events.contains(&event)));
            }
            "pending" => counts.left += 1,
            _ => counts.twice += events.len(),
        }
    }
    counts
}

/// Among the events of one article, those whose job stood in line behind the job of the event before.
fn out_of_order(evidence: &Evidence) -> usize {
    let in_line: BTreeSet<i64> = evidence.jobs.iter().filter(|job| job.in_line).map(|job| job.id).collect();
    let mut lines: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for event in evidence.events.iter().filter(|event| in_line.contains(&event.job)) {
        lines.entry(&event.article).or_default().push(event.job);
    }
    lines.values().map(|line| line.windows(2).filter(|pair| pair[0] >= pair[1]).count()).sum()
}
