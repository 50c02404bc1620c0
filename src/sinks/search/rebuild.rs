//! Is the file in step with the log, and if not: bringing it in step with the articles.
//!
//! A rebuild walks the articles and the documents side by side, both by article id, one bounded page per transaction.
//! Its place stands in the file, so it goes on where a crash left it, and readers find an index at every moment: what
//! is not yet mended is still the old.

use rusqlite::Connection;

use super::index::{self, Doc, State};
use super::{Failure, plain, sql};
use crate::article::ArticleStamp;
use crate::outbox::{DispatchError, LaneStart};
use crate::sinks::source::ArticleSource;

/// Articles looked at in one transaction.
const PAGE: u32 = 128;
/// Documents looked at in one transaction.
const DOCS: usize = 256;
/// A transaction ends early once it has indexed this much text.
pub(super) const TRANSACTION_BYTES: usize = 8 << 20;

/// How the file relates to the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Holds everything up to the cursor.
    InStep,
    /// Of this log, but events are missing (or nobody can tell): documents of another version are indexed again.
    Behind,
    /// New, or of another log, or of a future that a restored backup undid, or with texts that were extracted otherwise:
    /// versions prove nothing.
    Foreign,
}

impl Standing {
    /// Why the index is rebuilt, or not, for the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::InStep => "none: it is in step",
            Self::Behind => "it may lack events: what differs is indexed again",
            Self::Foreign => "it is new, or not of this log: every article is indexed",
        }
    }

    /// The value of `state.rebuild`.
    pub const fn code(self) -> i64 {
        match self {
            Self::InStep => 0,
            Self::Behind => 1,
            Self::Foreign => 2,
        }
    }
}

pub(super) fn standing(state: &State, lane: &LaneStart, source: &dyn ArticleSource) -> Result<Standing, Failure> {
    if !state.built || state.revision != plain::REVISION {
        return Ok(Standing::Foreign);
    }
    let Some((applied_id, applied_event)) = &state.applied else {
        let untouched = lane.cursor == 0 && lane.last_event.is_none();
        return Ok(if untouched { Standing::InStep } else { Standing::Behind });
    };
    Ok(match source.event_id_at(*applied_id)? {
        Some(event_id) if event_id == *applied_event => match &lane.last_event {
            Some((last, _)) if last > applied_id => Standing::Behind,
            // Ahead of the cursor is fine: a crash came between the two commits, and what is repeated changes nothing.
            _ => Standing::InStep,
        },
        Some(_) => Standing::Foreign,
        // Never written in this log.
        None if *applied_id > lane.cursor => Standing::Foreign,
        // Pruned, most likely. Comparing every version is cheap beside being wrong.
        None => Standing::Behind,
    })
}

/// Whether an interrupted rebuild was for this very place in this log, and its texts are as ours.
pub(super) fn resumes(state: &State, lane: &LaneStart) -> bool {
    state.rebuild != 0 && state.revision == plain::REVISION && state.rebuild_target == lane.last_event
}

/// Notes in the file that a rebuild has begun.
pub(super) fn start(
    connection: &Connection,
    standing: Standing,
    target: Option<&(i64, String)>,
) -> rusqlite::Result<()> {
    let (id, event) = target.map(|(id, event)| (*id, event.as_str())).unzip();
    connection.execute(sql::BEGIN_REBUILD, (standing.code(), id, event, plain::REVISION))?;
    Ok(())
}

/// What a rebuild did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildReport {
    /// Articles compared.
    pub seen: u64,
    /// Articles written to the index.
    pub written: u64,
    /// Documents removed, since their article is gone.
    pub removed: u64,
}

/// Does one page inside the caller's transaction. Returns whether the rebuild has come to its end.
pub(super) fn page(
    connection: &Connection,
    source: &dyn ArticleSource,
    state: &State,
    report: &mut RebuildReport,
) -> Result<bool, Failure> {
    let after = state.rebuild_after.as_deref();
    let stamps = source.stamps_after(after, PAGE)?;
    let docs = docs_after(connection, after.unwrap_or(""))?;
    // Beyond the shorter of two full pages nothing is known of the other side.
    let stamps_end = (stamps.len() == PAGE as usize).then(|| stamps[stamps.len() - 1].id.clone());
    let docs_end = (docs.len() == DOCS).then(|| docs[DOCS - 1].id.clone());
    let mut horizon = match (stamps_end, docs_end) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    let within = |id: &str, horizon: &Option<String>| horizon.as_deref().is_none_or(|end| id <= end);

    let mut docs = docs.into_iter().peekable();
    let mut bytes = 0;
    for stamp in &stamps {
        if !within(&stamp.id, &horizon) {
            break;
        }
        while let Some(stale) = docs.next_if(|doc| doc.id < stamp.id) {
            index::remove(connection, stale.doc)?;
            report.removed += 1;
        }
        let known = docs.next_if(|doc| doc.id == stamp.id);
        bytes += mend(connection, source, stamp, known, state.rebuild, report)?;
        if bytes > TRANSACTION_BYTES {
            horizon = Some(stamp.id.clone());
        }
    }
    for stale in docs.take_while(|doc| within(&doc.id, &horizon)) {
        index::remove(connection, stale.doc)?;
        report.removed += 1;
    }
    match &horizon {
        Some(end) => connection.execute(sql::ADVANCE_REBUILD, [end])?,
        None => finish(connection, state)?,
    };
    Ok(horizon.is_none())
}

fn finish(connection: &Connection, state: &State) -> rusqlite::Result<usize> {
    if let Some((id, event)) = &state.rebuild_target {
        index::set_applied(connection, *id, event)?;
    }
    connection.execute(sql::END_REBUILD, [])
}

/// Indexes one article again where needed. Returns the bytes indexed.
fn mend(
    connection: &Connection,
    source: &dyn ArticleSource,
    stamp: &ArticleStamp,
    known: Option<Entry>,
    mode: i64,
    report: &mut RebuildReport,
) -> Result<usize, Failure> {
    report.seen += 1;
    let same =
        known.as_ref().is_some_and(|entry| (entry.doc.version, entry.updated_at) == (stamp.version, stamp.updated_at));
    if same && mode == Standing::Behind.code() {
        return Ok(0);
    }
    let known = known.map(|entry| entry.doc);
    let article = match source.article(&stamp.id) {
        Err(error @ DispatchError::Unavailable { .. }) => return Err(error.into()),
        Err(error) => {
            // One row that cannot be read must not keep all others from being found.
            log::error!("article left out of the search index id={} error={:?}", stamp.id, error.to_string());
            None
        }
        Ok(article) => article,
    };
    let Some(article) = article else {
        // Deleted between the two reads, or not readable.
        if let Some(doc) = known {
            index::remove(connection, doc)?;
            report.removed += 1;
        }
        return Ok(0);
    };
    report.written += 1;
    Ok(index::put(connection, known, &article)?)
}

struct Entry {
    id: String,
    doc: Doc,
    updated_at: i64,
}

fn docs_after(connection: &Connection, after: &str) -> rusqlite::Result<Vec<Entry>> {
    let mut statement = connection.prepare_cached(sql::DOCS_AFTER)?;
    let rows = statement.query_map((after, DOCS as i64), |row| {
        Ok(Entry {
            id: row.get(0)?,
            doc: Doc { doc_id: row.get(1)?, version: row.get(2)?, indexed: row.get(4)? },
            updated_at: row.get(3)?,
        })
    })?;
    rows.collect()
}
