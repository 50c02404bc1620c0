//! Slugs: one rule for titles in every script.
//!
//! 1. The title is brought to Unicode's NFKC form, so that composed and decomposed spellings are one.
//! 2. Invisible characters (zero-width, soft hyphen, direction marks, variation selectors) vanish.
//! 3. Every other character is transliterated to ASCII and lower-cased. Accents and dots are dropped: ä, ö, ü, ß
//!    become a, o, u, ss in every language.
//! 4. Apostrophes, and what else a letter's transliteration has besides letters and digits, vanish: "don't" is `dont`.
//! 5. Each run of anything else becomes one hyphen; none stands at either end.
//! 6. Above 200 characters the slug is cut, at a hyphen if the second half has one.
//! 7. A title that leaves nothing becomes `untitled`.
//!
//! If the derived slug is taken, `-2` to `-9` are tried and then a random suffix: deriving never ends in a conflict.

use deunicode::AsciiChars;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::ArticleError;

/// Longest slug, in characters (all ASCII, so also in bytes).
pub const MAX_SLUG_CHARS: usize = 200;

/// The slug of a title without any usable character.
const FALLBACK: &str = "untitled";

/// The slug that a title leads to, before it is known whether it is taken.
///
/// ```
/// use vayu_articles::article::slug_from_title;
///
/// assert_eq!(slug_from_title("Größe & Maß – don’t panic"), "grosse-mass-dont-panic");
/// assert_eq!(slug_from_title("Иван"), "ivan");
/// assert_eq!(slug_from_title("?!"), "untitled");
/// ```
pub fn slug_from_title(title: &str) -> String {
    let mut slug = if title.is_ascii() { from_ascii(title) } else { from_any_script(title) };
    cut(&mut slug);
    if slug.is_empty() { FALLBACK.to_owned() } else { slug }
}

/// Refuses an explicit slug that does not match `[a-z0-9][a-z0-9_-]*` or is longer than [`MAX_SLUG_CHARS`].
pub(super) fn check(slug: &str) -> Result<(), ArticleError> {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let valid = slug.len() <= MAX_SLUG_CHARS
        && slug.bytes().next().is_some_and(fits)
        && slug.bytes().all(|c| fits(c) || c == b'_' || c == b'-');
    if valid {
        return Ok(());
    }
    Err(ArticleError::invalid(
        "slug",
        "must be 1 to 200 of the characters a-z, 0-9, '_' and '-', beginning with a letter or digit",
    ))
}

/// What to try, in order, when the derived slug `base` is taken. `random` is drawn before the transaction, so that a
/// task that is run twice tries the same.
pub(super) fn alternatives<'a>(base: &'a str, random: &'a str) -> impl Iterator<Item = String> + 'a {
    let short = random.get(..8).unwrap_or(random);
    (2..=9).map(|n| n.to_string()).chain([short.to_owned(), random.to_owned()]).map(move |suffix| {
        let keep = base.len().min(MAX_SLUG_CHARS - 1 - suffix.len());
        format!("{}-{suffix}", base[..keep].trim_end_matches('-'))
    })
}

/// Whether a character leaves no mark: format controls, joiners, fillers, variation selectors, tags.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF9}'..='\u{FFFB}' | '\u{1D173}'..='\u{1D17A}'
        | '\u{E0000}'..='\u{E0FFF}')
}

/// Most characters of a title that are looked at. A title of valid length never comes near this; it bounds the work for
/// one that is not valid.
const MAX_LOOKED_AT: usize = 8 * MAX_SLUG_CHARS;

fn from_any_script(title: &str) -> String {
    let visible: String = title.nfkc().filter(|&c| !is_invisible(c)).take(MAX_LOOKED_AT).collect();
    let mut slug = Slug::default();
    for (original, ascii) in visible.chars().zip(visible.ascii_chars()) {
        slug.push(original, ascii);
        if slug.text.len() > MAX_SLUG_CHARS {
            break;
        }
    }
    slug.text
}

/// The same for a title that is ASCII, which normalisation and transliteration leave as it is.
fn from_ascii(title: &str) -> String {
    let mut slug = Slug { text: String::with_capacity(title.len().min(MAX_SLUG_CHARS + 1)), gap: false };
    for c in title.chars().take(MAX_LOOKED_AT) {
        slug.push_ascii(c, c.is_ascii_alphanumeric());
        if slug.text.len() > MAX_SLUG_CHARS {
            break;
        }
    }
    slug.text
}

/// A slug in the making.
#[derive(Default)]
struct Slug {
    text: String,
    /// A hyphen is due before the next letter or digit.
    gap: bool,
}

impl Slug {
    fn push(&mut self, original: char, ascii: Option<&str>) {
        let within_word = original.is_alphanumeric() || is_combining_mark(original);
        let Some(ascii) = ascii else {
            self.gap |= !is_combining_mark(original);
            return;
        };
        for c in ascii.chars() {
            self.push_ascii(c, within_word);
        }
    }

    fn push_ascii(&mut self, c: char, within_word: bool) {
        if c.is_ascii_alphanumeric() {
            if self.gap && !self.text.is_empty() {
                self.text.push('-');
            }
            self.gap = false;
            self.text.push(c.to_ascii_lowercase());
        } else if !(is_apostrophe(c) || (within_word && !c.is_whitespace())) {
            self.gap = true;
        }
    }
}

/// Also the typographic ones: by now all are transliterated.
fn is_apostrophe(c: char) -> bool {
    matches!(c, '\'' | '`')
}

fn cut(slug: &mut String) {
    if slug.len() <= MAX_SLUG_CHARS {
        return;
    }
    // The character after the limit counts: if it is a hyphen, the word before it is whole.
    let hyphen = slug[..=MAX_SLUG_CHARS].rfind('-').filter(|&at| at >= MAX_SLUG_CHARS / 2);
    slug.truncate(hyphen.unwrap_or(MAX_SLUG_CHARS));
    let trimmed = slug.trim_end_matches('-').len();
    slug.truncate(trimmed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c01_accented_vowels_follow_one_rule_in_either_case_and_either_form() {
        for (title, slug) in [
            ("Käse", "kase"),
            ("Öl", "ol"),
            ("Übergrößen-Träger", "ubergrossen-trager"),
            ("ÄÖÜß", "aouss"),
            ("für", "fur"),
            ("Łódź", "lodz"),
            ("Ærøskøbing", "aeroskobing"),
        ] {
            assert_eq!(slug_from_title(title), slug);
            assert_eq!(slug_from_title(&title.nfd().collect::<String>()), slug, "NFD of {title}");
            assert_eq!(slug_from_title(&title.to_uppercase()), slug, "upper case of {title}");
            assert_eq!(slug_from_title(&title.to_lowercase()), slug, "lower case of {title}");
        }
    }

    #[test]
    fn case_c03_every_script_gives_a_slug_of_its_own() {
        let titles = ["Иван", "Ольга", "物語", "日本語を学ぶ", "محمد", "یہ اردو ٹائیٹل ہے"];
        let slugs: std::collections::HashSet<_> = titles.iter().map(|title| slug_from_title(title)).collect();
        assert_eq!(slugs.len(), titles.len(), "{slugs:?}");
        for slug in &slugs {
            check(slug).unwrap();
            assert_ne!(slug, FALLBACK);
        }
    }

    #[test]
    fn case_c07_typography_and_invisible_characters_leave_no_trace() {
        for (title, slug) in [
            ("GTA Online’s latest news: “huge map”", "gta-onlines-latest-news-huge-map"),
            ("Rock – Paper — Scissors", "rock-paper-scissors"),
            ("50% off, what does %20 mean?", "50-off-what-does-20-mean"),
            ("Paint\u{200b}Worklet", "paintworklet"),
            ("a\u{a0}b", "a-b"),
            ("  padded  ", "padded"),
            ("\u{feff}don't_stop", "dont-stop"),
            ("объект большой", "obekt-bolshoi"),
        ] {
            assert_eq!(slug_from_title(title), slug);
        }
    }

    #[test]
    fn titles_without_a_usable_character_fall_back() {
        for title in ["", "   ", "?!", "\u{200b}", "---", "'", "\u{10FFFF}"] {
            assert_eq!(slug_from_title(title), FALLBACK, "{title:?}");
        }
    }

    #[test]
    fn a_long_title_is_cut_between_words_if_it_can_be() {
        let words = slug_from_title(&"seven77 ".repeat(60));
        assert_eq!(words.len(), 199);
        assert!(words.ends_with("-seven77"));
        assert_eq!(slug_from_title(&"x".repeat(500)), "x".repeat(200));
        assert_eq!(slug_from_title(&format!("a {}", "x".repeat(500))), format!("a-{}", "x".repeat(198)));
        assert_eq!(slug_from_title(&format!("{} y", "x".repeat(200))), "x".repeat(200));
        assert_eq!(slug_from_title(&"𒀀語".repeat(250)).len().min(200), slug_from_title(&"𒀀語".repeat(250)).len());
    }

    #[test]
    fn explicit_slugs_are_taken_as_they_are_or_refused() {
        for good in ["a", "0", "a_b-c", "a--b", "a-", &"x".repeat(200)] {
            check(good).unwrap();
        }
        for bad in ["", "-a", "_a", "A", "ä", "a b", "a/b", "paint\u{200b}worklet", "a%20", "a\0", &"x".repeat(201)] {
            assert_eq!(check(bad).unwrap_err().field(), Some("slug"), "{bad:?}");
        }
    }

    #[test]
    fn alternatives_are_valid_distinct_and_end() {
        for base in ["foo", &"x".repeat(200), &format!("{}-{}", "x".repeat(187), "y".repeat(12))] {
            let all: Vec<_> = alternatives(base, "0123456789ab").collect();
            assert_eq!(all.len(), 10);
            assert!(all[0].ends_with("-2") && all[9].ends_with("-0123456789ab"));
            let distinct: std::collections::HashSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), 10);
            all.iter().for_each(|slug| check(slug).unwrap());
        }
    }

    proptest::proptest! {
        #[test]
        fn the_short_way_for_ascii_leads_to_the_same_slug(title in "[ -~]{0,300}") {
            proptest::prop_assert_eq!(from_ascii(&title), from_any_script(&title));
        }
    }
}
