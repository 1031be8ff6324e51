//! Statistic: predictions compared with real runs, which hold in most runs. `make soak` runs them,
//! and the gate does not.

#[path = "../support/mod.rs"]
mod support;

mod advise;
mod record;
mod record_access;
mod schemes;
