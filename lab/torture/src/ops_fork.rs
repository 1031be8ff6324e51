//! Forks. The child checks what it inherits. Parent and child change their memory and mappings at
//! the same time, and neither may see the changes of the other.

use crate::ctx::{Ctx, Need, Run};
use crate::report::{self, EXIT_OK};
use crate::sys::{self, Errno};
use crate::{ops_advise, ops_map, ops_mem};
use std::sync::atomic::Ordering::Relaxed;

/// Most pages that a child compares.
const CHECK: usize = 2048;

/// Operations of parent and child beside each other, each as often as it is in the list. They use
/// no lock and no descriptor that the two share.
const BOTH: [fn(&mut Ctx); 16] = [
    write_some,
    write_some,
    write_some,
    ops_mem::read,
    ops_mem::read,
    ops_map::mmap,
    ops_map::munmap,
    ops_map::mremap,
    ops_map::mremap,
    ops_advise::dontneed,
    ops_advise::dontneed,
    ops_advise::free,
    ops_advise::protect,
    ops_advise::advise,
    leave_out,
    wipe,
];

/// What madvise said about a run before a fork.
#[derive(Clone, Copy)]
enum Advice {
    None,
    /// MADV_WIPEONFORK: zeros in the child.
    Wiped(Run),
    /// MADV_DONTFORK: not mapped in the child.
    LeftOut(Run),
}

fn check_some(ctx: &mut Ctx, how: &str) {
    let mut left = CHECK.min(ctx.mapped);
    for _ in 0..64 {
        let run = ctx.pick_run(left.clamp(1, 256));
        ctx.make(run, Need::Read);
        ctx.verify(run, how);
        left = left.saturating_sub(run.count);
    }
}

fn write_some(ctx: &mut Ctx) {
    let run = ctx.pick_run(32);
    ctx.make(run, Need::Write);
    if ctx.rng.one_in(2) {
        ctx.write(run);
    } else {
        ctx.patch(Run { count: 1, ..run });
    }
}

/// MADV_DONTFORK, which must not concern a child that exists.
fn leave_out(ctx: &mut Ctx) {
    let run = ctx.pick_run(256);
    ctx.note("dontfork", run);
    ctx.must("madvise DONTFORK", ctx.span(run).advise(libc::MADV_DONTFORK));
}

/// MADV_WIPEONFORK, which must not concern a child that exists.
fn wipe(ctx: &mut Ctx) {
    let run = ctx.pick_run(256);
    ctx.note("wipe on fork", run);
    ctx.must("madvise WIPEONFORK", ctx.span(run).advise(libc::MADV_WIPEONFORK));
}

/// Takes all advice about forks back.
fn inherit_all(ctx: &Ctx) {
    for r in 0..ctx.regions.len() {
        let span = ctx.span(ctx.whole(r));
        ctx.must("madvise DOFORK", span.advise(libc::MADV_DOFORK));
        ctx.must("madvise KEEPONFORK", span.advise(libc::MADV_KEEPONFORK));
    }
}

/// Changes memory and mappings, `rounds` times.
fn change(ctx: &mut Ctx, rounds: usize) {
    for _ in 0..rounds {
        let pick = ctx.rng.below(BOTH.len());
        BOTH[pick](ctx);
    }
}

/// Gives a new child's model what the advice of its parent left to it.
fn inherit(ctx: &mut Ctx, advice: Advice) {
    match advice {
        Advice::None => {}
        Advice::Wiped(run) => {
            let version = ctx.version;
            ctx.regions[run.r].pages[run.range()].iter_mut().for_each(|p| p.drop_bytes(version));
            ctx.make(run, Need::Read);
            ctx.verify(run, "wiped on fork");
        }
        Advice::LeftOut(run) => {
            let span = ctx.span(run);
            if (0..run.count).any(|i| span.sub(i, 1).is_mapped()) {
                report::broken(&ctx.who, "a child has memory with MADV_DONTFORK", &format_args!("{span:x?}"));
            }
            if ctx.regions[run.r].in_arena {
                ctx.arena.fill_hole(span);
            }
            ops_map::cut_out(ctx, run);
        }
    }
}

/// Runs in the child, and never returns. (Its allocations are safe: the C library readies its heap
/// for children.)
fn child(ctx: &mut Ctx, advice: Advice, seed: u64, parent: i32) -> ! {
    sys::die_with_parent(parent);
    report::forget_failure();
    ctx.who.forked = true;
    ctx.rng = crate::rng::Rng::new(seed);
    // Half of the children change their mappings before they look at anything.
    if ctx.rng.one_in(2) {
        inherit(ctx, advice);
        check_some(ctx, "inherited");
    } else {
        inherit(ctx, advice);
        change(ctx, 2);
    }
    ctx.heap.verify_all(&ctx.who);
    let rounds = ctx.rng.below(24);
    change(ctx, rounds);
    if ctx.rng.one_in(4) {
        // A grandchild.
        let seed = ctx.rng.next();
        inherit_all(ctx);
        if let Err(e) = run_child(ctx, Advice::None, seed, |ctx| change(ctx, 4)) {
            report::broken(&ctx.who, "fork in a child", &e);
        }
    }
    check_some(ctx, "in the child after changes");
    sys::exit_now(EXIT_OK)
}

/// Forks, runs `meanwhile`, waits for the child and checks its exit status.
fn run_child(ctx: &mut Ctx, advice: Advice, seed: u64, meanwhile: impl FnOnce(&mut Ctx)) -> Result<(), Errno> {
    // SAFETY: plain query.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child uses only memory that it inherits, and then exits.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(sys::errno()),
        0 => child(ctx, advice, seed, parent),
        _ => {}
    }
    meanwhile(ctx);
    let mut status = 0;
    // SAFETY: waits for our own child.
    while unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
        if sys::errno() != Errno(libc::EINTR) {
            return Err(sys::errno());
        }
    }
    if status != 0 {
        report::child_failed(&ctx.who, pid, status, &ctx.recent);
    }
    Ok(())
}

/// Makes one child, sometimes with a run that MADV_WIPEONFORK clears or MADV_DONTFORK leaves out in
/// it.
pub fn fork(ctx: &mut Ctx) {
    let seed = ctx.rng.next();
    let run = ctx.pick_run(512);
    let advice = match ctx.rng.below(8) {
        0 | 1 => Advice::Wiped(run),
        2 | 3 => Advice::LeftOut(run),
        _ => Advice::None,
    };
    match advice {
        Advice::None => {}
        Advice::Wiped(run) => {
            ctx.note("wipe on fork", run);
            ctx.must("madvise WIPEONFORK", ctx.span(run).advise(libc::MADV_WIPEONFORK));
        }
        Advice::LeftOut(run) => {
            ctx.note("dontfork", run);
            ctx.must("madvise DONTFORK", ctx.span(run).advise(libc::MADV_DONTFORK));
        }
    }
    let rounds = ctx.rng.below(16);
    let result = run_child(ctx, advice, seed, |ctx| change(ctx, rounds));
    ctx.who.status.processes[ctx.who.process].children.fetch_add(1, Relaxed);
    if let Err(e) = result {
        ctx.broken("fork", &e);
    }
    inherit_all(ctx);
    let run = ctx.pick_run(256);
    ctx.make(run, Need::Read);
    ctx.verify(run, "after a child");
}

/// Starts this program by posix_spawn, with an option that makes it exit at once.
pub fn spawn(ctx: &mut Ctx) {
    ctx.who.status.processes[ctx.who.process].children.fetch_add(1, Relaxed);
    match std::process::Command::new(crate::multi::own_path()).arg("--noop").status() {
        Ok(status) if status.success() => {}
        Ok(status) => ctx.broken("a spawned program failed", &status),
        Err(e) => ctx.broken("spawn", &e),
    }
}
