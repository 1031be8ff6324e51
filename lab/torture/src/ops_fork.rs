//! Forks. The child checks what it inherits, both sides write, and the parent's memory must not
//! change.

use crate::ctx::{Ctx, Need, Run};
use crate::report::{self, EXIT_OK};
use crate::sys::{self, Errno};
use std::sync::atomic::Ordering::Relaxed;

/// Most pages that a child compares.
const CHECK: usize = 2048;

fn check_some(ctx: &mut Ctx, how: &str) {
    let mut left = CHECK.min(ctx.mapped);
    for _ in 0..64 {
        let run = ctx.pick_run(left.clamp(1, 256));
        ctx.make(run, Need::Read);
        ctx.verify(run, how);
        left = left.saturating_sub(run.count);
    }
}

fn write_some(ctx: &mut Ctx, rounds: usize) {
    for _ in 0..rounds {
        let run = ctx.pick_run(32);
        ctx.make(run, Need::Write);
        if ctx.rng.one_in(2) {
            ctx.write(run);
        } else {
            ctx.patch(Run { count: 1, ..run });
        }
    }
}

/// Runs in the child. It must not use the heap, because another thread may have held its lock. (The
/// model changes in place.)
fn child(ctx: &mut Ctx, wiped: Option<usize>, seed: u64, parent: i32) -> ! {
    sys::die_with_parent(parent);
    report::forget_failure();
    ctx.who.forked = true;
    ctx.rng = crate::rng::Rng::new(seed);
    if let Some(r) = wiped {
        ctx.must("madvise KEEPONFORK", ctx.span(ctx.whole(r)).advise(libc::MADV_KEEPONFORK));
        let version = ctx.version;
        ctx.regions[r].pages.iter_mut().for_each(|p| p.drop_bytes(version));
        ctx.spot_check(r, "wiped on fork");
    }
    check_some(ctx, "inherited");
    ctx.heap.verify_all(&ctx.who);
    write_some(ctx, 8);
    let run = ctx.pick_run(64);
    ctx.must("madvise DONTNEED", ctx.span(run).advise(libc::MADV_DONTNEED));
    ctx.note("dontneed", run);
    let version = ctx.version;
    ctx.regions[run.r].pages[run.range()].iter_mut().for_each(|p| p.drop_bytes(version));
    if ctx.rng.one_in(4) {
        // A grandchild.
        let seed = ctx.rng.next();
        if let Err(e) = run_child(ctx, None, seed, |ctx| write_some(ctx, 4)) {
            report::broken(&ctx.who, "fork in a child", &e);
        }
    }
    check_some(ctx, "in the child after writing");
    sys::exit_now(EXIT_OK)
}

/// Forks, runs `meanwhile`, waits for the child and checks its exit status.
fn run_child(ctx: &mut Ctx, wiped: Option<usize>, seed: u64, meanwhile: impl FnOnce(&mut Ctx)) -> Result<(), Errno> {
    // SAFETY: plain query.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child uses only memory that it inherits and async-signal-safe calls, and then
    // exits.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => return Err(sys::errno()),
        0 => child(ctx, wiped, seed, parent),
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
        // The child has reported what was wrong (unless it was killed).
        report::wrong_value(&ctx.who, "wait status of a forked child", 0, 0, status as u64);
    }
    Ok(())
}

/// Makes one child, sometimes with a region that MADV_WIPEONFORK must clear in it.
pub fn fork(ctx: &mut Ctx) {
    let seed = ctx.rng.next();
    // Picked in any case: a region must exist before the fork, because the child cannot make one.
    let r = ctx.pick_region();
    let wiped = ctx.rng.one_in(4).then_some(r);
    if let Some(r) = wiped {
        ctx.note("wipe on fork", ctx.whole(r));
        ctx.must("madvise WIPEONFORK", ctx.span(ctx.whole(r)).advise(libc::MADV_WIPEONFORK));
    }
    let rounds = ctx.rng.below(16);
    let result = run_child(ctx, wiped, seed, |ctx| write_some(ctx, rounds));
    ctx.who.status.processes[ctx.who.process].children.fetch_add(1, Relaxed);
    if let Err(e) = result {
        ctx.broken("fork", &e);
    }
    if let Some(r) = wiped {
        ctx.must("madvise KEEPONFORK", ctx.span(ctx.whole(r)).advise(libc::MADV_KEEPONFORK));
        ctx.spot_check(r, "wiped in a child only");
    }
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
