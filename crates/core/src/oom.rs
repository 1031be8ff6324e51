//! Who makes room when the programs do not fit: neither the pool nor the swap tier takes a page
//! ([`Trouble::Hopeless`](crate::driver::Trouble::Hopeless)).
//!
//! The low-memory killer of Han et al. 2018 (section III) takes the process with the largest
//! resident set among those in the background, and kills it unless more of it is in memory than
//! outside. Processes in the background have usually left as a whole before it comes to
//! that ([`Core::set_background`](crate::Core::set_background)), so that here the pages outside
//! count as well: they are what fills the pool and the swap tier.

use crate::core_call::CoreCall;
use crate::engine::Core;
use crate::ids::ProcId;
use crate::table::Proc;

/// The process that is to make room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomVictim {
    /// The process.
    pub proc: ProcId,
    /// Its pages in memory.
    pub present_pages: u64,
    /// Its evicted pages.
    pub out_pages: u64,
}

impl OomVictim {
    fn of(number: usize, of: &Proc) -> OomVictim {
        OomVictim { proc: ProcId(number as u32), present_pages: of.present_pages, out_pages: of.out_pages }
    }

    fn pages(&self) -> u64 {
        self.present_pages + self.out_pages
    }
}

impl Core {
    /// Says whether a process must not be chosen by [`Core::pick_oom_victim`].
    pub fn protect(&mut self, proc: ProcId, protected: bool) {
        self.record(&CoreCall::Protect { proc, protected });
        self.table.proc_mut(proc).protected = protected;
    }

    /// The process in the background with most pages, in memory or outside, that is not protected
    /// and has at least so many; of several the one with the lowest number.
    pub fn pick_oom_victim(&mut self, least_pages: u32) -> Option<OomVictim> {
        self.record(&CoreCall::PickOomVictim { least_pages });
        let all = self.table.procs.iter().enumerate();
        let may_be = |of: &&Proc| of.background && !of.protected;
        let candidates = all.filter_map(|(i, of)| Some(OomVictim::of(i, of.as_ref().filter(may_be)?)));
        let worth = candidates.filter(|victim| victim.pages() >= least_pages.into());
        let victim = worth.max_by_key(|victim| (victim.pages(), core::cmp::Reverse(victim.proc.0)));
        self.driver.decided.mix(CHOICE, victim.map_or(u64::MAX, |victim| victim.proc.0.into()));
        victim
    }

    /// Whether a process is in the background.
    pub fn is_background(&self, proc: ProcId) -> bool {
        self.table.proc(proc).background
    }
}

/// Tells this decision from those of the driver in the hash.
const CHOICE: u64 = 1 << 32;
