//! How often and how soon: the numbers behind the four outcomes, in one object.

use std::time::Duration;

/// When a failed call is made again, and when it is given up. The defaults come from the project's design.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Calls of a failing event before it is a dead letter; 3.
    pub max_calls: u32,
    /// Wait after the first failed call; doubles from there. 5 s.
    pub backoff_base: Duration,
    /// Longest wait between two calls. 120 s.
    pub backoff_max: Duration,
    /// First pause of a lane whose transport is down; doubles from there. 5 s.
    pub pause_base: Duration,
    /// Longest pause, also the cap of what the other side may ask for. 120 s.
    pub pause_max: Duration,
    /// Deaths of the process while an event ran alone before it is a dead letter; 3.
    pub max_crashes: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_calls: 3,
            backoff_base: Duration::from_secs(5),
            backoff_max: Duration::from_secs(120),
            pause_base: Duration::from_secs(5),
            pause_max: Duration::from_secs(120),
            max_crashes: 3,
        }
    }
}

impl Policy {
    /// Wait after the `failed`-th failed call (from 1): 5 s, 10 s, 20 s … 120 s.
    pub fn retry_delay(&self, failed: u32) -> Duration {
        doubled(self.backoff_base, failed.saturating_sub(1), self.backoff_max)
    }

    /// Pause after the `failed`-th failed probe (from 1): the doubled base plus up to a quarter of it at random, never
    /// above the cap; what the other side asked for counts if it is longer, up to the cap. `random` is in `0.0..1.0`.
    pub fn pause_delay(&self, failed: u32, retry_after: Option<Duration>, random: f64) -> Duration {
        let base = doubled(self.pause_base, failed.saturating_sub(1), self.pause_max);
        let share = if random.is_finite() { random.clamp(0.0, 1.0) } else { 0.0 };
        let jittered = base.saturating_add(base.mul_f64(share / 4.0));
        jittered.max(retry_after.unwrap_or_default()).min(self.pause_max)
    }

    /// The longest wait that this policy ever writes down; a time further ahead means that the clock was set back.
    pub fn longest_wait(&self) -> Duration {
        self.backoff_max.max(self.pause_max)
    }
}

fn doubled(base: Duration, times: u32, max: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(max)
}

/// The sum of the first `count` delays that [`doubled`] gives.
pub(super) fn doubled_sum(base: Duration, count: u32, max: Duration) -> Duration {
    /// From here on the factor, and so the delay, does not grow any more.
    const GROWS_FOR: u32 = 32;
    let growing: Duration =
        (0..count.min(GROWS_FOR)).fold(Duration::ZERO, |sum, times| sum.saturating_add(doubled(base, times, max)));
    let rest = count.saturating_sub(GROWS_FOR);
    growing.saturating_add(doubled(base, GROWS_FOR, max).saturating_mul(rest))
}

/// Whole milliseconds, saturating.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn original_03_three_calls_and_a_first_delay_of_five_seconds() {
        let policy = Policy::default();
        assert_eq!(policy.max_calls, 3);
        let delays: Vec<u64> = (1..=6).map(|n| policy.retry_delay(n).as_secs()).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 120]);
    }

    #[test]
    fn case_c50_delays_neither_overflow_nor_shrink_nor_vanish() {
        for base in [Duration::from_millis(1), Duration::from_secs(5), Duration::from_secs(86_400)] {
            let max = Duration::from_secs(3_600);
            let policy =
                Policy { backoff_base: base, backoff_max: max, pause_base: base, pause_max: max, ..Policy::default() };
            let mut last = Duration::ZERO;
            for n in (0..=100).chain([u32::MAX]) {
                let delay = policy.retry_delay(n);
                assert!(delay >= last && delay <= max && !delay.is_zero(), "base {base:?}, n {n}: {delay:?}");
                last = delay;
                for random in [0.0, 0.5, 1.0, f64::NAN, -1.0, f64::INFINITY] {
                    let pause = policy.pause_delay(n, None, random);
                    assert!(!pause.is_zero() && pause <= max, "base {base:?}, n {n}, random {random}: {pause:?}");
                }
            }
        }
    }

    /// Any length, and often one at the edges of what fits.
    fn any_duration() -> impl Strategy<Value = Duration> {
        let edges = [0, 1, 999_999, u64::from(u32::MAX), u64::MAX / 2, u64::MAX];
        prop_oneof![
            (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
            any::<u32>().prop_map(|millis| Duration::from_millis(millis.into())),
            proptest::sample::select(edges.to_vec()).prop_map(Duration::from_secs),
            proptest::sample::select(edges.to_vec()).prop_map(Duration::from_nanos),
            Just(Duration::MAX),
        ]
    }

    fn any_count() -> impl Strategy<Value = u32> {
        prop_oneof![0..70_u32, any::<u32>(), Just(u32::MAX)]
    }

    proptest! {
        /// Numbers from settings and from the other side, however absurd: no panic, and the promises of each function hold.
        #[test]
        fn case_c50_no_number_overflows(
            backoff in (any_duration(), any_duration()),
            pause in (any_duration(), any_duration()),
            failed in any_count(),
            retry_after in proptest::option::of(any_duration()),
            random in any::<f64>(),
        ) {
            let (backoff_base, backoff_max) = backoff;
            let (pause_base, pause_max) = pause;
            let policy = Policy { backoff_base, backoff_max, pause_base, pause_max, ..Policy::default() };
            let delay = policy.retry_delay(failed);
            prop_assert!(delay <= backoff_max && delay >= backoff_base.min(backoff_max));
            prop_assert!(policy.retry_delay(failed.saturating_add(1)) >= delay);
            let least = policy.pause_delay(failed, None, 0.0);
            let pause = policy.pause_delay(failed, retry_after, random);
            prop_assert!(pause >= least && pause <= pause_max);
            prop_assert!(pause >= retry_after.unwrap_or_default().min(pause_max));
            let sum = doubled_sum(backoff_base, failed, backoff_max);
            prop_assert!(sum >= doubled_sum(backoff_base, failed.saturating_sub(1), backoff_max));
            prop_assert!(failed == 0 || sum >= backoff_base.min(backoff_max));
            prop_assert!(millis(delay) >= 0 && millis(sum) >= 0 && millis(policy.longest_wait()) >= millis(delay));
        }

        /// The sum is that of the single delays, as far as these can be added one by one.
        #[test]
        fn the_sum_of_delays_is_that_of_each(base in any_duration(), count in 0..70_u32, max in any_duration()) {
            let one_by_one = (0..count).fold(Duration::ZERO, |sum, times| sum.saturating_add(doubled(base, times, max)));
            prop_assert_eq!(doubled_sum(base, count, max), one_by_one);
        }
    }

    #[test]
    fn case_c53_a_long_retry_after_is_capped() {
        let policy = Policy::default();
        assert_eq!(policy.pause_delay(1, Some(Duration::from_secs(2)), 0.0), Duration::from_secs(5));
        assert_eq!(policy.pause_delay(1, Some(Duration::from_secs(30)), 0.9), Duration::from_secs(30));
        assert_eq!(policy.pause_delay(1, Some(Duration::from_secs(99_999)), 0.9), Duration::from_secs(120));
    }
}
