//! Time as a dependency: everything that stores or compares a wall-clock time takes it from a [`Clock`].

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A source of wall-clock time.
///
/// The program reads the system's clock in one place, [`SystemClock`]; tests put a [`ManualClock`] in its stead.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since the Unix epoch, UTC. Negative before 1970.
    fn now_ms(&self) -> i64;
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
    fn the_system_clock_shows_this_century() {
        assert!(SystemClock.now_ms() > 946_684_800_000);
    }
}
