//! Changes that the program makes to its address space. For each call the process's batch must be
//! drained and no fault of the process half served; so the process's fault thread makes these
//! calls.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::entry::{is_not_after, Entry, EPOCH_MAX};
use crate::ids::{AreaId, Page, PageRange, ProcId};
use alloc::vec::Vec;

impl Core {
    /// MADV_DONTNEED, MADV_FREE and the like: drops evicted contents at once. The kernel may zap
    /// present pages at any moment from now on, so they are quarantined.
    pub fn removed(&mut self, proc: ProcId, range: PageRange) {
        self.record(&CoreCall::Removed { proc, range });
        let epoch = self.table.proc(proc).epoch;
        for (page, entry) in self.table.tracked(proc, range) {
            match entry {
                Entry::Resident | Entry::Lazy | Entry::Quarantined(_) => {
                    self.table.set(proc, page, Entry::Quarantined(epoch));
                    self.counters.quarantined += 1;
                }
                Entry::Out(_) => self.forget(proc, page, entry),
                Entry::Untracked | Entry::Evicting(_) | Entry::Loading(_) | Entry::Filling(_) => {
                    self.not_drained(page, entry)
                }
            }
        }
        self.pool_control.give_slots(proc, range);
        self.table.proc_mut(proc).zap_pending.add(range, epoch);
        self.table.prune(proc, range);
    }

    /// munmap, or a mapping placed over the range.
    pub fn unmapped(&mut self, proc: ProcId, range: PageRange) {
        self.record(&CoreCall::Unmapped { proc, range });
        for (page, entry) in self.table.tracked(proc, range) {
            if matches!(entry, Entry::Evicting(_) | Entry::Loading(_) | Entry::Filling(_)) {
                self.not_drained(page, entry);
            }
            self.forget(proc, page, entry);
        }
        self.pool_control.give_slots(proc, range);
        self.table.prune(proc, range);
    }

    /// Forgets the pages of a range that the process did not inherit. Leaves pages that are being
    /// filled: the kernel refuses such a fill by itself.
    pub fn disown(&mut self, proc: ProcId, range: PageRange) {
        self.record(&CoreCall::Disown { proc, range });
        for (page, entry) in self.table.tracked(proc, range) {
            if !matches!(entry, Entry::Evicting(_) | Entry::Loading(_) | Entry::Filling(_)) {
                self.forget(proc, page, entry);
            }
        }
        self.pool_control.give_slots(proc, range);
        self.table.prune(proc, range);
    }

    /// The epoch of the newest REMOVE event of the page whose zap may still come.
    pub fn zap_pending_since(&self, proc: ProcId, page: Page) -> Option<u32> {
        self.table.proc(proc).zap_pending.of(page)
    }

    /// Whether any zap of the process may still come.
    pub fn has_zap_pending(&self, proc: ProcId) -> bool {
        !self.table.proc(proc).zap_pending.is_empty()
    }

    /// The start of a range that covers `runs` runs (64 KiB) with pages in the table; the whole
    /// range if it has no more. A caller works over a large range in such parts and releases the
    /// lock between them.
    pub fn first_part(&self, proc: ProcId, range: PageRange, runs: usize) -> PageRange {
        self.table.first_part(proc, range, runs)
    }

    /// The pages of the range that are not Untracked, in address order. Takes time for the pages
    /// that the table has, not for all of the range.
    pub fn pages(&self, proc: ProcId, range: PageRange) -> Vec<(Page, Entry)> {
        self.table.tracked(proc, range)
    }

    /// Whether the table has a page of the range.
    pub fn tracks(&self, proc: ProcId, range: PageRange) -> bool {
        self.table.tracks(proc, range)
    }

    /// mremap moved the pages `from` to the pages that start at `to`. A caller may report a large
    /// range in parts.
    pub fn remapped(&mut self, proc: ProcId, from: PageRange, to: Page) {
        self.record(&CoreCall::Remapped { proc, from, to });
        let moved: Vec<(Page, Entry, bool)> = self
            .table
            .tracked(proc, from)
            .into_iter()
            .map(|(page, entry)| (page, entry, self.left_together(proc, page)))
            .collect();
        for &(page, entry, _) in &moved {
            if matches!(entry, Entry::Evicting(_) | Entry::Loading(_) | Entry::Filling(_)) {
                self.not_drained(page, entry);
            }
            self.table.set(proc, page, Entry::Untracked);
        }
        let target = PageRange { first: to, pages: from.pages };
        self.pool_control.give_slots(proc, from);
        self.pool_control.give_slots(proc, target);
        for (page, entry) in self.table.tracked(proc, target) {
            self.forget(proc, page, entry);
        }
        for &(page, entry, together) in &moved {
            let page = Page(page.0 - from.first.0 + to.0);
            let entry = if entry == Entry::Resident { self.table.entry_when_filled(proc, page) } else { entry };
            self.table.set(proc, page, entry);
            if together {
                self.table.leaves_together(proc, page);
            }
        }
        self.counters.remapped += moved.len() as u64;
        self.table.prune(proc, from);
        self.table.prune(proc, target);
    }

    /// fork: adds a child with an empty table. Until [`Core::inherit`] has copied everything, part
    /// by part, no other call may change the child or its parent. Without `present` the fork is
    /// still to come: pages in memory are adopted when the child exists.
    pub fn forked(&mut self, parent: ProcId, slots: u32, present: bool) -> (ProcId, AreaId) {
        self.record(&CoreCall::Forked { parent, slots, present });
        let (child, area) = self.new_process(slots);
        // Zap-pending ranges are not copied: no thread zaps in the child.
        let (pinned, epoch) = (self.table.proc(parent).pinned.clone(), self.table.proc(parent).epoch);
        let copy = self.table.proc_mut(child);
        (copy.pinned, copy.epoch, copy.inherits) = (pinned, epoch, Some((parent, present)));
        self.counters.forks += 1;
        (child, area)
    }

    /// Copies the parent's entries of a range to a fork child. Evicted contents are shared by
    /// reference.
    ///
    /// # Panics
    /// If the process is no child of a fork.
    pub fn inherit(&mut self, child: ProcId, range: PageRange) {
        self.record(&CoreCall::Inherit { child, range });
        let (parent, present) = self.table.proc(child).inherits.expect("only the child of a fork inherits");
        for (page, entry) in self.table.tracked(parent, range) {
            match entry {
                Entry::Out(object) => self.objects.add_ref(object),
                Entry::Resident | Entry::Lazy | Entry::Quarantined(_) if !present => continue,
                Entry::Resident | Entry::Lazy | Entry::Quarantined(_) => {}
                Entry::Untracked | Entry::Evicting(_) | Entry::Loading(_) | Entry::Filling(_) => {
                    self.not_drained(page, entry)
                }
            }
            self.table.set(child, page, entry);
        }
    }

    /// Begins a proof: returns the epoch that names it and the quarantined pages. Pages that a
    /// later event quarantines, again or for the first time, do not belong to it.
    pub fn begin_proof(&mut self, proc: ProcId) -> (u32, Vec<Page>) {
        self.record(&CoreCall::BeginProof { proc });
        let pages = self.table.quarantined(proc);
        let p = self.table.proc_mut(proc);
        let epoch = p.epoch;
        p.epoch = (epoch + 1) & EPOCH_MAX;
        (epoch, pages)
    }

    /// The proof of `epoch` holds: every thread has left the calls whose events were read before
    /// the proof began.
    pub fn end_zap_pending(&mut self, proc: ProcId, epoch: u32) {
        self.record(&CoreCall::EndZapPending { proc, epoch });
        let p = self.table.proc_mut(proc);
        p.zap_pending.over(epoch);
        // Pages that are being filled may have been zapped already, and are not in the table yet.
        if p.coming_pages == 0 {
            p.zap_pending.end();
        }
    }

    /// The proof of `epoch` holds for a quarantined page. A present page was freed lazily and can
    /// be evicted again; an absent one was zapped.
    pub fn end_quarantine(&mut self, proc: ProcId, page: Page, epoch: u32, present: bool) {
        self.record(&CoreCall::EndQuarantine { proc, page, epoch, present });
        match self.table.get(proc, page) {
            Entry::Quarantined(e) if is_not_after(e, epoch) => {
                self.table.set(proc, page, if present { Entry::Lazy } else { Entry::Untracked });
                self.counters.unquarantined += 1;
            }
            _ => {}
        }
    }

    fn not_drained(&self, page: Page, entry: Entry) -> ! {
        panic!("an event changes page {:#x}, which is {entry:?}: its batch was not drained", page.address())
    }
}
