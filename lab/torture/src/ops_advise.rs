//! madvise and mprotect.

use crate::ctx::{Ctx, Need, Run};
use crate::model::Prot;
use crate::ops_io::expect_efault;

/// Applies MADV_DONTNEED on a run to the model.
fn dropped(ctx: &mut Ctx, run: Run) {
    ctx.note("dontneed", run);
    let version = ctx.version;
    ctx.regions[run.r].pages[run.range()].iter_mut().for_each(|p| p.drop_bytes(version));
}

/// MADV_DONTNEED on a run. If the run ends with its region and another region follows, the same
/// call drops a part of that, too.
pub fn dontneed(ctx: &mut Ctx) {
    let run = ctx.pick_run(256);
    let mut runs = vec![run];
    let end = ctx.regions[run.r].end();
    // Only in the arena: elsewhere, which mappings are adjacent differs between executions.
    if ctx.regions[run.r].in_arena && run.range().end == ctx.regions[run.r].len() {
        if let Some(r) = ctx.regions.iter().position(|other| other.addr == end && other.in_arena) {
            runs.push(Run { r, first: 0, count: 1 + ctx.regions[r].len() / 2 });
        }
    }
    let pages = runs.iter().map(|r| r.count).sum();
    let span = crate::sys::Span::owned(ctx.span(run).addr(), pages);
    ctx.must("madvise DONTNEED", span.advise(libc::MADV_DONTNEED));
    for run in runs {
        dropped(ctx, run);
        let one = Run { first: run.first + ctx.rng.below(run.count), count: 1, ..run };
        ctx.make(one, Need::Read);
        ctx.verify(one, "after MADV_DONTNEED");
    }
}

/// MADV_FREE.
pub fn free(ctx: &mut Ctx) {
    let run = ctx.pick_run(256);
    ctx.note("free", run);
    ctx.must("madvise FREE", ctx.span(run).advise(libc::MADV_FREE));
    ctx.regions[run.r].pages[run.range()].iter_mut().for_each(|p| p.lazy = true);
    if ctx.rng.one_in(2) {
        ctx.make(run, Need::Read);
        ctx.verify(run, "after MADV_FREE");
    }
}

/// From `linux/mman.h`; the libc crate does not have them.
const COLLAPSE: i32 = 25;
const GUARD_INSTALL: i32 = 102;
const GUARD_REMOVE: i32 = 103;

const HARMLESS: [(&str, i32); 13] = [
    ("populate write", libc::MADV_POPULATE_WRITE),
    ("populate read", libc::MADV_POPULATE_READ),
    ("willneed", libc::MADV_WILLNEED),
    ("cold", libc::MADV_COLD),
    ("pageout", libc::MADV_PAGEOUT),
    ("sequential", libc::MADV_SEQUENTIAL),
    ("random", libc::MADV_RANDOM),
    ("normal", libc::MADV_NORMAL),
    ("mergeable", libc::MADV_MERGEABLE),
    ("unmergeable", libc::MADV_UNMERGEABLE),
    ("not dumped", libc::MADV_DONTDUMP),
    ("dumped", libc::MADV_DODUMP),
    ("collapse", COLLAPSE),
];
/// Advice that would split mappings is for whole regions only, to limit their number.
const OF_MAPPINGS: [i32; 7] = [
    libc::MADV_SEQUENTIAL,
    libc::MADV_RANDOM,
    libc::MADV_NORMAL,
    libc::MADV_MERGEABLE,
    libc::MADV_UNMERGEABLE,
    libc::MADV_DONTDUMP,
    libc::MADV_DODUMP,
];

/// Advice that changes no byte.
pub fn advise(ctx: &mut Ctx) {
    let mut run = ctx.pick_run(128);
    ctx.make(run, Need::Write);
    let pick = ctx.rng.below(HARMLESS.len() + 4);
    let result = match HARMLESS.get(pick) {
        Some(&(name, advice)) => {
            if OF_MAPPINGS.contains(&advice) {
                run = ctx.whole(run.r);
            }
            ctx.note(name, run);
            ctx.span(run).advise(advice)
        }
        None if pick == HARMLESS.len() => {
            run.count = run.count.min(16);
            ctx.note("mlock", run);
            ctx.span(run).lock_and_unlock()
        }
        None if pick == HARMLESS.len() + 1 => {
            run = ctx.whole(run.r);
            let name = [None, Some(c"torture"), Some(c"other")][ctx.rng.below(3)];
            ctx.note("name", run);
            ctx.span(run).name(name)
        }
        None => {
            let huge = if pick % 2 == 0 { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
            let whole = ctx.whole(run.r);
            ctx.note("hugepage advice", whole);
            ctx.span(whole).advise(huge)
        }
    };
    // The kernel is old, has no transparent huge pages, or limits locked memory.
    if result.is_err() {
        ctx.refused();
    }
    let one = Run { first: run.first + ctx.rng.below(run.count), count: 1, ..run };
    ctx.make(one, Need::Read);
    ctx.verify(one, "after advice");
}

/// Guard pages (Linux 6.13) instead of a run, which must then not be accessible. Once they are
/// removed, it has zeros.
pub fn guard(ctx: &mut Ctx) {
    let run = ctx.pick_run(64);
    match ctx.span(run).advise(GUARD_INSTALL) {
        Err(crate::sys::Errno(libc::EINVAL)) => return ctx.refused(),
        result => ctx.must("madvise GUARD_INSTALL", result),
    }
    dropped(ctx, run);
    let one = Run { first: run.first + ctx.rng.below(run.count), count: 1, ..run };
    expect_efault(ctx, one, Prot::None);
    if ctx.rng.one_in(2) {
        // Drops no guard.
        ctx.must("madvise DONTNEED", ctx.span(run).advise(libc::MADV_DONTNEED));
        expect_efault(ctx, one, Prot::None);
    }
    ctx.must("madvise GUARD_REMOVE", ctx.span(run).advise(GUARD_REMOVE));
    ctx.note("guarded", run);
    ctx.make(run, Need::Read);
    ctx.verify(run, "after guard pages");
}

/// Changes protection. Sometimes checks that the kernel enforces it, sometimes keeps it for a
/// while.
pub fn protect(ctx: &mut Ctx) {
    let run = ctx.pick_run(256);
    let (prot, name) = match ctx.rng.below(4) {
        0 => (Prot::Read, "protect R"),
        1 => (Prot::None, "protect NONE"),
        2 => (Prot::Exec, "protect RWX"),
        _ => (Prot::ReadWrite, "protect RW"),
    };
    ctx.note(name, run);
    ctx.set_prot(run, prot);
    let one = Run { first: run.first + ctx.rng.below(run.count), count: 1, ..run };
    if !prot.writable() && ctx.rng.one_in(2) {
        expect_efault(ctx, one, prot);
    }
    if prot.readable() {
        ctx.verify(one, "after mprotect");
    }
    if ctx.rng.one_in(2) {
        ctx.note("protect RW", run);
        ctx.set_prot(run, Prot::ReadWrite);
        ctx.verify(run, "after mprotect and back");
    }
}
