//! The stub thread: says hello, sleeps until the pager needs pages, takes them.
//!
//! It is a thread and not a process that shares the memory. A thread ends with exec and exit, so
//! the memory of a dead program never outlives it. The stub thread has an empty descriptor table,
//! its own stack and thread pointer, and blocks every signal. A process gets it when the pager is
//! to page it: the pager has a thread of the program make it (`greeting`). The fork child of a
//! paged process depends on the stub thread and makes it at once.

use crate::forbidden::{forbids, forbids_here, yield_now};
use crate::socket::{ask, connect, is_known, receive, remove_place, send, set_name, set_place};
use crate::sys::{self, syscall, PAGE_BYTES};
use crate::take::Taker;
use crate::{access, confine, file_map, fork, greeting, lock, map};
use core::arch::global_asm;
use core::mem::{replace, size_of, zeroed};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use memfit_wire::uffd::USERFAULTFD_IOC_NEW;
use memfit_wire::{
    Command, FromStub, Loaded, Ring, ALL_ENDED, ANNOUNCE_FORKS, ATTACH, ATTACHED, BATCH, BYE, CLONE_FLAGS, CONFINE,
    DETACH, DOORBELL_PAGES, FORKED, FORKED_AGAIN, HELLO, HOLD, INDEPENDENT, IN_CALL, LEND, LOADED, MAPS, OPEN,
    OPEN_WINDOW, PAGEMAP, QUIET, RELEASE, REMAP, RING_BYTES, SERVED, SOCKET_NAME_MAX, STACK_BYTES, STAY, TRUST_MOVE,
    WAIT, WINDOWS, WINDOW_PAGES, WIPES, WITH_DEVICE, WITH_UFFD,
};

/// Address of the beacon page that fork children inherit; 0 before the process is attached.
static BEACON: AtomicUsize = AtomicUsize::new(0);
/// Where the stub's mappings are, or were in the fork parent.
static STACK: AtomicUsize = AtomicUsize::new(0);
static SEGMENT: AtomicUsize = AtomicUsize::new(0);
static WINDOW: AtomicUsize = AtomicUsize::new(0);
static DOORBELL: AtomicUsize = AtomicUsize::new(0);
/// State of the stub thread: [`IDLE`] or [`PAGED`].
static STATE: AtomicU32 = AtomicU32::new(IDLE);
/// Tid of the stub thread: 0 before its hello, [`NONE`] at its end.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// As [`THREAD`], but keeps the tid when the thread is about to end.
static SAID_HELLO: AtomicUsize = AtomicUsize::new(0);
/// Pid of the process that has the stub thread.
static PROCESS: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = usize::MAX;
/// Polls for the hello, which comes in under a millisecond.
const HELLO_POLLS: u32 = 100_000;
/// The process is detached: it has no stub thread any more, and its fork children get none.
static DETACHED: AtomicBool = AtomicBool::new(false);
/// A thread already waits for the end of the stub thread, and will unmap its stack.
static AWAITED: AtomicBool = AtomicBool::new(false);
const IDLE: u32 = 0;
const PAGED: u32 = 1;
/// The pager has loaded this library.
static IS_LOADED: AtomicBool = AtomicBool::new(false);
/// The process makes its stub thread itself, or the thread runs: a second one must not run.
static MAKING: AtomicBool = AtomicBool::new(false);
static MADE: AtomicBool = AtomicBool::new(false);
/// See [`depends`].
static DEPENDS: AtomicBool = AtomicBool::new(false);
/// In an announced fork child: the pager's number of the fork, for the hello. Else 0.
static TOKEN: AtomicU64 = AtomicU64::new(0);

global_asm!(
    ".globl memfit_stub_clone",
    ".hidden memfit_stub_clone",
    ".type memfit_stub_clone, @function",
    // rdi = flags, rsi = stack top, rdx = thread pointer, rcx = argument of `main`
    "memfit_stub_clone:",
    "mov r9, rcx",
    "mov r8, rdx",
    "xor edx, edx",
    "xor r10d, r10d",
    "mov eax, 56",
    "jmp memfit_stub_entry",
    // memfit_wire::ENTRY_MARK.
    ".ascii \"memfitST\"",
    ".globl memfit_stub_entry",
    ".hidden memfit_stub_entry",
    "memfit_stub_entry:",
    "syscall",
    "test rax, rax",
    "jnz 2f",
    // If two threads were made, the second one ends here: both have the same stack.
    "mov eax, 1",
    "xchg byte ptr [rip + {made}], al",
    "test al, al",
    "jnz 3f",
    "xor ebp, ebp",
    // The program's thread may have been stopped while it copies backwards.
    "cld",
    "mov rdi, r9",
    "call {main}",
    "ud2",
    "3: mov eax, 60",
    "xor edi, edi",
    "syscall",
    "jmp 3b",
    "2: ret",
    ".size memfit_stub_clone, . - memfit_stub_clone",
    main = sym main,
    made = sym MADE,
);

unsafe extern "C" {
    fn memfit_stub_clone(flags: usize, stack: usize, tls: usize, arg: usize) -> isize;
    fn memfit_stub_entry();
}

/// Arguments of the clone that makes the stub thread.
pub struct Start {
    /// Address of the `syscall` instruction.
    pub entry: usize,
    pub stack_pointer: usize,
    pub thread_pointer: usize,
}

impl Start {
    /// For the stack that is already mapped. It has no guard page: the deepest path needs under 2
    /// KiB.
    pub fn here() -> Start {
        let thread_pointer = STACK.load(Relaxed) + STACK_BYTES - PAGE_BYTES;
        Start { entry: memfit_stub_entry as *const () as usize, stack_pointer: thread_pointer - 64, thread_pointer }
    }
}

/// Greets the pager, or makes the stub thread at once. False if neither is possible: the process
/// then runs unmanaged or, if it is an announced fork child, must not run.
pub fn start(forked: bool, token: u64) -> bool {
    if !is_known() || DETACHED.load(Relaxed) {
        return false;
    }
    let Some(stack) = sys::map_private(&STACK, STACK_BYTES) else { return false };
    TOKEN.store(token, Relaxed);
    DEPENDS.store(token != 0 || forked && BEACON.load(Relaxed) != 0, Relaxed);
    STATE.store(IDLE, Relaxed);
    THREAD.store(0, Relaxed);
    SAID_HELLO.store(0, Relaxed);
    PROCESS.store(0, Relaxed);
    MADE.store(false, Relaxed);
    MAKING.store(false, Relaxed);
    confine::forget(forked);
    let start = Start::here();
    if !depends() && greeting::send(forked, &start) {
        return true;
    }
    let made = make(forked);
    if !made {
        // SAFETY: our own mapping; nobody else knows of it.
        unsafe { syscall!(sys::MUNMAP, stack, STACK_BYTES) };
    }
    made
}

/// Makes the stub thread of a process that has greeted, without waiting for the pager. The pager
/// may have another thread of the program make it at the same moment. Both have the stack that the
/// greeting named, and one of the two ends before it touches that.
pub fn make_now() {
    if !MAKING.swap(true, AcqRel) && !make(greeting::is_forked()) {
        // Another one may be allowed later.
        MAKING.store(false, Release);
    }
}

/// On the stack that is already mapped.
fn make(forked: bool) -> bool {
    let start = Start::here();
    let (all, mut old) = ([u64::MAX], [0u64]);
    // SAFETY: signals are blocked around the clone so that the thread starts with all of them
    // blocked; the new thread gets its own stack and thread pointer and runs `main`.
    unsafe {
        syscall!(sys::SIGPROCMASK, 2, all.as_ptr(), old.as_mut_ptr(), 8);
        let result = memfit_stub_clone(CLONE_FLAGS, start.stack_pointer, start.thread_pointer, usize::from(forked));
        if result >= 0 {
            // As the thread does: the caller must not find itself without one.
            PROCESS.store(syscall!(sys::GETPID) as usize, Relaxed);
        }
        syscall!(sys::SIGPROCMASK, 2, old.as_ptr(), 0, 8);
        result >= 0
    }
}

/// Whether the stub thread was made in the calling process, not in the parent of this vfork child.
fn is_own() -> bool {
    let process = PROCESS.load(Relaxed);
    // Under a filter that forbids the question it counts as the process itself.
    process != 0 && (forbids_here(sys::GETPID) || process == sys::pid())
}

/// Whether the calling process has the stub thread.
pub fn is_there() -> bool {
    is_own() && THREAD.load(Relaxed) != NONE
}

/// Whether there is a stub thread that has said hello, in this process or, if this is a vfork
/// child, in its parent. Needs no system call.
pub fn has_thread() -> bool {
    !matches!(THREAD.load(Relaxed), 0 | NONE)
}

/// As [`is_there`], once the thread has said hello and can take requests.
pub fn has_said_hello() -> bool {
    thread().is_some()
}

/// Whether the process is paged.
pub fn is_paged() -> bool {
    STATE.load(Acquire) == PAGED
}

/// How many of the threads that the kernel counts now are the stub's: 0 or 1.
pub fn stub_threads() -> u64 {
    // One that was just made says hello first.
    let now = thread();
    let tid = SAID_HELLO.load(Acquire);
    if tid == 0 {
        return 0;
    }
    // It may be about to end, or that of a fork parent.
    let runs = sys::has_thread(tid);
    if runs == Some(false) && THREAD.load(Acquire) == NONE && is_own() {
        // A later thread of the program can get its number. A vfork child leaves its parent's.
        let _ = SAID_HELLO.compare_exchange(tid, 0, Relaxed, Relaxed);
    }
    u64::from(runs.unwrap_or(now.is_some()))
}

/// The process was detached for one call only, and may be paged again.
pub fn start_again() {
    DETACHED.store(false, Release);
    AWAITED.store(false, Release);
    greeting::never_wait();
    start(false, 0);
}

/// The tid of the stub thread, after its hello. `None` if there is none: a vfork child has the
/// stub's variables, but no stub thread.
fn thread() -> Option<usize> {
    if !is_own() {
        return None;
    }
    for _ in 0..HELLO_POLLS {
        match THREAD.load(Acquire) {
            0 => yield_now(),
            NONE => return None,
            thread => return Some(thread),
        }
    }
    None
}

/// Ends the calling thread of the program. If that is the first thread, and the last one besides
/// the stub thread, ends the process. (The pager handles other cases, and threads that end by a
/// bare `syscall` instruction.)
pub fn exit_thread(status: usize) -> ! {
    let asks = !forbids(sys::GETTID) && !forbids(sys::GETPID);
    // SAFETY: only asks for numbers and ends this thread. The stack of another thread may be
    // evicted: this path does not touch it.
    unsafe {
        while !asks || syscall!(sys::GETTID) != syscall!(sys::GETPID) {
            syscall!(sys::EXIT, status);
        }
    }
    exit_first_thread(status)
}

#[inline(never)]
fn exit_first_thread(status: usize) -> ! {
    // SAFETY: nothing comes back from the calls that end.
    unsafe {
        if threads().is_some_and(|threads| threads <= 2) && thread().is_some() {
            syscall!(sys::EXIT_GROUP, status);
        }
        loop {
            syscall!(sys::EXIT, status);
        }
    }
}

/// How many threads the calling process has, with the stub thread. `None` without /proc, and if a
/// filter refuses the question.
pub fn threads() -> Option<u64> {
    if forbids(sys::STAT) {
        return None;
    }
    // struct stat of x86-64: the link count is its third word. Links of this directory: "." and
    // "..", and one per thread.
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes 144 bytes.
    let found = unsafe { syscall!(sys::STAT, c"/proc/self/task".as_ptr(), stat.as_mut_ptr()) };
    (found == 0).then(|| stat[2].saturating_sub(2))
}

/// Waits until the stub thread, which is about to end, has ended. If a filter refuses the question,
/// waits until only its exit is left, and returns false: then its stack stays mapped.
fn await_end(thread: usize) -> bool {
    loop {
        let runs = sys::has_thread(thread);
        if !runs.unwrap_or_else(|| THREAD.load(Acquire) == thread) {
            return runs.is_some();
        }
        yield_now();
    }
}

/// Asks the pager to detach this process. Returns when all of its memory is back and the stub
/// thread, if there is one, has ended. False if the pager does not know the process or sees no
/// need. Signals must be blocked: it must not run in a signal handler.
pub fn detach(why: u32) -> bool {
    if thread().is_none() && !greeting::has_greeted() {
        return false;
    }
    if ask(DETACH, why, 0) != BYE {
        return false;
    }
    DETACHED.store(true, Release);
    fork::no_reports();
    greeting::forget();
    // The stub thread may have been made meanwhile, and be about to end.
    let thread = SAID_HELLO.load(Acquire);
    if thread == 0 {
        return true;
    }
    // Several threads may have asked. The first one unmaps the stack.
    let unmaps = !AWAITED.swap(true, AcqRel);
    if await_end(thread) && unmaps {
        // SAFETY: nobody uses the stack of a thread that has ended.
        unsafe { syscall!(sys::MUNMAP, STACK.load(Relaxed), STACK_BYTES) };
    }
    true
}

/// Ends the process with the status of the program's first thread, in the form of `wait`: the
/// status of the last thread is that of the process.
fn end_as(status: usize) -> ! {
    let (signal, mask) = (status & 0x7f, 0u64);
    // struct kernel_sigaction: handler, flags, restorer, mask.
    let default = [0u64; 4];
    // SAFETY: no other thread runs in this process.
    unsafe {
        if signal != 0 {
            syscall!(sys::SIGACTION, signal, default.as_ptr(), 0, 8);
            syscall!(sys::SIGPROCMASK, 2, &raw const mask, 0, 8);
            syscall!(sys::TGKILL, syscall!(sys::GETPID), syscall!(sys::GETTID), signal);
        }
        loop {
            syscall!(sys::EXIT, status >> 8);
        }
    }
}

fn leave_thread() -> ! {
    THREAD.store(NONE, Release);
    loop {
        // SAFETY: ends this thread only.
        unsafe { syscall!(sys::EXIT, 0) };
    }
}

/// The pager died without [`BYE`]. If this process depends on the pager, its evicted pages are
/// lost, and it must not go on. If not, its run is over all the same.
pub fn die() -> ! {
    remove_place();
    // SAFETY: SIGKILL to our own process.
    unsafe {
        let pid = syscall!(sys::GETPID);
        syscall!(sys::KILL, pid, 9);
        // The init process of a PID namespace ignores a signal from itself.
        syscall!(sys::EXIT_GROUP, 137);
    }
    leave_thread()
}

/// Whether this is the fork child of a paged process: its pages may be evicted.
pub fn depends() -> bool {
    DEPENDS.load(Relaxed)
}

/// The stub thread cannot serve. The fork child of a paged process depends on it and ends.
fn give_up() -> ! {
    if depends() {
        die();
    }
    leave_thread()
}

/// In a program into which the pager has loaded the stub, no constructor has run. The record is at
/// the beginning of this thread's stack, of which it is not the part in use.
fn begin_loaded(record: usize) {
    STACK.store(record, Relaxed);
    IS_LOADED.store(true, Relaxed);
    // SAFETY: the pager has written the record before it had this thread made.
    let loaded = unsafe { &*(record as *const Loaded) };
    let part = |bytes: &'static [u8; SOCKET_NAME_MAX], count: u32| bytes.get(..count as usize).unwrap_or_default();
    if !set_name(part(&loaded.socket, loaded.socket_bytes)) {
        give_up();
    }
    set_place(part(&loaded.place, loaded.place_bytes));
    fork::note_process();
    greeting::never_wait();
    confine::always();
}

/// `argument`: 1 in a fork child, or the address of a [`Loaded`].
extern "C" fn main(argument: usize) -> ! {
    let loaded = argument > 1;
    let forked = usize::from(argument == 1);
    if loaded {
        begin_loaded(argument);
    }
    let name = b"memfit-stub\0";
    // SAFETY: asks for a number.
    PROCESS.store(unsafe { syscall!(sys::GETPID) } as usize, Relaxed);
    // SAFETY: names this thread, then gives it an empty descriptor table (CLOSE_RANGE_UNSHARE = 2).
    // Its working directory is its own, and would keep a file system from being unmounted.
    let alone = unsafe {
        syscall!(sys::PRCTL, 15, name.as_ptr());
        syscall!(sys::CHDIR, c"/".as_ptr());
        syscall!(sys::CLOSE_RANGE, 0, u32::MAX, 2)
    };
    if alone < 0 {
        give_up();
    }
    let Some(socket) = connect() else { give_up() };
    sys::short_turns();
    let (beacon, mut present) = (BEACON.load(Relaxed), 0u8);
    if beacon != 0 {
        // SAFETY: asks about a page of ours.
        unsafe { syscall!(sys::MINCORE, beacon, PAGE_BYTES, &raw mut present) };
    }
    let again = forked != 0 && present & 1 != 0;
    // SAFETY: all-zero is a valid FromStub.
    let mut hello: FromStub = unsafe { zeroed() };
    hello.kind = HELLO;
    hello.flags = if forked != 0 { FORKED } else { 0 } | if again { FORKED_AGAIN } else { 0 } | greeting::waited();
    hello.flags |= if fork::wipes() { WIPES } else { 0 } | if loaded { LOADED } else { 0 };
    hello.token = TOKEN.load(Relaxed);
    hello.beacon = beacon as u64;
    // If the pager is gone, it sent BYE or died: `serve` finds out which.
    if !send(socket, &mut hello, None) && depends() {
        die();
    }
    SAID_HELLO.store(hello.tid as usize, Relaxed);
    THREAD.store(hello.tid as usize, Release);
    if !confine::start() {
        give_up();
    }
    if forked != 0 && beacon != 0 {
        // SAFETY: a page of ours. The fault shows the pager which process has this memory.
        unsafe {
            if again {
                syscall!(sys::MADVISE, beacon, PAGE_BYTES, 4);
            }
            core::ptr::read_volatile(beacon as *const u8);
        }
    }
    serve(socket)
}

/// A fork child goes on.
fn stay(flags: u32) {
    if flags & INDEPENDENT != 0 {
        DEPENDS.store(false, Relaxed);
    }
    fork::served();
}

fn serve(socket: i32) -> ! {
    let mut taker: Option<Taker> = None;
    let mut lent = -1;
    // In an announced fork child the thread that forked holds the fork lock.
    let told = TOKEN.load(Relaxed) != 0;
    let mut doorbell = 0;
    // This thread holds the fork lock; keeps out calls that change mappings.
    let (mut quiet, mut held) = (false, false);
    loop {
        let (mut command, mut fd) = (Command::default(), -1);
        let got = receive(socket, &mut command, &mut fd);
        if got == 0 || taker.is_some() && got != size_of::<Command>() as isize {
            die();
        }
        if got != size_of::<Command>() as isize || command.kind == BYE && taker.is_none() {
            give_up();
        }
        match command.kind {
            BYE => end_detached(quiet, held),
            QUIET => {
                quiet = quiet || fork::stop_announcing();
                answer(socket, QUIET, if quiet { 0 } else { sys::EAGAIN as u32 });
            }
            HOLD | REMAP | RELEASE => held = obey_about_files(socket, &command, fd, held),
            LEND => {
                close(replace(&mut lent, fd));
                if depends() && !told && command.flags & WAIT == 0 {
                    // This is a descriptor of the child's own userfaultfd: from now on, whoever
                    // dies, no page of this process reads as zeros.
                    fork::served();
                }
            }
            PAGEMAP | MAPS => close(borrow(taker.as_mut(), command.kind, fd)),
            ATTACH => {
                if STATE.compare_exchange(IDLE, PAGED, AcqRel, Relaxed).is_err() {
                    leave_thread();
                }
                let locks = command.flags & ANNOUNCE_FORKS != 0 && !told;
                if locks {
                    // Until SERVED: a fork before that would not be announced.
                    fork::lock();
                }
                taker = attach(socket, &command, fd, lent, &mut doorbell);
                lent = -1;
                if taker.is_none() && locks {
                    fork::unlock();
                }
            }
            // The pager does not know of this fork, because the parent was not paged; or the child
            // is paged now.
            STAY => stay(command.flags),
            OPEN => map::open(),
            CONFINE => confine::obey(command.flags),
            OPEN_WINDOW => {
                if let Some(taker) = &mut taker {
                    let _ = taker.open_window(command.flags as usize);
                }
            }
            ALL_ENDED => end_as(command.flags as usize),
            SERVED => {
                if let Some(taker) = taker.as_ref().filter(|_| command.flags & ANNOUNCE_FORKS != 0) {
                    fork::announce(taker.ring, doorbell);
                }
                if told {
                    fork::served()
                } else {
                    fork::unlock()
                }
            }
            BATCH => {
                if let Some(taker) = &mut taker {
                    taker.run_batch();
                }
            }
            _ => {}
        }
    }
}

/// The pager takes no more pages, and has given all memory back. `quiet`: this thread holds the
/// fork lock; `held`: it keeps out calls that change mappings.
fn end_detached(quiet: bool, held: bool) -> ! {
    if held {
        access::end();
    }
    lock::keep(0, 0);
    BEACON.store(0, Relaxed);
    DETACHED.store(true, Release);
    greeting::forget();
    if quiet {
        fork::unlock();
    }
    // The thread that forked may wait still.
    fork::served();
    leave_thread();
}

/// Takes a file of /proc that the pager lends, once it knows whose memory the userfaultfd is for.
/// Returns the one to close.
fn borrow(taker: Option<&mut Taker>, kind: u32, fd: i32) -> i32 {
    match taker {
        Some(taker) if kind == PAGEMAP => replace(&mut taker.pagemap, fd),
        Some(taker) => replace(&mut taker.maps, fd),
        None => fd,
    }
}

fn answer(socket: i32, kind: u32, error: u32) {
    // SAFETY: all-zero is a valid FromStub.
    let mut reply: FromStub = unsafe { zeroed() };
    (reply.kind, reply.error) = (kind, error);
    send(socket, &mut reply, None);
}

/// [`HOLD`], [`REMAP`] or [`RELEASE`]. `held`, and the result: this thread keeps out calls that
/// change mappings.
fn obey_about_files(socket: i32, command: &Command, fd: i32, held: bool) -> bool {
    match command.kind {
        HOLD => {
            let holds = held || access::begin(true);
            answer(socket, HOLD, if holds { 0 } else { IN_CALL as u32 });
            holds
        }
        REMAP => {
            // SAFETY: the pager names only mappings that it fills, and no call changes mappings.
            let error = if held { unsafe { file_map::map_again(command, fd) } } else { sys::EAGAIN as u32 };
            close(fd);
            answer(socket, REMAP, error);
            held
        }
        _ => {
            if held {
                access::end();
            }
            false
        }
    }
}

/// Closes a descriptor of this thread's own table, unless it is -1.
fn close(fd: i32) {
    if fd >= 0 {
        // SAFETY: nobody else has it.
        unsafe { syscall!(sys::CLOSE, fd) };
    }
}

/// Makes what is needed to take pages, and reports the addresses to the pager.
fn attach(socket: i32, command: &Command, segment: i32, lent: i32, doorbell: &mut usize) -> Option<Taker> {
    // SAFETY: all-zero is a valid FromStub.
    let mut reply: FromStub = unsafe { zeroed() };
    reply.kind = ATTACHED;
    let made = prepare(socket, command, segment, lent, &mut reply);
    let uffd = match &made {
        Ok(taker) if command.flags & WITH_UFFD == 0 => Some(taker.uffd),
        Ok(_) => None,
        Err(errno) => {
            reply.error = *errno;
            None
        }
    };
    *doorbell = reply.doorbell as usize;
    send(socket, &mut reply, uffd);
    // SAFETY: the segment stays mapped and the userfaultfd open; the device is no longer needed.
    unsafe {
        syscall!(sys::CLOSE, segment);
        if command.flags & WITH_DEVICE != 0 {
            syscall!(sys::CLOSE, lent);
        }
    }
    let taker = made.ok()?;
    if command.flags & ANNOUNCE_FORKS == 0 {
        fork::wait_for_reports(taker.ring);
    }
    Some(taker)
}

fn prepare(socket: i32, command: &Command, segment: i32, lent: i32, reply: &mut FromStub) -> Result<Taker, u32> {
    let bytes = command.segment_bytes as usize;
    let uffd = if command.flags & WITH_UFFD != 0 { lent } else { make_uffd(command, lent)? };
    // MAP_SHARED of the pager's segment.
    let segment = sys::map(&SEGMENT, bytes, 1, segment as usize);
    if segment < 0 || bytes < RING_BYTES {
        return Err(-segment as u32);
    }
    // SAFETY: our own mapping; MADV_DONTFORK.
    unsafe { syscall!(sys::MADVISE, segment, bytes, 10) };
    let window_bytes = WINDOWS.len() * WINDOW_PAGES * PAGE_BYTES;
    let window = sys::map_private(&WINDOW, window_bytes).ok_or(12u32)?;
    // SAFETY: our own mapping. MADV_NOHUGEPAGE = 15: a huge page must never be in the window.
    unsafe { syscall!(sys::MADVISE, window, window_bytes, 15) };
    // The other windows get their access when they are needed: a filter may forbid memory that is
    // writable and executable.
    let others = window + WINDOW_PAGES * PAGE_BYTES;
    // SAFETY: our own mapping. PROT_NONE.
    unsafe { syscall!(sys::MPROTECT, others, window_bytes - WINDOW_PAGES * PAGE_BYTES, 0) };
    if BEACON.load(Relaxed) == 0 && command.flags & ANNOUNCE_FORKS == 0 {
        // A new mapping that fork children inherit.
        sys::map(&BEACON, PAGE_BYTES, 0x4022, usize::MAX);
    }
    if command.flags & ANNOUNCE_FORKS != 0 {
        reply.doorbell = sys::map_private(&DOORBELL, DOORBELL_PAGES * PAGE_BYTES).ok_or(12u32)? as u64;
    }
    let stack = STACK.load(Relaxed);
    reply.stack = [stack as u64, (stack + STACK_BYTES) as u64];
    reply.segment = [segment as u64, segment as u64 + bytes as u64];
    reply.window = [window as u64, (window + window_bytes) as u64];
    reply.image = crate::exec::image();
    reply.beacon = BEACON.load(Relaxed) as u64;
    // Only functions that are interposed use it.
    let reserves = !IS_LOADED.load(Relaxed);
    reply.reservation = Some(()).filter(|()| reserves).and_then(|()| map::reserve()).unwrap_or_default();
    // SAFETY: the segment starts with a ring and stays mapped as long as the process lives.
    let ring = unsafe { &*(segment as *const Ring) };
    // The program may have touched the window already: empty it before the first MOVE.
    ring.touched.store(1, Release);
    lock::keep(window, window_bytes);
    Ok(Taker {
        socket,
        uffd,
        pagemap: -1,
        maps: -1,
        ring,
        segment: segment as usize,
        segment_bytes: bytes,
        window,
        used: [0; WINDOWS.len()],
        opened: 1,
        likely: 0,
        read_only: false,
        in_call: false,
        opens: 0,
        splits: 0,
        trust_move: command.flags & TRUST_MOVE != 0,
    })
}

/// A userfaultfd for this process: from the device that the pager lent, or from the system call
/// unless a filter would kill the process for it.
fn make_uffd(command: &Command, device: i32) -> Result<i32, u32> {
    const FLAGS: usize = 0o2000000 | 0o4000; // O_CLOEXEC | O_NONBLOCK
                                             // SAFETY: both only make a descriptor.
    let fd = unsafe {
        if command.flags & WITH_DEVICE != 0 {
            syscall!(sys::IOCTL, device, USERFAULTFD_IOC_NEW, FLAGS)
        } else if forbids(sys::USERFAULTFD) {
            -1
        } else {
            syscall!(sys::USERFAULTFD, FLAGS)
        }
    };
    if fd < 0 {
        Err(-fd as u32)
    } else {
        Ok(fd as i32)
    }
}
