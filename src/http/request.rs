//! Reading a request: its path in decoded segments, its query, its JSON body.

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::engine::Request;
use super::problem::Problem;

/// Longest path and longest query, in bytes as sent.
const MAX_TARGET_BYTES: usize = 8 * 1024;
/// Most query parameters.
const MAX_PARAMETERS: usize = 64;

/// The path's segments, each decoded exactly once. An encoded `/` is a character of its segment, never a separator.
///
/// # Errors
/// 400 for a broken escape, bytes that are not UTF-8, and control characters.
pub(super) fn segments(path: &str) -> Result<Vec<String>, Problem> {
    if path.len() > MAX_TARGET_BYTES {
        return Err(Problem::bad_request(format!("the path is longer than {MAX_TARGET_BYTES} bytes")));
    }
    let path = path.strip_prefix('/').ok_or_else(|| Problem::bad_request("the path must begin with /"))?;
    path.split('/').map(|segment| decode(segment, "the path", "")).collect()
}

/// Decodes once; of the control characters only those in `allowed` pass.
fn decode(text: &str, what: &str, allowed: &str) -> Result<String, Problem> {
    if has_broken_escape(text) {
        return Err(Problem::bad_request(format!("{what} has a % that two hexadecimal digits do not follow")));
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| Problem::bad_request(format!("{what} is not UTF-8 once decoded")))?;
    if decoded.chars().any(|char| char.is_control() && !allowed.contains(char)) {
        return Err(Problem::bad_request(format!("{what} has a control character")));
    }
    Ok(decoded.into_owned())
}

fn has_broken_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !(is_hex(at + 1) && is_hex(at + 2)))
}

/// A request's query parameters.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// # Errors
    /// 400 as for the path; `+` means a blank.
    pub(super) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let query = query.unwrap_or_default();
        if query.len() > MAX_TARGET_BYTES {
            return Err(Problem::bad_request(format!("the query is longer than {MAX_TARGET_BYTES} bytes")));
        }
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if parameters.len() == MAX_PARAMETERS {
                return Err(Problem::bad_request(format!("more than {MAX_PARAMETERS} query parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            // What is pasted into a search box may have tabs and line ends.
            let decode = |text: &str| decode(&text.replace('+', " "), "the query", "\t\n\r");
            parameters.push((decode(name)?, decode(value)?));
        }
        Ok(Self(parameters))
    }

    /// A parameter that may be left out, but not repeated.
    pub(super) fn get(&self, name: &str) -> Result<Option<&str>, Problem> {
        let mut values = self.0.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let value = values.next();
        if values.next().is_some() {
            return Err(Problem::bad_parameter(name, "is given more than once"));
        }
        Ok(value)
    }

    /// A whole number of at least 1.
    pub(super) fn number(&self, name: &str, default: u32) -> Result<u32, Problem> {
        match self.get(name)? {
            None => Ok(default),
            Some(text) => match text.parse::<u32>() {
                Ok(number) if number > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(number),
                _ => Err(Problem::bad_parameter(name, "must be a whole number from 1 to 4294967295")),
            },
        }
    }
}

/// The body as JSON.
///
/// # Errors
/// 400 with line and column when it is not JSON. serde_json bounds the depth at 128.
pub(super) fn json_body(request: &Request) -> Result<Value, Problem> {
    serde_json::from_slice(&request.body).map_err(|error| {
        let mut problem = Problem::bad_request(format!("the body is not valid JSON: {error}"));
        problem.code = "bad_json";
        let counted = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        problem.position = Some((counted(error.line()), counted(error.column())));
        problem
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_c29_segments_are_decoded_once_and_never_split_again() {
        let decoded = |path: &str| segments(path).map_err(|problem| problem.status.as_u16());
        assert_eq!(decoded("/articles/caf%65").unwrap(), ["articles", "cafe"]);
        assert_eq!(decoded("/articles/%2563afe").unwrap(), ["articles", "%63afe"]);
        assert_eq!(decoded("/articles/%2e%2e%2fx").unwrap(), ["articles", "../x"]);
        assert_eq!(decoded("/tags/%E6%97%A5%e6%9c%ac").unwrap(), ["tags", "日本"]);
        assert_eq!(decoded("/tags/日本").unwrap(), ["tags", "日本"]);
        for bad in ["/%", "/%zz", "/%2", "/%C0%80", "/%E0%A4%A", "/a%00b", "/%+1"] {
            assert_eq!(decoded(bad), Err(400), "{bad}");
        }
    }

    #[test]
    fn query_parameters_are_checked() {
        let query = Query::parse(Some("page=2&q=a+b%26c&empty")).unwrap();
        assert_eq!(query.number("page", 1).unwrap(), 2);
        assert_eq!(query.get("q").unwrap(), Some("a b&c"));
        assert_eq!(query.get("empty").unwrap(), Some(""));
        assert_eq!(query.number("limit", 20).unwrap(), 20);
        for bad in ["page=-1", "page=0", "page=99999999999999999999", "page=+1", "page=x", "page=1&page=2"] {
            assert!(Query::parse(Some(bad)).unwrap().number("page", 1).is_err(), "{bad}");
        }
        assert_eq!(Query::parse(Some("q=a%09b%0D%0Ac")).unwrap().get("q").unwrap(), Some("a\tb\r\nc"));
        assert!(Query::parse(Some("q=%00")).is_err());
        assert!(Query::parse(Some("q=%FF")).is_err());
        assert!(Query::parse(Some("q=%")).is_err());
    }
}
