//! Reports of failures, written to a fixed buffer because the heap may be corrupt.

use crate::content::{fill_base, kind_for, PageBuf, Tag, PAGE};
use crate::model::{History, Mismatch, TestRegion};
use crate::ops::OPS;
use crate::status::Status;
use crate::sys;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Exit status: all verified.
pub const EXIT_OK: i32 = 0;
/// Exit status: wrong usage.
pub const EXIT_USAGE: i32 = 2;
/// Exit status: memory has wrong contents.
pub const EXIT_MISMATCH: i32 = 3;
/// Exit status: no progress.
pub const EXIT_STALL: i32 = 4;
/// Exit status: a crash, or a system call failed that must not.
pub const EXIT_BROKEN: i32 = 5;

/// A text buffer without heap; text that does not fit is lost.
pub struct RawOut {
    buf: [u8; 16384],
    len: usize,
}

impl RawOut {
    /// An empty buffer.
    pub const fn new() -> RawOut {
        RawOut { buf: [0; 16384], len: 0 }
    }

    /// Writes the text to a descriptor.
    pub fn flush(&mut self, fd: i32) {
        let mut done = 0;
        while done < self.len {
            // SAFETY: bytes inside our own buffer.
            let n = unsafe { libc::write(fd, self.buf[done..].as_ptr().cast(), self.len - done) };
            if n <= 0 {
                break;
            }
            done += n as usize;
        }
        self.len = 0;
    }
}

impl Write for RawOut {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let n = s.len().min(self.buf.len() - self.len);
        self.buf[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Where a failure happened, for its report.
#[derive(Clone, Copy)]
pub struct Who {
    /// Seed of the whole run.
    pub seed: u64,
    /// Index of the process.
    pub process: usize,
    /// Number of restarts of the process.
    pub life: u32,
    /// Index of the thread.
    pub thread: usize,
    /// Number of the operation.
    pub op_no: u64,
    /// Index of the kind of operation.
    pub op: usize,
    /// Abort instead of exit.
    pub abort: bool,
    /// In a forked child.
    pub forked: bool,
    /// Print the JSON line on failure (there is no supervisor to do so).
    pub json: bool,
    /// Counters.
    pub status: &'static Status,
}

static FAILING: AtomicBool = AtomicBool::new(false);

/// In a forked child: forgets a failure that its parent was reporting.
pub fn forget_failure() {
    FAILING.store(false, Ordering::SeqCst);
}

/// Only the first failure of a process is reported. Other threads wait for the end.
fn claim() {
    if FAILING.swap(true, Ordering::SeqCst) {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
    }
}

fn finish(who: &Who, out: &mut RawOut, code: i32) -> ! {
    out.flush(2);
    who.status.errors.fetch_add(1, Ordering::SeqCst);
    if who.json && !who.forked {
        let _ = who.status.write_json(out, who.seed);
        out.flush(1);
    }
    if who.abort {
        std::process::abort();
    }
    sys::exit_now(code)
}

fn headline(out: &mut RawOut, who: &Who, what: &str) {
    let op = OPS.get(who.op).map_or("-", |o| o.name);
    let child = if who.forked { " (forked child)" } else { "" };
    let _ = writeln!(out, "torture: FAILED: {what}");
    let _ = writeln!(
        out,
        "  seed {} process {}{child} life {} thread {} tid {} op #{} ({op})",
        who.seed,
        who.process,
        who.life,
        who.thread,
        sys::gettid(),
        who.op_no
    );
}

/// A system call failed that must not (EFAULT for good memory, or a missing resource).
pub fn broken(who: &Who, what: &str, detail: &dyn std::fmt::Display) -> ! {
    claim();
    let mut out = RawOut::new();
    headline(&mut out, who, what);
    let _ = writeln!(out, "  {detail}");
    finish(who, &mut out, EXIT_BROKEN)
}

/// A single value is wrong.
pub fn wrong_value(who: &Who, what: &str, addr: usize, expected: u64, found: u64) -> ! {
    claim();
    let mut out = RawOut::new();
    headline(&mut out, who, what);
    let _ = writeln!(out, "  at {addr:#x}: expected {expected:#018x}, found {found:#018x}");
    finish(who, &mut out, EXIT_MISMATCH)
}

/// A forked child ended in another way than by itself. Its own report says what was wrong, if it
/// has made one.
pub fn child_failed(who: &Who, pid: i32, status: i32, recent: &History) -> ! {
    claim();
    let mut out = RawOut::new();
    headline(&mut out, who, "a forked child");
    let _ = writeln!(out, "  process {pid} has the wait status {status:#06x}");
    let _ = writeln!(out, "  last operations of its parent's thread:");
    write_history(&mut out, recent, None);
    finish(who, &mut out, EXIT_MISMATCH)
}

fn write_history(out: &mut RawOut, history: &History, page: Option<u32>) {
    for event in history.iter() {
        let here = page.is_none_or(|p| (event.first..event.first + event.count).contains(&p));
        let mark = if here { '*' } else { ' ' };
        let name = OPS.get(usize::from(event.op)).map_or("-", |o| o.name);
        let (first, end) = (event.first, event.first + event.count);
        let _ = writeln!(
            out,
            "  {mark} op #{} {name}: {} pages {first}..{end} version {}",
            event.op_no, event.what, event.version
        );
    }
}

/// Guesses what the actual bytes are.
fn explain(out: &mut RawOut, region: &TestRegion, i: usize, found: &PageBuf) {
    if found.is_zero() {
        let _ = writeln!(out, "  the page is all zero");
        return;
    }
    let mut buf = PageBuf::zeroed();
    let now = region.pages[i].version;
    for version in region.history.iter().map(|e| e.version) {
        let tag = Tag { version, ..region.tag(i) };
        fill_base(&mut buf, tag, kind_for(tag));
        if buf.0 == found.0 {
            let age = if version == now { "the current version without its patches" } else { "an OLD version" };
            let _ = writeln!(out, "  the page is {age}: {version} (now {now})");
            return;
        }
    }
    for other in 0..region.len() {
        region.expect(other, &mut buf);
        if other != i && buf.0 == found.0 && !buf.is_zero() {
            let _ = writeln!(out, "  the page is the content of page {other} of the same region");
            return;
        }
    }
}

/// Reports a wrong page with everything that is known about it, and ends the process.
pub fn wrong_page(
    who: &Who,
    how: &str,
    region: &TestRegion,
    i: usize,
    bad: Mismatch,
    found: &PageBuf,
    recent: &History,
) -> ! {
    claim();
    let mut out = RawOut::new();
    headline(&mut out, who, how);
    let page = &region.pages[i];
    let addr = region.addr + i * PAGE;
    let _ = writeln!(
        out,
        "  at {:#x}: expected {:#018x}, found {:#018x} (word {} of the page, {} of 512 words are wrong)",
        addr + bad.word * 8,
        bad.expected,
        bad.found,
        bad.word,
        bad.wrong
    );
    let _ = writeln!(
        out,
        "  page {i} at {addr:#x} of region {:#x} at {:#x}, {} pages, base {}: {page:?}",
        region.key,
        region.addr,
        region.len(),
        region.base
    );
    explain(&mut out, region, i, found);
    let _ = writeln!(out, "  last operations on the region (* includes the page), newest first:");
    write_history(&mut out, &region.history, Some(region.base + i as u32));
    let _ = writeln!(out, "  last operations of the thread:");
    write_history(&mut out, recent, None);
    finish(who, &mut out, EXIT_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_out_never_overflows() {
        let mut out = RawOut::new();
        for _ in 0..10_000 {
            let _ = write!(out, "some text");
        }
        assert_eq!(out.len, 16384);
    }

    #[test]
    fn an_old_version_is_recognised() {
        let mut region = TestRegion::new(5, 0x10000, 2, false, 1);
        region.history.push(crate::model::Event { version: 1, ..Default::default() });
        let mut old = PageBuf::zeroed();
        // A version whose content is not zero.
        let version = (1..).find(|&v| kind_for(Tag { version: v, ..region.tag(0) }) as u8 != 0).unwrap();
        region.history.push(crate::model::Event { version, ..Default::default() });
        region.renew(0, version);
        region.expect(0, &mut old);
        region.renew(0, version + 1);
        let mut out = RawOut::new();
        explain(&mut out, &region, 0, &old);
        assert!(std::str::from_utf8(&out.buf[..out.len]).unwrap().contains("OLD"));
    }
}
