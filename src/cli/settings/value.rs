//! The kinds of values that settings have, and how each is written.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::choices::{LogFormat, LogLevel};
use crate::jobs::Mode;

/// The longest any time may be.
const LONGEST: Duration = Duration::from_secs(3_650 * 86_400);
/// Bigger units first, so that a value is shown in the biggest that fits.
const TIME_UNITS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("ms", 1), ("m", 60_000), ("s", 1_000)];
const SIZE_UNITS: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// A kind of value: how its text is read.
pub(super) trait Value: Sized {
    /// Whether it is shown to nobody.
    const SECRET: bool = false;

    /// # Errors
    /// What to write instead, as a sentence that goes on after a colon.
    fn read(text: &str) -> Result<Self, String>;
}

/// Text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// What is hidden.
    pub(in crate::cli) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl Bytes {
    /// As a size in memory.
    pub(in crate::cli) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// A number from 1 to 100,000: of threads, of connections, of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count(pub u32);

impl Count {
    /// As a length.
    pub(in crate::cli) fn len(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Value for Secret {
    const SECRET: bool = true;

    fn read(text: &str) -> Result<Self, String> {
        if text.chars().any(char::is_control) {
            return Err("it has a line break or another control character in it".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl Value for String {
    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl Value for PathBuf {
    fn read(text: &str) -> Result<Self, String> {
        Ok(Self::from(text))
    }
}

impl Value for bool {
    fn read(text: &str) -> Result<Self, String> {
        match text {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err("write true or false".to_owned()),
        }
    }
}

impl Value for SocketAddr {
    fn read(text: &str) -> Result<Self, String> {
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let addr = numeric.as_deref().unwrap_or(text).parse();
        addr.map_err(|_| "write an address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
    }
}

impl Value for LogLevel {
    fn read(text: &str) -> Result<Self, String> {
        word(text)
    }
}

impl Value for LogFormat {
    fn read(text: &str) -> Result<Self, String> {
        word(text)
    }
}

impl Value for Mode {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "write one of open, journal, read_only".to_owned())
    }
}

impl Value for Count {
    fn read(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(number @ 1..=100_000) => Ok(Self(number)),
            _ => Err("write a number from 1 to 100000".to_owned()),
        }
    }
}

impl Value for Duration {
    fn read(text: &str) -> Result<Self, String> {
        let millis = TIME_UNITS.iter().find_map(|(unit, millis)| scaled(text, unit, *millis));
        match millis.map(Self::from_millis) {
            Some(time) if !time.is_zero() && time <= LONGEST => Ok(time),
            _ => Err("write a whole number above 0 with its unit (ms, s, m, h, d), such as 30s or 7d".to_owned()),
        }
    }
}

impl Value for Bytes {
    fn read(text: &str) -> Result<Self, String> {
        let in_units = SIZE_UNITS.iter().find_map(|(unit, bytes)| scaled(text, unit, *bytes));
        match in_units.or_else(|| scaled(text, "", 1)) {
            Some(bytes @ 1..=0x7fff_ffff_ffff_ffff) => Ok(Self(bytes)),
            _ => Err("write a whole number of bytes above 0, or with KiB, MiB, GiB, such as 16MiB".to_owned()),
        }
    }
}

/// Nothing written means none.
impl<T: Value> Value for Option<T> {
    const SECRET: bool = T::SECRET;

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::read(text).map(Some) }
    }
}

/// `text` without its unit, in the smallest one.
fn scaled(text: &str, unit: &str, scale: u64) -> Option<u64> {
    let digits = text.strip_suffix(unit)?.trim_end();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

fn word<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let words = T::value_variants().iter().filter_map(|word| word.to_possible_value());
        let words: Vec<_> = words.map(|word| word.get_name().to_owned()).collect();
        format!("write one of {}", words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_their_unit() {
        for (text, millis) in [("5ms", 5), ("30s", 30_000), ("2m", 120_000), ("1 h", 3_600_000), ("7d", 7 * 86_400_000)]
        {
            assert_eq!(Duration::read(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "30", "s", "-1s", "1.5s", "0s", "1w", "99999999999999999999s", "18446744073709551615d", "4000d"]
        {
            Duration::read(text).expect_err(text);
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        for (text, bytes) in [("1", 1), ("4096", 4_096), ("64KiB", 65_536), ("16 MiB", 16 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(Bytes::read(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "0", "-1", "1MB", "MiB", "1.5MiB", "99999999999GiB"] {
            Bytes::read(text).expect_err(text);
        }
    }

    #[test]
    fn an_address_has_a_port() {
        for (text, addr) in
            [("127.0.0.1:0", "127.0.0.1:0"), ("localhost:8080", "127.0.0.1:8080"), ("[::1]:1", "[::1]:1")]
        {
            assert_eq!(SocketAddr::read(text).expect(text).to_string(), addr);
        }
        for text in ["127.0.0.1", "localhost", "127.0.0.1:99999", "", "example.org:80"] {
            SocketAddr::read(text).expect_err(text);
        }
    }

    #[test]
    fn words_and_numbers_that_are_none_say_what_could_be_written() {
        assert_eq!(LogLevel::read("loud").expect_err("no level"), "write one of off, error, warn, info, debug, trace");
        for text in ["0", "100001", "many", ""] {
            Count::read(text).expect_err(text);
        }
        bool::read("maybe").expect_err("neither");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::read("s3cret").expect("a secret");
        assert_eq!((format!("{secret:?}"), secret.reveal()), ("(hidden)".to_owned(), "s3cret"));
        Secret::read("two\nlines").expect_err("a header could not carry it");
    }
}
