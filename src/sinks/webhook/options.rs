//! What an endpoint is: where, which events, and how they are signed.

use std::fmt;
use std::time::Duration;

use ureq::http::Uri;

use super::guard;
use super::signature::Secret;
use crate::outbox::{EventFilter, OnDeadLetter, StartAt};

/// Longest time that one call may be given; the relay's limit for a handler is 30 s.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(25);
/// Most secrets of one endpoint: the new one, the old one, and some.
const SECRETS_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 40;
const CONCURRENCY_MAX: usize = 64;

/// One endpoint, for a [`Webhook`](super::Webhook). Start from [`WebhookOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct WebhookOptions {
    /// Its name: 1 to 40 lower-case letters, digits and `-`. The lane is `webhook:` and this name, so it stays the same.
    pub name: String,
    /// Where events go: an `http` or `https` URL without user and password. Only its host is shown in reasons and logs.
    pub url: String,
    /// What messages are signed with, each by all of them: 1 to 8. Two while a secret is changed.
    pub secrets: Vec<Secret>,
    /// Which events; all by default.
    pub filter: EventFilter,
    /// Longest time one call may take, above zero and at most [`TIMEOUT_MAX`]; 10 s.
    pub timeout: Duration,
    /// Whether the endpoint may be in a private network or on this machine; false.
    pub allow_private: bool,
    /// Calls under way at once, no two for events of one key, 1 to 64; 4. With 1 all events come in the order of the log.
    pub concurrency: usize,
    /// The `source` of the CloudEvents; `/vayu-articles`.
    pub source: String,
    /// Sent as `User-Agent`; the program's name and version.
    pub user_agent: String,
    /// Where the lane of a new endpoint begins; at the end: with what happens from then on.
    pub start_at: StartAt,
    /// What a dead letter does to later events of its key; they go on.
    pub on_dead_letter: OnDeadLetter,
}

impl WebhookOptions {
    /// The defaults, for this endpoint.
    pub fn new(name: impl Into<String>, url: impl Into<String>, secrets: impl IntoIterator<Item = Secret>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            secrets: secrets.into_iter().collect(),
            filter: EventFilter::All,
            timeout: Duration::from_secs(10),
            allow_private: false,
            concurrency: 4,
            source: "/vayu-articles".to_owned(),
            user_agent: concat!("vayu-articles/", env!("CARGO_PKG_VERSION")).to_owned(),
            start_at: StartAt::End,
            on_dead_letter: OnDeadLetter::Continue,
        }
    }

    /// Looks whether this can work, without asking the endpoint or a name server.
    ///
    /// # Errors
    /// The field that cannot, and why.
    pub fn check(&self) -> Result<(), WebhookOptionsError> {
        let wrong = |field, reason: &str| Err(WebhookOptionsError { field, reason: reason.to_owned() });
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX || !self.name.bytes().all(plain) {
            return wrong("name", "must be 1 to 40 lower-case letters, digits and -");
        }
        self.check_url()?;
        if self.secrets.is_empty() || self.secrets.len() > SECRETS_MAX {
            return wrong("secret", "must be there: 1 to 8 of them");
        }
        if let EventFilter::Types(patterns) = &self.filter {
            // Such a pattern would silently match nothing.
            let odd =
                |pattern: &String| pattern.is_empty() || pattern.strip_suffix('*').unwrap_or(pattern).contains('*');
            if patterns.is_empty() || patterns.iter().any(odd) {
                return wrong("types", "must be event types, each with a * at its end at most, such as article.*");
            }
        }
        if self.timeout.is_zero() || self.timeout > TIMEOUT_MAX {
            return wrong("timeout", "must be above zero and at most 25s: a handler's call takes 30 s");
        }
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            return wrong("concurrency", "must be 1 to 64");
        }
        if self.source.is_empty() {
            return wrong("source", "must not be empty");
        }
        if self.user_agent.is_empty() || !self.user_agent.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return wrong("user_agent", "must be visible ASCII characters");
        }
        Ok(())
    }

    /// The address may hold a secret: it is not quoted.
    fn check_url(&self) -> Result<(), WebhookOptionsError> {
        let wrong = |reason: &str| Err(WebhookOptionsError { field: "url", reason: reason.to_owned() });
        let Ok(uri) = self.url.parse::<Uri>() else { return wrong("must be a URL") };
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return wrong("must be an http or https URL with a host");
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return wrong("must have no user and no password in it: messages are signed instead");
        }
        if !self.allow_private {
            let refused = |refused| WebhookOptionsError { field: "url", reason: format!("is refused: {refused}") };
            guard::judge_host(&uri).map_err(refused)?;
        }
        Ok(())
    }

    /// Scheme, host and port.
    pub(super) fn shown_url(&self) -> String {
        let uri = self.url.parse::<Uri>().unwrap_or_default();
        if uri.scheme().is_none() {
            return "(no URL)".to_owned();
        }
        let port = uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}", uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default())
    }
}

impl fmt::Debug for WebhookOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookOptions")
            .field("name", &self.name)
            .field("url", &self.shown_url())
            .field("secrets", &self.secrets.len())
            .field("filter", &self.filter)
            .field("timeout", &self.timeout)
            .field("allow_private", &self.allow_private)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

/// A setting that cannot work: mend it as the reason says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookOptionsError {
    /// The field of [`WebhookOptions`].
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for WebhookOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.reason)
    }
}

impl std::error::Error for WebhookOptionsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_are_refused_by_name_and_nothing_secret_is_shown() {
        let secret: Secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let good = WebhookOptions::new("shop-1", "https://hooks.example.org:8443/T0/s3cret?k=s3cret", [secret.clone()]);
        good.check().unwrap();
        assert!(format!("{good:?}").contains("https://hooks.example.org:8443\""), "{good:?}");
        type Change = fn(&mut WebhookOptions);
        let table: [(&str, Change); 23] = [
            ("name", |o| o.name.clear()),
            ("name", |o| o.name = "Shop".into()),
            ("name", |o| o.name = "a:b".into()),
            ("name", |o| o.name = "x".repeat(41)),
            ("url", |o| o.url = "s3cret".into()),
            ("url", |o| o.url = "no url s3cret".into()),
            ("url", |o| o.url = "ftp://example.org/s3cret".into()),
            ("url", |o| o.url = "http:///s3cret".into()),
            ("url", |o| o.url = "https://me:s3cret@example.org/".into()),
            ("url", |o| o.url = "http://example.org@10.0.0.1/s3cret".into()),
            ("url", |o| o.url = "http://127.0.0.1/s3cret".into()),
            ("url", |o| o.url = "http://[::ffff:169.254.169.254]/s3cret".into()),
            ("url", |o| o.url = "http://localhost:8080/s3cret".into()),
            ("secret", |o| o.secrets.clear()),
            ("secret", |o| o.secrets = vec![o.secrets[0].clone(); 9]),
            ("types", |o| o.filter = EventFilter::Types(vec![])),
            ("types", |o| o.filter = EventFilter::Types(vec!["article.*.v1".into()])),
            ("timeout", |o| o.timeout = Duration::ZERO),
            ("timeout", |o| o.timeout = TIMEOUT_MAX + Duration::from_millis(1)),
            ("concurrency", |o| o.concurrency = 0),
            ("concurrency", |o| o.concurrency = 65),
            ("source", |o| o.source.clear()),
            ("user_agent", |o| o.user_agent = "a\r\nb".into()),
        ];
        for (field, change) in table {
            let mut options = good.clone();
            change(&mut options);
            let error = options.check().unwrap_err();
            assert_eq!(error.field, field, "{error}");
            for shown in [error.to_string(), format!("{options:?}")] {
                assert!(!shown.contains("s3cret") && !shown.contains("MfKQ"), "{shown}");
            }
        }
        let mut private = WebhookOptions::new("a", "http://127.0.0.1:1/", [secret]);
        private.allow_private = true;
        private.check().unwrap();
    }
}
