//! Lets one suspect run alone in this process: an event that may have killed a process must not be blamed for, or
//! hidden behind, what other lanes run at the same moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One gate for the whole process: a death takes all of it along.
static GATE: Gate = Gate::new();

/// A lane's own place at the gate: one call at a time goes through it.
#[derive(Debug)]
pub(super) struct Entrance {
    gate: &'static Gate,
    seat: &'static Seat,
}

impl Entrance {
    pub(super) fn new() -> Self {
        GATE.entrance()
    }

    /// Enters for an ordinary call; waits while a suspect runs, at most `limit`.
    pub(super) fn enter(&self, limit: Duration) -> Pass {
        let Self { gate, seat } = *self;
        let mut until = None;
        loop {
            seat.taken.store(true, Ordering::SeqCst);
            // Both sides write their own mark before they read the other's, so one of them sees it.
            let pass = Pass { waited: until.is_some(), gate, seat };
            if !gate.closed.load(Ordering::SeqCst) {
                return pass;
            }
            let until = *until.get_or_insert_with(|| self::until(limit));
            if Instant::now() >= until {
                return pass;
            }
            drop(pass);
            // The next suspect may be faster than we are, so look again after the wait.
            gate.wait_open(until);
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.gate.state().free.push(self.seat);
    }
}

/// Enters for a suspect: waits until no other call runs, at most `limit`, and keeps others out meanwhile.
pub(super) fn enter_alone(limit: Duration) -> AlonePass {
    GATE.enter_alone(limit)
}

/// Whether a suspect runs or waits to run: whoever enters now may wait long.
pub(super) fn is_closed() -> bool {
    GATE.closed.load(Ordering::SeqCst)
}

#[derive(Debug)]
struct Gate {
    closed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    suspects: usize,
    /// Every seat there ever was. They are given on, never freed, so there are at most as many as there were lanes at
    /// one time.
    seats: Vec<&'static Seat>,
    free: Vec<&'static Seat>,
}

/// Whether a call runs. One for each lane and each on a cache line of its own: a counter that all lanes write to, twice
/// per event, would cost more than the rest of a call.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Seat {
    taken: AtomicBool,
}

/// An ordinary call under way. Ends before its entrance does.
#[must_use]
pub(super) struct Pass {
    /// Whether a suspect was waited for.
    pub(super) waited: bool,
    gate: &'static Gate,
    seat: &'static Seat,
}

/// A suspect's call under way.
#[must_use]
pub(super) struct AlonePass(&'static Gate);

impl Gate {
    const fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            state: Mutex::new(State { suspects: 0, seats: Vec::new(), free: Vec::new() }),
            changed: Condvar::new(),
        }
    }

    fn entrance(&'static self) -> Entrance {
        let mut state = self.state();
        let seat = state.free.pop().unwrap_or_else(|| {
            let seat: &'static Seat = Box::leak(Box::default());
            state.seats.push(seat);
            seat
        });
        Entrance { gate: self, seat }
    }

    fn wait_open(&self, until: Instant) {
        let state = self.state();
        let left = until.saturating_duration_since(Instant::now());
        let _unused = self
            .changed
            .wait_timeout_while(state, left, |state| state.suspects > 0)
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn enter_alone(&'static self, limit: Duration) -> AlonePass {
        let until = until(limit);
        let mut state = self.state();
        // One suspect at a time.
        while state.suspects > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.suspects += 1;
        self.closed.store(true, Ordering::SeqCst);
        while state.seats.iter().any(|seat| seat.taken.load(Ordering::SeqCst)) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // A call that ends notifies without the lock on its fast path, so a short look now and then is needed.
            let look = left.min(Duration::from_millis(5));
            state = self.changed.wait_timeout(state, look).unwrap_or_else(PoisonError::into_inner).0;
        }
        AlonePass(self)
    }

    #[cfg(test)]
    fn calls_run(&self) -> bool {
        self.state().seats.iter().any(|seat| seat.taken.load(Ordering::SeqCst))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.seat.taken.store(false, Ordering::Release);
        if self.gate.closed.load(Ordering::Relaxed) {
            self.gate.changed.notify_all();
        }
    }
}

impl Drop for AlonePass {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.suspects = state.suspects.saturating_sub(1);
        if state.suspects == 0 {
            self.0.closed.store(false, Ordering::SeqCst);
        }
        drop(state);
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
        let (entrance, late) = (gate.entrance(), gate.entrance());
        let running = entrance.enter(long);
        let (entered, saw_entered) = bounded(1);
        let (finish, may_finish) = bounded::<()>(1);
        let suspect = std::thread::spawn(move || {
            let pass = gate.enter_alone(long);
            entered.send(gate.calls_run()).unwrap();
            may_finish.recv().unwrap();
            drop(pass);
        });
        while !gate.closed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert!(saw_entered.try_recv().is_err(), "the suspect must wait for the running call");
        drop(running);
        assert!(!saw_entered.recv().unwrap());
        let late = std::thread::spawn(move || drop(late.enter(long)));
        finish.send(()).unwrap();
        suspect.join().unwrap();
        late.join().unwrap();
        assert!(!gate.calls_run());
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
            let entrance = gate.entrance();
            (0..500).for_each(|_| {
                let pass = entrance.enter(long);
                INSIDE.store(true, Ordering::SeqCst);
                std::thread::yield_now();
                INSIDE.store(false, Ordering::SeqCst);
                drop(pass);
            });
        });
        suspects.into_iter().chain([ordinary]).for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_lane_that_ends_leaves_its_seat_to_the_next() {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        for _ in 0..10 {
            let (one, two) = (gate.entrance(), gate.entrance());
            drop((one.enter(Duration::ZERO), two.enter(Duration::ZERO)));
        }
        assert_eq!(gate.state().seats.len(), 2);
    }

    #[test]
    fn nobody_waits_longer_than_the_limit() {
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        let (stuck, other) = (gate.entrance(), gate.entrance());
        let _stuck = stuck.enter(Duration::ZERO);
        let alone = gate.enter_alone(Duration::from_millis(20));
        drop(other.enter(Duration::from_millis(20)));
        drop(alone);
        assert!(!gate.closed.load(Ordering::SeqCst));
    }
}
