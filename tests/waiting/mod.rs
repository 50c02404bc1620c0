//! Waiting for what another thread or another process does.
#![allow(dead_code, reason = "each test program uses a part")]

use std::time::{Duration, Instant};

/// Longer than anything takes here, however busy the machine is.
pub const LONG: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Looks again and again until `so` holds.
pub fn wait_until(what: &str, so: impl FnMut() -> bool) {
    wait_or(so, || what.to_owned());
}

/// [`wait_until`] that explains itself when it was in vain.
pub fn wait_or(mut so: impl FnMut() -> bool, explain: impl Fn() -> String) {
    let until = Instant::now() + LONG;
    while !so() {
        assert!(Instant::now() < until, "waited in vain: {}", explain());
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
}
