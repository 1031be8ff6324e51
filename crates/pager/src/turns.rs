//! Turns at a lock. A thread that takes a mutex again and again in short parts keeps others out: a
//! waiter that the unlock has woken finds it taken again. So work in parts lets others go first.

use crate::locks::{Held, Lock};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Longest wait for the others: they may get no CPU.
pub const OTHERS_TAKE: Duration = Duration::from_millis(20);
/// Pause between two polls: a waiter needs about as long to wake.
const POLL: Duration = Duration::from_micros(20);

/// Counts the threads that had to wait for a lock: those that came, and those that got it.
#[derive(Debug, Default)]
pub struct Turns {
    came: AtomicU64,
    served: AtomicU64,
}

impl Turns {
    /// Locks the mutex.
    #[track_caller]
    pub fn lock<'a, T, const RANK: u8>(&self, lock: &'a Lock<T, RANK>) -> Held<'a, T> {
        lock.assert_order();
        lock.try_lock().unwrap_or_else(|| {
            self.came.fetch_add(1, SeqCst);
            let held = lock.lock();
            self.served.fetch_add(1, SeqCst);
            held
        })
    }

    /// Returns when as many threads have had the lock as wait for it now, or after `at_most`. The
    /// caller does not have the lock.
    pub fn let_others(&self, at_most: Duration) {
        let (begun, waiting) = (Instant::now(), self.came.load(SeqCst));
        while self.served.load(SeqCst) < waiting && begun.elapsed() < at_most {
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::rank;

    #[test]
    fn who_waits_goes_first() {
        let (turns, lock) = (Turns::default(), Lock::<_, { rank::CORE }>::new(Vec::new()));
        turns.let_others(Duration::MAX);
        std::thread::scope(|scope| {
            let mut mine = turns.lock(&lock);
            for name in ["first", "second"] {
                let (turns, lock) = (&turns, &lock);
                scope.spawn(move || turns.lock(lock).push(name));
            }
            while turns.came.load(SeqCst) < 2 {
                std::thread::sleep(POLL);
            }
            mine.push("part");
            drop(mine);
            turns.let_others(Duration::MAX);
            turns.lock(&lock).push("next part");
        });
        let order = lock.lock();
        assert_eq!((order.len(), order[0], order[3]), (4, "part", "next part"));
    }
}
