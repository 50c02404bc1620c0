//! Whether a request comes from this machine itself, and not through a proxy that serves others.

use std::net::IpAddr;

use hyper::header::{FORWARDED, HOST, HeaderName, VIA};

use super::engine::Request;

/// What proxies add.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// A loopback peer that asks for a loopback name and shows no sign of a proxy. When in doubt, it does not.
pub(super) fn is_local(request: &Request) -> bool {
    let proxied = [FORWARDED, VIA, FORWARDED_FOR, REAL_IP].iter().any(|name| request.headers.contains_key(name));
    let host = request.headers.get(HOST).and_then(|host| host.to_str().ok());
    request.peer.ip().is_loopback() && !proxied && host.is_some_and(is_loopback_name)
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_local() {
        for local in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.9.9.9:1", "[::1]", "[::1]:8080"] {
            assert!(is_loopback_name(local), "{local}");
        }
        for other in ["", "example.org", "localhost.example.org", "127.0.0.1.example.org:80", "0.0.0.0", "[::2]:80"] {
            assert!(!is_loopback_name(other), "{other}");
        }
    }
}
