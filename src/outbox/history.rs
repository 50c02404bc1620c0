//! What happened to an exception, as a short JSON list on its row.

use std::borrow::Cow;

use rusqlite::Row;
use serde::{Deserialize, Serialize};

/// Most entries kept; the oldest go first.
const MAX_ENTRIES: usize = 20;
/// Longest reason kept, in characters.
const MAX_REASON: usize = 2_000;

/// What the history says of a replay by force.
pub(super) const FORCED_REPLAY: &str = "forced replay";

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
    let reason = shorten(reason);
    let entry = Entry { at, what: what.into(), reason: reason.into() };
    let mut entries: Vec<Entry<'_>> = serde_json::from_str(history).unwrap_or_default();
    if entries.is_empty() || entries.len() >= MAX_ENTRIES {
        entries.push(entry);
        let surplus = entries.len().saturating_sub(MAX_ENTRIES);
        // That a replay was forced decides under which id the event goes out: it outlives what came before and after it.
        let is_forced = |entry: &Entry<'_>| entry.what == FORCED_REPLAY;
        if let Some(last) = entries.iter().rposition(is_forced).filter(|last| *last < surplus) {
            entries.swap(last, surplus);
        }
        return serde_json::to_string(&entries[surplus..]).unwrap_or_else(|_| "[]".to_owned());
    }
    // What is there is sound and stays as it is, up to its closing bracket.
    let end = history.rfind(']').unwrap_or_default();
    let entry = serde_json::to_string(&entry).unwrap_or_default();
    format!("{},{entry}]", &history[..end])
}

/// A [`HistoryEntry`] that need not own its text.
#[derive(Serialize, Deserialize)]
struct Entry<'t> {
    at: i64,
    #[serde(borrow)]
    what: Cow<'t, str>,
    #[serde(borrow)]
    reason: Cow<'t, str>,
}

/// A reason of bounded length, without NUL.
pub(super) fn shorten(reason: &str) -> String {
    if reason.len() <= MAX_REASON && !reason.contains('\0') {
        return reason.to_owned();
    }
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

    #[test]
    fn what_is_appended_is_read_back_whatever_the_text_before_looks_like() {
        let entry =
            |at, what: &str, reason: &str| HistoryEntry { at, what: what.to_owned(), reason: reason.to_owned() };
        for before in ["[]", " [ ] ", "", "null", "[{}]", "[{\"at\":1}]", "not json"] {
            let history = append(before, 2, "retry", "a \"quoted\" ] line\nand\0 more");
            assert_eq!(parse(&history), [entry(2, "retry", "a \"quoted\" ] line\nand more")], "{before}");
        }
        let before = " [ {\"reason\": \"\\u0041]\", \"what\":\"crash\",\"at\":1,\"more\":[]} ]\n";
        let history = append(before, 2, "done", "delivered");
        assert_eq!(parse(&history), [entry(1, "crash", "A]"), entry(2, "done", "delivered")]);
    }
}
