//! The keys of YAML and TOML front matter, taken as they are written.

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

use super::{DocumentError, MAX_FRONT_MATTER_BYTES};

/// What both formats are read into. Dates and names are text still.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RawFields {
    pub title: Option<String>,
    pub slug: Option<String>,
    pub kind: Option<String>,
    pub type_: Option<String>,
    pub draft: Option<bool>,
    pub published_false: bool,
    pub date: Option<String>,
    pub updated: Option<String>,
    pub lastmod: Option<String>,
    /// Tags, then categories, then those of `taxonomies`; repetitions are left to the article's own rules.
    pub labels: Vec<String>,
}

/// Reads YAML. Scalars keep their spelling (a tag `1.10` stays `1.10`); a key that stands twice is an error.
pub(super) fn from_yaml(text: &str) -> Result<RawFields, DocumentError> {
    if text.trim().is_empty() {
        return Ok(RawFields::default());
    }
    let fields: YamlFields = serde_saphyr::from_str_with_options(text, yaml_limits()).map_err(|error| {
        let error = error.without_snippet();
        let at = error.location().filter(|at| at.line() > 0);
        // One more for the opening fence.
        let line = at.map(|at| usize::try_from(at.line()).unwrap_or(usize::MAX).saturating_add(1));
        DocumentError::Syntax {
            line,
            reason: first_line(&strip_location(&error.render_with_formatter(&serde_saphyr::UserMessageFormatter))),
        }
    })?;
    let mut labels = fields.tags.0;
    labels.extend(fields.categories.0);
    labels.extend(fields.taxonomies.0);
    Ok(RawFields {
        title: fields.title,
        slug: fields.slug,
        kind: fields.kind,
        type_: fields.type_,
        draft: fields.draft,
        published_false: fields.published.0,
        date: fields.date,
        updated: fields.updated,
        lastmod: fields.lastmod,
        labels,
    })
}

/// Limits that no front matter written by a person comes near: aliases that multiply, deep nesting and document
/// storms end as an error instead of memory.
fn yaml_limits() -> serde_saphyr::Options {
    let budget = serde_saphyr::budget! {
        max_events: 20_000,
        max_nodes: 10_000,
        max_depth: 32,
        flow_nesting_limit: 32,
        max_aliases: 100,
        max_anchors: 100,
        max_recorded_anchor_events: 20_000,
        max_recorded_anchor_bytes: MAX_FRONT_MATTER_BYTES,
        max_total_scalar_bytes: 4 * MAX_FRONT_MATTER_BYTES,
        max_merge_keys: 100,
        max_documents: 1,
    };
    serde_saphyr::options! { budget: budget, with_snippet: false }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct YamlFields {
    title: Option<String>,
    slug: Option<String>,
    kind: Option<String>,
    #[serde(rename = "type")]
    type_: Option<String>,
    draft: Option<bool>,
    published: IsFalse,
    date: Option<String>,
    updated: Option<String>,
    lastmod: Option<String>,
    tags: Labels,
    categories: Labels,
    taxonomies: Taxonomies,
}

/// True for the boolean `false` alone: elsewhere `published` is a date or some program's mark.
#[derive(Debug, Default)]
struct IsFalse(bool);

/// One label, or a list of them.
#[derive(Debug, Default)]
struct Labels(Vec<String>);

/// `taxonomies.tags` and `taxonomies.categories`.
#[derive(Debug, Default)]
struct Taxonomies(Vec<String>);

impl<'de> Deserialize<'de> for IsFalse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IsFalseVisitor)
    }
}

struct IsFalseVisitor;

impl<'de> Visitor<'de> for IsFalseVisitor {
    type Value = IsFalse;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }
    fn visit_bool<E>(self, v: bool) -> Result<IsFalse, E> {
        Ok(IsFalse(!v))
    }
    fn visit_i64<E>(self, _: i64) -> Result<IsFalse, E> {
        Ok(IsFalse(false))
    }
    fn visit_u64<E>(self, _: u64) -> Result<IsFalse, E> {
        Ok(IsFalse(false))
    }
    fn visit_f64<E>(self, _: f64) -> Result<IsFalse, E> {
        Ok(IsFalse(false))
    }
    fn visit_str<E>(self, _: &str) -> Result<IsFalse, E> {
        Ok(IsFalse(false))
    }
    fn visit_unit<E>(self) -> Result<IsFalse, E> {
        Ok(IsFalse(false))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<IsFalse, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(IsFalse(false))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<IsFalse, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(IsFalse(false))
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LabelsVisitor)
    }
}

struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tags, or one tag")
    }
    fn visit_str<E>(self, v: &str) -> Result<Labels, E> {
        Ok(Labels(if v.trim().is_empty() { Vec::new() } else { vec![v.to_owned()] }))
    }
    fn visit_bool<E>(self, v: bool) -> Result<Labels, E> {
        Ok(Labels(vec![v.to_string()]))
    }
    fn visit_i64<E>(self, v: i64) -> Result<Labels, E> {
        Ok(Labels(vec![v.to_string()]))
    }
    fn visit_u64<E>(self, v: u64) -> Result<Labels, E> {
        Ok(Labels(vec![v.to_string()]))
    }
    fn visit_unit<E>(self) -> Result<Labels, E> {
        Ok(Labels::default())
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Labels, A::Error> {
        // The elements are read as strings, so numbers and booleans keep their spelling.
        let mut labels = Vec::new();
        while let Some(label) = seq.next_element::<Option<String>>()? {
            labels.extend(label);
        }
        Ok(Labels(labels))
    }
}

impl<'de> Deserialize<'de> for Taxonomies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Known {
            tags: Labels,
            categories: Labels,
        }
        let known = Option::<Known>::deserialize(deserializer)?.unwrap_or_default();
        let mut labels = known.tags.0;
        labels.extend(known.categories.0);
        Ok(Self(labels))
    }
}

/// Reads TOML. Its native dates become text in the same form as YAML's.
pub(super) fn from_toml(text: &str) -> Result<RawFields, DocumentError> {
    let table: toml::Table = toml::from_str(text).map_err(|error: toml::de::Error| DocumentError::Syntax {
        line: error.span().map(|span| 2 + text.bytes().take(span.start).filter(|&b| b == b'\n').count()),
        reason: first_line(error.message()),
    })?;
    let text_of = |field| scalar(text, &table, field);
    let mut labels = list(text, &table, "tags")?;
    labels.extend(list(text, &table, "categories")?);
    if let Some(toml::Value::Table(taxonomies)) = table.get("taxonomies") {
        labels.extend(list(text, taxonomies, "tags")?);
        labels.extend(list(text, taxonomies, "categories")?);
    }
    let draft = match table.get("draft") {
        None => None,
        Some(toml::Value::Boolean(draft)) => Some(*draft),
        Some(_) => return Err(field_error(text, "draft", "write true or false")),
    };
    Ok(RawFields {
        title: text_of("title")?,
        slug: text_of("slug")?,
        kind: text_of("kind")?,
        type_: text_of("type")?,
        draft,
        published_false: table.get("published") == Some(&toml::Value::Boolean(false)),
        date: text_of("date")?,
        updated: text_of("updated")?,
        lastmod: text_of("lastmod")?,
        labels,
    })
}

fn scalar(front: &str, table: &toml::Table, field: &'static str) -> Result<Option<String>, DocumentError> {
    match table.get(field) {
        None => Ok(None),
        Some(value) => as_text(value).map(Some).ok_or_else(|| field_error(front, field, "write one value, not a list")),
    }
}

fn list(front: &str, table: &toml::Table, field: &'static str) -> Result<Vec<String>, DocumentError> {
    let labels = match table.get(field) {
        None => Some(Vec::new()),
        Some(toml::Value::Array(values)) => values.iter().map(as_text).collect(),
        Some(value) => as_text(value).map(|label| if label.trim().is_empty() { Vec::new() } else { vec![label] }),
    };
    labels.ok_or_else(|| field_error(front, field, "write a list of tags, or one tag"))
}

fn as_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(flag) => Some(flag.to_string()),
        toml::Value::Datetime(moment) => Some(moment.to_string()),
        toml::Value::Array(_) | toml::Value::Table(_) => None,
    }
}

fn field_error(front: &str, field: &'static str, reason: &str) -> DocumentError {
    DocumentError::Field { field, line: super::line_of(front, field), reason: reason.to_owned() }
}

/// The parser's message without the place, which is reported as a line of the file instead.
fn strip_location(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message.to_owned(),
    }
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().trim().to_owned()
}
