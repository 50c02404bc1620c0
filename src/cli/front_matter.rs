//! A Markdown file with YAML (`---`) or TOML (`+++`) front matter, as an article's parts.
//!
//! The keys that count are those of the common site generators; all others, nested ones too, are passed over:
//!
//! | key | meaning |
//! |---|---|
//! | `title` | title |
//! | `slug` | explicit slug |
//! | `type`, `kind` | `page` makes a page, anything else a post |
//! | `draft: true`, `published: false` | a draft |
//! | `date`, `updated`, `lastmod` | see [`dates`](super::dates) |
//! | `tags`, `categories`, `taxonomies.tags`, `taxonomies.categories` | tags, in this order; a bare string is ONE tag, commas and all |

mod fields;

use std::fmt;

use super::dates;
use crate::article::{Kind, Status};
use fields::RawFields;

/// Longest front matter, in bytes. A file that opens a fence and never closes it is not searched beyond this.
pub(crate) const MAX_FRONT_MATTER_BYTES: usize = 64 * 1024;

/// What a file says about an article. What it does not say is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub title: Option<String>,
    pub slug: Option<String>,
    pub kind: Kind,
    pub status: Status,
    pub tags: Vec<String>,
    /// Milliseconds since the Unix epoch.
    pub created_at: Option<i64>,
    /// Milliseconds since the Unix epoch.
    pub updated_at: Option<i64>,
    /// A time of day stood there without a zone, and UTC was assumed.
    pub zone_assumed: bool,
    /// The Markdown below the front matter, with `\n` line ends; never blank.
    pub body: String,
}

/// Why a file is no article. Lines and columns count from 1 in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum DocumentError {
    /// The bytes are not UTF-8 from here on.
    NotUtf8 { line: usize },
    /// The opening fence has no closing one within [`MAX_FRONT_MATTER_BYTES`].
    Unclosed { fence: &'static str },
    /// The front matter is no YAML or TOML, or a key has a value of the wrong sort.
    Syntax { line: Option<usize>, reason: String },
    /// A key's value cannot be used.
    Field { field: &'static str, line: Option<usize>, reason: String },
    /// Nothing stands below the front matter.
    NoContent,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match self {
            Self::NotUtf8 { line } => Some(*line),
            Self::Unclosed { .. } => Some(1),
            Self::Syntax { line, .. } | Self::Field { line, .. } => *line,
            Self::NoContent => None,
        };
        if let Some(line) = line {
            write!(f, "line {line}: ")?;
        }
        match self {
            Self::NotUtf8 { .. } => f.write_str("not UTF-8: save the file in that encoding"),
            Self::Unclosed { fence } => write!(f, "the front matter opened with {fence} is never closed"),
            Self::Syntax { reason, .. } => write!(f, "cannot read the front matter: {reason}"),
            Self::Field { field, reason, .. } => write!(f, "{field}: {reason}"),
            Self::NoContent => f.write_str("no text below the front matter: an article needs some"),
        }
    }
}

impl std::error::Error for DocumentError {}

/// Reads a file's bytes. A leading byte order mark and CRLF or CR line ends are accepted; a file without front matter is
/// all body.
///
/// Without a `title` key the first `# ` heading is the title. It is taken out of the body when it opens it (a page
/// shows its title already) and stays when it stands further down.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, DocumentError> {
    let text = std::str::from_utf8(bytes).map_err(|e| DocumentError::NotUtf8 {
        line: 1 + bytes[..e.valid_up_to()].iter().filter(|&&b| b == b'\n').count(),
    })?;
    let mut text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    if !text.contains('\n') {
        // Line ends of old.
        text = text.replace('\r', "\n");
    }
    let (fields, front, body) = match split(&text)? {
        Some((Fence::Yaml, front, body)) => (fields::from_yaml(front)?, front, body),
        Some((Fence::Toml, front, body)) => (fields::from_toml(front)?, front, body),
        None => (RawFields::default(), "", text.as_str()),
    };
    if body.trim().is_empty() {
        return Err(DocumentError::NoContent);
    }
    document(fields, front, body)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fence {
    Yaml,
    Toml,
}

impl Fence {
    fn text(self) -> &'static str {
        match self {
            Self::Yaml => "---",
            Self::Toml => "+++",
        }
    }
}

/// The text between the fences and the text below them; `None` when the first line is no fence.
fn split(text: &str) -> Result<Option<(Fence, &str, &str)>, DocumentError> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let fence = match first.trim_end() {
        "---" => Fence::Yaml,
        "+++" => Fence::Toml,
        _ => return Ok(None),
    };
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if line.trim_end() == fence.text() {
            return Ok(Some((fence, &rest[..at], &rest[at + line.len()..])));
        }
        at += line.len();
        if at > MAX_FRONT_MATTER_BYTES {
            break;
        }
    }
    Err(DocumentError::Unclosed { fence: fence.text() })
}

fn document(fields: RawFields, front: &str, body: &str) -> Result<Document, DocumentError> {
    let mut zone_assumed = false;
    let mut moment = |field: &'static str, text: &Option<String>| match text.as_deref() {
        None => Ok(None),
        Some(text) if text.trim().is_empty() => Ok(None),
        Some(text) => match dates::parse(text) {
            Ok(moment) => {
                zone_assumed |= moment.zone_assumed;
                Ok(Some(moment.ms))
            }
            Err(reason) => Err(DocumentError::Field { field, line: line_of(front, field), reason }),
        },
    };
    let created_at = moment("date", &fields.date)?;
    let updated_at = match moment("updated", &fields.updated)? {
        Some(ms) => Some(ms),
        None => moment("lastmod", &fields.lastmod)?,
    };
    // A block scalar ends in a line end.
    let (title, body) = match fields.title.as_deref().map(str::trim).filter(|title| !title.is_empty()) {
        Some(title) => (Some(title.to_owned()), body.to_owned()),
        None => title_from_heading(body),
    };
    let kind = fields.kind.or(fields.type_).map(|kind| kind.trim().to_lowercase());
    let hidden = fields.draft == Some(true) || fields.published_false;
    Ok(Document {
        title,
        slug: fields.slug.map(|slug| slug.trim().to_owned()).filter(|slug| !slug.is_empty()),
        kind: if kind.as_deref() == Some("page") { Kind::Page } else { Kind::Post },
        status: if hidden { Status::Draft } else { Status::Published },
        // Templates for new posts often hold an empty one.
        tags: fields.labels.into_iter().filter(|label| !label.trim().is_empty()).collect(),
        created_at,
        updated_at,
        zone_assumed,
        body,
    })
}

/// The file's line on which a top-level key stands; the first line is the opening fence.
fn line_of(front: &str, key: &str) -> Option<usize> {
    let at = front
        .lines()
        .position(|line| line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with([':', '='])))?;
    Some(at + 2)
}

/// The first level-one heading outside fenced code, and the body without it if it opened the body.
fn title_from_heading(body: &str) -> (Option<String>, String) {
    let mut code: Option<&str> = None;
    let mut at = 0;
    for line in body.split_inclusive('\n') {
        let text = line.trim();
        match code {
            Some(mark) if text.starts_with(mark) => code = None,
            Some(_) => {}
            None if text.starts_with("```") => code = Some("```"),
            None if text.starts_with("~~~") => code = Some("~~~"),
            None => {
                if let Some(title) = heading(line) {
                    let below = &body[at + line.len()..];
                    let opens = body[..at].trim().is_empty() && !below.trim().is_empty();
                    return (Some(title), if opens { below.to_owned() } else { body.to_owned() });
                }
            }
        }
        at += line.len();
    }
    (None, body.to_owned())
}

fn heading(line: &str) -> Option<String> {
    let text = line.strip_prefix('#')?;
    if !text.starts_with([' ', '\t']) {
        return None;
    }
    let title = text.trim();
    let bare = title.trim_end_matches('#');
    let title = if bare.len() < title.len() && bare.ends_with([' ', '\t']) { bare.trim_end() } else { title };
    (!title.is_empty()).then(|| title.to_owned())
}

#[cfg(test)]
mod tests;
