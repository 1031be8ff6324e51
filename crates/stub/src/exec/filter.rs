//! The environment without the stub and `MEMFIT_*`.

use super::next::environ;
use super::{Text, Texts};
use crate::{seccomp, sys};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Most entries of an environment that is filtered, with the terminator.
const ENTRIES_MAX: usize = 1024;
/// Entries for which a small array is enough.
const ENTRIES_FEW: usize = 128;
/// Longest `LD_PRELOAD=...` that is filtered, bytes.
const TEXT_MAX: usize = 4096;
/// Bytes for which a small buffer is enough.
const TEXT_SHORT: usize = 512;

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const OURS: &[u8] = b"MEMFIT_";
const STUB: &[u8] = b"/libmemfit.so";

/// A thread is in [`leave_environment`].
static BUSY: AtomicBool = AtomicBool::new(false);

/// Calls `forward` with a changed environment if the program cannot have a stub, else with `None`.
pub unsafe fn fit(is_32_bit: bool, envp: Texts, forward: impl Fn(Option<Texts>) -> i32) -> i32 {
    let changed = |envp| forward(Some(envp));
    // SAFETY: as the caller promises. The small buffers come first: a signal stack can be small.
    unsafe {
        let done = if !(is_32_bit || seccomp::starts_alone()) || envp.is_null() {
            None
        } else if let Some(result) = without_stub::<ENTRIES_FEW, TEXT_SHORT>(envp, changed) {
            Some(result)
        } else {
            without_stub::<ENTRIES_MAX, TEXT_MAX>(envp, changed)
        };
        done.unwrap_or_else(|| forward(None))
    }
}

/// Takes the stub out of the program's environment: libc's `system`, `popen` and `wordexp` start
/// programs, but not by the functions that are interposed. The text gets shorter where it is. The
/// array and its pointers stay: some programs, such as Perl, free both with their own allocator.
///
/// While another thread does the same, it is done.
pub fn leave_environment() {
    if BUSY.swap(true, Acquire) {
        return;
    }
    // SAFETY: a null-terminated array of C strings, if there is one. As in `getenv`, no other
    // thread frees them. They come from the kernel or the program, and both make them writable.
    unsafe {
        let mut place = environ();
        while !place.is_null() && !(*place).is_null() {
            if starts_with(*place, PRELOAD) {
                without_entry(*place, (*place).cast_mut(), usize::MAX);
            }
            place = place.add(1);
        }
    }
    BUSY.store(false, Release);
}

/// In a fork child, which does not have the thread that did this at the fork.
pub fn leave_environment_in_child() {
    if BUSY.swap(false, Acquire) {
        leave_environment();
    }
}

/// Separate, so that only this path uses so much stack. `None` if the buffers are too small.
#[inline(never)]
unsafe fn without_stub<const ENTRIES: usize, const TEXT: usize>(
    envp: Texts,
    forward: impl Fn(Texts) -> i32,
) -> Option<i32> {
    let mut kept = [MaybeUninit::uninit(); ENTRIES];
    let mut text = [MaybeUninit::uninit(); TEXT];
    // SAFETY: as the caller promises.
    unsafe { filter(envp, &mut kept, &mut text) }.then(|| forward(kept.as_ptr().cast()))
}

/// Copies the environment without the stub and `MEMFIT_*`. False if it does not fit.
unsafe fn filter(envp: Texts, kept: &mut [MaybeUninit<Text>], mut text: &mut [MaybeUninit<u8>]) -> bool {
    let mut count = 0;
    // SAFETY: the environment is null-terminated and not read beyond that.
    unsafe {
        for i in 0.. {
            let mut entry = *envp.add(i);
            if !entry.is_null() && starts_with(entry, OURS) {
                continue;
            }
            if !entry.is_null() && starts_with(entry, PRELOAD) {
                match without_entry(entry, text.as_mut_ptr().cast(), text.len()) {
                    Preload::Unchanged => {}
                    Preload::Empty => continue,
                    Preload::TooLong => return false,
                    Preload::Changed(len) => {
                        entry = text.as_ptr().cast();
                        text = text.get_mut(len..).unwrap_or_default();
                    }
                }
            }
            let Some(place) = kept.get_mut(count) else { return false };
            place.write(entry);
            count += 1;
            if entry.is_null() {
                return true;
            }
        }
    }
    false
}

enum Preload {
    Unchanged,
    Empty,
    TooLong,
    /// Number of bytes written, with the terminator.
    Changed(usize),
}

/// Writes an `LD_PRELOAD=...` without the stub to `to`, which has `room` bytes, or may be the entry
/// itself. Writes nothing if the stub is not in it.
unsafe fn without_entry(entry: Text, to: *mut u8, room: usize) -> Preload {
    let start = PRELOAD.len();
    // SAFETY: the entry is a C string; all writes are within `room`, and in the entry itself never
    // behind what was read.
    unsafe {
        if !any_name(entry, |from, end| is_stub(entry, from, end)) {
            return Preload::Unchanged;
        }
        let mut len = start;
        let is_too_long = any_name(entry, |from, end| {
            if is_stub(entry, from, end) {
                return false;
            }
            if end - from >= room.saturating_sub(len + 1) {
                return true;
            }
            if len > start {
                *to.add(len) = b':';
                len += 1;
            }
            sys::copy(to.add(len) as usize, entry.add(from) as usize, end - from);
            len += end - from;
            false
        });
        if is_too_long || len >= room {
            return Preload::TooLong;
        }
        sys::copy(to as usize, PRELOAD.as_ptr() as usize, start);
        *to.add(len) = 0;
        match len > start {
            true => Preload::Changed(len + 1),
            false => Preload::Empty,
        }
    }
}

/// Whether `holds` for a name in an `LD_PRELOAD=...`, by its place in the text. It may write over
/// names that it has seen, and the separator behind them.
unsafe fn any_name(entry: Text, mut holds: impl FnMut(usize, usize) -> bool) -> bool {
    let mut from = PRELOAD.len();
    // SAFETY: the entry is a C string.
    unsafe {
        while byte(entry, from) != 0 {
            let mut end = from;
            while !matches!(byte(entry, end), b':' | b' ' | 0) {
                end += 1;
            }
            let next = end + usize::from(byte(entry, end) != 0);
            if end > from && holds(from, end) {
                return true;
            }
            from = next;
        }
    }
    false
}

/// Whether a name in the text is the stub.
unsafe fn is_stub(entry: Text, from: usize, end: usize) -> bool {
    // SAFETY: the name is in the C string.
    end - from >= STUB.len() && unsafe { starts_with(entry.add(end - STUB.len()), STUB) }
}

/// The value of the variable; `name` ends with `=`.
pub unsafe fn value(environment: Texts, name: &[u8]) -> Option<Text> {
    // SAFETY: a null-terminated array, if there is one.
    unsafe {
        let mut entry = environment;
        while !entry.is_null() && !(*entry).is_null() {
            if starts_with(*entry, name) {
                return Some((*entry).add(name.len()));
            }
            entry = entry.add(1);
        }
    }
    None
}

/// Whether the text starts with `start`.
pub unsafe fn starts_with(text: Text, start: &[u8]) -> bool {
    // SAFETY: stops at the first difference, at the latest at the terminator.
    start.iter().enumerate().all(|(i, expected)| unsafe { byte(text, i) } == *expected)
}

/// A byte of the program's text. Volatile: the compiler would turn loops over plain reads into
/// calls of libc functions.
pub unsafe fn byte(text: Text, at: usize) -> u8 {
    // SAFETY: the caller knows that the byte is there.
    unsafe { text.add(at).read_volatile() }
}
