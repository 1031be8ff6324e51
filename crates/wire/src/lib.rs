//! Types shared by the pager and the stub: the ring, the control messages, the kernel's interfaces
//! of userfaultfd and pagemap. For all crates: the size of a page, and which characters drive a
//! terminal.
//!
//! Control messages use one SOCK_SEQPACKET connection per process: one message per packet, in the
//! byte order of the machine. Batches go through the [`Ring`] at the start of the process's shared
//! segment; a [`Command`] of kind [`BATCH`] is only the doorbell.
#![no_std]
#![deny(unsafe_code)]

pub mod pagemap;
pub mod uffd;

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes in a page of all programs and of every file of memfit.
pub const PAGE_BYTES: usize = 4096;

/// Whether a character drives a terminal instead of being shown there: a control character, or one
/// that changes the direction of the text around it. Programs choose their names, and anybody can
/// write a recording: memfit replaces such characters where it prints texts of others.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Protocol version. Pager and stub refuse any other.
pub const VERSION: u32 = 17;
/// First word of each message from the stub: "memF".
pub const MAGIC: u32 = 0x466d_656d;

/// Environment variable with the name of the abstract socket, without the leading NUL.
pub const SOCKET_VARIABLE: &str = "MEMFIT_SOCKET";
/// The name of the start socket is this and the name of the pager's socket. A new process connects
/// there before its program runs, and says [`GREETING`] or nothing. While little memory is free and
/// others are new, it waits in its `connect`.
pub const START_PREFIX: &str = "start-";
/// Environment variable with a directory for the socket of [`NETNS_FALLBACK`]. Nobody else can know
/// its name before the directory exists.
pub const FALLBACK_VARIABLE: &str = "MEMFIT_PLACE";
/// Environment variable that, if set, makes the stub replace read-only file mappings by [`FILE`]
/// mappings.
pub const FILES_VARIABLE: &str = "MEMFIT_FILES";
/// Environment variable that, if set, makes each stub start its thread at once instead of sending a
/// [`GREETING`].
pub const THREAD_VARIABLE: &str = "MEMFIT_THREAD";
/// Name of the socket in the directory of [`FALLBACK_VARIABLE`], with the leading slash.
pub const PLACE_SOCKET: &str = "/s";
/// Longest socket name and longest name of that directory, bytes.
pub const SOCKET_NAME_MAX: usize = 100;

/// Stub to pager: this process has a stub thread.
pub const HELLO: u32 = 1;
/// Stub to pager, on a connection that is closed at once: this process exists and has no stub
/// thread. To page the process, the pager makes one of its threads call `clone` at
/// [`FromStub::entry`] (by ptrace). The new thread is the stub thread and sends [`HELLO`]. A
/// process that is never paged never has a stub thread.
pub const GREETING: u32 = 18;
/// [`FromStub::flags`] of a greeting, or of a hello without one: the process had to wait at the
/// start socket.
pub const WAITED: u32 = 8;
/// Bytes before [`FromStub::entry`]. They prove that the process still runs the program that
/// greeted.
pub const ENTRY_MARK: [u8; 8] = *b"memfitST";
/// Flags of that clone, whose fifth argument is the thread pointer: VM | SIGHAND | THREAD | SYSVSEM
/// | FILES | SETTLS | UNTRACED. The new thread unshares the descriptor table at once.
pub const CLONE_FLAGS: usize = 0x100 | 0x800 | 0x10000 | 0x40000 | 0x400 | 0x80000 | 0x80_0000;

/// Pager to stub: make the userfaultfd, map the segment.
pub const ATTACH: u32 = 2;
/// Stub to pager: attached, or `error` is an errno.
pub const ATTACHED: u32 = 3;
/// Pager to stub: a batch is posted in the ring.
pub const BATCH: u32 = 4;

/// Pager to stub: a descriptor (a userfaultfd or its device) for the ATTACH that follows. The fork
/// child of a paged process waits for it; the pager sends it as soon as it has identified the
/// child.
pub const LEND: u32 = 5;
/// [`Command::flags`] of LEND: little memory is free, so the child waits for [`STAY`].
pub const WAIT: u32 = 1;

/// Pager to stub: [`FromStub::reservation`] is registered; the stub may give out mappings from it.
pub const OPEN: u32 = 6;

/// Pager to stub, after ATTACH with [`ANNOUNCE_FORKS`]: forks may go on. To an announced fork
/// child: the pager now serves its memory.
pub const SERVED: u32 = 7;

/// Pager to stub: the process is detached and may run on alone. If the connection ends without it,
/// the pager has died, and all processes of its tree must end.
pub const BYE: u32 = 8;

/// A thread of a program to pager, on a connection of its own: detach this process. The answer is
/// [`BYE`] when all of its memory is back and the caller may wait for the end of the stub thread,
/// or [`STAY`]. [`FromStub::flags`] has the reason.
pub const DETACH: u32 = 9;

/// Pager to a thread that asked for [`DETACH`]: not needed. To a fork child whose HELLO had a
/// beacon: the child need not wait for a [`LEND`], or has waited long enough ([`WAIT`]).
pub const STAY: u32 = 10;
/// [`Command::flags`] of STAY: the child does not depend on the pager.
pub const INDEPENDENT: u32 = 1;

/// Pager to stub: block forks until [`BYE`] and announce none. Stub to pager: done, or `error` is
/// EAGAIN because a fork is under way.
pub const QUIET: u32 = 11;

/// A thread of a program to pager, on a connection of its own: the process is about to enter
/// another network namespace, in which the abstract name does not exist. The answer is [`STAY`]
/// when processes in there can reach the pager at [`FALLBACK_VARIABLE`].
pub const NETNS_FALLBACK: u32 = 12;

/// A thread of a program to pager, on a connection of its own, with the descriptor of a file: the
/// stub has made the empty mapping [`FromStub::segment`], and the pager shall fill it from the
/// file, from byte [`FromStub::token`] on. The answer is [`STAY`] if the pager does.
pub const FILE: u32 = 13;
/// [`FromStub::flags`] of FILE: the program wants a shared mapping, which is not made yet. The
/// answer [`STAY`] has the descriptor of a memfd, in which the pager keeps the pages of the file
/// for all processes. The stub maps that without access, and asks again with [`FILE_MAPPED`]. When
/// the answer is [`STAY`], faults in the mapping go to the pager, and the stub gives access.
///
/// The pager takes a lease on the file, so that the kernel tells before anybody can change it. Then
/// the pager has the stub map the file itself in place of the memfd: [`HOLD`], a [`REMAP`] for each
/// part, [`RELEASE`].
pub const SHARED_FILE: u32 = 1;
/// [`FromStub::flags`] of FILE, with SHARED_FILE: the memfd is mapped.
pub const FILE_MAPPED: u32 = 2;
/// Pager to stub: keep out calls of the program that change mappings. Stub to pager: done, or
/// `error` is EALREADY because such a call is under way.
pub const HOLD: u32 = 21;
/// Pager to stub, between HOLD and RELEASE, with the descriptor of a file: map the file shared at
/// [`Command::range`], from byte [`Command::offset`] on, with the access (PROT_*) in
/// [`Command::flags`]. Stub to pager: done, or `error` is an errno.
pub const REMAP: u32 = 22;
/// Pager to stub: such calls may go on.
pub const RELEASE: u32 = 23;

/// A thread of a program to pager, on a connection of its own: the program wants to register the
/// range [`FromStub::segment`] with a userfaultfd of its own, and the kernel returned EBUSY. The
/// answer is [`STAY`] when the pager has unregistered the range.
pub const OWN_UFFD: u32 = 17;

/// The thread of a fork child to pager, on a connection of its own: the announced child
/// [`FromStub::token`] cannot have a stub thread. After the answer it kills itself.
pub const NO_THREAD: u32 = 24;

/// Pager to stub: /proc/PID/pagemap of the process, after ATTACHED and before the first batch.
pub const PAGEMAP: u32 = 14;

/// Pager to stub: /proc/PID/maps of the process, as [`PAGEMAP`], where the kernel supports
/// PROCMAP_QUERY. The stub then also takes pages of read-only mappings, and the pager
/// registers each range for write protection as well.
pub const MAPS: u32 = 20;

/// Pager to stub: all threads of the program have ended. The stub thread ends the process with the
/// status (in the form of `wait`) in [`Command::flags`].
pub const ALL_ENDED: u32 = 15;

/// Pager to stub: the program has memory with the access of the window of [`WINDOWS`] whose number
/// is in [`Command::flags`]. Until this message, all windows but the first are PROT_NONE.
pub const OPEN_WINDOW: u32 = 16;

/// A thread of a program to pager, on a connection of its own: the process is about to give up
/// rights that the stub thread must not keep. The answer is [`STAY`] if the pager has passed the
/// request and its flags to the stub. Pager to stub: give them up.
pub const CONFINE: u32 = 19;
/// [`FromStub::flags`] and [`Command::flags`] of CONFINE: set only PR_SET_NO_NEW_PRIVS. Without
/// this flag the stub thread also installs a filter of system calls.
pub const NO_NEW_PRIVILEGES: u32 = 1;

/// [`FromStub::flags`] of DETACH: a system call filter would forbid the stub's work.
pub const FILTERED: u32 = 1;
/// [`FromStub::flags`] of DETACH: the pager cannot read the process in /proc any more
/// (PR_SET_DUMPABLE, other credentials).
pub const UNREADABLE: u32 = 2;
/// [`FromStub::flags`] of DETACH: the process is about to make a call that needs a single thread.
pub const ALONE: u32 = 4;

/// [`FromStub::flags`]: the process is a fork child of a process with a stub.
pub const FORKED: u32 = 1;
/// [`FromStub::flags`] of HELLO: so is its parent, which identified itself by the same beacon.
pub const FORKED_AGAIN: u32 = 2;
/// [`FromStub::flags`] of HELLO of a fork child: the program has marked memory by MADV_WIPEONFORK,
/// and may have taken that back since.
pub const WIPES: u32 = 16;
/// [`FromStub::flags`] of HELLO: the pager has loaded the stub ([`Loaded`]), so no function of libc
/// is interposed.
pub const LOADED: u32 = 32;
/// [`FromStub::flags`] of GREETING: a second one, because the number of filters has changed.
pub const AGAIN: u32 = 4;
/// [`Command::flags`] of ATTACH: the userfaultfd was lent (a fork child already has one).
pub const WITH_UFFD: u32 = 1;
/// [`Command::flags`] of ATTACH: `/dev/userfaultfd` was lent.
pub const WITH_DEVICE: u32 = 2;

/// [`Command::flags`] of ATTACH, test builds only: believe MOVE's return value.
pub const TRUST_MOVE: u32 = 4;

/// [`Command::flags`] of ATTACH: the kernel reports no forks, so libmemfit.so announces them (see
/// [`ForkDoorbell`]). [`Command::flags`] of SERVED: the process is paged; announce its forks from
/// now on.
pub const ANNOUNCE_FORKS: u32 = 8;

/// [`Range::flags`]: make the pages exclusive first. They were shared with a process that has
/// ended, and MOVE treats them as shared until they are written.
pub const POPULATE: u32 = 1;
/// [`Range::flags`]: take nothing, but keep the range from fork children (MADV_DONTFORK).
/// [`Range::pages`] has no limit.
pub const DONTFORK: u32 = 2;
/// [`Range::flags`]: take nothing, but let fork children have the range (MADV_DOFORK).
/// [`Range::pages`] has no limit.
pub const DOFORK: u32 = 4;

/// Smallest shared file mapping that the stub replaces, bytes. Each costs the pager a lease, and
/// the first one of a process its attach.
pub const SHARED_FILE_LEAST: usize = 1 << 20;

/// An errno in [`Range::status`]: the memory cannot be made writable for the MOVE (EACCES).
pub const NOT_OPENED: i32 = 13;
/// The same: the page has the descriptor of a thread, and stays (EPERM).
pub const DESCRIPTOR: i32 = 1;
/// The same: a thread of the program is in a call that changes mappings, and read-only memory
/// cannot be opened before that call is over (EALREADY).
pub const IN_CALL: i32 = 114;

/// Pages whose faults are the fork doorbell: the first one announces a [`ForkDoorbell`], the last
/// one the end of a fork. The stub must not empty the pages between the two faults: the pager reads
/// no events then.
pub const DOORBELL_PAGES: usize = 2;
/// Distance of the robust list head from the beginning of glibc's thread descriptor (`struct
/// pthread`, at the thread pointer), in glibc 2.31 to 2.42.
pub const ROBUST_LIST: usize = 0x2e0;
/// Bytes of the robust list head.
pub const ROBUST_LIST_BYTES: usize = 0x18;
/// Where the descriptor has the thread id, which the kernel clears when the thread ends.
pub const PTHREAD_TID: usize = ROBUST_LIST - 0x10;
/// Bytes of the descriptor, with room for other versions: up to 0x980 in glibc 2.31 to 2.42.
pub const PTHREAD_BYTES: usize = 0xc00;
/// Pages in a bounce window.
pub const WINDOW_PAGES: usize = 64;
/// Access (PROT_*) of the bounce windows, in the order of their addresses. A page moves only
/// between mappings of equal access.
pub const WINDOWS: [usize; 3] = [3, 7, 2];
/// Most ranges in a batch.
pub const BATCH_RANGES: usize = 64;
/// Most pages in a batch.
pub const BATCH_PAGES: usize = 256;
/// Bytes of the segment before the first staging slot.
pub const RING_BYTES: usize = 2 * PAGE_BYTES;

/// A message from the stub.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct FromStub {
    pub magic: u32,
    pub version: u32,
    /// [`HELLO`], [`GREETING`], [`ATTACHED`], [`DETACH`], [`CONFINE`], [`QUIET`],
    /// [`NETNS_FALLBACK`], [`FILE`], [`HOLD`], [`REMAP`], [`OWN_UFFD`] or [`NO_THREAD`].
    pub kind: u32,
    pub flags: u32,
    /// Thread id of the sender in its own PID namespace.
    pub tid: u32,
    /// ATTACHED, QUIET, HOLD, REMAP: 0 or an errno.
    pub error: u32,
    /// Address ranges of the stub that must never be taken, `end` exclusive. GREETING: `stack` has
    /// the stack pointer and the thread pointer for the stub thread.
    pub stack: [u64; 2],
    pub segment: [u64; 2],
    pub window: [u64; 2],
    /// The stub itself: code, data and variables.
    pub image: [u64; 2],
    /// A page that the pager registers and that stays absent until the stub of a fork child touches
    /// it. The process in which the pager's fill then appears is the child. HELLO: the beacon of
    /// the parent if the parent was paged at the fork, else 0.
    pub beacon: u64,
    /// Address space without access, of which the stub gives parts to the program; zeros: none.
    pub reservation: [u64; 2],
    /// ATTACHED with [`ANNOUNCE_FORKS`]: the first of the [`DOORBELL_PAGES`]; else 0.
    pub doorbell: u64,
    /// HELLO of an announced fork child: the pager's number of the fork. GREETING: where the stack
    /// of the first thread began, as in `/proc/PID/stat`; another program in the same process has
    /// another value. FILE: the file offset. NO_THREAD: as in HELLO. Else 0.
    pub token: u64,
    /// GREETING: address of the `syscall` instruction for the clone of the stub thread; else 0.
    pub entry: u64,
    /// GREETING: the number of system call filters of the process that the stub knows of.
    pub filters: u64,
}

/// Bytes of the stub thread's stack. The last page is for the thread pointer, which points to its
/// beginning.
pub const STACK_BYTES: usize = 4 * PAGE_BYTES;

/// Where memfit's mappings begin: below where the kernel puts the program's libraries and its
/// mappings, whose holes must stay holes: a fork child may map there what its parent has kept from
/// it (MADV_DONTFORK). ThreadSanitizer and MemorySanitizer refuse mappings of others at most
/// addresses. They allow those of the kernel's mappings, from 0x7e80_0000_0000 on (compiler-rt,
/// tsan_platform.h and msan.h). With 28 random bits (`vm.mmap_rnd_bits`) the kernel begins above
/// 0x7ef0_0000_0000 and goes downwards; with more it can begin here as well.
const FAR: usize = 0x7e90_0000_0000;

/// An address for a mapping of memfit, which the kernel takes if it is free. It is as random as
/// `seed`.
#[must_use]
pub const fn far(seed: usize) -> usize {
    FAR + (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 38) * PAGE_BYTES
}

/// What the stub must know in a program into which the pager has loaded it. The pager writes it to
/// the beginning of the stub thread's stack, and passes its address as the argument of the thread,
/// which is 0 or 1 in other programs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Loaded {
    /// What [`SOCKET_VARIABLE`] says in other programs, and its bytes.
    pub socket: [u8; SOCKET_NAME_MAX],
    #[allow(missing_docs)]
    pub socket_bytes: u32,
    /// What [`FALLBACK_VARIABLE`] says, and its bytes.
    pub place: [u8; SOCKET_NAME_MAX],
    #[allow(missing_docs)]
    pub place_bytes: u32,
}

impl Loaded {
    /// `None` if one of them is too long.
    #[must_use]
    pub fn new(socket: &str, place: &str) -> Option<Loaded> {
        let text = |of: &str| {
            let mut bytes = [0; SOCKET_NAME_MAX];
            bytes.get_mut(..of.len())?.copy_from_slice(of.as_bytes());
            Some((bytes, of.len() as u32))
        };
        let ((socket, socket_bytes), (place, place_bytes)) = (text(socket)?, text(place)?);
        Some(Loaded { socket, socket_bytes, place, place_bytes })
    }

    /// The record as the pager writes it.
    #[must_use]
    pub fn bytes(&self) -> [u8; LOADED_BYTES] {
        let mut bytes = [0; LOADED_BYTES];
        let parts = [&self.socket[..], &self.socket_bytes.to_ne_bytes(), &self.place, &self.place_bytes.to_ne_bytes()];
        let mut rest = &mut bytes[..];
        for part in parts {
            let (at, after) = rest.split_at_mut(part.len());
            at.copy_from_slice(part);
            rest = after;
        }
        bytes
    }
}

/// Bytes of a [`Loaded`], which has no padding.
pub const LOADED_BYTES: usize = size_of::<Loaded>();
const _: () = assert!(size_of::<Loaded>() == 2 * (SOCKET_NAME_MAX + 4));

/// A message to the stub.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Command {
    /// [`LEND`], [`PAGEMAP`], [`MAPS`], [`ATTACH`], [`OPEN`], [`SERVED`], [`BATCH`], [`QUIET`],
    /// [`STAY`], [`ALL_ENDED`], [`OPEN_WINDOW`], [`CONFINE`], [`HOLD`], [`REMAP`], [`RELEASE`] or
    /// [`BYE`].
    pub kind: u32,
    pub flags: u32,
    /// ATTACH: bytes of the segment.
    pub segment_bytes: u64,
    /// REMAP: the addresses, `end` exclusive.
    pub range: [u64; 2],
    /// REMAP: byte of the file.
    pub offset: u64,
}

/// [`ForkDoorbell::what`]: a fork begins. The pager gives the memory to children (dofork), takes
/// nothing until the fork has ended, and sets the token.
pub const FORK_BEGINS: u32 = 1;
/// [`ForkDoorbell::what`]: the fork has ended in the parent.
pub const FORK_ENDED: u32 = 2;
/// [`ForkDoorbell::what`]: the program called MADV_DONTFORK on a range.
pub const NOTICE_DONTFORK: u32 = 3;
/// [`ForkDoorbell::what`]: the program called MADV_DOFORK on a range.
pub const NOTICE_DOFORK: u32 = 4;
/// [`ForkDoorbell::what`], added by the pager: it has read the notice, and acts on it.
pub const NOTICE_READ: u32 = 1 << 31;

/// A notice about forks from a thread of the program, where the kernel reports no forks to the
/// pager. One thread at a time leaves a notice. `what` is the protocol: the thread sets it, and
/// goes on when the pager has set it to 0.
///
/// The fault only wakes the pager: after the notice the thread reads an absent doorbell page.
/// Another thread, or another process, can touch the page first. Then the pager reads the notice at
/// that fault, or the thread meets no fault and takes the notice back. The pager finds
/// [`FORK_ENDED`] without a fault, too.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ForkDoorbell {
    /// The notice, then with [`NOTICE_READ`]; 0: there is none, or the pager has acted on it.
    pub what: AtomicU32,
    /// Id of the thread that leaves the notice, as the kernel reports it with a fault; 0: unknown.
    pub thread: AtomicU32,
    /// [`NOTICE_DONTFORK`], [`NOTICE_DOFORK`]: the range, `end` exclusive.
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// Answer to [`FORK_BEGINS`].
    pub token: AtomicU64,
}

/// [`Ring::gate`]: the stub is inside a MOVE.
pub const IN_MOVE: u32 = 1;
/// [`Ring::gate`]: the pager reads events; the stub must not start a MOVE.
pub const CLOSED: u32 = 2;
/// [`Ring::gate`]: the stub waits for the gate. The pager wakes it only if this is set, because
/// the pager opens the gate often: at each fault while a batch is under way.
pub const STUB_WAITS: u32 = 4;

/// [`Ring::fatal`]: a slot of the window that should be empty was not, or a moved page could not be
/// found.
pub const FATAL_WINDOW: u32 = 1;
/// [`Ring::fatal`]: the window could not be emptied.
pub const FATAL_FLUSH: u32 = 2;
/// [`Ring::fatal`]: the pager's batch was not valid.
pub const FATAL_BATCH: u32 = 3;
/// [`Ring::fatal`]: memory that was made writable for a MOVE could not be made read-only again.
pub const FATAL_ACCESS: u32 = 4;

/// Contiguous pages to take.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Range {
    /// Address of the first page.
    pub address: AtomicU64,
    /// 1 to 64, except with [`DONTFORK`] and [`DOFORK`].
    pub pages: AtomicU32,
    /// Index in [`Ring::slots`] of the first page's slot.
    pub slot: AtomicU32,
    /// Answer: bit i is set if page i is in its slot now.
    pub moved: AtomicU64,
    /// 0: not tried yet; 1: every page moved; 1 + errno: [`IN_CALL`], or the first error
    /// of the kernel, [`NOT_OPENED`] or [`DESCRIPTOR`].
    pub status: AtomicU32,
    /// [`POPULATE`], [`DONTFORK`], [`DOFORK`] or 0.
    pub flags: AtomicU32,
}

/// Start of the shared segment. The pager trusts nothing in it and checks each answer against what
/// it posted.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Ring {
    /// [`IN_MOVE`], [`CLOSED`] and [`STUB_WAITS`]; a futex.
    pub gate: AtomicU32,
    /// Number of the newest batch posted.
    pub posted: AtomicU32,
    /// Number of the newest batch that the stub has finished; a futex.
    pub finished: AtomicU32,
    /// Number of the batch whose untried ranges the stub shall drop.
    pub cancelled: AtomicU32,
    /// Ranges in the batch.
    pub ranges: AtomicU32,
    /// Not 0: the stub found an inconsistency, one of the FATAL_* constants; the process must die.
    pub fatal: AtomicU32,
    /// Not 0: the program touched the bounce window and the pager filled a page of it. The stub
    /// must empty the window before its next MOVE.
    pub touched: AtomicU32,
    /// How many forks of the process the pager has handled, where the kernel reports forks; a
    /// futex. A thread that has forked waits for the next one before it goes on.
    pub forks: AtomicU32,
    pub fork: ForkDoorbell,
    pub range: [Range; BATCH_RANGES],
    /// Staging slot index of every page of the batch.
    pub slots: [AtomicU32; BATCH_PAGES],
}

const _: () = assert!(core::mem::size_of::<Ring>() <= RING_BYTES);
