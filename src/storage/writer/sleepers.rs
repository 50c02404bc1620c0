//! Waking the callers of a group.
//!
//! Each wake-up is a system call, and with many callers they cost the queue-writer as much as a third of its statements. So it
//! wakes a few, and each of those wakes the next ones before it goes on with its own affairs; the writer is at its next group by
//! then. Nobody depends on that: what is left, the writer wakes itself when it has nothing else to do, and before it commits.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// How many the writer wakes at once, and each caller in its turn.
const WAKE: usize = 2;

/// Callers whose answer is there and who are not awake yet.
#[derive(Debug, Default)]
pub(super) struct Sleepers(Mutex<Vec<Thread>>);

impl Sleepers {
    /// Takes over a group's callers, first come first served, and wakes the first ones. Leaves `callers` empty.
    pub(super) fn add(&self, callers: &mut Vec<Thread>) {
        {
            let mut sleepers = self.lock();
            // Taken from the end.
            callers.reverse();
            sleepers.append(callers);
        }
        self.wake_next();
    }

    /// A caller that is awake wakes the next ones.
    pub(super) fn wake_next(&self) {
        for _ in 0..WAKE {
            if !self.wake_one() {
                return;
            }
        }
    }

    /// Says whether there was one.
    pub(super) fn wake_one(&self) -> bool {
        let next = self.lock().pop();
        next.map(|caller| caller.unpark()).is_some()
    }

    pub(super) fn wake_all(&self) {
        while self.wake_one() {}
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    const CALLERS: usize = 20;

    /// Callers that sleep until they are woken once; `pass_on`: whether they wake others then.
    fn asleep(sleepers: &Arc<Sleepers>, awake: &Arc<AtomicUsize>, pass_on: bool) -> Vec<thread::JoinHandle<()>> {
        let caller = |_| {
            let (sleepers, awake) = (Arc::clone(sleepers), Arc::clone(awake));
            thread::spawn(move || {
                // Whatever else unparks a thread, here nothing does.
                thread::park();
                awake.fetch_add(1, SeqCst);
                if pass_on {
                    sleepers.wake_next();
                }
            })
        };
        (0..CALLERS).map(caller).collect()
    }

    fn handles(callers: &[thread::JoinHandle<()>]) -> Vec<Thread> {
        callers.iter().map(|caller| caller.thread().clone()).collect()
    }

    #[test]
    fn callers_wake_each_other() {
        let (sleepers, awake) = (Arc::new(Sleepers::default()), Arc::new(AtomicUsize::new(0)));
        let callers = asleep(&sleepers, &awake, true);
        sleepers.add(&mut handles(&callers));
        callers.into_iter().for_each(|caller| caller.join().expect("an end"));
        assert_eq!(awake.load(SeqCst), CALLERS);
        assert!(!sleepers.wake_one());
    }

    #[test]
    fn whom_no_caller_wakes_the_writer_does() {
        let (sleepers, awake) = (Arc::new(Sleepers::default()), Arc::new(AtomicUsize::new(0)));
        let callers = asleep(&sleepers, &awake, false);
        sleepers.add(&mut handles(&callers));
        let until = Instant::now() + Duration::from_secs(30);
        while awake.load(SeqCst) < WAKE {
            assert!(Instant::now() < until, "nobody was woken");
            thread::yield_now();
        }
        assert_eq!(awake.load(SeqCst), WAKE, "the rest sleeps on");
        assert!(sleepers.wake_one());
        sleepers.wake_all();
        callers.into_iter().for_each(|caller| caller.join().expect("an end"));
    }
}
