//! Text into HTML and into URLs: the one escape function and the one path encoder.

use std::fmt::Write as _;

/// `text` for use in HTML, as text or inside a quoted attribute.
///
/// ```
/// assert_eq!(vayu_articles::sinks::escape("<a b='c'>&\""), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;");
/// ```
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML has no way to write a NUL.
            '\0' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// `text` as one segment of a URL's path (or one value of its query): everything but letters, digits, `-`, `_`, `.` and `~` of
/// ASCII is percent-encoded as UTF-8, so nothing in it can end the segment.
///
/// ```
/// assert_eq!(vayu_articles::sinks::encode_segment("a b/c"), "a%20b%2Fc");
/// ```
pub fn encode_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
