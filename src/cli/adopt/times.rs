//! Times as the original's tables hold them, as milliseconds since the Unix epoch.
//!
//! | stored | comes from |
//! |---|---|
//! | `2026-06-10 11:30:00.5+02:00`, `2026-06-10T11:30:00Z`, and all of [`dates`](crate::cli::dates) | its driver, its retries, `datetime('now')` |
//! | `2026-06-10 11:30:00.5 +0200 CEST m=+0.1` | a time printed by Go |
//! | a whole number | seconds; milliseconds if it is 100,000,000,000 or more |

use rusqlite::types::ValueRef;

use crate::cli::dates;

/// Numbers from here on are milliseconds: as seconds it would be the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// The moment that a column holds; `None` for NULL and an empty text.
///
/// # Errors
/// What stands there instead.
pub(super) fn moment(value: ValueRef<'_>) -> Result<Option<i64>, String> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(whole(number))),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            let text = std::str::from_utf8(bytes).map_err(|_| "a time that is not UTF-8".to_owned())?.trim();
            if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
        }
        ValueRef::Real(number) => Err(format!("cannot read the number {number} as a time")),
    }
}

/// The moment that `text` names. Without a zone it is UTC.
///
/// # Errors
/// It is none.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let text = text.trim();
    if let Ok(number) = text.parse::<i64>() {
        return Ok(whole(number));
    }
    // Go's clock reading, and the zone's name behind its offset.
    let text = text.split(" m=").next().unwrap_or(text);
    let mut parts = text.rsplitn(2, ' ');
    let plain = match (parts.next(), parts.next()) {
        (Some("UTC" | "GMT"), Some(rest)) if !has_offset(rest) => format!("{rest}Z"),
        (Some(name), Some(rest)) if is_zone_name(name) && has_offset(rest) => rest.to_owned(),
        _ => text.to_owned(),
    };
    dates::parse(&plain).map(|moment| moment.ms).map_err(|_| {
        let shown: String = text.chars().take(60).collect();
        format!("cannot read {shown:?} as a time")
    })
}

fn whole(number: i64) -> i64 {
    if number.unsigned_abs() >= MILLISECONDS_FROM { number } else { number * 1_000 }
}

fn is_zone_name(name: &str) -> bool {
    name.len() >= 2 && (name.bytes().all(|b| b.is_ascii_uppercase()) || name.starts_with(['+', '-']))
}

/// Behind the date, whose hyphens are none.
fn has_offset(text: &str) -> bool {
    text.get(10..).is_some_and(|rest| rest.contains(['+', '-', 'Z']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c51_every_form_of_the_original_names_its_moment() {
        let at = 1_781_091_000_000;
        for text in [
            "2026-06-10 11:30:00",
            "2026-06-10T11:30:00",
            "2026-06-10T11:30:00Z",
            "2026-06-10 11:30:00+00:00",
            "2026-06-10 13:30:00.000000000+02:00",
            "2026-06-10T13:30:00+02:00",
            "2026-06-10 11:30:00 +0000 UTC",
            "2026-06-10 11:30:00 UTC",
            "2026-06-10 13:30:00 +0200 CEST m=+0.000012345",
            "2026-06-10 14:30:00 +0300 +03",
            "1781091000",
            "1781091000000",
        ] {
            assert_eq!(parse(text), Ok(at), "{text}");
        }
        assert_eq!(parse("2026-06-10 11:30:00.5"), Ok(at + 500));
        assert_eq!(parse("2026-06-10"), Ok(at - 41_400_000));
        assert_eq!(parse("1969-12-31 23:59:59+00:00"), Ok(-1_000));
    }

    #[test]
    fn what_is_no_time_is_said_and_never_guessed() {
        for text in ["soon", "10/06/2026", "2026-02-30 00:00:00", "2026-06-10 11:30:00 CEST", "12:00"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(moment(ValueRef::Null), Ok(None));
        assert_eq!(moment(ValueRef::Text(b" ")), Ok(None));
        assert_eq!(moment(ValueRef::Integer(1)), Ok(Some(1_000)));
        assert!(moment(ValueRef::Real(1.5)).is_err());
    }
}
