//! Descriptors of threads, which must be resident when a thread ends.
//!
//! The kernel then clears the thread id in glibc's `struct pthread` and reads the list of robust
//! mutexes there, and waits for no userfault. The pager knows stacks with a guard page by their
//! shape. It finds other descriptors when it next looks at the threads, and a thread can end before
//! that. So such a thread first notes its descriptor, and the stub takes no page of it any more.

use crate::exec::Next;
use crate::forbidden::{forbids, yield_now};
use crate::sys::{self, syscall, PAGE_BYTES};
use core::arch::{asm, global_asm};
use core::mem::transmute;
use core::ptr::read_volatile;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use memfit_wire::{PTHREAD_BYTES, PTHREAD_TID, ROBUST_LIST, ROBUST_LIST_BYTES};

sys::weak!(pthread_attr_getstack, memfit_stub_attr_getstack);
sys::weak!(pthread_attr_getguardsize, memfit_stub_attr_getguardsize);

/// Threads that can be noted. Beyond that, only the pager finds descriptors.
const PLACES: usize = 512;
/// Places that a new thread checks: threads that have ended leave theirs.
const CHECKS: usize = 8;
/// How often a new thread waits for a MOVE under way, which takes microseconds.
const WAITS: u32 = 1000;
/// In [`Place::tid`]: nobody's, and of a thread that does not run yet.
const FREE: i32 = 0;
const STARTING: i32 = -1;

struct Place {
    tid: AtomicI32,
    /// Address of the descriptor; 0 until it is noted.
    descriptor: AtomicUsize,
    /// What the thread is to run.
    function: AtomicUsize,
    argument: AtomicUsize,
}

static TABLE: [Place; PLACES] = [const {
    Place {
        tid: AtomicI32::new(FREE),
        descriptor: AtomicUsize::new(0),
        function: AtomicUsize::new(0),
        argument: AtomicUsize::new(0),
    }
}; PLACES];
/// Number of places that were checked, so far.
static CHECKED: AtomicUsize = AtomicUsize::new(0);
/// The stub thread moves pages.
static MOVING: AtomicBool = AtomicBool::new(false);

/// The stub thread is about to move pages, or has moved them.
pub fn moving(begins: bool) {
    MOVING.store(begins, SeqCst);
}

/// In a fork child, which has neither the stub thread nor threads that start.
pub fn forget() {
    moving(false);
    for place in &TABLE {
        let _ = place.tid.compare_exchange(STARTING, FREE, SeqCst, SeqCst);
    }
}

/// How many of these pages can be taken: those before the first one with a noted descriptor.
pub fn takable(address: usize, pages: usize) -> usize {
    let used = CHECKED.load(SeqCst).min(PLACES);
    TABLE[..used].iter().fold(pages, |pages, place| {
        let at = place.descriptor.load(SeqCst);
        if at == 0 || at + PTHREAD_BYTES <= address || address + pages * PAGE_BYTES <= at {
            return pages;
        }
        at.saturating_sub(address) / PAGE_BYTES
    })
}

/// A free place, which is then one of a thread that starts. Frees other places of ended threads.
fn take_place() -> Option<&'static Place> {
    let mut found = None;
    for _ in 0..CHECKS {
        let place = &TABLE[CHECKED.fetch_add(1, SeqCst) % PLACES];
        if !place.take() {
            continue;
        }
        if found.is_none() {
            found = Some(place);
        } else {
            place.tid.store(FREE, SeqCst);
        }
    }
    found
}

impl Place {
    /// Makes this the place of a thread that starts, if it is not in use.
    fn take(&self) -> bool {
        let tid = self.tid.load(SeqCst);
        if tid == STARTING || runs(tid) || self.tid.compare_exchange(tid, STARTING, SeqCst, SeqCst).is_err() {
            return false;
        }
        self.descriptor.store(0, SeqCst);
        true
    }
}

/// Whether a thread of this process runs, or may run.
fn runs(tid: i32) -> bool {
    tid > 0 && sys::has_thread(tid as usize) != Some(false)
}

type Create = unsafe extern "C" fn(*mut usize, *const u8, usize, usize) -> i32;
type GetStack = unsafe extern "C" fn(*const u8, *mut usize, *mut usize) -> i32;
type GetGuard = unsafe extern "C" fn(*const u8, *mut usize) -> i32;

pub static CREATE: Next = Next::new(c"pthread_create");

/// Whether the stack has no guard page that glibc makes: then its shape does not tell where it
/// ends.
///
/// # Safety
/// `attributes` are null or valid for pthread_create.
unsafe fn is_unguarded(attributes: *const u8) -> bool {
    let (get_stack, get_guard) = (pthread_attr_getstack(), pthread_attr_getguardsize());
    if attributes.is_null() || get_stack == 0 || get_guard == 0 {
        return false;
    }
    let (mut start, mut bytes, mut guard) = (0usize, 0usize, 0usize);
    // SAFETY: glibc's functions of these types.
    unsafe {
        transmute::<usize, GetStack>(get_stack)(attributes, &raw mut start, &raw mut bytes);
        transmute::<usize, GetGuard>(get_guard)(attributes, &raw mut guard);
    }
    // If the program gives no stack, glibc tells of one that ends at 0.
    start.wrapping_add(bytes) != 0 || guard == 0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut usize,
    attributes: *const u8,
    function: usize,
    argument: usize,
) -> i32 {
    let next = CREATE.get_late();
    if next == 0 {
        return sys::EAGAIN;
    }
    // SAFETY: the symbol is libc's function of this type; the caller answers for the arguments.
    unsafe {
        let create = transmute::<usize, Create>(next);
        let place = if is_unguarded(attributes) { take_place() } else { None };
        let Some(place) = place else { return create(thread, attributes, function, argument) };
        place.function.store(function, SeqCst);
        place.argument.store(argument, SeqCst);
        let begin: unsafe extern "C" fn() = memfit_thread_begin;
        let result = create(thread, attributes, begin as usize, &raw const *place as usize);
        if result != 0 {
            place.tid.store(FREE, SeqCst);
        }
        result
    }
}

// Where such a thread begins: no frame of the stub stays on its stack.
global_asm!(
    ".globl memfit_thread_begin",
    ".hidden memfit_thread_begin",
    ".type memfit_thread_begin, @function",
    "memfit_thread_begin:",
    "sub rsp, 8",
    "call {note}",
    "add rsp, 8",
    "mov rdi, rdx",
    "jmp rax",
    ".size memfit_thread_begin, . - memfit_thread_begin",
    note = sym note,
);

unsafe extern "C" {
    fn memfit_thread_begin();
}

/// What a thread runs, in the registers of a result.
#[repr(C)]
struct Start {
    function: usize,
    argument: usize,
}

/// Notes the calling thread's descriptor, and brings it back if it was taken before that.
extern "C" fn note(place: &'static Place) -> Start {
    let descriptor: usize;
    // SAFETY: the first word but two of glibc's descriptor is its address.
    unsafe { asm!("mov {}, fs:[0x10]", out(reg) descriptor, options(nostack, readonly, preserves_flags)) };
    let start = Start { function: place.function.load(SeqCst), argument: place.argument.load(SeqCst) };
    place.descriptor.store(descriptor, SeqCst);
    let mut waits = 0;
    while MOVING.load(SeqCst) && waits < WAITS {
        yield_now();
        waits += 1;
    }
    // SAFETY: both are in the descriptor.
    unsafe {
        read_volatile((descriptor + PTHREAD_TID) as *const u8);
        read_volatile((descriptor + ROBUST_LIST + ROBUST_LIST_BYTES) as *const u8);
        // Without its number it keeps its place for good.
        if !forbids(sys::GETTID) {
            place.tid.store(syscall!(sys::GETTID) as i32, SeqCst);
        }
    }
    start
}
