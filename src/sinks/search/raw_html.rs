//! The text in raw HTML, for searching: nothing here makes it safe.

/// Elements that begin and end within a word, for all a reader can tell.
const WITHIN_WORDS: [&str; 26] = [
    "a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "font", "i", "ins", "kbd", "mark", "q", "s",
    "samp", "small", "span", "strong", "sub", "sup", "u", "var", "wbr",
];
/// Elements whose content is no text.
const HIDDEN: [&str; 2] = ["script", "style"];

/// Whether `tag` begins an element whose content no reader sees.
pub(super) fn hides(tag: &str) -> bool {
    HIDDEN.iter().any(|hidden| name(tag).eq_ignore_ascii_case(hidden))
}

/// Adds the text of `html` to `out`: without tags, comments, scripts and style sheets; a blank stands for a tag that sets apart.
pub(super) fn push_text(html: &str, out: &mut String) {
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        push_decoded(&rest[..at], out);
        rest = &rest[at..];
        let end = if rest.starts_with("<!--") {
            rest.find("-->").map_or(rest.len(), |end| end + 3)
        } else if rest[1..].starts_with(|next: char| next.is_ascii_alphabetic() || "/!?".contains(next)) {
            if !WITHIN_WORDS.iter().any(|element| name(rest).trim_start_matches('/').eq_ignore_ascii_case(element)) {
                out.push(' ');
            }
            tag_end(rest) + if hides(rest) { hidden_end(rest) } else { 0 }
        } else {
            out.push('<');
            1
        };
        rest = rest.get(end..).unwrap_or_default();
    }
    push_decoded(rest, out);
}

/// The name of the tag that `html` begins with; a closing one's begins with a slash.
fn name(html: &str) -> &str {
    let name = html.strip_prefix('<').unwrap_or(html);
    let slash = usize::from(name.starts_with('/'));
    let end = name[slash..].find(|char: char| !char.is_ascii_alphanumeric()).map_or(name.len(), |end| slash + end);
    &name[..end]
}

/// The length of the tag that `html` begins with. A `>` within a quoted value does not end it.
fn tag_end(html: &str) -> usize {
    let (mut quote, mut before) = (None, b'<');
    for (at, byte) in html.bytes().enumerate() {
        match quote {
            Some(open) if byte == open => quote = None,
            Some(_) => {}
            None if byte == b'>' => return at + 1,
            None if matches!(byte, b'"' | b'\'') && before == b'=' => quote = Some(byte),
            None => {}
        }
        if !byte.is_ascii_whitespace() {
            before = byte;
        }
    }
    html.len()
}

/// The length of the content of the hidden element that `html` begins with.
fn hidden_end(html: &str) -> usize {
    let content = &html[tag_end(html)..];
    let closing = format!("</{}", name(html));
    let mut places = content.as_bytes().windows(closing.len());
    places.position(|place| place.eq_ignore_ascii_case(closing.as_bytes())).unwrap_or(content.len())
}

/// With the characters that must be written as entities in HTML; others stay as written.
fn push_decoded(text: &str, out: &mut String) {
    if !text.contains('&') {
        return out.push_str(text);
    }
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&nbsp;", " "), ("&amp;", "&")];
    // An ampersand last: what it begins was written to be read as it is.
    out.push_str(&entities.iter().fold(text.to_owned(), |text, (entity, char)| text.replace(entity, char)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> String {
        let mut out = String::new();
        push_text(html, &mut out);
        out.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tags_go_and_text_stays() {
        assert_eq!(text("<p>a<B>b</B><br/>c</p>d"), "ab c d");
        assert_eq!(text("<p title='a > b' x=\"</p>\">it's</p>"), "it's");
        assert_eq!(text("<p it's>a</p>"), "a");
        assert_eq!(text("1 < 2 <3 <é> &lt;b&gt; &amp;lt; &eacute;"), "1 < 2 <3 <é> <b> &lt; &eacute;");
        assert_eq!(text("a<!-- <b> -->b<![CDATA[x]]>c<?php ?>d"), "ab c d");
        assert_eq!(text("a<SCRIPT>if (1 < 2) </script >b<style>p{}</style>c<scripted>d"), "a b c d");
    }

    #[test]
    fn what_is_never_closed_goes_to_the_end() {
        for open in ["a<!-- x", "a<b x", "a<b x='>", "a<script>x", "a<script", "a</"] {
            assert_eq!(text(open), "a", "{open}");
        }
        assert_eq!(text("a<"), "a<");
    }
}
