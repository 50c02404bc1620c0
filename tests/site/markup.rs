//! Judges markup as a validator would, as far as pages here can go wrong: every tag closed in its order, attributes quoted
//! and given once, ids unique and links within the page leading somewhere, what a document needs in its place.

use std::collections::{BTreeMap, BTreeSet};

/// Elements without an end tag.
const VOID: [&str; 8] = ["meta", "link", "input", "img", "br", "hr", "col", "wbr"];
/// What a paragraph may not hold.
const BLOCKS: [&str; 14] = [
    "p",
    "div",
    "ul",
    "ol",
    "table",
    "section",
    "article",
    "header",
    "footer",
    "nav",
    "main",
    "form",
    "pre",
    "blockquote",
];

/// One start tag.
#[derive(Debug, Clone)]
pub struct Tag {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
}

/// The start tags of a well-formed text, in order.
///
/// # Panics
/// The text is not well-formed; says where. `html`: void elements have no end.
fn tags(text: &str, html: bool) -> Vec<Tag> {
    let mut open: Vec<String> = Vec::new();
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (between, from) = rest.split_at(at);
        assert_escaped(between);
        let end = from.find('>').unwrap_or_else(|| panic!("a tag without end: {}", near(from)));
        let inside = &from[1..end];
        rest = &from[end + 1..];
        if inside.starts_with('!') || inside.starts_with('?') {
            continue;
        }
        if let Some(name) = inside.strip_prefix('/') {
            let expected = open.pop();
            assert_eq!(expected.as_deref(), Some(name), "closed in the wrong order: {}", near(from));
            continue;
        }
        let empty = inside.ends_with('/');
        let tag = tag(inside.trim_end_matches('/'), from);
        if html && BLOCKS.contains(&tag.name.as_str()) {
            assert!(!open.iter().any(|name| name == "p"), "a block inside a paragraph: {}", near(from));
        }
        if !(empty || html && VOID.contains(&tag.name.as_str())) {
            open.push(tag.name.clone());
        }
        found.push(tag);
    }
    assert_escaped(rest);
    assert!(open.is_empty(), "never closed: {open:?}");
    found
}

fn tag(inside: &str, from: &str) -> Tag {
    let (name, mut rest) = inside.split_once(char::is_whitespace).unwrap_or((inside, ""));
    assert!(!name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c)), "{}", near(from));
    let mut attributes = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return Tag { name: name.to_owned(), attributes };
        }
        let stop = rest.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(rest.len());
        let attribute = rest[..stop].to_owned();
        rest = &rest[stop..];
        let mut value = String::new();
        if let Some(quoted) = rest.strip_prefix('=') {
            let quoted = quoted.strip_prefix('"').unwrap_or_else(|| panic!("not quoted: {}", near(from)));
            let (inner, after) = quoted.split_once('"').unwrap_or_else(|| panic!("an open quote: {}", near(from)));
            assert_escaped(inner);
            (value, rest) = (inner.to_owned(), after);
            assert!(rest.is_empty() || rest.starts_with(char::is_whitespace), "no blank after a quote: {}", near(from));
        }
        assert!(attributes.insert(attribute.clone(), value).is_none(), "{attribute} twice: {}", near(from));
    }
}

/// Every `&` begins a character reference.
fn assert_escaped(text: &str) {
    for part in text.split('&').skip(1) {
        let (name, _) = part.split_once(';').unwrap_or_else(|| panic!("a bare &: {}", near(part)));
        let known = name.len() <= 8 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '#');
        assert!(known && !name.is_empty(), "a bare &: {}", near(part));
    }
}

fn near(text: &str) -> String {
    text.chars().take(120).collect()
}

/// A whole page of HTML. Returns its tags.
pub fn assert_page(page: &str) -> Vec<Tag> {
    assert!(page.starts_with("<!doctype html>\n<html lang=\""), "{}", near(page));
    let tags = tags(page, true);
    let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
    for name in ["html", "head", "title", "body", "main", "h1"] {
        assert_eq!(count(name), 1, "<{name}> in {page}");
    }
    let mut ids = BTreeSet::new();
    for tag in &tags {
        for (name, value) in &tag.attributes {
            assert!(!name.starts_with("on") && name != "style", "{tag:?}");
            assert!(name != "id" || ids.insert(value.as_str()) && !value.contains(' '), "the id {value:?} twice");
            let of_link = name == "href" || name == "src" || name == "action";
            assert!(!of_link || !value.contains([' ', '"', '<']), "{tag:?}");
        }
        assert!(tag.name != "img" || tag.attributes.contains_key("alt"), "{tag:?}");
        let labelled = |tag: &Tag| tag.attributes.get("type").map(String::as_str) == Some("hidden");
        let input = tag.name == "input" || tag.name == "select" || tag.name == "textarea";
        let named = |tag: &Tag| {
            let of = |label: &&Tag| label.name == "label" && label.attributes.get("for") == tag.attributes.get("id");
            tag.attributes.contains_key("id") && tags.iter().any(|label| of(&label))
                || tag.attributes.contains_key("aria-label")
                || tag.attributes.get("type").map(String::as_str) == Some("checkbox")
        };
        assert!(!input || labelled(tag) || named(tag), "nothing says what this is for: {tag:?}");
    }
    for tag in &tags {
        for name in ["for", "aria-describedby", "aria-labelledby"] {
            let Some(value) = tag.attributes.get(name) else { continue };
            assert!(ids.contains(value.as_str()), "{name}={value} leads nowhere");
        }
        if let Some(target) = tag.attributes.get("href").and_then(|href| href.strip_prefix('#')) {
            assert!(ids.contains(target), "#{target} leads nowhere");
        }
    }
    tags
}

/// A document of XML. Returns its tags.
pub fn assert_xml(text: &str) -> Vec<Tag> {
    assert!(text.starts_with("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n"), "{}", near(text));
    let bad = |c: char| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    assert!(!text.contains(bad), "a character that XML cannot hold");
    for reference in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        assert!(known.iter().any(|name| reference.starts_with(name)), "{}", near(reference));
    }
    tags(text, false)
}

/// The texts of the elements of this name, as they stand.
pub fn texts<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let (open, end) = (format!("<{name}"), format!("</{name}>"));
    let element = |part: &'a str| {
        let (_, from) = part.split_once('>').expect("closed");
        from.split_once(&end).expect("ended").0
    };
    text.split(&open).skip(1).filter(|part| part.starts_with(['>', ' '])).map(element).collect()
}
