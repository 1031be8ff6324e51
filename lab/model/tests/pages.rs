//! Every program in every order within the bound.
//!
//! `MEMFIT_MODEL_DEPTH=1 cargo test --release -p memfit-model -- --nocapture` goes one preemption
//! further.

use memfit_model::config::Changes;
use memfit_model::scenarios;
use memfit_model::search::{explore, Bounds};
use memfit_model::table::Transitions;

/// Unoptimised code gets a smaller bound.
fn bounds() -> Bounds {
    Bounds::of(if cfg!(debug_assertions) { 1 } else { 2 })
}

/// Old state, new state and call of every change that the table allows.
const TRANSITIONS: &[(&str, &str, &str)] = &[
    ("Untracked", "Resident", "adopt"),
    ("Untracked", "Lazy", "adopt"),
    ("Untracked", "Filling", "fault"),
    ("Filling", "Resident", "loaded"),
    ("Filling", "Untracked", "loaded"),
    ("Filling", "Lazy", "loaded"),
    ("Filling", "Quarantined", "loaded"),
    ("Out", "Loading", "fault"),
    ("Loading", "Resident", "loaded"),
    ("Loading", "Out", "loaded"),
    ("Resident", "Evicting", "pick_victims"),
    ("Lazy", "Evicting", "pick_victims"),
    ("Evicting", "Out", "evicted"),
    ("Evicting", "Resident", "evicted"),
    ("Evicting", "Lazy", "evicted"),
    ("Resident", "Quarantined", "removed"),
    ("Lazy", "Quarantined", "removed"),
    ("Out", "Untracked", "removed"),
    ("Quarantined", "Filling", "fault"),
    ("Lazy", "Filling", "fault"),
    ("Quarantined", "Lazy", "end_quarantine"),
    ("Quarantined", "Untracked", "end_quarantine"),
    ("Resident", "Untracked", "unmapped"),
    ("Out", "Untracked", "unmapped"),
    ("Resident", "Untracked", "disown"),
    ("Out", "Untracked", "disown"),
    ("Resident", "Untracked", "remapped"),
    ("Out", "Untracked", "remapped"),
    ("Untracked", "Resident", "remapped"),
    ("Untracked", "Lazy", "remapped"),
    ("Untracked", "Out", "remapped"),
    ("Untracked", "Resident", "forked"),
    ("Untracked", "Lazy", "forked"),
    ("Untracked", "Out", "forked"),
    ("Resident", "Untracked", "remove_process"),
    ("Lazy", "Untracked", "remove_process"),
    ("Quarantined", "Untracked", "remove_process"),
    ("Out", "Untracked", "remove_process"),
    ("Evicting", "Untracked", "remove_process"),
];

#[test]
fn every_program_holds_and_every_transition_is_reached() {
    let mut table = Transitions::default();
    for scenario in scenarios::all() {
        let outcome = explore(&scenario, &Changes::default(), bounds());
        print!("{outcome}");
        assert!(outcome.violation.is_none(), "{outcome}");
        assert!(outcome.complete, "not all was tried, MEMFIT_MODEL_SECONDS gives it more time: {outcome}");
        table.add(&outcome.table);
    }
    println!("{table}");
    let missing: Vec<_> = TRANSITIONS.iter().filter(|(from, to, call)| table.count(from, to, call) == 0).collect();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}
