//! Records a simulated run.

use crate::machine::Machine;
use memfit_trace::{Begins, Filled, Head, Tape, Writer};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// State that the recorder and its owner share.
struct Output<W> {
    tape: Tape,
    writer: Option<Writer<W>>,
    failed: Option<io::Error>,
    now_ns: u64,
}

impl<W: Write> Output<W> {
    fn flush(&mut self) {
        if let (Some(Filled { begins, calls, bytes }), Some(writer)) = (self.tape.take(), &mut self.writer) {
            if let Err(error) = writer.block(begins, calls, &bytes) {
                (self.failed, self.writer) = (Some(error), None);
            }
        }
    }
}

/// A recording in progress.
pub struct Recorder<W>(Arc<Mutex<Output<W>>>);

impl<W: Write + Send + 'static> Recorder<W> {
    /// Records the core calls of a machine from now on.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn start(machine: &mut Machine, out: W, command: Vec<String>) -> io::Result<Recorder<W>> {
        let (core, budget) = machine.recording();
        let writer = Some(Writer::new(out, &Head::of(core.tunables(), budget, command, 0))?);
        let output = Arc::new(Mutex::new(Output { tape: Tape::default(), writer, failed: None, now_ns: 0 }));
        let records = Arc::clone(&output);
        core.hash_decisions();
        core.add_recorder(Box::new(move |first, decided, asked| {
            let output = &mut *records.lock().expect("nobody panics with it");
            let at_ns = output.now_ns;
            if output.tape.call(|| Begins { first, decided, at_ns }, asked) {
                output.flush();
            }
        }));
        Ok(Recorder(output))
    }

    /// Sets the time of the run, ns.
    pub fn now(&self, ns: u64) {
        self.0.lock().expect("nobody panics with it").now_ns = ns;
    }

    /// Writes the remaining calls and the end of the recording.
    ///
    /// # Errors
    /// Those of the output, earlier ones included.
    pub fn finish(self, machine: &mut Machine) -> io::Result<W> {
        let (core, _) = machine.recording();
        core.end_recording();
        let mut output = self.0.lock().expect("nobody panics with it");
        output.flush();
        let begins = Begins { first: core.number() + 1, decided: core.decided(), at_ns: output.now_ns };
        match (output.failed.take(), output.writer.take()) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.end(begins),
            (None, None) => Err(io::ErrorKind::Other.into()),
        }
    }
}
