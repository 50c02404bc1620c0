//! A place in the list of entries, also as text for a command line.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::stored::RawText;

/// A place in the list of entries: hand that of a page's last entry to [`LedgerQuery::after`](super::LedgerQuery::after).
///
/// As text it is `EVENT@HANDLER`, with `%` and two digits for each byte that is no letter, digit, `-`, `_`, `.` or `:`. Places
/// are ordered as the list is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerPlace {
    pub(super) handler: RawText,
    pub(super) event_id: RawText,
}

impl LedgerPlace {
    /// Behind this event of this handler, whether or not there is an entry.
    pub fn after(handler: &str, event_id: &str) -> Self {
        Self { handler: RawText::new(handler), event_id: RawText::new(event_id) }
    }
}

impl fmt::Display for LedgerPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.event_id.bytes(), f)?;
        f.write_char('@')?;
        escape(self.handler.bytes(), f)
    }
}

impl FromStr for LedgerPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let (event_id, handler) = text.split_once('@')?;
            Some(Self { handler: RawText::new(unescape(handler)?), event_id: RawText::new(unescape(event_id)?) })
        };
        read().ok_or_else(|| format!("{text:?} is no place in the list: it looks like 0197c2f0-5c5e@search"))
    }
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| match byte {
        b'-' | b'_' | b'.' | b':' => f.write_char(char::from(*byte)),
        byte if byte.is_ascii_alphanumeric() => f.write_char(char::from(*byte)),
        byte => write!(f, "%{byte:02X}"),
    })
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            plain.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
        } else {
            plain.push(byte);
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_from_its_text_whatever_bytes_are_in_it() {
        let strange = LedgerPlace { handler: RawText::new(*b"m\xff@%"), event_id: RawText::new(*b"S:12 @\x00\n") };
        assert_eq!(strange.to_string(), "S:12%20%40%00%0A@m%FF%40%25");
        for place in [strange, LedgerPlace::default(), LedgerPlace::after("search", "0197-a_b.c:r1")] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for bad in ["", "one", "one@search%", "one@search%4", "one@search%zz", "one@%-1"] {
            assert!(bad.parse::<LedgerPlace>().is_err(), "{bad}");
        }
    }
}
