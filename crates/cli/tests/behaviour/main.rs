//! Behaviour: real programs that are paged. Tests of budgets, peaks, ends, messages and leftovers
//! wait for a condition, never for a time. A test that fails is run again, but a wrong result of a
//! program always counts as a failure: see [`support::contents`].

#[path = "../support/mod.rs"]
mod support;

mod advise;
mod background;
mod budget;
mod codecs;
mod death;
mod hostile;
mod install;
mod loaded;
mod odd;
mod oom;
mod ordinary;
mod pins;
mod programs;
mod record;
mod record_access;
mod record_contents;
mod report;
mod sandbox;
mod schemes;
mod shared_files;
mod sim;
mod starts;
mod surface;
mod swap;
mod tools;
mod top;
mod torture;
mod tree;
mod turns;
