//! One request to the cache, in the shape that it understands, and what its answer means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::{Request, Response, Uri, header};

use super::answer::{self, Verdict};
use super::options::{self, CdnOptions, CdnOptionsError, CdnShape, Checked};
use crate::clock::SharedClock;
use crate::outbox::DispatchError;
use crate::sinks::answer::excerpt;

/// An answer's body is read up to here, in bytes.
const BODY_MAX: u64 = 16 << 10;
/// Most keys in one call: what the widely used services take.
const KEYS_MAX: usize = 250;

/// Sends purges.
pub(super) struct Caller {
    pub(super) options: CdnOptions,
    checked: Checked,
    agent: Agent,
    clock: SharedClock,
    /// A 404 that may mean a wrong endpoint has been noted.
    wondered: AtomicBool,
}

impl Caller {
    /// # Errors
    /// A setting cannot work.
    pub(super) fn new(options: CdnOptions, clock: SharedClock) -> Result<Self, CdnOptionsError> {
        let mut checked = options::check(&options)?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .allow_non_standard_methods(true)
            .proxy(checked.proxy.take())
            .user_agent(concat!("vayu-articles/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { options, checked, agent: config.into(), clock, wondered: AtomicBool::new(false) })
    }

    /// `items` in lists that fit into one call each, in their order.
    pub(super) fn calls(&self, items: Vec<String>) -> Vec<Vec<String>> {
        match self.options.shape {
            CdnShape::Json => items.chunks(self.options.max_urls).map(<[String]>::to_vec).collect(),
            CdnShape::Purge | CdnShape::Ban => items.into_iter().map(|item| vec![item]).collect(),
            CdnShape::Keys => in_headers(items, self.options.max_key_bytes),
        }
    }

    /// One call, repeated once if the service stumbles.
    pub(super) fn call(&self, items: &[String], deadline: Instant) -> Verdict {
        let verdict = self.send(items, deadline);
        match verdict {
            Verdict::Failed(DispatchError::Retry { .. }) => self.send(items, deadline),
            verdict => verdict,
        }
    }

    fn send(&self, items: &[String], deadline: Instant) -> Verdict {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Verdict::Failed(DispatchError::unavailable("the CDN is slow: the rest is purged later"));
        }
        let mut response = match self.run(items, self.options.timeout.min(left)) {
            Ok(response) => response,
            Err(error) => return Verdict::Failed(DispatchError::from(error).context("the CDN cannot be reached")),
        };
        // Read to its end, so that the connection can be used again. The status has decided already.
        let body = response.body_mut().with_config().limit(BODY_MAX).read_to_vec().unwrap_or_default();
        let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let status = response.status().as_u16();
        if status == 404 && !self.options.shape.is_single() && !self.wondered.swap(true, Ordering::Relaxed) {
            log::warn!(
                "event=cdn_not_found shape={} counts as purged; is the endpoint right?",
                self.options.shape.as_str()
            );
        }
        answer::judge(status, retry_after, &self.detail(&body), self.clock.now_ms())
    }

    fn run(&self, items: &[String], timeout: Duration) -> Result<Response<ureq::Body>, ureq::Error> {
        let mut request = Request::builder().method(self.checked.method.clone());
        if let Some((name, value)) = &self.checked.authorization {
            request = request.header(name, value);
        }
        match (self.options.shape, items.first()) {
            (CdnShape::Purge | CdnShape::Ban, Some(url)) => {
                let (uri, host) = self.at_the_cache(url)?;
                self.sent(request.uri(uri).header(header::HOST, host).body(())?, timeout)
            }
            (CdnShape::Keys, _) => {
                let request = request.uri(&self.options.endpoint).header(&self.checked.key_header, items.join(" "));
                self.sent(request.body("")?, timeout)
            }
            _ => {
                let body = serde_json::json!({ "files": items }).to_string();
                let request = request.uri(&self.options.endpoint).header(header::CONTENT_TYPE, "application/json");
                self.sent(request.body(body)?, timeout)
            }
        }
    }

    fn sent(
        &self,
        request: Request<impl ureq::AsSendBody>,
        timeout: Duration,
    ) -> Result<Response<ureq::Body>, ureq::Error> {
        self.agent.run(self.agent.configure_request(request).timeout_global(Some(timeout)).build())
    }

    /// The address `url` of the site as it is asked of the cache itself, and the `Host` under which readers know it.
    fn at_the_cache(&self, url: &str) -> Result<(Uri, String), ureq::http::Error> {
        let (of_site, endpoint): (Uri, Uri) = (url.parse()?, self.options.endpoint.parse()?);
        let host = of_site.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let mut parts = endpoint.into_parts();
        parts.path_and_query = of_site.into_parts().path_and_query;
        Ok((Uri::from_parts(parts)?, host))
    }

    /// The beginning of what the service said, in one line and without the token.
    fn detail(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        let text = match &self.options.token {
            Some(token) if !token.is_empty() => text.replace(token.as_str(), "(hidden)"),
            _ => text.into_owned(),
        };
        excerpt(&text)
    }
}

/// Lists of at most [`KEYS_MAX`] keys that have at most `max_bytes` with the spaces between them.
fn in_headers(keys: Vec<String>, max_bytes: usize) -> Vec<Vec<String>> {
    let mut lists: Vec<Vec<String>> = Vec::new();
    let mut bytes = 0;
    for key in keys {
        bytes += 1 + key.len();
        match lists.last_mut().filter(|list| list.len() < KEYS_MAX && bytes <= max_bytes) {
            Some(list) => list.push(key),
            None => {
                bytes = key.len();
                lists.push(vec![key]);
            }
        }
    }
    lists
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_a_header_up_to_its_limits() {
        let keys = |count: usize| (0..count).map(|number| format!("{number:09}")).collect::<Vec<_>>();
        let sizes = |count, bytes| in_headers(keys(count), bytes).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(10, 49), [5, 5], "five keys and four spaces");
        assert_eq!(sizes(10, 48), [4, 4, 2]);
        assert_eq!(sizes(600, 1_000_000), [250, 250, 100]);
        assert_eq!(sizes(0, 100), [0; 0]);
        assert_eq!(in_headers(keys(600), 777).concat(), keys(600), "each once, in order");
    }
}
