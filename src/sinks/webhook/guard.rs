//! Where a connection may go. Asked for every connection, with the very addresses that it is then made to: a name that
//! means something else by then gets no further, and neither does a number written in some other way.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

use super::network;

/// Finds the addresses of a host and port, within a few seconds; instead of the system's resolver.
pub type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// A target in somebody's own network, which nobody has allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    host: String,
    address: Option<IpAddr>,
    kind: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, kind } = self;
        match address {
            Some(address) if address.to_string() != *host => write!(f, "{host} is at {address}")?,
            _ => f.write_str(host)?,
        }
        write!(f, ", an address that is {kind}: nothing is sent there unless allow_private is true for this endpoint")
    }
}

impl std::error::Error for Refused {}

/// What is known of a target before anybody is asked: the host is an address, or the name of this very machine.
pub(super) fn judge_host(uri: &Uri) -> Result<(), Refused> {
    let host = host_of(uri);
    let refused = |address, kind| Err(Refused { host: host.to_owned(), address, kind });
    if let Ok(address) = host.parse::<IpAddr>() {
        return network::inside(address).map_or(Ok(()), |kind| refused(Some(address), kind));
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") { refused(None, "loopback") } else { Ok(()) }
}

/// The host of a URL, an address of IPv6 without its brackets.
fn host_of(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Resolves names and keeps what a connection may be made to.
pub(super) struct Guard {
    pub(super) allow_private: bool,
    pub(super) lookup: Option<Arc<Lookup>>,
    pub(super) system: DefaultResolver,
}

impl Guard {
    fn addresses(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<Vec<SocketAddr>, ureq::Error> {
        let Some(lookup) = &self.lookup else {
            return Ok(self.system.resolve(uri, config, timeout)?.iter().copied().collect());
        };
        let default_port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
        Ok(lookup(host_of(uri), uri.port_u16().unwrap_or(default_port))?)
    }
}

impl Resolver for Guard {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let (mut allowed, mut refused) = (self.empty(), None);
        for address in self.addresses(uri, config, timeout)?.into_iter().take(ADDRESSES_MAX) {
            match network::inside(address.ip()) {
                Some(kind) if !self.allow_private => {
                    refused.get_or_insert_with(|| Refused {
                        host: host_of(uri).to_owned(),
                        address: Some(address.ip()),
                        kind,
                    });
                }
                _ => allowed.push(address),
            }
        }
        match refused {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(refused) => Err(ureq::Error::Other(Box::new(refused))),
            None => Err(ureq::Error::HostNotFound),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("allow_private", &self.allow_private).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;

    fn judge(url: &str) -> Result<(), String> {
        judge_host(&url.parse().unwrap()).map_err(|refused| refused.to_string())
    }

    #[test]
    fn an_address_in_the_url_is_judged_before_anything_is_sent() {
        for url in ["http://example.org/", "https://8.8.8.8/x", "http://[2606:4700::1111]:8080/", "http://localhosts/"]
        {
            assert_eq!(judge(url), Ok(()));
        }
        for url in [
            "http://127.0.0.1/",
            "https://10.0.0.1:8443/",
            "http://[::1]:80/",
            "http://[::ffff:10.0.0.1]/",
            "http://0.0.0.0/",
        ] {
            assert!(judge(url).unwrap_err().contains("allow_private"), "{url}");
        }
        for url in ["http://localhost:8080/", "http://LocalHost./", "http://x.localhost/"] {
            assert!(judge(url).unwrap_err().contains("loopback"), "{url}");
        }
        let said = judge("http://[fd00::1]/").unwrap_err();
        assert!(said.starts_with("fd00::1, an address that is private:"), "{said}");
    }

    /// What the guard lets through of these lookups, one after the other.
    fn resolved(allow_private: bool, lookups: &[&str]) -> Vec<Result<String, String>> {
        let answers = Mutex::new(lookups.iter().map(|text| addresses(text)).collect::<VecDeque<_>>());
        let lookup: Arc<Lookup> = Arc::new(move |_, _| Ok(answers.lock().unwrap().pop_front().unwrap()));
        let guard = Guard { allow_private, lookup: Some(lookup), system: DefaultResolver::default() };
        let uri: Uri = "http://rebound.test:80/".parse().unwrap();
        let ask = |_| match guard.resolve(&uri, &Config::default(), NextTimeout::default()) {
            Ok(found) => Ok(found.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" ")),
            Err(error) => Err(error.to_string()),
        };
        lookups.iter().map(ask).collect()
    }

    fn addresses(text: &str) -> Vec<SocketAddr> {
        text.split_whitespace().map(|ip| SocketAddr::new(ip.parse().unwrap(), 80)).collect()
    }

    #[test]
    fn a_name_that_comes_to_mean_a_private_address_is_refused_from_then_on() {
        let said = resolved(false, &["93.184.216.34", "10.0.0.7", "::ffff:10.0.0.7", "93.184.216.34", ""]);
        assert_eq!(said[0], Ok("93.184.216.34".to_owned()));
        for refused in &said[1..3] {
            let reason = refused.as_ref().unwrap_err();
            assert!(reason.contains("rebound.test is at ") && reason.contains("private"), "{reason}");
        }
        assert_eq!(said[3], said[0]);
        assert!(said[4].is_err(), "a name without addresses");
    }

    #[test]
    fn of_several_addresses_only_those_of_the_internet_are_tried() {
        let mixed = "127.0.0.1 93.184.216.34 fd00::1 2606:4700::1111 169.254.169.254";
        assert_eq!(resolved(false, &[mixed]), [Ok("93.184.216.34 2606:4700::1111".to_owned())]);
        assert_eq!(resolved(true, &[mixed]), [Ok(mixed.to_owned())]);
        let many = vec!["93.184.216.34"; 40].join(" ");
        assert_eq!(resolved(false, &[&many])[0].as_ref().unwrap().split(' ').count(), ADDRESSES_MAX);
    }
}
