//! Dates for people and for machines, from milliseconds since the Unix epoch. UTC throughout.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAY_MS: i64 = 86_400_000;
/// 31 December 9999 and 1 January 0000: what lies beyond is shown as the nearest of them.
const RANGE_MS: (i64, i64) = (-62_167_219_200_000, 253_402_300_799_999);

/// A `<time>` element: `3 May 2024`, with the exact time for machines.
pub(super) fn element(ms: i64) -> String {
    let ms = ms.clamp(RANGE_MS.0, RANGE_MS.1);
    let (year, month, day) = civil(ms.div_euclid(DAY_MS));
    let second = ms.rem_euclid(DAY_MS) / 1_000;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let name = MONTHS[(month - 1) as usize];
    format!(
        "<time datetime=\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z\">{day} {name} {year}</time>"
    )
}

/// Year, month (1 to 12) and day of the day `days` after 1 January 1970, in the Gregorian calendar.
///
/// Counts from 1 March of the year 0, so that a leap day ends its year and every 400 years (146,097 days) are alike.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Months from March have 31, 30, 31, 30, 31 days, over and over: 153 in five.
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_782, (2024, 2, 29)),
            (-25_509, (1900, 2, 28)),
            (-25_508, (1900, 3, 1)),
        ] {
            assert_eq!(civil(days), date, "{days}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut before = civil(-800_000);
        for days in -799_999..1_000_000 {
            let today = civil(days);
            assert!(today > before && (today.2 == before.2 + 1 || today.2 == 1), "{before:?} {today:?}");
            before = today;
        }
    }

    #[test]
    fn any_number_gives_a_time() {
        assert_eq!(element(1_714_730_405_123), "<time datetime=\"2024-05-03T10:00:05Z\">3 May 2024</time>");
        assert!(element(-1).contains("31 December 1969"));
        assert!(element(i64::MAX).contains("9999-12-31T23:59:59Z"));
        assert!(element(i64::MIN).contains("0000-01-01T00:00:00Z"));
    }
}
