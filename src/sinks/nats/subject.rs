//! Subjects: where in the stream an event goes.

use std::fmt::Write as _;

/// `PREFIX.TYPE`, or with partitions `PREFIX.PARTITION.TYPE`; `event_type` keeps its dots.
pub(super) fn subject(prefix: &str, partition: Option<u32>, event_type: &str) -> String {
    let mut subject = filter_start(prefix, partition);
    for token in event_type.split('.') {
        subject.push('.');
        push_token(&mut subject, token);
    }
    subject
}

/// What a consumer of this partition (`None`: of everything) is to be sent.
pub fn filter(prefix: &str, partition: Option<u32>) -> String {
    filter_start(prefix, partition) + ".>"
}

/// The partition of a key, from 0: the same in every build and for ever.
pub fn partition_of(key: &str, partitions: u32) -> u32 {
    // FNV-1a, 64 bits.
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // Below `partitions`, so it fits.
    u32::try_from(hash % u64::from(partitions.max(1))).unwrap_or(0)
}

/// Whether a prefix or a stream's name can be used as such: tokens of letters, digits, `-` and `_`.
pub(super) fn is_plain(text: &str, with_dots: bool) -> bool {
    let plain = |token: &str| {
        !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= 200 && if with_dots { text.split('.').all(plain) } else { plain(text) }
}

fn filter_start(prefix: &str, partition: Option<u32>) -> String {
    match partition {
        Some(partition) => format!("{prefix}.{partition}"),
        None => prefix.to_owned(),
    }
}

/// Everything but letters, digits, `-` and `_` as `%XX`; an empty token, which no subject may have, as `%` alone. So no
/// two types share a subject, and none breaks the protocol or is a wildcard.
fn push_token(subject: &mut String, token: &str) {
    if token.is_empty() {
        subject.push('%');
    }
    for byte in token.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            subject.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(subject, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_the_types_own_name_made_safe() {
        for (event_type, want) in [
            ("article.created.v1", "p.article.created.v1"),
            ("a b\r\nPUB x", "p.a%20b%0D%0APUB%20x"),
            ("*.>", "p.%2A.%3E"),
            (".a..b.", "p.%.a.%.b.%"),
            ("é%", "p.%C3%A9%25"),
        ] {
            assert_eq!(subject("p", None, event_type), want);
        }
        assert_eq!(subject("vayu.events", Some(3), "x.v1"), "vayu.events.3.x.v1");
        assert_eq!(filter("vayu.events", Some(3)), "vayu.events.3.>");
    }

    #[test]
    fn a_keys_partition_is_the_same_for_ever_and_keys_spread() {
        assert_eq!(["", "a", "foobar"].map(|key| partition_of(key, 1_000)), [37, 996, 968]);
        let mut counts = [0; 8];
        for key in 0..8_000 {
            counts[partition_of(&format!("article-{key}"), 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (700..1_300).contains(count)), "{counts:?}");
        assert_eq!(partition_of("a", 0), 0);
    }

    #[test]
    fn names_that_would_be_wildcards_or_break_a_subject_are_refused() {
        assert!(is_plain("vayu.events", true) && is_plain("VAYU_EVENTS", false));
        for name in ["", ".", "a..b", "a.*", ">", "a b", "a\r\n", "ä"] {
            assert!(!is_plain(name, true), "{name:?}");
        }
        assert!(!is_plain("a.b", false));
    }
}
