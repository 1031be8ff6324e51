//! Records a run: core calls are encoded under the core lock, and a thread writes them to the file.
//!
//! If the pager dies, the calls not written yet are lost: those of a second at most. If the file
//! takes no more, or nothing for [`FILE_WITHIN`], the recording ends there and the run goes on.

use crate::config::Config;
use crate::locks::{rank, Lock};
use memfit_core::trace::Note;
use memfit_core::{Core, CoreCall};
use memfit_os::describe;
use memfit_trace::{Begins, Filled, Head, Tape, Writer};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Blocks that may wait for the file; with more of them core calls wait, too.
const BLOCKS: usize = 16;
/// Longest time between two blocks while there are calls.
const BLOCK_EVERY: Duration = Duration::from_secs(1);
/// Calls between two readings of the clock.
const CLOCK_EVERY: u32 = 64;
/// Longest time that core calls wait for the file: the programs wait with them. A busy disk takes
/// data again within that time; a pipe whose reader sleeps does not.
const FILE_WITHIN: Duration = Duration::from_secs(10);
/// How often they look whether it takes data again.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Longest wait for the file at the end.
const END_WITHIN: Duration = Duration::from_secs(4);

enum Part {
    Calls(Filled),
    End(Begins),
}

/// The block that is being filled, and the channel to the thread.
struct Live {
    start: Instant,
    tape: Tape,
    to_file: SyncSender<Part>,
    state: Arc<State>,
}

/// Whether the recording has ended early, and who is told of it.
struct State {
    failed: AtomicBool,
    tell: Box<dyn Fn(String) + Send + Sync>,
}

impl State {
    fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Ends the recording, and says why. Both ends of the channel can find a reason.
    fn fail(&self, why: &str) {
        if !self.failed.swap(true, Relaxed) {
            (self.tell)(format!("--record: the recording ends here, and the run goes on: {why}"));
        }
    }

    fn takes_nothing(&self) {
        self.fail("its file takes no data");
    }
}

impl Live {
    fn call(&mut self, number: u64, decided: u64, asked: &CoreCall<'_>) {
        if self.state.has_failed() {
            return;
        }
        let start = self.start;
        let full = self.tape.call(|| begins(start, number, decided), asked);
        // A pager that has little to do takes a step now and then.
        let is_step = matches!(asked, CoreCall::NextStep { .. });
        let late = || {
            let (calls, since) = self.tape.state();
            (is_step || calls % CLOCK_EVERY == 0) && start.elapsed() > Duration::from_nanos(since) + BLOCK_EVERY
        };
        if full || late() {
            self.flush(FILE_WITHIN);
        }
    }

    fn flush(&mut self, within: Duration) {
        if let Some(filled) = self.tape.take() {
            self.send(Part::Calls(filled), within);
        }
    }

    /// Hands a part to the thread.
    fn send(&self, mut part: Part, within: Duration) {
        let start = Instant::now();
        while !self.state.has_failed() {
            match self.to_file.try_send(part) {
                Err(TrySendError::Full(back)) if start.elapsed() < within => part = back,
                Err(TrySendError::Full(_)) => return self.state.takes_nothing(),
                // If the thread has ended, it has reported why.
                Ok(()) | Err(TrySendError::Disconnected(_)) => return,
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

fn begins(start: Instant, first: u64, decided: u64) -> Begins {
    Begins { first, decided, at_ns: start.elapsed().as_nanos() as u64 }
}

/// Writes notes into a recording.
pub struct Notes {
    live: Option<Arc<Lock<Live, { rank::LIVE }>>>,
}

impl Notes {
    /// Writes into no recording.
    #[cfg(test)]
    pub fn none() -> Notes {
        Notes { live: None }
    }

    /// Writes a note before the next call.
    pub fn note(&self, core: &Core, note: Note) {
        let Some(mut live) = self.live.as_ref().map(|live| live.lock()) else { return };
        if !live.state.has_failed() {
            let start = live.start;
            if live.tape.note(|| begins(start, core.number() + 1, core.decided()), note) {
                live.flush(FILE_WITHIN);
            }
        }
    }
}

/// A recording under way.
pub struct Recording {
    live: Arc<Lock<Live, { rank::LIVE }>>,
    /// Yields an error once the thread has ended and has reported its errors.
    ended: Lock<Receiver<()>, { rank::RECORD_ENDED }>,
}

/// Begins to record to the configured file, if any. `tell` reports trouble with the file, at once
/// or later; the run goes on in any case.
///
/// # Errors
/// When no thread can be started.
pub fn start(
    core: &mut Core,
    config: &Config,
    tell: impl Fn(String) + Send + Sync + 'static,
) -> io::Result<Option<Recording>> {
    let Some(fd) = config.record else { return Ok(None) };
    let file = File::from(memfit_os::process::take_over(fd));
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let head = Head::of(core.tunables(), config.budget_bytes, config.command.clone(), started);
    let writer = match Writer::new(file, &head) {
        Ok(writer) => writer,
        Err(error) => {
            tell(format!("--record: nothing is recorded, and the run goes on: {}", describe(&error)));
            return Ok(None);
        }
    };
    let (to_file, parts) = sync_channel(BLOCKS);
    let state = Arc::new(State { failed: AtomicBool::new(false), tell: Box::new(tell) });
    let for_thread = Arc::clone(&state);
    let (lives, ended) = sync_channel(0);
    std::thread::Builder::new().name("record".into()).spawn(move || {
        if let Err(error) = write(writer, &parts) {
            for_thread.fail(&describe(&error));
        }
        drop(lives);
    })?;
    let live = Arc::new(Lock::new(Live { start: Instant::now(), tape: Tape::default(), to_file, state }));
    let records = Arc::clone(&live);
    core.hash_decisions();
    core.add_recorder(Box::new(move |number, decided, asked| {
        records.lock().call(number, decided, asked);
    }));
    Ok(Some(Recording { live, ended: Lock::new(ended) }))
}

/// Writes the parts, up to the end.
fn write(mut writer: Writer<File>, parts: &Receiver<Part>) -> io::Result<()> {
    for part in parts {
        match part {
            Part::Calls(Filled { begins, calls, bytes }) => writer.block(begins, calls, &bytes)?,
            Part::End(begins) => return writer.end(begins).map(drop),
        }
    }
    Ok(())
}

impl Recording {
    /// For notes between the calls.
    pub fn notes(&self) -> Notes {
        Notes { live: Some(Arc::clone(&self.live)) }
    }

    /// Writes what is left, and the end mark.
    pub fn finish(&self, core: &mut Core) {
        core.end_recording();
        let mut live = self.live.lock();
        let start = Instant::now();
        live.flush(END_WITHIN);
        let begins = begins(live.start, core.number() + 1, core.decided());
        live.send(Part::End(begins), END_WITHIN.saturating_sub(start.elapsed()));
        if live.state.has_failed() {
            return;
        }
        let left = END_WITHIN.saturating_sub(start.elapsed());
        if self.ended.lock().recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            live.state.takes_nothing();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock of the core is held meanwhile: nothing may wait without an end.
    #[test]
    fn a_file_that_takes_no_data_ends_the_recording_and_not_the_run() {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let tells = Arc::clone(&told);
        let tell = Box::new(move |text| tells.lock().unwrap().push(text));
        let state = Arc::new(State { failed: AtomicBool::new(false), tell });
        // Nobody reads: a thread that hangs in its write.
        let (to_file, parts) = sync_channel(1);
        let live = Live { start: Instant::now(), tape: Tape::default(), to_file, state };
        for _ in 0..3 {
            live.send(Part::End(Begins::default()), Duration::ZERO);
        }
        assert!(live.state.has_failed());
        assert_eq!(parts.try_iter().count(), 1);
        let expected = "--record: the recording ends here, and the run goes on: its file takes no data";
        assert_eq!(*told.lock().unwrap(), [expected]);
    }
}
