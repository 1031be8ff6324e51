//! Touches of pages, and the faults that they cause.

use super::tier::one;
use super::{range, BySource, Machine, Residents};
use crate::workload::Access;
use memfit_core::scheme::{Classes, SwapFormat};
use memfit_core::{Fault, Filled, Load, Page, PageRange, ProcId, Source, Stored, PAGE_BYTES};

/// Most pages read ahead from the swap tier, as in the pager.
const AHEAD_PAGES: u32 = 128;

/// Whether a page comes from its file for the first time, as it does under every scheme: it is
/// counted, not priced.
fn first_read(load: &Load, how: Access) -> bool {
    how == Access::File && load.source == Source::Zero
}

impl Machine {
    pub(super) fn touch(&mut self, id: ProcId, page: u64, how: Access) {
        self.tally.touches += 1;
        if how == Access::File && self.scheme.classes == Classes::Anonymous {
            // Under such a scheme the kernel keeps pages of files.
            return;
        }
        let shadow = self.shadows[id.0 as usize].as_mut().expect("a started process has shadow pages");
        let info = shadow.page(page);
        let was_resident = info.resident;
        if how == Access::Write {
            if info.write() {
                self.tier.drop_copy(id, page);
            }
            if shadow.shared > 0 {
                shadow.unshare(page);
            }
        }
        if !was_resident {
            self.serve(id, page, how, false);
        }
    }

    /// Handles a page that the recorded run brought in beside a faulting page.
    pub(super) fn brought(&mut self, id: ProcId, page: u64) {
        if self.residents == Residents::Simulated {
            return self.touch(id, page, Access::Read);
        }
        if !self.shadow(id).page(page).resident {
            self.serve(id, page, Access::Read, true);
        }
    }

    /// Handles a page that the recorded run found present when it adopted memory.
    pub(super) fn present(&mut self, id: ProcId, page: u64) {
        let info = self.shadow(id).page(page);
        if info.resident {
            return;
        }
        (info.resident, info.written) = (true, true);
        if !self.core.adopt(id, Page(page), false) {
            // The simulated scheme has evicted the page; the recorded run had not.
            self.shadow(id).page(page).resident = false;
            return self.serve(id, page, Access::Read, true);
        }
        self.peak();
        self.balance();
    }

    fn peak(&mut self) {
        let used = self.used();
        self.tally.peak_bytes = self.tally.peak_bytes.max(used);
        self.tally.over_budget += u64::from(used > self.sizes.budget);
        let (pool, swap) = (u64::from(self.core.pool_frames()) * PAGE_BYTES, self.swapped_bytes());
        self.tally.peak_pool_bytes = self.tally.peak_pool_bytes.max(pool);
        self.tally.peak_swap_bytes = self.tally.peak_swap_bytes.max(swap);
    }

    /// Bytes in use in the swap tier.
    fn swapped_bytes(&self) -> u64 {
        match self.wants_log() {
            true => self.tier.live_bytes(),
            false => u64::from(self.core.blocks_in_use()) * PAGE_BYTES,
        }
    }

    fn serve(&mut self, id: ProcId, page: u64, how: Access, around: bool) {
        self.balance();
        let began = self.times.program;
        let most = self.read_ahead(id, page);
        let limit = self.limit(id, page);
        let mut loads = std::mem::take(&mut self.lists.loads);
        loads.clear();
        let answer = self.core.fault(id, Page(page), limit, most, &mut loads);
        assert!(answer == Fault::Load, "page {page:#x} of process {} is {answer:?} at a touch", id.0);
        if !around && !loads.first().is_some_and(|load| first_read(load, how)) {
            self.times.program += self.costs.fault_ns;
        }
        for (i, load) in loads.iter().enumerate() {
            self.load(id, load, how, around || i > 0);
        }
        self.lists.loads = loads;
        self.times.faults += self.times.program - began;
        self.peak();
        self.balance();
    }

    /// The pages that a fault may bring in.
    fn limit(&mut self, id: ProcId, page: u64) -> PageRange {
        match (self.residents, self.shadow(id).mapping(page)) {
            (Residents::Simulated, Some((first, end, _))) => range(first, end - first),
            _ => range(page, 1),
        }
    }

    /// Reads the page and pages ahead of it if they are in the swap tier and no earlier read did
    /// so. Returns how many contiguous pages the fault can bring in.
    fn read_ahead(&mut self, id: ProcId, page: u64) -> u32 {
        let wanted = &mut self.lists.wanted;
        wanted.clear();
        self.core.swapped_ahead(id, Page(page), AHEAD_PAGES, wanted);
        let Some(first) = wanted.first().copied() else { return u32::MAX };
        if !self.tier.at_hand(first.extent) {
            let ns = self.tier.read(wanted, self.times.program, &mut self.tally);
            self.times.program += ns;
            self.times.reads += ns;
        }
        let here = wanted.iter().take_while(|stored| self.tier.at_hand(stored.extent)).count();
        here.max(1) as u32
    }

    fn load(&mut self, id: ProcId, load: &Load, how: Access, around: bool) {
        let page = load.page.0;
        let (costs, raw_slots) = (&self.costs, self.scheme.swap_format.kind == SwapFormat::RawSlots);
        let (mut kept, mut read) = (None, None);
        let mut filled = Filled::Done;
        let mut ns = if around { costs.around_ns } else { costs.copy_ns };
        let by: fn(&mut BySource) -> &mut u64 = match load.source {
            Source::Zero if first_read(load, how) => {
                *(if around { &mut self.tally.file_first_around } else { &mut self.tally.file_first }) += 1;
                ns = 0;
                filled = Filled::Read;
                |by| &mut by.zero
            }
            Source::Zero => {
                ns = costs.zero_ns;
                |by| &mut by.zero
            }
            Source::Word(_) => {
                ns = costs.fill_ns;
                |by| &mut by.filled
            }
            Source::Staged(_) => |by| &mut by.staged,
            Source::Pooled { codec, .. } => {
                self.tally.decompressions[usize::from(codec)] += 1;
                ns += costs.codec(codec).decompress_ns;
                |by| &mut by.pool
            }
            Source::File => {
                self.tally.file_reads.add(PAGE_BYTES, around);
                let read = self.tier.disk.device.read_ns(&one(PAGE_BYTES, around), 1);
                self.times.reads += read;
                ns += read;
                |by| &mut by.file
            }
            Source::Swapped { extent, len, codec, keep } => {
                self.tally.decompressions[usize::from(codec)] += 1;
                ns += costs.codec(codec).decompress_ns;
                // Whether a raw slot is kept the core decides only when the page is back, and says
                // so when the page leaves again.
                kept = (keep || raw_slots).then_some(Stored { extent, len, codec });
                read = Some(extent);
                |by| &mut by.swap
            }
        };
        *by(if around { &mut self.tally.around } else { &mut self.tally.faults }) += 1;
        self.times.program += ns;
        self.core.loaded(id, load.page, filled);
        if let Some(extent) = read.filter(|_| self.scheme.swap_format.cache_reads != 0) {
            self.core.cache_read(extent);
        }
        let (tier, shadows) = (&mut self.tier, &mut self.shadows);
        let info = shadows[id.0 as usize].as_mut().expect("it has shadow pages").page(page);
        let mut keep = |stored: Stored, tier: &mut super::tier::Tier| {
            tier.keep_copy(id, page, stored);
            info.copied = true;
        };
        if let Some(stored) = kept.filter(|_| raw_slots) {
            keep(stored, tier);
        }
        self.core.apply_effects(|extent, len| match kept {
            Some(stored) if stored.extent == extent => keep(stored, tier),
            _ => tier.release(extent, len),
        });
        info.resident = true;
        if filled == Filled::Read && !info.written {
            info.file = true;
        }
    }
}
