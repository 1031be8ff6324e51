//! Each rule of the design is needed: without it the search finds a violation and prints the
//! shortest run to it.

use memfit_model::config::{Changes, Rule, Scenario};
use memfit_model::scenarios as s;
use memfit_model::search::{explore, Bounds};

fn breaks(rule: Rule, scenario: &Scenario) {
    let outcome = explore(scenario, &Changes::without(rule), Bounds::of(2));
    println!("without {rule:?}: {outcome}");
    assert!(outcome.violation.is_some(), "{rule:?} switched off does no harm: {outcome}");
}

/// Checks with all rules at this depth; the test of all programs goes less deep if unoptimised.
fn holds(scenario: &Scenario) {
    let outcome = explore(scenario, &Changes::default(), Bounds::of(2));
    assert!(outcome.violation.is_none(), "{outcome}");
}

#[test]
fn rule_3_the_gate_is_closed_while_events_are_read() {
    breaks(Rule::R3Gate, &s::unmap());
}

#[test]
fn rule_3_events_cancel_the_batch() {
    breaks(Rule::R3Cancel, &s::dontneed());
}

#[test]
fn rule_3a_the_window_decides_what_moved() {
    breaks(Rule::R3a, &s::misreport());
}

#[test]
fn rule_5_eagain_is_not_done() {
    breaks(Rule::R5Done, &s::dontneed_beside());
}

#[test]
fn rule_5_events_are_read_before_the_retry() {
    breaks(Rule::R5Retry, &s::dontneed_beside());
}

#[test]
fn rule_6_busy_pages_are_drained_before_a_remap() {
    breaks(Rule::R6, &s::moved());
}

#[test]
fn rule_8_removed_pages_are_quarantined() {
    breaks(Rule::R8, &s::dontneed());
}

#[test]
fn rule_11_evictions_are_drained_before_a_fork() {
    breaks(Rule::R11, &s::fork());
}

#[test]
fn rule_20_events_go_before_faults() {
    breaks(Rule::R20, &s::dontneed());
}

#[test]
fn rule_20_a_fork_goes_before_faults() {
    breaks(Rule::R20Fork, &s::fork_beside());
}

#[test]
fn rule_20_a_fork_does_not_overtake_a_remove() {
    breaks(Rule::R20Hoist, &s::dontneed_then_fork());
}

#[test]
fn rule_20_a_fork_does_not_overtake_a_remap() {
    breaks(Rule::R20Hoist, &s::moved_then_fork());
}

#[test]
fn rule_21_nothing_is_adopted_while_an_event_is_pending() {
    breaks(Rule::R21, &s::grown_and_moved());
}

#[test]
fn rule_22_removed_processes_are_left_alone() {
    breaks(Rule::R22, &s::exit());
}

#[test]
fn a_remap_waits_until_its_target_was_left() {
    breaks(Rule::RemapOrder, &s::place_reused_by_mremap());
}

#[test]
fn nothing_is_done_while_a_remap_waits() {
    breaks(Rule::RemapLocked, &s::moved_into_a_hole());
}

#[test]
fn a_fork_child_is_confirmed() {
    breaks(Rule::Confirm, &s::fork_beside_unmap());
}

#[test]
fn a_fork_child_is_confirmed_with_its_io_held() {
    breaks(Rule::ConfirmLocked, &s::child_moves());
}

#[test]
fn a_page_is_verified_with_io_held() {
    breaks(Rule::VerifyLocked, &s::two_readers());
}

#[test]
fn a_zap_pending_page_is_not_lost() {
    breaks(Rule::ZapPending, &s::touched_during_removal());
    breaks(Rule::ZapPending, &s::zeros_around_then_moved());
    breaks(Rule::ZapPending, &s::zeros_around_and_proof());
}

#[test]
fn a_zap_pending_page_is_adopted_in_quarantine() {
    breaks(Rule::ZapPending, &s::adopted_and_removed());
}

#[test]
fn a_page_that_is_moved_into_a_zap_pending_range_is_not_lost() {
    breaks(Rule::ZapPending, &s::moved_into_a_removal());
}

#[test]
fn freed_pages_are_written_before_they_are_moved() {
    breaks(Rule::Populate, &s::free_and_evicted());
}

#[test]
fn only_pages_of_registered_mappings_are_adopted() {
    breaks(Rule::Registered, &s::hole());
    holds(&s::hole());
    holds(&s::moved_into_a_hole());
}

#[test]
fn a_page_that_the_table_has_proves_nothing() {
    breaks(Rule::ProofUnknown, &s::grown_and_evicted());
}

#[test]
fn events_on_the_place_of_a_remap_keep_their_order() {
    holds(&s::places_in_a_chain());
    holds(&s::place_reused_and_removed());
    holds(&s::place_reused_and_forked());
}

#[test]
fn what_left_the_target_of_a_remap_may_have_done_so_before() {
    breaks(Rule::Grown, &s::grown_place_reused());
    breaks(Rule::Grown, &s::grown_place_moved());
}
