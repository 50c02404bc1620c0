//! The settings file: TOML, of which every key must be known.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::outcome::SettingsError;
use super::table::TABLE;

/// Larger than any settings file.
const FILE_BYTES_MAX: usize = 1 << 20;

/// One key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// With its section before a dot.
    pub(super) key: String,
    pub(super) text: String,
    /// From 1.
    pub(super) line: usize,
}

/// All keys of the file, in its order.
///
/// # Errors
/// It is no TOML, or has a key that no setting has.
pub(super) fn entries(path: &Path, text: &str) -> Result<Vec<Entry>, SettingsError> {
    let at = |offset: usize, what: &str| {
        SettingsError::new(format!("{}, line {}: {what}", path.display(), line_of(text, offset)))
    };
    if text.len() > FILE_BYTES_MAX {
        return Err(SettingsError::new(format!("{} is no settings file: it is larger than 1 MiB", path.display())));
    }
    let table = DeTable::parse(text)
        .map_err(|error| at(error.span().map_or(0, |span| span.start), &format!("no TOML: {}", error.message())))?;
    let mut found = Vec::new();
    collect(table.get_ref(), "", &mut found).map_err(|(offset, what)| at(offset, &what))?;
    let mut entries: Vec<_> =
        found.into_iter().map(|(offset, key, text_)| Entry { key, text: text_, line: line_of(text, offset) }).collect();
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

/// Key and text of each value below `prefix`, with where it stands.
fn collect(table: &DeTable<'_>, prefix: &str, found: &mut Vec<(usize, String, String)>) -> Result<(), (usize, String)> {
    for (name, value) in table {
        let offset = name.span().start;
        let key = if prefix.is_empty() { name.get_ref().to_string() } else { format!("{prefix}.{}", name.get_ref()) };
        let section = TABLE.iter().any(|row| row.key.starts_with(&format!("{key}.")));
        match value.get_ref() {
            DeValue::Table(inner) if section => collect(inner, &key, found)?,
            value if TABLE.iter().any(|row| row.key == key) => {
                let text = plain(value)
                    .ok_or_else(|| (offset, format!("{key} takes a single value, no list and no table")))?;
                found.push((offset, key, text));
            }
            _ if section => return Err((offset, format!("{key} is a section: write [{key}] and its settings below"))),
            _ => return Err((offset, unknown(&key))),
        }
    }
    Ok(())
}

fn plain(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(moment) => moment.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => return None,
    })
}

fn unknown(key: &str) -> String {
    let sections = TABLE.iter().filter_map(|row| Some(row.key.rsplit_once('.')?.0));
    let near = TABLE.iter().map(|row| row.key).chain(sections).map(|known| (distance(key, known), known)).min();
    match near {
        Some((steps, known)) if steps <= key.len().div_ceil(3) => {
            format!("{key} is no setting; did you mean {known}?")
        }
        _ => {
            // The right name in the wrong section.
            let name = key.rsplit('.').next().unwrap_or(key);
            let same = TABLE.iter().find(|row| row.key.rsplit('.').next() == Some(name) || row.flag == name);
            let hint = same.map_or_else(
                || "`serve --print-config` lists all settings".to_owned(),
                |row| format!("did you mean {}?", row.key),
            );
            format!("{key} is no setting; {hint}")
        }
    }
}

/// How many letters to change, add or leave out to make one the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    // A longer name is like no other.
    for (i, a) in one.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count() + 1
}
