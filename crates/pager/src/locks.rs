//! The pager's mutexes, and the one order in which a thread may lock several of them.
//!
//! Each mutex has a rank as a part of its type. A thread that holds one locks only those of higher
//! rank; debug builds assert that. So no threads wait for each other in a
//! circle, and no thread locks the same mutex of two processes at once. `try_lock` does not wait
//! and may break the order.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// The ranks, in the order in which a thread locks.
pub mod rank {
    macro_rules! ranks {
        ($($name:ident)*) => {
            #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "numbers the constants")]
            enum Numbered { $($name),* }
            $(pub const $name: u8 = Numbered::$name as u8;)*
            /// Their names, by rank.
            #[cfg(debug_assertions)]
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        };
    }
    ranks! {
        // Reports, and the list of clients.
        PROGRESS TIMELINE WARNINGS PAST CLIENTS FINDING
        // One client.
        READY WATCH SCAN FORK_CLIENTS CLIENT_PROC EXPECTED_OF_CLIENT CLIENT_WAITS SEGMENT FALLBACK
        // Paged processes, and forks under way. A thread reads the events of a process with its IO.
        PROOF IO PROCS EXPECTED_CHILD EXPECTED_CHILDREN FORK_WINDOW NEWBORN INHERITED DOOMED
        // What is known of a process.
        WIPED DESCRIPTORS DONTFORK REGIONS UNCONFIRMED FILE_RANGES GIVEN GUARDED STACKS MAPS
        // What fault threads and reclaim work with.
        CACHE_IO HELPER
        // The core.
        CORE
        // What its callers use beside it.
        FAMILY RAW LIVE RECORD_ENDED SWAP_COPIES SWAP_LOG BLOCKS UNDER_WAY
        // With one of these, a thread locks nothing else but the next.
        LEASE OPEN_FILES CACHED_FILES FILE_HASHES REGIONS_SEEN SAMPLES_BACK FAULT_BUFFERS WANTED RETURNING COMM OUTBOX
        PEAK WEIGHED WEIGHED_ALL UNWEIGHED DETACHED UNPAGED ALL_ENDED HINDERED UNSEEN_FILTER WAKE_NEXT
    }
}

/// A mutex of rank `RANK`. A panic ends the pager, so no mutex is ever poisoned.
#[derive(Debug, Default)]
pub struct Lock<T, const RANK: u8>(Mutex<T>);

/// A locked mutex. It unlocks when it is dropped.
#[derive(Debug)]
pub struct Held<'a, T> {
    value: MutexGuard<'a, T>,
    _rank: held::Rank,
}

impl<T, const RANK: u8> Lock<T, RANK> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Lock<T, RANK> {
        Lock(Mutex::new(value))
    }

    /// Asserts that the calling thread may lock the mutex now, whether or not it must wait.
    #[track_caller]
    pub fn assert_order(&self) {
        held::assert_below(RANK);
    }

    /// Waits for the mutex.
    #[track_caller]
    pub fn lock(&self) -> Held<'_, T> {
        self.assert_order();
        Held { value: self.0.lock().unwrap(), _rank: held::Rank::new(RANK) }
    }

    /// The mutex, if nobody has locked it.
    pub fn try_lock(&self) -> Option<Held<'_, T>> {
        match self.0.try_lock() {
            Ok(value) => Some(Held { value, _rank: held::Rank::new(RANK) }),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => unreachable!("a panic ends the pager"),
        }
    }
}

impl<'a, T> Held<'a, T> {
    /// Unlocks, waits for the condition or that long, and locks again.
    pub fn wait(self, condition: &Condvar, at_most: Duration) -> Held<'a, T> {
        let Held { value, _rank } = self;
        Held { value: condition.wait_timeout(value, at_most).unwrap().0, _rank }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Display> fmt::Display for Held<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// What the calling thread holds.
#[cfg(debug_assertions)]
mod held {
    use super::rank::NAMES;
    use std::cell::RefCell;

    thread_local! {
        static RANKS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Debug)]
    pub struct Rank(u8);

    impl Rank {
        pub fn new(rank: u8) -> Rank {
            RANKS.with_borrow_mut(|ranks| ranks.push(rank));
            Rank(rank)
        }
    }

    impl Drop for Rank {
        fn drop(&mut self) {
            RANKS.with_borrow_mut(|ranks| {
                if let Some(at) = ranks.iter().rposition(|&rank| rank == self.0) {
                    ranks.swap_remove(at);
                }
            });
        }
    }

    #[track_caller]
    pub fn assert_below(rank: u8) {
        let name = |&rank: &u8| NAMES[usize::from(rank)];
        let names = |ranks: &Vec<u8>| ranks.iter().map(name).collect::<Vec<_>>();
        let wrong = RANKS.with_borrow(|ranks| ranks.iter().any(|&held| held >= rank).then(|| names(ranks)));
        if let Some(held) = wrong {
            panic!("locks {} while it holds {held:?}", name(&rank));
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    #[derive(Debug)]
    pub struct Rank;

    impl Rank {
        pub fn new(_: u8) -> Rank {
            Rank
        }
    }

    pub fn assert_below(_: u8) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_locks_in_the_order_of_ranks() {
        let (low, high) = (Lock::<_, { rank::IO }>::new(1), Lock::<_, { rank::CORE }>::new(2));
        {
            let first = low.lock();
            let second = high.lock();
            assert_eq!((*first, *second), (1, 2));
            drop(first);
            assert!(high.try_lock().is_none());
        }
        let second = high.lock();
        assert!(low.try_lock().is_some(), "does not wait");
        drop(second);
        *low.lock() += 1;
        assert_eq!(*low.lock(), 2);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "locks IO while it holds [\"CORE\"]")]
    fn another_order_is_a_defect() {
        let (low, high) = (Lock::<_, { rank::IO }>::new(()), Lock::<_, { rank::CORE }>::new(()));
        let _second = high.lock();
        let _first = low.lock();
    }
}
