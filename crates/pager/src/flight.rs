//! The flight recorder: the last calls of the core, for the report when a page is lost. Only in
//! builds with the feature `flight-recorder`.

use memfit_core::{Call, Core};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

const CALLS: usize = 1 << 20;
/// Messages of the kernel, and lines of all pages, that are kept and printed.
const LINES: usize = 200;

type Log = Arc<Mutex<VecDeque<(u64, Call)>>>;
static LOG: Mutex<Option<Log>> = Mutex::new(None);
static EVENTS: Mutex<VecDeque<(u64, String)>> = Mutex::new(VecDeque::new());

/// Starts recording.
pub fn start(core: &mut Core) {
    if !cfg!(feature = "flight-recorder") {
        return;
    }
    let log: Log = Arc::default();
    *LOG.lock().unwrap() = Some(Arc::clone(&log));
    core.set_hook(Box::new(move |number, call| {
        let mut log = log.lock().unwrap();
        if log.len() == CALLS {
            log.pop_front();
        }
        log.push_back((number, call));
    }));
}

/// Records what became of a message of the kernel, after the last call so far.
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
    let within = |p: u32, first: u64, pages: u64| line.contains(&p) && page >= first && page < first + pages;
    let named = |call: &Call| match *call {
        Call::Adopt { proc: p, page: first } | Call::Loaded { proc: p, page: first, .. } => within(p, first, 1),
        Call::Released { proc: p, page: first, .. } => within(p, first, 1),
        Call::Victim { proc: p, page: first, pages } => within(p, first, pages.into()),
        Call::Evicted { proc: p, page: first, .. } => within(p, first, 64),
        Call::Fault { proc: p, page: at, loads, below } => {
            within(p, at - u64::from(below), u64::from(loads.max(1) + below))
        }
        Call::Removed { proc: p, page: first, pages } | Call::Unmapped { proc: p, page: first, pages } => {
            within(p, first, pages)
        }
        Call::Remapped { proc: p, from, to, pages } => within(p, from, pages) || within(p, to, pages),
        Call::Forked { proc: p, child } => line.contains(&p) || line.contains(&child),
        Call::Proof { proc: p, .. } => line.contains(&p),
        _ => false,
    };
    let lines: Vec<String> =
        log.iter().filter(|(_, call)| named(call)).map(|(n, call)| format!("  #{n} {call:x?}")).collect();
    let skip = lines.len().saturating_sub(60);
    let events = EVENTS.lock().unwrap();
    let events: Vec<String> = events.iter().map(|(n, what)| format!("  after #{n}: {what}")).collect();
    format!("\n{}\n{}", lines[skip..].join("\n"), events.join("\n"))
}

/// A process and those it was forked from. Numbers are reused, so this may name too many.
fn lineage(log: &VecDeque<(u64, Call)>, proc: u32) -> Vec<u32> {
    let mut line = vec![proc];
    for (_, call) in log.iter().rev() {
        if let Call::Forked { proc: parent, child } = *call {
            if line.contains(&child) && !line.contains(&parent) {
                line.push(parent);
            }
        }
    }
    line
}
