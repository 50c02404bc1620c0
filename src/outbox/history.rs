//! What happened to an exception, as a short JSON list on its row.

use rusqlite::Row;
use serde::{Deserialize, Serialize};

/// Most entries kept; the oldest go first.
const MAX_ENTRIES: usize = 20;
/// Longest reason kept, in characters.
const MAX_REASON: usize = 2_000;

/// One thing that happened to an exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryEntry {
    /// When, milliseconds since the Unix epoch.
    pub at: i64,
    /// `retry`, `poison`, `crash`, `dead_letter`, `replay`, `discard`, `done` and the like.
    pub what: String,
    /// The handler's or the operator's words.
    pub reason: String,
}

/// A stored history as a list. One that does not parse counts as empty rather than hiding the row.
pub(super) fn parse(text: &str) -> Vec<HistoryEntry> {
    serde_json::from_str(text).unwrap_or_default()
}

/// The column as text, whatever bytes a foreign hand put there.
pub(super) fn column(row: &Row<'_>, index: usize) -> rusqlite::Result<String> {
    let bytes = row.get_ref(index)?.as_bytes_or_null()?.unwrap_or_default();
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// `history` with one more entry.
pub(super) fn append(history: &str, at: i64, what: &str, reason: &str) -> String {
    let mut entries = parse(history);
    entries.push(HistoryEntry { at, what: what.to_owned(), reason: shorten(reason) });
    let surplus = entries.len().saturating_sub(MAX_ENTRIES);
    entries.drain(..surplus);
    serde_json::to_string(&entries).unwrap_or_else(|_| "[]".to_owned())
}

/// A reason of bounded length, without NUL.
pub(super) fn shorten(reason: &str) -> String {
    let mut short: String = reason.chars().filter(|c| *c != '\0').take(MAX_REASON).collect();
    if reason.chars().nth(MAX_REASON).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_keeps_the_newest_entries_and_survives_a_broken_text() {
        let mut history = "not json".to_owned();
        for at in 0..30 {
            history = append(&history, at, "retry", &"x".repeat(5_000));
        }
        let entries = parse(&history);
        assert_eq!(entries.len(), MAX_ENTRIES);
        assert_eq!(entries.last().unwrap().at, 29);
        assert_eq!(entries[0].reason.chars().count(), MAX_REASON + 1);
    }
}
