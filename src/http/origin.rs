//! Which web pages may write.
//!
//! The server has no access control: whoever reaches the loopback address may write. A browser on this machine reaches
//! it on behalf of any page it shows, also under a name of that page's choice which resolves to 127.0.0.1. It says so
//! in `Origin`, which no page can leave out or forge for a write. Programs that are no browser send none.

use std::net::IpAddr;

use hyper::header::ORIGIN;
use hyper::{HeaderMap, StatusCode, Uri};

use super::problem::Problem;

/// # Errors
/// 403 `cross_origin`: a page that does not come from this machine wants to write.
pub(super) fn may_write(headers: &HeaderMap) -> Result<(), Problem> {
    for origin in headers.get_all(ORIGIN) {
        if !origin.to_str().is_ok_and(is_loopback) {
            let message = format!(
                "a page of the origin {origin:?} may not write here: the server has no access control, so only pages \
                 served from localhost, 127.0.0.1 or [::1] may"
            );
            return Err(Problem::new(StatusCode::FORBIDDEN, "cross_origin", message));
        }
    }
    Ok(())
}

/// `null`, which sandboxed pages and local files send, is nobody's origin.
fn is_loopback(origin: &str) -> bool {
    let Ok(uri) = origin.parse::<Uri>() else { return false };
    let (Some(_), Some(host)) = (uri.scheme(), uri.host()) else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_at_home() {
        for origin in [
            "http://localhost",
            "http://LOCALHOST:8080",
            "https://127.0.0.1:3000",
            "http://127.9.9.9",
            "http://[::1]:8080",
        ] {
            assert!(is_loopback(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "localhost",
            "https://example.org",
            "http://localhost.example.org",
            "http://localhost@example.org",
            "http://127.0.0.1.example.org:8080",
            "http://0.0.0.0:8080",
            "http://192.168.1.1",
            "http://[::2]",
            "file://",
        ] {
            assert!(!is_loopback(origin), "{origin}");
        }
    }
}
