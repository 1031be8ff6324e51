//! Lines on standard error while the command runs.
//!
//! A thread of its own prints them. A program that waits for an evicted page can hold the lock of
//! the terminal or pipe and so block all writers, and the main loop must never wait for the
//! programs that it guards. Rate and number of lines are limited; lines that are left out are
//! counted.

use memfit_os::process::write_stderr;
use std::convert::Infallible;
use std::sync::mpsc::{channel, sync_channel, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines that may be printed at once.
const BURST_LINES: f64 = 20.0;
/// Lines per second after that.
const LINES_PER_SECOND: f64 = 1.0;
/// Lines queued for a slow terminal.
const QUEUE_LINES: usize = 64;
/// How long the end of the program waits for a slow terminal.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// A token bucket: how many lines may be printed now.
#[derive(Debug)]
struct Bucket {
    lines: f64,
    filled_at: Instant,
}

impl Bucket {
    fn new(now: Instant) -> Self {
        Self { lines: BURST_LINES, filled_at: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let gained = now.saturating_duration_since(self.filled_at).as_secs_f64() * LINES_PER_SECOND;
        self.lines = (self.lines + gained).min(BURST_LINES);
        self.filled_at = now;
        if self.lines < 1.0 {
            return false;
        }
        self.lines -= 1.0;
        true
    }
}

/// Prints lines without ever blocking its caller.
pub struct Messages {
    bucket: Bucket,
    left_out: u64,
    sender: Option<SyncSender<String>>,
    /// Its thread, and a channel that it closes when it has printed all.
    printer: Option<(JoinHandle<()>, Receiver<Infallible>)>,
}

impl Messages {
    /// Starts the printer. If its thread cannot be started, nothing is printed.
    #[must_use]
    pub fn start() -> Self {
        let (sender, receiver) = sync_channel::<String>(QUEUE_LINES);
        let (open, closed) = channel();
        let print = move || {
            receiver.iter().for_each(|line| write_stderr(&line));
            drop(open);
        };
        let thread = std::thread::Builder::new().name("memfit-messages".into()).spawn(print).ok();
        let printer = thread.map(|thread| (thread, closed));
        Self { bucket: Bucket::new(Instant::now()), left_out: 0, sender: Some(sender), printer }
    }

    /// A warning; left out when there are too many.
    pub fn warn(&mut self, text: &str) {
        if self.bucket.take(Instant::now()) {
            self.say(text);
        } else {
            self.left_out += 1;
        }
    }

    /// A line without rate limit.
    pub fn say(&mut self, text: &str) {
        let line = format!("memfit: {}\n", one_line(text));
        match self.sender.as_ref().map(|sender| sender.try_send(line)) {
            Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => self.left_out += 1,
            Some(Ok(())) => {}
        }
    }

    /// Prints the queued lines and ends the printer. Returns whether its thread has ended.
    pub fn finish(mut self) -> bool {
        if self.left_out > 0 {
            let text = format!("{} more messages were left out", self.left_out);
            self.say(&text);
        }
        self.sender = None;
        let Some((thread, closed)) = self.printer else { return true };
        closed.recv_timeout(DRAIN_TIMEOUT) == Err(RecvTimeoutError::Disconnected) && thread.join().is_ok()
    }
}

/// Keeps a message from forging lines or driving the terminal.
fn one_line(text: &str) -> String {
    text.trim_end().replace(memfit_wire::is_unprintable, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_a_second() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let taken = (0..100).filter(|_| bucket.take(start)).count();
        assert_eq!(taken, BURST_LINES as usize);
        assert!(!bucket.take(start + Duration::from_millis(500)));
        assert!(bucket.take(start + Duration::from_millis(1500)));
        assert!(!bucket.take(start + Duration::from_millis(1600)));
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..100).filter(|_| bucket.take(later)).count(), BURST_LINES as usize);
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(one_line("a\nb\x1b[2J\u{2066}c\n"), "a b [2J c");
    }
}
