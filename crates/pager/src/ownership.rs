//! Whose memory a userfaultfd serves.
//!
//! A connection can outlive what made it. A program can hand its end to another process, and then
//! call exec, or end: its pid is that of a program with other rights, or of a stranger. A message
//! on the connection can bring a userfaultfd of that other process. The pager would read the
//! mappings of one process, register the same addresses in the other, and act on the first one when
//! the second breaks a rule.
//!
//! So the pager takes a page of the stub's window out of the registered range, and puts it back. In
//! between the kernel splits the mapping there, in the memory of the userfaultfd alone, and
//! `/proc/PID/maps` shows where. A process that has called exec never gets its old memory back. So
//! what was opened between two files that both show the split is of the same program.

use memfit_os::maps::Maps;
use memfit_os::process::random_bytes;
use memfit_os::uffd::Uffd;
use memfit_wire::{PAGE_BYTES, WINDOWS, WINDOW_PAGES};
use std::io;

const PAGE: u64 = PAGE_BYTES as u64;
const WINDOW_BYTES: u64 = WINDOW_PAGES as u64 * PAGE;
/// Pages that are tried: one of an earlier proof can have stayed a mapping of its own.
const TRIES: usize = 8;

/// The window of the stub: not an address of the program, whatever it says.
///
/// # Errors
/// If it cannot be one.
pub fn checked_window([start, end]: [u64; 2]) -> io::Result<(u64, u64)> {
    let bytes = WINDOWS.len() as u64 * WINDOW_BYTES;
    match start % PAGE == 0 && start.checked_add(bytes) == Some(end) {
        true => Ok((start, end)),
        false => Err(io::Error::other("its stub reports a window of another size")),
    }
}

/// Proves that a userfaultfd is of the memory that these files show. `window` is registered.
///
/// # Errors
/// If it is not, or the memory is gone.
pub fn prove(uffd: &Uffd, window: u64, [first, last]: [&mut Maps; 2]) -> io::Result<()> {
    for _ in 0..TRIES {
        // Within the second window, which the program cannot access before the stub opens it.
        let at = 1 + u64::from_ne_bytes(random_bytes()?) % (WINDOW_PAGES as u64 - 2);
        let page = window + WINDOW_BYTES + at * PAGE;
        let split_off = Some((page, page + PAGE));
        let is_apart = |maps: &mut Maps| Ok::<bool, io::Error>(maps.mapping_at(page)? == split_off);
        if is_apart(first)? || is_apart(last)? {
            continue;
        }
        uffd.unregister(page, PAGE)?;
        let split = is_apart(first).and_then(|is| Ok(is && is_apart(last)?));
        uffd.register(page, PAGE)?;
        return match split? {
            true => Ok(()),
            false => Err(io::Error::other("its userfaultfd is that of another process")),
        };
    }
    Err(io::Error::other("the owner of its userfaultfd cannot be found"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_its_size_and_whole_pages() {
        let bytes = 3 * 64 * 4096;
        assert_eq!(checked_window([1 << 30, (1 << 30) + bytes]).unwrap(), (1 << 30, (1 << 30) + bytes));
        for wrong in [[0, 4096], [1, 1 + bytes], [1 << 30, 1 << 20], [u64::MAX - 4095, bytes - 4096], [0, u64::MAX]] {
            assert!(checked_window(wrong).is_err(), "{wrong:?}");
        }
    }
}
