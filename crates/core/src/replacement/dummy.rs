//! An example of a new policy that only tests have: this file and its line in
//! [`super::REPLACEMENTS`]. The unit with the lowest number leaves first.

use super::{Policy, ReplacementEntry, ReplacementMode, Zpage};
use crate::pool::{Unit, UnitView};
use std::collections::BTreeSet;

pub(super) const ENTRY: ReplacementEntry = ReplacementEntry {
    name: "dummy",
    help: "units in the order of their numbers",
    fits: |_| true,
    make: |_| ReplacementMode::Policy(Box::<Dummy>::default()),
};

/// Known units that have not been picked as victims.
#[derive(Default)]
struct Dummy(BTreeSet<Unit>);

impl Policy for Dummy {
    fn stored(&mut self, _: Zpage, unit: Unit, _: UnitView) {
        self.0.insert(unit);
    }

    fn left(&mut self, _: Zpage, unit: Unit, view: UnitView) {
        if view.zpages == 0 {
            self.0.remove(&unit);
        }
    }

    fn victims(&mut self, out: &mut Vec<Unit>) {
        out.extend(self.0.pop_first());
    }

    fn returned(&mut self, unit: Unit, _: UnitView) {
        self.0.insert(unit);
    }

    fn metadata_bytes(&self) -> u64 {
        (self.0.len() * size_of::<Unit>()) as u64
    }
}
