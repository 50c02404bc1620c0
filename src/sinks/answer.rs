//! What sinks read out of an HTTP answer, besides its status.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest wait that an answer can ask for.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(120);
/// Of a body, so many characters are quoted as a reason.
const EXCERPT_CHARS: usize = 200;

/// `Retry-After` in either form, within its cap; `None` for what is neither. `now_ms`: milliseconds since the Unix epoch.
pub(super) fn retry_after(value: &str, now_ms: i64) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time.
        return Some(
            value.parse().map_or(RETRY_AFTER_MAX, |seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX)),
        );
    }
    let until: SystemTime = httpdate::parse_http_date(value).ok()?;
    let until = until.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_millis(u64::try_from(now_ms).unwrap_or(0));
    Some(until.saturating_sub(now).min(RETRY_AFTER_MAX))
}

/// The beginning of what the other side said, in one line. Nothing of a page of HTML: it says what the status says, in
/// more words.
pub(super) fn excerpt(body: &str) -> String {
    if is_html(body) {
        return String::new();
    }
    let words = body.split(|char: char| char.is_whitespace() || char.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(EXCERPT_CHARS).collect()
}

fn is_html(body: &str) -> bool {
    let body = body.trim_start_matches('\u{feff}').trim_start();
    // A page of XHTML begins so.
    let body = match body.strip_prefix("<?xml") {
        Some(rest) => rest.split_once("?>").map_or("", |(_, after)| after).trim_start(),
        None => body,
    };
    ["<!doctype html", "<html"]
        .iter()
        .any(|start| body.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_in_seconds_and_as_a_date_within_its_cap() {
        let seconds = |n| Some(Duration::from_secs(n));
        // 6 November 1994, 08:49:37 UTC.
        let now = 784_111_777_000;
        for (value, expected) in [
            ("2", seconds(2)),
            (" 2 ", seconds(2)),
            ("0", seconds(0)),
            ("99999", seconds(120)),
            ("99999999999999999999999999", seconds(120)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", seconds(10)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", seconds(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", seconds(120)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(retry_after(value, now), expected, "{value:?}");
        }
        assert_eq!(retry_after("Sun, 06 Nov 1994 08:49:47 GMT", i64::MIN), seconds(120));
    }

    #[test]
    fn an_excerpt_is_one_short_line() {
        assert_eq!(excerpt(" a\r\nevent=forged\u{1b}[31m\t b "), "a event=forged [31m b");
        assert_eq!(excerpt(&"x".repeat(1_000)).len(), 200);
    }

    #[test]
    fn of_a_page_of_html_nothing_is_quoted() {
        for page in [
            "<!DOCTYPE html><p>x",
            "\n<HTML><head>",
            "\u{feff}<html lang=en>",
            "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!DOCTYPE html PUBLIC \"x\">\n<html>",
        ] {
            assert_eq!(excerpt(page), "", "{page}");
        }
        assert_eq!(excerpt("<?xml version=\"1.0\"?><error>no</error>"), "<?xml version=\"1.0\"?><error>no</error>");
        assert_eq!(excerpt("no <html> here"), "no <html> here");
    }
}
