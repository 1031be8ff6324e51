//! System calls that read and write pages: the page faults happen in the kernel.

use crate::content::PAGE;
use crate::ctx::{bytes, Ctx, Need, Run, SCRATCH_PAGES};
use crate::model::Prot;
use crate::report::{self, Who};
use crate::sys::{self, Errno, Span};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A way to copy bytes from one range of memory to another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Channel {
    Pipe,
    Socket,
    File,
    Direct,
    ProcMem,
    Vm,
}

/// File descriptors of a thread.
pub struct Io {
    pipe: (OwnedFd, OwnedFd),
    socket: (OwnedFd, OwnedFd),
    file: OwnedFd,
    direct: Option<OwnedFd>,
    memory: OwnedFd,
}

fn own(fd: i32) -> Result<OwnedFd, Errno> {
    if fd < 0 {
        return Err(sys::errno());
    }
    // SAFETY: a descriptor that was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn open(path: &Path, flags: i32) -> Result<OwnedFd, Errno> {
    let mut name = path.as_os_str().as_bytes().to_vec();
    name.push(0);
    // SAFETY: a NUL-terminated path; the mode is used with O_TMPFILE only.
    own(unsafe { libc::open(name.as_ptr().cast(), flags | libc::O_CLOEXEC, 0o600) })
}

fn pair(make: impl FnOnce(&mut [i32; 2]) -> i32) -> Result<(OwnedFd, OwnedFd), Errno> {
    let mut fds = [-1; 2];
    if make(&mut fds) != 0 {
        return Err(sys::errno());
    }
    Ok((own(fds[0])?, own(fds[1])?))
}

impl Io {
    /// Opens all descriptors. O_DIRECT may be missing in the file system.
    pub fn open(who: &Who, dir: &Path) -> Io {
        let must = |r: Result<OwnedFd, Errno>| r.unwrap_or_else(|e| report::broken(who, "open", &e));
        // SAFETY: both write two descriptors to the array.
        let pipe = pair(|fds| unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) });
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: as above.
        let socket = pair(|fds| unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) });
        Io {
            pipe: pipe.unwrap_or_else(|e| report::broken(who, "pipe", &e)),
            socket: socket.unwrap_or_else(|e| report::broken(who, "socketpair", &e)),
            file: must(open(dir, libc::O_RDWR | libc::O_TMPFILE)),
            direct: open(dir, libc::O_RDWR | libc::O_TMPFILE | libc::O_DIRECT).ok(),
            memory: must(open(Path::new("/proc/self/mem"), libc::O_RDWR)),
        }
    }
}

/// A system call that moves bytes: gets the range, the bytes done so far (file offset) and the
/// bytes left; returns the bytes moved.
type Step<'a> = &'a dyn Fn(Span, usize, usize) -> isize;

/// Repeats a call until the whole range is transferred.
fn all(span: Span, step: Step) -> Result<(), Errno> {
    let mut done = 0;
    while done < span.len() {
        let n = step(span, done, span.len() - done);
        match n {
            0 => return Err(Errno(libc::EIO)),
            n if n > 0 => done += n as usize,
            _ if sys::errno() == Errno(libc::EINTR) => {}
            _ => return Err(sys::errno()),
        }
    }
    Ok(())
}

fn at(span: Span, done: usize) -> *mut libc::c_void {
    (span.addr() + done) as *mut _
}

fn write_all(fd: &OwnedFd, span: Span) -> Result<(), Errno> {
    // SAFETY: the kernel reads test memory.
    all(span, &|s, done, n| unsafe { libc::write(fd.as_raw_fd(), at(s, done), n) })
}

/// vmsplice: the pipe refers to the pages, and copies nothing.
fn splice_all(fd: &OwnedFd, span: Span) -> Result<(), Errno> {
    all(span, &|s, done, n| {
        let part = libc::iovec { iov_base: at(s, done), iov_len: n };
        // SAFETY: the kernel reads test memory, which nobody changes before it is read back.
        unsafe { libc::vmsplice(fd.as_raw_fd(), &part, 1, 0) }
    })
}

fn read_all(fd: &OwnedFd, span: Span) -> Result<(), Errno> {
    // SAFETY: the kernel writes test memory.
    all(span, &|s, done, n| unsafe { libc::read(fd.as_raw_fd(), at(s, done), n) })
}

/// Reads two halves by one readv.
fn readv_all(fd: &OwnedFd, span: Span) -> Result<(), Errno> {
    all(span, &|s, done, n| {
        let half = n / 2;
        let parts = [
            libc::iovec { iov_base: at(s, done), iov_len: half },
            libc::iovec { iov_base: at(s, done + half), iov_len: n - half },
        ];
        // SAFETY: the kernel writes test memory, described by two valid parts.
        unsafe { libc::readv(fd.as_raw_fd(), parts.as_ptr(), 2) }
    })
}

fn pwrite_all(fd: &OwnedFd, span: Span, offset: usize) -> Result<(), Errno> {
    // SAFETY: the kernel reads test memory (and writes other test memory, if this is
    // /proc/self/mem).
    all(span, &|s, done, n| unsafe { libc::pwrite(fd.as_raw_fd(), at(s, done), n, (offset + done) as i64) })
}

fn pread_all(fd: &OwnedFd, span: Span, offset: usize) -> Result<(), Errno> {
    // SAFETY: the kernel writes test memory.
    all(span, &|s, done, n| unsafe { libc::pread(fd.as_raw_fd(), at(s, done), n, (offset + done) as i64) })
}

/// process_vm_readv or process_vm_writev on this process.
fn vm_copy(local: Span, remote: Span, write: bool) -> Result<(), Errno> {
    all(local, &|s, done, n| {
        let near = libc::iovec { iov_base: at(s, done), iov_len: n };
        let far = libc::iovec { iov_base: at(remote, done), iov_len: n };
        // SAFETY: both sides are test memory of the same length in our own process.
        unsafe {
            let pid = libc::getpid();
            if write {
                libc::process_vm_writev(pid, &near, 1, &far, 1, 0)
            } else {
                libc::process_vm_readv(pid, &near, 1, &far, 1, 0)
            }
        }
    })
}

/// Pages that fit into a pipe or socket without a reader.
fn chunk_pages(channel: Channel, io: &Io) -> usize {
    match channel {
        Channel::Pipe => {
            // SAFETY: plain query.
            let room = unsafe { libc::fcntl(io.pipe.1.as_raw_fd(), libc::F_GETPIPE_SZ) };
            (room.max(4096) as usize / PAGE).max(1)
        }
        Channel::Socket => 4,
        _ => SCRATCH_PAGES,
    }
}

/// Access through /proc/PID/mem (as by ptrace) cannot wait for a userfaultfd: the kernel returns
/// EIO for an evicted page. Then touch the pages and try again.
fn by_memory_file(pages: Span, access: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    for _ in 0..1000 {
        match access() {
            Err(Errno(libc::EIO)) => {}
            result => return result,
        }
        for i in 0..pages.pages() {
            // SAFETY: test memory that is readable.
            unsafe { std::ptr::read_volatile((pages.addr() + i * PAGE) as *const u8) };
        }
    }
    access()
}

fn transfer(io: &Io, channel: Channel, from: Span, to: Span, variant: bool) -> Result<(), Errno> {
    match channel {
        Channel::Pipe | Channel::Socket => {
            let (receive, send) = if channel == Channel::Pipe { &io.pipe } else { &io.socket };
            let step = chunk_pages(channel, io);
            for first in (0..from.pages()).step_by(step) {
                let n = step.min(from.pages() - first);
                if channel == Channel::Pipe && variant {
                    splice_all(send, from.sub(first, n))?;
                } else {
                    write_all(send, from.sub(first, n))?;
                }
                let part = to.sub(first, n);
                if variant {
                    readv_all(receive, part)?;
                } else {
                    read_all(receive, part)?;
                }
            }
            Ok(())
        }
        Channel::File => {
            let offset = if variant { 0 } else { 12_345 };
            pwrite_all(&io.file, from, offset)?;
            pread_all(&io.file, to, offset)
        }
        Channel::Direct => {
            let fd = io.direct.as_ref().unwrap_or(&io.file);
            pwrite_all(fd, from, 0)?;
            pread_all(fd, to, 0)
        }
        Channel::ProcMem if variant => by_memory_file(to, || pwrite_all(&io.memory, from, to.addr())),
        Channel::ProcMem => by_memory_file(from, || pread_all(&io.memory, to, from.addr())),
        Channel::Vm if variant => vm_copy(from, to, true),
        Channel::Vm => vm_copy(to, from, false),
    }
}

/// Copies pages out and compares the copy, copies new contents in, or copies from pages to pages.
fn exchange(ctx: &mut Ctx, channel: Channel, names: (&'static str, &'static str)) {
    let run = ctx.pick_run(SCRATCH_PAGES);
    let variant = ctx.rng.one_in(2);
    let mine = ctx.span(run);
    let scratch = ctx.scratch.sub(0, run.count);
    if ctx.rng.one_in(2) {
        ctx.make(run, Need::Read);
        ctx.note(names.0, run);
        let result = transfer(&ctx.io, channel, mine, scratch, variant);
        ctx.must(names.0, result);
        ctx.check_copy(run, scratch, names.0);
    } else {
        ctx.make(run, Need::Write);
        ctx.note(names.1, run);
        ctx.write_to(run, scratch);
        let result = transfer(&ctx.io, channel, scratch, mine, variant);
        ctx.must(names.1, result);
        if ctx.rng.one_in(2) {
            ctx.verify(run, names.1);
        }
    }
}

/// Pipes and sockets.
pub fn pipe(ctx: &mut Ctx) {
    if ctx.rng.one_in(2) {
        exchange(ctx, Channel::Pipe, ("to a pipe", "from a pipe"));
    } else {
        exchange(ctx, Channel::Socket, ("to a socket", "from a socket"));
    }
}

/// Files through the page cache.
pub fn file(ctx: &mut Ctx) {
    exchange(ctx, Channel::File, ("to a file", "from a file"));
}

/// Files without the page cache (O_DIRECT): the kernel pins the pages meanwhile.
pub fn direct(ctx: &mut Ctx) {
    if ctx.io.direct.is_none() {
        return ctx.refused();
    }
    exchange(ctx, Channel::Direct, ("to a file, O_DIRECT", "from a file, O_DIRECT"));
}

/// /proc/self/mem.
pub fn procmem(ctx: &mut Ctx) {
    exchange(ctx, Channel::ProcMem, ("read by /proc/self/mem", "written by /proc/self/mem"));
}

/// process_vm_readv and process_vm_writev, which debuggers use.
pub fn vmio(ctx: &mut Ctx) {
    exchange(ctx, Channel::Vm, ("process_vm_readv", "process_vm_writev"));
}

/// The kernel must refuse access that the page's protection forbids, whether or not the page is
/// present.
pub fn expect_efault(ctx: &mut Ctx, run: Run, prot: Prot) {
    let page = ctx.span(run);
    let (receive, send) = &ctx.io.pipe;
    let scratch = ctx.scratch.sub(0, 1);
    let result = if prot == Prot::None {
        let result = write_all(send, page);
        // Some kernels (6.12) leave an empty buffer in the pipe, which takes the place of a page
        // until something behind it is read. After many of them a later write would wait for a
        // reader forever.
        let sent = write_all(send, scratch);
        ctx.must("write to a pipe", sent);
        result
    } else {
        let sent = write_all(send, scratch);
        ctx.must("write to a pipe", sent);
        read_all(receive, page)
    };
    let drained = read_all(receive, scratch);
    ctx.must("read from a pipe", drained);
    if result != Err(Errno(libc::EFAULT)) {
        let detail = format!("{} bytes at {:#x}, {prot:?}: {result:?}", bytes(1), page.addr());
        ctx.broken("a system call did not respect the protection", &detail);
    }
}
