//! How much a run may write to the swap tier (`--swap-writes`): flash wears out by writes.
//!
//! A part of a day's bytes may be written at once, the rest becomes available evenly over the day.
//! So within any 24 hours no more is written than allowed, but for a batch under way.

use std::time::Duration;

/// One part in this many of a day's bytes may be written at once.
const AT_ONCE: u64 = 8;
/// When all is spent, writes begin again with one part in this many of what may be written at once.
const AGAIN: u64 = 16;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What may be written.
#[derive(Debug)]
pub struct Allowance {
    /// Bytes in 24 hours.
    a_day: u64,
    /// Bytes written at the last look.
    written: u64,
    /// What may be written now, bytes; below 0 after a batch that was under way.
    left: f64,
    /// The time of the last look, since the start.
    at: Duration,
    spent: bool,
}

impl Allowance {
    /// So many bytes in 24 hours. Nothing was written yet.
    pub fn new(a_day: u64) -> Allowance {
        Allowance { a_day, written: 0, left: (a_day / AT_ONCE) as f64, at: Duration::ZERO, spent: false }
    }

    /// So many bytes were written since the start, `now` after it. Whether that changes if more may
    /// be written.
    pub fn look(&mut self, written: u64, now: Duration) -> bool {
        let most = (self.a_day / AT_ONCE) as f64;
        let evenly = self.a_day as f64 - most;
        let passed = now.saturating_sub(self.at).as_secs_f64() / DAY.as_secs_f64();
        self.left = (self.left + evenly * passed - written.saturating_sub(self.written) as f64).min(most);
        (self.written, self.at) = (written, now);
        let spent = if self.spent { self.left < most / AGAIN as f64 } else { self.left <= 0.0 };
        std::mem::replace(&mut self.spent, spent) != spent
    }

    /// Whether no more may be written now.
    pub fn is_spent(&self) -> bool {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const GIB: u64 = 1 << 30;

    #[test]
    fn an_eighth_at_once_and_the_rest_over_the_day() {
        let mut allowance = Allowance::new(24 * GIB);
        assert!(!allowance.look(3 * GIB - 1, Duration::ZERO) && !allowance.is_spent());
        assert!(allowance.look(3 * GIB, Duration::ZERO) && allowance.is_spent());
        // 21 GiB a day are 0.875 in an hour; a sixteenth of 3 GiB is enough to go on.
        assert!(!allowance.look(3 * GIB, HOUR / 5) && allowance.is_spent());
        assert!(allowance.look(3 * GIB, HOUR / 4) && !allowance.is_spent());
    }

    #[test]
    fn no_day_has_more() {
        let mut allowance = Allowance::new(8 * GIB);
        let (mut written, mut by_hour) = (0, vec![0]);
        for minute in 1..=72 * 60 {
            allowance.look(written, HOUR * minute / 60);
            // Nothing is written in the first 10 hours.
            if !allowance.is_spent() && minute > 600 {
                written += GIB / 64;
            }
            if minute % 60 == 0 {
                by_hour.push(written);
            }
        }
        for hour in 0..by_hour.len() - 24 {
            let day = by_hour[hour + 24] - by_hour[hour];
            assert!(day <= 8 * GIB + GIB / 64, "{day} from hour {hour} on");
        }
        assert!(written > 19 * GIB, "{written} bytes in 62 hours");
    }
}
