//! Text on its way into the index, queries on their way to MATCH, and snippets on their way out.

use unicode_normalization::UnicodeNormalization as _;

use super::super::html::escape;
use super::SearchError;

/// Longest query, in characters.
pub const MAX_QUERY_CHARS: usize = 200;
/// Most words of a query that are looked at.
pub const MAX_QUERY_WORDS: usize = 32;

/// Stand around a hit in what SQLite returns. Noncharacters: taken out of every text before it is indexed.
pub(super) const HIT_START: char = '\u{fdd0}';
pub(super) const HIT_END: char = '\u{fdd1}';

/// Separates the characters of scripts that are written without spaces; the tokenizer takes it for a blank.
const SEPARATOR: char = '\u{200b}';

/// `text` as it is indexed: composed (NFC), without NUL and markers, and with each character of a script that knows no
/// spaces as a word of its own, so that any part of a sentence can be found as a phrase.
pub(super) fn indexable(text: &str) -> String {
    if text.bytes().all(|byte| byte.is_ascii() && byte != 0) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let mut glued = true;
    for char in text.nfc() {
        match char {
            '\0' => out.push(' '),
            HIT_START | HIT_END | SEPARATOR => {}
            char if is_unspaced(char) => {
                if !glued {
                    out.push(SEPARATOR);
                }
                out.push(char);
                out.push(SEPARATOR);
            }
            char => out.push(char),
        }
        glued = out.ends_with(SEPARATOR);
    }
    out
}

/// Scripts whose words are not set apart: Han, kana, Hangul (whose words carry endings), Thai, Lao, Burmese, Khmer.
fn is_unspaced(char: char) -> bool {
    matches!(u32::from(char),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1100..=0x11ff | 0x1780..=0x17ff
        | 0x3005..=0x3007 | 0x3040..=0x30ff | 0x3130..=0x318f | 0x31f0..=0x31ff
        | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0xff66..=0xff9f
        | 0x1b000..=0x1b16f | 0x20000..=0x3ffff)
}

/// The MATCH expression for what somebody typed; `None` when it holds nothing that could be found.
///
/// Each blank-separated word becomes a quoted phrase, so no character of it has a meaning to FTS5; all must occur. A word that ends in
/// `*` is a beginning. A word that is repeated counts once: it finds nothing else, and would cost its hits once more.
pub(super) fn match_expression(query: &str) -> Result<Option<String>, SearchError> {
    if query.chars().count() > MAX_QUERY_CHARS {
        let reason = format!("a query has at most {MAX_QUERY_CHARS} characters");
        return Err(SearchError::InvalidQuery { reason });
    }
    let query = indexable(query);
    let mut words = searched_words(&query);
    let mut expression = String::with_capacity(query.len() + 16);
    let mut seen = Vec::with_capacity(MAX_QUERY_WORDS);
    for word in words.by_ref().take(MAX_QUERY_WORDS) {
        if seen.contains(&word) {
            continue;
        }
        seen.push(word);
        if !expression.is_empty() {
            expression.push(' ');
        }
        expression.push('"');
        expression.push_str(&word.replace('"', "\"\""));
        expression.push('"');
        if is_beginning(word) {
            expression.push('*');
        }
    }
    if words.next().is_some() {
        return Err(SearchError::InvalidQuery { reason: format!("a query has at most {MAX_QUERY_WORDS} words") });
    }
    Ok((!expression.is_empty()).then_some(expression))
}

/// The blank-separated words of a query, in the form that [`indexable`] gives it, that hold something to be found.
pub(super) fn searched_words(query: &str) -> impl Iterator<Item = &str> {
    query.split_whitespace().filter(|word| word.contains(char::is_alphanumeric))
}

/// Whether such a word is the beginning of what it looks for.
pub(super) fn is_beginning(word: &str) -> bool {
    word.ends_with('*') && !word.trim_end_matches('*').ends_with(SEPARATOR)
}

/// A marked part of the content as HTML: escaped, hits in `<mark>`, blanks collapsed.
pub(super) fn highlighted(marked: &str) -> String {
    let plain = marked.replace(SEPARATOR, "");
    #[cfg(not(feature = "sinks"))]
    let plain = plain.lines().map(without_markup).collect::<Vec<_>>().join("\n");
    highlighted_title(&plain.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// A marked title as HTML: escaped, hits in `<mark>`.
pub(super) fn highlighted_title(marked: &str) -> String {
    escape(&marked.replace(SEPARATOR, ""))
        .replace(&format!("{HIT_END}{HIT_START}"), "")
        .replace(HIT_START, "<mark>")
        .replace(HIT_END, "</mark>")
}

/// One line without the commonest of the marks that Markdown puts around its text, where nothing else takes them out. For
/// the eye only: what is indexed keeps them.
#[cfg(not(feature = "sinks"))]
fn without_markup(line: &str) -> String {
    let line = line.trim_start();
    let line = match line.trim_start_matches(['#', '>']) {
        rest if rest.len() < line.len() && rest.starts_with(' ') => rest,
        _ => line,
    };
    let line = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line);
    line.replace("**", "").replace('`', "").replace("](", " (").replace("![", "").replace(['[', '|'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_character_of_a_script_without_spaces_is_a_word() {
        assert_eq!(indexable("plain"), "plain");
        assert_eq!(indexable("后50条"), "后\u{200b}50\u{200b}条\u{200b}");
        assert_eq!(indexable("a\0b\u{fdd0}c\u{200b}d"), "a bcd");
        assert_eq!(indexable("u\u{308}"), "ü");
    }

    #[test]
    fn a_query_becomes_quoted_phrases() {
        let of = |query| match_expression(query).unwrap();
        assert_eq!(of("a'b  C++").as_deref(), Some(r#""a'b" "C++""#));
        assert_eq!(of(r#"say "hi""#).as_deref(), Some(r#""say" """hi""""#));
        assert_eq!(of("rust*").as_deref(), Some(r#""rust*"*"#));
        assert_eq!(of("a -- b a").as_deref(), Some(r#""a" "b""#));
        assert_eq!(of("a\0b").as_deref(), Some(r#""a" "b""#));
        for nothing in ["", "  ", "\\", "\0", "*", "\"", "\u{200b}"] {
            assert_eq!(of(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_query_is_bounded() {
        assert!(match_expression(&"x".repeat(MAX_QUERY_CHARS)).is_ok());
        assert!(matches!(match_expression(&"x".repeat(MAX_QUERY_CHARS + 1)), Err(SearchError::InvalidQuery { .. })));
        assert!(match_expression(&"x ".repeat(MAX_QUERY_WORDS)).is_ok());
        assert!(matches!(match_expression(&"x ".repeat(MAX_QUERY_WORDS + 1)), Err(SearchError::InvalidQuery { .. })));
    }

    #[test]
    fn a_hit_is_marked_and_all_else_is_escaped() {
        let marked = format!("A <b>\n{HIT_START}fat{HIT_END} \"x\"  & y\n");
        assert_eq!(highlighted(&marked), "A &lt;b&gt; <mark>fat</mark> &quot;x&quot; &amp; y");
        #[cfg(feature = "sinks")]
        assert_eq!(highlighted("# [x] | `**y**`"), "# [x] | `**y**`", "what is left of the marks is text");
        #[cfg(not(feature = "sinks"))]
        assert_eq!(highlighted("## A **b**\n> `x` [y](z)"), "A b x y (z)");
        let cjk = format!("{HIT_START}悬{HIT_END}{HIT_START}空{HIT_END}\u{200b}引");
        assert_eq!(highlighted(&cjk), "<mark>悬空</mark>引");
    }
}
