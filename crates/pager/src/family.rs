//! With whom a process shares pages by fork.

use crate::locks::{rank, Lock};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

/// One process's part in its family: those that descend from one process by forks that we know of,
/// and live.
#[derive(Debug, Default)]
pub struct Family {
    /// The same for all of them, and nobody else has it.
    members: Lock<Arc<()>, { rank::FAMILY }>,
    /// There was a fork: MOVE refuses what was shared until it has been written again, also when
    /// nobody shares it any more.
    forked: AtomicBool,
    /// It may share pages with a process that is not in the family.
    unknown_sharers: AtomicBool,
}

impl Family {
    /// That of a fork child, which both know from now on.
    pub fn of_child(&self) -> Family {
        self.forked.store(true, Relaxed);
        let unknown_sharers = AtomicBool::new(self.unknown_sharers.load(Relaxed));
        Family { members: Lock::new(self.members.lock().clone()), forked: AtomicBool::new(true), unknown_sharers }
    }

    /// The memory is gone.
    pub fn leave(&self) {
        *self.members.lock() = Arc::default();
        self.unknown_sharers.store(false, Relaxed);
    }

    /// Whether two are of the same.
    pub fn is_of(&self, other: &Family) -> bool {
        let members = self.members.lock().clone();
        Arc::ptr_eq(&members, &other.members.lock())
    }

    /// Whether pages must be written to before MOVE takes them.
    pub fn populates(&self) -> bool {
        self.forked.load(Relaxed)
    }

    /// Whether pages may be shared now.
    pub fn shares(&self) -> bool {
        self.has_unknown_sharers() || Arc::strong_count(&self.members.lock()) > 1
    }

    /// MOVE has refused a page. If nobody wrote to it before, there was a fork before the process
    /// was paged.
    pub fn refused(&self) {
        if !self.forked.swap(true, Relaxed) {
            self.unknown_sharers.store(true, Relaxed);
        }
    }

    /// A member is about to fork without a word.
    pub fn hides(&self) {
        self.unknown_sharers.store(true, Relaxed);
    }

    /// Whether it may share pages with somebody unknown.
    pub fn has_unknown_sharers(&self) -> bool {
        self.unknown_sharers.load(Relaxed)
    }

    /// The kernel says that all of its pages are its own. Forks after that are known.
    pub fn is_alone(&self) {
        self.unknown_sharers.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_as_long_as_a_relative_lives() {
        let first = Family::default();
        assert!(!first.shares() && !first.populates());
        let child = first.of_child();
        let grandchild = child.of_child();
        assert!([&first, &child, &grandchild].iter().all(|one| one.shares() && one.populates()));
        // The pages of the two that are left can be the same.
        child.leave();
        assert!(first.shares() && grandchild.shares() && !child.shares());
        assert!(first.is_of(&grandchild) && !first.is_of(&child));
        drop(grandchild);
        assert!(!first.shares(), "all relatives have ended");
        assert!(first.populates(), "the kernel still takes pages for shared");
        assert!(first.of_child().shares() && !first.shares(), "a child that has ended, too");
    }

    #[test]
    fn an_unknown_process_shares_until_the_kernel_says_otherwise() {
        let family = Family::default();
        family.refused();
        assert!(family.shares() && family.populates());
        let child = family.of_child();
        family.is_alone();
        drop(family);
        assert!(child.shares(), "of the child nothing was said");
        child.is_alone();
        child.refused();
        assert!(!child.shares(), "it was written to before: a device uses the page");
        child.hides();
        assert!(child.shares());
    }
}
