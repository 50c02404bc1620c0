//! What an answer, or none, means for a purge.

use crate::outbox::DispatchError;
use crate::sinks::answer;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Purged, or not there to be purged.
    Done,
    /// The call was too large, or something in it was not liked.
    Split(DispatchError),
    /// The service refuses all of it, whatever is in it.
    Refused(DispatchError),
    /// Anything else.
    Failed(DispatchError),
}

/// The status line decides, as the table in the module's text says. `detail` is what the service said; `now_ms`
/// milliseconds since the Unix epoch.
pub(super) fn judge(status: u16, retry_after: Option<&str>, detail: &str, now_ms: i64) -> Verdict {
    let reason = format!("the CDN answered {status}{}{detail}", if detail.is_empty() { "" } else { ": " });
    match status {
        200..=299 | 404 | 410 => Verdict::Done,
        400 | 413 | 422 => Verdict::Split(DispatchError::Poison { reason }),
        // A token that is wrong or has expired is no fault of the event: it would make dead letters of all of them.
        401 | 403 | 407 => {
            let reason = format!("{reason} (does it still accept the token? Mend it and start again: nothing is lost)");
            Verdict::Failed(DispatchError::unavailable(reason))
        }
        408 | 429 | 502..=504 => {
            let retry_after = retry_after.and_then(|value| answer::retry_after(value, now_ms));
            Verdict::Failed(DispatchError::Unavailable { reason, retry_after })
        }
        500..=599 => Verdict::Failed(DispatchError::Retry { reason }),
        _ => Verdict::Refused(DispatchError::Poison { reason }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn case_c53_each_status_has_its_meaning() {
        for status in [200, 202, 204, 404, 410] {
            assert_eq!(judge(status, None, "", 0), Verdict::Done, "{status}");
        }
        for status in [400, 413, 422] {
            assert!(matches!(judge(status, None, "", 0), Verdict::Split(DispatchError::Poison { .. })), "{status}");
        }
        for status in [100, 301, 302, 307, 308, 402, 405, 409, 418, 451, 600, 999] {
            assert!(matches!(judge(status, None, "", 0), Verdict::Refused(DispatchError::Poison { .. })), "{status}");
        }
        for status in [401, 403, 407] {
            // However long it asks to wait: the lane asks again at its own pace.
            match judge(status, Some("99999"), "", 0) {
                Verdict::Failed(DispatchError::Unavailable { reason, retry_after: None }) => {
                    assert!(reason.contains("token"), "{status}: {reason}");
                }
                other => panic!("{status}: {other:?}"),
            }
        }
        for status in [408, 429, 502, 503, 504] {
            let expected = Some(Duration::from_secs(7));
            match judge(status, Some("7"), "", 0) {
                Verdict::Failed(DispatchError::Unavailable { retry_after, .. }) => assert_eq!(retry_after, expected),
                other => panic!("{status}: {other:?}"),
            }
        }
        for status in [500, 501, 507, 520, 599] {
            assert!(matches!(judge(status, None, "", 0), Verdict::Failed(DispatchError::Retry { .. })), "{status}");
        }
    }
}
