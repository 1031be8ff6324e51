//! How many of the touches of a program its recording has.

use crate::support::sampled::{known, ROUNDS};
use crate::support::Bench;

#[test]
fn most_touches_of_sampled_pages_are_recorded() {
    let Some(bench) = Bench::new("record_access_most", &["gcc"]) else { return };
    let Some(known) = known(&bench) else { return };
    let sum: usize = known.touched.iter().sum();
    // On a busy machine a pass can take longer than the program's pause.
    assert!(sum * 10 >= known.touched.len() * ROUNDS * 7, "{:?}", known.touched);
    assert!(known.touched.len() + known.others.len() >= 64, "the sample is too small to tell");
}
