//! Dates as people write them in front matter, as milliseconds since the Unix epoch.
//!
//! | written | means |
//! |---|---|
//! | `2026-03-01` | midnight UTC |
//! | `2026-03-01T09:30:00+01:00`, also with a blank for `T`, with `Z`, with `+0100` | that moment |
//! | `2026-03-01 09:30`, `2026-03-01T09:30:00` | that time in UTC; the caller is told that a zone was missing |
//!
//! Anything else is an error: a date that is guessed wrong is worse than a file that is reported.

use jiff::Timestamp;

/// A moment read from front matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Milliseconds since the Unix epoch; negative before 1970.
    pub ms: i64,
    /// A time of day was given without a zone, and UTC was assumed.
    pub zone_assumed: bool,
}

/// Reads `text` as one of the forms in the module's table. The error says what is accepted.
pub(crate) fn parse(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    let (Some(date), Some(rest)) = (text.get(..10), text.get(10..)) else { return Err(unreadable(text)) };
    if !is_plain_date(date) {
        return Err(unreadable(text));
    }
    if rest.is_empty() {
        return Ok(Moment { ms: timestamp(text, date, "00:00:00", "Z")?, zone_assumed: false });
    }
    let Some(time_and_zone) = rest.strip_prefix(['T', 't', ' ']) else { return Err(unreadable(text)) };
    let (time, zone) = split_zone(time_and_zone.trim());
    let ms = timestamp(text, date, time, if zone.is_empty() { "Z" } else { zone })?;
    Ok(Moment { ms, zone_assumed: zone.is_empty() })
}

fn is_plain_date(date: &str) -> bool {
    date.bytes().enumerate().all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() })
}

/// Splits `09:30:00 +0100` into time and zone; the zone is empty when there is none.
fn split_zone(text: &str) -> (&str, &str) {
    let at = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (time, zone) = text.split_at(at);
    (time.trim_end(), zone)
}

fn timestamp(text: &str, date: &str, time: &str, zone: &str) -> Result<i64, String> {
    if !time.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.') || time.len() < 5 {
        return Err(unreadable(text));
    }
    let moment: Timestamp = format!("{date}T{time}{zone}").parse().map_err(|_| unreadable(text))?;
    Ok(moment.as_millisecond())
}

fn unreadable(text: &str) -> String {
    let shown: String = text.chars().take(60).collect();
    format!(
        "cannot read {shown:?} as a date: write 2026-03-01, or 2026-03-01T09:30:00+01:00 with the zone, \
         or 2026-03-01 09:30 for UTC"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).ms
    }

    #[test]
    fn a_date_alone_is_midnight_utc() {
        assert_eq!(parse("1970-01-02"), Ok(Moment { ms: 86_400_000, zone_assumed: false }));
        assert_eq!(ms(" 2018-09-30 "), 1_538_265_600_000);
    }

    #[test]
    fn an_offset_is_converted() {
        let expected = 1_491_749_888_000;
        for text in [
            "2017-04-09T10:58:08-04:00",
            "2017-04-09 10:58:08 -0400",
            "2017-04-09t10:58:08-04:00",
            "2017-04-09T14:58:08Z",
            "2017-04-09 14:58:08z",
        ] {
            assert_eq!(parse(text), Ok(Moment { ms: expected, zone_assumed: false }), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_zone_is_taken_as_utc_and_says_so() {
        for text in ["2026-06-10 11:30", "2026-06-10T11:30:00", "2026-06-10 11:30:00.000"] {
            assert_eq!(parse(text), Ok(Moment { ms: 1_781_091_000_000, zone_assumed: true }), "{text}");
        }
    }

    #[test]
    fn case_c51_times_compare_as_moments_whatever_their_spelling() {
        let ordered = [
            "0001-01-01",
            "1969-12-31T23:59:59Z",
            "2026-06-10T11:30:00.000Z",
            "2026-06-10T11:30:00.50000001Z",
            "2026-06-10T11:30:07Z",
            "2026-06-10T11:30:07.002Z",
            "2026-06-10 13:31:00+02:00",
            "2026-06-10T11:32:00",
            "9999-12-30",
        ];
        let moments: Vec<i64> = ordered.iter().map(|text| ms(text)).collect();
        assert!(moments.windows(2).all(|pair| pair[0] < pair[1]), "{moments:?}");
        assert!(moments[1] < 0);
    }

    #[test]
    fn what_is_no_date_is_an_error_that_names_the_forms() {
        for text in [
            "",
            "yesterday",
            "2026-02-30",
            "2026-13-01",
            "2026-06-10T25:00",
            "2026-06-10 11",
            "2026-06-10Tnoon",
            "2026-06-10T11:30 CET",
            "2026-06-10T11:30+99:00",
            "10/06/2026",
            "2026-6-1",
            "２０２６-06-10",
            "1781091000",
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("2026-03-01T09:30:00+01:00"), "{error}");
        }
    }
}
