//! Surrogate keys: the names under which a cache knows what its pages were made from, whatever their addresses.
//!
//! | key | on which pages | when it is purged |
//! |---|---|---|
//! | `article-…` (id) | the article's page and its answers in the API | the article changes |
//! | `slug-…` | what is said of an address, also that there is nothing | an article comes to that address, or leaves it |
//! | `tag-…` | the pages of a tag, also that there is none | an article gets it, loses it, or has it and changes |
//! | `lists` | home page, feed, site map, lists of the API | any article changes |
//! | `all` | every page that has keys | never by itself: for an operator, after an upgrade or a restored backup |
//!
//! A key is made of ASCII letters, digits, `-` and `_` only, and has at most [`LONGEST`] bytes, so none can break a header, a
//! list or a pattern. Letters, digits and `-` stand for themselves, every other byte of the UTF-8 text is `_` and two
//! hexadecimal digits; what would become too long is `_h` and its SHA-256 instead. No two texts have one key.

use std::collections::HashSet;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use crate::article::tag_key;
use crate::sinks::change::Change;

/// On every page that is made of many articles and is no tag's.
pub const LISTS: &str = "lists";
/// On every page.
pub const ALL: &str = "all";
/// Longest key, in bytes.
pub const LONGEST: usize = 100;
/// Longest kind of key with its hyphen: `article-`.
const LONGEST_KIND: usize = 8;

/// The key of what is made from the article of this id.
pub fn article(id: &str) -> String {
    key("article", id)
}

/// The key of what stands at an article's address, or does not.
pub fn slug(slug: &str) -> String {
    key("slug", slug)
}

/// The key of a tag's pages, however the tag is written.
///
/// ```
/// use vayu_articles::sinks::cdn::keys;
///
/// assert_eq!(keys::tag("Rust"), "tag-rust");
/// assert_eq!(keys::tag("Tom Jones, Jr."), "tag-tom_20jones_2c_20jr_2e");
/// ```
pub fn tag(label: &str) -> String {
    key("tag", &tag_key(label))
}

/// The keys of everything that `changes` made stale, each once.
pub(super) fn stale(changes: &[Change]) -> Vec<String> {
    let public: Vec<&Change> =
        changes.iter().filter(|change| change.public_before() || change.public_after()).collect();
    let mut keys = Vec::new();
    for change in &public {
        let before = change.article.previous.as_ref();
        keys.push(article(&change.article.id));
        keys.push(slug(&change.article.slug));
        keys.extend(before.map(|before| slug(&before.slug)));
    }
    if !public.is_empty() {
        keys.push(LISTS.to_owned());
    }
    for change in &public {
        let before = change.article.previous.iter().flat_map(|before| &before.tags);
        keys.extend(change.article.tags.iter().chain(before).map(|label| tag(label)));
    }
    let mut seen = HashSet::new();
    keys.retain(|key| seen.insert(key.clone()));
    keys
}

fn key(kind: &str, text: &str) -> String {
    let mut key = format!("{kind}-");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            key.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(key, "_{byte:02x}");
        }
        if key.len() > LONGEST {
            return hashed(kind, text);
        }
    }
    key
}

/// Cannot be what [`key`] makes of another text: no `_` there is followed by an `h`.
fn hashed(kind: &str, text: &str) -> String {
    const { assert!(LONGEST_KIND + 2 + 64 <= LONGEST) };
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().fold(format!("{kind}-_h"), |mut key, byte| {
        let _ = write!(key, "{byte:02x}");
        key
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_safe(key: &str) -> bool {
        key.len() <= LONGEST && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    }

    /// The text that a key was made of, if it was not too long.
    fn read_back(key: &str) -> Option<String> {
        let mut rest = key.split_once('-').expect("a kind").1;
        let mut bytes = Vec::new();
        while let Some(first) = rest.chars().next() {
            if first == '_' {
                bytes.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
                rest = &rest[3..];
            } else {
                bytes.push(first as u8);
                rest = &rest[1..];
            }
        }
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn nothing_in_a_tag_can_break_a_header_or_a_list() {
        for label in
            ["a b", "a,b;c", "x\r\nSet-Cookie: a=b", "\0\t", "|.*(^$)", "\"quoted\"", "日本 語", "_5f", "-", "all"]
        {
            let key = tag(label);
            assert!(is_safe(&key), "{label:?} {key}");
            assert_eq!(read_back(&key), Some(tag_key(label)), "{key}");
        }
        for label in ["日".repeat(100), "y".repeat(100), " _".repeat(50), "y".repeat(100_000)] {
            let key = tag(&label);
            assert!(is_safe(&key) && key.len() >= 70, "{key}");
        }
        assert_eq!(tag("y".repeat(96).as_str()).len(), LONGEST);
        assert!(tag("y".repeat(97).as_str()).starts_with("tag-_h"));
        assert!(article("").starts_with("article-") && slug(&"s".repeat(200)).starts_with("slug-_h"));
    }

    proptest! {
        #[test]
        fn no_two_texts_have_one_key(one in "\\PC{0,40}|[a-z_ -]{0,120}|_h[0-9a-f]{64}", other in "\\PC{0,40}|[a-z_ -]{0,120}") {
            prop_assert!(is_safe(&slug(&one)) && is_safe(&slug(&other)));
            prop_assert_eq!(slug(&one) == slug(&other), one == other);
            // What is not hashed can be read back, which leaves room for one text only.
            if !slug(&one).starts_with("slug-_h") {
                prop_assert_eq!(read_back(&slug(&one)), Some(one));
            }
        }
    }
}
