//! A worker process: threads, the loop of operations, requests of the supervisor, the end.

use crate::arena::Arena;
use crate::content::{fill_base, kind_for, PageBuf, Tag};
use crate::ctx::{Ctx, Run};
use crate::multi;
use crate::ops::{index_of, OPS};
use crate::ops_thread;
use crate::opts::{Corrupt, Opts};
use crate::report::{self, Who, EXIT_OK};
use crate::rng::mix2;
use crate::status::Status;
use crate::sys;
use crate::watchdog::Watchdog;
use crate::world::World;
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};
use std::time::Duration;

/// Exit status of a worker that the supervisor told to exit.
pub const EXIT_AGAIN: i32 = 42;

/// Requests of the supervisor: exec, exit. They are blocked from before the start of a worker, and
/// from before its exec, until the handler is installed: without a handler they would end the
/// worker.
pub const REQUESTS: [i32; 2] = [libc::SIGUSR1, libc::SIGUSR2];

static REQUEST: AtomicI32 = AtomicI32::new(0);

extern "C" fn request(signal: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    REQUEST.store(signal, SeqCst);
}

static mut CRASH_WHO: Option<Who> = None;
/// Not on the alternate stack, which is too small.
static mut CRASH_OUT: report::RawOut = report::RawOut::new();
static CRASHED: AtomicBool = AtomicBool::new(false);

/// Prints where the crash happened, then lets the signal end the process as without a handler (core
/// file, status).
extern "C" fn crash(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes valid siginfo to a SA_SIGINFO handler.
    let (addr, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // SAFETY: written once before any thread or handler exists.
    let who = unsafe { *std::ptr::addr_of!(CRASH_WHO) };
    if CRASHED.swap(true, SeqCst) {
        // Another thread is about to end the process.
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    // SAFETY: only the first crash gets here.
    let out = unsafe { &mut *std::ptr::addr_of_mut!(CRASH_OUT) };
    let tid = sys::gettid();
    let _ = writeln!(out, "torture: CRASH: signal {signal} code {code} at {addr:#x} in thread {tid}");
    if let Some(who) = who {
        let process = &who.status.processes[who.process];
        let _ = writeln!(out, "  seed {} process {} life {}", who.seed, who.process, who.life);
        for (i, thread) in process.threads.iter().enumerate() {
            let current = thread.current.load(SeqCst) as usize;
            if let Some(op) = OPS.get(current.wrapping_sub(1)) {
                let _ = writeln!(out, "  thread {i}: op #{} ({})", thread.ops.load(SeqCst), op.name);
            }
        }
    }
    out.flush(2);
    // SAFETY: restores the default action; the instruction is then repeated and ends the process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    if code <= 0 {
        // Another process sent the signal: no instruction is repeated.
        // SAFETY: sends a signal to ourselves.
        unsafe { libc::raise(signal) };
    }
}

/// Weighted choice.
fn choose(ctx: &mut Ctx, total: usize) -> usize {
    let mut at = ctx.rng.below(total);
    for (i, &weight) in ctx.world.opts.weights.iter().enumerate() {
        if at < weight as usize {
            return i;
        }
        at -= weight as usize;
    }
    0
}

/// Corrupts something, as the option says, every 500 operations until it is noticed.
fn corrupt(ctx: &mut Ctx, what: Corrupt) {
    let run = ctx.pick_run(1);
    let page = ctx.span(run);
    let usable = ctx.regions[run.r].pages[run.first].prot.writable();
    match what {
        Corrupt::Page if usable => page.store(100, page.load(100) ^ 1 << 30),
        Corrupt::Lost if usable => page.copy_in(0, &PageBuf::zeroed()),
        Corrupt::Stale if usable => stale(ctx, run),
        Corrupt::Counter => ctx.world.counters.corrupt(&mut ctx.rng),
        Corrupt::Race => ctx.world.race.corrupt(),
        Corrupt::Heap => ctx.heap.corrupt(),
        Corrupt::Shared => ctx.world.shared.iter().for_each(|s| drop(s.read().map(|s| s.corrupt()))),
        _ => {}
    }
}

fn stale(ctx: &mut Ctx, run: Run) {
    let region = &ctx.regions[run.r];
    let tag = region.tag(run.first);
    let Some(old) = region.history.iter().map(|e| e.version).find(|&v| v < tag.version) else { return };
    let tag = Tag { version: old, ..tag };
    let mut buf = PageBuf::zeroed();
    fill_base(&mut buf, tag, kind_for(tag));
    ctx.span(run).copy_in(0, &buf);
}

fn thread_main(world: &World, thread: usize) {
    let pages = world.plan.arena_pages;
    let mut ctx = Ctx::new(world, thread, Arena::new(world.arena.sub(thread * pages, pages)));
    ctx.prefill();
    let total = world.opts.weights.iter().map(|&w| w as usize).sum();
    let before = ctx.stats.ops.load(SeqCst);
    let deadline = world.who.status.deadline_ns.load(SeqCst);
    let more = |op_no: u64| match world.opts.ops {
        Some(n) => before + op_no < n,
        None => sys::now_ns() < deadline,
    };
    let mut op_no = 0;
    while more(op_no) {
        ctx.begin(op_no);
        if let Some(what) = world.opts.corrupt {
            if op_no % 500 == 499 && thread == 0 {
                corrupt(&mut ctx, what);
            }
        }
        let op = choose(&mut ctx, total);
        ctx.perform(op);
        op_no += 1;
    }
    ctx.who.op = OPS.len();
    if world.opts.verify_all || world.opts.corrupt.is_some() {
        ctx.begin(op_no);
        ctx.verify_everything("at the end");
    }
    world.counters.add(thread, &ctx.tally);
    ctx.stats.done.store(1, SeqCst);
}

/// Carries out a request that a signal of the supervisor has set.
fn obey() {
    match REQUEST.load(SeqCst) {
        libc::SIGUSR1 => {
            sys::hold_signals(&REQUESTS, true);
            // The other threads go on until the kernel ends them.
            let e = std::process::Command::new(multi::own_path()).args(std::env::args_os().skip(1)).exec();
            eprintln!("torture: exec of itself failed: {e}");
            sys::exit_now(report::EXIT_BROKEN)
        }
        libc::SIGUSR2 => std::process::exit(EXIT_AGAIN),
        _ => {}
    }
}

fn prepare(who: Who) {
    // SAFETY: no other thread, no handler yet.
    unsafe { CRASH_WHO = Some(who) };
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL] {
        sys::on_signal(signal, libc::SA_ONSTACK, crash);
    }
    for signal in REQUESTS {
        sys::on_signal(signal, libc::SA_RESTART, request);
    }
    sys::hold_signals(&REQUESTS, false);
    ops_thread::install_signals();
    if mix2(who.seed, who.process as u64) % 2 == 0 {
        // One malloc arena: the blocks of all threads then come from the brk heap.
        // SAFETY: before any other thread exists.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Runs the threads of a process to the end; returns its exit status.
pub fn run(opts: Opts, process: usize, status: &'static Status, json: bool) -> i32 {
    let mine = &status.processes[process];
    let life = mine.lives.fetch_add(1, SeqCst);
    mine.threads.iter().for_each(|t| t.done.store(0, SeqCst));
    let (seed, abort) = (opts.seed, opts.abort);
    let op = index_of("none");
    let who = Who { seed, process, life, thread: 0, op_no: 0, op, abort, forked: false, json, status };
    prepare(who);
    let world = World::new(opts, who);
    let mut watchdog = Watchdog::new(world.opts.stall, world.opts.threads);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..world.opts.threads)
            .map(|i| {
                let world = &world;
                let builder = std::thread::Builder::new().stack_size(8 << 20).name(format!("torture-{i}"));
                builder
                    .spawn_scoped(scope, move || thread_main(world, i))
                    .unwrap_or_else(|e| report::broken(&who, "thread creation", &e))
            })
            .collect();
        while threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            obey();
            if json {
                watchdog.check(mine, std::process::id(), &who);
            }
        }
    });
    let pages = world.verify_all();
    mine.threads[0].add_verified(pages as u64);
    EXIT_OK
}
