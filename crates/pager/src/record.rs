//! Records a run: core calls are encoded under the core lock, and a thread writes them to the file.
//!
//! If the pager dies, the calls not written yet are lost: those of a second at most. If the file
//! takes no more, the recording ends there and the run goes on.

use crate::config::Config;
use crate::locks::{rank, Lock};
use memfit_core::trace::Note;
use memfit_core::{Core, CoreCall};
use memfit_os::describe;
use memfit_trace::{Begins, Filled, Head, Tape, Writer};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Blocks that may wait for the file; with more of them core calls wait, too.
const BLOCKS: usize = 16;
/// Longest time between two blocks while there are calls.
const BLOCK_EVERY: Duration = Duration::from_secs(1);
/// Calls between two readings of the clock.
const CLOCK_EVERY: u32 = 64;
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
    /// Recording has stopped.
    failed: Arc<AtomicBool>,
}

impl Live {
    fn call(&mut self, number: u64, decided: u64, asked: &CoreCall<'_>) {
        if self.failed.load(Relaxed) {
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
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(filled) = self.tape.take() {
            // If the thread has ended, it has reported why.
            _ = self.to_file.send(Part::Calls(filled));
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
        if !live.failed.load(Relaxed) {
            let start = live.start;
            if live.tape.note(|| begins(start, core.number() + 1, core.decided()), note) {
                live.flush();
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
    tell: impl Fn(String) + Send + 'static,
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
    let failed = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&failed);
    let (lives, ended) = sync_channel(0);
    std::thread::Builder::new().name("record".into()).spawn(move || {
        if let Err(error) = write(writer, &parts) {
            stops.store(true, Relaxed);
            tell(format!("--record: the recording ends here, and the run goes on: {}", describe(&error)));
        }
        drop(lives);
    })?;
    let live = Arc::new(Lock::new(Live { start: Instant::now(), tape: Tape::default(), to_file, failed }));
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
        live.flush();
        let begins = begins(live.start, core.number() + 1, core.decided());
        // The thread has ended already if the file took no more.
        _ = live.to_file.send(Part::End(begins));
        _ = self.ended.lock().recv_timeout(END_WITHIN);
    }
}
