//! mmap, munmap, mremap.

use crate::ctx::{Ctx, Need, Run, MAX_REGIONS};
use crate::model::{Prot, TestRegion};
use crate::sys::{Errno, Span, RW};

/// Largest region, in pages.
const LARGEST: usize = 2048;

/// Makes a new mapping; if there is no room, unmaps an old one.
pub fn mmap(ctx: &mut Ctx) {
    let room = ctx.limit - ctx.mapped;
    if room < 16 || ctx.regions.len() >= MAX_REGIONS {
        return munmap(ctx);
    }
    let pages = ctx.rng.log_size(room.min(LARGEST));
    match ctx.rng.below(8) {
        0 | 1 => over_existing(ctx),
        2 | 3 => in_arena(ctx, pages),
        4 => adjacent(ctx, pages),
        5 => none_first(ctx, pages),
        6 => plain(ctx, pages, libc::MAP_POPULATE),
        _ => plain(ctx, pages, libc::MAP_NORESERVE),
    }
}

/// Most new mappings are written at once. The others stay untouched until an operation picks them.
fn start(ctx: &mut Ctx, span: Span, in_arena: bool, what: &'static str) {
    let r = ctx.add_region(span, in_arena);
    let run = ctx.whole(r);
    ctx.note(what, run);
    if ctx.rng.one_in(3) {
        ctx.spot_check(r, "new mapping");
    } else {
        ctx.write(run);
    }
}

fn plain(ctx: &mut Ctx, pages: usize, flags: i32) {
    let span = ctx.must("mmap", Span::map(pages, RW, flags));
    start(ctx, span, false, "mmap");
}

fn none_first(ctx: &mut Ctx, pages: usize) {
    let span = ctx.must("mmap PROT_NONE", Span::map(pages, libc::PROT_NONE, 0));
    ctx.must("mprotect", span.protect(RW));
    start(ctx, span, false, "mmap NONE, protect RW");
}

fn in_arena(ctx: &mut Ctx, pages: usize) {
    let used = ctx.used();
    match ctx.arena.find(pages, &used, &mut ctx.rng) {
        Some(addr) => place(ctx, addr, pages, "mmap fixed"),
        None => plain(ctx, pages, 0),
    }
}

fn place(ctx: &mut Ctx, addr: usize, pages: usize, what: &'static str) {
    let span = ctx.must("mmap FIXED", ctx.arena.map(addr, pages, RW, 0));
    start(ctx, span, true, what);
}

/// Maps directly before or after another region of the arena, so that the kernel merges the two.
fn adjacent(ctx: &mut Ctx, pages: usize) {
    let used = ctx.used();
    let before = ctx.rng.one_in(2);
    let spot = used
        .iter()
        .map(|&(from, to)| if before { from.saturating_sub(pages * crate::content::PAGE) } else { to })
        .find(|&at| ctx.arena.is_free(at, pages, &used));
    match spot {
        Some(addr) => place(ctx, addr, pages, "mmap adjacent"),
        None => in_arena(ctx, pages),
    }
}

/// Maps new pages over a part of a live region.
fn over_existing(ctx: &mut Ctx) {
    let run = ctx.pick_run(512);
    let span = ctx.span(run);
    let none = ctx.rng.one_in(3);
    let prot = if none { libc::PROT_NONE } else { RW };
    ctx.note("mmap over", run);
    ctx.must("mmap over", Span::map_at(span.addr(), run.count, prot, libc::MAP_FIXED));
    let version = ctx.version;
    for page in &mut ctx.regions[run.r].pages[run.range()] {
        *page = crate::model::PageModel::zero(version);
        page.prot = if none { Prot::None } else { Prot::ReadWrite };
    }
    if ctx.rng.one_in(2) {
        ctx.make(run, Need::Write);
        ctx.write(run);
    } else {
        let one = Run { first: run.first + ctx.rng.below(run.count), count: 1, ..run };
        ctx.make(one, Need::Read);
        ctx.verify(one, "mapped over");
    }
}

/// Gives pages back to the kernel, or to the arena.
fn release(ctx: &mut Ctx, span: Span, in_arena: bool) {
    if in_arena && ctx.rng.one_in(2) {
        return ctx.must("mmap NONE over", ctx.arena.reserve_again(span));
    }
    ctx.must("munmap", span.unmap());
    if in_arena {
        ctx.arena.fill_hole(span);
    }
}

/// Unmaps a whole region, its head, tail or middle.
pub fn munmap(ctx: &mut Ctx) {
    let r = ctx.pick_region();
    let len = ctx.regions[r].len();
    let in_arena = ctx.regions[r].in_arena;
    let count = ctx.rng.log_size(len);
    let full = ctx.regions.len() >= MAX_REGIONS;
    let first = match ctx.rng.below(4) {
        _ if full || count == len => None,
        0 => Some(0),
        1 => Some(len - count),
        2 => Some(ctx.rng.below(len - count + 1)),
        _ => None,
    };
    let Some(first) = first else {
        ctx.note("munmap all", ctx.whole(r));
        let span = ctx.span(ctx.whole(r));
        release(ctx, span, in_arena);
        return ctx.forget(r);
    };
    let run = Run { r, first, count };
    ctx.note("munmap part", run);
    let span = ctx.span(run);
    release(ctx, span, in_arena);
    cut_out(ctx, run);
}

/// Takes a run out of its region in the model. The pages after it become a region of their own.
pub fn cut_out(ctx: &mut Ctx, run: Run) -> TestRegion {
    let mut middle = ctx.regions[run.r].split_off(run.first);
    let tail = middle.split_off(run.count);
    ctx.mapped -= run.count;
    if tail.len() > 0 {
        ctx.regions.push(tail);
    }
    if ctx.regions[run.r].len() == 0 {
        ctx.regions.swap_remove(run.r);
    }
    middle
}

/// Makes a run a region of its own and returns its index.
fn isolate(ctx: &mut Ctx, run: Run) -> usize {
    let region = cut_out(ctx, run);
    ctx.mapped += region.len();
    ctx.regions.push(region);
    ctx.regions.len() - 1
}

/// Shrinks, grows or moves a region.
pub fn mremap(ctx: &mut Ctx) {
    let r = ctx.pick_region();
    let crowded = ctx.regions.len() >= MAX_REGIONS;
    match ctx.rng.below(6) {
        0 => shrink(ctx, r),
        1 | 2 => grow(ctx, r),
        3 => move_fixed(ctx, r),
        4 if !crowded => move_part(ctx, r),
        4 => move_fixed(ctx, r),
        _ => dont_unmap(ctx, r),
    }
}

fn shrink(ctx: &mut Ctx, r: usize) {
    let len = ctx.regions[r].len();
    if len < 2 {
        return grow(ctx, r);
    }
    let keep = ctx.rng.range(1, len - 1);
    let run = Run { r, first: keep, count: len - keep };
    ctx.note("mremap shrink", run);
    let (whole, tail) = (ctx.span(ctx.whole(r)), ctx.span(run));
    // Shrinking is an unmap of the tail, so it also works on several mappings.
    match whole.remap(keep, 0, 0) {
        Ok(_) => {}
        Err(Errno(libc::EFAULT)) => {
            ctx.refused();
            ctx.must("munmap", tail.unmap());
        }
        Err(e) => ctx.broken("mremap shrink", &e),
    }
    if ctx.regions[r].in_arena {
        ctx.arena.fill_hole(tail);
    }
    ctx.regions[r].pages.truncate(keep);
    ctx.mapped -= len - keep;
    ctx.spot_check(r, "after mremap shrink");
}

fn grow(ctx: &mut Ctx, r: usize) {
    let len = ctx.regions[r].len();
    let room = (ctx.limit - ctx.mapped).min(LARGEST.saturating_sub(len));
    if room == 0 {
        return move_fixed(ctx, r);
    }
    let more = ctx.rng.log_size(room);
    ctx.note("mremap grow", ctx.whole(r));
    let whole = ctx.span(ctx.whole(r));
    one_prot(ctx, r);
    let prot = ctx.regions[r].pages[len - 1].prot;
    let in_place = ctx.rng.one_in(2) && try_grow_in_place(ctx, r, whole, more);
    let by_hand = !in_place && relocate(ctx, r, len + more, libc::MREMAP_MAYMOVE, 0);
    let version = ctx.version;
    ctx.regions[r].grow(more, version);
    ctx.mapped += more;
    // New pages inherit the protection.
    let grown = Run { r, first: len, count: more };
    ctx.regions[r].pages[grown.range()].iter_mut().for_each(|p| p.prot = prot);
    if by_hand {
        ctx.set_prot(grown, prot);
    }
    ctx.spot_check(r, "after mremap grow");
    if ctx.rng.one_in(2) {
        ctx.make(grown, Need::Write);
        ctx.write(grown);
    }
}

/// Gives a region one protection. Different protections make several mappings, which the kernel
/// cannot resize and can only sometimes move.
fn one_prot(ctx: &mut Ctx, r: usize) {
    let pages = &ctx.regions[r].pages;
    if pages.iter().any(|p| p.prot != pages[0].prot) {
        let whole = ctx.whole(r);
        ctx.note("protect RW", whole);
        ctx.set_prot(whole, Prot::ReadWrite);
    }
}

/// Grows without MREMAP_MAYMOVE; may fail if another mapping follows.
fn try_grow_in_place(ctx: &mut Ctx, r: usize, whole: Span, more: usize) -> bool {
    let in_arena = ctx.regions[r].in_arena;
    let end = whole.addr() + whole.len();
    if in_arena {
        let used = ctx.used();
        if !ctx.arena.is_free(end, more, &used) {
            return false;
        }
        ctx.must("munmap reserve", Span::owned(end, more).unmap());
    }
    match whole.remap(whole.pages() + more, 0, 0) {
        Ok(_) => true,
        Err(Errno(libc::ENOMEM | libc::EFAULT)) => {
            ctx.refused();
            if in_arena {
                ctx.arena.fill_hole(Span::owned(end, more));
            }
            false
        }
        Err(e) => ctx.broken("mremap in place", &e),
    }
}

/// Moves a whole region to `pages` pages (at least as many as it has). If the kernel refuses
/// because the range consists of several mappings, moves it by hand with the same result, and
/// returns true.
fn relocate(ctx: &mut Ctx, r: usize, pages: usize, flags: i32, target: usize) -> bool {
    let old = ctx.span(ctx.whole(r));
    let (new, by_hand) = match old.remap(pages, flags, target) {
        Ok(new) => (new, false),
        Err(Errno(libc::EFAULT)) => (move_by_hand(ctx, r, pages, flags, target), true),
        Err(e) => ctx.broken("mremap move", &e),
    };
    if new.addr() == old.addr() {
        return by_hand;
    }
    let was_in_arena = std::mem::replace(&mut ctx.regions[r].in_arena, target != 0);
    if was_in_arena && flags & libc::MREMAP_DONTUNMAP == 0 {
        ctx.arena.fill_hole(old);
    }
    ctx.regions[r].addr = new.addr();
    if by_hand {
        let prots = ctx.prots(r);
        ctx.set_prots(r, &prots);
    }
    by_hand
}

/// Copies a region to a new place, readable and writable, and unmaps the old one. Does not change
/// the model.
fn move_by_hand(ctx: &mut Ctx, r: usize, pages: usize, flags: i32, target: usize) -> Span {
    ctx.refused();
    let whole = ctx.whole(r);
    let (old, prots) = (ctx.span(whole), ctx.prots(r));
    ctx.remember("moved by hand", whole);
    // A failed move of several mappings can have moved the first ones.
    let moved = (0..whole.count).take_while(|&i| !old.sub(i, 1).is_mapped()).count();
    let rest = Run { r, first: moved, count: whole.count - moved };
    let new = if target == 0 {
        ctx.must("mmap", Span::map(pages, RW, 0))
    } else {
        let tail = ctx.arena.map(target + crate::ctx::bytes(moved), pages - moved, RW, 0);
        ctx.must("mmap", tail);
        Span::owned(target, pages)
    };
    if rest.count > 0 {
        ctx.set_prot(rest, Prot::ReadWrite);
        ctx.verify(rest, "after a refused mremap");
        let from = ctx.span(rest);
        ctx.copy_to(rest, new.sub(rest.first, rest.count));
        if flags & libc::MREMAP_DONTUNMAP != 0 {
            ctx.must("madvise DONTNEED", from.advise(libc::MADV_DONTNEED));
        } else {
            ctx.must("munmap", from.unmap());
        }
    }
    ctx.regions[r].pages.iter_mut().zip(prots).for_each(|(p, prot)| p.prot = prot);
    new
}

/// Moves a region to a chosen address, where a live mapping may be.
fn move_fixed(ctx: &mut Ctx, r: usize) {
    let len = ctx.regions[r].len();
    let used = ctx.used();
    let Some(target) = ctx.arena.find(len, &used, &mut ctx.rng) else {
        return ctx.refused();
    };
    ctx.note("mremap fixed", ctx.whole(r));
    // Newer kernels (6.17) can move several mappings at once.
    if ctx.rng.one_in(2) {
        one_prot(ctx, r);
    }
    if ctx.rng.one_in(2) {
        let victim = ctx.must("mmap", ctx.arena.map(target, len, RW, 0));
        (0..len.min(8)).for_each(|i| victim.sub(i, 1).store(i, 0xDEAD_BEEF));
    }
    relocate(ctx, r, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, target);
    ctx.spot_check(r, "after mremap fixed");
}

/// Moves the middle of a region out of it.
fn move_part(ctx: &mut Ctx, r: usize) {
    let len = ctx.regions[r].len();
    let count = ctx.rng.log_size(len);
    let first = ctx.rng.below(len - count + 1);
    let part = isolate(ctx, Run { r, first, count });
    if ctx.regions[part].in_arena || ctx.rng.one_in(2) {
        return move_fixed(ctx, part);
    }
    // With the same size, MREMAP_MAYMOVE does nothing. Growing by a page moves the part, because
    // its own tail follows it.
    if ctx.mapped < ctx.limit {
        grow(ctx, part);
    }
}

/// Moves the bytes; the old range stays mapped and reads as zeros (MREMAP_DONTUNMAP).
fn dont_unmap(ctx: &mut Ctx, r: usize) {
    let len = ctx.regions[r].len();
    if ctx.mapped + len > ctx.limit || ctx.regions.len() >= MAX_REGIONS {
        return move_fixed(ctx, r);
    }
    let whole = ctx.whole(r);
    let (old, was_in_arena) = (ctx.span(whole), ctx.regions[r].in_arena);
    ctx.note("mremap dontunmap", whole);
    one_prot(ctx, r);
    let prots = ctx.prots(r);
    let by_hand = relocate(ctx, r, len, libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP, 0);
    let left = ctx.add_region(old, was_in_arena);
    ctx.regions[left].pages.iter_mut().zip(&prots).for_each(|(p, &prot)| p.prot = prot);
    if by_hand {
        ctx.set_prots(left, &prots);
    }
    ctx.note("left behind", ctx.whole(left));
    ctx.spot_check(r, "after mremap dontunmap");
    ctx.spot_check(left, "left by mremap dontunmap");
}
