//! Loads libmemfit.so into a program that runs without it, and starts its thread there.

use super::{word, Failure, Tracee};
use crate::image::{Image, Part};
use crate::{procfs, program};
use memfit_wire::{far, Loaded, CLONE_FLAGS, PAGE_BYTES, STACK_BYTES};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

/// The bytes of a `syscall` instruction.
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Most bytes of one mapping in which such an instruction is sought.
const SOUGHT_MAX: u64 = 4 << 20;

/// What a thread loads.
#[derive(Debug, Clone)]
pub struct Load {
    /// The library, and its path with a null.
    pub image: Arc<Image>,
    #[allow(missing_docs)]
    pub path: CString,
    /// Device and inode of its file: the program could see another one under that path.
    pub library: (u64, u64),
    /// What its thread must know.
    pub loaded: Loaded,
    /// Where the stack of the process's first thread must have begun.
    pub start_stack: u64,
    /// What [`program::file`] must say: without randomised addresses the stacks of two programs can
    /// begin at the same one.
    pub file: (u64, u64),
}

impl Tracee {
    /// Maps the image and a stack, and makes the thread of the image. The process has no system
    /// call filter. Returns the id of the thread.
    pub(super) fn load(&self, pid: i32, load: &Load) -> Result<u64, Failure> {
        self.may_call()?;
        if program::file(pid) != Some(load.file) {
            return Err(Failure::NotNow);
        }
        let instruction = self.instruction(pid).ok_or(Failure::NotNow)?;
        // Opened before a call is made: if the process executes another program meanwhile, the
        // calls fail, and this is still the memory of the old one.
        let own = format!("/proc/{pid}/task/{}", self.tid);
        let memory = File::options().write(true).open(format!("{own}/mem")).map_err(Failure::Call)?;
        let result = self.map_and_start(pid, instruction, load, &memory);
        let back = self.go_back();
        // Once the stub thread is made, nobody must make a second one.
        let thread = result?;
        drop(back);
        Ok(thread)
    }

    fn map_and_start(&self, pid: i32, instruction: u64, load: &Load, memory: &File) -> Result<u64, Failure> {
        let call = |number: libc::c_long, arguments| self.call(instruction, number as u64, arguments);
        let (image, bytes) = (&load.image, load.image.bytes() + STACK_BYTES as u64);
        let access = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        // In a fork child, the kernel could choose a hole that the program keeps.
        let wanted = far(load.start_stack as usize ^ (pid as usize) << 16) as u64;
        let base = call(libc::SYS_mmap, [wanted, bytes, access, flags, u64::MAX, 0])?;
        let made = (|| {
            let stack = base + image.bytes();
            let write = |bytes: &[u8], at| memory.write_all_at(bytes, at).map_err(Failure::Call);
            for part in image.parts().iter().filter(|part| part.offset.is_none()) {
                write(&image.contents(part, base), base + part.start)?;
            }
            write(load.path.as_bytes_with_nul(), stack)?;
            // Something else than a file could block the thread.
            let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
            let file = call(libc::SYS_openat, [libc::AT_FDCWD as u64, stack, flags, 0, 0, 0])?;
            let flags = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
            let map = |part: &Part| {
                let Some(offset) = part.offset else { return Ok(0) };
                let (at, bytes) = (base + part.start, part.end - part.start);
                call(libc::SYS_mmap, [at, bytes, part.access, flags, file, offset])
            };
            let is_it = || {
                let opened =
                    std::fs::metadata(format!("/proc/{pid}/task/{}/fd/{file}", self.tid)).map_err(Failure::Call)?;
                let is_it = (opened.dev(), opened.ino()) == load.library;
                is_it.then_some(()).ok_or_else(|| Failure::Call(io::Error::other("it finds another file there")))
            };
            let mapped = is_it().and_then(|()| image.parts().iter().try_for_each(|part| map(part).map(|_| ())));
            call(libc::SYS_close, [file, 0, 0, 0, 0, 0])?;
            mapped?;
            write(&load.loaded.bytes(), stack)?;
            let thread_pointer = stack + (STACK_BYTES - PAGE_BYTES) as u64;
            let arguments = [CLONE_FLAGS as u64, thread_pointer - 64, 0, 0, thread_pointer, stack];
            self.call(base + image.entry(), libc::SYS_clone as u64, arguments)
        })();
        if made.is_err() {
            let _ = call(libc::SYS_munmap, [base, bytes, 0, 0, 0, 0]);
        }
        made
    }

    /// Address of a `syscall` instruction of the process: the one that the thread is in, or any.
    fn instruction(&self, pid: i32) -> Option<u64> {
        let last = self.registers.rip.wrapping_sub(SYSCALL.len() as u64);
        let is_there = |at| word(self.tid, at).is_ok_and(|word| word.to_le_bytes().starts_with(&SYSCALL));
        if self.registers.orig_rax as i64 >= 0 && is_there(last) {
            return Some(last);
        }
        let mappings = procfs::read_memory(pid, "maps").ok()?;
        let memory = procfs::open_memory(pid, "mem").ok()?;
        let executable = mappings.lines().filter_map(executable);
        let (vdso, others): (Vec<_>, Vec<_>) = executable.partition(|(_, _, name)| *name == "[vdso]");
        let found = vdso.into_iter().chain(others).find_map(|(start, end, _)| sought(&memory, start, end).ok()?);
        found.filter(|&at| is_there(at))
    }
}

/// Start, end and name of an executable mapping, from its line in /proc/PID/maps. Not of the
/// kernel's own page, which cannot be read.
fn executable(line: &str) -> Option<(u64, u64, &str)> {
    let mut parts = line.split_ascii_whitespace();
    let (range, access) = (parts.next()?, parts.next()?);
    let name = parts.nth(3).unwrap_or_default();
    let (start, end) = range.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    (access.starts_with("r-x") && name != "[vsyscall]").then_some((number(start)?, number(end)?, name))
}

/// Address of the first `syscall` instruction in a range.
fn sought(memory: &File, start: u64, end: u64) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; (end - start).min(SOUGHT_MAX) as usize];
    memory.read_exact_at(&mut bytes, start)?;
    Ok(bytes.windows(SYSCALL.len()).position(|found| found == SYSCALL).map(|at| start + at as u64))
}
