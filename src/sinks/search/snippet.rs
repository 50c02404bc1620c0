//! Which part of a found text is shown, and what in it is marked.
//!
//! SQLite's own `snippet()` compares the hits of a document pairwise, out of reach of any time limit: one long article
//! that repeats a word would keep a search for it busy for days. What is done here costs the same whatever the article holds.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::MAX_QUERY_WORDS;
use super::text::{HIT_END, HIT_START, indexable, searched_words};

/// Characters of an article among which a snippet is looked for, from its beginning. One whose hits all lie further
/// down shows its beginning.
pub(super) const LOOKED_AT_CHARS: usize = 64 * 1024;
/// Words in a snippet, at most.
const WORDS: usize = 40;
/// Bytes in a snippet, at most, before markup.
const BYTES: usize = 800;
/// Bytes of brackets, quotation marks and the like shown with the first and the last word, at most.
const EDGE: usize = 12;
/// Words shown before the first hit, at most.
const LEAD: usize = 6;

/// What a query looks for, word by word.
#[derive(Debug)]
pub(super) struct Phrases(Vec<Phrase>);

/// One blank-separated word of a query: words as the index sees them, which must follow one another.
#[derive(Debug)]
struct Phrase {
    words: Vec<String>,
    /// The last of them is a beginning.
    open: bool,
}

/// A word of a text.
struct Word {
    at: Range<usize>,
    folded: String,
}

/// Where a phrase stands, counted in words.
struct Found {
    words: Range<usize>,
    phrase: usize,
}

impl Phrases {
    /// Those of a query that [`match_expression`](super::text::match_expression) accepts.
    pub fn of(query: &str) -> Self {
        let query = indexable(query);
        let phrase = |word: &str| Phrase {
            words: words(word).into_iter().map(|word| word.folded).collect(),
            open: super::text::is_beginning(word),
        };
        let phrases = searched_words(&query).take(MAX_QUERY_WORDS).map(phrase);
        Self(phrases.filter(|phrase| !phrase.words.is_empty()).collect())
    }

    /// All of a short text, hits marked.
    pub fn mark(&self, text: &str) -> String {
        let words = words(text);
        let found = self.find(&words);
        marked(text, 0..text.len(), &words, &found)
    }

    /// The part of `text` with the most of the query, hits marked; `…` stands where it was cut.
    pub fn snippet(&self, text: &str) -> String {
        let words = words(text);
        let found = self.find(&words);
        let shown = with_edges(text, shown(text, &words, self.densest(&found)));
        let more = text.len() > shown.end || text.chars().count() >= LOOKED_AT_CHARS;
        let (before, after) = (if shown.start > 0 { "…" } else { "" }, if more { "…" } else { "" });
        format!("{before}{}{after}", marked(text, shown, &words, &found))
    }

    fn find(&self, words: &[Word]) -> Vec<Found> {
        let mut found = Vec::new();
        for at in 0..words.len() {
            let here = self.0.iter().enumerate().filter(|(_, phrase)| phrase.stands_at(&words[at..]));
            // Where several begin, the longest is marked.
            if let Some((index, phrase)) = here.max_by_key(|(_, phrase)| phrase.words.len()) {
                found.push(Found { words: at..at + phrase.words.len(), phrase: index });
            }
        }
        found
    }

    /// The words from the first to the last hit of the stretch with the most different phrases; the first such one.
    fn densest(&self, found: &[Found]) -> Range<usize> {
        let mut times = vec![0_usize; self.0.len()];
        let (mut best, mut most, mut different, mut left) = (0..0, 0, 0, 0);
        for right in found {
            different += usize::from(times[right.phrase] == 0);
            times[right.phrase] += 1;
            while right.words.end - found[left].words.start > WORDS && found[left].words.start < right.words.start {
                times[found[left].phrase] -= 1;
                different -= usize::from(times[found[left].phrase] == 0);
                left += 1;
            }
            if different > most {
                (best, most) = (found[left].words.start..right.words.end, different);
            }
        }
        best
    }
}

impl Phrase {
    fn stands_at(&self, words: &[Word]) -> bool {
        let last = self.words.len() - 1;
        words.len() > last
            && self.words.iter().zip(words).enumerate().all(|(at, (wanted, word))| {
                word.folded == *wanted || (at == last && self.open && word.folded.starts_with(wanted.as_str()))
            })
    }
}

/// The bytes of `text` to show, around the words `hits`.
fn shown(text: &str, words: &[Word], hits: Range<usize>) -> Range<usize> {
    let Some(first) = words.first() else { return 0..boundary(text, BYTES) };
    let lead = LEAD.min(WORDS.saturating_sub(hits.len()));
    let from = if hits.end <= WORDS { 0 } else { hits.start.saturating_sub(lead) };
    let fits = |range: &Range<usize>, from: usize| range.end - from <= BYTES;
    let start = match from {
        0 if first.at.start < BYTES / 4 && (hits.is_empty() || fits(&words[hits.end - 1].at, 0)) => 0,
        from if hits.is_empty() || fits(&words[hits.end - 1].at, words[from].at.start) => words[from].at.start,
        _ => words[hits.start].at.start,
    };
    let inside = words[from..].iter().take(WORDS).take_while(|word| word.at.start < start || fits(&word.at, start));
    let count = inside.count();
    let end = match words.get(from + count) {
        None => text.len().min(boundary(text, start + BYTES)),
        Some(_) if count > 0 && words[from + count - 1].at.end > start => words[from + count - 1].at.end,
        // A single word that is longer than a snippet.
        Some(_) => boundary(text, start + BYTES),
    };
    start..end
}

/// `shown` with the signs that touch it, up to a blank on either side: `[dependencies]` keeps both its brackets, and a sentence
/// its full stop. Where they lead to a further word, it is left as it is.
fn with_edges(text: &str, shown: Range<usize>) -> Range<usize> {
    let before: usize = touching(text[..shown.start].chars().rev());
    let after: usize = touching(text[shown.end..].chars());
    let (start, end) = (shown.start - before, shown.end + after);
    // After the last word there may be nothing but blanks.
    start..if text[end..].trim_end().is_empty() { text.len() } else { end }
}

/// The bytes of the signs that `chars` begin with, if they end at a blank or with the text.
fn touching(chars: impl Iterator<Item = char>) -> usize {
    let mut bytes = 0;
    for char in chars {
        if char.is_whitespace() {
            break;
        }
        bytes += char.len_utf8();
        if char.is_alphanumeric() || bytes > EDGE {
            return 0;
        }
    }
    bytes
}

/// `at`, or the beginning of the character that it lies in.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn marked(text: &str, shown: Range<usize>, words: &[Word], found: &[Found]) -> String {
    let mut out = String::with_capacity(shown.len() + 64);
    let mut at = shown.start;
    for hit in found {
        let (start, end) = (words[hit.words.start].at.start, words[hit.words.end - 1].at.end);
        if start < at || end > shown.end {
            continue;
        }
        out.push_str(&text[at..start]);
        out.push(HIT_START);
        out.push_str(&text[start..end]);
        out.push(HIT_END);
        at = end;
    }
    out.push_str(&text[at..shown.end]);
    out
}

/// The words of a text as the tokenizer sees them: runs of letters, digits and their marks, without case and diacritics.
fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut begun: Option<usize> = None;
    let end = std::iter::once((text.len(), ' '));
    for (at, char) in text.char_indices().chain(end) {
        let within = char.is_alphanumeric() || (begun.is_some() && is_combining_mark(char));
        match begun {
            None if within => begun = Some(at),
            Some(start) if !within => {
                words.push(Word { at: start..at, folded: folded(&text[start..at]) });
                begun = None;
            }
            _ => {}
        }
    }
    words
}

fn folded(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    word.nfd().flat_map(char::to_lowercase).filter(|&char| !is_combining_mark(char)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snippet(query: &str, text: &str) -> String {
        Phrases::of(query)
            .snippet(&indexable(text))
            .replace(HIT_START, "[")
            .replace(HIT_END, "]")
            .replace('\u{200b}', "")
    }

    #[test]
    fn a_short_text_is_shown_whole() {
        assert_eq!(snippet("b", "A, b; C."), "A, [b]; C.");
        assert_eq!(snippet("z", "A, b; C."), "A, b; C.");
        assert_eq!(snippet("z", ""), "");
        assert_eq!(snippet("z", "…!"), "…!");
    }

    #[test]
    fn words_are_found_as_the_index_finds_them() {
        assert_eq!(snippet("muller's", "Herr MÜLLER’S Hund"), "Herr [MÜLLER’S] Hund");
        assert_eq!(snippet("u\u{308}ber", "Uber über ÜBER"), "[Uber] [über] [ÜBER]");
        assert_eq!(snippet("ru*", "rust crust RUN"), "[rust] crust [RUN]");
        assert_eq!(snippet("gen-itgc", "gen itgc gen-itgc, gen"), "[gen itgc] [gen-itgc], gen");
        assert_eq!(snippet("悬空", "50条悬空引用"), "50条[悬空]引用");
        assert_eq!(snippet("a a-b", "a b a"), "[a b] [a]");
    }

    #[test]
    fn a_long_text_is_cut_around_the_most_of_the_query() {
        let filler = "word ".repeat(100);
        let text = format!("{filler}one {filler}two one {filler}");
        let cut = snippet("one two", &text);
        assert!(cut.starts_with("…word") && cut.contains("[two] [one]") && cut.ends_with("word…"), "{cut}");
        let start = snippet("word", &filler);
        assert!(start.starts_with("[word]") && start.ends_with("[word]…"), "{start}");
        assert_eq!(start.matches('[').count(), WORDS);
    }

    #[test]
    fn a_cut_keeps_the_signs_that_belong_to_its_words() {
        let filler = "word ".repeat(60);
        let text = format!("{filler}\nSetup\n[dependencies]\na (b) c d e \"hit\", f.\n{filler}");
        let cut = snippet("hit", &text);
        assert!(cut.starts_with("…[dependencies]\na (b) c d e \"[hit]\", f.\nword"), "{cut}");
        assert!(cut.ends_with("word…"), "{cut}");
        let first = format!("{}(last). {filler}", "x ".repeat(WORDS - 1));
        assert!(snippet("x", &first).ends_with("[x] (last).…"), "{}", snippet("x", &first));
        // A sign between two words belongs to neither of them alone.
        let glued = format!("{}one-two three", "x ".repeat(WORDS - 1));
        assert!(snippet("x", &glued).ends_with("[x] one…"), "{}", snippet("x", &glued));
        let ended = format!("{}last)\n\n", "x ".repeat(WORDS - 1));
        assert!(!snippet("x", &ended).contains('…'), "{}", snippet("x", &ended));
    }

    #[test]
    fn no_text_makes_a_long_snippet() {
        let long = "x".repeat(5_000);
        for text in [
            long.clone(),
            format!("{long} hit {long}"),
            format!("{}hit", "-".repeat(5_000)),
            format!("hit{}hit", "é-".repeat(5_000)),
            "語".repeat(5_000) + "hit",
            format!("{} hit", "ä".repeat(5_000)),
        ] {
            for query in ["hit", "x*", "語", "none", &"語".repeat(199)] {
                let snippet = snippet(query, &text);
                assert!(snippet.len() <= BYTES + 500, "{query}: {}", snippet.len());
            }
        }
        assert!(snippet("hit", &format!("{long} hit {long}")).contains("[hit]"));
        assert!(snippet("hit", &format!("{}hit", "-".repeat(5_000))).contains("[hit]"));
    }
}
