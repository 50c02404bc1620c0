//! Entity tags: made of an article's id, version, change time and mark, so that neither a slug that was created anew nor
//! a restored backup matches an old one.

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH};

use super::problem::Problem;
use crate::article::ArticleStamp;

/// Most tags in one header.
const MAX_TAGS: usize = 64;

/// A strong entity tag, with its quotes.
pub(super) fn entity_tag(stamp: &ArticleStamp) -> String {
    format!("\"{}\"", state_of(stamp))
}

/// One state of one article in characters that a tag may have.
pub(super) fn state_of(stamp: &ArticleStamp) -> String {
    format!("{}.{}.{}.{:x}", stamp.id, stamp.version, stamp.updated_at, stamp.mark.unwrap_or(0))
}

/// What a conditional header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Condition {
    /// The header is not there.
    None,
    /// `*`: anything that exists.
    Any,
    /// One of these tags. Weak ones keep their `W/`.
    Tags(Vec<String>),
}

impl Condition {
    /// `If-Match`: compared strongly, so a weak tag never matches.
    pub(super) fn if_match(headers: &HeaderMap) -> Result<Self, Problem> {
        Self::parse(headers, &IF_MATCH)
    }

    /// `If-None-Match`: compared weakly.
    pub(super) fn if_none_match(headers: &HeaderMap) -> Result<Self, Problem> {
        Self::parse(headers, &IF_NONE_MATCH)
    }

    /// Whether a strong comparison finds `tag`.
    pub(super) fn matches_strongly(&self, tag: &str) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|known| known == tag),
        }
    }

    /// Whether a weak comparison finds `tag`.
    pub(super) fn matches_weakly(&self, tag: &str) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|known| known.strip_prefix("W/").unwrap_or(known) == tag),
        }
    }

    fn parse(headers: &HeaderMap, name: &HeaderName) -> Result<Self, Problem> {
        let mut tags = Vec::new();
        let mut any = false;
        for value in headers.get_all(name) {
            let text = value.to_str().map_err(|_| malformed(name))?.trim();
            if text == "*" {
                any = true;
            } else {
                parse_list(text, &mut tags).ok_or_else(|| malformed(name))?;
            }
        }
        match (any, tags.is_empty()) {
            (false, true) if headers.contains_key(name) => Err(malformed(name)),
            (false, true) => Ok(Self::None),
            (true, true) => Ok(Self::Any),
            (true, false) => Err(malformed(name)),
            (false, false) => Ok(Self::Tags(tags)),
        }
    }
}

fn malformed(name: &HeaderName) -> Problem {
    Problem::bad_request(format!("{name} must be * or a list of entity tags, each in double quotes"))
}

/// Reads `"a", W/"b"`; `None` when it is anything else.
fn parse_list(mut text: &str, tags: &mut Vec<String>) -> Option<()> {
    loop {
        text = text.trim_start_matches([' ', '\t', ',']);
        if text.is_empty() {
            return Some(());
        }
        let (weak, rest) = text.strip_prefix("W/").map_or(("", text), |rest| ("W/", rest));
        let (tag, rest) = rest.strip_prefix('"')?.split_once('"')?;
        let allowed = |c: char| c == '!' || ('#'..='~').contains(&c);
        if !tag.chars().all(allowed) || tags.len() == MAX_TAGS {
            return None;
        }
        tags.push(format!("{weak}\"{tag}\""));
        text = rest.trim_start_matches([' ', '\t']);
        if !(text.is_empty() || text.starts_with(',')) {
            return None;
        }
    }
}

/// A tag as a header value. The parts of a tag are ASCII, but a stored id is checked all the same.
pub(super) fn header_value(tag: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(tag).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Condition, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(IF_MATCH, HeaderValue::from_str(text).unwrap());
        Condition::if_match(&headers).map_err(|problem| problem.status.as_u16())
    }

    #[test]
    fn case_c21_malformed_tags_are_refused_and_weak_ones_never_match_strongly() {
        assert_eq!(parsed("*"), Ok(Condition::Any));
        assert_eq!(parsed("\"a\", W/\"b\""), Ok(Condition::Tags(vec!["\"a\"".into(), "W/\"b\"".into()])));
        for bad in ["1", "garbage", "\"a", "a\"", "\"a\"\"b\"", "\"a\" \"b\"", "W/1", "*, \"a\"", "", "\"a b\""] {
            assert_eq!(parsed(bad), Err(400), "{bad:?}");
        }
        let weak = parsed("W/\"1\"").unwrap();
        assert!(!weak.matches_strongly("\"1\"") && weak.matches_weakly("\"1\""));
        assert_eq!(Condition::if_match(&HeaderMap::new()).unwrap(), Condition::None);
    }
}
