//! libmemfit.so: the preloaded stub, which takes pages out of the program from inside.
//!
//! The stub needs no library and uses no allocator, lock or thread-local variable of the program's
//! libc. Its constructor reports the process to the pager (`greeting`) and does nothing more. When
//! the pager pages the process, the process gets the stub thread (`agent`), which carries out
//! batches of runs to take away (`take`).
//!
//! The stub interposes functions of libc: the exec family (`exec`), `mmap` (`map`; of files:
//! `file_map`), `mprotect` and the like (`reservation`; `access` keeps them apart from what the
//! stub does to mappings), `madvise` (`advice`), `mlockall` (`lock`), `pthread_create` (`threads`),
//! calls that fill much memory (`fills`), and the `stat` family (`task_links`). Where the kernel
//! reports no forks to the pager, the stub does (`fork`). A process is detached where a filter
//! would forbid the stub's work (`seccomp`) or the pager could not read the process (`detach`). The
//! interposed functions do without what a filter forbids (`forbidden`).
#![no_std]

mod access;
mod advice;
mod agent;
mod alone;
mod bytes;
mod confine;
mod detach;
mod exec;
mod file_map;
mod fills;
mod forbidden;
mod fork;
mod greeting;
mod lock;
mod map;
mod own_uffd;
mod reservation;
mod seccomp;
mod socket;
mod space;
mod sys;
mod take;
mod task_links;
mod threads;

use core::arch::global_asm;

global_asm!(
    // The precompiled core library names it in its unwind tables. The stub never unwinds.
    ".globl rust_eh_personality",
    ".hidden rust_eh_personality",
    "rust_eh_personality: ud2",
);

sys::weak!(gnu_get_libc_version, memfit_stub_glibc);
sys::weak!(__register_atfork, memfit_stub_atfork);

type AtFork = Option<extern "C" fn()>;
type RegisterAtFork = extern "C" fn(AtFork, AtFork, AtFork, *const u8) -> i32;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(i32, *const *const u8, *const *const u8) = constructor;

/// Runs once when the program starts. glibc passes the environment; another libc passes nothing,
/// and then the program runs unmanaged.
extern "C" fn constructor(_argc: i32, argv: *const *const u8, environment: *const *const u8) {
    if gnu_get_libc_version() == 0 {
        return;
    }
    // SAFETY: glibc passes a null-terminated array of C strings.
    let Some(name) = (unsafe { variable(environment, memfit_wire::SOCKET_VARIABLE.as_bytes()) }) else { return };
    if !socket::set_name(name) {
        return;
    }
    // SAFETY: as above.
    if let Some(place) = unsafe { variable(environment, memfit_wire::FALLBACK_VARIABLE.as_bytes()) } {
        socket::set_place(place);
    }
    // SAFETY: as above.
    if unsafe { variable(environment, memfit_wire::FILES_VARIABLE.as_bytes()) }.is_some() {
        file_map::take_files();
    }
    fork::note_process();
    reservation::ask_kernel();
    // SAFETY: the symbol, if there, is glibc's function of this type.
    unsafe {
        let register = __register_atfork();
        if register != 0 {
            let register: RegisterAtFork = core::mem::transmute(register);
            register(Some(fork::before), Some(fork::after_in_parent), Some(fork::after_in_child), core::ptr::null());
        }
    }
    // SAFETY: as above.
    let at_once = unsafe { variable(environment, memfit_wire::THREAD_VARIABLE.as_bytes()) }.is_some();
    // The kernel puts argc just below argv.
    greeting::begin(at_once, argv as usize - 8);
    agent::start(false, 0);
}

/// The value of an environment variable.
///
/// # Safety
/// `environment` is null or a null-terminated array of C strings that live on.
unsafe fn variable(environment: *const *const u8, name: &[u8]) -> Option<&'static [u8]> {
    if environment.is_null() {
        return None;
    }
    // SAFETY: as the caller promises; every index stays at or before the terminators.
    unsafe {
        let mut i = 0;
        while !(*environment.add(i)).is_null() {
            let entry = *environment.add(i);
            let mut at = 0;
            while at < name.len() && *entry.add(at) == name[at] {
                at += 1;
            }
            if at == name.len() && *entry.add(at) == b'=' {
                let value = entry.add(at + 1);
                let mut len = 0;
                while *value.add(len) != 0 {
                    len += 1;
                }
                return Some(core::slice::from_raw_parts(value, len));
            }
            i += 1;
        }
    }
    None
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: an illegal instruction ends the process; nothing here can panic on purpose.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
