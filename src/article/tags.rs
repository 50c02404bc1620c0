//! Tags: one spelling rule, kept everywhere a tag is compared.
//!
//! A tag's *label* is what the author wrote, trimmed and in Unicode's NFC form; commas, semicolons and spaces inside are
//! part of it. Its *key* is the label in lower case without invisible characters. Two labels with one key are one tag:
//! within an article the first spelling stays.

use unicode_normalization::{UnicodeNormalization, is_nfc};

use super::ArticleError;
use super::slug::is_invisible;

/// Most tags on one article.
pub const MAX_TAGS: usize = 20;
/// Longest tag, in characters.
pub const MAX_TAG_CHARS: usize = 100;

/// A valid tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tag {
    pub key: String,
    pub label: String,
}

/// The key under which a tag is stored, listed and found, whatever its spelling.
///
/// ```
/// use vayu_articles::article::tag_key;
///
/// assert_eq!(tag_key(" Rust "), "rust");
/// assert_eq!(tag_key("Tom Jones, Jr."), "tom jones, jr.");
/// ```
pub fn tag_key(label: &str) -> String {
    let label = label.trim();
    if label.is_ascii() {
        return label.to_ascii_lowercase();
    }
    let lower = label.nfc().filter(|&c| !is_invisible(c)).collect::<String>().to_lowercase();
    lower.trim().nfc().collect()
}

/// The tags of an article: trimmed, without repetition, in first-seen order.
///
/// An empty tag, a control character in one, a tag that is too long and too many of them are errors.
pub(super) fn check(labels: &[String]) -> Result<Vec<Tag>, ArticleError> {
    let mut tags: Vec<Tag> = Vec::with_capacity(labels.len().min(MAX_TAGS));
    for (index, label) in labels.iter().enumerate() {
        let tag = check_one(label).map_err(|reason| ArticleError::invalid("tags", format!("[{index}] {reason}")))?;
        // At most 20 to compare with.
        if tags.iter().any(|earlier| earlier.key == tag.key) {
            continue;
        }
        if tags.len() == MAX_TAGS {
            return Err(ArticleError::invalid("tags", format!("must be at most {MAX_TAGS} different ones")));
        }
        tags.push(tag);
    }
    Ok(tags)
}

/// The labels alone, as an [`Article`](super::Article) has them.
pub(super) fn labels(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| tag.label.clone()).collect()
}

fn check_one(label: &str) -> Result<Tag, String> {
    if label.chars().any(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    let trimmed = label.trim();
    let label = if is_nfc(trimmed) { trimmed.to_owned() } else { trimmed.nfc().collect() };
    if label.chars().count() > MAX_TAG_CHARS {
        return Err(format!("must be at most {MAX_TAG_CHARS} characters"));
    }
    let key = tag_key(&label);
    if key.is_empty() {
        return Err("must not be empty".to_owned());
    }
    if matches!(key.as_str(), "." | "..") {
        return Err("must not be \".\" or \"..\", whose page no URL can name".to_owned());
    }
    Ok(Tag { key, label })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(given: &[&str]) -> Result<Vec<String>, ArticleError> {
        let given: Vec<String> = given.iter().map(|tag| (*tag).to_owned()).collect();
        Ok(labels(&check(&given)?))
    }

    #[test]
    fn case_c12_repeated_tags_are_one_in_first_seen_order() {
        assert_eq!(checked(&["Windows", "windows"]).unwrap(), ["Windows"]);
        assert_eq!(checked(&["foo", "bar", "foobar", "foo", "bar"]).unwrap(), ["foo", "bar", "foobar"]);
        assert_eq!(checked(&["rust", " rust ", "RUST"]).unwrap(), ["rust"]);
        assert_eq!(checked(&["Müller", "mu\u{308}ller", "MU\u{308}LLER"]).unwrap(), ["Müller"]);
        assert_eq!(checked(&["ru\u{200b}st", "rust"]).unwrap(), ["ru\u{200b}st"]);
    }

    #[test]
    fn case_c14_commas_semicolons_and_spaces_stay_inside_a_tag() {
        let given = ["Tom Jones, Jr.", "WATFIV, WATFOR", "a b", "x;y"];
        assert_eq!(checked(&given).unwrap(), given);
    }

    #[test]
    fn wrong_tags_are_named_by_position() {
        for bad in ["", "  ", "\u{200b}", ".", " ..", ".\u{200b}.", "a\0b", "a\nb", &"x".repeat(101)] {
            let error = checked(&["fine", bad]).unwrap_err();
            assert_eq!(error.field(), Some("tags"));
            assert!(error.to_string().starts_with("tags [1] must"), "{error}");
        }
        assert_eq!(checked(&["ä".repeat(100).as_str()]).unwrap().len(), 1, "characters are counted, not bytes");
    }

    #[test]
    fn twenty_different_tags_fit_whatever_their_repetitions() {
        let twenty: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
        let doubled: Vec<String> = twenty.iter().chain(&twenty).cloned().collect();
        assert_eq!(check(&doubled).unwrap().len(), 20);
        let more: Vec<String> = (0..21).map(|n| format!("t{n}")).collect();
        assert_eq!(check(&more).unwrap_err().field(), Some("tags"));
    }

    proptest! {
        #[test]
        fn a_key_is_its_own_key_and_one_for_all_spellings(label in "\\PC{0,60}") {
            let key = tag_key(&label);
            prop_assert_eq!(tag_key(&key), key.as_str());
            prop_assert_eq!(tag_key(&label.nfd().collect::<String>()), key.as_str());
            prop_assert_eq!(tag_key(&format!("  {label}\u{feff} ")), key);
        }
    }
}
