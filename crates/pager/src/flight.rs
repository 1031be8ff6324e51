//! The flight recorder: the last calls of the core, for the report when a page is lost. Only in
//! builds with the feature `flight-recorder`.

use memfit_core::trace::{Decoder, Encoder};
use memfit_core::{Core, CoreCall, Fields, Page, PageRange, ProcId};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const CALLS: usize = 1 << 20;
/// Most messages of the kernel that are kept and printed.
const LINES: usize = 200;

/// Calls with their numbers, encoded each by itself.
type Log = Arc<Mutex<VecDeque<(u64, Vec<u8>)>>>;
static LOG: Mutex<Option<Log>> = Mutex::new(None);
static EVENTS: Mutex<VecDeque<(u64, String)>> = Mutex::new(VecDeque::new());

/// Starts recording.
pub fn start(core: &mut Core) {
    if !cfg!(feature = "flight-recorder") {
        return;
    }
    let log: Log = Arc::default();
    *LOG.lock().unwrap() = Some(Arc::clone(&log));
    core.add_recorder(Box::new(move |number, _, call| {
        let (mut log, mut bytes) = (log.lock().unwrap(), Vec::new());
        if log.len() == CALLS {
            log.pop_front();
        }
        Encoder::default().call(&mut bytes, call);
        log.push_back((number, bytes));
    }));
}

/// Records what became of a message of the kernel, with the number of the last call.
pub fn note(what: impl FnOnce() -> String) {
    if !cfg!(feature = "flight-recorder") {
        return;
    }
    let Some(log) = LOG.lock().unwrap().clone() else { return };
    let number = log.lock().unwrap().back().map_or(0, |&(number, _)| number);
    let mut events = EVENTS.lock().unwrap();
    if events.len() == LINES {
        events.pop_front();
    }
    events.push_back((number, what()));
}

/// The recorded calls that name a page of a process, as lines; empty without the feature.
pub fn history(proc: u32, page: u64) -> String {
    let Some(log) = LOG.lock().unwrap().clone() else { return String::new() };
    let log = log.lock().unwrap();
    let line = lineage(&log, proc);
    let lines: Vec<String> = log
        .iter()
        .filter_map(|(n, bytes)| {
            let mut decoder = Decoder::new(bytes);
            let call = decoder.call().ok()??;
            let mut named = Named { line: &line, page, of_line: false, names: false };
            call.fields(&mut named);
            (named.names || matches!(call, CoreCall::Forked { .. })).then(|| format!("  #{n} {call:x?}"))
        })
        .collect();
    let skip = lines.len().saturating_sub(60);
    let events = EVENTS.lock().unwrap();
    let events: Vec<String> = events.iter().map(|(n, what)| format!("  after #{n}: {what}")).collect();
    format!("\n{}\n{}", lines[skip..].join("\n"), events.join("\n"))
}

/// Whether a call names a page of one of these processes, or one of them and no page.
struct Named<'a> {
    line: &'a [ProcId],
    page: u64,
    of_line: bool,
    names: bool,
}

impl Fields for Named<'_> {
    fn proc(&mut self, _: &'static str, proc: ProcId) {
        self.of_line = self.line.contains(&proc);
    }

    fn page(&mut self, _: &'static str, page: Page) {
        // A run has up to 64 pages.
        self.names |= self.of_line && (page.0..page.0 + 64).contains(&self.page);
    }

    fn range(&mut self, _: &'static str, range: PageRange) {
        self.names |= self.of_line && (range.first.0..range.first.0.saturating_add(range.pages)).contains(&self.page);
    }
}

/// A process and its fork ancestors. Numbers are reused, so this may name too many.
fn lineage(log: &VecDeque<(u64, Vec<u8>)>, proc: u32) -> Vec<ProcId> {
    let (mut line, mut born) = (vec![ProcId(proc)], None);
    for (_, bytes) in log.iter().rev() {
        match Decoder::new(bytes).call() {
            // The parts of a table that a child inherits follow its fork.
            Ok(Some(CoreCall::Inherit { child, .. })) => born = Some(child),
            Ok(Some(CoreCall::Forked { parent, .. })) => {
                let of_line = born.take().is_some_and(|child| line.contains(&child));
                line.extend((of_line && !line.contains(&parent)).then_some(parent));
            }
            _ => {}
        }
    }
    line
}
