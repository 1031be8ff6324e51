//! Programs that install seccomp filters.
//!
//! A filter also covers the stub thread if the thread that makes the stub thread has it, or if it
//! is for all threads (TSYNC). A filter of a thread that forks or starts a program covers the stubs
//! there. If it forbids what a stub does, the kernel would kill the program for the stub's calls.
//! So the stub first runs each filter over the calls that a stub makes. A filter that allows them
//! changes nothing. For any other one, the process gets its memory back and is detached
//! ([`crate::agent::detach`]) before the filter is installed; programs that it starts run without a
//! stub. A child of vfork has the variables of its parent: what its filter forbids is noted for
//! that child only, and only for the program that it starts.
//!
//! The stub does not see a filter that a bare system call installs. The pager has no stub thread
//! made in a process with such a filter. If the process is paged already, the filter kills it or
//! makes the stub fail, which ends it.

use crate::confine::{Change, IS, LOAD, RETURN};
use crate::exec::{self, returned, Next};
use crate::forbidden::{self, is_filtered, is_guest, is_readable, Added};
use crate::sys::{self, PAGE_BYTES};
use crate::{access, advice, agent, alone, confine, detach, file_map, fills, greeting, map, own_uffd, reservation};
use core::mem::size_of;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use memfit_wire::pagemap::PAGEMAP_SCAN;
use memfit_wire::uffd::{UFFDIO_MOVE, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WRITEPROTECT, USERFAULTFD_IOC_NEW};
use memfit_wire::{FILTERED, UNREADABLE};

const SET_SECCOMP: usize = 22;
const SET_DUMPABLE: usize = 4;
const NO_NEW_PRIVS: usize = 38;
const DROP_CAPABILITY: usize = 24;
const SECURE_BITS: usize = 28;
/// PR_SET_SECCOMP: `SECCOMP_MODE_STRICT` and `SECCOMP_MODE_FILTER`.
const STRICT_BY_PRCTL: usize = 1;
const BY_PRCTL: usize = 2;
/// SECCOMP_SET_MODE_STRICT of seccomp.
const STRICT: usize = 0;
/// SECCOMP_SET_MODE_FILTER; its flags for all threads, and for a result that is a
/// descriptor.
const SET_FILTER: usize = 1;
const ALL_THREADS: usize = 1;
const NEW_LISTENER: usize = 8;

/// How many filters there are for which programs that are started from here would be killed, as
/// their stub makes calls.
static STARTED_ALONE: AtomicUsize = AtomicUsize::new(0);

/// Children of vfork that share this memory, and whose filters would kill the programs that they
/// start: their pids. Such a child ends unseen, and its pid stays.
static ALONE: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// Whether programs must be started without the stub.
pub fn starts_alone() -> bool {
    let is_alone = |pid: usize| ALONE[pid % ALONE.len()].load(Relaxed) == pid;
    STARTED_ALONE.load(Relaxed) > 0 || ALONE.iter().any(|pid| pid.load(Relaxed) != 0) && is_alone(sys::pid())
}

/// In a fork child, which has none of these children.
pub fn forget() {
    ALONE.iter().for_each(|pid| pid.store(0, Relaxed));
}

/// A system call and its arguments. `true`: the stub can do without it, so a filter may refuse it
/// with an errno, but must not kill.
pub struct Call(pub usize, pub [usize; 6], pub bool);

pub const fn call(number: usize, args: [usize; 3]) -> Call {
    Call(number, [args[0], args[1], args[2], 0, 0, 0], false)
}

/// A descriptor and an address, for filters that check arguments.
pub const FD: usize = 5;
pub const AT: usize = 0x7f00_0000_0000;

/// Calls of the stub thread.
pub const WORK: &[Call] = &[
    call(sys::SENDMSG, [FD, AT, 0x4000]),
    call(sys::RECVMSG, [FD, AT, 0x4000_0000]),
    Call(sys::RECVFROM, [FD, AT, 1, 0x42, 0, 0], false),
    call(sys::IOCTL, [FD, UFFDIO_MOVE as usize, AT]),
    call(sys::IOCTL, [FD, UFFDIO_REGISTER as usize, AT]),
    call(sys::IOCTL, [FD, UFFDIO_UNREGISTER as usize, AT]),
    call(sys::IOCTL, [FD, PAGEMAP_SCAN as usize, AT]),
    Call(sys::IOCTL, [FD, UFFDIO_WRITEPROTECT as usize, AT, 0, 0, 0], true),
    Call(sys::IOCTL, [FD, access::PROCMAP_QUERY, AT, 0, 0, 0], true),
    Call(sys::IOCTL, [FD, USERFAULTFD_IOC_NEW as usize, 0o2004000, 0, 0, 0], true),
    Call(sys::MMAP, [0, PAGE_BYTES, 0, 0x4022, usize::MAX, 0], false),
    Call(sys::MMAP, [0, PAGE_BYTES, 0, 1, FD, 0], false),
    Call(sys::MMAP, [AT, PAGE_BYTES, 1, 0x11, FD, 0], true),
    call(sys::MPROTECT, [AT, PAGE_BYTES, 3]),
    call(sys::MPROTECT, [AT, PAGE_BYTES, 1]),
    call(sys::MUNMAP, [AT, PAGE_BYTES, 0]),
    call(sys::MUNLOCK, [AT, PAGE_BYTES, 0]),
    call(sys::MADVISE, [AT, PAGE_BYTES, 4]),
    call(sys::MADVISE, [AT, PAGE_BYTES, 10]),
    call(sys::MADVISE, [AT, PAGE_BYTES, 11]),
    call(sys::MADVISE, [AT, PAGE_BYTES, 15]),
    call(sys::MADVISE, [AT, PAGE_BYTES, 23]),
    call(sys::MINCORE, [AT, PAGE_BYTES, AT]),
    call(sys::FUTEX, [AT, 0, 1]),
    call(sys::FUTEX, [AT, 1, 1]),
    call(sys::GETTID, [0; 3]),
    call(sys::GETPID, [0; 3]),
    Call(sys::PRLIMIT, [0, 9, 0, AT, 0, 0], false),
    call(sys::CLOSE, [FD, 0, 0]),
    call(sys::EXIT, [0; 3]),
    call(sys::EXIT_GROUP, [137, 0, 0]),
];

/// Further calls that start a stub thread.
const START: &[Call] = &[
    Call(sys::SIGPROCMASK, [2, AT, AT, 8, 0, 0], false),
    Call(sys::CLONE, [memfit_wire::CLONE_FLAGS, AT, 0, 0, AT, 0], false),
    Call(sys::PRCTL, [15, AT, 0, 0, 0, 0], true),
    Call(sys::CHDIR, [AT, 0, 0, 0, 0, 0], true),
    call(sys::CLOSE_RANGE, [0, u32::MAX as usize, 2]),
    call(sys::SOCKET, [1, 0o2000005, 0]),
    call(sys::CONNECT, [FD, AT, 40]),
    Call(sys::GETSOCKOPT, [FD, 1, 17, AT, AT, 0], false),
    call(sys::GETRESUID, [AT, AT, AT]),
    Call(sys::GETPRIORITY, [0; 6], true),
    Call(sys::SCHED_SETATTR, [0, AT, 0, 0, 0, 0], true),
    call(sys::MADVISE, [AT, PAGE_BYTES, 22]),
];

/// fork as glibc makes it, and as others may.
const FORKS: [Call; 3] =
    [call(sys::CLONE, [0x120_0011, 0, 0]), call(sys::FORK, [0; 3]), call(sys::CLONE3, [AT, 88, 0])];
/// Access of an executable read-only mapping, closed and open. Where a filter forbids it, the stub
/// leaves such pages in the program.
const EXECUTED: [Call; 2] = [call(sys::MPROTECT, [AT, PAGE_BYTES, 5]), call(sys::MPROTECT, [AT, PAGE_BYTES, 7])];
/// The call in [`access::unshare`]: where a filter forbids it, shared read-only pages stay.
const UNSHARE: Call = Call(sys::PROCESS_VM_READV, [4321, AT, 1, AT, 64, 0], true);
/// The stub needs the call only where the pager has no device to lend.
pub const MAKE: Call = Call(sys::USERFAULTFD, [0o2004000, 0, 0, 0, 0, 0], true);
const EXECS: [Call; 2] = [call(sys::EXECVE, [AT, AT, AT]), call(sys::EXECVEAT, [FD, AT, AT])];

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub k: u32,
}

#[repr(C)]
pub struct Program {
    pub len: u16,
    pub filter: *const Instruction,
}

pub const ALLOW: u32 = 0x7fff_0000;
const LOG: u32 = 0x7ffc_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL: u32 = 0;

impl Program {
    /// What the kernel would do with a call: classic BPF over `struct seccomp_data`. An invalid
    /// program, which the kernel refuses, gives KILL.
    fn verdict(&self, call: &Call) -> u32 {
        self.run(call, |_| ())
    }

    /// The same. Tells of each word of `struct seccomp_data` that the program loads.
    fn run(&self, call: &Call, mut loads: impl FnMut(usize)) -> u32 {
        let word = |offset: usize| -> u32 {
            let (half, high) = ((offset % 8) / 4, |x: u64| (x >> 32) as u32);
            let wide = |x: u64| if half == 0 { x as u32 } else { high(x) };
            match offset {
                0 => call.0 as u32,
                4 => 0xc000_003e,
                8 | 12 => wide(AT as u64),
                _ => wide(call.1.get((offset - 16) / 8).copied().unwrap_or(0) as u64),
            }
        };
        let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
        while at < self.len as usize {
            // SAFETY: the caller's program has `len` instructions.
            let Instruction { code, jump_true, jump_false, k } = unsafe { *self.filter.add(at) };
            at += 1;
            let cell = (k & 15) as usize;
            let operand = if code & 8 != 0 { x } else { k };
            match code {
                0x20 if k % 4 == 0 && k < 64 => {
                    loads(k as usize);
                    a = word(k as usize);
                }
                0x80 => a = 64,
                0x81 => x = 64,
                0x00 => a = k,
                0x01 => x = k,
                0x60 => a = memory.get(cell).copied().unwrap_or(0),
                0x61 => x = memory.get(cell).copied().unwrap_or(0),
                0x02 | 0x03 => {
                    if let Some(place) = memory.get_mut(cell) {
                        *place = if code == 2 { a } else { x };
                    }
                }
                0x04 | 0x0c => a = a.wrapping_add(operand),
                0x14 | 0x1c => a = a.wrapping_sub(operand),
                0x24 | 0x2c => a = a.wrapping_mul(operand),
                0x34 | 0x3c => match a.checked_div(operand) {
                    Some(result) => a = result,
                    None => return KILL,
                },
                0x44 | 0x4c => a |= operand,
                0x54 | 0x5c => a &= operand,
                0x64 | 0x6c => a = a.checked_shl(operand).unwrap_or(0),
                0x74 | 0x7c => a = a.checked_shr(operand).unwrap_or(0),
                0x84 => a = a.wrapping_neg(),
                0xa4 | 0xac => a ^= operand,
                0x05 => at += k as usize,
                0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                    let holds = match code & 0xf0 {
                        0x10 => a == operand,
                        0x20 => a > operand,
                        0x30 => a >= operand,
                        _ => a & operand != 0,
                    };
                    at += usize::from(if holds { jump_true } else { jump_false });
                }
                0x06 => return k & 0xffff_0000,
                0x16 => return a & 0xffff_0000,
                0x07 => x = a,
                0x87 => a = x,
                _ => return KILL,
            }
        }
        KILL
    }

    /// Whether the stub can make the call, or do without its result.
    pub fn allows(&self, call: &Call) -> bool {
        self.permits(call) || call.2 && self.verdict(call) == ERRNO
    }

    /// Whether a call with this number may be made, with some arguments: a filter can allow only
    /// the path that the program is about to start.
    fn may_permit(&self, call: &Call) -> bool {
        const ARGUMENTS: usize = 16;
        let mut looks = false;
        let verdict = self.run(call, |offset| looks |= offset >= ARGUMENTS);
        looks || matches!(verdict, ALLOW | LOG)
    }

    /// Whether the call is made.
    pub fn permits(&self, call: &Call) -> bool {
        matches!(self.verdict(call), ALLOW | LOG)
    }
}

/// Makes the call that installs a filter, after [`prepare`]. The flags are those of seccomp.
///
/// # Safety
/// As `call`.
unsafe fn install(program: *const Program, flags: usize, call: impl Fn(*const Program) -> isize) -> isize {
    // SAFETY: as the caller promises.
    let Some(given) = (unsafe { given(program, &call) }) else { return call(program) };
    let prepared = prepare(&given, flags & ALL_THREADS != 0);
    let result = call(program);
    // A positive result can also be a thread that kept the kernel from installing the filter.
    prepared.end(result == 0 || result > 0 && flags & NEW_LISTENER != 0);
    result
}

/// The filter, if the kernel would look at it. It refuses flags that it does not know, and a caller
/// without the right to install filters, before it reads the filter: so it is first asked to
/// install one that cannot be read. (Null asks whether there are filters.)
///
/// # Safety
/// As `call`.
unsafe fn given(program: *const Program, call: impl Fn(*const Program) -> isize) -> Option<Program> {
    const EFAULT: isize = 14;
    const NOWHERE: usize = 1 << 63;
    if !is_readable(program as usize, size_of::<Program>()) {
        return None;
    }
    // SAFETY: it can be read.
    let Program { len, filter } = unsafe { program.read() };
    let unreadable = Program { len, filter: NOWHERE as *const Instruction };
    let readable = is_readable(filter as usize, usize::from(len) * size_of::<Instruction>());
    (readable && call(&raw const unreadable) == -EFAULT).then_some(Program { len, filter })
}

/// Makes the call that begins strict mode (read, write, exit and sigreturn only, for the calling
/// thread), after the same. The kernel refuses it to a thread with a filter.
fn restrict(call: impl Fn() -> isize) -> isize {
    if is_filtered() {
        return call();
    }
    const LEFT: [usize; 4] = [sys::READ, sys::WRITE, sys::EXIT, sys::SIGRETURN];
    let mut code = [Instruction { code: RETURN, jump_true: 0, jump_false: 0, k: KILL }; 2 * LEFT.len() + 2];
    code[0] = Instruction { code: LOAD, k: 0, ..code[0] };
    for (pair, number) in code[1..].chunks_exact_mut(2).zip(LEFT) {
        pair[0] = Instruction { code: IS, jump_true: 0, jump_false: 1, k: number as u32 };
        pair[1].k = ALLOW;
    }
    let prepared = prepare(&Program { len: code.len() as u16, filter: code.as_ptr() }, false);
    let result = call();
    prepared.end(result == 0);
    result
}

/// What was done before a filter is installed.
struct Prepared {
    /// The stub thread could still be made after that.
    approved: bool,
    /// The process, which was not paged, was detached.
    left: bool,
    /// The caller keeps it until the filter is installed.
    change: Option<Change>,
    /// What is noted of the filter, if it is of this process.
    added: Option<Added>,
    alone: Alone,
}

/// For whom programs must be started without the stub, because of a filter.
enum Alone {
    Nobody,
    Process,
    /// A child of vfork, by its pid. 0: it cannot be told from its parent.
    Guest(usize),
}

impl Prepared {
    /// After the call. Makes no system call that the filter could forbid.
    fn end(self, installed: bool) {
        // The pager can have the stub thread made under the filter from here on.
        drop(self.change);
        if !installed {
            self.added.iter().for_each(forbidden::take_back);
            self.alone.take_back();
            if self.left {
                agent::start_again();
            }
            return;
        }
        if matches!(self.alone, Alone::Process) {
            exec::leave_environment();
        }
        if self.approved {
            greeting::add_filter();
        }
    }
}

/// Before a filter is installed that the kernel can read.
fn prepare(program: &Program, all_threads: bool) -> Prepared {
    let mut prepared = Prepared { approved: false, left: false, change: None, added: None, alone: Alone::Nobody };
    let all = |calls: &[Call]| calls.iter().all(|call| program.allows(call));
    let (works, starts, makes) = (all(WORK), all(START), program.allows(&MAKE));
    // A program that is started from here cannot know of this filter.
    if !(works && starts && makes) && EXECS.iter().any(|call| program.may_permit(call)) {
        prepared.alone = Alone::under(program);
        prepared.alone.start();
    }
    if is_guest() {
        return prepared;
    }
    if !program.allows(&call(sys::MPROTECT, [AT, PAGE_BYTES, 3])) {
        map::close();
    }
    if !all(&EXECUTED) {
        access::keep_executed();
    }
    if !program.allows(&UNSHARE) {
        access::keep_shared();
    }
    let detach = || {
        let paged = agent::is_paged();
        detach::ask(FILTERED) && !paged
    };
    let hurts = FORKS.iter().any(|call| program.permits(call)) && !(works && starts);
    if (all_threads && (!works || confine::is_confined())) || hurts {
        prepared.left = detach();
    } else if !all_threads {
        // If there is no stub thread yet, it would be made under this filter.
        if greeting::has_greeted() && !(works && starts) {
            agent::make_now();
        }
        prepared.change = Some(confine::begin());
    } else if greeting::has_greeted() && !starts {
        prepared.left = detach();
    }
    prepared.approved = works && starts;
    prepared.added = Some(forbidden::add(program, !prepared.approved));
    prepared
}

impl Alone {
    /// Before a filter under which programs must have no stub.
    fn under(program: &Program) -> Alone {
        match is_guest() {
            false => Alone::Process,
            true if program.permits(&call(sys::GETPID, [0; 3])) => Alone::Guest(sys::pid()),
            true => Alone::Guest(0),
        }
    }

    /// The filter is about to be installed: another thread could start a program under it at once.
    fn start(&self) {
        match *self {
            Alone::Nobody => {}
            Alone::Process | Alone::Guest(0) => _ = STARTED_ALONE.fetch_add(1, Relaxed),
            Alone::Guest(pid) => ALONE[pid % ALONE.len()].store(pid, Relaxed),
        }
    }

    /// The kernel has refused it.
    fn take_back(&self) {
        match *self {
            Alone::Nobody => {}
            Alone::Process | Alone::Guest(0) => _ = STARTED_ALONE.fetch_sub(1, Relaxed),
            Alone::Guest(pid) => ALONE[pid % ALONE.len()].store(0, Relaxed),
        }
    }
}

unsafe fn by_prctl(option: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    // SAFETY: forwards what the caller answers for.
    unsafe {
        let call = || sys::call(sys::PRCTL, [option, a, b, c, d, 0]);
        let _change = match option as u32 as usize {
            SET_SECCOMP if a == STRICT_BY_PRCTL => return restrict(call),
            SET_SECCOMP if a == BY_PRCTL => {
                let call = |program| sys::call(sys::PRCTL, [option, a, program as usize, c, d, 0]);
                return install(b as *const Program, 0, call);
            }
            NO_NEW_PRIVS => Some(confine::without_new_privileges()),
            DROP_CAPABILITY | SECURE_BITS => Some(confine::begin()),
            SET_DUMPABLE if a != 1 => {
                detach::ask(UNREADABLE);
                None
            }
            _ => None,
        };
        call()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prctl(option: i32, a: usize, b: usize, c: usize, d: usize) -> i32 {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe { returned(by_prctl(option as usize, a, b, c, d)) }
}

/// The next function of that name: that of libc, or of another preloaded library.
pub static SYSCALL: Next = Next::new(c"syscall");

unsafe fn next_syscall(number: usize, args: [usize; 6]) -> isize {
    type Syscall = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> isize;
    let [a, b, c, d, e, f] = args;
    // SAFETY: the symbol is a function of this type; forwards what the caller answers for; sets
    // errno.
    unsafe {
        match SYSCALL.get() {
            0 => as_libc(sys::call(number, args)),
            next => core::mem::transmute::<usize, Syscall>(next)(number, a, b, c, d, e, f),
        }
    }
}

/// As the next function, except for the calls below. Like libc's it always reads six arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    // SAFETY: forwards what the caller answers for; sets errno.
    unsafe {
        fills::begin_by_number(number, b, c);
        let result = match number {
            sys::PRCTL => by_prctl(a, b, c, d, e),
            sys::SECCOMP if a == SET_FILTER => {
                install(c as *const Program, b, |program| sys::call(number, [a, b, program as usize, 0, 0, 0]))
            }
            sys::SECCOMP if [a, b, c] == [STRICT, 0, 0] => restrict(|| sys::call(number, [a, b, c, 0, 0, 0])),
            sys::CLONE => alone::clone_by(a, b, || sys::call(number, [a, b, c, d, e, f])),
            // struct clone_args: the flags are its first word, the stack is its sixth.
            sys::CLONE3 if b >= 64 && is_readable(a, 64) => {
                let words = a as *const usize;
                alone::clone_by(*words, *words.add(5), || sys::call(number, [a, b, c, d, e, f]))
            }
            sys::UNSHARE => alone::leave_namespaces(a as i32),
            sys::SETNS => alone::enter_namespace(a as i32, b as i32),
            number if sys::GIVE_UP.contains(&number) => {
                // From Linux 6.12 on, a Landlock domain can forbid its processes to connect to
                // abstract sockets outside of it.
                if number == sys::LANDLOCK_RESTRICT_SELF {
                    alone::lose_abstract_names();
                }
                let _change = confine::begin();
                sys::call(number, [a, b, c, d, e, f])
            }
            sys::IOCTL => own_uffd::control(a, b, c),
            sys::MPROTECT | sys::PKEY_MPROTECT | sys::MSEAL => {
                let made = || access::changing(|| sys::call(number, [a, b, c, d, e, f]));
                file_map::refuses(number, a, b, c).unwrap_or_else(made)
            }
            sys::MUNMAP => reservation::unmap_own(a, b),
            sys::MREMAP => file_map::remap(a, b, c, d as i32, e),
            sys::MMAP => map::replacing(a, b, d as i32, || sys::call(number, [a, b, c, d, e, f])),
            sys::SHMAT => map::attaching(a, b, c as i32, || sys::call(number, [a, b, c, d, e, f])),
            sys::EXIT => agent::exit_thread(a),
            sys::FORK => alone::fork_by(|| sys::call(number, [0; 6])),
            sys::MADVISE => advice::advise(a, b, c as i32),
            sys::PROCESS_MADVISE => advice::advise_process(a, b, c, d, e),
            _ => return next_syscall(number, [a, b, c, d, e, f]),
        };
        as_libc(result)
    }
}

/// The result of libc's function; sets errno.
unsafe fn as_libc(result: isize) -> isize {
    match result {
        // SAFETY: sets errno.
        -4095..=-1 => unsafe { returned(result) as isize },
        result => result,
    }
}
