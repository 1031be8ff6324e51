//! The programs of the model.

use crate::config::{Init, Scenario};
use crate::program::Op;
use Init::{Empty, Grown, Hole, Plain, Pooled, Resident, Staged};
use Op::{Await, DontNeed, Exit, Fork, Free, Map, Protect, Read, Remap, Signal, Unmap, Write};

fn remap(from: u8, to: u8, pages: u8) -> Op {
    Remap { from, to, pages }
}

/// Reads and writes with eviction, compression and writeback.
pub fn touch() -> Scenario {
    let script: &[Op] = &[Write(0, 3), Read(1), Write(1, 4), Read(0), Read(1)];
    Scenario::new("touch", &[Resident(1), Resident(2)], &[script]).posts(2, 2).pool(2, 1)
}

/// An incompressible page goes raw to the swap tier.
pub fn raw_pages() -> Scenario {
    let script: &[Op] = &[Read(0), Write(0, 14), Read(0)];
    Scenario::new("raw pages", &[Staged(13)], &[script]).posts(1, 1).pool(2, 1)
}

/// Two threads fault on the same evicted pages.
pub fn two_readers() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Read(0), Read(1), Write(0, 3)], &[Read(1), Read(1)]);
    Scenario::new("two readers", &[Staged(1), Pooled(2)], &[a, b]).posts(1, 2).pool(1, 0)
}

/// Fault-around over evicted pages.
pub fn around() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Read(0), Read(1), Read(2)], &[Read(2), Write(2, 5), Read(2)]);
    Scenario::new("fault-around", &[Staged(1), Staged(2), Staged(3)], &[a, b]).posts(1, 1).with(|s| s.around = 2)
}

/// Fault-around for a reader that goes downwards, while another thread writes to the page below.
pub fn around_below() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Read(3), Read(2), Read(1), Read(0)], &[Write(0, 5), Read(0)]);
    let init = [Staged(1), Pooled(2), Staged(3), Staged(4)];
    Scenario::new("fault-around downwards", &init, &[a, b]).posts(1, 1).with(|s| s.around = 2)
}

/// The page below is zapped or unmapped while fault-around brings it in.
pub fn around_below_a_removal() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Read(3), Read(2), Read(1)], &[DontNeed(0, 1), Read(0), Unmap(0, 1)]);
    let init = [Staged(1), Staged(2), Staged(3), Staged(4)];
    Scenario::new("fault-around downwards beside MADV_DONTNEED", &init, &[a, b]).with(|s| s.around = 2)
}

/// MADV_DONTNEED of evicted and resident pages.
pub fn dontneed() -> Scenario {
    let script: &[Op] = &[DontNeed(0, 2), Read(0), Write(1, 5), Read(1), Read(0)];
    Scenario::new("MADV_DONTNEED", &[Resident(1), Staged(2)], &[script]).posts(2, 2).proofs(1)
}

/// MADV_DONTNEED while another thread faults and is evicted elsewhere.
pub fn dontneed_beside() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(0, 1), Read(0)], &[Read(1), Read(1)]);
    Scenario::new("MADV_DONTNEED beside a reader", &[Resident(1), Staged(2)], &[a, b]).posts(1, 2)
}

/// munmap, and a new mapping at the same place.
pub fn unmap() -> Scenario {
    let script: &[Op] = &[Unmap(0, 2), Map(0, 2), Write(0, 3), Read(1), Read(0)];
    Scenario::new("munmap and mmap", &[Resident(1), Staged(2)], &[script]).posts(2, 2).rescans(1)
}

/// mremap of resident and evicted pages.
pub fn moved() -> Scenario {
    let script: &[Op] = &[remap(0, 3, 2), Read(3), Read(4), Write(3, 4), Read(3)];
    Scenario::new("mremap", &[Resident(1), Staged(2)], &[script]).posts(2, 2)
}

/// mremap there and back.
pub fn moved_twice() -> Scenario {
    let script: &[Op] = &[remap(0, 2, 1), remap(2, 0, 1), Read(0)];
    Scenario::new("mremap and back", &[Resident(1)], &[script]).posts(2, 1)
}

/// MADV_FREE, with the kernel dropping pages.
pub fn free() -> Scenario {
    let script: &[Op] = &[Free(0, 1), Read(0), Read(0), Write(0, 5), Read(0)];
    Scenario::new("MADV_FREE", &[Resident(1)], &[script]).posts(1, 1).proofs(1).with(|s| s.drops = 1)
}

/// mprotect: MOVE refuses, COPY does not.
pub fn protect() -> Scenario {
    let script: &[Op] = &[Protect(0, 2, true), Read(0), Read(1), Protect(0, 2, false), Write(0, 4), Read(0)];
    Scenario::new("mprotect", &[Resident(1), Staged(2)], &[script]).posts(2, 2)
}

/// Memory that the pager finds while the program uses it.
pub fn adoption() -> Scenario {
    let script: &[Op] = &[Read(0), Write(0, 3), Read(1), Unmap(0, 1), Map(0, 1), Read(0)];
    Scenario::new("adoption", &[Plain(1), Plain(2)], &[script]).posts(1, 2).rescans(2)
}

/// Memory with a hole when it is registered; something is mapped into the hole later.
/// UFFDIO_REGISTER registers only what is mapped at that moment, and no event reports the rest.
pub fn hole() -> Scenario {
    let (a, b): (&[Op], &[Op]) =
        (&[Unmap(1, 1), Await(0), Signal(1)], &[Map(1, 1), Write(1, 5), Signal(0), Await(1), Read(1)]);
    Scenario::new("a hole in a registered range", &[Plain(1), Plain(2)], &[a, b]).posts(1, 2).rescans(1)
}

/// An mremap into such a hole: no event reports that the place was left, so none may be awaited.
pub fn moved_into_a_hole() -> Scenario {
    let a: &[Op] = &[Map(0, 2), Await(0), Unmap(1, 1), Signal(1), Await(2), remap(3, 1, 1), Map(3, 1), Write(3, 5)];
    let a: &[Op] = &[a, &[Signal(3), Await(4), Read(1), Read(3)]].concat();
    let b: &[Op] = &[Signal(0), Await(1), Signal(2), Await(3), Signal(4)];
    let scenario = Scenario::new("mremap into a hole", &[Hole, Hole, Hole, Resident(3)], &[a, b]);
    scenario.posts(1, 3).rescans(1)
}

/// Grown memory that is evicted before the pager looks for it.
pub fn grown_and_evicted() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Write(0, 3), Signal(1), Await(0), Read(0)], &[Await(1), Signal(0)]);
    Scenario::new("eviction of grown memory", &[Grown], &[a, b]).posts(1, 1).rescans(1)
}

/// An mremap of grown memory; another thread maps its old place while the pager looks for new
/// memory.
pub fn grown_and_moved() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[remap(1, 3, 1), Read(3)], &[Map(1, 1), Write(1, 5), Read(1)]);
    Scenario::new("mremap of grown memory", &[Resident(1), Grown], &[a, b]).rescans(1)
}

/// MADV_FREE twice, with a proof in between.
pub fn freed_twice() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Free(0, 1), Signal(1), Await(0), Free(0, 1), Read(0)], &[Await(1), Signal(0)]);
    Scenario::new("MADV_FREE twice", &[Resident(1)], &[a, b]).proofs(1).with(|s| s.drops = 1)
}

/// MADV_DONTNEED of memory that is being adopted.
pub fn adopted_and_removed() -> Scenario {
    let script: &[Op] = &[DontNeed(0, 1), Read(0), Read(0)];
    Scenario::new("MADV_DONTNEED during adoption", &[Plain(1)], &[script]).posts(1, 1).rescans(2)
}

/// fork: both sides read and write.
pub fn fork() -> Scenario {
    let script: &[Op] = &[Fork, Write(0, 5), Read(1), Read(0)];
    let child: &[Op] = &[Read(0), Write(1, 6), Read(1)];
    Scenario::new("fork", &[Resident(1), Staged(2)], &[script]).posts(1, 2).child(child)
}

/// fork while another thread faults.
pub fn fork_beside() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Fork], &[Read(0), Read(0)]);
    Scenario::new("fork beside a reader", &[Staged(1)], &[a, b]).posts(1, 1).child(&[Read(0)])
}

/// MADV_DONTNEED, then fork: the child must see zeros.
pub fn dontneed_then_fork() -> Scenario {
    let script: &[Op] = &[DontNeed(0, 1), Fork];
    Scenario::new("MADV_DONTNEED, then fork", &[Staged(1)], &[script]).child(&[Read(0)])
}

/// mremap, then fork: the child must find its page at the new place.
pub fn moved_then_fork() -> Scenario {
    let script: &[Op] = &[remap(0, 2, 1), Fork];
    Scenario::new("mremap, then fork", &[Staged(1)], &[script]).child(&[Read(2)])
}

/// fork beside munmap: the child maps new memory where the old was.
pub fn fork_beside_unmap() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[Fork]);
    let child: &[Op] = &[Unmap(0, 1), Map(0, 1), Read(0)];
    let scenario =
        Scenario::new("fork beside munmap", &[Staged(1), Hole, Resident(2)], &[a, b]).rescans(2).child(child);
    scenario.with(|s| s.child_attached = true)
}

/// A fork child moves memory while the pager confirms its registrations.
pub fn child_moves() -> Scenario {
    let child: &[Op] = &[remap(0, 2, 1), Read(2)];
    let scenario =
        Scenario::new("a child's mremap while it is confirmed", &[Staged(1)], &[&[Fork]]).rescans(1).child(child);
    scenario.with(|s| s.child_attached = true)
}

/// A page that was only read, and so is the zero page, in parent and child.
pub fn zero_page() -> Scenario {
    let script: &[Op] = &[Read(0), Fork, Write(0, 3), Read(0)];
    let scenario = Scenario::new(
        "the zero page and fork",
        &[Hole, Plain(1)],
        &[&[Map(0, 1), script[0], script[1], script[2], script[3]]],
    );
    scenario.posts(1, 2).rescans(1).child(&[Read(0), Write(0, 4), Read(0)])
}

/// MADV_FREE, the proof, and an eviction in which the kernel drops the page in the window.
pub fn free_and_evicted() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Free(0, 1), Signal(1), Await(0), Read(0)], &[Await(1), Signal(0)]);
    let scenario = Scenario::new("MADV_FREE and eviction", &[Resident(1)], &[a, b]).posts(1, 1).proofs(1);
    scenario.with(|s| s.drops = 1)
}

/// One thread's mremap leaves a place, another thread's mremap takes it.
pub fn place_reused_by_mremap() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[remap(0, 3, 1), Read(3)], &[remap(2, 0, 1), Read(0)]);
    Scenario::new("mremap to where another mremap left", &[Staged(1), Hole, Staged(2)], &[a, b])
}

/// One thread's munmap leaves a place, another thread's mremap takes it, and a third thread's
/// mremap takes the place that this one left.
pub fn places_in_a_chain() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[remap(0, 2, 1), Read(2)], &[remap(2, 4, 1), Read(4)]);
    Scenario::new("mremaps in a chain", &[Staged(1), Hole, Staged(2), Hole, Staged(3)], &[a, b, &[Unmap(4, 1)]])
}

/// One thread's munmap leaves a place, another thread's mremap takes it, then MADV_DONTNEED empties
/// it.
pub fn place_reused_and_removed() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[remap(0, 2, 1), DontNeed(2, 1), Read(2)], &[Unmap(2, 1)]);
    Scenario::new("MADV_DONTNEED where an mremap went", &[Staged(1), Hole, Staged(2)], &[a, b])
}

/// One thread's munmap leaves a place, another thread's mremap takes it, then fork copies it.
pub fn place_reused_and_forked() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[remap(0, 2, 1), Fork, Read(2)], &[Unmap(2, 1)]);
    Scenario::new("fork after an mremap", &[Staged(1), Hole, Staged(2)], &[a, b]).child(&[Read(2)])
}

/// One thread's munmap leaves a place, another thread's mremap takes it.
pub fn place_reused_after_munmap() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[remap(2, 0, 1), Read(0)]);
    Scenario::new("mremap to where a munmap left", &[Staged(1), Hole, Staged(2)], &[a, b])
}

/// As [`place_reused_after_munmap`], then the memory is moved on at once.
pub fn place_left_again() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[remap(2, 0, 1), remap(0, 4, 1), Read(4)]);
    Scenario::new("mremaps by way of where a munmap left", &[Staged(1), Hole, Staged(2)], &[a, b])
}

/// As [`place_reused_after_munmap`], then the memory is unmapped.
pub fn place_unmapped_again() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[remap(2, 0, 1), Unmap(0, 1), Map(0, 1), Write(0, 5), Read(0)]);
    Scenario::new("munmap of where another one had left", &[Staged(1), Hole, Staged(2)], &[a, b]).rescans(1)
}

/// As [`place_reused_after_munmap`], but the pager does not know that the place was registered,
/// because its mapping grew.
pub fn grown_place_reused() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[remap(2, 0, 1), Read(0)]);
    Scenario::new("mremap to where grown memory was", &[Grown, Hole, Staged(2)], &[a, b])
}

/// As [`grown_place_reused`], but the grown memory is moved away.
pub fn grown_place_moved() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Write(0, 3), remap(0, 4, 1), Read(4)], &[remap(2, 0, 1), Read(0)]);
    Scenario::new("mremap to where grown memory was moved from", &[Grown, Hole, Staged(2)], &[a, b]).posts(1, 2)
}

/// Grown memory is unmapped; the memory that is moved there is unmapped at once, too.
pub fn grown_place_left_again() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[remap(2, 0, 1), Unmap(0, 1), Map(0, 1), Write(0, 5), Read(0)]);
    Scenario::new("mremap to where grown memory was, and munmap", &[Grown, Hole, Staged(2)], &[a, b])
}

/// One thread's munmap leaves a place, another thread's mmap takes it.
pub fn place_reused_by_mmap() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Unmap(0, 1)], &[Map(0, 1), Write(0, 3), Read(0)]);
    Scenario::new("mmap to where a munmap left", &[Staged(1), Hole, Resident(2)], &[a, b]).posts(1, 2).rescans(2)
}

/// Zeros filled around a fault include a page that another thread is about to zap.
pub fn zeros_around_a_removal() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(2, 1), Read(2)], &[Read(0), Read(1)]);
    let scenario = Scenario::new("zero-fill around beside MADV_DONTNEED", &[Empty, Empty, Staged(3)], &[a, b]);
    scenario.with(|s| s.around = 2)
}

/// As [`zeros_around_a_removal`], then the page is moved away.
pub fn zeros_around_then_moved() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(2, 1), remap(2, 4, 1), Read(4)], &[Read(0), Read(1)]);
    let scenario = Scenario::new("zero-fill around, then mremap", &[Empty, Empty, Empty], &[a, b]);
    scenario.with(|s| s.around = 2)
}

/// As [`zeros_around_a_removal`], then a proof shows that all threads have left the system call.
pub fn zeros_around_and_proof() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(2, 1), Signal(0), Read(2)], &[Read(0), Read(1), Await(0)]);
    let scenario = Scenario::new("zero-fill around, then a proof", &[Empty, Empty, Empty], &[a, b]);
    scenario.proofs(1).with(|s| s.around = 2)
}

/// A page is moved to a place where another thread's removal is not over.
pub fn moved_into_a_removal() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(0, 1), Signal(0)], &[Unmap(0, 1), remap(2, 0, 1), Await(0), Read(0)]);
    Scenario::new("an mremap into MADV_DONTNEED", &[Empty, Hole, Resident(2)], &[a, b])
}

/// Another thread touches a page that is being removed.
pub fn touched_during_removal() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(0, 1)], &[Read(0), Read(0)]);
    Scenario::new("a touch during MADV_DONTNEED", &[Staged(1)], &[a, b]).posts(1, 1)
}

/// Two threads remove the same page.
pub fn removed_twice() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[DontNeed(0, 1), Read(0)], &[DontNeed(0, 1), Read(0)]);
    Scenario::new("two MADV_DONTNEED of one page", &[Resident(1)], &[a, b])
}

/// MOVE moves more than it reports.
pub fn misreport() -> Scenario {
    let script: &[Op] = &[Read(0), Read(1)];
    let scenario = Scenario::new("MOVE misreports", &[Resident(1), Resident(2)], &[script]).posts(1, 2);
    scenario.with(|s| s.misreport = true)
}

/// A batch of several ranges is cancelled between them.
pub fn cancelled() -> Scenario {
    let script: &[Op] = &[Read(1), DontNeed(0, 1), Read(0), Read(1)];
    let scenario = Scenario::new("a cancelled batch", &[Resident(1), Resident(2)], &[script]).posts(2, 2);
    scenario.with(|s| s.split = 1)
}

/// The process ends at any moment.
pub fn exit() -> Scenario {
    let (a, b): (&[Op], &[Op]) = (&[Read(1), Exit], &[DontNeed(0, 1), Read(0)]);
    let scenario =
        Scenario::new("exit", &[Resident(1), Staged(2)], &[a, b]).posts(1, 2).pool(1, 0).proofs(1).rescans(1);
    scenario.with(|s| s.stale_lists = true)
}

/// Threads hand a mapping to each other.
pub fn handed_over() -> Scenario {
    let (a, b): (&[Op], &[Op]) =
        (&[Write(0, 3), Signal(0), Await(1), Read(0)], &[Await(0), DontNeed(0, 1), Write(0, 4), Signal(1)]);
    Scenario::new("handed over", &[Staged(1)], &[a, b]).posts(1, 1)
}

/// All scenarios; none may have a violation.
pub fn all() -> Vec<Scenario> {
    let plain =
        [touch(), raw_pages(), two_readers(), around(), dontneed(), dontneed_beside(), unmap(), moved(), moved_twice()];
    let more = [free(), protect(), adoption(), adopted_and_removed(), fork(), fork_beside(), dontneed_then_fork()];
    let races = [moved_then_fork(), fork_beside_unmap(), place_reused_by_mremap(), place_reused_after_munmap()];
    let rest = [
        place_reused_by_mmap(),
        place_left_again(),
        place_unmapped_again(),
        grown_place_reused(),
        grown_place_moved(),
        grown_place_left_again(),
        zeros_around_a_removal(),
        zeros_around_then_moved(),
        zeros_around_and_proof(),
        moved_into_a_removal(),
        touched_during_removal(),
        removed_twice(),
        misreport(),
    ];
    let last = [cancelled(), exit(), handed_over(), child_moves(), zero_page(), free_and_evicted()];
    let last = [last.to_vec(), vec![around_below(), around_below_a_removal()]].concat();
    let last =
        [last, vec![hole(), moved_into_a_hole(), grown_and_evicted(), grown_and_moved(), freed_twice()]].concat();
    let races =
        [races.to_vec(), vec![places_in_a_chain(), place_reused_and_removed(), place_reused_and_forked()]].concat();
    [plain.to_vec(), more.to_vec(), races, rest.to_vec(), last].concat()
}
