//! Lets one suspect run alone in this process: an event that may have killed a process must not be blamed for, or
//! hidden behind, what other lanes run at the same moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One gate for the whole process: a death takes all of it along.
static GATE: Gate = Gate::new();

/// Enters for an ordinary call; waits while a suspect runs, at most `limit`.
pub(super) fn enter(limit: Duration) -> Pass {
    GATE.enter(limit)
}

/// Enters for a suspect: waits until no other call runs, at most `limit`, and keeps others out meanwhile.
pub(super) fn enter_alone(limit: Duration) -> AlonePass {
    GATE.enter_alone(limit)
}

struct Gate {
    running: AtomicUsize,
    closed: AtomicBool,
    suspects: Mutex<usize>,
    changed: Condvar,
}

/// Whether a suspect runs or waits to run: whoever enters now may wait long.
pub(super) fn is_closed() -> bool {
    GATE.closed.load(Ordering::SeqCst)
}

/// An ordinary call under way.
#[must_use]
pub(super) struct Pass(&'static Gate);

/// A suspect's call under way.
#[must_use]
pub(super) struct AlonePass(&'static Gate);

impl Gate {
    const fn new() -> Self {
        Self {
            running: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            suspects: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn enter(&'static self, limit: Duration) -> Pass {
        let until = until(limit);
        loop {
            self.running.fetch_add(1, Ordering::SeqCst);
            // Both sides write their own mark before they read the other's, so one of them sees it.
            if !self.closed.load(Ordering::SeqCst) || Instant::now() >= until {
                return Pass(self);
            }
            self.leave();
            // The next suspect may be faster than we are, so look again after the wait.
            self.wait_open(until);
        }
    }

    fn wait_open(&self, until: Instant) {
        let suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.saturating_duration_since(Instant::now());
        let _unused = self
            .changed
            .wait_timeout_while(suspects, left, |suspects| *suspects > 0)
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn enter_alone(&'static self, limit: Duration) -> AlonePass {
        let until = until(limit);
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        // One suspect at a time.
        while *suspects > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            suspects = self.changed.wait_timeout(suspects, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *suspects += 1;
        self.closed.store(true, Ordering::SeqCst);
        while self.running.load(Ordering::SeqCst) > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // `leave` notifies without the lock on its fast path, so a short look now and then is needed.
            let look = left.min(Duration::from_millis(5));
            suspects = self.changed.wait_timeout(suspects, look).unwrap_or_else(PoisonError::into_inner).0;
        }
        AlonePass(self)
    }

    fn leave(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            self.changed.notify_all();
        }
    }
}

/// A limit can be any duration, also one that no clock reaches.
fn until(limit: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(86_400);
    let now = Instant::now();
    now + limit.min(FAR)
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Drop for AlonePass {
    fn drop(&mut self) {
        let mut suspects = self.0.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        *suspects = suspects.saturating_sub(1);
        if *suspects == 0 {
            self.0.closed.store(false, Ordering::SeqCst);
        }
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;

    #[test]
    fn a_suspect_waits_for_running_calls_and_keeps_new_ones_out() {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        let long = Duration::from_secs(60);
        let running = gate.enter(long);
        let (entered, saw_entered) = bounded(1);
        let (finish, may_finish) = bounded::<()>(1);
        let suspect = std::thread::spawn(move || {
            let pass = gate.enter_alone(long);
            entered.send(gate.running.load(Ordering::SeqCst)).unwrap();
            may_finish.recv().unwrap();
            drop(pass);
        });
        while !gate.closed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(saw_entered.try_recv().is_err(), "the suspect must wait for the running call");
        drop(running);
        assert_eq!(saw_entered.recv().unwrap(), 0);
        let late = std::thread::spawn(move || drop(gate.enter(long)));
        finish.send(()).unwrap();
        suspect.join().unwrap();
        late.join().unwrap();
        assert_eq!(gate.running.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn who_waited_for_one_suspect_does_not_slip_in_beside_the_next() {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        let long = Duration::MAX;
        static INSIDE: AtomicBool = AtomicBool::new(false);
        let suspects: Vec<_> = (0..2)
            .map(|_| {
                std::thread::spawn(move || {
                    (0..500).for_each(|_| {
                        let alone = gate.enter_alone(long);
                        (0..20).for_each(|_| assert!(!INSIDE.load(Ordering::SeqCst), "somebody runs beside a suspect"));
                        drop(alone);
                    });
                })
            })
            .collect();
        let ordinary = std::thread::spawn(move || {
            (0..500).for_each(|_| {
                let pass = gate.enter(long);
                INSIDE.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                INSIDE.store(false, Ordering::SeqCst);
                drop(pass);
            });
        });
        suspects.into_iter().chain([ordinary]).for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn nobody_waits_longer_than_the_limit() {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        let _stuck = gate.enter(Duration::ZERO);
        let alone = gate.enter_alone(Duration::from_millis(20));
        drop(gate.enter(Duration::from_millis(20)));
        drop(alone);
        assert!(!gate.closed.load(Ordering::SeqCst));
    }
}
