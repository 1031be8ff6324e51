//! Statistic: predictions against what happens, which hold in most runs. `make soak` runs them;
//! they are not in the gate.

#[path = "../support/mod.rs"]
mod support;

mod advise;
mod record;
mod record_access;
mod schemes;
