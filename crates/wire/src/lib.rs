//! Types shared by the pager and the stub: the ring and the control messages.
//!
//! Control messages go over one SOCK_SEQPACKET connection per process, one message a packet, in the
//! byte order of the machine. Batches go through the [`Ring`] at the start of the process's shared
//! segment; a [`Command`] of kind [`BATCH`] is only the doorbell.
#![no_std]
#![deny(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Both sides refuse another version.
pub const VERSION: u32 = 9;
/// First word of every message of the stub: "memF".
pub const MAGIC: u32 = 0x466d_656d;

/// The environment variable with the abstract socket's name, without the leading NUL.
pub const SOCKET_VARIABLE: &str = "MEMFIT_SOCKET";
/// The environment variable with a directory that nobody else knows the name of before it is there:
/// see [`NETNS_FALLBACK`].
pub const FALLBACK_VARIABLE: &str = "MEMFIT_PLACE";
/// The environment variable that says, if it is there, that read-only private mappings of files are
/// to be [`FILE`]s.
pub const FILES_VARIABLE: &str = "MEMFIT_FILES";
/// The environment variable that says, if it is there, that stubs begin with their thread: see
/// [`GREETING`].
pub const THREAD_VARIABLE: &str = "MEMFIT_THREAD";
/// Name of the socket in the directory of [`FALLBACK_VARIABLE`], with a slash.
pub const PLACE_SOCKET: &str = "/s";
/// Longest socket name, bytes; and longest name of that directory.
pub const SOCKET_NAME_MAX: usize = 100;

/// Stub to pager: a process is there.
pub const HELLO: u32 = 1;
/// Stub to pager, on a connection of its own that ends at once: a process is there, whose stub has
/// no thread. When the process is to be paged, the pager has one of its threads make the system
/// call `clone` at [`FromStub::entry`] (by ptrace); the stub's thread that begins so says
/// [`HELLO`]. A process that is never paged never has one.
pub const GREETING: u32 = 18;
/// What lies before [`FromStub::entry`]: the process is still the program that has told it.
pub const ENTRY_MARK: [u8; 8] = *b"memfitST";
/// Flags of that clone, whose fifth argument is the thread pointer: VM | SIGHAND | THREAD | SYSVSEM
/// | FILES | SETTLS | UNTRACED. The table of descriptors is unshared at once.
pub const CLONE_FLAGS: usize = 0x100 | 0x800 | 0x10000 | 0x40000 | 0x400 | 0x80000 | 0x80_0000;

/// Pager to stub: make the userfaultfd, map the segment.
pub const ATTACH: u32 = 2;
/// Stub to pager: done, or `error` is an errno.
pub const ATTACHED: u32 = 3;
/// Pager to stub: a batch is posted in the ring.
pub const BATCH: u32 = 4;

/// Pager to stub: a descriptor (a userfaultfd or its device) for the ATTACH that follows; to the
/// fork child of a paged process as soon as it is known which one it is: it waits for that.
pub const LEND: u32 = 5;

/// Pager to stub: [`FromStub::reservation`] is registered, and mappings may come out of it.
pub const OPEN: u32 = 6;

/// Pager to stub, after ATTACH with [`ANNOUNCE_FORKS`]: forks may go on. In an announced fork child
/// its memory is served now.
pub const SERVED: u32 = 7;

/// Pager to stub: it will not be served, and may run on alone. Without it the end of the connection
/// is the death of the pager, and of all whom it knows.
pub const BYE: u32 = 8;

/// A thread of a program to pager, on a connection of its own: its process wants to be left by its
/// stub and not to be paged any more. The answer is [`BYE`] when all of its memory is back and the
/// stub's thread may be waited for, or [`STAY`]. [`FromStub::flags`] says why.
pub const DETACH: u32 = 9;

/// Pager to a thread that asked to be left: there is no need. To a fork child that has said hello
/// with a beacon: it does not depend on the pager, and need not wait for a [`LEND`].
pub const STAY: u32 = 10;

/// Pager to stub: keep forks out until [`BYE`], and tell of none. Stub to pager: done, or `error`
/// is EAGAIN, as one is under way.
pub const QUIET: u32 = 11;

/// A thread of a program to pager, on a connection of its own: the process is about to enter
/// another network namespace, where the abstract name is nobody's. The answer is [`STAY`] when
/// those who start there can reach the pager at [`FALLBACK_VARIABLE`].
pub const NETNS_FALLBACK: u32 = 12;

/// A thread of a program to pager, on a connection of its own, with the descriptor of a file: it
/// has made an empty mapping, [`FromStub::segment`], which shall be one of the file from the byte
/// [`FromStub::token`] on. The answer is [`STAY`] if it is.
pub const FILE: u32 = 13;

/// A thread of a program to pager, on a connection of its own: it registers [`FromStub::segment`],
/// a range, with a userfaultfd of its own, and the kernel has said EBUSY. The answer is [`STAY`]
/// when the range is not registered with the pager's any more.
pub const OWN_UFFD: u32 = 17;

/// Pager to stub: its /proc/PID/pagemap, for the ATTACH that follows.
pub const PAGEMAP: u32 = 14;

/// Pager to stub: its /proc/PID/maps, for the ATTACH that follows, where the kernel answers
/// PROCMAP_QUERY: then pages of read-only mappings are taken, too. What is registered with the
/// userfaultfd is so for write protection as well.
pub const MAPS: u32 = 20;

/// Pager to stub: all threads of the program have ended, and its process ends with the stub's
/// thread, with the status (as wait gives it) in [`Command::flags`].
pub const ALL_ENDED: u32 = 15;

/// Pager to stub: the program has memory with the access of the window of [`WINDOWS`] whose number
/// is in [`Command::flags`]; the others but the first have none until then.
pub const OPEN_WINDOW: u32 = 16;

/// A thread of a program to pager, on a connection of its own: its process is about to give up
/// rights, which the stub's thread must not keep; the answer is [`STAY`] if the pager has passed it
/// on, with the flags. Pager to stub: give them up.
pub const CONFINE: u32 = 19;
/// [`FromStub::flags`] and [`Command::flags`] of CONFINE: only those that programs get which the
/// thread starts; else it gets a filter of system calls.
pub const NO_NEW_PRIVILEGES: u32 = 1;

/// [`FromStub::flags`] of DETACH: a system call filter will not let the stub work.
pub const FILTERED: u32 = 1;
/// [`FromStub::flags`] of DETACH: the process cannot be looked at any more through /proc
/// (PR_SET_DUMPABLE, other credentials).
pub const UNREADABLE: u32 = 2;
/// [`FromStub::flags`] of DETACH: it makes a call for which it must have one thread only.
pub const ALONE: u32 = 4;

/// [`FromStub::flags`]: the process is a fork child of one that had a stub.
pub const FORKED: u32 = 1;
/// [`FromStub::flags`] of HELLO: and so is its parent, which had named itself by the same beacon.
pub const FORKED_AGAIN: u32 = 2;
/// [`FromStub::flags`] of GREETING: the process has greeted before, and has another number of
/// filters now.
pub const AGAIN: u32 = 4;
/// [`Command::flags`] of ATTACH: the userfaultfd was lent (a fork child has one).
pub const WITH_UFFD: u32 = 1;
/// [`Command::flags`] of ATTACH: `/dev/userfaultfd` was lent.
pub const WITH_DEVICE: u32 = 2;

/// [`Command::flags`] of ATTACH, test builds only: believe MOVE's return value.
pub const TRUST_MOVE: u32 = 4;

/// [`Command::flags`] of ATTACH: there are no fork events: libmemfit.so announces the program's
/// forks, see [`ForkDoorbell`]. [`Command::flags`] of SERVED: the process is paged, so tell them
/// from now on.
pub const ANNOUNCE_FORKS: u32 = 8;

/// [`Range::flags`]: make the pages exclusive first. They were shared with a process that is gone,
/// and stay "shared" for MOVE until they are written.
pub const POPULATE: u32 = 1;
/// [`Range::flags`]: take nothing, but keep the range from fork children (MADV_DONTFORK). Any
/// number of pages.
pub const DONTFORK: u32 = 2;
/// [`Range::flags`]: take nothing, but let fork children have the range (MADV_DOFORK). Any number
/// of pages.
pub const DOFORK: u32 = 4;

/// Pages whose faults announce a [`ForkDoorbell`]: the last one that a fork has ended. Between the
/// two nothing may be emptied: the pager reads no events then.
pub const DOORBELL_PAGES: usize = 2;
/// Pages in a bounce window.
pub const WINDOW_PAGES: usize = 64;
/// Access (PROT_*) of the bounce windows, which lie one behind the other: a page moves only between
/// mappings of equal access.
pub const WINDOWS: [usize; 3] = [3, 7, 2];
/// Most ranges in a batch.
pub const BATCH_RANGES: usize = 64;
/// Most pages in a batch.
pub const BATCH_PAGES: usize = 256;
/// Bytes of the segment before the first staging slot.
pub const RING_BYTES: usize = 8192;

/// Every message of the stub.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct FromStub {
    pub magic: u32,
    pub version: u32,
    /// [`HELLO`], [`GREETING`], [`ATTACHED`], [`DETACH`], [`CONFINE`], [`QUIET`],
    /// [`NETNS_FALLBACK`], [`FILE`] or [`OWN_UFFD`].
    pub kind: u32,
    pub flags: u32,
    /// Thread id of the stub in its own PID namespace.
    pub tid: u32,
    /// ATTACHED, QUIET: 0 or an errno.
    pub error: u32,
    /// Address ranges that must never be taken: stack, window, segment, beacon (`end` exclusive).
    /// GREETING: `stack` is the thread's stack pointer and its thread pointer.
    pub stack: [u64; 2],
    pub segment: [u64; 2],
    pub window: [u64; 2],
    /// A page that the pager registers and that is never populated before the fork child's stub
    /// touches it: the page that is filled then shows which process the child is.
    /// HELLO: that of the parent, if it was paged when it forked; else 0.
    pub beacon: u64,
    /// Address space without access, parts of which the stub will give to the program; zeros: none.
    pub reservation: [u64; 2],
    /// ATTACHED with [`ANNOUNCE_FORKS`]: the first of the [`DOORBELL_PAGES`] whose faults announce
    /// a [`ForkDoorbell`]; else 0.
    pub doorbell: u64,
    /// HELLO of a told fork child: the pager's number of the fork. GREETING: where the stack of the
    /// first thread began, as `/proc/PID/stat` says it: another program of the process has another
    /// place. FILE: see there. Else 0.
    pub token: u64,
    /// GREETING: address of a `syscall` instruction, behind which a new thread is the stub's. Else
    /// 0.
    pub entry: u64,
    /// GREETING: how many system call filters the process has, as far as the stub knows.
    pub filters: u64,
}

/// Every message to the stub.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct Command {
    /// [`LEND`], [`PAGEMAP`], [`MAPS`], [`ATTACH`], [`OPEN`], [`SERVED`], [`BATCH`], [`QUIET`],
    /// [`STAY`], [`ALL_ENDED`], [`OPEN_WINDOW`], [`CONFINE`] or [`BYE`].
    pub kind: u32,
    pub flags: u32,
    /// ATTACH: bytes of the segment.
    pub segment_bytes: u64,
}

/// [`ForkDoorbell::what`]: a fork begins: let its child have the memory, take nothing until it has
/// ended, and set the token.
pub const FORK_BEGINS: u32 = 1;
/// [`ForkDoorbell::what`]: it has ended in the parent.
pub const FORK_ENDED: u32 = 2;
/// [`ForkDoorbell::what`]: the program's MADV_DONTFORK on a range.
pub const KEEP: u32 = 3;
/// [`ForkDoorbell::what`]: its MADV_DOFORK, already carried out.
pub const GIVE: u32 = 4;

/// What a thread of the program has to say about forks, where the kernel has no fork events for us.
/// It is written before the thread reads a notice page, which is not there: the fault makes the
/// pager read it, and the thread goes on when the pager has done what there was to do. One thread
/// at a time.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct ForkDoorbell {
    pub what: AtomicU32,
    /// [`KEEP`], [`GIVE`]: the range, `end` exclusive.
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// Answer to [`FORK_BEGINS`].
    pub token: AtomicU64,
}

/// [`Ring::gate`]: the stub is inside a MOVE.
pub const IN_MOVE: u32 = 1;
/// [`Ring::gate`]: the pager reads events; the stub must not start a MOVE.
pub const CLOSED: u32 = 2;

/// [`Ring::fatal`]: a slot of the window that should be empty was not, or a moved page could not be
/// found.
pub const FATAL_WINDOW: u32 = 1;
/// [`Ring::fatal`]: the window could not be emptied.
pub const FATAL_FLUSH: u32 = 2;
/// [`Ring::fatal`]: the pager's batch made no sense.
pub const FATAL_BATCH: u32 = 3;
/// [`Ring::fatal`]: memory that was opened to take its pages could not be made read-only again.
pub const FATAL_ACCESS: u32 = 4;

/// Contiguous pages to take.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Range {
    /// Address of the first page.
    pub address: AtomicU64,
    /// 1..=64 of those that are taken.
    pub pages: AtomicU32,
    /// Index in [`Ring::slots`] of the first page's slot.
    pub slot: AtomicU32,
    /// Answer: bit i says that page i is in its slot now.
    pub moved: AtomicU64,
    /// 0: not tried yet; 1: every page moved; 1 + errno: the errno at the first page that was not.
    pub status: AtomicU32,
    /// [`POPULATE`], [`DONTFORK`], [`DOFORK`] or 0.
    pub flags: AtomicU32,
}

/// Start of the shared segment. The pager trusts nothing in it: what comes back is checked against
/// what was posted.
#[repr(C)]
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Ring {
    /// [`IN_MOVE`] and [`CLOSED`]; a futex.
    pub gate: AtomicU32,
    /// Number of the newest batch posted.
    pub posted: AtomicU32,
    /// Number of the newest batch that the stub is done with; a futex.
    pub finished: AtomicU32,
    /// Number of the batch whose untried ranges shall be dropped.
    pub cancelled: AtomicU32,
    /// Ranges in the batch.
    pub ranges: AtomicU32,
    /// Not 0: the stub found something that must not be; the process must die.
    pub fatal: AtomicU32,
    /// Not 0: the program has touched the bounce window, and the pager has filled a page of it. The
    /// stub must empty the window before its next MOVE.
    pub touched: AtomicU32,
    pub fork: ForkDoorbell,
    pub range: [Range; BATCH_RANGES],
    /// Staging slot index of every page of the batch.
    pub slots: [AtomicU32; BATCH_PAGES],
}

const _: () = assert!(core::mem::size_of::<Ring>() <= RING_BYTES);
