//! The monitor thread: adoption of new memory, and the proof that ends a quarantine.

use crate::config::Rule;
use crate::kernel::Fill;
use crate::world::{Actor, World};
use crate::{page, range, PageNo, BASE, PAGES};
use memfit_core::driver::adoption;
use memfit_core::Entry;

/// For each page, the mapping if the pager may take pages from it.
type Maps = [Option<u8>; PAGES];
/// Pages found present, and whether each is the zero page.
type Present = [Option<bool>; PAGES];

/// State of the scan for new memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Scan {
    /// Not begun.
    #[default]
    Idle,
    /// Has read which pages of the fork child are registered.
    Confirm([bool; PAGES]),
    /// Has read the maps of this process.
    Maps(u8, Maps),
    /// Holds `io`; has registered the pages of these ranges, except holes.
    Registered(u8, [bool; PAGES]),
    /// Has found which of these pages are present.
    Seen(u8, [bool; PAGES], Present),
    /// Has read the maps again.
    Again(u8, [bool; PAGES], Present, Maps),
    /// Has proved which pages are registered, and which of the present ones.
    Proved(u8, [bool; PAGES], Present),
}

/// State of the proof.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Proof {
    /// Not begun.
    #[default]
    Idle,
    /// Has the process in a list.
    Listed,
    /// Waits until these threads are seen asleep (epoch, pages, threads).
    Suspects(u32, Vec<PageNo>, Vec<u8>),
    /// Holds `io`; no event was pending.
    LetGo(u32, Vec<PageNo>),
}

impl World<'_> {
    /// Processes in which the monitor can look for new memory.
    pub(crate) fn scannable(&self) -> Vec<u8> {
        if self.s.scan != Scan::Idle {
            return vec![0];
        }
        let child = |&p: &u8| p == 0 || self.scenario.child_attached;
        (0..2).filter(child).filter(|&p| self.s.left.rescans > 0 && self.s.procs[usize::from(p)].listed).collect()
    }

    pub(crate) fn scan_enabled(&self) -> bool {
        match self.s.scan {
            Scan::Confirm(_) => !self.changes.keeps(Rule::ConfirmLocked) || self.s.procs[1].io.is_none(),
            Scan::Maps(p, _) => self.s.procs[usize::from(p)].io.is_none(),
            _ => true,
        }
    }

    pub(crate) fn step_scan(&mut self, variant: u8) {
        match self.s.scan.clone() {
            Scan::Idle => {
                let proc = self.scannable()[usize::from(variant)];
                self.read_maps(proc);
            }
            Scan::Confirm(registered) => self.confirm(registered),
            Scan::Maps(proc, mapped) => self.register(proc, mapped),
            Scan::Registered(proc, fresh) => {
                let mm = &self.s.mm[usize::from(proc)];
                let seen = std::array::from_fn(|i| mm.pte[i].filter(|_| fresh[i]).map(|pte| pte.zero));
                self.say(|| format!("sees present pages: {}", list(&seen.map(|s| s.is_some()))));
                self.s.scan = Scan::Seen(proc, fresh, seen);
            }
            Scan::Seen(proc, fresh, seen) if self.changes.keeps(Rule::Registered) && seen != [None; PAGES] => {
                self.say(|| "reads the maps again".into());
                self.s.scan = Scan::Again(proc, fresh, seen, self.maps(proc));
            }
            Scan::Again(proc, fresh, seen, maps) => self.prove(proc, fresh, seen, maps),
            Scan::Seen(proc, fresh, seen) | Scan::Proved(proc, fresh, seen) => self.adopt(proc, fresh, seen),
        }
    }

    fn read_maps(&mut self, proc: u8) {
        self.s.left.rescans -= 1;
        if proc == 1 && !self.s.child_known {
            // The child's stub is ready. Ranges that the child lacks must leave the table.
            self.s.child_known = true;
            let registered = std::array::from_fn(|i| self.s.mm[1].registered(i as u8));
            self.say(|| format!("reads what the child has registered: {}", list(&registered)));
            self.s.scan = Scan::Confirm(registered);
            return;
        }
        let maps = self.maps(proc);
        self.say(|| format!("reads the maps of process {proc}: {}", list(&maps.map(|id| id.is_some()))));
        self.s.scan = Scan::Maps(proc, maps);
    }

    fn maps(&self, proc: u8) -> Maps {
        self.s.mm[usize::from(proc)].vma.map(|vma| vma.filter(|v| !v.read_only).map(|v| v.id))
    }

    fn confirm(&mut self, mut registered: [bool; PAGES]) {
        self.s.scan = Scan::Idle;
        if self.s.procs[1].removed {
            return;
        }
        if !self.changes.keeps(Rule::Confirm) {
            self.s.procs[1].regions = [false; PAGES];
            return;
        }
        if self.changes.keeps(Rule::ConfirmLocked) {
            if self.event_pending(1) {
                self.s.child_known = false;
                return;
            }
            registered = std::array::from_fn(|i| self.s.mm[1].registered(i as u8));
        }
        self.say(|| format!("confirms the child's pages {}", list(&registered)));
        let id = self.s.procs[1].core_id();
        for i in (0..PAGES).filter(|&i| !registered[i]) {
            self.call("disown", |core| core.disown(id, range(i as u8, 1)));
        }
        self.s.procs[1].regions = registered;
    }

    /// Registers the ranges of mappings read before. If anything is mapped in a range, the ioctl
    /// registers all mappings in it and leaves its holes out.
    fn register(&mut self, proc: u8, maps: Maps) {
        let p = usize::from(proc);
        if self.s.procs[p].removed && self.changes.keeps(Rule::R22) {
            self.s.scan = Scan::Idle;
            return;
        }
        self.s.procs[p].io = Some(Actor::Rescan);
        let (regions, mm) = (self.s.procs[p].regions, &mut self.s.mm[p]);
        let mut fresh = [false; PAGES];
        let uncovered: Maps = std::array::from_fn(|i| maps[i].filter(|_| !regions[i]));
        for range in mappings(&uncovered) {
            let mut done = false;
            for vma in mm.vma[range.clone()].iter_mut().flatten() {
                (vma.registered, done) = (true, true);
            }
            fresh[range].fill(done);
        }
        self.say(|| format!("takes io, registers pages {}", list(&fresh)));
        self.s.scan = Scan::Registered(proc, fresh);
    }

    /// Keeps what [`adoption::confirmed`] confirms. A COPY to a present page tells whether it is
    /// registered. It must not be a page of the table, which a batch may take before the COPY.
    fn prove(&mut self, proc: u8, fresh: [bool; PAGES], seen: Present, maps: Maps) {
        let id = self.s.procs[usize::from(proc)].core_id();
        let any = !self.changes.keeps(Rule::ProofUnknown);
        let unknown = |i: usize| any || self.core.entry(id, page(i as PageNo)) == Entry::Untracked;
        let of = |i: usize| (i as u64, i as u64 + 1);
        let ranges: Vec<_> = (0..PAGES).filter(|&i| fresh[i]).map(of).collect();
        let present: Vec<_> =
            (0..PAGES).filter(|&i| unknown(i)).filter_map(|i| seen[i].map(|zero| (of(i).0, of(i).1, zero))).collect();
        let mappings = mappings(&maps).into_iter().map(|range| (range.start as u64, range.end as u64));
        let is_registered = |at| match self.fill(usize::from(proc), at as PageNo, &[0]) {
            Fill::Exists => true,
            // Serves as the check for pending events, too.
            Fill::Again(_) => !self.changes.keeps(Rule::R21),
            _ => false,
        };
        let (confirmed, pages) = adoption::confirmed(mappings, &ranges, &present, is_registered);
        let (mut regions, mut proved) = ([false; PAGES], [None; PAGES]);
        confirmed.into_iter().for_each(|(start, end)| regions[start as usize..end as usize].fill(true));
        for (start, end, zero) in pages {
            proved[start as usize..end as usize].fill(Some(zero));
        }
        self.s.scan = Scan::Proved(proc, regions, proved);
    }

    fn adopt(&mut self, proc: u8, fresh: [bool; PAGES], seen: Present) {
        let p = usize::from(proc);
        self.s.scan = Scan::Idle;
        self.s.procs[p].io = None;
        if self.event_pending(p) && self.changes.keeps(Rule::R21) {
            self.say(|| "finds an event pending: scans again later".into());
            return;
        }
        self.say(|| format!("adopts pages {}", list(&seen.map(|s| s.is_some()))));
        let id = self.s.procs[p].core_id();
        for i in (0..PAGES).filter(|&i| fresh[i]) {
            self.s.procs[p].regions[i] = true;
        }
        for (i, zero) in (0..).zip(seen) {
            if let Some(zero) = zero {
                self.call("adopt", |core| core.adopt(id, page(i), zero));
            }
        }
    }

    pub(crate) fn proof_enabled(&self) -> bool {
        match &self.s.proof {
            Proof::Idle => self.s.procs[0].listed && self.s.left.proofs > 0 && self.to_prove(),
            Proof::Suspects(_, _, suspects) => {
                suspects.iter().any(|&t| self.asleep(t)) || (suspects.is_empty() && self.s.procs[0].io.is_none())
            }
            Proof::Listed | Proof::LetGo(..) => true,
        }
    }

    /// Whether a page is in quarantine or a range is zap-pending.
    fn to_prove(&self) -> bool {
        let quarantined = self.core.quarantined_pages(self.s.procs[0].core_id()) > 0;
        quarantined || self.core.has_zap_pending(self.s.procs[0].core_id())
    }

    fn asleep(&self, thread: u8) -> bool {
        self.s.threads[usize::from(thread)].sleeps(self.next_op(thread), self.s.signals)
    }

    pub(crate) fn step_proof(&mut self) {
        match self.s.proof.clone() {
            Proof::Idle if self.scenario.stale_lists => {
                self.s.left.proofs -= 1;
                self.s.proof = Proof::Listed;
            }
            Proof::Idle => {
                self.s.left.proofs -= 1;
                self.begin_proof();
            }
            Proof::Listed => self.begin_proof(),
            Proof::Suspects(epoch, pages, suspects) if suspects.is_empty() => self.check_pending(epoch, pages),
            Proof::Suspects(epoch, pages, suspects) => {
                let left = suspects.into_iter().filter(|&t| !self.asleep(t)).collect();
                self.say(|| format!("has not seen these threads asleep: {left:?}"));
                self.s.proof = Proof::Suspects(epoch, pages, left);
            }
            Proof::LetGo(epoch, pages) => self.let_go(epoch, &pages),
        }
    }

    fn begin_proof(&mut self) {
        self.s.proof = Proof::Idle;
        if self.s.procs[0].removed && self.changes.keeps(Rule::R22) {
            return;
        }
        if !self.to_prove() {
            return;
        }
        let id = self.s.procs[0].core_id();
        let (epoch, pages) = self.call("begin_proof", |core| core.begin_proof(id));
        self.s.proofs_begun += 1;
        let pages: Vec<PageNo> = pages.into_iter().map(|p| (p.0 - BASE) as PageNo).collect();
        self.say(|| format!("begins the proof of epoch {epoch} for pages {pages:?}"));
        let alive = |&t: &u8| self.s.threads[usize::from(t)].proc == 0;
        let suspects = (0..self.s.threads.len() as u8).filter(alive).collect();
        self.s.proof = Proof::Suspects(epoch, pages, suspects);
    }

    fn check_pending(&mut self, epoch: u32, pages: Vec<PageNo>) {
        let gone = self.s.procs[0].removed && self.changes.keeps(Rule::R22);
        if gone || self.event_pending(0) {
            self.say(|| "finds an event pending: gives the proof up".into());
            self.s.proof = Proof::Idle;
            return;
        }
        self.s.procs[0].io = Some(Actor::Proof);
        self.s.proof = Proof::LetGo(epoch, pages);
    }

    fn let_go(&mut self, epoch: u32, pages: &[PageNo]) {
        let id = self.s.procs[0].core_id();
        let pages = if self.s.mm[0].gone { &[] } else { pages };
        self.call("end_zap_pending", |core| core.end_zap_pending(id, epoch));
        for &number in pages {
            let present = self.s.mm[0].pte[usize::from(number)].is_some();
            self.say(|| format!("ends the quarantine of page {number}, present: {present}"));
            self.call("end_quarantine", |core| core.end_quarantine(id, page(number), epoch, present));
        }
        self.s.procs[0].io = None;
        self.s.proof = Proof::Idle;
    }
}

/// Splits the pages into ranges of one mapping each.
fn mappings(maps: &Maps) -> Vec<std::ops::Range<usize>> {
    let runs = maps.chunk_by(|a, b| a == b).scan(0, |at, run| {
        let first = *at;
        *at += run.len();
        Some(first..*at)
    });
    runs.filter(|range| maps[range.start].is_some()).collect()
}

fn list(pages: &[bool; PAGES]) -> String {
    let numbers: Vec<String> = (0..PAGES).filter(|&i| pages[i]).map(|i| i.to_string()).collect();
    format!("[{}]", numbers.join(" "))
}
