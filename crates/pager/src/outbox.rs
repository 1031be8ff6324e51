//! Messages from any thread to the launcher and the user.

use crate::config::FromPager;
use crate::locks::{rank, Held, Lock};
use memfit_os::event::EventFd;
use memfit_os::without_numbers;

/// Most different warnings of a run.
const WARNINGS: usize = 50;

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

    /// Warns the user with one line on the terminal, once per text.
    pub fn warn(&self, text: String) {
        let (text, warnings) = (without_numbers(text), self.warnings.lock());
        if !warnings.contains(&text) && warnings.len() < WARNINGS {
            self.note(warnings, text);
        }
    }

    /// Tells the user what was done, each time.
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
