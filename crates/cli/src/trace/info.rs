//! `memfit trace info`: describes recordings.

use super::contents::Pages;
use super::{cut, grouped, length, open, unreadable};
use crate::args::TraceInfoArgs;
use crate::errors::{tell, Failure};
use crate::size_parsing::human;
use memfit_core::trace::{Damaged, Decoder, Item, Note};
use memfit_core::{CoreCall, CALL_NAMES, PAGE_BYTES};
use memfit_trace::{Block, Head, ReadError, Reader};
use serde_json::{json, Map, Value};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Describes each file.
///
/// # Errors
/// When nothing can be printed. An error in a file is printed and gives exit status 1.
pub fn run(args: &TraceInfoArgs) -> Result<i32, Failure> {
    let (mut values, mut printed, mut code) = (Vec::new(), false, 0);
    for path in &args.files {
        let (value, text) = match examine(path) {
            Ok(told) => told,
            Err(failure) => (json!({ "file": path.to_string_lossy(), "error": failure.message }), String::new()),
        };
        if !args.json {
            let blank = if printed && !text.is_empty() { "\n" } else { "" };
            printed |= !text.is_empty();
            crate::print(&format!("{blank}{text}"))?;
        }
        if let Some(error) = value["error"].as_str() {
            tell(error);
            code = 1;
        }
        values.push(value);
    }
    if args.json {
        crate::print(&format!("{:#}\n", Value::from(values)))?;
    }
    Ok(code)
}

/// The description of a recording as JSON and as text.
fn examine(path: &Path) -> Result<(Value, String), Failure> {
    let mut reader = open(path)?;
    let seen = Seen::of(&mut reader);
    let length = length(path);
    let ending = match &seen.ending {
        Ending::Whole => "whole".into(),
        Ending::Cut(error) => cut(error, length),
        Ending::Wrong(error) => unreadable(path, error).message,
        Ending::NoCalls(offset, damaged) => format!("the block at byte {offset} holds no calls: {damaged:?}"),
    };
    Ok((value(path, reader.head(), &seen, &ending), text(path, reader.head(), &seen, &ending, length)))
}

/// How a recording ends.
enum Ending {
    Whole,
    Cut(ReadError),
    Wrong(ReadError),
    /// The block that begins at this byte is damaged.
    NoCalls(u64, Damaged),
}

/// What is in a recording, as far as it can be read.
struct Seen {
    /// In the order of [`CALL_NAMES`].
    calls: [u64; CALL_NAMES.len()],
    blocks: u64,
    /// Bytes of the calls before they were compressed.
    raw_bytes: u64,
    /// Bytes of the blocks as they are stored.
    stored_bytes: u64,
    /// Bytes of the file that were read.
    read_bytes: u64,
    /// Time of the run, up to the last block, ns.
    run_ns: u64,
    /// Most paged processes at the same time, and their number in the whole run.
    most_processes: u64,
    processes: u64,
    contents: Pages,
    ending: Ending,
}

impl Seen {
    fn of<R: Read>(reader: &mut Reader<R>) -> Seen {
        let mut seen = Seen {
            calls: [0; CALL_NAMES.len()],
            blocks: 0,
            raw_bytes: 0,
            stored_bytes: 0,
            read_bytes: 0,
            run_ns: 0,
            most_processes: 0,
            processes: 0,
            contents: Pages::default(),
            ending: Ending::Whole,
        };
        let (mut living, head_bytes) = (0u64, reader.offset());
        loop {
            let offset = reader.offset();
            match reader.block() {
                Ok(Some(Block::Calls { begins, calls, bytes })) => {
                    (seen.blocks, seen.run_ns) = (seen.blocks + 1, begins.at_ns);
                    seen.raw_bytes += bytes.len() as u64;
                    if let Err(damaged) = seen.read(bytes, calls, &mut living) {
                        seen.ending = Ending::NoCalls(offset, damaged);
                        break;
                    }
                }
                Ok(Some(Block::End(begins))) => seen.run_ns = begins.at_ns,
                Ok(None) => break,
                Err(error) if error.is_cut() => {
                    seen.ending = Ending::Cut(error);
                    break;
                }
                Err(error) => {
                    seen.ending = Ending::Wrong(error);
                    break;
                }
            }
        }
        seen.read_bytes = reader.offset();
        seen.stored_bytes = seen.read_bytes - head_bytes;
        seen
    }

    /// Counts the contents of a block.
    fn read(&mut self, bytes: &[u8], calls: u32, living: &mut u64) -> Result<(), Damaged> {
        let (mut decoder, mut left) = (Decoder::new(bytes), calls);
        while let Some(item) = decoder.item()? {
            match item {
                Item::Call(asked) => {
                    left = left.checked_sub(1).ok_or(Damaged::Wrong)?;
                    self.count(&asked, living);
                }
                Item::Note(Note::Contents(contents)) => self.contents.see(&contents),
                Item::Note(_) => {}
            }
        }
        if left == 0 {
            Ok(())
        } else {
            Err(Damaged::Short)
        }
    }

    fn count(&mut self, asked: &CoreCall<'_>, living: &mut u64) {
        self.calls[asked.kind()] += 1;
        match asked {
            CoreCall::AddProcess { .. } | CoreCall::Forked { .. } => {
                self.processes += 1;
                *living += 1;
                self.most_processes = self.most_processes.max(*living);
            }
            CoreCall::RemoveProcess { .. } => *living = living.saturating_sub(1),
            _ => {}
        }
    }

    fn all_calls(&self) -> u64 {
        self.calls.iter().sum()
    }

    fn a_call(&self, bytes: u64) -> f64 {
        bytes as f64 / self.all_calls().max(1) as f64
    }

    /// Names and counts of the calls that occur, the most frequent first.
    fn by_call(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<_> = CALL_NAMES.into_iter().zip(self.calls).filter(|(_, count)| *count > 0).collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }
}

/// Name of the scheme. A recording of another version of memfit can have one that this version
/// cannot parse.
fn scheme_name(head: &Head) -> String {
    memfit_scheme::parse(&head.scheme, &[])
        .map_or_else(|_| "that this version does not know".into(), |scheme| scheme.name)
}

fn value(path: &Path, head: &Head, seen: &Seen, ending: &str) -> Value {
    let calls: Map<String, Value> = seen.by_call().into_iter().map(|(name, n)| (name.into(), n.into())).collect();
    let mut value = json!({
        "file": path.to_string_lossy(),
        "command": head.command,
        "memfit": head.memfit,
        "scheme": scheme_name(head),
        "scheme_toml": head.scheme,
        "budget_bytes": head.budget_bytes,
        "page_bytes": head.page_bytes,
        "swap": head.swap,
        "started": head.started,
        "run_ns": seen.run_ns,
        "calls": seen.all_calls(),
        "by_call": calls,
        "processes": seen.processes,
        "processes_at_once": seen.most_processes,
        "blocks": seen.blocks,
        "raw_bytes": seen.raw_bytes,
        "stored_bytes": seen.stored_bytes,
        "whole": matches!(seen.ending, Ending::Whole),
    });
    if seen.contents.any() {
        value["contents"] = seen.contents.value();
    }
    match &seen.ending {
        Ending::Whole => {}
        Ending::Cut(error) => value["cut_at"] = error.offset.into(),
        Ending::Wrong(ReadError { offset, .. }) | Ending::NoCalls(offset, _) => {
            value["damaged_at"] = (*offset).into();
            value["error"] = ending.into();
        }
    }
    value
}

fn text(path: &Path, head: &Head, seen: &Seen, ending: &str, length: Option<u64>) -> String {
    let mut out = String::new();
    let state = match seen.ending {
        Ending::Whole | Ending::Cut(_) => ending,
        _ => "damaged; this is what can be read",
    };
    let _ = writeln!(out, "{}: {state}", path.display());
    let command = head.command.join(" ").replace(memfit_wire::is_unprintable, " ");
    let page_bytes = u64::from(head.page_bytes);
    let pages = if page_bytes == PAGE_BYTES { String::new() } else { format!(", pages of {page_bytes} bytes") };
    let calls = seen.all_calls();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:10} {value}");
    };
    line("command", command);
    match head.is_generated() {
        true => line("generated", format!("by memfit {}", head.memfit)),
        false => line("recorded", format!("{} by memfit {}", utc(head.started), head.memfit)),
    }
    line("scheme", format!("{}, budget {}{pages}", scheme_name(head), human(head.budget_bytes)));
    line("run time", format!("{:.1} s", seen.run_ns as f64 / 1e9));
    line("processes", format!("{} paged, at most {} at once", grouped(seen.processes), grouped(seen.most_processes)));
    let (stored, raw) = (seen.a_call(seen.stored_bytes), seen.a_call(seen.raw_bytes));
    line(
        "size",
        match length {
            Some(bytes) if bytes > seen.read_bytes => {
                format!("{} of {bytes} bytes, {stored:.2} bytes a call", seen.read_bytes)
            }
            Some(bytes) => format!("{}, {stored:.2} bytes a call", human(bytes)),
            None => format!("{stored:.2} bytes a call"),
        } + &format!(" ({raw:.2} before compression)"),
    );
    line("calls", format!("{} in {} blocks", grouped(calls), grouped(seen.blocks)));
    for (name, count) in seen.by_call() {
        let _ = writeln!(out, "    {name:16} {:>12} {:3.0} %", grouped(count), count as f64 * 100.0 / calls as f64);
    }
    if seen.contents.any() {
        out += &seen.contents.text();
    }
    out
}

/// Date and time of `seconds` since 1970.
fn utc(seconds: u64) -> String {
    // Years begin in March here, so that a leap day is the last day of its year. 400 years have
    // 146097 days.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_767_225_599, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
