//! What an endpoint's answer means for the event.

use crate::outbox::DispatchError;
use crate::sinks::answer::{RETRY_AFTER_MAX, retry_after};

/// The status line decides, as the table in the module's text says. `detail` is what the endpoint said; `now_ms`
/// milliseconds since the Unix epoch.
pub(super) fn judge(status: u16, wait: Option<&str>, detail: &str, now_ms: i64) -> Result<(), DispatchError> {
    let reason = format!("the endpoint answered {status}{}{detail}", if detail.is_empty() { "" } else { ": " });
    let advised = |advice: &str| format!("{reason} ({advice})");
    Err(match status {
        200..=299 => return Ok(()),
        300..=399 => DispatchError::poison(advised("redirects are not followed: set the new address")),
        // Whoever was told a new secret, or whose clock was wrong, gets everything once that is mended.
        401 | 403 | 407 => DispatchError::unavailable(advised("does it have the secret, and the right time?")),
        410 => DispatchError::Unavailable {
            reason: advised("it wants no more: take it out of the settings and retire its handler"),
            retry_after: Some(RETRY_AFTER_MAX),
        },
        408 | 425 | 429 | 502..=504 => {
            DispatchError::Unavailable { reason, retry_after: wait.and_then(|value| retry_after(value, now_ms)) }
        }
        500..=599 => DispatchError::retry(reason),
        _ => DispatchError::poison(reason),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn case_c53_each_status_has_its_meaning() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(judge(status, None, "", 0), Ok(()), "{status}");
        }
        for status in [100, 300, 301, 302, 307, 308, 400, 402, 404, 405, 409, 413, 418, 422, 451, 600, 999] {
            assert!(matches!(judge(status, Some("2"), "", 0), Err(DispatchError::Poison { .. })), "{status}");
        }
        for status in [500, 501, 507, 520, 599] {
            assert!(matches!(judge(status, Some("2"), "", 0), Err(DispatchError::Retry { .. })), "{status}");
        }
        let seconds = |n| Some(Duration::from_secs(n));
        for (statuses, asked, expected) in [
            (&[408, 425, 429, 502, 503, 504][..], Some("7"), seconds(7)),
            (&[408, 425, 429, 502, 503, 504], Some("99999"), seconds(120)),
            (&[408, 425, 429, 502, 503, 504], Some("soon"), None),
            (&[408, 425, 429, 502, 503, 504], None, None),
            // However long these ask to wait: the lane asks again at its own pace.
            (&[401, 403, 407], Some("7"), None),
            (&[410], Some("7"), seconds(120)),
        ] {
            for status in statuses {
                match judge(*status, asked, "", 0) {
                    Err(DispatchError::Unavailable { retry_after, .. }) => {
                        assert_eq!(retry_after, expected, "{status}")
                    }
                    other => panic!("{status}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_reason_says_what_was_answered() {
        let reason = |status, detail| judge(status, None, detail, 0).unwrap_err().to_string();
        assert_eq!(reason(422, "no such shop"), "will never work: the endpoint answered 422: no such shop");
        assert_eq!(reason(500, ""), "failed: the endpoint answered 500");
        assert!(reason(401, "").contains("secret") && reason(301, "").contains("address"));
    }
}
