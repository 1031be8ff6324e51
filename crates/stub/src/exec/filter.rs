//! The environment without the stub and `MEMFIT_*`.

use super::next::environ_place;
use super::{Text, Texts};
use crate::{seccomp, sys};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};

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

/// The program's environment without the stub.
static mut ENTRIES: [MaybeUninit<Text>; ENTRIES_MAX] = [MaybeUninit::uninit(); ENTRIES_MAX];
static mut TEXTS: [MaybeUninit<u8>; TEXT_MAX] = [MaybeUninit::uninit(); TEXT_MAX];
/// They are in use.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the program an environment without the stub: libc's `system`, `popen` and `wordexp` start
/// programs, but not by the functions that are interposed. The old one stays as it is for threads
/// that read it.
pub fn leave_environment() {
    let place = environ_place();
    if place.is_null() || TAKEN.swap(true, Relaxed) {
        return;
    }
    // SAFETY: libc's variable; a null-terminated array of C strings. Nobody reads the new one
    // before it is complete, and nobody else writes it.
    unsafe {
        let place = AtomicPtr::from_ptr(place.cast_mut().cast::<*mut Text>());
        let (entries, texts) = (&raw mut ENTRIES, &raw mut TEXTS);
        loop {
            let old = place.load(Acquire);
            // Another thread may add a variable meanwhile.
            if old.is_null()
                || !filter(old, &mut *entries, &mut *texts)
                || place.compare_exchange(old, entries.cast(), Release, Relaxed).is_ok()
            {
                return;
            }
        }
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
                match without_entry(entry, text) {
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

/// Writes an `LD_PRELOAD=...` without the stub.
unsafe fn without_entry(entry: Text, text: &mut [MaybeUninit<u8>]) -> Preload {
    let (mut len, mut found) = (PRELOAD.len(), false);
    let mut from = PRELOAD.len();
    let to = text.as_mut_ptr().cast::<u8>();
    // SAFETY: the entry is a C string; all writes are within `text`, which has room for one byte
    // more than `len`.
    unsafe {
        while byte(entry, from) != 0 {
            let mut end = from;
            while !matches!(byte(entry, end), b':' | b' ' | 0) {
                end += 1;
            }
            let stub = end - from >= STUB.len() && starts_with(entry.add(end - STUB.len()), STUB);
            found |= stub;
            if end > from && !stub {
                if len + 1 + end - from >= text.len() {
                    return Preload::TooLong;
                }
                *to.add(len) = b':';
                len += usize::from(len > PRELOAD.len());
                sys::copy(to.add(len) as usize, entry.add(from) as usize, end - from);
                len += end - from;
            }
            from = end + usize::from(byte(entry, end) != 0);
        }
        if !found {
            return Preload::Unchanged;
        }
        if len == PRELOAD.len() {
            return Preload::Empty;
        }
        sys::copy(to as usize, PRELOAD.as_ptr() as usize, PRELOAD.len());
        *to.add(len) = 0;
        Preload::Changed(len + 1)
    }
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
