//! How a line of the log is written.

use std::fmt::{self, Display};

use log::{Level, Record};
use serde_json::json;

use super::LogFormat;

/// A record of the log as one line. Line breaks and other control characters in it are written as escapes, so that
/// nobody's input can make up a line of its own.
pub struct LogLine<'a> {
    /// How it looks.
    pub format: LogFormat,
    /// When, as RFC 3339.
    pub time: &'a dyn Display,
    /// What.
    pub record: &'a Record<'a>,
}

impl fmt::Debug for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogLine").field(&self.to_string()).finish()
    }
}

impl Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (level, target, message) = (self.record.level(), self.record.target(), self.record.args());
        match self.format {
            LogFormat::Text => write!(f, "{} {level:<5} {target} {}", self.time, escaped(message)),
            LogFormat::Journal => write!(f, "<{}>{target} {}", priority(level), escaped(message)),
            LogFormat::Json => {
                let time = self.time.to_string();
                let level = level.as_str().to_lowercase();
                let line = json!({ "time": time, "level": level, "target": target, "message": message.to_string() });
                write!(f, "{line}")
            }
        }
    }
}

fn escaped(message: &fmt::Arguments<'_>) -> String {
    let text = message.to_string();
    if !text.contains(char::is_control) {
        return text;
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// As syslog counts.
fn priority(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LogFormat, message: &str) -> String {
        let args = format_args!("{message}");
        let record = Record::builder().level(Level::Warn).target("vayu").args(args).build();
        LogLine { format, time: &"2026-03-01T09:30:00.000Z", record: &record }.to_string()
    }

    #[test]
    fn each_format_is_one_line_whatever_is_logged() {
        let hostile = "path=\"/a\"\nERROR forged\u{1b}[31m";
        let text = line(LogFormat::Text, hostile);
        assert_eq!(text, r#"2026-03-01T09:30:00.000Z WARN  vayu path="/a"\nERROR forged\u{1b}[31m"#);
        assert_eq!(line(LogFormat::Journal, "a b"), "<4>vayu a b");
        let json = line(LogFormat::Json, hostile);
        let object: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!((&object["level"], &object["message"]), (&"warn".into(), &hostile.into()));
        assert!(!json.contains('\n'));
    }
}
