//! Messages from any thread to the launcher and the user.

use crate::config::FromPager;
use crate::locks::{rank, Held, Lock};
use memfit_os::event::EventFd;
use memfit_os::without_numbers;

/// Most different warnings of a run, and what is said instead of further ones.
const WARNINGS: usize = 50;
const LEFT_OUT: &str = "further warnings are left out";

/// What the control thread sends to the launcher, which shows it to the user.
pub struct Outbox {
    /// Warnings given so far.
    pub warnings: Lock<Vec<String>, { rank::WARNINGS }>,
    queue: Lock<Vec<FromPager>, { rank::OUTBOX }>,
    /// Readable when the control thread has something to do.
    pub event: EventFd,
}

impl Outbox {
    /// None yet.
    pub fn new() -> std::io::Result<Outbox> {
        Ok(Outbox { warnings: Lock::new(Vec::new()), queue: Lock::new(Vec::new()), event: EventFd::new()? })
    }

    /// Queues a message for the launcher.
    pub fn tell(&self, message: FromPager) {
        self.queue.lock().push(message);
        self.event.raise();
    }

    /// Wakes the control thread, without a message.
    pub fn wake_control(&self) {
        self.event.raise();
    }

    /// Warns the user with one line on the terminal, once per text. After many texts it is silent:
    /// what was done to a process is announced instead.
    pub fn warn(&self, text: String) {
        let (text, mut warnings) = (without_numbers(text), self.warnings.lock());
        if warnings.contains(&text) {
            return;
        }
        if warnings.len() < WARNINGS {
            return self.note(warnings, text);
        }
        if !warnings.iter().any(|known| known == LEFT_OUT) {
            warnings.push(LEFT_OUT.into());
            drop(warnings);
            self.tell(FromPager::Warning { text: LEFT_OUT.into() });
        }
    }

    /// Tells the user what was done, each time, such as that a process was killed.
    pub fn announce(&self, text: String) {
        self.note(self.warnings.lock(), without_numbers(text));
    }

    /// Says why the run ends. The statistics keep it among the warnings.
    pub fn fatal(&self, text: String) {
        let text = without_numbers(text);
        self.warnings.lock().push(text.clone());
        self.tell(FromPager::Fatal { text });
    }

    fn note(&self, mut warnings: Held<'_, Vec<String>>, text: String) {
        if warnings.len() < WARNINGS {
            warnings.push(text.clone());
        }
        drop(warnings);
        self.tell(FromPager::Warning { text });
    }

    /// Takes what waits for the launcher.
    pub fn take(&self) -> Vec<FromPager> {
        std::mem::take(&mut self.queue.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_many_warnings_what_was_done_is_still_told() {
        let outbox = Outbox::new().unwrap();
        (0..60).for_each(|number| outbox.warn(format!("warning {number}")));
        outbox.announce("killed process 5 (sh): why".into());
        let text = |message| match message {
            FromPager::Warning { text } => text,
            _ => unreachable!("only warnings"),
        };
        let told: Vec<String> = outbox.take().into_iter().map(text).collect();
        assert_eq!(told.len(), WARNINGS + 2);
        assert_eq!(told[WARNINGS..], [LEFT_OUT, "killed process 5 (sh): why"]);
        assert_eq!(outbox.warnings.lock().len(), WARNINGS + 1);
    }
}
