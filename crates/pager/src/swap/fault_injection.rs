//! Fault injection for tests: a device that fails at random, from a seed. Only in builds with
//! assertions. `MEMFIT_SWAP_FAULTS` says for each kind of failure how many of 1,000 reads or writes
//! fail in that way. `stall-at=20` stalls the twentieth request of a thread; `long-eio` counts only
//! reads that are longer than one for a single page.
//!
//! ```text
//! seed=7,read-eio=100,write-enospc=20,flip=5,short=200,stall=50,stall-ms=10000
//! ```

use std::time::{Duration, Instant};

/// Longest read for a single page, bytes.
const SINGLE: usize = 12 << 10;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// It goes to the device.
    Normal,
    /// It fails with this errno.
    Fail(i32),
    /// Half of it is transferred.
    Short,
    /// One bit that was read is flipped; the number determines which.
    Flip(usize),
    /// Its result is held back until this time.
    Stall(Instant),
}

/// Chances in a thousand, and a random generator.
#[derive(Debug, Default, Clone)]
pub struct Faults {
    state: u64,
    read_eio: u64,
    long_eio: u64,
    write_eio: u64,
    write_enospc: u64,
    flip: u64,
    short: u64,
    stall: u64,
    stall_ms: u64,
    /// The request of this number stalls.
    stall_at: u64,
    requests: u64,
}

impl Faults {
    /// As the environment variable says; `None` in a release build.
    pub fn from_environment() -> Option<Faults> {
        if !cfg!(debug_assertions) {
            return None;
        }
        Some(Faults::parse(&std::env::var("MEMFIT_SWAP_FAULTS").ok()?))
    }

    /// Parses the value of that variable.
    pub fn parse(text: &str) -> Faults {
        let mut faults = Faults { state: 1, stall_ms: 10_000, ..Faults::default() };
        for (key, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            let value = value.parse().expect("a number in MEMFIT_SWAP_FAULTS");
            *match key {
                "seed" => &mut faults.state,
                "read-eio" => &mut faults.read_eio,
                "long-eio" => &mut faults.long_eio,
                "write-eio" => &mut faults.write_eio,
                "write-enospc" => &mut faults.write_enospc,
                "flip" => &mut faults.flip,
                "short" => &mut faults.short,
                "stall" => &mut faults.stall,
                "stall-ms" => &mut faults.stall_ms,
                "stall-at" => &mut faults.stall_at,
                _ => panic!("MEMFIT_SWAP_FAULTS: {key}"),
            } = value;
        }
        faults.state = faults.state.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        faults
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// The plan for the next request, of `len` bytes.
    pub fn plan(&mut self, write: bool, len: usize) -> Plan {
        let until = Instant::now() + Duration::from_millis(self.stall_ms);
        self.requests += 1;
        if self.requests == self.stall_at {
            return Plan::Stall(until);
        }
        let plans = [
            (if write { self.write_eio } else { self.read_eio }, Plan::Fail(libc::EIO)),
            (if write || len <= SINGLE { 0 } else { self.long_eio }, Plan::Fail(libc::EIO)),
            (if write { self.write_enospc } else { 0 }, Plan::Fail(libc::ENOSPC)),
            (if write { 0 } else { self.flip }, Plan::Flip(self.next() as usize)),
            (self.short, Plan::Short),
            (self.stall, Plan::Stall(until)),
        ];
        let mut drawn = self.next() % 1000;
        for (chance, plan) in plans {
            if drawn < chance {
                return plan;
            }
            drawn -= chance;
        }
        Plan::Normal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fails_as_often_as_told_and_the_same_for_a_seed() {
        let count = |text: &str, write| {
            let mut faults = Faults::parse(text);
            let plans: Vec<Plan> = (0..10_000).map(|_| faults.plan(write, 16 << 10)).collect();
            plans.iter().filter(|plan| **plan != Plan::Normal).count()
        };
        assert_eq!(count("seed=3", true), 0);
        assert_eq!(count("seed=3,write-eio=1000", true), 10_000);
        assert_eq!(count("seed=3,write-eio=1000", false), 0);
        assert_eq!(count("seed=3,long-eio=1000", false), 10_000);
        assert_eq!(Faults::parse("seed=3,long-eio=1000").plan(false, SINGLE), Plan::Normal);
        let some = count("seed=3,read-eio=50,flip=50", false);
        assert!((900..1100).contains(&some), "{some}");
        assert_eq!(count("seed=3,read-eio=50,flip=50", false), some);
    }
}
