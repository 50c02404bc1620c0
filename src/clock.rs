//! Time as a dependency: everything that stores or compares a wall-clock time takes it from a [`Clock`].

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where the steady clock counts from.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A source of wall-clock time.
///
/// The program reads the system's clock in one place, [`SystemClock`]; tests put a [`ManualClock`] in its stead.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, UTC. Negative before 1970.
    fn now_ms(&self) -> i64;

    /// Milliseconds on a clock that nobody sets, from wherever it counts: for how long something lasts.
    fn steady_ms(&self) -> i64 {
        i64::try_from(BEGUN.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that can be handed to several components.
pub type SharedClock = Arc<dyn Clock>;

/// The system's wall clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The system's clock, ready to be shared.
    pub fn shared() -> SharedClock {
        Arc::new(SystemClock)
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
        }
    }
}

/// A clock that stands still until it is told otherwise. For tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now_ms` (milliseconds since the Unix epoch).
    pub fn new(now_ms: i64) -> Self {
        Self(AtomicI64::new(now_ms))
    }

    /// Moves the clock by `delta_ms` milliseconds; a negative number sets it back.
    pub fn advance(&self, delta_ms: i64) {
        self.0.fetch_add(delta_ms, Ordering::SeqCst);
    }

    /// Sets the clock to `now_ms`.
    pub fn set(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Whoever moves this clock lets that time pass.
    fn steady_ms(&self) -> i64 {
        self.now_ms()
    }
}

/// A time in UTC as RFC 3339 writes it, from milliseconds since the Unix epoch: `2026-01-31T09:05:00.000Z`. Years outside 0 to
/// 9999 are clamped to that range.
pub fn rfc3339(ms: i64) -> String {
    // 0000-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z.
    let ms = ms.clamp(-62_167_219_200_000, 253_402_300_799_999);
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second, milli) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Milliseconds since the Unix epoch of a time as RFC 3339 writes it, which names its offset: `2026-01-31T10:05:00+01:00`.
///
/// `T` and `Z` may be small, a blank may stand for `T`; fractions of a second beyond the third digit are cut; a leap
/// second counts as the end of the second before it.
///
/// # Errors
/// What is wrong, as the rest of a sentence about the field.
pub fn parse_rfc3339(text: &str) -> Result<i64, &'static str> {
    const SHAPE: &str = "must be a time as RFC 3339 writes it, such as 2026-01-31T10:05:00+01:00";
    const NO_OFFSET: &str = "must end in its offset, such as Z or +01:00";
    const NO_SUCH_TIME: &str = "must be a time that the calendar and the clock have";
    let (moment, rest) = text.split_at_checked(19).ok_or(SHAPE)?;
    let bytes = moment.as_bytes();
    let shaped = bytes.iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => *byte == b'-',
        10 => matches!(byte, b'T' | b't' | b' '),
        13 | 16 => *byte == b':',
        _ => byte.is_ascii_digit(),
    });
    if !shaped {
        return Err(SHAPE);
    }
    let number = |from: usize, to: usize| bytes[from..to].iter().fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'));
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second) = (number(11, 13), number(14, 16), number(17, 19));
    let (millis, offset) = fraction(rest).ok_or(SHAPE)?;
    let offset_ms = match offset.as_bytes() {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
            let two = |tens: &u8, ones: &u8| i64::from(tens - b'0') * 10 + i64::from(ones - b'0');
            let (hours, minutes) = (two(h1, h2), two(m1, m2));
            if hours > 23 || minutes > 59 {
                return Err(NO_SUCH_TIME);
            }
            (hours * 60 + minutes) * 60_000 * if *sign == b'-' { -1 } else { 1 }
        }
        [] => return Err(NO_OFFSET),
        _ => return Err(SHAPE),
    };
    let days = days_from_civil(year, month, day);
    if civil_from_days(days) != (year, month, day) || hour > 23 || minute > 59 || second > 60 {
        return Err(NO_SUCH_TIME);
    }
    let (second, millis) = if second == 60 { (59, 999) } else { (second, millis) };
    Ok(days * 86_400_000 + ((hour * 60 + minute) * 60 + second) * 1_000 + millis - offset_ms)
}

/// The milliseconds of a fraction such as `.5`, if there is one, and what follows it.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at(end);
    if digits.is_empty() {
        return None;
    }
    let millis = (0..3).fold(0, |sum, at| sum * 10 + digits.as_bytes().get(at).map_or(0, |b| i64::from(b - b'0')));
    Some((millis, rest))
}

/// The day of a Gregorian date, counted from 1970-01-01; the inverse of [`civil_from_days`], which shows whether there is
/// such a date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that the leap day is the
/// last day of a year, and eras of 400 years, which all have the same days, to begin in March of year 0.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468;
    const DAYS_OF_ERA: i64 = 146_097;
    let shifted = days + DAYS_TO_1970;
    let (era, day_of_era) = (shifted.div_euclid(DAYS_OF_ERA), shifted.rem_euclid(DAYS_OF_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(1_000);
        clock.advance(-1_500);
        assert_eq!(clock.now_ms(), -500);
        clock.set(7);
        assert_eq!(clock.now_ms(), 7);
    }

    #[test]
    fn case_c51_a_time_with_offset_is_converted_and_one_without_is_refused() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-06-10T11:30:00+02:00", 1_781_083_800_000),
            ("2026-06-10 09:30:00z", 1_781_083_800_000),
            ("2026-06-10T05:00:00.002-04:30", 1_781_083_800_002),
            ("2024-02-29t23:59:59.99999Z", 1_709_251_199_999),
            ("2016-12-31T23:59:60Z", 1_483_228_799_999),
            ("9999-12-31T23:59:59.9Z", 253_402_300_799_900),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ] {
            assert_eq!(parse_rfc3339(text), Ok(ms), "{text}");
        }
        for text in ["2026-06-10T11:30:00", "2026-06-10T11:30:00.5"] {
            assert!(parse_rfc3339(text).unwrap_err().contains("offset"), "{text}");
        }
        for text in [
            "",
            "tomorrow",
            "2026-06-10",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-06-00T00:00:00Z",
            "2026-06-10T24:00:00Z",
            "2026-06-10T11:60:00Z",
            "2026-06-10T11:30:61Z",
            "2026-06-10T11:30:00+2:00",
            "2026-06-10T11:30:00+0200",
            "2026-06-10T11:30:00+24:00",
            "2026-06-10T11:30:00.Z",
            "2026-06-10T11:30:00Zx",
            "2026-06-10T11:30:0\u{e9}Z",
            "+026-06-10T11:30:00Z",
        ] {
            parse_rfc3339(text).expect_err(text);
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for day in (-719_162..2_932_896).step_by(97) {
            let ms = day * 86_400_000 + 12_345_678;
            assert_eq!(parse_rfc3339(&rfc3339(ms)), Ok(ms));
        }
    }

    #[test]
    fn the_system_clock_shows_this_century() {
        assert!(SystemClock.now_ms() > 946_684_800_000);
    }
}
