//! Makes a thread of another process execute system calls, or run while its process is stopped
//! (ptrace).
//!
//! The tracer stops the thread, gives it the registers of the call, lets it make the call, and
//! gives it its own registers back. No instruction of the program runs meanwhile. The kernel
//! restarts a system call that the stop has interrupted, as after any stop (some, such as
//! `epoll_wait`, end with EINTR, as they do after SIGSTOP and SIGCONT).
//!
//! A tracer is a thread, and its tracees go on when it ends. So each attempt runs in a thread of
//! its own, and every failure ends with that thread.

mod load;

pub use load::Load;

use crate::capability::{self, CAP_SYS_PTRACE};
use crate::procfs::{self, ThreadStatus};
use crate::sched;
use crate::standby::Standby;
use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::mem::size_of;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for a thread to stop. The thread needs a CPU to stop, and inside of the kernel
/// (vfork, a device) it stops only when it comes out.
const STOPS_WITHIN: Duration = Duration::from_millis(500);
/// The same, while other threads are stopped for it: the caller can then try one of those.
const STOPS_WITH_OTHERS_WITHIN: Duration = Duration::from_millis(100);
/// A thread of ours that was joined is gone within this time, unless it gets no CPU.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
/// Longest time in which a stopped thread gets to the entry of the call. Its process may be frozen,
/// or the page of the instruction may have to be read.
const ENTERS_WITHIN: Duration = Duration::from_secs(1);
/// Shortest and longest pause between two polls for a stop.
const POLL: Duration = Duration::from_micros(20);
const POLL_MAX: Duration = Duration::from_millis(5);
/// Pause between two polls for a stop of a thread that [`let_run`] runs.
const POLL_RUNNING: Duration = Duration::from_millis(2);
/// Pause between two questions whether a thread stays stopped.
const POLL_HELD: Duration = Duration::from_micros(200);
/// How often [`stop_running`] looks for threads: a program that starts threads all the time always
/// has new ones, and one thread of it is stopped meanwhile.
const ROUNDS: usize = 4;
/// Code segment selector of 64-bit user code.
const USER_CODE: u64 = 0x33;
/// `PTRACE_GET_RSEQ_CONFIGURATION`, `PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG`: Linux 5.13 and 6.4.
const GET_RSEQ: libc::c_uint = 0x420f;
const GET_DISPATCH: libc::c_uint = 0x4211;
/// Options of each traced thread.
const TRACED: libc::c_int = libc::PTRACE_O_TRACESYSGOOD;
/// Signal of a stop at a system call, marked by PTRACE_O_TRACESYSGOOD.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// Kernel-internal results of interrupted calls: ERESTARTSYS to ERESTART_RESTARTBLOCK.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;

/// A system call, and the address of an instruction for it in the process.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Address of a `syscall` instruction.
    pub instruction: u64,
    /// The bytes just before it: they prove that the process still runs the program that reported
    /// the address.
    pub mark: [u8; 8],
    /// System call number.
    pub number: u64,
    /// Its arguments.
    pub arguments: [u64; 6],
    /// Number of system call filters that the thread must have: another one could kill it for the
    /// call.
    pub filters: u64,
    /// Where the stack of the process's first thread must have begun.
    pub start_stack: u64,
}

/// Why a call was not made.
#[derive(Debug)]
pub enum Failure {
    /// This process may not trace the thread, or another one traces it.
    Refused,
    /// Not at this moment, or not with this thread: ask again.
    NotNow,
    /// The mark is missing: the process runs another program by now.
    Other,
    /// The call was made and failed.
    Call(io::Error),
}

/// A thread of a process that was asked to stop, and a thread of ours that traces it. Dropping this
/// lets it go on.
#[derive(Debug)]
pub struct Asked {
    orders: Sender<Order>,
    result: Receiver<Result<u64, Failure>>,
    tracer: JoinHandle<()>,
    tracer_tid: i32,
}

/// What a stopped thread does.
enum Work {
    Call(Call),
    Load(Load),
}

impl Work {
    /// The number of filters, and the beginning of the first thread's stack, that the process must
    /// have.
    fn program(&self) -> (u64, u64) {
        match self {
            Work::Call(call) => (call.filters, call.start_stack),
            Work::Load(load) => (0, load.start_stack),
        }
    }
}

/// The work, and how long the threads stay stopped after it.
type Order = (Work, Box<dyn Fn() -> bool + Send>);

impl Asked {
    /// Asks the thread `tid` of a process to stop. One of `tracers` does it, which is an ordinary
    /// thread after that.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn to_stop(tracers: &Standby, (pid, tid): (i32, i32)) -> Result<Asked, Failure> {
        let ((orders, order), (sender, result), (tell, asked)) = (channel::<Order>(), channel(), channel());
        let body = move || {
            let is_asked = ask_to_stop(tid);
            let refused = is_asked.is_err();
            let _ = tell.send(is_asked.map(|()| procfs::own_tid()));
            sched::end_real_time();
            if refused {
                return;
            }
            if let Ok((work, held)) = order.recv() {
                let _ = sender.send(when_stopped((pid, tid), &work, held));
            }
        };
        let tracer = tracers.run(body).map_err(|_| Failure::NotNow)?;
        let tracer_tid = asked.recv().unwrap_or(Err(Failure::NotNow))?;
        Ok(Asked { orders, result, tracer, tracer_tid })
    }

    /// Makes the thread execute a call with all signals blocked, and returns its result. The other
    /// running threads are stopped meanwhile. After a call that succeeded, all of them stay stopped
    /// as long as `held` returns true.
    ///
    /// # Errors
    /// See [`Failure`]. The threads then go on as if they had not been stopped.
    pub fn call(self, call: Call, held: impl Fn() -> bool + Send + 'static) -> Result<u64, Failure> {
        self.work(Work::Call(call), held)
    }

    /// Makes the thread load libmemfit.so and start its thread, with all signals blocked. The rest
    /// is as with [`Asked::call`].
    ///
    /// # Errors
    /// See [`Failure`]. The program then has no new memory.
    pub fn load(self, load: Load, held: impl Fn() -> bool + Send + 'static) -> Result<(), Failure> {
        self.work(Work::Load(load), held).map(|_| ())
    }

    fn work(self, work: Work, held: impl Fn() -> bool + Send + 'static) -> Result<u64, Failure> {
        let _ = self.orders.send((work, Box::new(held)));
        let result = self.result.recv().unwrap_or(Err(Failure::NotNow));
        self.release();
        result
    }

    /// Lets it go on. Another thread may trace it after that.
    pub fn release(self) {
        let Asked { orders, tracer, tracer_tid, .. } = self;
        drop(orders);
        let _ = tracer.join();
        // The kernel lets tracees go after it has told that the tracer has ended.
        let until = Instant::now() + ENDS_WITHIN;
        while !procfs::is_gone(tracer_tid) && Instant::now() < until {
            std::thread::sleep(POLL);
        }
    }
}

/// All signals that can be blocked: not SIGKILL and SIGSTOP.
const ALL_SIGNALS: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

/// What a thread does that was asked to stop.
fn when_stopped((pid, tid): (i32, i32), work: &Work, held: impl Fn() -> bool) -> Result<u64, Failure> {
    let within = if stop_running(pid, tid) { STOPS_WITH_OTHERS_WITHIN } else { STOPS_WITHIN };
    let tracee = Tracee::of(tid, within)?;
    // Until it stopped, the thread could add a filter or execute another program.
    let filters = ThreadStatus::of(pid, tid).and_then(|status| status.filters());
    let (known, start_stack) = work.program();
    if filters != Some(known) || procfs::start_stack(pid).is_some_and(|at| at != start_stack) {
        return Err(Failure::NotNow);
    }
    tracee.make(pid, work, held)
}

/// Stops the running threads of a process and those that they start meanwhile, but for one, and for
/// those that block all signals in each round: the program may just have made its stub thread
/// itself. Returns whether there are any.
fn stop_running(pid: i32, except: i32) -> bool {
    let (mut seen, mut stops) = (HashSet::from([except]), false);
    for _ in 0..ROUNDS {
        let is_new = |tid: &i32| !seen.contains(tid);
        let new: Vec<i32> = procfs::tasks(pid).into_iter().filter(is_new).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            let Some(status) = ThreadStatus::of(pid, tid) else { continue };
            // A thread that waits for a lock of the kernel stops after that.
            let runs = matches!(status.state(), Some('R' | 'D'));
            // libc blocks them for a moment when it makes a thread.
            if runs && status.blocked_signals().is_none_or(|blocked| blocked == ALL_SIGNALS) {
                continue;
            }
            seen.insert(tid);
            stops |= runs && ask_to_stop(tid).is_ok();
        }
    }
    stops
}

/// Lets one thread of a stopped process run as long as `wanted` returns true; the other threads
/// stay stopped. After that, or when the caller ends, the thread stops as well if its process is
/// still stopped. Blocks: call it in a thread of its own, whose end releases the tracee.
///
/// # Errors
/// [`Failure::Refused`] without the right to trace it; [`Failure::NotNow`] when the thread has
/// ended.
pub fn let_run(tid: i32, wanted: impl Fn() -> bool) -> Result<(), Failure> {
    ask_to_stop(tid)?;
    while wanted() {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 => std::thread::sleep(POLL_RUNNING),
            found if found == tid && libc::WIFSTOPPED(status) => {
                let by_event = status >> 16 == libc::PTRACE_EVENT_STOP;
                let signal = if by_event { 0 } else { libc::WSTOPSIG(status) };
                ptrace(libc::PTRACE_CONT, tid, 0, signal as usize)?;
            }
            _ => return Err(Failure::NotNow),
        }
    }
    Ok(())
}

/// Whether this process may trace processes of its user that are not its children: not where Yama
/// or a filter forbids it.
#[must_use]
pub fn is_allowed() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    let scope = scope.ok().and_then(|text| text.trim().parse::<u32>().ok()).unwrap_or(0);
    let by_yama = scope == 0 || scope <= 2 && capability::has(CAP_SYS_PTRACE);
    // No thread has this id: the error is ESRCH, unless ptrace itself is forbidden.
    let tried = ptrace(libc::PTRACE_CONT, i32::MAX, 0, 0);
    by_yama && tried.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

/// A stopped thread of a process. The stop lasts as long as the tracer thread.
struct Tracee {
    tid: i32,
    registers: Registers,
    mask: u64,
    /// It has made a call since it stopped.
    called: Cell<bool>,
}

type Registers = libc::user_regs_struct;

impl Tracee {
    /// A thread that was asked to stop.
    fn of(tid: i32, within: Duration) -> Result<Tracee, Failure> {
        let by_us = wait_for_stop(tid, Some(Instant::now() + within))?;
        if !by_us {
            // The whole process is stopped: it needs no more memory.
            return Err(Failure::NotNow);
        }
        let mut mask = 0u64;
        ptrace(libc::PTRACE_GETSIGMASK, tid, size_of::<u64>(), (&raw mut mask) as usize)?;
        Ok(Tracee { tid, registers: registers(tid)?, mask, called: Cell::new(false) })
    }

    fn make(self, pid: i32, work: &Work, held: impl Fn() -> bool) -> Result<u64, Failure> {
        // If this process is killed meanwhile, the thread must not go on with registers of a call.
        self.set_options(TRACED | libc::PTRACE_O_EXITKILL)?;
        let result = match work {
            Work::Call(call) => self.try_to(call),
            Work::Load(load) => self.load(pid, load),
        };
        let _ = self.set_options(TRACED);
        while result.is_ok() && held() {
            std::thread::sleep(POLL_HELD);
        }
        // Fails if the thread has ended.
        let _ = ptrace(libc::PTRACE_DETACH, self.tid, 0, 0);
        result
    }

    fn try_to(&self, call: &Call) -> Result<u64, Failure> {
        self.may_call()?;
        if word(self.tid, call.instruction - 8).ok() != Some(u64::from_ne_bytes(call.mark)) {
            return Err(Failure::Other);
        }
        let result = self.call(call.instruction, call.number, call.arguments);
        self.go_back()?;
        result
    }

    /// Fails where no call can be made by giving the thread other registers.
    fn may_call(&self) -> Result<(), Failure> {
        let may = self.registers.cs == USER_CODE && !self.in_sequence()? && !self.dispatches();
        may.then_some(()).ok_or(Failure::NotNow)
    }

    /// Makes one system call, with all signals blocked. [`Tracee::go_back`] must follow.
    fn call(&self, instruction: u64, number: u64, arguments: [u64; 6]) -> Result<u64, Failure> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let (rip, rax) = (instruction, number);
        // orig_rax = -1: not in a system call that the kernel would restart.
        let for_call = Registers { rip, rax, orig_rax: u64::MAX, rdi, rsi, rdx, r10, r8, r9, ..self.registers };
        self.set_mask(u64::MAX)?;
        self.set_registers(&for_call)?;
        // To the entry of the call, then to its exit.
        if !self.go_to_call(Some(Instant::now() + ENTERS_WITHIN))? {
            return Err(Failure::NotNow);
        }
        self.called.set(true);
        // Signals come only after the exit.
        self.go_to_call(None)?;
        match registers(self.tid)?.rax as i64 {
            // It was interrupted, and another attempt makes it.
            result if RESTARTS.contains(&result) => Err(Failure::NotNow),
            result @ -4095..=-1 => Err(Failure::Call(io::Error::from_raw_os_error(-result as i32))),
            result => Ok(result as u64),
        }
    }

    /// Gives the thread its own registers back.
    fn go_back(&self) -> io::Result<()> {
        if self.called.get() && self.call_restarts() {
            // The kernel checks for a restart only on the way out of another stop.
            ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
            ptrace(libc::PTRACE_CONT, self.tid, 0, 0)?;
            wait_for_stop(self.tid, None).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
        }
        self.set_registers(&self.registers)?;
        self.set_mask(self.mask)
    }

    /// Whether the stop has interrupted a system call that the kernel will restart.
    fn call_restarts(&self) -> bool {
        self.registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(self.registers.rax as i64))
    }

    fn set_options(&self, options: libc::c_int) -> io::Result<()> {
        ptrace(libc::PTRACE_SETOPTIONS, self.tid, 0, options as usize)
    }

    fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        ptrace(libc::PTRACE_SETREGS, self.tid, 0, std::ptr::from_ref(registers) as usize)
    }

    fn set_mask(&self, mask: u64) -> io::Result<()> {
        ptrace(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), (&raw const mask) as usize)
    }

    /// Lets the thread run to the next entry to or exit from a system call. All signals but SIGKILL
    /// and SIGSTOP are blocked. SIGSTOP stops the process, and this thread when it is released.
    /// False if the thread stops elsewhere after `until`.
    fn go_to_call(&self, until: Option<Instant>) -> Result<bool, Failure> {
        let (mut called_back, mut signal) = (false, 0);
        loop {
            ptrace(libc::PTRACE_SYSCALL, self.tid, 0, signal)?;
            signal = 0;
            let mut status = wait(self.tid, until.filter(|_| !called_back))?;
            if status.is_none() {
                called_back = true;
                ptrace(libc::PTRACE_INTERRUPT, self.tid, 0, 0)?;
                status = wait(self.tid, None)?;
            }
            let status = status.ok_or(Failure::NotNow)?;
            match (libc::WSTOPSIG(status), status >> 16) {
                (AT_CALL, _) => return Ok(true),
                (libc::SIGSTOP, 0) => signal = libc::SIGSTOP as usize,
                (_, libc::PTRACE_EVENT_STOP) if called_back => return Ok(false),
                _ => {}
            }
        }
    }

    /// Whether the thread is in a restartable sequence. The sequence must start over if the kernel
    /// moves the thread to another CPU, but with the registers of the call the kernel would not see
    /// that the thread is in one.
    fn in_sequence(&self) -> io::Result<bool> {
        // struct ptrace_rseq_configuration: address, size and signature, flags. The second word of
        // struct rseq is the address of the sequence, which starts with version and flags, first
        // instruction, length.
        let mut place = [0u64; 3];
        let got = ptrace(GET_RSEQ, self.tid, size_of_val(&place), place.as_mut_ptr() as usize);
        if got.is_err() || place[0] == 0 {
            return Ok(false);
        }
        let sequence = word(self.tid, place[0].wrapping_add(8))?;
        if sequence == 0 {
            return Ok(false);
        }
        let (first, length) = (word(self.tid, sequence.wrapping_add(8))?, word(self.tid, sequence.wrapping_add(16))?);
        Ok((first..=first.saturating_add(length)).contains(&self.registers.rip))
    }

    /// Whether system calls from elsewhere raise a signal instead (PR_SET_SYSCALL_USER_DISPATCH).
    fn dispatches(&self) -> bool {
        // struct ptrace_sud_config: mode, selector, offset, length.
        let mut config = [0u64; 4];
        let got = ptrace(GET_DISPATCH, self.tid, size_of_val(&config), config.as_mut_ptr() as usize);
        got.is_ok() && config[0] != 0
    }
}

/// Makes the calling thread the tracer of a thread, and requests its stop.
fn ask_to_stop(tid: i32) -> Result<(), Failure> {
    let seized = ptrace(libc::PTRACE_SEIZE, tid, 0, TRACED as usize);
    seized.map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => Failure::Refused,
        _ => Failure::NotNow,
    })?;
    Ok(ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0)?)
}

/// Waits until the thread stops. True: by PTRACE_INTERRUPT; false: together with its whole process.
/// Delivers signals that arrive before that. Fails at `until`; without it, waits as long as needed.
fn wait_for_stop(tid: i32, until: Option<Instant>) -> Result<bool, Failure> {
    loop {
        let status = wait(tid, until)?.ok_or(Failure::NotNow)?;
        if status >> 16 == libc::PTRACE_EVENT_STOP {
            return Ok(libc::WSTOPSIG(status) == libc::SIGTRAP);
        }
        ptrace(libc::PTRACE_CONT, tid, 0, libc::WSTOPSIG(status) as usize)?;
    }
}

/// The status of the next stop; `None` at `until`. Fails if the thread has ended.
fn wait(tid: i32, until: Option<Instant>) -> Result<Option<i32>, Failure> {
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for writing.
        match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 if until.is_some_and(|until| Instant::now() > until) => return Ok(None),
            0 => std::thread::sleep((begun.elapsed() / 8).clamp(POLL, POLL_MAX)),
            found if found == tid && libc::WIFSTOPPED(status) => return Ok(Some(status)),
            _ => return Err(Failure::NotNow),
        }
    }
}

fn registers(tid: i32) -> io::Result<Registers> {
    let mut registers = std::mem::MaybeUninit::<Registers>::zeroed();
    ptrace(libc::PTRACE_GETREGS, tid, 0, registers.as_mut_ptr() as usize)?;
    // SAFETY: plain numbers, which the kernel has filled in.
    Ok(unsafe { registers.assume_init() })
}

/// One word of the tracee's memory.
fn word(tid: i32, at: u64) -> io::Result<u64> {
    let mut word = 0u64;
    ptrace(libc::PTRACE_PEEKDATA, tid, at as usize, (&raw mut word) as usize)?;
    Ok(word)
}

/// The system call. For requests that read or write memory of this process, the callers pass the
/// address of a buffer that is large enough.
fn ptrace(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: see above; all callers are in this file.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request as usize, tid, address, data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl From<io::Error> for Failure {
    /// ptrace on a tracee fails when the thread has ended or is not stopped any more.
    fn from(_: io::Error) -> Failure {
        Failure::NotNow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memfit_wire::uffd::{Api, Range, Register, REGISTER_MODE_MISSING, UFFDIO_API, UFFDIO_REGISTER, UFFD_API};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

    const MARK: [u8; 8] = *b"callhere";

    fn call(pid: i32, wish: Call) -> Result<u64, Failure> {
        Asked::to_stop(&Standby::new("tracer", 1, 128 << 10), (pid, pid))?.call(wish, || false)
    }

    /// Address of a `syscall` instruction behind the mark. A forked child has it as well.
    fn instruction() -> u64 {
        let mut code = vec![0xcc; 4096];
        code[..8].copy_from_slice(&MARK);
        code[8..10].copy_from_slice(&[0x0f, 0x05]);
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: a new mapping, which is filled and stays.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len());
            at as u64 + 8
        }
    }

    fn of(instruction: u64, number: libc::c_long, arguments: [u64; 6]) -> Call {
        let own = std::process::id() as i32;
        let start_stack = procfs::start_stack(own).unwrap();
        Call { instruction, mark: MARK, number: number as u64, arguments, filters: filters(own), start_stack }
    }

    /// Number of filters of the first thread of a process.
    fn filters(pid: i32) -> u64 {
        ThreadStatus::of(pid, pid).and_then(|status| status.filters()).unwrap()
    }

    /// A child that runs `body`, which must not allocate, and exits with its result. It ends with
    /// the thread that made it.
    fn child(body: impl Fn() -> i32) -> i32 {
        // SAFETY: the child makes system calls only, and ends.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::_exit(body())
                }
                pid => pid,
            }
        }
    }

    /// Counters that parent and child share.
    fn counts<const N: usize>() -> &'static [AtomicU64; N] {
        // SAFETY: a new page that stays; atomics are valid for any bytes.
        unsafe {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
            let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            &*at.cast()
        }
    }

    fn status(pid: i32) -> i32 {
        let mut status = 0;
        // SAFETY: a child of ours.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        status
    }

    /// Repeats the call: a new child may not be stoppable at once.
    #[track_caller]
    fn insist(pid: i32, wish: &Call) -> Result<u64, Failure> {
        loop {
            match call(pid, *wish) {
                Err(Failure::NotNow) => std::thread::sleep(Duration::from_millis(1)),
                result => return result,
            }
            let state = procfs::task_state(pid, pid);
            assert!(!matches!(state, None | Some('Z' | 'X')), "{pid} has ended");
        }
    }

    #[test]
    #[should_panic(expected = "has ended")]
    fn nobody_insists_on_a_call_of_a_process_that_has_ended() {
        let pid = child(|| 0);
        status(pid);
        let _ = insist(pid, &of(instruction(), libc::SYS_pause, [0; 6]));
    }

    #[test]
    fn a_sleeper_makes_a_call_and_sleeps_on() {
        let (at, [ends]) = (instruction(), counts());
        let pid = child(|| loop {
            let (begun, time) = (Instant::now(), libc::timespec { tv_sec: 0, tv_nsec: 300_000_000 });
            // SAFETY: a live timespec.
            let failed = unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) } != 0;
            if failed || begun.elapsed() < Duration::from_millis(300) {
                return 1;
            }
            if ends.load(SeqCst) != 0 {
                return 0;
            }
        });
        assert_eq!(insist(pid, &of(at, libc::SYS_getppid, [0; 6])).unwrap(), u64::from(std::process::id()));
        assert_eq!(insist(pid, &of(at, libc::SYS_getpid, [0; 6])).unwrap(), pid as u64);
        ends.store(1, SeqCst);
        assert_eq!(status(pid), 0, "a sleep was cut short");
    }

    #[test]
    fn a_reader_waits_on_and_its_registers_are_its_own() {
        let at = instruction();
        let mut pipe = [0; 2];
        // SAFETY: two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let pid = child(|| {
            let mut byte = 0u8;
            // SAFETY: one byte.
            let got = unsafe { libc::read(pipe[0], (&raw mut byte).cast(), 1) };
            if got == 1 {
                i32::from(byte)
            } else {
                99
            }
        });
        let place = insist(pid, &of(at, libc::SYS_mmap, [0, 4096, 3, 0x22, u64::MAX, 0])).unwrap();
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(maps.contains(&format!("{place:x}-")), "{place:x} is not in\n{maps}");
        match insist(pid, &of(at, libc::SYS_close, [9999, 0, 0, 0, 0, 0])) {
            Err(Failure::Call(error)) => assert_eq!(error.raw_os_error(), Some(libc::EBADF)),
            other => panic!("{other:?}"),
        }
        // SAFETY: one byte.
        assert_eq!(unsafe { libc::write(pipe[1], [42u8].as_ptr().cast(), 1) }, 1);
        assert_eq!(libc::WEXITSTATUS(status(pid)), 42);
    }

    /// The child adds up all numbers while it is stopped again and again.
    #[test]
    fn who_computes_gets_the_same_result() {
        const NUMBERS: u64 = 60_000_000;
        let at = instruction();
        let mut pipe = [0; 2];
        // SAFETY: two descriptors.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_NONBLOCK) }, 0);
        let pid = child(|| {
            let sum = (0..NUMBERS).fold(0u64, |sum, n| std::hint::black_box(sum + n));
            // SAFETY: eight bytes; then it waits for its end.
            unsafe {
                libc::write(pipe[1], (&raw const sum).cast(), 8);
                libc::pause()
            }
        });
        let (mut made, mut sum) = (0, 0u64);
        // SAFETY: eight bytes.
        while unsafe { libc::read(pipe[0], (&raw mut sum).cast(), 8) } != 8 {
            made += u32::from(call(pid, of(at, libc::SYS_getpid, [0; 6])).is_ok_and(|result| result == pid as u64));
        }
        assert_eq!(sum, NUMBERS * (NUMBERS - 1) / 2, "after {made} calls");
        assert!(made > 0);
        // SAFETY: a signal to a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        status(pid);
    }

    #[test]
    fn a_stopped_one_runs_while_it_is_wanted() {
        let [count] = counts();
        let pid = child(|| loop {
            count.fetch_add(1, SeqCst);
        });
        let grows = || {
            let before = count.load(SeqCst);
            (0..200).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                count.load(SeqCst) != before
            })
        };
        // SAFETY: signals to a child of ours.
        let signal = |signal| unsafe { libc::kill(pid, signal) };
        signal(libc::SIGSTOP);
        // The signal may not have arrived yet.
        while grows() {}
        let wanted = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let tracer = scope.spawn(|| let_run(pid, || wanted.load(SeqCst)));
            while !grows() && !tracer.is_finished() {}
            wanted.store(false, SeqCst);
            tracer.join().unwrap().unwrap();
        });
        while grows() {}
        signal(libc::SIGCONT);
        while !grows() {}
        signal(libc::SIGKILL);
        status(pid);
    }

    /// A process of four threads that count, one of which blocks all signals.
    #[test]
    fn all_running_threads_are_stopped_while_one_is_held() {
        let counts: &[AtomicU64; 4] = counts();
        extern "C" fn count(count: *mut libc::c_void) -> *mut libc::c_void {
            // SAFETY: one of the shared counters.
            let count = unsafe { &*count.cast::<AtomicU64>() };
            loop {
                count.fetch_add(1, SeqCst);
            }
        }
        // glibc's functions leave two signals unblocked.
        extern "C" fn count_masked(of: *mut libc::c_void) -> *mut libc::c_void {
            let all = u64::MAX;
            // SAFETY: the mask is valid for reading.
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, 0, 8) };
            count(of)
        }
        let at = instruction();
        let pid = child(|| {
            for other in &counts[1..] {
                let body = if std::ptr::eq(other, &counts[3]) { count_masked } else { count };
                let mut thread = 0;
                // SAFETY: a thread that counts there.
                unsafe { libc::pthread_create(&raw mut thread, std::ptr::null(), body, other.as_ptr().cast()) };
            }
            count(counts[0].as_ptr().cast());
            0
        });
        let now = || counts.each_ref().map(|count| count.load(SeqCst));
        let all_go_on = || {
            let before = now();
            while now().iter().zip(before).any(|(now, before)| *now == before) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        all_go_on();
        let tracers = Standby::new("tracer", 1, 128 << 10);
        let held = std::sync::Arc::new(AtomicBool::new(true));
        let hold = std::sync::Arc::clone(&held);
        let (arrived, arrival) = channel();
        let hold = move || {
            let _ = arrived.send(());
            hold.load(SeqCst)
        };
        std::thread::scope(|scope| {
            let asked = Asked::to_stop(&tracers, (pid, pid)).unwrap();
            let tracer = scope.spawn(|| asked.call(of(at, libc::SYS_getpid, [0; 6]), hold));
            arrival.recv().unwrap();
            // The other threads were asked to stop, and do so when they next have a CPU.
            let stopped = |tid: &&i32| procfs::task_state(pid, **tid) == Some('t');
            while procfs::tasks(pid).iter().filter(stopped).count() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = now();
            while now()[3] == before[3] {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(now()[..3], before[..3]);
            held.store(false, SeqCst);
            assert_eq!(tracer.join().unwrap().unwrap(), pid as u64);
        });
        all_go_on();
        // SAFETY: a signal to a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        status(pid);
    }

    #[test]
    fn who_was_asked_to_stop_goes_on_when_it_is_released() {
        let (at, tracers, [count]) = (instruction(), Standby::new("tracer", 1, 128 << 10), counts());
        let pid = child(|| loop {
            count.fetch_add(1, SeqCst);
        });
        let stopped = || {
            let asked = Asked::to_stop(&tracers, (pid, pid)).unwrap();
            while procfs::task_state(pid, pid) != Some('t') {}
            (asked, count.load(SeqCst))
        };
        for _ in 0..20 {
            let (asked, before) = stopped();
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(count.load(SeqCst), before);
            asked.release();
            while count.load(SeqCst) == before {}
        }
        let (asked, before) = stopped();
        assert_eq!(asked.call(of(at, libc::SYS_getpid, [0; 6]), || false).unwrap(), pid as u64);
        while count.load(SeqCst) == before {}
        // SAFETY: a signal to a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        status(pid);
    }

    /// Kills the process for getppid.
    fn forbid_getppid() -> i32 {
        let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let forbidden = libc::SYS_getppid as u32;
        let mut steps = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, forbidden),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS),
            step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
        // SAFETY: a valid program of four steps.
        unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) as i32
        }
    }

    #[test]
    fn who_has_another_filter_or_another_start_than_expected_makes_no_call() {
        let (at, [ready]) = (instruction(), counts());
        let known = of(at, libc::SYS_getppid, [0; 6]);
        let pid = child(|| {
            ready.store(1 + u64::from(forbid_getppid() != 0), SeqCst);
            loop {
                std::hint::spin_loop();
            }
        });
        while ready.load(SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(ready.load(SeqCst), 1, "it has no filter");
        assert!(matches!(call(pid, known), Err(Failure::NotNow)));
        let known = Call { number: libc::SYS_getpid as u64, filters: filters(pid), ..known };
        assert_eq!(insist(pid, &known).unwrap(), pid as u64);
        for _ in 0..3 {
            assert!(matches!(call(pid, Call { start_stack: 16, ..known }), Err(Failure::NotNow)));
        }
        // SAFETY: a signal to a child of ours.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        assert_eq!(libc::WTERMSIG(status(pid)), libc::SIGKILL);
    }

    /// Its instruction is the first of a page that never comes.
    #[test]
    fn who_does_not_get_to_the_call_goes_on_as_it_was() {
        // UFFD_USER_MODE_ONLY: every user may.
        const USER_MODE_ONLY: i32 = 1;
        let (at, [ready]) = (instruction(), counts());
        let page = memfit_wire::PAGE_BYTES as u64;
        let next = at - 8 + page;
        let pid = child(|| {
            // SAFETY: the pages are this process's, and nothing else uses them.
            unsafe {
                let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC, libc::MAP_PRIVATE);
                let flags = flags | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let pages = libc::mmap((at - 8) as *mut _, 2 * page as usize, access, flags, -1, 0);
                if pages == libc::MAP_FAILED {
                    return 1;
                }
                std::ptr::copy_nonoverlapping(MARK.as_ptr(), (next - 8) as *mut u8, MARK.len());
                let uffd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) as i32;
                let mut api = Api { api: UFFD_API, features: 0, ioctls: 0 };
                let range = Range { start: next, len: page };
                let mut register = Register { range, mode: REGISTER_MODE_MISSING, ioctls: 0 };
                let failed = libc::ioctl(uffd, UFFDIO_API as _, &raw mut api) != 0
                    || libc::ioctl(uffd, UFFDIO_REGISTER as _, &raw mut register) != 0;
                ready.store(1 + u64::from(failed), SeqCst);
                while ready.load(SeqCst) != 3 {}
                7
            }
        });
        while ready.load(SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        if ready.load(SeqCst) == 2 {
            let test = "who_does_not_get_to_the_call_goes_on_as_it_was";
            crate::skip::skip(test, "no userfaultfd here");
        } else {
            let mut failed = call(pid, of(next, libc::SYS_getpid, [0; 6]));
            for _ in 0..2 {
                assert!(matches!(failed, Err(Failure::NotNow)), "{failed:?}");
                failed = call(pid, of(next, libc::SYS_getpid, [0; 6]));
            }
        }
        ready.store(3, SeqCst);
        assert_eq!(libc::WEXITSTATUS(status(pid)), 7);
    }

    #[test]
    fn a_call_that_is_interrupted_is_made_later() {
        let (at, [count]) = (instruction(), counts());
        let pid = child(|| loop {
            count.fetch_add(1, SeqCst);
        });
        let is_in_call = || procfs::system_call(pid) == Some(libc::SYS_pause);
        let try_it = || {
            std::thread::scope(|scope| {
                let caller = scope.spawn(|| {
                    insist(pid, &of(at, libc::SYS_getpid, [0; 6])).map(|_| call(pid, of(at, libc::SYS_pause, [0; 6])))
                });
                let mut entered = false;
                while !entered && !caller.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                    entered = is_in_call();
                }
                // SAFETY: a signal to a child of ours.
                entered.then(|| unsafe { libc::kill(pid, libc::SIGSTOP) });
                let interrupted = caller.join().unwrap().unwrap();
                entered.then_some(interrupted)
            })
        };
        // On a busy machine the thread may not stop in time.
        let interrupted = (0..50).find_map(|_| try_it()).expect("the call is made at last");
        assert!(matches!(interrupted, Err(Failure::NotNow)), "{interrupted:?}");
        // SAFETY: signals to a child of ours.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        assert_eq!(insist(pid, &of(at, libc::SYS_getpid, [0; 6])).unwrap(), pid as u64);
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        status(pid);
    }

    #[test]
    fn who_is_in_a_call_ends_with_the_tracer() {
        let (at, [count]) = (instruction(), counts());
        let pid = child(|| {
            // SAFETY: anybody may trace it.
            unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) };
            loop {
                count.fetch_add(1, SeqCst);
            }
        });
        while count.load(SeqCst) == 0 {}
        let pause = of(at, libc::SYS_pause, [0; 6]);
        let tracer = child(|| {
            let tracee = ask_to_stop(pid).and_then(|()| Tracee::of(pid, Duration::from_secs(60)));
            tracee.and_then(|tracee| tracee.make(pid, &Work::Call(pause), || false)).is_err().into()
        });
        while procfs::system_call(pid) != Some(libc::SYS_pause) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: a signal to a child of ours.
        unsafe { libc::kill(tracer, libc::SIGKILL) };
        assert_eq!(libc::WTERMSIG(status(tracer)), libc::SIGKILL);
        assert_eq!(libc::WTERMSIG(status(pid)), libc::SIGKILL);
    }

    #[test]
    fn who_is_another_program_or_stopped_or_ours_is_left() {
        let at = instruction();
        let pid = child(|| loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        });
        let wrong = Call { mark: *b"nowhere!", ..of(at, libc::SYS_getpid, [0; 6]) };
        assert!(matches!(insist(pid, &wrong), Err(Failure::Other)));
        assert!(matches!(insist(pid, &of(64, libc::SYS_getpid, [0; 6])), Err(Failure::Other)));
        // SAFETY: signals to a child of ours.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        let mut stopped = 0;
        // SAFETY: as in `status`.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut stopped, libc::WUNTRACED) }, pid);
        // Whether or not the call was made, the process must be stopped afterwards.
        let _ = call(pid, of(at, libc::SYS_getpid, [0; 6]));
        while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T") {
            std::thread::sleep(Duration::from_millis(1));
        }
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        assert_eq!(insist(pid, &of(at, libc::SYS_getpid, [0; 6])).unwrap(), pid as u64);
        // SAFETY: as above.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        status(pid);
        assert!(matches!(call(pid, of(at, libc::SYS_getpid, [0; 6])), Err(Failure::NotNow)));
        // A process cannot trace its own threads.
        assert!(matches!(call(std::process::id() as i32, wrong), Err(Failure::Refused)));
    }
}
